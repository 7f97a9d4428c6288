"""Tensor parallelism: what a layer and the ends send, where it hides, what must divide."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

import parcost
from parcost import Check, Op, Scenario, Study, Work, hookimpl
from parcost.evaluation.judge import diagnose
from parcost.plugins import load

# A wire of 1 B/s without latency: seconds are the bytes that a rank sends.
BYTES = "fabric wire { level node { size = 8 devices, bandwidth = 1 B/s per_direction, latency = 0 s }\n level net { bandwidth = 1 B/s per_direction, latency = 0 s } }"
H, S = 4096, 2048  # of Llama 3 8B, and the sequence
M_A = 2 * S * H


def scenario(
    layout: str,
    *,
    model: str = "llama3_8b",
    fabric: str = BYTES,
    training: str = "",
    overlap: str = "",
    extra: str = "",
    schedules: Sequence[object] = (),
) -> Scenario:
    offered = SimpleNamespace(schedules=hookimpl(lambda: list(schedules)))
    (found,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.precisions.bf16
        {model if "{" in model else f"use catalog.models.{model}"}
        {fabric}
        cluster {{ devices = 48 }}
        collectives {{ tensor = ring }}
        overlap {{ {overlap} }}
        layout {{ {layout} }}
        training {{ global_batch = 1536 sequences, {training or f"sequence = {S}"} }}
        {extra}
        """,
        plugins=load(("third_party", offered)),
    )
    return found


def study(layout: str, **options: object) -> Study:
    (found,) = scenario(layout, **options).studies()  # type: ignore[arg-type]
    return found


def work(of: Study) -> dict[tuple[str, str], Work]:
    assert not of.faults
    return {
        (term.name, term.pass_): term
        for plugin, term in of.contributions("terms")
        if plugin.name == "tensor_parallel" and isinstance(term, Work)
    }


def sent(terms: dict[tuple[str, str], Work], passes: str, stage: int = 0) -> float:
    """Bytes that a rank sends for one micro-batch on a virtual stage."""
    return sum(t.seconds * t.count[stage] for t in terms.values() if t.pass_ in passes)


# --- What is sent -----------------------------------------------------------------------


def layers_alone(layout: str, **options: object) -> dict[tuple[str, str], Work]:
    options["extra"] = f"tensor_parallel {{ ends = off }}\n{options.get('extra', '')}"
    return work(study(layout, **options))


def test_a_layer_reduces_twice_forward_and_twice_backward() -> None:
    # GPT-3, 2048 tokens, 8 ranks: 352.3 MB per layer and rank
    found = layers_alone("tp = 8, vocabulary_multiple = 128", model="gpt3_175b")
    per_layer = 4 * 2 * 7 / 8 * 2 * 2048 * 12_288
    assert sent(found, "FRBW") == pytest.approx(96 * per_layer, rel=1e-12)
    assert per_layer == pytest.approx(352.3e6, rel=1e-4)
    assert sent(found, "F") == sent(found, "BW")


def test_sequence_parallelism_sends_the_same_and_gathers_saved_inputs_again() -> None:
    plain = layers_alone("tp = 8")
    shard = layers_alone("tp = 8, sequence_parallel = on")
    again = shard["saved input all-gather", "B"]
    assert again.seconds * again.count[0] == pytest.approx(32 * 2 * 7 / 8 * M_A, rel=1e-12)
    assert sent(shard, "F") == pytest.approx(sent(plain, "F"), rel=1e-12)
    assert sent(shard, "BW") - again.seconds * again.count[0] == pytest.approx(
        sent(plain, "BW"), rel=1e-12
    )
    assert {name: tuple(t.count) for (name, p), t in shard.items() if p == "F"} == {
        "tensor all-gather": (64,),
        "tensor reduce-scatter": (64,),
    }


@pytest.mark.parametrize("sequence_parallel", ["on", "off"])
def test_full_recomputation_repeats_what_the_layers_send_forward(sequence_parallel: str) -> None:
    options = {"training": f"sequence = {S}, recompute = full"}
    found = work(study(f"tp = 8, pp = 2, sequence_parallel = {sequence_parallel}", **options))
    again = {(t.name, tuple(t.count)) for t in found.values() if t.pass_ == "R"}
    forward = {(t.name, tuple(t.count)) for t in found.values() if t.pass_ == "F"}
    assert again == {(name, count) for name, count in forward if count == (32, 32)}
    selective = {"training": f"sequence = {S}, recompute = selective"}
    assert not sent(work(study("tp = 8", **selective)), "R")


def test_the_ends_of_sequence_parallelism() -> None:
    found = work(study("tp = 8, pp = 2, sequence_parallel = on"))
    ends = {key: t for key, t in found.items() if 0 in t.count}
    assert {key: tuple(t.count) for key, t in ends.items()} == {
        ("embedding reduce-scatter", "F"): (1, 0),
        ("embedding gradient all-gather", "W"): (1, 0),
        ("head all-gather", "F"): (0, 1),
        ("head saved input all-gather", "B"): (0, 1),
        ("head input gradient reduce-scatter", "B"): (0, 1),
        ("loss all-reduce", "F"): (0, 3),
    }
    assert {t.bytes_ for key, t in ends.items() if "loss" not in key[0]} == {M_A}
    assert ends["loss all-reduce", "F"].bytes_ == 4 * S


def test_the_ends_without_sequence_parallelism() -> None:
    found = work(study("tp = 8, pp = 2"))
    ends = {key: tuple(t.count) for key, t in found.items() if 0 in t.count}
    assert ends == {
        ("embedding all-reduce", "F"): (1, 0),
        ("head input gradient all-reduce", "B"): (0, 1),
        ("loss all-reduce", "F"): (0, 3),
    }


def test_messages_follow_the_recipe_and_the_micro_batch() -> None:
    wide = "precision wide extends bf16 { activation = 4 B }"
    training = f"sequence = {S}, micro_batch = 3, precision = wide"
    found = layers_alone("tp = 8", training=training, extra=wide)
    assert found["tensor all-reduce", "F"].bytes_ == 3 * 2 * M_A


def test_one_rank_sends_nothing() -> None:
    assert work(study("tp = 1, sequence_parallel = on")) == {}
    swept = work(study("tp = [1, 2], sequence_parallel = on"))
    for term in swept.values():
        assert np.broadcast_to(term.seconds, 2)[0] == 0


def test_traffic_keeps_the_outermost_level_busy_that_the_group_spans() -> None:
    inside, across = study("tp = 8"), study("tp = 16")
    assert {t.resource for t in work(inside).values()} == {"node"}
    assert {t.resource for t in work(across).values()} == {"net"}


def test_formulas_name_the_message() -> None:
    for (name, _), term in work(study("tp = 8, sequence_parallel = on")).items():
        size = "s b l" if name == "loss all-reduce" else "s b h e"
        assert term.formula.text.endswith(f"n = {size}")
        product = 1.0
        for letter in size.split():
            product *= term.formula.inputs[letter][0]
        assert term.formula.inputs["n"][0] == term.bytes_ == product


# --- What hides -------------------------------------------------------------------------


def test_on_the_critical_path_only_saved_inputs_hide() -> None:
    found = work(study("tp = 8, sequence_parallel = on"))
    assert {key: t.window for key, t in found.items() if t.window} == {
        ("saved input all-gather", "B"): "column-parallel input gradients",
        ("head saved input all-gather", "B"): "head input gradient",
    }


@pytest.mark.parametrize(
    ("sequence_parallel", "operation"), [("off", "all-reduce"), ("on", "reduce-scatter")]
)
def test_sums_of_backward_may_hide_under_weight_gradients(
    sequence_parallel: str, operation: str
) -> None:
    found = work(study(f"tp = 8, sequence_parallel = {sequence_parallel}", overlap="tensor = on"))
    assert {key: t.window for key, t in found.items() if t.pass_ == "W" and t.window} == {
        (f"input gradient {operation}", "W"): "column-parallel weight gradients",
        (f"head input gradient {operation}", "W"): "head weight gradient",
    }


def test_what_hides_takes_multiprocessors_from_compute() -> None:
    found = work(study("tp = 8", overlap="tensor = on, multiprocessors = 12"))
    assert {t.slowdown for t in found.values()} == {12 / (132 - 12)}


class PutsOff:
    """Input gradients first, all weight gradients at the end."""

    name = "puts_off"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        every = range(micro_batches)
        return [
            [Op(kind, j, x) for kind in ("F", "B", "W") for j in every]  # type: ignore[arg-type]
            for x in range(stages)
        ]


def test_a_schedule_that_puts_weight_gradients_off_leaves_sums_serial() -> None:
    found = work(
        study(
            "tp = 8, pp = 2, sequence_parallel = on",
            overlap="tensor = on",
            extra="schedule { kind = puts_off }",
            schedules=[PutsOff()],
        )
    )
    assert found["input gradient reduce-scatter", "B"].window is None
    assert found["head input gradient reduce-scatter", "B"].window is None
    assert found["saved input all-gather", "B"].window == "column-parallel input gradients"


# --- The end-to-end example --------------------------------------------------------------

LLAMA_3_70B = {
    "model": "llama3_70b",
    # 7 rounds of 15/7 us
    "fabric": """fabric wire {
      level node { size = 8 devices, bandwidth = 360 GB/s per_direction, latency = 15 / 7 * 1 us }
      level net { bandwidth = 45 GB/s per_direction, latency = 20 us }
    }""",
    "training": "sequence = 8192",
    "overlap": "multiprocessors = 0, tensor = off",
    "extra": """
    tensor_parallel { ends = off }
    kernels {
      model = constant, gemm_efficiency = 75 %, memory_bound = off
      attention_forward_efficiency = 50 %, attention_backward_efficiency = 45 %
    }
    """,
}


def test_a_layer_of_llama_3_70b_forward_and_backward() -> None:
    found = study("tp = 8, pp = 2, sequence_parallel = on", **LLAMA_3_70B)
    works = [
        (plugin.name, term)
        for plugin, term in found.contributions("terms")
        if isinstance(term, Work)
    ]
    (collective,) = {t.seconds for name, t in works if name == "tensor_parallel"}
    assert collective == pytest.approx(0.34122e-3, abs=5e-9)

    priced = ("kernel_pricing", "tensor_parallel")

    def layer(passes: str) -> float:
        return sum(
            t.seconds * t.count[0] / 40
            for name, t in works
            if t.pass_ in passes and t.window is None and name in priced
        )

    assert layer("F") == pytest.approx(4.00528e-3, rel=1e-5)
    assert layer("BW") == pytest.approx(6.86184e-3, rel=1e-5)
    # two gathers of 0.341 ms hide under 1.5 ms of column-parallel input gradients
    hosts = sum(
        t.seconds
        for _, t in works
        if t.pass_ == "B" and t.host == "column-parallel input gradients"
    )
    assert 2 * collective < hosts


# --- Rules ------------------------------------------------------------------------------


def failing(of: Study) -> list[tuple[str, str, str | None]]:
    """What the rules of tensor parallelism say, as a user reads it."""
    found = [
        check
        for plugin, check in of.contributions("checks")
        if plugin.name == "tensor_parallel" and not np.all(check.holds)
    ]
    said = [(check.id, diagnose(check, of)) for check in found]
    return [(id_, d.message, d.help) for id_, d in said]


def test_heads_must_divide() -> None:
    # neither do the MLP's 28,672 columns nor the 2048 tokens, for the same reason
    assert failing(study("tp = 6, sequence_parallel = on", model="llama3_70b")) == [
        ("heads-divide", "64 heads do not divide by tp = 6", "nearest legal: tp = 4 or 8")
    ]


def test_more_ranks_than_heads_have_only_fewer_ranks_to_go_to() -> None:
    ((_, message, hint),) = failing(study("tp = 48"))
    assert message == "32 heads do not divide by tp = 48"
    assert hint == "nearest legal: tp = 32"


MODEL = "model m { layers = 2, hidden = 768, heads = 12, kv_heads = %s, ffn = %s, vocabulary = %s }"


def test_kv_heads_divide_or_are_copied() -> None:
    assert failing(study("tp = 4", model=MODEL % (2, 3072, 1024))) == []
    assert failing(study("tp = 2", model=MODEL % (4, 3072, 1024))) == []
    assert failing(study("tp = 6", model=MODEL % (4, 3072, 1020))) == [
        (
            "kv-heads-divide",
            "4 KV heads do not divide by tp = 6, nor tp by them",
            "nearest legal: tp = 4 or 12",
        )
    ]


def test_the_mlp_must_divide() -> None:
    assert failing(study("tp = 4", model=MODEL % (4, 3074, 1024))) == [
        (
            "ffn-divide",
            "an MLP of width 3074 does not divide by tp = 4",
            "nearest legal: tp = 2",
        )
    ]


def test_the_vocabulary_must_divide_or_be_padded() -> None:
    assert failing(study("tp = 4", model=MODEL % (4, 3072, 50_257))) == [
        (
            "vocabulary-divide",
            "a vocabulary of 50257 does not divide by tp = 4",
            "`layout.vocabulary_multiple = 128` pads it to 50688, as Megatron-LM does",
        )
    ]
    padded = study("tp = 4, vocabulary_multiple = 128", model=MODEL % (4, 3072, 50_257))
    assert failing(padded) == []


def test_sequence_parallelism_needs_equal_shares() -> None:
    odd = {"training": "sequence = 2049"}
    assert failing(study("tp = 8", **odd)) == []
    assert failing(study("tp = 8, sequence_parallel = on", **odd)) == [
        (
            "sequence-divide",
            "a sequence of 2049 tokens does not divide by tp = 8",
            "sequence parallelism gives every rank the same share: take 2048 or 2056 tokens",
        )
    ]


def test_sequence_parallelism_alone_is_warned_of() -> None:
    ((id_, message, _),) = failing(study("tp = 1, sequence_parallel = on"))
    assert (id_, message) == (
        "sequence-parallel-alone",
        "sequence parallelism shards nothing: tp is 1",
    )
    checks = [c for _, c in study("tp = 1, sequence_parallel = on").contributions("checks")]
    assert {c.severity for c in checks if c.id == id_} == {"warning"}
    assert failing(study("tp = [1, 2], sequence_parallel = on")) == []


def test_rules_judge_a_sweep_point_by_point() -> None:
    swept = study("tp = [2, 6, 8, 12]", model="llama3_70b")
    found = {c.id: c for _, c in swept.contributions("checks") if isinstance(c, Check)}
    assert found["heads-divide"].holds.tolist() == [True, False, True, False]
    assert failing(swept)[0] == (
        "heads-divide",
        "64 heads do not divide by tp = 6",
        "nearest legal: tp = 4 or 8",
    )


# --- Arrays -----------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["tensor = on", "tensor = off"])
@pytest.mark.parametrize("sequence_parallel", ["on", "off"])
def test_arrays_cost_what_their_elements_cost(overlap: str, sequence_parallel: str) -> None:
    rest = f"pp = 2, sequence_parallel = {sequence_parallel}"
    values = (2, 4, 8)
    swept = work(study(f"tp = {list(values)}, {rest}", overlap=overlap))
    for i, tp in enumerate(values):
        alone = work(study(f"tp = {tp}, {rest}", overlap=overlap))
        assert alone.keys() == swept.keys()
        for key, term in alone.items():
            many = swept[key]
            for attribute in ("seconds", "bytes_", "slowdown"):
                got = np.broadcast_to(getattr(many, attribute), 3)[i]
                assert got == pytest.approx(getattr(term, attribute), rel=1e-12)
            assert (tuple(many.count), many.window) == (tuple(term.count), term.window)
