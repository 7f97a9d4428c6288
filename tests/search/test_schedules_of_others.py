"""A schedule that says of itself what is no number is named, and hides no layout."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Case, Op, PluginError, Schedule, hookimpl
from parcost.plugins.discovery import Plugins, load
from parcost.search.best_first import SearchRequest, search
from parcost.search.result import SearchResult
from parcost.search.space import space

pytestmark = pytest.mark.slow

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, pp = 2, zero = 1 }
schedule { kind = plain }
training { sequence = 4096, global_batch = 32 sequences }
"""
AXES: dict[str, list[Any]] = {"layout.tp": [1, 2, 4, 8], "layout.zero": [0, 1]}
NAN = float("nan")


class PlainSchedule(Schedule):
    """All forward passes, and then all backward passes."""

    name = "plain"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:
        each = range(micro_batches)
        return [
            [*(Op("F", j, x) for j in each), *(Op("BW", j, x) for j in each)]
            for x in range(stages * chunks)
        ]


def load_schedule(**methods: Any) -> Plugins:
    schedule = type("Own", (PlainSchedule,), methods)()
    return load(("own", SimpleNamespace(schedules=hookimpl(lambda: [schedule]))))


def run_search(*, front: bool = False, **methods: Any) -> SearchResult:
    (scenario,) = parcost.load_text(TEXT, plugins=load_schedule(**methods))
    request = SearchRequest(keep=3, budget_seconds=1e9, front=front)
    return search(space(scenario, AXES, list(AXES)), request)


def raises(*_: Any) -> Any:
    raise KeyError("warp")


def gives(value: Any) -> Any:
    return lambda *_: value


FAULTY: dict[str, tuple[str, Any, str]] = {
    "limits raise": ("limits", raises, "raised KeyError: 'warp'"),
    "bound raises": ("lower_bound", raises, "raised KeyError: 'warp'"),
    "bound in words": ("lower_bound", gives("soon"), "returns str where numbers are"),
    "bound too long": ("lower_bound", gives(np.ones(7)), r"an array of shape \(7,\) for times"),
    "form raises": ("closed_form", raises, "raised KeyError: 'warp'"),
    "one number": ("closed_form", gives(1.0), "returns float where seconds and the mask"),
    "form in words": ("closed_form", gives(("soon", True)), "returns str where numbers are"),
    "form too long": ("closed_form", gives((np.ones(7), True)), r"shape \(7,\) for times"),
    "mask too long": ("closed_form", gives((1.0, np.ones(7) > 0)), r"shape \(7,\) for times"),
    "negative": ("closed_form", gives((-1.0, True)), "is a negative time"),
    "spans raise": ("spans", raises, "raised KeyError: 'warp'"),
    "spans of a number": ("spans", gives(0.0), "returns float where starts and ends"),
    "too few spans": ("spans", gives(([0.0], [1.0])), "no start and end for each of 2 runs"),
    "spans in words": ("spans", gives((["a", "b"], [1.0, 2.0])), "returns str where numbers"),
    "spans too long": ("spans", gives(([np.ones(7)] * 2, [1.0, 2.0])), r"shape \(7,\) for"),
}


def methods(case: str) -> tuple[dict[str, Any], str]:
    method, does, said = FAULTY[case]
    form = {"closed_form": gives((1.0, True))} if method == "spans" else {}
    match = f"plugin `own` failed in `schedules`: `{method}` of schedule `plain` .*{said}"
    return {**form, method: does}, match


@pytest.mark.parametrize("case", FAULTY)
def test_a_search_names_what_a_schedule_does_not_say(case: str) -> None:
    own, match = methods(case)
    with pytest.raises(PluginError, match=match):
        run_search(**own)


@pytest.mark.parametrize("case", [c for c in FAULTY if FAULTY[c][0] != "lower_bound"])
def test_so_does_an_evaluation(case: str) -> None:
    own, match = methods(case)
    (scenario,) = parcost.load_text(TEXT, plugins=load_schedule(**own))
    with pytest.raises(PluginError, match=match):
        scenario.evaluate()


ORDERS: dict[str, tuple[Any, str]] = {
    "no list": ([], "0 devices have a list of passes, but there are 2 devices"),
    "nothing to do": ([[], []], "device 0 has no passes"),
    "no such stage": ([[Op("F", 0, 9)], []], "which does not exist"),
    "no such batch": ([[Op("F", -1, 0)], []], "which does not exist"),
    "no numbers": ([[Op("F", "0", 0)], []], "'<=' not supported"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", ORDERS)
def test_an_invalid_order_is_named_in_evaluation_and_search(case: str) -> None:
    lists, said = ORDERS[case]
    (scenario,) = parcost.load_text(TEXT, plugins=load_schedule(order=gives(lists)))
    match = (
        "plugin `own` failed in `schedules`: schedule `plain` at p = 2, m = {}, v = 1: .*" + said
    )
    with pytest.raises(PluginError, match=match.format(8)):
        scenario.evaluate()
    with pytest.raises(PluginError, match=match.format(6)):
        run_search(order=gives(lists))


def test_a_bound_that_is_no_number_hides_no_layout() -> None:
    best = run_search().best

    def bound(_: Any, case: Case) -> Any:  # of the best layout, and no other
        first = case.F[0]
        return np.where(first == np.min(first), NAN, 0.0 * first)

    def bounds(*_: Any) -> float:
        return NAN

    for own in (bound, bounds):
        result = run_search(lower_bound=own)
        assert [x.values for x in result.best] == [x.values for x in best]
        assert [x.seconds for x in result.best] == [x.seconds for x in best]
        assert not result.proven
        (said,) = result.faults
        assert "plugin `own` failed in `schedules`" in said
        assert "`lower_bound` of schedule `plain` is not a number for some layouts" in said
        front = run_search(lower_bound=own, front=True)
        assert [x.seconds for x in front.best] == [x.seconds for x in best]


def test_a_closed_form_that_is_no_number_is_none() -> None:
    result = run_search(closed_form=lambda *_: (NAN, False))
    assert result.proven
    assert [x.seconds for x in result.best] == [x.seconds for x in run_search().best]


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("lower_bound", lambda _, case: 1e3 * case.F[0]),
        ("closed_form", lambda _, case: (1e3 * case.F[0], True)),
    ],
)
def test_what_a_step_beats_proves_nothing(method: str, says: Any) -> None:
    text = TEXT + "memory { usable = 100 % }\ndevice h100_sxm { memory = 1 TB }\n"
    (scenario,) = parcost.load_text(text, plugins=load_schedule(**{method: says}))
    axes = {"layout.pp": [1, 2], "layout.tp": [4, 8], "layout.zero": [1]}
    result = search(space(scenario, axes, list(axes)), SearchRequest(keep=4, budget_seconds=1e9))
    assert not result.proven
    (said,) = result.faults
    assert "plugin `own` failed in `schedules`" in said
    assert f"a step by schedule `plain` takes less time than the bound from `{method}`" in said
