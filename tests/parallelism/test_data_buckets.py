"""Gradients in buckets: against an event model, and how many are best."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Formula, Study, Work
from parcost.engine.reduce import evaluate
from parcost.engine.rules import diagnose
from parcost_plugins.calculators.data.buckets import exposed_seconds
from parcost_plugins.vocabulary import Parameters

from ..evaluation import calculate, details_of
from ..rows import try_each

Bind = Callable[..., Study]


def event_model(ready: list[float], times: list[float]) -> float:
    """Send each bucket when it is ready and the wire is free; return what shows at the end."""
    done = 0.0
    for r, t in zip(ready, times, strict=True):
        done = max(done, r) + t
    return done - ready[-1]


@try_each("count", [1, 2, 3, 7, 16, 100])
@try_each("each", [0.001, 0.1, 0.5, 3.0])
@try_each("backward", [0.1, 1.0, 20.0])
def test_equal_buckets_show_what_the_event_model_shows(
    count: int, each: float, backward: float
) -> None:
    ready = [backward * (i + 1) / count for i in range(count)]
    assert exposed_seconds(float(count), each, backward) == pytest.approx(
        event_model(ready, [each] * count)
    )


@pytest.mark.parametrize("first", [1e6, 5e6, 3e7, 9e7, 1e8])
@pytest.mark.parametrize("backward", [0.02, 0.2, 0.35, 0.6, 5.0])
def test_a_smaller_first_bucket_is_the_event_model_too(
    bind: Bind, first: float, backward: float
) -> None:
    # 400 MB at 1 GB/s over two ranks: 0.4 s in all, buckets of 100 MB.
    study = bind(
        {
            "cluster.devices": 2,
            "training.global_batch": 2,
            "overlap.gradients": "on",
            "overlap.bucket": 1e8,
            "overlap.first_bucket": first,
            "wire.net.latency": 1e-3,
        },
        parameters=[Parameters(name="all", elements=1e8, total=1e8, count=(1.0,))],
        terms=[Work(name="b", seconds=backward, pass_="B", formula=Formula(text="given"))],
    )
    sizes = [first] if first < 1e8 else []
    others = -(-(4e8 - sum(sizes)) // 1e8)
    sizes += [(4e8 - sum(sizes)) / others] * int(others)
    ready = [backward * sum(sizes[: i + 1]) / 4e8 for i in range(len(sizes))]
    times = [size / 1e9 + 2e-3 for size in sizes]
    outcome = evaluate(study)
    assert study.faults == []
    shown = sum(
        line.exposed
        for line in outcome.ledger
        if line.name in ("gradient all-reduce", "smaller gradient bucket")
    )
    assert shown == pytest.approx(event_model(ready, times), rel=1e-9)


EIGHT = """
  gradients = 500 MB, ranks = 8, bandwidth = 300 GB/s per_direction, overhead = 5 us
  backward = 200 ms
"""


def test_half_a_gigabyte_over_eight_ranks_shows_2_922_ms_in_one_message() -> None:
    found = calculate(f"buckets b {{ {EIGHT} }}")
    assert found["b.volume_time"] == pytest.approx(2.917e-3, abs=5e-7)
    assert found["b.exposed"] == pytest.approx(2.922e-3, abs=5e-7)
    assert round(found["b.most_count"]) == 39_417
    # A bucket of 20.7 MB: another one saves less time than it takes to start it.
    best = found["b.best_count"]
    assert best == found["b.launch_count"] == pytest.approx((2.916667e-3 / 5e-6) ** 0.5, rel=1e-6)
    costs = {n: found["b.volume_time"] / n + n * 5e-6 for n in range(1, 100)}
    assert min(costs, key=costs.__getitem__) == round(best) == 24


def test_sixteen_buckets_show_0_187_ms() -> None:
    found = calculate(f"buckets b {{ {EIGHT}\n count = 16 }}")
    assert found["b.exposed"] == pytest.approx(187.2917e-6, rel=1e-6)
    assert found["b.achieved"] == pytest.approx(0.2 + 187.2917e-6)


@pytest.mark.parametrize(("kappa", "best"), [(0.1, 76), (0.3, 44), (1.0, 24)])
def test_the_best_number_under_contention_minimises_the_cost(kappa: float, best: int) -> None:
    found = calculate(f"buckets b {{ {EIGHT}\n contention = {kappa} }}")
    assert round(found["b.best_count"]) == best
    volume, alpha = found["b.volume_time"], 5e-6
    costs = {n: alpha + volume / n + kappa * (n * alpha + volume) for n in range(1, 200)}
    assert abs(min(costs, key=costs.__getitem__) - found["b.best_count"]) <= 1


def test_the_best_number_on_a_slow_wire_minimises_what_shows() -> None:
    text = EIGHT.replace("300 GB/s", "2 GB/s")
    found = calculate(f"buckets b {{ {text} }}")
    volume = found["b.volume_time"]
    shows = {n: exposed_seconds(float(n), 5e-6 + volume / n, 0.2) for n in range(1, 400)}
    assert min(shows, key=shows.__getitem__) == pytest.approx(found["b.best_count"], abs=1)
    assert found["b.best_cost"] == pytest.approx(min(shows.values()))


def test_without_contention_more_buckets_show_less_until_the_wire_is_full() -> None:
    found = calculate(f"buckets b {{ {EIGHT} }}")
    volume = found["b.volume_time"]
    shows = [exposed_seconds(n, 5e-6 + volume / n, 0.2) for n in (1.0, 10.0, 1000.0, 39_416.0)]
    assert shows == sorted(shows, reverse=True)
    assert exposed_seconds(80_000.0, 5e-6 + volume / 80_000, 0.2) > shows[-1]


def test_16_chunks_cost_an_eighth_more_than_the_best_26() -> None:
    found = calculate(
        "buckets b { gradients = 500 MB, factor = 2, bandwidth = 300 GB/s per_direction\n"
        "overhead = 5 us, backward = 200 ms, contention = 1 }"
    )
    assert found["b.best_count"] == pytest.approx(25.81988897)
    # of the part that depends on the number: V / N + N alpha
    part = {n: found["b.volume_time"] / n + n * 5e-6 for n in (16, 32, found["b.best_count"])}
    assert part[16] / part[found["b.best_count"]] - 1 == pytest.approx(0.117, abs=5e-4)
    assert part[32] / part[found["b.best_count"]] - 1 == pytest.approx(0.023, abs=5e-4)


def test_small_messages_take_half_as_long_again() -> None:
    found = calculate(
        "buckets b { gradients = 1 GB, factor = 2, count = 8, overhead = 5 us\n"
        "bandwidth = 180 GB/s per_direction, whole_bandwidth = 270 GB/s per_direction\n"
        "backward = 200 ms }"
    )
    assert found["b.slower"] == pytest.approx(0.5054, abs=5e-5)


def test_a_study_says_how_well_its_reduction_hides(bind: Bind) -> None:
    study = bind(
        {"overlap.gradients": "on", "overlap.bucket": 31.25e6, "wire.net.bandwidth": 300e9},
        parameters=[Parameters(name="all", elements=125e6, total=125e6, count=(1.0,))],
        terms=[Work(name="b", seconds=0.2, pass_="B", formula=Formula(text="given"))],
    )
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in details_of(study, outcome)}
    assert found["reduction_time"] == pytest.approx(500e6 * 1.75 / 300e9)
    assert found["overlap_efficiency"] == pytest.approx(15 / 16)
    assert found["micro_batch_for_overlap"] == 1
    assert found["gradient_bytes"] == 500e6
    assert found["dp_volume"] == pytest.approx(1.75 * 500e6)
    assert found["dp_volume_total"] == pytest.approx(8 * 1.75 * 500e6)


def test_one_replica_reduces_nothing_that_could_hide_badly(bind: Bind) -> None:
    study = bind(
        {"cluster.devices": 1, "training.global_batch": 1},
        parameters=[Parameters(name="all", elements=125e6, total=125e6, count=(1.0,))],
        terms=[Work(name="b", seconds=0.2, pass_="B", formula=Formula(text="given"))],
    )
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in details_of(study, outcome)}
    assert found["reduction_time"] == 0.0
    assert "overlap_efficiency" not in found


@pytest.mark.slow
def test_a_first_bucket_that_is_larger_than_the_others_is_an_error(bind: Bind) -> None:
    # Just above the edges of four digits: a byte in a million less rounds down.
    study = bind({"overlap.bucket": 25.005e6 + 1, "overlap.first_bucket": 30.005e6 + 1})
    checks = {check.id: check for _, check in study.contributions("checks")}
    assert not checks["first-bucket-large"].holds
    assert diagnose(checks["first-bucket-large"], study).message.startswith(
        "the first gradient bucket has 30.01 MB and the others 25.01 MB"
    )
    small = bind({"overlap.bucket": 25e6, "overlap.first_bucket": 1e6})
    assert {c.id: c for _, c in small.contributions("checks")}["first-bucket-large"].holds


def test_buckets_that_cost_nothing_have_no_best_number() -> None:
    """Without overhead smaller is always better: no 10^29 buckets, and the limit of the cost."""
    (scenario,) = parcost.load_text(
        "buckets free { gradients = 1 GB, factor = 2, bandwidth = 100 GB/s per_direction\n"
        "overhead = 0 s, backward = 200 ms, count = 8 }\n"
    )
    result = scenario.evaluate().result
    found = {f.name: f.value for _, f in (*result.figures, *result.details)}
    for name in ("most_count", "bound_count", "contended_count", "best_count"):
        assert found[f"free.{name}"] == float("inf")
    assert found["free.best_cost"] == 0.0  # 20 ms under 200 ms: the last bucket is nothing


@try_each(
    "framework, late",
    [
        # A layer of 8 experts has 24 matrices of 2^20. Buckets of 4e6 hold two up projections of
        # 2 x 2^20, or four down projections. One bucket is gathered ahead of each module.
        ("gathers_in_turn = on, expert_activation = in_product", 20 / 24),
        ("gathers_in_turn = on", (16 - 4 + 8 - 4) / 24),
        ("gathers_in_turn = on, grouped_experts = off", 1 / 13),  # 48 x 2^20 in 13 buckets
        ("gathers_in_turn = off", 1 / 13),
    ],
)
def test_a_module_waits_for_all_but_the_first_of_its_buckets(framework: str, late: float) -> None:
    text = f"""
      use catalog.devices.h100_sxm
      use catalog.fabrics.hgx_h100
      use catalog.precisions.bf16
      framework own {{ {framework} }}
      model m {{
        layers = 2, hidden = 1024, heads = 8, ffn = 4096, vocabulary = 32_000
        experts = 16, top_k = 2, expert_ffn = 1024
      }}
      cluster {{ devices = 4 }}
      layout {{ ep = 2, zero = 1 }}
      overlap {{ bucket = 4e6 * precision.gradients }}
      training {{ sequence = 1024, micro_batch = 1, global_batch = 4 sequences }}
    """
    (scenario,) = parcost.load_text(text)
    study = scenario.studies()[0]
    (found,) = [
        term
        for _, term in study.contributions("terms")
        if term.name == "parameter all-gather of experts"
    ]
    assert found.tail / found.seconds == pytest.approx(late)
