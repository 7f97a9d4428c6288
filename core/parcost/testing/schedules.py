"""The contract of a pipeline schedule: its order runs, and what it adds agrees with the order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, ClassVar

import numpy as np
import pytest

from parcost.contract.pipelines import Case, Op, Pair, PipelineShape, Times
from parcost.contract.study import Schedule
from parcost.engine.orders import order_of
from parcost.testing.simulator import Simulation, ops_of, simulate

_ROUNDING = 1e-9
#: F, B and W of a stage: alike, each the longest, each the shortest, none of W.
_PASSES = ((1.0, 1.0, 1.0), (4.0, 2.0, 1.0), (2.0, 3.0, 1.0), (1.0, 2.0, 5.0), (1.0, 2.0, 0.0))
_HOPS = (0.0, 1.0, 7.0)


class ScheduleContract:
    """Tests of one schedule, on small pipelines against a simulator of its order.

    *schedule* is the object that the hook offers. *shapes* are the stages, micro-batches and
    chunks that are tried; those that ``limits`` rejects are left out.
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
        """A spec picks it by an identifier."""
        assert self.schedule.name.isidentifier()

    def test_limits_are_sentences(self) -> None:
        """A shape without the schedule has a reason; some shape has the schedule."""
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
        """Wherever its mask holds, it equals a simulation of the order, spans included."""
        for case, lists in self._cases():
            form = self.schedule.closed_form(case)
            if form is None or not bool(np.all(form[1])):
                continue
            found = _simulate(case, lists)
            assert form[0] == pytest.approx(found.seconds, rel=_ROUNDING), case
            spans = self.schedule.spans(case)
            if spans is not None and self.schedule.copies == 1:
                starts, ends = ({x: at for (x, _), at in of.items()} for of in _spans(found))
                stages = range(case.virtual_stages)
                assert list(spans[0]) == pytest.approx([starts[x] for x in stages]), case
                assert list(spans[1]) == pytest.approx([ends[x] for x in stages]), case

    def test_a_lower_bound_is_never_above_the_time(self) -> None:
        """A search would miss the best layout by a bound that is too high."""
        for case, lists in self._cases():
            bound = self.schedule.lower_bound(case)
            if bound is not None:
                assert bound <= _simulate(case, lists).seconds * (1 + _ROUNDING), case

    def test_arrays_are_their_numbers(self) -> None:
        """Closed form, mask and bound of an array of hops are those of each hop."""
        hops = np.array(_HOPS)
        for p, m, v in self.legal():
            every = _case(p, m, v, (2.0, 3.0, 1.0), hops)
            each = [_case(p, m, v, (2.0, 3.0, 1.0), hop) for hop in _HOPS]
            form = self.schedule.closed_form(every)
            for i, one in enumerate(each):
                single = self.schedule.closed_form(one)
                assert (form is None) == (single is None)
                if form is not None and single is not None:
                    holds = np.broadcast_to(form[1], hops.shape)[i]
                    assert bool(holds) == bool(single[1]), one
                    if holds:
                        seconds = np.broadcast_to(form[0], hops.shape)[i]
                        assert seconds == pytest.approx(single[0], rel=_ROUNDING)
            bound = self.schedule.lower_bound(every)
            for i, one in enumerate(each):
                if bound is not None:
                    found = np.broadcast_to(bound, hops.shape)[i]
                    assert found == pytest.approx(self.schedule.lower_bound(one), rel=_ROUNDING)

    def test_more_micro_batches_keep_what_a_search_assumes(self) -> None:
        """Devices hold the same stages, begin and end with the same, and hold no fewer."""
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

    def _cases(self) -> Iterator[tuple[Case, Sequence[Sequence[Op | Pair]]]]:
        for p, m, v in self.legal():
            lists = self.schedule.order(p, m, v)
            for passes, hop in product(_PASSES, _HOPS):
                yield _case(p, m, v, passes, hop), lists
            if p * v > 1:  # one stage that differs
                yield _case(p, m, v, (2.0, 3.0, 1.0), 1.0, slow=p * v - 1), lists
                yield _case(p, m, v, (2.0, 3.0, 1.0), 1.0, slow=0), lists


def _all_ops(entries: Sequence[Op | Pair]) -> Iterator[Op]:
    for entry in entries:
        yield from ops_of(entry)


def _case(
    p: int, m: int, v: int, passes: Sequence[float], hop: Any, slow: int | None = None
) -> Case:
    F, B, W = ([seconds] * (p * v) for seconds in passes)
    if slow is not None:
        F[slow], B[slow] = 2 * F[slow], 2 * B[slow]
    return Case(stages=p, micro_batches=m, chunks=v, times=Times(F, B, W), hop=hop)


def _simulate(case: Case, lists: Sequence[Sequence[Op | Pair]]) -> Simulation:
    times = {"F": case.times.F, "B": case.times.B, "W": case.times.W}
    return simulate(lists, times, case.hop)


def _spans(found: Simulation) -> tuple[Any, Any]:
    return found.starts, found.ends
