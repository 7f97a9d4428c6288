"""Capacities, axes, objectives and goals that are none: their plugin is named, wherever it fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Axis, Diagnostic, Goal, Limit, Objective, PluginError, SpecError, hookimpl
from parcost.plugins.discovery import load
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
layout { tp = 4, zero = 1 }
training { sequence = 4096, global_batch = 32 sequences, recompute = full }
"""
NAN, INF = float("nan"), float("inf")


def run_search(
    objective: str = "step_time", names: tuple[str, ...] = ("tp",), **hooks: Any
) -> SearchResult:
    plugins = load(("odd", SimpleNamespace(**{k: hookimpl(v) for k, v in hooks.items()})))
    (scenario,) = parcost.load_text(TEXT, plugins=plugins)
    return search(
        space(scenario, {"layout.tp": [2, 4, 8]}, names), SearchRequest(objective=objective)
    )


def raises(*_: Any) -> Any:
    raise GeneratorExit("warp")


def limit(holds: Any, says: Any = "odd") -> Goal:
    return Goal(limits=[Limit(name="odd", says=says, holds=holds)])


def objective(cost: Any = lambda s: s, value: Any = lambda c: c, name: Any = "own") -> Objective:
    return Objective(name=name, title="own", unit="", cost=cost, value=value)


ROOMS: dict[str, tuple[Any, str]] = {
    "a word": ("80", "gave the capacity '80', which is not a size in bytes"),
    "nan": (NAN, "gave the capacity nan"),
    "nothing": (None, "gave the capacity None"),
    "complex": (80j, "gave the capacity 80j"),
    "one for each of five": (np.full(5, 80e9), "gave a memory limit of shape (5,), where "),
    "a table": (np.full((2, 2), 80e9), "gave a memory limit of shape (2, 2), where "),
}


@pytest.mark.parametrize("case", ROOMS)
def test_a_room_that_is_none_leaves_the_others(case: str) -> None:
    room, said = ROOMS[case]
    result = run_search(capacities=lambda: [room])
    assert any(f"plugin `odd` failed in `capacities`: {said}" in one for one in result.faults)
    assert not result.proven
    assert [x.values for x in result.best] == [x.values for x in run_search().best]


FAULTY: dict[str, tuple[str, Any, str]] = {
    "limit raises": ("search_goals", limit(raises), "the limit `odd` raised GeneratorExit: warp"),
    "limit of nan": (
        "search_goals",
        limit(lambda s, _: s * NAN),
        "the limit `odd` is nan where true and",
    ),
    "limit in words": (
        "search_goals",
        limit(lambda *_: "no"),
        "the limit `odd` is 'no' where true",
    ),
    "limit of no shape": (
        "search_goals",
        limit(lambda s, _: np.ones((7, 5), dtype=bool) if np.ndim(s) else True),
        "the limit `odd` is array(",
    ),
    "no function": ("search_goals", limit(True), "the limit `odd` raised TypeError: "),
    "limit says nothing": (
        "search_goals",
        limit(lambda *_: True, says=7),
        "which is not a limit, or has no text",
    ),
    "no limit": ("search_goals", Goal(limits=["odd"]), "gave a goal the limit 'odd'"),
    "objective of a number": ("search_goals", Goal(objective=7), "gave a goal objective = 7"),  # type: ignore[arg-type]
    "axes in a word": ("search_goals", Goal(axes="tp"), "gave a goal axes = 'tp'"),
    "keeps none": ("search_goals", Goal(keep=0), "gave a goal keep = 0"),
    "no limits": ("search_goals", Goal(limits=7), "gave a goal limits = 7"),  # type: ignore[arg-type]
    "cost raises": ("objectives", objective(raises), "the cost of `own` raised GeneratorExit"),
    "cost of nan": ("objectives", objective(lambda s: s * NAN), "the cost of `own` is "),
    "cost in words": ("objectives", objective(lambda _: "7"), "the cost of `own` is '7' where"),
    "costs of nothing": ("objectives", objective(lambda _: None), "the cost of `own` is None"),
    "value raises": ("objectives", objective(value=raises), "the value of `own` raised"),
    "value in words": ("objectives", objective(value=str), "the value of `own` is '1.0' where"),
}


@pytest.mark.parametrize("wanted", ["step_time", "own"])
@pytest.mark.parametrize("case", FAULTY)
def test_a_search_that_cannot_go_on_names_who_is_to_blame(case: str, wanted: str) -> None:
    hook, answer, said = FAULTY[case]
    if hook == "search_goals" and wanted == "own":
        wanted = "mfu"
    if "which" in said or "gave" in said:
        assert any(said in fault for fault in run_search(wanted, **{hook: lambda: [answer]}).faults)
        return
    with pytest.raises(PluginError) as error:
        run_search(wanted, **{hook: lambda: [answer]})
    assert f"{error.value}".startswith(f"plugin `odd` failed in `{hook}`: {said}")


AXES: dict[str, tuple[Any, str]] = {
    "nothing": (
        Axis(attribute="overlap.bucket", values=[None]),
        "`overlap.bucket` None, neither a number",
    ),
    "nan": (
        Axis(attribute="overlap.bucket", values=[1.0, NAN]),
        "`overlap.bucket` nan, neither a number",
    ),
    "lists": (Axis(attribute="layout.tp", values=[[1, 2]]), "`layout.tp` [1, 2], neither a number"),
    "a word": (Axis(attribute="layout.zero", values="123"), "values = '123', which are not a list"),
    "a number": (Axis(attribute="layout.zero", values=1), "values = 1, which are"),  # type: ignore[arg-type]
    "no name": (Axis(attribute=7, values=[1]), "an Axis the attribute 7, which is no"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", AXES)
def test_an_axis_that_is_none_names_its_plugin_and_leaves_the_others(case: str) -> None:
    axis, said = AXES[case]
    result = run_search(axes=lambda: [axis])
    assert result.best[0].values == run_search().best[0].values
    assert not result.proven
    (fault,) = result.faults
    assert "plugin `odd` failed in `axes`: gave " in fault
    assert said in fault


def test_numbers_of_any_kind_are_answers() -> None:
    axes = [Axis(attribute="layout.zero", values=np.array([0, 1, 2]))]  # type: ignore[arg-type]
    result = run_search(
        "own",
        ("tp", "zero"),
        axes=lambda: axes,
        capacities=lambda: [np.float32(7e10), 2**40, INF],
        search_goals=lambda: [limit(lambda *_: np.True_)],
        objectives=lambda: [objective(lambda s: np.where(s > 1e9, INF, s), np.float32)],
    )
    assert result.proven
    assert result.best[0].values == run_search(names=("tp", "zero")).best[0].values


def test_a_spec_error_of_a_plugin_says_whose_it_is() -> None:
    def terms() -> Any:
        raise SpecError([Diagnostic("mine", "own error", notes=("own note",))])

    with pytest.raises(SpecError) as error:
        run_search(terms=terms)
    (said,) = error.value.diagnostics
    assert (said.id, said.notes) == ("mine", ("own note", "plugin `odd` was asked for `terms`"))


def test_a_spec_error_of_ours_is_about_the_spec_alone() -> None:
    with pytest.raises(SpecError) as error:
        parcost.load_text(TEXT.replace("use catalog.devices.h100_sxm", ""))[0].evaluate()
    for said in error.value.diagnostics:
        assert not [note for note in said.notes if "plugin" in note]
