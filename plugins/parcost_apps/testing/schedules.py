"""The contract of a pipeline schedule: its order is valid, and closed forms and bounds agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from typing import Any, ClassVar

import numpy as np
import pytest

from parcost.contract.pipelines import Case, Op, Pair, PipelineShape, Times
from parcost.contract.study import Schedule
from parcost.engine.orders import order_of, short_order
from parcost.engine.replay import run
from parcost.numeric import Real
from parcost_apps.testing.simulator import Simulation, ops_of, simulate

_ROUNDING = 1e-9
_SMALL = 60  # passes in each direction of a pipeline that is compared at many sizes
#: F, B and W of a stage: alike, each the longest, each the shortest, none of W.
_PASSES = ((1.0, 1.0, 1.0), (4.0, 2.0, 1.0), (2.0, 3.0, 1.0), (1.0, 2.0, 5.0), (1.0, 2.0, 0.0))
_HOPS = (0.0, 1.0, 7.0)


class ScheduleContract:
    """Tests of one schedule, on small pipelines against a simulator of its order.

    *schedule* is the object that the hook returns. *shapes* are the stages, micro-batches and
    chunks to try; those that ``limits`` rejects are skipped.
    """

    schedule: ClassVar[Schedule]
    shapes: ClassVar[Sequence[tuple[int, int, int]]] = tuple(
        product(range(1, 6), range(1, 13), range(1, 4))
    )

    def legal(self) -> Iterator[tuple[int, int, int]]:
        """Yield the stages, micro-batches and chunks that the schedule runs with."""
        for p, m, v in self.shapes:
            if self.schedule.limits(PipelineShape(stages=p, micro_batches=m, chunks=v)) is None:
                yield p, m, v

    def test_it_has_a_name_that_a_spec_can_write(self) -> None:
        """The name is an identifier that a spec can write."""
        assert self.schedule.name.isidentifier()

    def test_limits_are_sentences(self) -> None:
        """A shape that the schedule rejects has a reason; some shape is valid."""
        assert any(True for _ in self.legal()), "no shape is legal: limits rejects all of them"
        for p, m, v in self.shapes:
            reason = self.schedule.limits(PipelineShape(stages=p, micro_batches=m, chunks=v))
            assert reason is None or reason.strip(), f"no reason for {p}, {m}, {v}"

    def test_every_pass_is_in_the_order_once_and_nothing_deadlocks(self) -> None:
        """Each virtual stage runs F and B and W of each micro-batch once, on one device."""
        for p, m, v in self.legal():
            lists = self.schedule.order(p, m, v)
            assert len(lists) == p, f"{p} stages take {p} lists, not {len(lists)}"
            done: list[tuple[str, int, int]] = []
            for entries in lists:
                for op in _all_ops(entries):
                    kinds = "BW" if op.kind == "BW" else op.kind
                    done += [(kind, op.micro_batch, op.stage) for kind in kinds]
            due = sorted(product("BFW", range(m), range(p * v)))
            assert sorted(done) == due, f"{p} stages, {m} micro-batches, {v} chunks"
            order_of(self.schedule, p, m, v)

    def test_a_closed_form_is_the_time_of_the_order(self) -> None:
        """The closed form and spans equal a simulation of the order wherever the mask holds."""
        for case, times, lists in self._cases():
            form = self.schedule.closed_form(case)
            if form is None or not bool(np.all(form[1])):
                continue
            found = _simulate(case, times, lists)
            assert form[0] == pytest.approx(found.seconds, rel=_ROUNDING), case
            spans = self.schedule.spans(case)
            if spans is not None and self.schedule.copies == 1:
                starts, ends = ({x: at for (x, _), at in of.items()} for of in _spans(found))
                first = list(accumulate(case.counts, initial=0))[:-1]  # stages of runs
                assert list(spans[0]) == pytest.approx([starts[x] for x in first]), case
                assert list(spans[1]) == pytest.approx([ends[x] for x in first]), case

    def test_an_order_that_repeats_itself_is_replayed_in_rounds(self) -> None:
        """With a period, the order of many micro-batches repeats rounds of the order of few."""
        for p, m, v in self.legal():
            if m * p * v > _SMALL or (every := self.schedule.period(p, v)) is None:
                continue
            many = m + 4 * every * (p + 1)
            whole, short = (of(self.schedule, p, many, v) for of in (order_of, short_order))
            at = f"{p} stages, {many} micro-batches, {v} chunks"
            for name in (
                "held",
                "runs",
                "split",
                "alive",
                "peaks",
                "first",
                "last",
                "sent",
            ):
                assert list(getattr(short, name)) == list(getattr(whole, name)), f"{name}: {at}"
            for slow, hop in product((None, 0, -1), _HOPS):
                times = _times(p * v, (2.0, 3.0, 1.0), slow)
                found = (run(order, times, hop, [0.0] * p * v) for order in (whole, short))
                one, other = ([each.seconds, *each.starts, *each.ends] for each in found)
                assert one == pytest.approx(other, rel=_ROUNDING), at

    def test_a_lower_bound_is_never_above_the_time(self) -> None:
        """The lower bound is at most the simulated time: a search relies on it."""
        for case, times, lists in self._cases():
            bound = self.schedule.lower_bound(case)
            if bound is not None:
                assert bound <= _simulate(case, times, lists).seconds * (1 + _ROUNDING), case

    def test_arrays_are_their_numbers(self) -> None:
        """Closed form, mask and bound for an array of hop times equal those for each single hop
        time.
        """
        hops = np.array(_HOPS)
        for p, m, v in self.legal():
            times = _times(p * v, (2.0, 3.0, 1.0))
            self._compare(_case(p, m, v, times, hops), [_case(p, m, v, times, h) for h in _HOPS])

    def test_arrays_of_shapes_are_their_shapes(self) -> None:
        """Closed form, mask, bound and spans for many shapes equal those for each single shape."""
        for passes, hop, slow in product(_PASSES, _HOPS, (None, 0, -1)):
            each = []
            for p, m, v in self.legal():
                n = p * v
                alike = [0, *[1] * (n - 2), 2][-n:]  # the first, those between, and the last
                each.append(_case(p, m, v, _times(n, passes, slow), hop, alike))
            self._compare(_merge_cases(each), each)

    def _compare(self, every: Case, each: Sequence[Case]) -> None:
        """Compare the results for several pipelines in one call with those for each single
        pipeline.
        """
        form, bound = self.schedule.closed_form(every), self.schedule.lower_bound(every)
        spans = None if form is None else self.schedule.spans(every)
        for i, one in enumerate(each):

            def pick(value: Any, i: int = i) -> Any:
                return np.broadcast_to(value, len(each))[i]

            if bound is not None:
                single = self.schedule.lower_bound(one)
                assert pick(bound) == pytest.approx(single, rel=_ROUNDING), one
            alone = self.schedule.closed_form(one)
            assert (form is None) == (alone is None)
            if form is None or alone is None:
                continue
            assert bool(pick(form[1])) == bool(alone[1]), one
            if not alone[1]:
                continue
            assert pick(form[0]) == pytest.approx(alone[0], rel=_ROUNDING), one
            own = self.schedule.spans(one)
            assert (spans is None) == (own is None)
            for rows, row in zip(spans or (), own or (), strict=True):
                there = [pick(x) for x, n in zip(rows, every.counts, strict=True) if pick(n)]
                assert there == pytest.approx(row, rel=_ROUNDING), one

    def test_more_micro_batches_keep_what_a_search_assumes(self) -> None:
        """With more micro-batches, devices keep their stages and hold no fewer micro-batches."""
        by_shape: dict[tuple[int, int], list[tuple[int, Any]]] = {}
        for p, m, v in self.legal():
            if m > 2 * p:
                order = order_of(self.schedule, p, m, v)
                by_shape.setdefault((p, v), []).append((m, order))
        for (p, v), orders in by_shape.items():
            for (few, before), (many, after) in pairwise(orders):
                at = f"{p} stages, {v} chunks, {few} and {many} micro-batches"
                assert before.held == after.held, at
                assert (before.first, before.last) == (after.first, after.last), at
                assert all(a <= b for a, b in zip(before.alive, after.alive, strict=True)), at

    def test_frameworks_have_a_source(self) -> None:
        """A framework that has the schedule is named with a file or a page."""
        for framework, source in self.schedule.frameworks.items():
            assert source.strip(), f"{framework} has no source"

    def _cases(self) -> Iterator[tuple[Case, Times, Sequence[Sequence[Op | Pair]]]]:
        for p, m, v in self.legal():
            lists = self.schedule.order(p, m, v)
            for passes, hop in product(_PASSES, _HOPS):
                times = _times(p * v, passes)
                yield _case(p, m, v, times, hop), times, lists
            for slow in (0, -1) if p * v > 1 else ():  # one stage that differs
                times = _times(p * v, (2.0, 3.0, 1.0), slow)
                yield _case(p, m, v, times, 1.0), times, lists


def _all_ops(entries: Sequence[Op | Pair]) -> Iterator[Op]:
    for entry in entries:
        yield from ops_of(entry)


def _times(stages: int, passes: Sequence[float], slow: int | None = None) -> Times:
    F, B, W = ([seconds] * stages for seconds in passes)
    if slow is not None:
        F[slow], B[slow] = 2 * F[slow], 2 * B[slow]
    return Times(F, B, W)


def _case(p: int, m: int, v: int, times: Times, hop: Any, alike: Sequence[int] = ()) -> Case:
    return Case.from_times(times, stages=p, micro_batches=m, chunks=v, hop=hop, alike=alike)


def _merge_cases(cases: Sequence[Case]) -> Case:
    """Return cases of at most three runs merged into one."""
    rows: dict[str, list[list[Real]]] = {name: [] for name in ("F", "B", "W", "counts")}
    for case in cases:
        lacking, place = 3 - len(case.counts), min(len(case.counts) - 1, 1)
        for name, found in rows.items():
            row = list(getattr(case, name))
            row[place:place] = [0 if name == "counts" else row[0]] * lacking
            found.append(row)
    columns: dict[str, Any] = {
        name: list(map(np.array, zip(*found, strict=True))) for name, found in rows.items()
    }
    cut: dict[str, Any] = {
        name: np.array([getattr(case, name) for case in cases])
        for name in ("stages", "micro_batches", "chunks", "hop")
    }
    return Case(**cut, **columns)


def _simulate(case: Case, times: Times, lists: Sequence[Sequence[Op | Pair]]) -> Simulation:
    return simulate(lists, {"F": times.F, "B": times.B, "W": times.W}, case.hop)


def _spans(found: Simulation) -> tuple[Any, Any]:
    return found.starts, found.ends
