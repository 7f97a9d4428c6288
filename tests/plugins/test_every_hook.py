"""Break every hook in every way: each plugin is named, and nothing else changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Report, hookimpl
from parcost.contract import hookspecs
from parcost.contract.plugin import Plugin
from parcost.plugins.discovery import Plugins, load

pytestmark = pytest.mark.slow

STEP = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 2048, global_batch = 16 sequences, recompute = full }
"""
QUESTION = "transfer t { operation = all_reduce, size = 1 GB total, ranks = 8, bandwidth = "
QUESTION += "50 GB/s per_direction }\n"
REGISTRIES = ("blocks", "catalogues", "collectives", "schedules", "kernels", "exporters")
HOOKS = {n: spec for n, spec in vars(hookspecs).items() if hasattr(spec, "parcost_spec")}
#: Asked by a search and by `parcost show`, and not by an evaluation.
ELSEWHERE = {"axes", "capacities", "objectives", "search_goals", "replays"}
ELSEWHERE |= {"usable_memory"}


class EndError(BaseException):
    """No Exception, and it cannot be printed."""

    def __str__(self) -> str:
        raise EndError


class LongText:
    """Something with a huge ``repr`` and a name that no terminal should see."""

    name = "\x1b[2J\u202e" + "x" * 100_000
    id = subject = message = title = unit = name

    def __repr__(self) -> str:
        return "\x1b[31m" * 1_000_000


class Untouchable:
    """Something that raises whatever is read of it."""

    def __getattribute__(self, name: str) -> Any:
        raise EndError


def recurse(*_: Any) -> Any:
    return recurse()


def raising(error: BaseException) -> Callable[[], Any]:
    def do() -> Any:
        raise error

    return do


def midway(error: BaseException) -> Callable[[], Iterator[Any]]:
    def do() -> Iterator[Any]:
        yield from ()
        raise error

    return do


WAYS: dict[str, Callable[[], Any]] = {
    "raises": raising(ValueError("no\nway \x1b[31m")),
    "raises what is no Exception": raising(EndError()),
    "leaves the program": lambda: sys.exit(0),
    "raises its own PluginError": raising(parcost.PluginError("no")),
    "raises a SpecError of nothing": raising(parcost.SpecError([])),
    "raises midway": midway(KeyError("midway")),
    "returns a number": lambda: 5,
    "returns nothing false": lambda: 0,
    "returns a text": lambda: "x" * 100_000,
    "returns a list of None": lambda: [None],
    "returns texts": lambda: ["ten"],
    "returns an array": lambda: np.array([[1.0, 2.0]]),
    "returns a class": lambda: [dict],
    "returns a huge repr": lambda: [LongText()],
    "returns what cannot be read": lambda: [Untouchable()],
    "recurses": recurse,
}


@cache
def shipped_plugins() -> Plugins:
    return load()


def reports(plugins: Plugins) -> list[Report]:
    session = parcost.Session(plugins)
    return [session.load_text(text)[0].evaluate() for text in (STEP, QUESTION)]


@cache
def good_results() -> list[dict[str, Any]]:
    return [numbers(report) for report in reports(shipped_plugins())]


def numbers(report: Report) -> dict[str, Any]:
    result = report.result
    found = {figure.name: figure.value for _, figure in (*result.figures, *result.details)}
    if result.outcome is not None:
        found |= {f"{i} {line.name}": line.exposed for i, line in enumerate(result.outcome.ledger)}
        lines = result.outcome.memory_lines
        found |= {f"memory {line.name}": line.bytes_ for line in lines}
    assert list(result.sections) is not None
    found |= {f"chart {chart.name}": len(chart.rows) for _, chart in result.charts}
    return found


def load_broken(*broken: Mapping[str, Any], **hooks: Any) -> Plugins:
    """Return the usual plugins and, first by name, one with *hooks*, or one with each mapping."""
    modules = [
        SimpleNamespace(**{name: hookimpl(do) for name, do in each.items()})
        for each in broken or [hooks]
    ]
    first = [
        Plugin(f"aaa{number or ''}", "aaa-dist", "1.0", module)
        for number, module in enumerate(modules)
    ]
    return Plugins((*first, *shipped_plugins().whole.loaded))


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_fails_is_named_and_nothing_else_changes(hook: str) -> None:
    ways = dict(WAYS)
    if hook in ("capacities", "usable_memory"):
        del ways["returns an array"]  # rooms are numbers, and several of them
    plugins = load_broken(*({hook: do} for do in ways.values()))
    found = reports(plugins)
    assert [numbers(report) for report in found] == good_results()
    if hook in ELSEWHERE:
        (study,) = parcost.Session(plugins).load_text(STEP)[0].studies()
        list(plugins.ask(hook, [], study=study, name="ranks", rows=[0]))
    lines = [str(fault) for fault in plugins.faults]
    start = "plugin `aaa{}` of aaa-dist 1.0 failed in `{}`: "
    own = [start.format(number or "", hook) for number in range(len(ways))]
    for way, each in zip(ways, own, strict=True):
        assert any(line.startswith(each) for line in lines), way
    for line in lines:
        assert line.startswith(tuple(own))
        assert line.isprintable()
        assert len(line) < 1000
    if hook in REGISTRIES:
        assert [report.exit_code for report in found] == [3, 3]
        assert all(line.endswith("; the plugin is left out") for line in lines)
    elif hook not in ELSEWHERE:
        assert 3 in [report.exit_code for report in found]


FORMULAS: dict[str, Any] = {
    "none": None,
    "text": "2 n",
    "a text that is none": parcost.Formula(text=5),  # type: ignore[arg-type]
    "inputs that are none": parcost.Formula(text="n", inputs=None),  # type: ignore[arg-type]
    "an input that is not a number": parcost.Formula(text="n", inputs={"n": object()}),
    "an input of anything": parcost.Formula(text="n", inputs={"n": (LongText(), "B")}),
    "escapes": parcost.Formula(text="\x1b[31mn"),
}


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("hook", ["terms", "memory", "figures", "calculations"])
def test_a_formula_that_cannot_be_shown_is_a_fault_of_its_plugin(hook: str, formula: str) -> None:
    given = FORMULAS[formula]
    answers = {
        "terms": lambda: [parcost.Once(name="x", seconds=1.0, when="end", formula=given)],
        "memory": lambda: [parcost.Memory(name="x", bytes_=1.0, formula=given)],
    }
    figure = [parcost.Figure(name="x", title="x", value=1.0, unit="s", formula=given)]
    plugins = load_broken(**{hook: answers.get(hook, lambda: figure)})
    found = reports(plugins)[0]
    assert numbers(found) == good_results()[0]
    assert found.exit_code == 3
    (fault,) = found.result.faults
    assert str(fault).startswith(f"plugin `aaa` of aaa-dist 1.0 failed in `{hook}`: gave ")
    assert "formula" in fault.message


@pytest.mark.parametrize(
    "name", ["", "\x1b[2Jx", "a\nb", "\u202ex", 5, None, type("Text", (str,), {})("x")]
)
@pytest.mark.parametrize("hook", ["terms", "memory", "figures"])
def test_a_name_that_cannot_be_printed_is_a_fault_of_its_plugin(hook: str, name: Any) -> None:
    formula = parcost.Formula(text="1")
    answers: dict[str, Callable[[], list[Any]]] = {
        "terms": lambda: [parcost.Once(name=name, seconds=1.0, when="end", formula=formula)],
        "memory": lambda: [parcost.Memory(name=name, bytes_=1.0, formula=formula)],
    }
    figure = [parcost.Figure(name=name, title="x", value=1.0, unit="s", formula=formula)]
    found = reports(load_broken(**{hook: answers.get(hook, lambda: figure)}))[0]
    assert numbers(found) == good_results()[0]
    (fault,) = found.result.faults
    assert str(fault).startswith(f"plugin `aaa` of aaa-dist 1.0 failed in `{hook}`: gave a ")
    assert str(fault).isprintable()


class OtherClass(parcost.Schedule, parcost.Collective, parcost.KernelModel, parcost.Exporter):
    """An algorithm, a schedule, a model of kernels and a format, whatever is expected."""

    operations = frozenset({"all_reduce"})
    source = "nobody"
    reads = "data"

    def __init__(self, name: str) -> None:
        self.name = name

    def seconds(self, *_: Any) -> float:
        return 0.0

    order = price = write = seconds


@pytest.mark.parametrize(
    "hook, name",
    [("collectives", "ring"), ("schedules", "gpipe"), ("kernels", "tiled"), ("exporters", "csv")],
)
def test_a_name_that_is_taken_stays_with_its_plugin(hook: str, name: str) -> None:
    plugins = load_broken(**{hook: lambda: [OtherClass(f"{name}_else"), OtherClass(name)]})
    assert [numbers(report) for report in reports(plugins)] == good_results()
    (fault,) = plugins.faults
    assert fault.message.startswith(f"provides `{name}`, which plugin `")
    assert plugins.offers(hook).keys() == shipped_plugins().offers(hook).keys()
    assert type(plugins.offers(hook)[name][1]) is type(shipped_plugins().offers(hook)[name][1])
    assert f"{name}_else" not in plugins.offers(hook)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_wants_what_there_is_not_is_named(hook: str) -> None:
    def odd(whatever: Any) -> list[Any]:
        return [whatever]

    plugins = load_broken(**{hook: odd})
    (fault,) = plugins.faults
    assert fault.hook == hook
    assert "whatever" in fault.message
    assert [plugin.name for plugin in plugins.plugins] == [
        p.name for p in shipped_plugins().plugins
    ]


def test_of_two_plugins_that_fail_both_are_named() -> None:
    module = SimpleNamespace(terms=hookimpl(raising(ValueError("one"))))
    other = SimpleNamespace(termz=hookimpl(raising(ValueError("other"))))
    added = (Plugin("one", module=module), Plugin("other", module=other))
    plugins = Plugins((*shipped_plugins().whole.loaded, *added))
    found = reports(plugins)
    assert [numbers(report) for report in found] == good_results()
    assert [fault.plugin.name for fault in found[0].result.faults] == ["other", "one"]


def test_of_two_plugins_that_name_a_library_the_second_is_left_out() -> None:
    plugins = load_broken(library=lambda study: ["mpi"])  # noqa: ARG005  a hook is asked by name
    found = [numbers(report) for report in reports(plugins)]
    chart = "chart algorithms"  # it compares those that the other library offers
    assert [{**one, chart: 0} for one in found] == [{**one, chart: 0} for one in good_results()]
    assert "names the communication library" in plugins.faults[0].message
