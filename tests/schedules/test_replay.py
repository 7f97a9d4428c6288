"""The replay of an op order against a slow simulator, and what orders are rejected."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parcost import Op, Pair, Pipeline, Schedule, SpecError
from parcost.contract.pipelines import Times
from parcost.engine.bounds import device_seconds, lower_bound
from parcost.engine.compiled_order import OrderError
from parcost.engine.orders import order_of
from parcost.engine.replay import PipelinePlan, Timeline
from parcost.engine.trace import activities

from ..rows import try_each

seconds = st.integers(0, 12)


class ListedSchedule(Schedule):
    """A schedule of an order that is written down."""

    def __init__(self, name: str, order: Callable[..., Any], copies: int = 1) -> None:
        self.name, self._order, self.copies = name, order, copies

    def order(self, *shape: int) -> Any:
        return self._order(*shape)


def bad(lists: Any) -> Any:
    return ListedSchedule("bad", lambda *_: lists)


def plan(schedule: Any, p: int, m: Any, v: int = 1, *, blocking: bool = False) -> PipelinePlan:
    cut = Pipeline(schedule=schedule.name, stages=p, micro_batches=m, chunks=v, blocking=blocking)
    return PipelinePlan(schedule, cut)


@st.composite
def cases(draw: st.DrawFn) -> SimpleNamespace:
    p, m, v = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    rows = st.lists(seconds, min_size=p * v, max_size=p * v)
    return SimpleNamespace(
        p=p, m=m, v=v, F=draw(rows), B=draw(rows), W=draw(rows), hop=draw(st.integers(0, 5)),
        releases=draw(rows), seed=draw(st.integers(0, 10**6)),
    )  # fmt: skip


def expect(found: Timeline, p: PipelinePlan, expected: Any) -> None:
    """Compare a timeline with that of the simulator, copy by copy."""
    assert found.seconds == expected.seconds
    copies = list(zip(p.stage, p.device, strict=True))
    assert dict(zip(copies, found.starts, strict=True)) == expected.starts
    assert dict(zip(copies, found.ends, strict=True)) == expected.ends


def by_copy(p: PipelinePlan, values: Any) -> dict[tuple[int, int], Any]:
    return dict(zip(zip(p.stage, p.device, strict=True), values, strict=True))


@given(case=cases(), held_back=st.booleans(), blocking=st.booleans())
def test_a_replay_is_what_a_simulator_says(
    case: Any, held_back: bool, blocking: bool, any_order: Any, simulate: Any
) -> None:
    schedule = any_order(case.seed)
    cut = plan(schedule, case.p, case.m, case.v, blocking=blocking)
    expected = simulate(
        schedule.order(case.p, case.m, case.v),
        {"F": case.F, "B": case.B, "W": case.W},
        case.hop,
        by_copy(cut, case.releases) if held_back else None,
        blocking=blocking,
    )
    found = cut.timeline(
        Times(case.F, case.B, case.W), case.hop, case.releases if held_back else ()
    )
    expect(found, cut, expected)


@given(case=cases(), data=st.data(), held_back=st.booleans(), blocking=st.booleans())
def test_pairs_and_copies_are_replayed_as_a_simulator_says(
    case: Any, data: Any, held_back: bool, blocking: bool, any_pairs: Any, simulate: Any
) -> None:
    schedule = any_pairs(case.seed)
    cut = plan(schedule, case.p, case.m, case.v, blocking=blocking)
    pairs = {both: data.draw(seconds) for both in cut.pairs}
    n = len(cut.device)
    releases = data.draw(st.lists(seconds, min_size=n, max_size=n)) if held_back else []
    hops = tuple(data.draw(st.lists(seconds, min_size=case.p - 1, max_size=case.p - 1)))
    expected = simulate(
        schedule.order(case.p, case.m, case.v),
        {"F": case.F, "B": case.B, "W": case.W, "FB": pairs},
        hops,
        by_copy(cut, releases) if held_back else None,
        blocking=blocking,
    )
    found = cut.timeline(Times(case.F, case.B, case.W, pairs), hops, releases)
    expect(found, cut, expected)


@pytest.mark.slow
@given(case=cases(), data=st.data(), held_back=st.booleans())
def test_boundaries_with_hops_of_their_own_are_replayed_as_a_simulator_says(
    case: Any, data: Any, held_back: bool, any_order: Any, gpipe: Any, one_f_one_b: Any,
    simulate: Any,
) -> None:  # fmt: skip
    own = [any_order(case.seed)] + ([gpipe, one_f_one_b] if case.v == 1 else [])
    hops = tuple(data.draw(st.lists(seconds, min_size=case.p - 1, max_size=case.p - 1)))
    for schedule in own:
        cut = plan(schedule, case.p, float(case.m), case.v)
        expected = simulate(
            schedule.order(case.p, case.m, case.v),
            {"F": case.F, "B": case.B, "W": case.W},
            hops,
            by_copy(cut, case.releases) if held_back else None,
        )
        found = cut.timeline(
            Times(case.F, case.B, case.W), hops, case.releases if held_back else ()
        )
        expect(found, cut, expected)


@given(case=cases(), blocking=st.booleans())
def test_a_trace_has_every_op_when_a_simulator_has_it(
    case: Any, blocking: bool, any_pairs: Any, simulate: Any
) -> None:
    schedule = any_pairs(case.seed)
    cut = plan(schedule, case.p, case.m, case.v, blocking=blocking)
    expected = simulate(
        schedule.order(case.p, case.m, case.v),
        {"F": case.F, "B": case.B, "W": case.W},
        case.hop,
        blocking=blocking,
    )
    found = activities(cut, Times(case.F, case.B, case.W), case.hop)
    assert [(d, *activity) for d, own in enumerate(found) for activity in own] == sorted(
        expected.when, key=lambda row: row[0]
    )


@given(case=cases(), data=st.data())
@settings(max_examples=min(60, settings().max_examples), deadline=None)
def test_arrays_of_hops_over_each_boundary_give_what_each_gives_alone(
    case: Any, data: Any, any_order: Any
) -> None:
    schedule, n, k = any_order(case.seed), case.p * case.v, 3
    column = st.lists(st.floats(0, 9), min_size=k, max_size=k).map(np.array)
    hops = tuple(data.draw(column) for _ in range(case.p - 1))
    times = Times(case.F, case.B, case.W)
    found = plan(schedule, case.p, float(case.m), case.v)
    many = found.timeline(times, hops, case.releases)
    for i in range(k if hops else 0):
        alone = found.timeline(times, tuple(float(hop[i]) for hop in hops), case.releases)
        assert many.seconds[i] == alone.seconds
        assert [many.starts[x][i] for x in range(n)] == list(alone.starts)
        assert [many.ends[x][i] for x in range(n)] == list(alone.ends)


@pytest.mark.slow
@given(case=cases(), data=st.data())
@settings(max_examples=min(60, settings().max_examples), deadline=None)
def test_arrays_of_candidates_give_what_each_gives_alone(
    case: Any, data: Any, any_order: Any
) -> None:
    schedule = any_order(case.seed)
    n, k = case.p * case.v, 5
    stretch = np.array(data.draw(st.lists(st.floats(0, 3), min_size=k, max_size=k)))
    hops = np.array(data.draw(st.lists(st.floats(0, 9), min_size=k, max_size=k)))
    batches = np.array(data.draw(st.lists(st.integers(1, 5), min_size=k, max_size=k)), dtype=float)
    times = Times([f * stretch for f in case.F], case.B, [w / 3 for w in case.W])
    many = plan(schedule, case.p, batches, case.v).timeline(times, hops, case.releases)
    for i in range(k):
        alone = plan(schedule, case.p, float(batches[i]), case.v).timeline(
            Times([f * float(stretch[i]) for f in case.F], case.B, times.W),
            float(hops[i]),
            case.releases,
        )
        assert many.seconds[i] == alone.seconds
        assert [many.starts[x][i] for x in range(n)] == list(alone.starts)
        assert [many.ends[x][i] for x in range(n)] == list(alone.ends)


def test_axes_of_an_open_mesh_meet_in_the_replay(zb_h1: Any) -> None:
    slower = np.array([1.0, 2.0, 3.0])[:, None]
    hops = np.array([0.0, 0.5])
    times = Times([slower] * 4, [1.0] * 4, [1.0] * 4)
    found = plan(zb_h1, 4, 8.0).timeline(times, hops)
    assert found.seconds.shape == (3, 2)
    for (i, f), (j, hop) in itertools.product(enumerate(slower[:, 0]), enumerate(hops)):
        alone = plan(zb_h1, 4, 8.0).timeline(Times([f] * 4, [1.0] * 4, [1.0] * 4), hop)
        assert found.seconds[i, j] == alone.seconds


def test_blocks_of_candidates_join_without_a_seam(zb_h1: Any) -> None:
    slower = np.linspace(1.0, 2.0, 10_001)
    times = Times([slower] * 3, [1.0] * 3, [1.0] * 3)
    found = plan(zb_h1, 3, 5.0).timeline(times, 0.25)
    for i in (0, 4095, 4096, 8191, 8192, 10_000):
        f = float(slower[i])
        alone = plan(zb_h1, 3, 5.0).timeline(Times([f] * 3, [1.0] * 3, [1.0] * 3), 0.25)
        assert found.seconds[i] == alone.seconds


@given(case=cases(), both=st.booleans())
def test_no_pipeline_is_faster_than_its_busiest_device_or_its_bound(
    case: Any, both: bool, any_order: Any, any_pairs: Any
) -> None:
    found = plan((any_pairs if both else any_order)(case.seed), case.p, case.m, case.v)
    times = Times(case.F, case.B, case.W)
    least = lower_bound(found, times, case.hop)
    assert max(device_seconds(found, times)) <= least <= found.timeline(times, case.hop).seconds


def test_an_order_is_computed_once() -> None:
    asked: list[tuple[int, int, int]] = []

    def order(p: int, m: int, v: int) -> list[list[Op]]:
        asked.append((p, m, v))
        return [[Op("F", 0, 0), Op("BW", 0, 0)]]

    schedule = ListedSchedule("once", order)
    assert order_of(schedule, 1, 1, 1) is order_of(schedule, 1, 1, 1)
    assert asked == [(1, 1, 1)]
    other = ListedSchedule("once", order)
    assert order_of(other, 1, 1, 1) is not order_of(schedule, 1, 1, 1)


F, B, W, BW = (
    lambda j, x, kind=kind: Op(kind, j, x)  # type: ignore[misc]
    for kind in ("F", "B", "W", "BW")
)


@try_each(
    "lists, complaint",
    [
        ([[F(0, 0), BW(0, 0)]], "1 devices have a list of passes, but there are 2 devices"),
        ([[F(0, 0), BW(0, 0)], []], "device 1 has no passes"),
        (
            [[F(0, 0), BW(0, 0)], [F(0, 1)]],
            "BW of micro-batch 0 on stage 1 is missing from the order",
        ),
        (
            [[F(0, 0), B(0, 0)], [F(0, 1), BW(0, 1)]],
            "W of micro-batch 0 on stage 0 is missing from the order",
        ),
        (
            [[F(0, 0), BW(0, 0)], [F(1, 1), BW(1, 1)]],
            "device 1 lists F of micro-batch 1 on stage 1, which does not exist",
        ),
        (
            [[F(0, 0), BW(0, 0)], [F(0, 2), BW(0, 2)]],
            "device 1 lists F of micro-batch 0 on stage 2, which does not exist",
        ),
        (
            [[F(0, 0), BW(0, 0)], [F(0, 1), BW(0, 1), BW(0, 1)]],
            "BW of micro-batch 0 on stage 1 is listed twice",
        ),
        (
            [[F(0, 0), BW(0, 0)], [F(0, 1), BW(0, 1), B(0, 1), W(0, 1)]],
            "BW of micro-batch 0 on stage 1 and B are both listed",
        ),
        (
            [[F(0, 0), BW(0, 0)], [BW(0, 1), F(0, 1)]],
            "device 1 lists BW of micro-batch 0 on stage 1 without its F before it",
        ),
        (
            [[F(0, 0), W(0, 0), B(0, 0)], [F(0, 1), BW(0, 1)]],
            "device 0 lists W of micro-batch 0 on stage 0 without its B before it",
        ),
        (
            [[F(0, 0), BW(0, 0), BW(0, 1)], [F(0, 1)]],
            "device 0 lists BW of micro-batch 0 on stage 1 without its F before it",
        ),
        (
            [[F(0, 0), BW(0, 0)], [F(0, 0), BW(0, 0)]],
            "F of micro-batch 0 on stage 0 is listed twice",
        ),
        (
            [[F(0, 0), Op("X", 0, 0)], [F(0, 1)]],  # type: ignore[arg-type]
            "`X` is not a kind of pass; use F, B, W or BW",
        ),
    ],
)
def test_a_bad_order_is_refused_in_words(lists: Any, complaint: str) -> None:
    schedule = bad(lists)
    with pytest.raises(OrderError) as error:
        order_of(schedule, 2, 1, 1)
    assert str(error.value) == f"schedule `bad` at p = 2, m = 1, v = 1: {complaint}"


def test_a_stage_on_two_devices_is_refused() -> None:
    lists = [[F(0, 0), BW(0, 0), F(1, 1), BW(1, 1)], [F(1, 0), BW(1, 0), F(0, 1), BW(0, 1)]]
    schedule = bad(lists)
    with pytest.raises(OrderError, match="stage 0 is on devices 0 and 1"):
        order_of(schedule, 2, 2, 1)


def test_a_schedule_may_keep_two_copies_and_no_more() -> None:
    lists = [[F(0, 0), F(1, 1), BW(1, 1), BW(0, 0)], [F(1, 0), F(0, 1), BW(0, 1), BW(1, 0)]]
    schedule = ListedSchedule("good", lambda *_: lists, copies=2)
    order = order_of(schedule, 2, 2, 1)
    assert order.stage == (0, 1, 0, 1)
    assert order.device == (0, 1, 1, 0)
    assert order.held == ((0, 3), (2, 1))
    assert order.runs == [1, 1, 1, 1]


def test_a_micro_batch_stays_on_the_device_where_it_began() -> None:
    lists = [[F(0, 0), F(0, 1), BW(0, 1)], [BW(0, 0)]]
    schedule = ListedSchedule("bad", lambda *_: lists, copies=2)
    with pytest.raises(OrderError, match="without its F before it"):
        order_of(schedule, 2, 1, 1)


@pytest.mark.parametrize(
    "pair, complaint",
    [
        (Pair(F(0, 0), F(1, 0)), "a pair must combine one F and one BW, not F and F"),
        (Pair(F(0, 0), BW(0, 0)), "device 0 lists BW of micro-batch 0 on stage 0 without its F"),
    ],
)
def test_a_bad_pair_is_refused_in_words(pair: Any, complaint: str) -> None:
    with pytest.raises(OrderError, match=complaint):
        order_of(bad([[pair]]), 1, 2, 1)


def test_a_deadlock_says_who_waits_for_what() -> None:
    lists = [
        [F(0, 0), BW(0, 0), F(1, 0), BW(1, 0)],
        [F(0, 1), F(1, 1), BW(0, 1), BW(1, 1)],
    ]
    schedule = bad(lists)
    with pytest.raises(OrderError) as error:
        order_of(schedule, 2, 2, 1)
    assert str(error.value) == (
        "schedule `bad` at p = 2, m = 2, v = 1: the order deadlocks: "
        "device 0 is blocked at BW of micro-batch 0 on stage 0, waiting for B of micro-batch 0 on stage 1; "
        "device 1 is blocked at F of micro-batch 1 on stage 1, waiting for F of micro-batch 1 on stage 0"
    )


def test_chunks_of_one_device_in_the_wrong_order_deadlock() -> None:
    lists = [[F(0, 1), F(0, 0), BW(0, 1), BW(0, 0)]]
    schedule = bad(lists)
    with pytest.raises(
        OrderError, match="device 0 is blocked at F of micro-batch 0 on stage 1, waiting"
    ):
        order_of(schedule, 1, 1, 2)


def test_an_op_that_is_none_is_refused() -> None:
    with pytest.raises(OrderError, match="schedule `bad` at p = 1, m = 1, v = 1: '<=' not"):
        order_of(bad([[("F", [0], 0)]]), 1, 1, 1)
    with pytest.raises(OrderError, match="`order` raised TypeError"):
        order_of(bad([["F"], [3]]), 2, 1, 1)


def test_an_order_that_raises_is_named() -> None:
    def order(*_: int) -> list[list[Op]]:
        raise ZeroDivisionError("oops")

    schedule = ListedSchedule("bad", order)
    with pytest.raises(OrderError, match="`order` raised ZeroDivisionError: oops"):
        order_of(schedule, 2, 1, 1)


@try_each(
    "p, m, v, why",
    [
        (
            4,
            8.5,
            1,
            "`gpipe` does not run with 4 stages, 8.5 micro-batches and chunks = 1: the number of micro-batches must be a whole number above zero",
        ),
        (
            4,
            0.0,
            1,
            "`gpipe` does not run with 4 stages, 0 micro-batches and chunks = 1: the number of micro-batches must be a whole number above zero",
        ),
        (
            4,
            8.0,
            2,
            "`gpipe` does not run with 4 stages, 8 micro-batches and chunks = 2: it has one model chunk per device: chunks = 1",
        ),
        (
            64,
            1e6,
            1,
            "`gpipe` does not run with 64 stages, 1e+06 micro-batches and chunks = 1: 64,000,000 passes exceed the limit of the simulation, 262,144",
        ),
    ],
)
def test_a_schedule_that_does_not_exist_there_says_why(
    p: int, m: float, v: int, why: str, gpipe: Any
) -> None:
    with pytest.raises(SpecError) as error:
        plan(gpipe, p, m, v)
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.message == why


@given(case=cases(), kind=st.sampled_from(["one_f_one_b", "interleaved", "zb_h2", "zb_v"]))
def test_many_micro_batches_are_replayed_in_rounds_as_a_simulator_says(
    case: Any, kind: str, shipped: Any, simulate: Any
) -> None:
    schedule, p = shipped[kind], max(case.p, 2)
    v = {"interleaved": 3, "zb_v": 2}.get(kind, 1)
    m = 12 * p
    F, B, W = ([row[x % len(row)] for x in range(p * v)] for row in (case.F, case.B, case.W))
    cut = plan(schedule, p, m, v)
    assert cut.orders[0][1].repeats
    releases = [case.releases[x % len(case.releases)] for x in range(p * v)]
    expected = simulate(
        schedule.order(p, m, v), {"F": F, "B": B, "W": W}, case.hop, by_copy(cut, releases)
    )
    expect(cut.timeline(Times(F, B, W), case.hop, releases), cut, expected)


def test_a_period_that_is_no_number_of_micro_batches_names_the_schedule() -> None:
    class Odd(ListedSchedule):
        def period(self, *_: int) -> Any:
            return 0.5

    with pytest.raises(OrderError, match=r"`period` of schedule `odd` returns 0\.5"):
        plan(Odd("odd", lambda *_: []), 1, 1)
