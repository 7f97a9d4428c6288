"""Tensor parallelism of one small model, number by number.

Four ranks share 12 heads and 4 key and value heads of 64, and an MLP of 1024. A micro-batch has
two sequences of 1024 tokens: the residual stream has 2048 x 768 elements of 2 B, of which ranks
gather 3 B each. Links carry 1 GB/s; six layers are on two stages.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import (
    Formula,
    KernelModel,
    Once,
    Op,
    PipelineShape,
    Schedule,
    Study,
    Work,
    formula,
    hookimpl,
)
from parcost.engine.rules import diagnose
from parcost.plugins.discovery import load
from parcost_plugins.parallelism.tensor.weight_gradients import defers_weight_gradients
from parcost_plugins.vocabulary import Gemm
from parcost_plugins.vocabulary.operators import (
    ATTENTION_COLUMNS,
    ATTENTION_ROWS,
    MLP_COLUMNS,
    MLP_ROWS,
)

from ..evaluation import details_of
from ..rows import try_each

Bind = Callable[..., Study]

SPEC = """
device plain {{
  memory = 800 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}}
fabric wire {{ level net {{ bandwidth = 1 GB/s per_direction, latency = {latency} }} }}
precision mixed {{
  compute = bf16, weights = 2 B, gradients = 4 B, optimizer = 12 B, activation = 2 B
  update_traffic = 30 B, norm_traffic = 0 B, reduction = 5 B, tensor_gather = 3 B
}}
model small {{
  layers = 6, hidden = 768, heads = 12, kv_heads = {kv}, ffn = 1024, vocabulary = 1024
}}
kernels {{ {kernels} }}
collectives {{ tensor = ring }}
overlap {{ gradients = off, parameters = off, multiprocessors = 0, {overlap} }}
memory {{ usable = 1, context = 0 B, communicator = 0 B, fragmentation = 0 }}
cluster {{ devices = {devices} }}
layout {{ {layout} }}
training {{
  sequence = {sequence}, micro_batch = {micro_batch}, global_batch = {batch} sequences, {training}
}}
"""
LINEAR = """
  model = constant, memory_bound = off
  gemm_efficiency = 0.5, attention_forward_efficiency = 0.5, attention_backward_efficiency = 0.5
"""
FOUR = {"layout": "tp = 4, pp = 2"}
SHARDED = {"layout": "tp = 4, pp = 2, sequence_parallel = on"}
SUMMED, GATHERED = 2048 * 768 * 2, 2048 * 768 * 3


def study(*, plugins: Any = None, **more: Any) -> Study:
    values = {
        "latency": "0 s",
        "kv": 4,
        "kernels": LINEAR,
        "overlap": "tensor = off",
        "devices": 8,
        "layout": "",
        "sequence": 1024,
        "micro_batch": 2,
        "batch": 10,
        "training": "",
    }
    (scenario,) = parcost.load_text(SPEC.format(**{**values, **more}), plugins=plugins)
    return scenario.studies()[0]


def own_terms(of: Study, hook: str = "terms") -> list[Any]:
    found = [x for plugin, x in of.contributions(hook) if plugin.name == "tensor_parallel"]
    assert not of.faults
    return found


def work(of: Study) -> dict[tuple[str, str], Any]:
    return {(t.name, t.pass_): t for t in own_terms(of) if isinstance(t, Work)}


def figure_values(**more: Any) -> dict[str, Any]:
    of = study(**more)
    outcome = of.evaluate()
    found = details_of(of, outcome)
    figures = {f.name: f for plugin, f in found if plugin.name == "tensor_parallel"}
    assert not of.faults
    values = {name: figure.value for name, figure in figures.items()}
    symbols = figures["tp_collectives"].formula.inputs
    return {**values, "ledger": outcome.ledger, "symbols": symbols}


# --- what is sent -------------------------------------------------------------------------


def test_halves_are_sent_in_two_messages() -> None:
    """Six rounds of 1 ms for each half of an all-reduce, and 3/2 of the bytes in all."""
    of = study(**FOUR, latency="1 ms", overlap="tensor = split_batch")
    found = {key: t for key, t in work(of).items() if "all-reduce" in key[0]}
    both = pytest.approx(2 * 6e-3 + 1.5 * SUMMED / 1e9)
    reduced = {
        key: (t.seconds, t.window, t.bytes_)
        for key, t in found.items()
        if key[0] in ("tensor all-reduce", "input gradient all-reduce")
    }
    assert reduced == {
        ("tensor all-reduce", "F"): (both, "", SUMMED),
        ("input gradient all-reduce", "B"): (both, "", SUMMED),
    }
    assert found["tensor all-reduce", "F"].formula.inputs["k"] == (2.0, "")
    assert found["tensor all-reduce", "F"].formula.text == "k t, k parts"


def test_shards_are_gathered_and_summed_in_their_own_sizes() -> None:
    of = study(**SHARDED, overlap="tensor = split_batch")
    sizes = {key: (t.bytes_, t.seconds) for key, t in work(of).items() if "in halves" not in key[0]}
    gather = (GATHERED, pytest.approx(0.75 * GATHERED / 1e9))
    scatter = (SUMMED, pytest.approx(0.75 * SUMMED / 1e9))
    assert sizes == {
        ("tensor all-gather", "F"): gather,
        ("tensor reduce-scatter", "F"): scatter,
        ("output gradient all-gather", "B"): gather,
        ("saved input all-gather", "B"): gather,
        ("input gradient reduce-scatter", "B"): scatter,
        ("embedding reduce-scatter", "F"): scatter,
        ("embedding gradient all-gather", "W"): gather,
        ("head all-gather", "F"): gather,
        ("head saved input all-gather", "B"): gather,
        ("head input gradient reduce-scatter", "B"): scatter,
        ("loss all-reduce", "F"): (2048 * 4, pytest.approx(1.5 * 2048 * 4 / 1e9)),
    }


def test_saved_inputs_may_be_left_out() -> None:
    alone = {"layout": f"{SHARDED['layout']} }}\ntensor_parallel {{ saved_inputs = off"}
    left = work(study(**SHARDED)).keys() - work(study(**alone)).keys()
    assert left == {
        ("saved input all-gather, attention", "B"),
        ("saved input all-gather, MLP", "B"),
    }


def test_chunks_hide_beside_the_product_that_needs_or_makes_them() -> None:
    """One of five chunks is in the open; four have four fifths of the product."""
    of = study(**SHARDED, overlap="tensor = pipelined, chunks = 5", sequence=1280)
    found = {
        key: (t.seconds, t.bytes_, t.window, t.share)
        for key, t in work(of).items()
        if "chunk" in key[0] and not key[0].endswith("in chunks")
    }
    gathered, summed = 2560 * 768 * 3, 2560 * 768 * 2
    expected = {}
    for row, pass_, size, hosts in (
        ("tensor all-gather", "F", gathered, (ATTENTION_COLUMNS, MLP_COLUMNS)),
        ("tensor reduce-scatter", "F", summed, (ATTENTION_ROWS, MLP_ROWS)),
        ("output gradient all-gather", "B", gathered, (ATTENTION_ROWS, MLP_ROWS)),
    ):
        for pair, host in zip(("attention", "MLP"), hosts, strict=True):
            for name, part, window in (
                ("first or last chunk", 0.2, None),
                ("other chunks", 0.8, host),
            ):
                expected[f"{row}, {pair}, {name}", pass_] = (
                    pytest.approx(0.75 * size / 1e9 * part),
                    pytest.approx(size * part),
                    window,
                    pytest.approx(0.8),
                )
    assert found == expected
    edge = work(of)["tensor all-gather, MLP, first or last chunk", "F"].formula.inputs
    assert edge["q"] == (5.0, "")


def test_recomputation_repeats_its_messages() -> None:
    of = study(**FOUR, training="recompute = full")
    assert {key[1] for key in work(of) if key[0] == "tensor all-reduce"} == {"F", "R"}
    assert tuple(work(of)["tensor all-reduce", "R"].count) == (6.0, 6.0)


@pytest.mark.slow
def test_gradients_of_norms_are_added_up_stage_by_stage() -> None:
    """Two norms of 768 gains in each of three layers, and the last one, of 5 B each."""
    found: dict[str, Any] = {t.name: t for t in own_terms(study(**SHARDED)) if isinstance(t, Once)}
    sizes = {name: (tuple(t.count), t.bytes_, t.seconds) for name, t in found.items()}
    assert sizes == {
        "layer norm gradient all-reduce": (
            (1.0, 0.0),
            6 * 768 * 5,
            pytest.approx(1.5 * 6 * 768 * 5 / 1e9),
        ),
        "layer norm gradient all-reduce (2)": (
            (0.0, 1.0),
            7 * 768 * 5,
            pytest.approx(1.5 * 7 * 768 * 5 / 1e9),
        ),
    }
    empty = {"layout": f"{SHARDED['layout']} }}\nschedule {{ stages = [0, 6]"}
    once: list[Any] = [t for t in own_terms(study(**empty)) if isinstance(t, Once)]
    assert [tuple(t.count) for t in once] == [(0.0, 1.0)]


def test_gradients_of_positions_are_whole() -> None:
    """A rank adds positions to whole tokens, before it keeps its shard of them."""
    learned = {**SHARDED, "kv": "4\n  positions = 1024"}
    once: list[Any] = [t for t in own_terms(study(**learned)) if isinstance(t, Once)]
    assert [t.bytes_ for t in once] == [6 * 768 * 5, 7 * 768 * 5]


# --- what products lose -------------------------------------------------------------------


class Sum(KernelModel):
    """Products that take a second, 2 ms for each row and 5 ms for each element of a sum."""

    name = "sum"

    def price(self, operator: Any, _study: Study) -> Formula:
        seconds = 1 + 2e-3 * operator.m + 5e-3 * operator.k if isinstance(operator, Gemm) else 0.0
        return formula("s", s=(seconds, "s"))


class Square(Sum):
    """Products that take a nanosecond for each pair of rows: parts are faster than the whole."""

    name = "square"

    def price(self, operator: Any, _study: Study) -> Formula:
        seconds = 1e-9 * operator.m**2 if isinstance(operator, Gemm) else 0.0
        return formula("s", s=(seconds, "s"))


def losses(model: type[Sum], **more: Any) -> dict[tuple[str, str], Work]:
    ours = ("ours", SimpleNamespace(kernels=hookimpl(lambda: [model()])))
    of = study(plugins=load(ours), kernels=f"model = {model.name}", **more)
    return {key: t for key, t in work(of).items() if ", in " in key[0]}


def test_halves_of_a_product_start_twice() -> None:
    """Rows are cut, and for gradients of weights the sum over them: of 2048 tokens."""
    found = losses(Sum, **FOUR, overlap="tensor = split_batch")
    name = "attention output projection, in halves"
    down = {pass_: found[name, pass_] for pass_ in ("F", "B", "W")}
    # 2048 rows of 192 inputs; of 768, backward; 192 rows of 2048 for the weights, or the reverse
    assert down["F"].seconds == pytest.approx(1 + 5e-3 * 192)
    assert down["B"].seconds == pytest.approx(1 + 5e-3 * 768)
    weights = down["W"].formula.inputs
    assert down["W"].seconds == pytest.approx(2 * weights["T'"][0] - weights["T"][0])
    assert weights["T"][0] - weights["T'"][0] == pytest.approx(5e-3 * 1024)
    assert {p: t.formula.inputs["M"][0] for p, t in down.items()} == dict.fromkeys("FBW", 2048)
    assert {t.formula.inputs["q"][0] for t in found.values()} == {2.0}
    assert len(found) == 4 * 3


def test_chunks_of_a_product_start_once_each_with_an_overhead() -> None:
    """Five of 2560 rows: four starts more, and what 4 x 192 inputs take; 5 x 10 ms besides."""
    overlap = "tensor = pipelined, chunks = 5, chunk_overhead = 10 ms"
    found = losses(Sum, **SHARDED, overlap=overlap, sequence=1280)
    name = "attention output projection, in chunks"
    assert found[name, "F"].seconds == pytest.approx(4 * (1 + 5e-3 * 192) + 0.05)
    assert found[name, "B"].seconds == pytest.approx(4 * (1 + 5e-3 * 768) + 0.05)
    assert {key for key in found if key[1] != "F"} == {
        (name, "B"),
        ("MLP down projection, in chunks", "B"),
    }
    assert len(found) == 4 + 2
    assert found[name, "F"].formula.inputs["M"][0] == 2560


def test_parts_that_are_faster_lose_no_less_than_nothing() -> None:
    overlap = "tensor = pipelined, chunks = 5, chunk_overhead = 10 ms"
    found = losses(Square, **SHARDED, overlap=overlap, sequence=1280)
    assert [t.seconds for t in found.values()] == pytest.approx([0.05] * 6)


@pytest.mark.slow
def test_one_rank_cuts_nothing() -> None:
    found = losses(Sum, layout="tp = [1, 2, 4]", devices=8, overlap="tensor = split_batch")
    assert len(found) == 4 * 3
    for term in found.values():
        assert [s > 0 for s in np.broadcast_to(term.seconds, 3)] == [False, True, True]


# --- figures ------------------------------------------------------------------------------


@try_each(
    "more, forward, backward, sent",
    [
        # an all-reduce behind each of two pairs, either way: 3/2 of a message
        (FOUR, 1, 1, 2 * 1.5 * SUMMED),
        ({**FOUR, "training": "recompute = full"}, 1, 2, 3 * 1.5 * SUMMED),
        # a gather and a scatter; two gathers and a scatter: 3/4 of a message
        (SHARDED, 2, 3, 0.75 * (3 * GATHERED + 2 * SUMMED)),
        (
            {**SHARDED, "training": "recompute = full"},
            2,
            5,
            0.75 * (4 * GATHERED + 3 * SUMMED),
        ),
    ],
)
def test_figures_count_pairs_layers_and_micro_batches(
    more: dict[str, Any], forward: int, backward: int, sent: float
) -> None:
    found = figure_values(**more)
    ring = 1.5 * SUMMED if "sequence" not in more["layout"] else 0.75 * SUMMED
    expected = {
        "tp_collectives_per_layer_forward": 2 * forward,
        "tp_collectives_per_layer": 2 * (forward + backward),
        "tp_collectives_forward": 12 * forward,
        "tp_collectives": 12 * 5 * (forward + backward),
        "tp_message": SUMMED,
        "tp_sent_per_collective": ring,
        "tp_volume_per_layer": 2 * sent,
        "tp_volume": 6 * 5 * sent,
        "tp_query_columns": 12 * 64 / 4,
        "tp_kv_columns": 4 * 64 / 4,
        "tp_mlp_columns": 1024 / 4,
        "kv_columns": 4 * 64,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["tp_volume_per_layer"] == 2 * sent  # no byte more
    symbols = {name: value for name, (value, _) in found["symbols"].items()}
    assert symbols == pytest.approx({"f": forward, "w": backward, "k": 12, "m": 5})


def test_ranks_beyond_the_kv_heads_have_one_each() -> None:
    found = figure_values(**FOUR, kv=2)
    assert (found["tp_kv_columns"], found["kv_columns"]) == (64, 128)


@pytest.mark.parametrize(
    ("more", "lost"),
    [
        ({**FOUR, "overlap": "tensor = on"}, False),
        ({**SHARDED, "overlap": "tensor = pipelined, chunks = 4, chunk_overhead = 1 ms"}, True),
    ],
)
def test_seconds_are_those_of_the_ledger_over_compute(more: dict[str, Any], lost: bool) -> None:
    found = figure_values(**more)
    of_tensor, compute = [], []
    for line in found["ledger"]:
        if line.plugin is not None and line.plugin.name == "tensor_parallel":
            of_tensor.append(line)
        elif isinstance(line.term, Work) and line.resource in ("compute", "hbm"):
            compute.append(line)
    sent = [line for line in of_tensor if line.resource == "net"]
    assert (len(sent) < len(of_tensor)) == lost
    exposed = sum(line.exposed for line in sent)
    hidden = sum(line.hidden for line in sent)
    assert hidden > 0
    assert found["tp_exposed"] == pytest.approx(exposed)
    assert found["tp_seconds"] == pytest.approx(exposed + hidden)
    share = (exposed + hidden) / sum(line.exposed for line in compute)
    assert found["tp_over_compute"] == pytest.approx(share)


# --- schedules ----------------------------------------------------------------------------


class Limited(Schedule):
    """A schedule with weight gradients apart that exists for one number of micro-batches."""

    name = "limited"

    def __init__(self, only: int) -> None:
        self.only = only

    def order(self, stages: int, micro_batches: int, _chunks: int) -> list[list[Op]]:
        every = range(micro_batches)
        return [[Op(k, j, s) for k in ("F", "B", "W") for j in every] for s in range(stages)]

    def limits(self, shape: PipelineShape) -> str | None:
        return None if shape.micro_batches == self.only else "not so many"


@pytest.mark.parametrize(
    ("only", "found"),
    [(3, False), (4, True), (5, True), (12, True), (14, True), (15, False), (0, False), (1, False)],
)
def test_an_order_of_twice_to_six_times_the_stages_tells(
    bind: Bind, only: int, found: bool
) -> None:
    values = {"layout.pp": 2, "schedule.kind": "limited"}
    of = bind(values, schedules=[Limited(only)])
    assert defers_weight_gradients(of) == found


# --- rules --------------------------------------------------------------------------------


def failures(**more: Any) -> dict[str, Any]:
    of = study(**more)
    return {c.id: diagnose(c, of) for c in own_terms(of, "checks") if not np.all(c.holds)}


@try_each(
    "more, ids",
    [
        (FOUR, set()),
        ({"layout": "tp = 8"}, {"heads-divide"}),
        ({"layout": "tp = 4", "kv": 2}, set()),
        ({"layout": "tp = 4", "kv": 6}, {"kv-heads-divide"}),
        ({"layout": "tp = 2, sequence_parallel = on", "sequence": 1023}, {"sequence-divide"}),
        ({"layout": "tp = 2, cp = 2, sequence_parallel = on", "sequence": 1024}, set()),
        ({"layout": "tp = 2, sequence_parallel = on"}, set()),
        ({"layout": "tp = 1, sequence_parallel = on"}, {"sequence-parallel-alone"}),
        # halves and chunks
        ({**FOUR, "overlap": "tensor = split_batch"}, set()),
        ({**FOUR, "overlap": "tensor = split_batch", "micro_batch": 3}, {"split-batch-halves"}),
        ({**FOUR, "overlap": "tensor = split_batch", "micro_batch": 4}, set()),
        ({**FOUR, "micro_batch": 3}, set()),
        ({**SHARDED, "overlap": "tensor = pipelined, chunks = 3"}, {"chunks-divide"}),
        ({**SHARDED, "overlap": "tensor = pipelined, chunks = 3", "micro_batch": 3}, set()),
        (
            {
                "layout": "tp = 2, cp = 2, sequence_parallel = on",
                "overlap": "tensor = pipelined, chunks = 512",
                "micro_batch": 1,
            },
            set(),
        ),
        (
            {
                "layout": "tp = 2, cp = 2, sequence_parallel = on",
                "overlap": "tensor = pipelined, chunks = 1024",
                "micro_batch": 1,
            },
            {"chunks-divide"},
        ),
    ],
)
def test_indivisible_sizes_are_refused(more: dict[str, Any], ids: set[str]) -> None:
    assert set(failures(**{"batch": 24, **more})) == ids


def test_three_sequences_do_not_make_two_halves() -> None:
    found = failures(**FOUR, overlap="tensor = split_batch", micro_batch=3, batch=24)
    assert found["split-batch-halves"].message == (
        "micro_batch = 3 cannot be split into two halves"
    )
    assert found["split-batch-halves"].help is not None
    assert found["split-batch-halves"].help.startswith("write micro_batch = 4:")
