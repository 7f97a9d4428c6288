"""Figures on demand: plugins that give the named ones are called, and no others after that."""

from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Figure, Formula, hookimpl
from parcost.plugins.discovery import load
from parcost.report.figures import select

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
training { sequence = 8192, global_batch = 8 sequences }
"""


def _plugin(name: str, value: float, calls: list[str], *, fails: bool = False) -> Any:
    def details(study: Any, outcome: Any, brief: bool) -> Any:  # noqa: ARG001
        if brief:
            return
        calls.append(name)
        yield Figure(name=name, title=name, value=Formula(text="stated", value=value), unit="s")
        if fails:
            raise ValueError("after its figure")

    return name, SimpleNamespace(figures=hookimpl(details))


def _results(*plugins: Any, count: int) -> list[Any]:
    session = parcost.Session(load(*plugins))
    (scenario,) = session.load_text(SPEC)
    return [scenario.evaluate().result for _ in range(count)]


def test_only_who_gave_a_figure_before_is_called_for_it() -> None:
    calls: list[str] = []
    plugins = _plugin("one", 1.0, calls), _plugin("two", 2.0, calls)
    first, second, third = _results(*plugins, count=3)
    assert first.figure("one") == 1.0
    assert sorted(calls) == ["one", "two"]  # no plugin is known to give it
    assert next(iter(select(second, ["two", "step_time"]))).value == 2.0
    assert calls[2:] == ["two"]
    assert {"one", "two"} < {figure.name for _, figure in third.details}
    assert sorted(calls[3:]) == ["one", "two"]


@pytest.mark.slow
def test_faults_of_plugins_without_the_figure_are_not_of_the_result() -> None:
    calls: list[str] = []
    plugins = _plugin("one", 1.0, calls), _plugin("two", 2.0, calls, fails=True)
    for result in _results(*plugins, count=2):  # whether all plugins are called or one
        assert result.figure("one") == 1.0
        assert not result.faults
        assert result.details
        assert [fault.plugin.name for fault in result.faults] == ["two"]
