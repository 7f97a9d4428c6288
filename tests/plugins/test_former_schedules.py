"""Schedules of plugins for version 2 of the contract run as they did."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Case, Op, PipelineShape, PluginError, Real, Schedule, Times, hookimpl
from parcost.plugins.discovery import Plugins, load
from parcost.search.best_first import SearchRequest, search
from parcost.search.result import SearchResult
from parcost.search.space import space

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, pp = 4, zero = 1 }
schedule { kind = KIND }
training { sequence = 4096, global_batch = 32 sequences }
"""


class Former(Schedule):
    """GPipe as a plugin for version 2 has it: it loops over the stages of one pipeline."""

    name = "former"

    def limits(self, shape: PipelineShape) -> str | None:
        return None if shape.chunks == 1 else "one chunk"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        each = range(micro_batches)
        return [[Op(kind, j, s) for kind in ("F", "BW") for j in each] for s in range(stages)]  # type: ignore[arg-type]

    def closed_form(self, case: Any) -> tuple[Real, bool]:
        return self.arrive(case, case.times.F) + self.arrive(case, self.backward(case)), True

    def lower_bound(self, case: Any) -> Real:
        return sum(case.times.F) + sum(self.backward(case))

    def spans(self, case: Any) -> tuple[Sequence[Real], Sequence[Real]]:
        forward, backward = case.times.F, self.backward(case)
        starts = [0.0, *accumulate(f + hop for f, hop in zip(forward, case.hops, strict=False))]
        turn = self.arrive(case, forward)
        every = range(case.virtual_stages)
        return starts, [turn + self.arrive(case, backward[s:]) for s in every]

    def backward(self, case: Any) -> list[Real]:
        return [b + w for b, w in zip(case.times.B, case.times.W, strict=True)]

    def arrive(self, case: Any, stages: Sequence[Real]) -> Real:
        slowest = stages[0]
        for time in stages[1:]:
            slowest = np.maximum(slowest, time)
        return sum(stages) + (len(stages) - 1) * case.hop + (case.micro_batches - 1) * slowest


def plugins(version: int | None = 2) -> Plugins:
    module = ModuleType("old")
    schedule = Former()

    @hookimpl
    def schedules() -> list[Schedule]:
        return [schedule]

    vars(module).update(schedules=schedules)
    if version is not None:
        vars(module).update(PARCOST_API=version)
    return load(("old", module))


def evaluate(kind: str, of: Plugins) -> tuple[float, float]:
    (scenario,) = parcost.load_text(TEXT.replace("KIND", kind), plugins=of)
    result = scenario.evaluate().result
    return result.figure("step_time"), result.figure("memory")


def run_search(kind: str, of: Plugins) -> SearchResult:
    (scenario,) = parcost.load_text(TEXT.replace("KIND", kind), plugins=of)
    axes = {"layout.pp": [1, 2, 4], "layout.tp": [1, 2], "layout.zero": [0, 1]}
    return search(space(scenario, axes, list(axes)), SearchRequest(keep=9, budget_seconds=1e9))


def test_a_study_takes_as_long_as_by_the_same_schedule_of_this_version() -> None:
    found = plugins()
    assert found.broken == ()
    assert evaluate("former", found) == pytest.approx(evaluate("gpipe", found), rel=1e-12)


@pytest.mark.slow
def test_so_does_a_search() -> None:
    found = plugins()
    old, new = run_search("former", found), run_search("gpipe", found)
    assert old.proven
    assert [x.values for x in old.best] == [x.values for x in new.best]
    assert [x.seconds for x in old.best] == pytest.approx([x.seconds for x in new.best], rel=1e-12)


def test_runs_are_expanded_to_stages() -> None:
    ours = load().offers("schedules")["gpipe"][1]
    adapted = plugins().offers("schedules")["former"][1]
    for F, hop in product(product((2.0, 7.0), repeat=3), (0.0, 1.0)):
        times = Times(list(F), [1.0, 3.0, 3.0], [0.0, 0.0, 2.0])
        alike = [0, int(F[0] != F[1]), 2]
        for rows in ((), alike) if F[0] == F[1] else ((),):
            case = Case.from_times(times, stages=3, micro_batches=5, hop=hop, alike=rows)
            assert adapted.closed_form(case) == ours.closed_form(case)
            assert list(map(list, adapted.spans(case))) == list(map(list, ours.spans(case)))


@pytest.mark.slow
def test_there_is_no_answer_where_version_2_had_no_such_case() -> None:
    adapted = plugins().offers("schedules")["former"][1]
    pairs = Times([1.0, 1.0], [1.0, 1.0], [1.0, 1.0], {(0, 1): 2.0})
    several = Case(
        stages=np.array([2.0, 4.0]),
        micro_batches=8,
        F=(1.0, 1.0),
        B=(1.0, 1.0),
        W=(1.0, 1.0),
        counts=(np.array([1.0, 3.0]), 1),
    )
    for case in (Case.from_times(pairs, stages=2, micro_batches=4), several):
        assert adapted.closed_form(case) is None
        assert adapted.lower_bound(case) is None
        assert adapted.spans(case) is None


def test_a_plugin_that_requires_no_version_is_warned_of_the_change() -> None:
    with pytest.raises(PluginError, match=r"a case has no `times` in version 3 .*PARCOST_API = 2"):
        evaluate("former", plugins(None))
