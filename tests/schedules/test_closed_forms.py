"""Closed forms of schedules against the replay: what they give, and where they say they hold."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest

from parcost import Case, PipelineShape
from parcost.contract.pipelines import Times
from parcost.engine.orders import order_of
from parcost.engine.replay import Timeline, run
from parcost.plugins.discovery import load
from parcost_plugins.schedules.interleaved import Interleaved

from ..rows import try_each

SHIPPED = {name: schedule for name, (_, schedule) in load().offers("schedules").items()}
GROUPS = {f"interleaved_{group}": Interleaved(group) for group in (6, 9)}
#: F, B and W: in every order of size, some alike, some twice as long, some nothing.
PASSES = [
    (2, 3, 1), (3, 2, 1), (1, 4, 6), (4, 1, 0), (5, 2, 4), (2, 2, 2), (4, 4, 2), (2, 1, 1),
    (2, 4, 0), (3, 4, 1),
]  # fmt: skip


def case_of(times: Times, hop: Any, p: int, m: Any, v: int) -> Case:
    return Case.from_times(times, stages=p, micro_batches=m, chunks=v, hop=hop)


def shape_of(p: int, m: int, v: int) -> PipelineShape:
    return PipelineShape(stages=p, micro_batches=m, chunks=v)


@cache
def order(name: str, p: int, m: int, v: int) -> Any:
    schedule = {**SHIPPED, **GROUPS}[name]
    assert schedule.limits(shape_of(p, m, v)) is None
    return order_of(schedule, p, m, v)


def replay(name: str, p: int, m: int, v: int, times: Times, hop: Any) -> Timeline:
    """Run the order of the schedule op by op."""
    found = order(name, p, m, v)
    return run(found, times, hop, [0] * len(found.device))


def closed(name: str, p: int, m: int, v: int, times: Times, hop: Any) -> tuple[Any, bool]:
    seconds, mask = {**SHIPPED, **GROUPS}[name].closed_form(case_of(times, hop, p, m, v))
    return seconds, bool(mask)


def uniform_times(n: int, f: Any, b: Any, w: Any) -> Times:
    return Times([f] * n, [b] * n, [w] * n)


@try_each("hop", [0, 1, 2, 3, 9])
@try_each(
    "p, m, v",
    [(2, 5, 2), (3, 3, 2), (3, 7, 2), (4, 3, 2), (2, 1, 1), (3, 2, 1), (3, 6, 1), (4, 9, 1)],
)
def test_some_closed_forms_hold_exactly_where_the_replay_agrees(
    p: int, m: int, v: int, hop: int
) -> None:
    for name in ("gpipe", "one_f_one_b") if v == 1 else ("breadth_first",):
        for passes in PASSES:
            times = uniform_times(p * v, *passes)
            seconds, holds = closed(name, p, m, v, times, hop)
            assert holds is (seconds == replay(name, p, m, v, times, hop).seconds), (name, passes)


#: Schedule, p, m, v, the longest hop for which the form holds by F, B and W; None for none.
EDGES: list[tuple[str, int, int, int, dict[tuple[Any, ...], int | None]]] = [
    # a message is no longer than the shorter pass, and one device has no neighbour
    ("interleaved", 4, 8, 2, {(4, 2, 1): 3, (2, 3, 1): 2, (1, 4, 6): 1, (4, 1, 0): 1}),
    ("interleaved", 1, 3, 2, {(4, 2, 1): 3}),
    ("interleaved", 2, 4, 2, {(4, 2, 1): 3}),
    # (g - p) / p of the shorter pass, and no more than half of both: a round trip fits in
    ("interleaved_6", 4, 12, 2, {(4, 4, 0): 2, (8, 4, 2): 3, (4, 12, 0): 2}),
    ("interleaved_9", 4, 18, 2, {(4, 4, 0): 4, (4, 1, 3): 4, (8, 4, 0): 5, (4, 12, 0): 5}),
    ("interleaved_6", 4, 6, 2, {(4, 4, 0): 0}),  # one group alone has nothing to do meanwhile
    # a step of 2 p micro-batches; W the shortest, and no shorter than there and back
    ("zb_h1", 3, 6, 1, {(4, 4, 2): 1, (4, 4, 1): 0, (2, 4, 2): 1, (2, 4, 3): 0, (4, 2, 2): 1,
                        (4, 2, 3): 0, (1, 4, 6): 0, (4, 4, 0): 0, (9, 7, 6): 3, (7, 9, 6): 3}),
    ("zb_h1", 3, 5, 1, {(4, 4, 2): None, (3, 5, 1): None}),
    ("zb_h2", 3, 6, 1, {(3, 4, 1): 0, (4, 2, 3): 0, (1, 4, 6): 0, (4, 4, 2): 0}),
    ("zb_h2", 3, 5, 1, {(3, 4, 1): None}),
    ("zb_v", 3, 5, 2, {(2, 2, 2): 0, (2, 2, 1): None, (1, 2, 2): None, (2, 1, 2): None}),
    ("zb_v", 3, 4, 2, {(2, 2, 2): None}),
    # one unit with a backward pass that is no shorter, or any number with passes alike
    ("chimera", 4, 4, 1, {(2, 3, 1): 0, (2, 2, 0): 0, (2, 1, 1): 0, (4, 2, 1): None}),
    ("chimera", 4, 8, 1, {(2, 3, 1): None, (2, 1, 1): 0, (4, 2, 1): None, (3, 3, 0): 0}),
    # B as long as F, W as long or half as long
    ("dualpipe", 4, 8, 1, {(2, 2, 2): 0, (2, 2, 1): 0, (2, 2, 4): None, (2, 3, 2): None,
                           (2, 3, 1): None, (3, 2, 3): None}),
    ("dualpipe", 6, 14, 1, {(2, 2, 2): 0, (4, 4, 2): 0}),
    ("dualpipe_v", 3, 7, 2, {(2, 2, 2): 0, (2, 2, 1): 0, (2, 2, 4): None, (2, 3, 2): None,
                             (2, 3, 1): None, (3, 2, 3): None}),
    ("dualpipe_v", 2, 4, 2, {(2, 2, 2): 0, (4, 4, 2): 0}),
]  # fmt: skip


@try_each("name, p, m, v, longest", EDGES)
def test_a_closed_form_holds_up_to_its_longest_hop(
    name: str, p: int, m: int, v: int, longest: dict[tuple[Any, ...], int | None]
) -> None:
    for passes, most in longest.items():
        times = uniform_times(p * v, *passes)
        for hop in range(8):
            seconds, holds = closed(name, p, m, v, times, hop)
            assert holds is (most is not None and hop <= most), (passes, hop)
            assert not holds or seconds == replay(name, p, m, v, times, hop).seconds, (passes, hop)


@try_each(
    "name, p, m, v, backward",
    [
        ("breadth_first", 3, 6, 2, "whole"),
        ("interleaved", 3, 6, 2, "whole"),
        ("chimera", 4, 4, 1, "whole"),
        ("dualpipe", 4, 8, 1, "split"),
        ("dualpipe_v", 2, 4, 2, "split"),
        ("zb_h1", 3, 6, 1, "split"),
        ("zb_h2", 3, 6, 1, "split"),
        ("zb_v", 3, 5, 2, "split"),
    ],
)
def test_a_closed_form_of_equal_stages_holds_for_no_others(
    name: str, p: int, m: int, v: int, backward: str
) -> None:
    n = p * v
    assert closed(name, p, m, v, uniform_times(n, 2, 2, 2), 0)[1]
    for kind, stage in product("FBW", range(n)):
        times = uniform_times(n, 2, 2, 2)
        getattr(times, kind)[stage] = 3
        assert not closed(name, p, m, v, times, 0)[1], (kind, stage)
    times = uniform_times(n, 2, 2, 2)
    times.B[1], times.W[1] = 1, 3
    assert closed(name, p, m, v, times, 0)[1] is (backward == "whole")


@pytest.mark.parametrize("name, p, m, v", [("dualpipe", 4, 8, 1), ("dualpipe_v", 2, 4, 2)])
def test_a_closed_form_of_pairs_holds_where_they_save_nothing(
    name: str, p: int, m: int, v: int
) -> None:
    last = p * v - 1
    for seconds, holds in ((6, True), (5, False)):
        pairs = {(x, last - x): seconds for x in range(last + 1)}
        times = uniform_times(p * v, 2, 2, 2)._replace(FB=pairs)
        assert closed(name, p, m, v, times, 0)[1] is holds
    for one in range(last + 1):
        times = uniform_times(p * v, 2, 2, 2)._replace(FB={(one, last - one): 5})
        assert not closed(name, p, m, v, times, 0)[1]


# --- 1F1B and GPipe on stages that differ ---------------------------------------------------


@try_each("name", ["gpipe", "one_f_one_b"])
@try_each("m", [1, 2, 3, 5])
def test_stages_that_differ_start_and_end_when_the_replay_says(name: str, m: int) -> None:
    met = 0
    for F, B, hop in product(product((2, 7), repeat=3), product((1, 3), repeat=3), (0, 1)):
        times = Times(list(F), list(B), [2, 1, 4])
        seconds, holds = closed(name, 3, m, 1, times, hop)
        if holds:
            met += 1
            found = replay(name, 3, m, 1, times, hop)
            starts, ends = SHIPPED[name].spans(case_of(times, hop, 3, m, 1))
            assert (seconds, list(starts), list(ends)) == (found.seconds, found.starts, found.ends)
    assert met == 128 if name == "gpipe" else 0 < met < 128


@try_each(
    "F, B, longest",
    [
        ([10, 10, 10, 12], [20, 20, 20, 24], 3),  # 6 s more than any other: there and back of 3
        ([10, 10, 10, 10], [20, 20, 20, 24], 2),
        ([10, 14, 10, 12], [20, 20, 20, 24], 1),  # the second is 2 s shorter
        ([30, 10, 10, 30], [0, 20, 20, 20], 10),  # a forward pass as long as both of a stage
        ([31, 10, 10, 30], [0, 20, 20, 20], None),
        ([10, 10, 10, 31], [20, 20, 20, 20], None),
        ([12, 10, 10, 10], [24, 20, 20, 20], None),
    ],
)
def test_the_last_stage_sets_the_pace_up_to_a_longest_hop(
    F: list[int], B: list[int], longest: int | None
) -> None:
    times = Times(F, B, [0] * 4)
    for hop in range(13):
        seconds, holds = closed("one_f_one_b", 4, 9, 1, times, hop)
        assert holds is (longest is not None and hop <= longest), hop
        if holds:
            assert seconds == sum(F) + sum(B) + 8 * (F[-1] + B[-1]) + 6 * hop
            assert seconds == replay("one_f_one_b", 4, 9, 1, times, hop).seconds


@try_each("slow", range(4))
@try_each("passes", [(3, 5), (5, 3), (1, 8), (12, 1)])
@try_each("m", [1, 3, 4, 5, 9])
def test_the_bound_of_1f1b_is_met_by_one_slow_stage_of_a_full_pipeline(
    m: int, passes: tuple[int, int], slow: int
) -> None:
    F, B, W = [3] * 4, [4] * 4, [1] * 4
    F[slow], B[slow] = 3 * passes[0], 4 * passes[1]
    found = replay("one_f_one_b", 4, m, 1, Times(F, B, W), 0).seconds
    bound = SHIPPED["one_f_one_b"].lower_bound(case_of(Times(F, B, W), 0, 4, m, 1))
    assert bound <= found
    assert m < 4 or bound == found


def test_stages_without_all_of_their_passes_are_no_case() -> None:
    whole = [2.0] * 4
    for times in (Times(whole, whole, whole[:-1]), Times([*whole, 1.0], whole, whole)):
        with pytest.raises(ValueError, match="zip"):
            case_of(times, 0.0, 4, 5, 1)
    with pytest.raises(ValueError, match="4 times were given for 6 virtual stages"):
        case_of(Times(whole, whole, whole), 0.0, 3, 5, 2)
