"""Schedules against published bubbles, closed forms and worked examples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parcost import Case, Pipeline, PipelineShape
from parcost.contract.pipelines import Times
from parcost.engine.bounds import lower_bound
from parcost.engine.orders import order_of
from parcost.engine.replay import PipelinePlan, Timeline, run
from parcost.engine.trace import activities
from parcost_plugins.schedules.interleaved import Interleaved

from ..rows import try_each


def case_of(times: Times, hop: Any, p: int, m: Any, v: int) -> Case:
    return Case.from_times(times, stages=p, micro_batches=m, chunks=v, hop=hop)


def shape_of(p: int, m: int, v: int) -> PipelineShape:
    return PipelineShape(stages=p, micro_batches=m, chunks=v)


def order(schedule: Any, p: int, m: int, chunks: int = 1) -> Any:
    """Return the order, also where the schedule is of no use."""
    return order_of(schedule, p, m, chunks)


def replay(
    schedule: Any, m: int, F: list[Any], B: list[Any], W: list[Any], hop: Any = 0, chunks: int = 1
) -> Timeline:
    """Replay, and never use a closed form."""
    found = order(schedule, len(F) // chunks, m, chunks)
    return run(found, Times(F, B, W), hop, [0] * len(found.device))


def equal_timeline(
    schedule: Any, p: int, m: int, f: Any, b: Any, w: Any, hop: Any = 0, chunks: int = 1
) -> Timeline:
    n = p * chunks
    return replay(schedule, m, [f] * n, [b] * n, [w] * n, hop, chunks)


def spans(
    schedule: Any, p: int, m: int, f: Any, b: Any, w: Any, hop: Any = 0, chunks: int = 1
) -> list[Any]:
    """Return how long each device is at work, from its first op to its last."""
    n = p * chunks
    cut = Pipeline(schedule="any", stages=p, micro_batches=m, chunks=chunks)
    found = activities(PipelinePlan(schedule, cut), Times([f] * n, [b] * n, [w] * n), hop)
    return [device[-1].end - device[0].start for device in found]


def most_alive(schedule: Any, p: int, m: int, chunks: int = 1) -> list[int]:
    """Return the most micro-batches alive on each device, over all that it holds."""
    found = order(schedule, p, m, chunks)
    return [max(sum(moment.alive) for moment in device) for device in found.peaks]


# --- makespans ------------------------------------------------------------------------


def test_1f1b_of_4_stages_and_8_micro_batches_idles_three_eighths_as_long_as_it_works(
    one_f_one_b: Any,
) -> None:
    found = equal_timeline(one_f_one_b, 4, 8, 1, 1, 1)
    assert found.seconds == 33
    assert (found.seconds - 24) / 24 == 0.375
    assert (found.seconds - 24) / found.seconds == pytest.approx(0.2727, abs=5e-5)


TABLE = [  # p = 8, m = 32, F = B = W = 1 per stage: T, longest span, alive on the first device
    ("gpipe", 1, 117, 117, 32),
    ("one_f_one_b", 1, 117, 117, 8),
    ("interleaved", 2, 106.5, 106.5, 23),
    ("interleaved", 4, 101.25, 101.25, 39),
    ("breadth_first", 2, 106.5, 106.5, 64),
    ("zb_h1", 1, 103, 103, 8),
    ("zb_h2", 1, 103, 96, 15),
    ("zb_v", 2, 99.5, 96, 16),
    ("dualpipe", 1, 102, 102, 9),
    ("dualpipe_v", 2, 103, 103, 17),
]


@try_each("name, v, seconds, span, alive", TABLE)
def test_eight_devices_and_32_micro_batches_take_what_the_table_says(
    name: str, v: int, seconds: float, span: float, alive: int, shipped: Any
) -> None:
    times = (1 / v, 1 / v, 1 / v)
    assert equal_timeline(shipped[name], 8, 32, *times, chunks=v).seconds == seconds
    assert max(spans(shipped[name], 8, 32, *times, chunks=v)) == span
    assert most_alive(shipped[name], 8, 32, v)[0] == alive


@try_each("name, v, seconds, span, alive", TABLE)
def test_the_closed_forms_of_the_table_hold(
    name: str, v: int, seconds: float, span: float, alive: int, shipped: Any
) -> None:
    del span, alive
    times = Times(*[[1 / v] * (8 * v)] * 3)
    assert shipped[name].closed_form(case_of(times, 0, 8, 32, v)) == (seconds, True)


def test_without_a_barrier_a_step_is_as_long_as_its_longest_span(shipped: Any) -> None:
    assert equal_timeline(shipped["zb_h1"], 4, 8, 10, 8, 12).seconds == 270
    assert max(spans(shipped["zb_h1"], 4, 8, 10, 8, 12)) == 264
    assert max(spans(shipped["zb_h2"], 4, 8, 12, 10, 10)) == 262
    assert equal_timeline(shipped["zb_v"], 8, 32, 1, 1, 1, chunks=2).seconds == 199
    assert max(spans(shipped["zb_v"], 8, 32, 1, 1, 1, chunks=2)) == 192


@pytest.mark.parametrize("p, m, f, b, w", [(4, 16, 2, 6, 1), (4, 16, 3, 9, 4), (3, 9, 5, 5, 3)])
def test_zb_v_spans_the_work_and_p_minus_1_times_what_b_is_longer_than_w(
    p: int, m: int, f: int, b: int, w: int, zb_v: Any
) -> None:
    span = max(spans(zb_v, p, m, f, b, w, chunks=2))
    assert span == 2 * m * (f + b + w) + 2 * (p - 1) * (b - w)


def test_dualpipe_gains_nothing_where_it_fills_and_drains(shipped: Any) -> None:
    dualpipe = shipped["dualpipe"]
    cut = PipelinePlan(dualpipe, Pipeline(schedule="dualpipe", stages=8, micro_batches=32.0))
    ten = [10] * 8
    times = Times(ten, ten, ten, dict.fromkeys(cut.pairs, 24))
    assert cut.timeline(times, 0).seconds == 864
    assert 864 > 32 * 24 + 42
    assert not dualpipe.closed_form(case_of(times, 0, 8, 32, 1))[1]


@try_each("r", range(8))
def test_a_device_of_dualpipe_runs_that_many_pairs(r: int, shipped: Any) -> None:
    middle = min(r, 7 - r)
    pairs = sum(order(shipped["dualpipe"], 8, 32).pairs[r].values())
    assert pairs == 32 - 12 + middle + 1 - (r in (3, 4))


def test_dualpipe_v_on_half_the_devices_takes_as_long(shipped: Any) -> None:
    assert equal_timeline(shipped["dualpipe_v"], 4, 16, 1, 1, 1, chunks=2).seconds == 102


@try_each("d", [2, 4, 6, 8])
def test_a_unit_of_chimera_idles_d_minus_2_backward_passes(d: int, shipped: Any) -> None:
    for f, b in ((1, 2), (1, 1), (3, 4)):
        assert equal_timeline(shipped["chimera"], d, d, f, b, 0).seconds == d * f + (2 * d - 2) * b
    found = most_alive(shipped["chimera"], d, d)
    assert (min(found), max(found)) == (d // 2 + 1, d)


def test_a_unit_of_six_takes_26(shipped: Any) -> None:
    assert equal_timeline(shipped["chimera"], 6, 6, 1, 2, 0).seconds == 26


@pytest.mark.parametrize("units", [1, 2, 5])
def test_units_of_chimera_interlock_where_passes_take_as_long(units: int, shipped: Any) -> None:
    d = 6
    found = equal_timeline(shipped["chimera"], d, units * d, 1, 1, 0).seconds
    assert found == 2 * units * d + d - 2


def test_four_stages_with_two_chunks_take_57_chunk_units(interleaved: Any) -> None:
    assert equal_timeline(interleaved, 4, 8, 1, 1, 1, chunks=2).seconds == 57


@given(p=st.integers(2, 6), k=st.integers(2, 4), f=st.integers(1, 9), b=st.integers(1, 9),
       w=st.integers(0, 9))  # fmt: skip
def test_zero_bubble_idles_p_minus_1_times_what_its_rarest_resource_leaves(
    p: int, k: int, f: int, b: int, w: int, shipped: Any
) -> None:
    m, work = k * p, k * p * (f + b + w)
    one, two = shipped["zb_h1"], shipped["zb_h2"]
    assert equal_timeline(one, p, m, f, b, w).seconds == work + (p - 1) * max(f + b - w, f, b)
    assert equal_timeline(two, p, m, f, b, w).seconds == work + (p - 1) * max(
        f, f + b - 2 * w, b - f
    )
    assert max(spans(one, p, m, f, b, w)) == work + (p - 1) * max(f + b - w, b)
    assert max(spans(two, p, m, f, b, w)) == work + (p - 1) * max(f + b - 2 * w, b - f, 0)


@given(p=st.integers(1, 5), k=st.integers(1, 4), v=st.integers(2, 3), f=st.integers(0, 9),
       b=st.integers(0, 9))  # fmt: skip
def test_interleaving_divides_the_bubble_by_the_chunks(
    p: int, k: int, v: int, f: int, b: int, interleaved: Any
) -> None:
    found = equal_timeline(interleaved, p, k * p, f, b, 0, chunks=v)
    assert found.seconds == (k * p * v + p - 1) * (f + b)


@try_each(
    "name, v",
    [
        ("gpipe", 1),
        ("one_f_one_b", 1),
        ("interleaved", 2),
        ("breadth_first", 2),
        ("zb_h1", 1),
        ("zb_h2", 1),
        ("zb_v", 2),
        ("dualpipe_v", 2),
    ],
)
def test_one_device_never_idles(name: str, v: int, shipped: Any) -> None:
    assert equal_timeline(shipped[name], 1, 7, 2, 3, 4, chunks=v).seconds == 7 * 9 * v


@pytest.mark.parametrize("v", [2, 3, 4])
def test_more_chunks_idle_less(v: int, interleaved: Any, one_f_one_b: Any) -> None:
    fewer = (
        equal_timeline(interleaved, 4, 8, 12 / (v - 1), 24 / (v - 1), 0, chunks=v - 1)
        if v > 2
        else equal_timeline(one_f_one_b, 4, 8, 12, 24, 0)
    )
    assert equal_timeline(interleaved, 4, 8, 12 / v, 24 / v, 0, chunks=v).seconds < fewer.seconds


def test_zb_v_holds_as_much_on_every_device_and_no_more_than_1f1b_on_its_first(zb_v: Any) -> None:
    assert most_alive(zb_v, 8, 32, 2) == [16] * 8  # of half a stage each


def test_zb_h1_holds_no_more_than_1f1b_where_b_frees_all(zb_h1: Any) -> None:
    found = order(zb_h1, 8, 32)
    whole = [max(sum(moment.whole) for moment in device) for device in found.peaks]
    assert whole == [8 - s for s in range(8)]


def test_dualpipe_holds_one_micro_batch_more_than_there_are_stages(shipped: Any) -> None:
    assert most_alive(shipped["dualpipe"], 8, 32) == [9] * 8
    assert most_alive(shipped["dualpipe_v"], 8, 32, 2) == [17] * 8


def test_one_micro_batch_passes_every_stage_alone(gpipe: Any, one_f_one_b: Any) -> None:
    for schedule in (gpipe, one_f_one_b):
        assert equal_timeline(schedule, 5, 1, 2, 3, 4).seconds == 5 * 9


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
def test_gpipe_is_two_trains_past_the_slowest_stage(
    f: list[int], m: int, hop: int, data: Any, gpipe: Any
) -> None:
    b = data.draw(st.lists(st.integers(0, 9), min_size=len(f), max_size=len(f)))
    found = replay(gpipe, m, f, b, [0] * len(f), hop)
    trains = sum(f) + sum(b) + (m - 1) * (max(f) + max(b))
    assert found.seconds == trains + 2 * (len(f) - 1) * hop


@given(f=rows, m=st.integers(1, 12), data=st.data())
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
    assert equal_timeline(one_f_one_b, 4, 16, 100, 200, 0).seconds == 5700
    assert equal_timeline(one_f_one_b, 4, 16, 100, 200, 0, hop=1).seconds == 5728


def test_interleaving_pays_once(interleaved: Any) -> None:
    assert equal_timeline(interleaved, 4, 8, 50, 100, 0, chunks=2).seconds == 2850
    assert equal_timeline(interleaved, 4, 8, 50, 100, 0, hop=5, chunks=2).seconds == 2920


@given(p=st.integers(2, 5), k=st.integers(2, 3), w=st.integers(1, 9), f=st.integers(0, 9),
       b=st.integers(0, 9), hop=st.integers(0, 4))  # fmt: skip
def test_zero_bubble_pays_two_round_trips_or_one(
    p: int, k: int, f: int, b: int, w: int, hop: int, shipped: Any
) -> None:
    w = max(w, 2 * hop)  # 2 c <= W <= min(F, B), so that F + B >= 2 W
    m, f, b = k * p, f + w, b + w
    one, two = shipped["zb_h1"], shipped["zb_h2"]
    late = equal_timeline(one, p, m, f, b, w, hop).seconds
    assert late == equal_timeline(one, p, m, f, b, w).seconds + 4 * (p - 1) * hop
    span = max(spans(two, p, m, f, b, w, hop))
    assert span == max(spans(two, p, m, f, b, w)) + 2 * (p - 1) * hop


@try_each("p", [2, 3, 4, 8])
def test_zb_v_pays_six_hops_a_device(p: int, zb_v: Any) -> None:
    late = max(spans(zb_v, p, 4 * p, 100, 100, 100, 10, chunks=2))
    assert late == max(spans(zb_v, p, 4 * p, 100, 100, 100, chunks=2)) + (6 * p - 8) * 10


@pytest.mark.parametrize("p, v", [(2, 2), (4, 2), (4, 3)])
def test_breadth_first_pays_for_all_boundaries_or_for_one_way_and_back(
    p: int, v: int, shipped: Any
) -> None:
    looped = shipped["breadth_first"]
    for m, hops in ((p, 2 * (p * v - 1)), (4 * p, 2 * (p - 1))):
        late = equal_timeline(looped, p, m, 100, 200, 0, 1, chunks=v).seconds
        assert late == equal_timeline(looped, p, m, 100, 200, 0, chunks=v).seconds + hops


@try_each("p", [3, 4, 5, 6])
@try_each("k", [1, 2, 5])
def test_1f1b_pays_for_every_message_twice_where_sending_blocks(
    p: int, k: int, one_f_one_b: Any
) -> None:
    m = k * p
    times = Times([100] * p, [200] * p, [0] * p)
    cut = Pipeline(schedule="1f1b", stages=p, micro_batches=m, blocking=True)
    found = PipelinePlan(one_f_one_b, cut).timeline(times, 1)
    assert found.seconds == (m + p - 1) * 300 + 2 * m + 2 * p - 5


def test_interleaving_in_larger_groups_hides_messages(shipped: Any) -> None:
    wider = Interleaved(6)
    late = equal_timeline(wider, 4, 12, 100, 200, 0, 5, chunks=2).seconds
    assert late == equal_timeline(wider, 4, 12, 100, 200, 0, chunks=2).seconds + 2 * 3 * 5
    narrow = equal_timeline(shipped["interleaved"], 4, 12, 100, 200, 0, 5, chunks=2).seconds
    assert (
        narrow == equal_timeline(shipped["interleaved"], 4, 12, 100, 200, 0, chunks=2).seconds + 70
    )


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
@pytest.mark.slow
@settings(max_examples=1000)
def test_a_closed_form_is_the_replay_wherever_it_holds(
    pipeline: tuple[int, Times, int], name: str, shipped: Any
) -> None:
    m, times, hop = pipeline
    p, schedule = len(times.F), shipped[name]
    seconds, mask = schedule.closed_form(case_of(times, hop, p, m, 1))
    if mask:
        found = replay(schedule, m, *map(list, times[:3]), hop)  # type: ignore[arg-type]
        starts, ends = schedule.spans(case_of(times, hop, p, m, 1))
        assert seconds == found.seconds
        assert list(starts) == found.starts
        assert list(ends) == found.ends


CHUNKS = {"interleaved": [2, 3], "breadth_first": [2, 3], "zb_v": [2], "dualpipe_v": [2]}
ALL = ["breadth_first", "chimera", "dualpipe", "dualpipe_v", "gpipe", "interleaved",
       "one_f_one_b", "zb_h1", "zb_h2", "zb_v"]  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> Any:
    """A schedule where it exists, and stages that are equal, often in the ways that count."""
    name = draw(st.sampled_from(ALL))
    v, p = draw(st.sampled_from(CHUNKS.get(name, [1]))), draw(st.integers(1, 6))
    p += p % 2 if name in ("dualpipe", "chimera") else p == 1
    group = p + draw(st.sampled_from([0, 0, 1, 2, p]))
    unit = {"interleaved": group, "chimera": p, "dualpipe": 2}.get(name, 1)
    least = 2 * p if name.startswith("dual") else 1
    m = -(-max(draw(st.integers(1, 16)), least) // unit) * unit
    f, b = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    f, b = draw(st.sampled_from([(f, b), (f, f), (2 * f, 2 * f), (f, 2 * f)]))
    w = draw(st.sampled_from([f, f / 2, draw(st.integers(0, 9))]))
    hop = draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
    return name, Interleaved(group) if name == "interleaved" else None, p, m, v, (f, b, w), hop


@given(case=cases())
@pytest.mark.slow
@settings(max_examples=1500)
def test_closed_forms_and_bounds_of_equal_stages_hold_for_every_schedule(
    case: Any, shipped: Any
) -> None:
    name, grouped, p, m, v, (f, b, w), hop = case
    schedule, n = grouped or shipped[name], p * v
    assert schedule.limits(shape_of(p, m, v)) is None
    times = Times([f] * n, [b] * n, [w] * n)
    found = equal_timeline(schedule, p, m, f, b, w, hop, v).seconds
    seconds, mask = schedule.closed_form(case_of(times, hop, p, m, v))
    assert not mask or seconds == found
    cut = PipelinePlan(schedule, Pipeline(schedule=name, stages=p, micro_batches=m, chunks=v))
    assert lower_bound(cut, times, hop) <= found


@given(case=cases(), data=st.data())
@pytest.mark.slow
@settings(max_examples=500)
def test_no_schedule_is_faster_than_its_bound_or_its_closed_form_on_any_stages(
    case: Any, data: Any, shipped: Any
) -> None:
    name, grouped, p, m, v, _, hop = case
    schedule = grouped or shipped[name]
    eighths = st.integers(0, 72).map(lambda n: n / 8)  # which floats hold exactly
    column = st.lists(eighths, min_size=p * v, max_size=p * v)
    times = Times(data.draw(column), data.draw(column), data.draw(column))
    found = replay(schedule, m, *map(list, times[:3]), hop, v).seconds  # type: ignore[arg-type]
    cut = PipelinePlan(schedule, Pipeline(schedule=name, stages=p, micro_batches=m, chunks=v))
    assert lower_bound(cut, times, hop) <= found
    seconds, mask = schedule.closed_form(case_of(times, hop, p, m, v))
    assert not mask or seconds == found


@given(m=st.integers(4, 40), slow=st.integers(0, 3), more=st.integers(0, 20))
def test_the_bound_of_1f1b_is_exact_for_one_slow_stage(
    m: int, slow: int, more: int, one_f_one_b: Any
) -> None:
    F, B = [10] * 4, [20] * 4
    F[slow], B[slow] = 10 + more, 20 + 2 * more
    cut = PipelinePlan(one_f_one_b, Pipeline(schedule="1f1b", stages=4, micro_batches=m))
    found = replay(one_f_one_b, m, F, B, [0] * 4).seconds
    assert lower_bound(cut, Times(F, B, [0] * 4), 0) == found


@given(
    p=st.integers(1, 6), m=st.integers(1, 14), f=st.integers(0, 9), b=st.integers(0, 9),
    hop=st.integers(0, 30),
)  # fmt: skip
def test_the_closed_form_of_1f1b_holds_for_equal_stages_and_any_hop(
    p: int, m: int, f: int, b: int, hop: int, one_f_one_b: Any
) -> None:
    times = Times([f] * p, [b] * p, [0] * p)
    seconds, mask = one_f_one_b.closed_form(case_of(times, hop, p, m, 1))
    trips = (p - 1) + (m - 2) - (m - 2) // p if p > 1 else 0
    assert mask
    assert seconds == (m + p - 1) * (f + b) + 2 * hop * trips


def test_the_closed_form_of_1f1b_holds_for_a_head_on_the_last_stage(one_f_one_b: Any) -> None:
    times = Times([10, 10, 10, 13], [20, 20, 20, 26], [0, 0, 0, 0])
    assert one_f_one_b.closed_form(case_of(times, 1, 4, 16, 1)) == (714 + 6, True)


def test_the_closed_form_of_1f1b_does_not_hold_for_a_slow_first_stage(one_f_one_b: Any) -> None:
    times = Times([13, 10, 10, 10], [26, 20, 20, 20], [0, 0, 0, 0])
    assert not one_f_one_b.closed_form(case_of(times, 0, 4, 16, 1))[1]


# --- slack -------------------------------------------------------------------------------


@given(p=st.integers(1, 6), m=st.integers(1, 12), f=st.integers(0, 9), b=st.integers(0, 9),
       w=st.integers(0, 9))  # fmt: skip
def test_equal_stages_idle_one_pass_more_the_further_from_the_first(
    p: int, m: int, f: int, b: int, w: int, gpipe: Any, one_f_one_b: Any
) -> None:
    for schedule in (gpipe, one_f_one_b):
        found = equal_timeline(schedule, p, m, f, b, w)
        assert found.starts == [s * f for s in range(p)]
        assert [found.seconds - end for end in found.ends] == [s * (b + w) for s in range(p)]
