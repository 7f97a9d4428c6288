"""Schedules against published bubbles, closed forms and worked examples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parcost import Pipeline
from parcost.evaluation.replay import Plan, Timeline, run
from parcost.terms import Times


def replay(
    schedule: Any, m: int, F: list[Any], B: list[Any], W: list[Any], hop: Any = 0, chunks: int = 1
) -> Timeline:
    """Replay, and never use a closed form."""
    p = len(F) // chunks
    plan = Plan(
        schedule,
        Pipeline(schedule=schedule.name, stages=p, micro_batches=float(m), chunks=chunks),
    )
    return run(plan.orders[0][1], Times(F, B, W), hop, [0] * len(F))


def equal(
    schedule: Any, p: int, m: int, f: Any, b: Any, w: Any, hop: Any = 0, chunks: int = 1
) -> Timeline:
    n = p * chunks
    return replay(schedule, m, [f] * n, [b] * n, [w] * n, hop, chunks)


def spans(found: Timeline, p: int) -> list[Any]:
    """Return how long each device is at work, from its first op to its last."""
    return [
        max(found.ends[d::p]) - min(found.starts[d::p]) for d in range(p)
    ]  # virtual stage x on device x mod p


# --- makespans ------------------------------------------------------------------------


def test_1f1b_of_4_stages_and_8_micro_batches_idles_three_eighths_as_long_as_it_works(
    one_f_one_b: Any,
) -> None:
    found = equal(one_f_one_b, 4, 8, 1, 1, 1)
    assert found.seconds == 33
    assert (found.seconds - 24) / 24 == 0.375
    assert (found.seconds - 24) / found.seconds == pytest.approx(0.2727, abs=5e-5)


def test_eight_stages_and_32_micro_batches_take_what_the_table_says(
    gpipe: Any, one_f_one_b: Any, zb_h1: Any, interleaved: Any, zb_v: Any
) -> None:
    assert equal(gpipe, 8, 32, 1, 1, 1).seconds == 117
    assert equal(one_f_one_b, 8, 32, 1, 1, 1).seconds == 117
    assert equal(interleaved, 8, 32, 0.5, 0.5, 0.5, chunks=2).seconds == 106.5
    assert equal(interleaved, 8, 32, 0.25, 0.25, 0.25, chunks=4).seconds == 101.25
    assert equal(zb_h1, 8, 32, 1, 1, 1).seconds == 103
    assert max(spans(equal(zb_h1, 8, 32, 1, 1, 1), 8)) == 103
    v_shaped = equal(zb_v, 8, 32, 1, 1, 1, chunks=2)  # in units of chunks
    assert v_shaped.seconds == 199
    own = [(d, 15 - d) for d in range(8)]
    spans_ = [max(v_shaped.ends[x] for x in xs) - v_shaped.starts[xs[0]] for xs in own]
    assert max(spans_) == 192


def test_zb_h1_without_a_barrier_is_as_long_as_its_longest_span(zb_h1: Any) -> None:
    found = equal(zb_h1, 4, 8, 10, 8, 12)
    assert found.seconds == 270
    assert max(spans(found, 4)) == 264


def test_four_stages_with_two_chunks_take_57_chunk_units(interleaved: Any) -> None:
    assert equal(interleaved, 4, 8, 1, 1, 1, chunks=2).seconds == 57


@given(p=st.integers(1, 6), k=st.integers(2, 4), f=st.integers(1, 9), b=st.integers(1, 9),
       w=st.integers(0, 9))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_zb_h1_idles_p_minus_1_times_what_its_rarest_resource_leaves(
    p: int, k: int, f: int, b: int, w: int, zb_h1: Any
) -> None:
    m = k * p
    found = equal(zb_h1, p, m, f, b, w)
    assert found.seconds == m * (f + b + w) + (p - 1) * max(f + b - w, f, b)
    assert max(spans(found, p)) == m * (f + b + w) + (p - 1) * max(f + b - w, b)


@given(p=st.integers(1, 5), k=st.integers(1, 4), v=st.integers(1, 3), f=st.integers(0, 9),
       b=st.integers(0, 9))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_interleaving_divides_the_bubble_by_the_chunks(
    p: int, k: int, v: int, f: int, b: int, interleaved: Any
) -> None:
    found = equal(interleaved, p, k * p, f, b, 0, chunks=v)
    assert found.seconds == (k * p * v + p - 1) * (f + b)


def test_one_device_never_idles(gpipe: Any, one_f_one_b: Any, zb_h1: Any, interleaved: Any) -> None:
    for schedule in (gpipe, one_f_one_b, zb_h1, interleaved):
        assert equal(schedule, 1, 7, 2, 3, 4).seconds == 7 * 9


def test_one_micro_batch_passes_every_stage_alone(gpipe: Any, one_f_one_b: Any) -> None:
    for schedule in (gpipe, one_f_one_b):
        assert equal(schedule, 5, 1, 2, 3, 4).seconds == 5 * 9


# --- unequal stages ---------------------------------------------------------------------


def test_a_head_on_the_last_stage_costs_more_than_the_same_on_the_first(one_f_one_b: Any) -> None:
    none = [0] * 4
    last = replay(one_f_one_b, 16, [10, 10, 10, 13], [20, 20, 20, 26], none)
    first = replay(one_f_one_b, 16, [13, 10, 10, 10], [26, 20, 20, 20], none)
    assert last.seconds == 714
    assert first.seconds == 687


def test_the_worked_example_on_64_h100_takes_its_pipeline_time(one_f_one_b: Any) -> None:
    f, b, hop = 80.1056e-3, 137.2367e-3, 0.39283e-3
    found = replay(
        one_f_one_b, 16, [f, f, f, f + 2.9009e-3], [b, b, b, b + 5.8019e-3], [0.0] * 4, hop
    )
    assert found.seconds == pytest.approx(4.271106, rel=1e-5)


rows = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(f=rows, m=st.integers(1, 12), hop=st.integers(0, 20), data=st.data())
@settings(max_examples=200, deadline=None)
def test_gpipe_is_two_trains_past_the_slowest_stage(
    f: list[int], m: int, hop: int, data: Any, gpipe: Any
) -> None:
    b = data.draw(st.lists(st.integers(0, 9), min_size=len(f), max_size=len(f)))
    found = replay(gpipe, m, f, b, [0] * len(f), hop)
    trains = sum(f) + sum(b) + (m - 1) * (max(f) + max(b))
    assert found.seconds == trains + 2 * (len(f) - 1) * hop


@given(f=rows, m=st.integers(1, 12), data=st.data())
@settings(max_examples=200, deadline=None)
def test_1f1b_is_never_faster_than_any_stage_lets_it_be(
    f: list[int], m: int, data: Any, one_f_one_b: Any
) -> None:
    p = len(f)
    b = data.draw(st.lists(st.integers(0, 9), min_size=p, max_size=p))
    found = replay(one_f_one_b, m, f, b, [0] * p)
    for s in range(p):
        behind = sum(f[s + 1 :]) + sum(b[s + 1 :])
        waits = max(0, behind - (p - 1 - s) * f[s]) + max(0, behind - (p - 1 - s) * b[s])
        if m >= p:
            bound = sum(f[:s]) + sum(b[:s]) + m * (f[s] + b[s]) + waits
            assert found.seconds >= bound
    assert found.seconds >= sum(f) + sum(b)
    assert found.seconds <= sum(f) + sum(b) + (m - 1) * (max(f) + max(b))


# --- the time of messages ---------------------------------------------------------------


def test_1f1b_pays_for_messages_with_every_micro_batch(one_f_one_b: Any) -> None:
    assert equal(one_f_one_b, 4, 16, 100, 200, 0).seconds == 5700
    assert equal(one_f_one_b, 4, 16, 100, 200, 0, hop=1).seconds == 5728


def test_interleaving_pays_once(interleaved: Any) -> None:
    assert equal(interleaved, 4, 8, 50, 100, 0, chunks=2).seconds == 2850
    assert equal(interleaved, 4, 8, 50, 100, 0, hop=5, chunks=2).seconds == 2920


@given(p=st.integers(2, 5), k=st.integers(2, 3), w=st.integers(0, 9), f=st.integers(0, 9),
       b=st.integers(0, 9), hop=st.integers(0, 4))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_zb_h1_pays_two_round_trips(
    p: int, k: int, f: int, b: int, w: int, hop: int, zb_h1: Any
) -> None:
    f, b, w = f + w, b + w, max(w, 2 * hop)  # W <= min(F, B) and 2 c <= W
    f, b = max(f, w), max(b, w)
    m = k * p
    found = equal(zb_h1, p, m, f, b, w, hop)
    assert found.seconds == equal(zb_h1, p, m, f, b, w).seconds + 4 * (p - 1) * hop


def test_a_last_stage_slower_by_two_hops_hides_all_round_trips_but_one(one_f_one_b: Any) -> None:
    hop, p, m = 3, 4, 16
    f, b = [10, 10, 10, 12], [20, 20, 20, 24]  # 36 a micro-batch, 6 more than the others
    slow = replay(one_f_one_b, m, f, b, [0] * p, hop)
    assert slow.seconds == replay(one_f_one_b, m, f, b, [0] * p).seconds + 2 * (p - 1) * hop


# --- closed forms -------------------------------------------------------------------------


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[int, Times, int]:
    """Stages that are equal, or slow at the end, or any; and a hop."""
    p, m = draw(st.integers(1, 6)), draw(st.integers(1, 14))
    most = draw(st.sampled_from([1, 9]))
    column = st.lists(st.integers(0, most), min_size=p, max_size=p)
    F, B, W = draw(column), draw(column), draw(column)
    if draw(st.booleans()):
        F, B, W = [F[0]] * p, [B[0]] * p, [W[0]] * p
    if draw(st.booleans()):
        F[-1], B[-1] = F[-1] + draw(st.integers(0, 12)), B[-1] + draw(st.integers(0, 12))
    return m, Times(F, B, W), draw(st.sampled_from([0, 0, 1, 2, 20]))


@given(pipeline=pipelines(), name=st.sampled_from(["gpipe", "one_f_one_b"]))
@settings(max_examples=1000, deadline=None)
def test_a_closed_form_is_the_replay_wherever_it_holds(
    pipeline: tuple[int, Times, int], name: str, request: Any
) -> None:
    m, times, hop = pipeline
    p, schedule = len(times.F), request.getfixturevalue(name)
    seconds, mask = schedule.closed_form(times, hop, p, m, 1)
    if mask:
        found = replay(schedule, m, *map(list, times), hop)  # type: ignore[arg-type]
        starts, ends = schedule.spans(times, hop, p, m, 1)
        assert seconds == found.seconds
        assert list(starts) == found.starts
        assert list(ends) == found.ends


@given(
    p=st.integers(1, 6), m=st.integers(1, 14), f=st.integers(0, 9), b=st.integers(0, 9),
    hop=st.integers(0, 30),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_the_closed_form_of_1f1b_holds_for_equal_stages_and_any_hop(
    p: int, m: int, f: int, b: int, hop: int, one_f_one_b: Any
) -> None:
    times = Times([f] * p, [b] * p, [0] * p)
    seconds, mask = one_f_one_b.closed_form(times, hop, p, m, 1)
    trips = (p - 1) + (m - 2) - (m - 2) // p if p > 1 else 0
    assert mask
    assert seconds == (m + p - 1) * (f + b) + 2 * hop * trips


def test_the_closed_form_of_1f1b_holds_for_a_head_on_the_last_stage(one_f_one_b: Any) -> None:
    times = Times([10, 10, 10, 13], [20, 20, 20, 26], [0, 0, 0, 0])
    assert one_f_one_b.closed_form(times, 1, 4, 16, 1) == (714 + 6, True)


def test_the_closed_form_of_1f1b_does_not_hold_for_a_slow_first_stage(one_f_one_b: Any) -> None:
    times = Times([13, 10, 10, 10], [26, 20, 20, 20], [0, 0, 0, 0])
    assert not one_f_one_b.closed_form(times, 0, 4, 16, 1)[1]


# --- slack -------------------------------------------------------------------------------


@given(p=st.integers(1, 6), m=st.integers(1, 12), f=st.integers(0, 9), b=st.integers(0, 9),
       w=st.integers(0, 9))  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_equal_stages_idle_one_pass_more_the_further_from_the_first(
    p: int, m: int, f: int, b: int, w: int, gpipe: Any, one_f_one_b: Any
) -> None:
    for schedule in (gpipe, one_f_one_b):
        found = equal(schedule, p, m, f, b, w)
        assert found.starts == [s * f for s in range(p)]
        assert [found.seconds - end for end in found.ends] == [s * (b + w) for s in range(p)]
