"""Gradients made smaller: bytes on the wire, what that costs, and what it cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Study
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose
from parcost_plugins.vocabulary import Parameters

from ..evaluation import calculate, details_of
from ..rows import try_each

Bind = Callable[..., Study]


def parameter_records(elements: float = 1e9) -> list[Parameters]:
    return [Parameters(name="matrix", elements=elements, total=elements, count=(1.0,))]


def compressed_study(bind: Bind, method: str, elements: float = 1e9, **more: Any) -> Study:
    values = {name.replace("__", "."): value for name, value in more.items()}
    return bind({"compression.method": method, **values}, parameters=parameter_records(elements))


def reduction(study: Study) -> Any:
    terms = {term.name: term for _, term in study.contributions("terms")}
    assert study.faults == []
    return next(
        t for name, t in terms.items() if name in ("gradient all-reduce", "gradient reduce-scatter")
    )


# --- in a step: eight ranks, 1 GB/s, no latency ------------------------------------------


@try_each(
    "method, seconds",
    [
        ("none", 2 * 7 / 8 * 4.0),
        ("fp16", 2 * 7 / 8 * 2.0),
        ("bf16", 2 * 7 / 8 * 2.0),
        ("int8", 2 * 7 / 8 * (1 + 4 / 256)),
        ("int4", 2 * 7 / 8 * (0.5 + 4 / 256)),
        ("one_bit", 2 * 7 / 8 * (1 / 8 + 4 / 256)),
        ("top_k", 7 * 0.01 * 8.0),
    ],
)
def test_a_billion_gradients_take_what_they_send(bind: Bind, method: str, seconds: float) -> None:
    assert reduction(compressed_study(bind, method)).seconds == pytest.approx(seconds)


def test_low_rank_factors_go_round_as_two_sums(bind: Bind) -> None:
    # h 1024 x 1024 columns at rank 4: 4 B x 4 x 2048 in place of 4 B x 1024 x 1024
    n = 1024.0 * 1024
    study = compressed_study(bind, "power_sgd", n, compression__rank=4)
    assert reduction(study).seconds == pytest.approx(2 * 7 / 8 * 4 * 4 * 2048 / 1e9)


def test_a_vector_and_a_matrix_that_hardly_shrinks_are_sent_whole(bind: Bind) -> None:
    # rank 512 of 1024 x 1024 needs as much as it is
    n = 1024.0 * 1024
    study = compressed_study(bind, "power_sgd", n, compression__rank=512)
    assert reduction(study).seconds == pytest.approx(2 * 7 / 8 * 4 * n / 1e9)
    study = compressed_study(bind, "power_sgd", 1024.0)
    assert reduction(study).seconds == pytest.approx(2 * 7 / 8 * 4 * 1024 / 1e9)


@pytest.mark.slow
def test_a_reduce_scatter_needs_the_first_half_of_the_exchange(bind: Bind) -> None:
    study = compressed_study(bind, "int8", layout__zero=1)
    assert reduction(study).seconds == pytest.approx(7 / 8 * (1 + 4 / 256))


@try_each("zero, times", [(0, 1), (1, 1), (2, 3), (3, 3)])
def test_compressing_streams_as_often_as_gradients_are_reduced(
    bind: Bind, zero: int, times: int
) -> None:
    # 12 B an element at 1 TB/s x 0.5, in each of three micro-batches or in the last
    study = compressed_study(bind, "int8", layout__zero=zero, training__global_batch=24)
    lines = {line.name: line.exposed for line in evaluate(study).ledger}
    assert lines["gradient compression"] == pytest.approx(times * 12e9 / 0.5e12)


@pytest.mark.slow
def test_low_rank_multiplies_as_well(bind: Bind) -> None:
    n = 1024.0 * 1024
    study = compressed_study(bind, "power_sgd", n, compression__rank=4)
    lines = {line.name: line.exposed for line in evaluate(study).ledger}
    flops = 4 * 4 * n + 2 * 4 * n + 2 * 1024 * 16
    assert lines["gradient compression"] == pytest.approx(20 * n / 0.5e12 + flops / 100e12)


@try_each("method, bytes_", [("one_bit", 4e9), ("top_k", 4e9), ("power_sgd", 4e9), ("int8", 0.0)])
def test_unsent_gradients_are_kept_for_the_next_step(
    bind: Bind, method: str, bytes_: float
) -> None:
    lines = evaluate(compressed_study(bind, method)).memory_lines
    assert {line.name: line.bytes_ for line in lines}.get("compression residual", 0.0) == bytes_


def test_steps_that_make_less_progress_count_more(bind: Bind) -> None:
    study = compressed_study(bind, "top_k", compression__steps=1.25)
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in details_of(study, outcome)}
    assert found["equivalent_step_time"] == pytest.approx(1.25 * outcome.step_seconds)
    assert found["dp_volume"] == pytest.approx(7 * 0.08 * 1e9)
    assert found["dp_volume_replicas"] == pytest.approx(7e9)


@try_each("method", ["top_k", "power_sgd", "one_bit"])
@try_each("zero", [1, 2, 3])
def test_methods_that_need_whole_gradients_refuse_zero(bind: Bind, method: str, zero: int) -> None:
    study = compressed_study(bind, method, layout__zero=zero)
    checks = {check.id: check for _, check in study.contributions("checks")}
    check = checks["compression-needs-whole-gradients"]
    assert not check.holds
    assert diagnose(check, study).message == (
        f"`{method}` gives every rank the whole gradient, but ZeRO {zero} shards gradients"
    )


def test_compression_under_hybrid_sharding_is_refused(bind: Bind) -> None:
    study = compressed_study(bind, "int8", layout__zero=1, sharding__shard=2)
    checks = {check.id: check for _, check in study.contributions("checks")}
    assert not checks["compression-hybrid"].holds


# --- by itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "sparse", "ring"), [(64, 5.04, 7.875), (256, 20.4, 7.96875)])
def test_top_k_grows_with_the_ranks(ranks: int, sparse: float, ring: float) -> None:
    found = calculate(f"exchange e {{ elements = 1e9, ranks = {ranks}, method = top_k }}")
    assert found["e.per_element"] == pytest.approx(sparse)
    assert found["e.plain_per_element"] == pytest.approx(ring)
    assert found["e.break_even"] == pytest.approx(1 / ranks)


def test_a_square_matrix_of_rank_4_is_512_times_smaller() -> None:
    found = calculate(
        "exchange e { elements = 4096 * 4096, ranks = 8, method = power_sgd, rank = 4\n"
        "rows = 4096, columns = 4096 }"
    )
    assert found["e.ratio"] == pytest.approx(512)
    assert found["e.flops"] == pytest.approx(6 * 4 * 4096**2 + 2 * 4096 * 16)


def test_indices_of_64_bits_leave_a_third_of_the_gain() -> None:
    text = "exchange e {{ elements = 1e9, ranks = 8, method = top_k, index = {} }}"
    assert calculate(text.format("4 B"))["e.ratio"] == pytest.approx(50)
    assert calculate(text.format("8 B"))["e.ratio"] == pytest.approx(100 / 3)
    assert calculate(text.format("0 B"))["e.ratio"] == pytest.approx(100)


def test_a_ring_of_1024_ranks_sends_a_terabyte_and_a_half_each() -> None:
    found = calculate("exchange e { elements = 175e9, ranks = 1024 }")
    assert found["e.volume"] == pytest.approx(1.398632813e12)
    assert found["e.total"] == pytest.approx(1432.2e12)
    assert found["e.gradients"] == pytest.approx(700e9)


@try_each(
    "elements, size, limit",
    [(0.025e9, 4, 200e6), (0.34e9, 2, 1.36e9), (7e9, 4, 56e9), (70e9, 2, 280e9)],
)
def test_for_many_ranks_a_ring_sends_twice_the_gradients(
    elements: float, size: int, limit: float
) -> None:
    found = calculate(
        f"exchange e {{ elements = {elements:.0f}, size = {size} B, ranks = 64\n"
        "bandwidth = 200 GB/s per_direction }"
    )
    assert found["e.limit"] == pytest.approx(limit)
    assert found["e.limit_time"] == pytest.approx(limit / 200e9)


def test_eight_workers_that_meet_every_500_steps_send_0_014_bytes() -> None:
    found = calculate("exchange e { elements = 1e9, ranks = 8, period = 500, fragments = 4 }")
    assert found["e.per_step"] == pytest.approx(0.014)
    assert found["e.peak"] == pytest.approx(7e9 / 4)


# --- ZeRO stages side by side -------------------------------------------------------------

SIXTEEN = """
precision p {
  compute = bf16, weights = 2 B, gradients = 2 B, optimizer = 12 B, activation = 2 B
  update_traffic = 28 B
}
"""


def test_the_stages_of_7_5_billion_over_64_ranks() -> None:
    found = calculate(f"{SIXTEEN} zero z {{ parameters = 7.5e9, ranks = 64 }}")
    held_ = [found[f"z.memory_{stage}"] for stage in range(4)]
    assert held_ == pytest.approx([120e9, 31.40625e9, 16.640625e9, 1.875e9])


@pytest.mark.parametrize(
    ("m", "accumulate", "against"),
    [
        (1, "shard", [1, 1, 1, 1.5]),
        (4, "shard", [1, 1, 2.5, 6]),
        (4, "whole", [1, 1, 1, 4.5]),
    ],
)
def test_sharding_everything_is_1_5_times_the_traffic_only_with_one_micro_batch(
    m: int, accumulate: str, against: list[float]
) -> None:
    found = calculate(
        f"{SIXTEEN} zero z {{ parameters = 1e9, ranks = 8, micro_batches = {m}\n"
        f"accumulate = {accumulate} }}"
    )
    assert [found[f"z.against_replicas_{s}"] for s in range(4)] == pytest.approx(against)


@try_each("zero", [0, 1, 2, 3])
@try_each("m", [1, 4])
def test_a_study_sends_what_the_stages_say(bind: Bind, zero: int, m: int) -> None:
    values = {"layout.zero": zero, "training.global_batch": 8 * m, "mixed.gradients": 2}
    study = bind(values, parameters=parameter_records())
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in details_of(study, outcome)}
    text = f"{SIXTEEN} zero z {{ parameters = 1e9, ranks = 8, micro_batches = {m} }}"
    said = calculate(text)
    assert found["dp_volume"] == pytest.approx(said[f"z.traffic_{zero}"])
    assert found["dp_volume_against_replicas"] == pytest.approx(said[f"z.against_replicas_{zero}"])


def test_integers_are_added_up_in_a_node_before_they_leave_it(bind: Bind) -> None:
    # 8 ranks in nodes of 2: half a byte at 10 GB/s inside, then 3/4 of what is left at 1 GB/s.
    nodes = """
    fabric nodes {
      level node { size = 2 devices, bandwidth = 10 GB/s per_direction, latency = 0 s }
      level net { bandwidth = 1 GB/s per_direction, latency = 0 s }
    }
    """
    values = {
        "compression.method": "int8",
        "compression.scale": 0,
        "layout.zero": 1,
        "cluster.fabric": "nodes",
    }
    study = bind(values, text=nodes, parameters=parameter_records())
    assert reduction(study).seconds == pytest.approx(0.5e9 / 10e9 + 3 / 4 * 0.5e9 / 1e9)
