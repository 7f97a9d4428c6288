"""Tensor parallelism: what a layer and the ends send, where it hides, what must divide."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

import parcost
from parcost import Check, Op, Scenario, Schedule, Study, Work, hookimpl
from parcost.engine.rules import diagnose
from parcost.plugins.discovery import load
from parcost_plugins.vocabulary import Gemm
from parcost_plugins.vocabulary.operators import ATTENTION_COLUMNS, HEAD_COLUMNS, MLP_COLUMNS

from ..rows import mark_most

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


def sent_bytes(terms: dict[tuple[str, str], Work], passes: str, stage: int = 0) -> float:
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
    assert sent_bytes(found, "FRBW") == pytest.approx(96 * per_layer, rel=1e-12)
    assert per_layer == pytest.approx(352.3e6, rel=1e-4)
    assert sent_bytes(found, "F") == sent_bytes(found, "BW")


@pytest.mark.slow
def test_sequence_parallelism_sends_the_same_and_gathers_saved_inputs_again() -> None:
    plain = layers_alone("tp = 8")
    shard = layers_alone("tp = 8, sequence_parallel = on")
    again = sum(
        t.seconds * t.count[0] for (name, _), t in shard.items() if name.startswith("saved input")
    )
    assert again == pytest.approx(32 * 2 * 7 / 8 * M_A, rel=1e-12)
    assert sent_bytes(shard, "F") == pytest.approx(sent_bytes(plain, "F"), rel=1e-12)
    assert sent_bytes(shard, "BW") - again == pytest.approx(sent_bytes(plain, "BW"), rel=1e-12)
    assert {name: tuple(t.count) for (name, p), t in shard.items() if p == "F"} == {
        "tensor all-gather": (64,),
        "tensor reduce-scatter": (64,),
    }


@pytest.mark.slow
@pytest.mark.parametrize("sequence_parallel", ["on", "off"])
def test_full_recomputation_repeats_what_the_layers_send_forward(sequence_parallel: str) -> None:
    options = {"training": f"sequence = {S}, recompute = full"}
    found = work(study(f"tp = 8, pp = 2, sequence_parallel = {sequence_parallel}", **options))
    again = {(t.name, tuple(t.count)) for t in found.values() if t.pass_ == "R"}
    forward = {(t.name, tuple(t.count)) for t in found.values() if t.pass_ == "F"}
    assert again == {(name, count) for name, count in forward if count == (32, 32)}
    selective = {"training": f"sequence = {S}, recompute = selective"}
    assert not sent_bytes(work(study("tp = 8", **selective)), "R")


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


@pytest.mark.slow
def test_messages_follow_the_recipe_and_the_micro_batch() -> None:
    wide = "precision wide extends bf16 { activation = 4 B }"
    training = f"sequence = {S}, micro_batch = 3, precision = wide"
    found = layers_alone("tp = 8", training=training, extra=wide)
    assert found["tensor all-reduce", "F"].bytes_ == 3 * 2 * M_A


@pytest.mark.slow
def test_one_rank_sends_nothing() -> None:
    assert work(study("tp = 1, sequence_parallel = on")) == {}
    swept = work(study("tp = [1, 2], sequence_parallel = on"))
    for term in swept.values():
        assert np.broadcast_to(term.seconds, 2)[0] == 0


@pytest.mark.slow
def test_traffic_runs_in_sequence_on_the_outermost_level_that_it_crosses() -> None:
    # Eight rings leave a node through eight ports: the node limits where a port is as fast.
    slow = BYTES.replace("net { bandwidth = 1 B", "net { bandwidth = 0.01 B")
    inside, across = study("tp = 8", fabric=slow), study("tp = 16", fabric=slow)
    assert {t.resource for t in work(inside).values()} == {"node"}
    assert {t.resource for t in work(across).values()} == {"net"}
    fast = work(study("tp = 16")).values()
    assert {(t.resource, t.also, t.also_busy) for t in fast} == {("net", ("node",), (1.0,))}


def test_formulas_name_the_message() -> None:
    for (name, _), term in work(study("tp = 8, sequence_parallel = on")).items():
        size = "s b l" if name == "loss all-reduce" else "s b h e"
        assert term.formula.parts["n"].text == size
        product = 1.0
        for symbol in size.split():
            product *= term.formula.parts["n"].inputs[symbol][0]
        assert term.formula.inputs["n"][0] == term.bytes_ == product


# --- What hides -------------------------------------------------------------------------


@pytest.mark.slow
def test_on_the_critical_path_only_saved_inputs_hide() -> None:
    found = work(study("tp = 8, sequence_parallel = on"))
    assert {key: t.window for key, t in found.items() if t.window} == {
        ("saved input all-gather, attention", "B"): ATTENTION_COLUMNS,
        ("saved input all-gather, MLP", "B"): MLP_COLUMNS,
        ("head saved input all-gather", "B"): HEAD_COLUMNS,
    }


@pytest.mark.parametrize(
    ("sequence_parallel", "operation"), [("off", "all-reduce"), ("on", "reduce-scatter")]
)
def test_sums_of_backward_may_hide_under_weight_gradients(
    sequence_parallel: str, operation: str
) -> None:
    found = work(study(f"tp = 8, sequence_parallel = {sequence_parallel}", overlap="tensor = on"))
    assert {key: t.window for key, t in found.items() if t.pass_ == "W" and t.window} == {
        (f"input gradient {operation}, attention", "W"): ATTENTION_COLUMNS,
        (f"input gradient {operation}, MLP", "W"): MLP_COLUMNS,
        (f"head input gradient {operation}", "W"): HEAD_COLUMNS,
    }


def test_hidden_collectives_take_multiprocessors_from_compute() -> None:
    found = work(study("tp = 8", overlap="tensor = on, multiprocessors = 12"))
    assert {t.slowdown for t in found.values()} == {12 / (132 - 12)}


class PutsOff(Schedule):
    """Input gradients first, all weight gradients at the end."""

    name = "puts_off"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        every = range(micro_batches)
        return [
            [Op(kind, j, x) for kind in ("F", "B", "W") for j in every]  # type: ignore[arg-type]
            for x in range(stages)
        ]


@pytest.mark.slow
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
    assert found["saved input all-gather, MLP", "B"].window == MLP_COLUMNS


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


@pytest.mark.slow
def test_a_layer_of_llama_3_70b_forward_and_backward() -> None:
    found = study("tp = 8, pp = 2, sequence_parallel = on", **LLAMA_3_70B)
    works = [
        (plugin.name, term)
        for plugin, term in found.contributions("terms")
        if isinstance(term, Work)
    ]
    (collective,) = {t.seconds for name, t in works if name == "tensor_parallel"}
    assert collective == pytest.approx(0.34122e-3, abs=5e-9)

    priced = ("kernels.operator_times", "tensor_parallel")

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
        t.seconds for _, t in works if t.pass_ == "B" and t.host in (ATTENTION_COLUMNS, MLP_COLUMNS)
    )
    assert 2 * collective < hosts


# --- Rules ------------------------------------------------------------------------------


def failures(of: Study) -> list[tuple[str, str, str | None]]:
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
    assert failures(study("tp = 6, sequence_parallel = on", model="llama3_70b")) == [
        ("heads-divide", "64 heads are not divisible by tp = 6", "nearest legal: tp = 4 or 8")
    ]


def test_more_ranks_than_heads_have_only_fewer_ranks_to_go_to() -> None:
    ((_, message, hint),) = failures(study("tp = 48"))
    assert message == "32 heads are not divisible by tp = 48"
    assert hint == "nearest legal: tp = 32"


MODEL = "model m { layers = 2, hidden = 768, heads = 12, kv_heads = %s, ffn = %s, vocabulary = %s }"


@pytest.mark.slow
def test_kv_heads_divide_or_are_copied() -> None:
    assert failures(study("tp = 4", model=MODEL % (2, 3072, 1024))) == []
    assert failures(study("tp = 2", model=MODEL % (4, 3072, 1024))) == []
    assert failures(study("tp = 6", model=MODEL % (4, 3072, 1020))) == [
        (
            "kv-heads-divide",
            "4 KV heads are not divisible by tp = 6, nor tp by them",
            "nearest legal: tp = 4 or 12",
        )
    ]


def test_the_mlp_must_divide() -> None:
    assert failures(study("tp = 4", model=MODEL % (4, 3074, 1024))) == [
        (
            "ffn-divide",
            "an FFN hidden size of 3074 is not divisible by tp = 4",
            "nearest legal: tp = 2",
        )
    ]


@pytest.mark.slow
def test_the_vocabulary_must_divide_or_be_padded() -> None:
    assert failures(study("tp = 4", model=MODEL % (4, 3072, 50_257))) == [
        (
            "vocabulary-divide",
            "a vocabulary of 50257 is not divisible by tp = 4",
            "`layout.vocabulary_multiple = 128` pads it to 50688, as Megatron-LM does",
        )
    ]
    padded = study("tp = 4, vocabulary_multiple = 128", model=MODEL % (4, 3072, 50_257))
    assert failures(padded) == []


@pytest.mark.slow
def test_sequence_parallelism_needs_equal_shares() -> None:
    odd = {"training": "sequence = 2049"}
    assert failures(study("tp = 8", **odd)) == []
    assert failures(study("tp = 8, sequence_parallel = on", **odd)) == [
        (
            "sequence-divide",
            "a sequence of 2049 tokens is not divisible by tp = 8",
            "take 2048 or 2056 tokens: sequence parallelism gives every rank an equal part",
        )
    ]


@pytest.mark.slow
def test_sequence_parallelism_alone_is_warned_of() -> None:
    ((id_, message, _),) = failures(study("tp = 1, sequence_parallel = on"))
    assert (id_, message) == (
        "sequence-parallel-alone",
        "sequence parallelism has no effect: tp is 1",
    )
    checks = [c for _, c in study("tp = 1, sequence_parallel = on").contributions("checks")]
    assert {c.severity for c in checks if c.id == id_} == {"warning"}
    assert failures(study("tp = [1, 2], sequence_parallel = on")) == []


@pytest.mark.slow
def test_rules_judge_a_sweep_point_by_point() -> None:
    swept = study("tp = [2, 6, 8, 12]", model="llama3_70b")
    found = {c.id: c for _, c in swept.contributions("checks") if isinstance(c, Check)}
    assert found["heads-divide"].holds.tolist() == [True, False, True, False]
    assert failures(swept)[0] == (
        "heads-divide",
        "64 heads are not divisible by tp = 6",
        "nearest legal: tp = 4 or 8",
    )


# --- Arrays -----------------------------------------------------------------------------


@pytest.mark.slow
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


# --- Product by product, in chunks, in halves ------------------------------------------------

FAST_GEMMS = "kernels { model = constant, memory_bound = off, gemm_efficiency = 50 % }"


def ledger(layout: str, overlap: str, **options: object) -> dict[tuple[str, str], float]:
    """Exposed seconds of tensor parallelism per micro-batch, by name and pass."""
    report = scenario(layout, overlap=overlap, **options).evaluate()  # type: ignore[arg-type]
    outcome = report.results[0].outcome
    return {
        (line.name, line.pass_): float(line.exposed / outcome.pipeline.micro_batches)
        for line in outcome.ledger
        if line.plugin is not None and line.plugin.name == "tensor_parallel"
    }


# a wire on which one reduce-scatter of 2 x 2048 x 4096 B over 8 ranks takes 14.7e6 / B seconds
def wire(rate: str) -> str:
    return (
        f"fabric wire {{ level node {{ size = 8 devices, bandwidth = {rate} per_direction, "
        f"latency = 0 s }}\n level net {{ bandwidth = {rate} per_direction, latency = 0 s }} }}"
    )


@pytest.mark.slow
def test_a_sum_hides_under_the_weight_gradient_of_its_own_product_alone() -> None:
    # Llama 3 8B over 8 ranks at 494.5 TFLOP/s: the weight gradient of QKV multiplies 2048 x 4096
    # x 768, that of gate and up 2048 x 4096 x 3584. At 60 GB/s a sum takes 244.7 us.
    send = 7 / 8 * M_A / 60e9
    qkv, up = (2 * S * H * n / 494.5e12 for n in (768, 3584))
    assert qkv < up < send
    found = ledger(
        "tp = 8, sequence_parallel = on",
        "tensor = on, multiprocessors = 0",
        fabric=wire("60 GB/s"),
        extra=FAST_GEMMS,
    )
    assert found["input gradient reduce-scatter, attention", "W"] == pytest.approx(
        32 * (send - qkv), rel=1e-9
    )
    assert found["input gradient reduce-scatter, MLP", "W"] == pytest.approx(
        32 * (send - up), rel=1e-9
    )
    # at 200 GB/s the MLP's is hidden and attention's is not, whatever room the MLP has left
    fast = ledger(
        "tp = 8, sequence_parallel = on",
        "tensor = on, multiprocessors = 0",
        fabric=wire("200 GB/s"),
        extra=FAST_GEMMS,
    )
    assert fast["input gradient reduce-scatter, MLP", "W"] == 0
    assert fast["input gradient reduce-scatter, attention", "W"] == pytest.approx(
        32 * (7 / 8 * M_A / 200e9 - qkv), rel=1e-9
    )


@pytest.mark.parametrize("rate", mark_most([20e9, 200e9, 2000e9], 3))
@pytest.mark.parametrize("chunks", [2, 8])
def test_q_chunks_take_the_longer_of_the_two_and_a_qth_of_the_shorter(
    rate: float, chunks: int
) -> None:
    found = ledger(
        "tp = 8, sequence_parallel = on",
        f"tensor = pipelined, chunks = {chunks}, multiprocessors = 0",
        fabric=wire(f"{rate / 1e9:g} GB/s"),
        extra=FAST_GEMMS,
    )
    send = 7 / 8 * M_A / rate
    for name, outputs in (("tensor all-gather, attention", 768), ("tensor all-gather, MLP", 3584)):
        product = 2 * S * H * outputs / 494.5e12
        took = max(product, send) + min(product, send) / chunks
        exposed = sum(s for (n, p), s in found.items() if n.startswith(name) and p == "F") / 32
        assert product + exposed == pytest.approx(took, rel=1e-9)


@pytest.mark.slow
def test_chunks_of_a_product_fill_tiles_worse() -> None:
    kernels = "kernels { wave_weight = 1 }"
    found = work(
        study(
            "tp = 8, sequence_parallel = on",
            overlap="tensor = pipelined, chunk_overhead = 1 us",
            extra=kernels,
        )
    )
    losses = {key: t for key, t in found.items() if key[0].endswith("in chunks")}
    # forward all four, backward the two whose gradient is gathered
    assert {(name.removesuffix(", in chunks"), p) for name, p in losses} == {
        ("QKV projection", "F"),
        ("attention output projection", "F"),
        ("MLP gate and up projection", "F"),
        ("MLP down projection", "F"),
        ("attention output projection", "B"),
        ("MLP down projection", "B"),
    }
    # 256 rows of 768 columns: 6 tiles of 256 x 128, or 24 of 64 x 128 at less, on 132
    # multiprocessors; 2048 rows fill 48 tiles of 256 x 128. Neither fills a wave.
    qkv = losses["QKV projection, in chunks", "F"]
    assert qkv.seconds > 8e-6
    assert qkv.host == ATTENTION_COLUMNS


@pytest.mark.slow
def test_halves_hide_under_one_another() -> None:
    options = {"fabric": wire("200 GB/s"), "extra": FAST_GEMMS}
    training = f"sequence = {S}, micro_batch = 2"
    alone = ledger(
        "tp = 8, sequence_parallel = on", "multiprocessors = 0", training=training, **options
    )
    split = ledger(
        "tp = 8, sequence_parallel = on",
        "tensor = split_batch, multiprocessors = 0",
        training=training,
        **options,
    )
    assert alone["tensor all-gather", "F"] > 0
    # forward, 128 collectives of 147 us are more than all products and attention
    products = 32 * 2 * 2 * S * (768 + 512 + 3584 + 1792) * H / 494.5e12
    # cuDNN: 67.6 % of the peak, S / 2 keys on average, and 249 that a block costs beside
    attention = 32 * 2 * 2 * 4 * 128 * S * S / (989e12 * 0.676) * (1 + 249 / (S / 2))
    head = 2 * 2 * S * H * 16032 / 494.5e12
    sends = 32 * 4 * 2 * 7 / 8 * M_A / 200e9
    left = sum(s for (n, p), s in split.items() if p == "F" and n.startswith("tensor"))
    assert left == pytest.approx(sends - products - attention - head, rel=1e-6)
    # a product of half the rows takes more than half the time
    tiled = study("tp = 8", overlap="tensor = split_batch", training=training)
    loss = {key: t for key, t in work(tiled).items() if key[0].endswith("in halves")}
    assert {p for _, p in loss} == {"F", "B", "W"}
    assert any(t.seconds > 0 for t in loss.values())


def test_norms_add_up_what_they_saw_of_the_tokens() -> None:
    sharded = study("tp = 8, sequence_parallel = on")
    (term,) = [
        t for _, t in sharded.contributions("terms") if t.name.startswith("layer norm gradient")
    ]
    # two norms a layer and a last one of 4096 gains, gradients in fp32
    assert term.bytes_ == (2 * 32 + 1) * 4096 * 4
    assert term.seconds == pytest.approx(2 * 7 / 8 * term.bytes_, rel=1e-12)
    plain = study("tp = 8")
    assert not [t for _, t in plain.contributions("terms") if "norm gradient all" in t.name]


@pytest.mark.slow
def test_an_overlap_names_what_it_cannot_cut() -> None:
    assert failures(study("tp = 8", overlap="tensor = pipelined"))[0][:2] == (
        "pipelined-needs-shards",
        "without sequence parallelism, an all-reduce cannot be pipelined with its matrix product",
    )
    odd = study("tp = 8, sequence_parallel = on", overlap="tensor = pipelined, chunks = 3")
    assert failures(odd) == [
        (
            "chunks-divide",
            "2048 tokens of a micro-batch are not divisible by 3 chunks",
            "write `chunks = layout.tp`, which always divides",
        )
    ]
    assert failures(study("tp = 8", overlap="tensor = split_batch")) == [
        (
            "split-batch-halves",
            "micro_batch = 1 cannot be split into two halves",
            (
                "write micro_batch = 2: `overlap.tensor = split_batch` computes on one half while "
                "the other communicates"
            ),
        )
    ]


# --- Context parallelism and recipes ----------------------------------------------------------


@pytest.mark.slow
def test_context_parallel_ranks_send_their_share() -> None:
    whole, half = layers_alone("tp = 8"), layers_alone("tp = 8, cp = 2")
    for key, term in whole.items():
        assert half[key].bytes_ == term.bytes_ / 2
    assert failures(study("tp = 8, cp = 2, sequence_parallel = on", training="sequence = 2056"))[
        0
    ] == (
        "sequence-divide",
        "a sequence of 2056 tokens is not divisible by tp x cp = 16",
        "take 2048 or 2064 tokens: sequence parallelism gives every rank an equal part",
    )


@pytest.mark.slow
def test_gathers_may_be_narrow_and_sums_never_are() -> None:
    recipe = "precision small extends bf16 { narrow = fp8, tensor_gather = 1 B }"
    training = f"sequence = {S}, precision = small"
    found = layers_alone("tp = 8, sequence_parallel = on", training=training, extra=recipe)
    assert found["tensor all-gather", "F"].bytes_ == M_A / 2
    assert found["tensor reduce-scatter", "F"].bytes_ == M_A


# --- Figures --------------------------------------------------------------------------------


def figures(layout: str, **options: object) -> parcost.Result:
    return scenario(layout, **options).evaluate().results[0]  # type: ignore[arg-type]


def test_gpt_3_sends_352_mb_per_layer() -> None:
    of = figures("tp = 8, vocabulary_multiple = 128", model="gpt3_175b")
    assert of.figure("tp_volume_per_layer") == pytest.approx(352.3e6, abs=0.05e6)
    assert of.figure("tp_collectives_per_layer_forward") == 2
    assert of.figure("tp_collectives_per_layer") == 4


def test_one_rank_takes_no_collectives() -> None:
    of = figures("tp = 1, vocabulary_multiple = 128", model="gpt3_175b")
    for name in ("", "_forward", "_per_layer", "_per_layer_forward"):
        assert of.figure(f"tp_collectives{name}") == 0


@pytest.mark.slow
def test_attention_beside_the_mlp_takes_one_pair_of_collectives_in_a_layer() -> None:
    beside = "model drawn extends gpt3_175b { parallel_residual = on, norms = 1 }"
    of = figures(
        "tp = 8, vocabulary_multiple = 128",
        model="gpt3_175b",
        extra=beside,
        training=f"sequence = {S}, model = drawn",
    )
    assert of.figure("tp_collectives_per_layer_forward") == 1
    assert of.figure("tp_collectives_per_layer") == 2
    assert of.figure("tp_collectives_forward") == 96
    assert of.figure("tp_volume_per_layer") == pytest.approx(352.3e6 / 2, abs=0.03e6)


def test_llama_2_70b_synchronises_320_times_and_sends_37_6_gb() -> None:
    # one sequence of 4096 tokens over 8 ranks
    (of,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.precisions.bf16
        use catalog.models.llama2_70b
        {wire("50 GB/s")}
        cluster {{ devices = 8 }}
        layout {{ tp = 8 }}
        collectives {{ tensor = ring }}
        training {{ sequence = 4096, global_batch = 1 sequences }}
        """
    )
    result = of.evaluate().results[0]
    assert result.figure("tp_collectives_forward") == 160
    assert result.figure("tp_collectives") == 320
    assert result.figure("tp_message") == pytest.approx(67.1e6, abs=0.05e6)
    assert result.figure("tp_sent_per_collective") == pytest.approx(117.4e6, abs=0.05e6)
    assert result.figure("tp_volume") == pytest.approx(37.58e9, abs=0.005e9)
    # K and V are 1024 wide, 128 of it on each rank; queries 8192 and 1024
    assert result.figure("kv_columns") == 1024
    assert result.figure("tp_kv_columns") == 128
    assert result.figure("tp_query_columns") == 1024
    assert result.figure("tp_mlp_columns") == 28_672 / 8


@pytest.mark.slow
def test_the_ledger_s_seconds_are_figures() -> None:
    of = figures("tp = 8", fabric=wire("50 GB/s"))
    lines = [
        line for line in of.outcome.ledger if line.plugin and line.plugin.name == "tensor_parallel"
    ]
    assert of.figure("tp_seconds") == pytest.approx(
        float(sum(line.exposed + line.hidden for line in lines))
    )
    assert of.figure("tp_exposed") == pytest.approx(float(sum(line.exposed for line in lines)))


@pytest.mark.slow
def test_shapes_are_listed_on_request() -> None:
    of = figures("tp = 8, sequence_parallel = on", extra="tensor_parallel { shapes = on }")
    (table,) = [s for _, s in of.sections if s.title == "Matrices of a rank"]
    rows = {row[0]: [cell[0] for cell in row[1:]] for row in table.rows}
    assert rows["QKV projection"] == [4096, (32 + 2 * 8) * 128 / 8, S, 1]
    assert rows["MLP down projection"] == [14_336 / 8, 4096, S, 1]
    assert not [s for _, s in figures("tp = 8").sections if s.title == "Matrices of a rank"]


# --- Latent attention -------------------------------------------------------------------


V3_LAYOUT = "tp = 8, ep = 8, sequence_parallel = on"


def test_latent_attention_gathers_what_is_compressed() -> None:
    # Megatron-Core: a rank projects s / t tokens down; the projections up gather 1536 compressed
    # queries and 512 compressed keys and values, and the 64 rotated elements of a key are gathered
    # beside them. Only what is multiplied is gathered again for the gradient of weights.
    found = layers_alone(V3_LAYOUT, model="deepseek_v3")
    ring, tokens, attention, shared = 7 / 8, 2 * S, 61, 58 + 3
    widths = {"compressed queries": 1536, "compressed keys and values": 512, "rotated keys": 64}
    for (row, pass_), tensors in {
        ("tensor all-gather", "F"): widths,
        ("input gradient reduce-scatter", "B"): widths,
    }.items():
        for tensor, width in tensors.items():
            term = found[f"{row} of {tensor}", pass_]
            assert term.seconds == pytest.approx(ring * tokens * width, rel=1e-12)
            assert tuple(term.count) == (attention,)
    again = {name for name, _ in found if name.startswith("saved input")}
    assert again == {
        "saved input all-gather of compressed queries, attention",
        "saved input all-gather of compressed keys and values, attention",
        "saved input all-gather, MLP",
    }
    # behind the output projection, and around the MLP, it is the residual stream
    assert found["tensor reduce-scatter", "F"].seconds == pytest.approx(ring * tokens * 7168)
    assert tuple(found["tensor reduce-scatter", "F"].count) == (attention + shared,)
    assert tuple(found["tensor all-gather", "F"].count) == (shared,)


def test_latent_attention_reduces_compressed_gradients_without_sequence_parallelism() -> None:
    found = layers_alone("tp = 8, etp = 8", model="deepseek_v3")
    width = sum(
        term.seconds
        for (name, _), term in found.items()
        if name.startswith("input gradient all-reduce of")
    )
    assert width == pytest.approx(2 * 7 / 8 * 2 * S * (1536 + 512 + 64), rel=1e-12)
    assert tuple(found["tensor all-reduce", "F"].count) == (61 + 61,)


def test_queries_that_are_not_compressed_are_projected_from_the_gathered_stream() -> None:
    found = layers_alone("tp = 8, sequence_parallel = on", model="deepseek_v2_lite")
    forward = {name: tuple(t.count) for (name, pass_), t in found.items() if pass_ == "F"}
    assert forward == {
        "tensor all-gather of compressed keys and values": (27,),
        "tensor all-gather of rotated keys": (27,),
        "tensor all-gather": (54,),
        "tensor reduce-scatter": (54,),
    }


@pytest.mark.parametrize("sequence_parallel", ["on", "off"])
def test_a_rank_projects_its_own_tokens_down(sequence_parallel: str) -> None:
    own = S / 8 if sequence_parallel == "on" else S
    made = study(f"tp = 8, etp = 8, sequence_parallel = {sequence_parallel}", model="deepseek_v3")
    rows = {op.name: op.m for op in made.operators if isinstance(op, Gemm) and op.pass_ == "F"}
    assert rows["MLA query down projection"] == rows["MLA KV down projection"] == own
    assert rows["MLA query up projection"] == rows["MLA KV up projection"] == S
    normed = {op.pass_: op.bytes_ for op in made.operators if op.name == "MLA norms"}
    assert normed == {"F": 2 * 2 * (1536 + 512) * own, "B": 3 * 2 * (1536 + 512) * own}


@pytest.mark.slow
def test_latent_columns_are_those_of_its_own_heads() -> None:
    figures = scenario("tp = 8, sequence_parallel = on", model="deepseek_v3").evaluate().result
    assert figures.figure("tp_query_columns") == 128 * (128 + 64) / 8 == 3072
    assert figures.figure("tp_kv_columns") == 128 * 128 / 8
    assert figures.figure("kv_columns") == 128 * 128


def test_figures_count_the_tensors_of_latent_attention() -> None:
    result = scenario(V3_LAYOUT, model="deepseek_v3").evaluate().result
    # forward: 3 gathers and a scatter of attention, one of each of the MLP. Backward: the
    # gradient of the output, two saved inputs and three sums; and three of the MLP.
    assert result.figure("tp_collectives_per_layer_forward") == pytest.approx(4 + 2)
    assert result.figure("tp_collectives_per_layer") == pytest.approx(4 + 2 + 6 + 3)
    latent = 1536 + 512
    width = 2 * (latent + 64) + latent + 2 * 7168 + 5 * 7168
    assert result.figure("tp_volume_per_layer") == pytest.approx(7 / 8 * 2 * S * width)
