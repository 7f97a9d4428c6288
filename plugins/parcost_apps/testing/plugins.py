"""The contract of a plugin: it loads, contributes, explains its numbers, and does not change other
results.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from parcost.contract.formulas import Formula
from parcost.contract.schema import block_type
from parcost.contract.terms import Once, Work
from parcost.engine.scenario import Scenario
from parcost.engine.session import load as load_file
from parcost.engine.session import load_text
from parcost.language.errors import ParcostError
from parcost.plugins.discovery import Plugins
from parcost.plugins.discovery import load as load_plugins
from parcost.report.report import Report
from parcost.report.result import Result
from parcost_apps.testing.formula_text import compute
from parcost_apps.testing.open_modules import PACKAGES, is_open
from parcost_formats.rendering.report_data import report as report_json

_ROUNDING = 1e-9
_EQUAL = 1e-12


def plugins_with(name: str, plugin: object) -> Plugins:
    """Return the installed plugins and *plugin*, registered as *name*, which may be installed."""
    installed = load_plugins()
    if any(one.name == name and one.module is plugin for one in installed.plugins):
        return installed
    return load_plugins((name, plugin), without=_points_of(installed, name))


def _points_of(installed: Plugins, name: str) -> Sequence[str]:
    """Return [name] if a plugin of that name is installed, else []."""
    return [name] if any(one.name == name for one in installed.plugins) else []


class PluginContract:
    """Tests of a plugin as a whole, with a spec that uses it.

    *plugin* is the module of the entry point, and *name* the name of the entry point. *spec* is a
    text or a file that uses the plugin, and *plain* one that does not. *swept* are attributes of
    the spec with values to try, in base units: arrays must give the same results as each value
    alone.
    """

    plugin: ClassVar[ModuleType]
    name: ClassVar[str]
    spec: ClassVar[str | Path]
    plain: ClassVar[str | Path] = ""
    swept: ClassVar[Mapping[str, Sequence[Any]]] = {}

    def plugins(self) -> Plugins:
        """Return the installed plugins and this one."""
        return plugins_with(self.name, self.plugin)

    def without(self) -> Plugins:
        """Return the installed plugins except this one."""
        known = any(one.name == self.name for one in load_plugins().plugins)
        return load_plugins(without=[self.name] if known else [])

    def reports(self, spec: str | Path, plugins: Plugins) -> Sequence[Report]:
        """Return the report of each study of *spec*."""
        return [scenario.evaluate() for scenario in _scenarios(spec, plugins)]

    def results(self) -> Iterator[Result]:
        """Yield every result of the spec."""
        for report in self.reports(self.spec, self.plugins()):
            yield from report.results

    def test_it_loads(self) -> None:
        """All hooks fit the contract, and no part is left out."""
        found = self.plugins()
        assert not found.broken, "\n".join(map(str, found.broken))
        assert any(one.name == self.name for one in found.plugins)

    def test_its_blocks_are_documented(self) -> None:
        """Every block has a docstring, and every attribute a line of documentation."""
        hook = getattr(self.plugin, "blocks", None)
        for schema in hook() if hook else ():
            assert (schema.__doc__ or "").strip(), f"`{block_type(schema).kind}` has no docstring"
            for name, field in block_type(schema).fields.items():
                assert field.doc.strip(), f"`{block_type(schema).kind}.{name}` has no doc"

    def test_it_imports_what_is_public(self) -> None:
        """Of parcost, only modules that the guide opens to plugins are imported."""
        for path in _files(self.plugin):
            for name in imports_of(path):
                assert is_open(name), f"{path.name} imports {name}"

    def test_the_spec_is_evaluated_without_faults(self) -> None:
        """No hook fails, and every rule and claim of the spec is satisfied."""
        for report in self.reports(self.spec, self.plugins()):
            for result in report.results:
                assert result.details is not None  # made when they are read
                assert result.sections is not None
                assert not result.faults, "\n".join(map(str, result.faults))
            assert report.exit_code == 0, [one.message for one in report.diagnostics]

    def test_it_takes_part_in_the_spec(self) -> None:
        """The reports differ without the plugin, or do not exist."""
        with_it = [_data(report) for report in self.reports(self.spec, self.plugins())]
        try:
            without = [_data(report) for report in self.reports(self.spec, self.without())]
        except ParcostError:  # the blocks of the plugin are unknown, for one
            return
        assert with_it != without, "the spec has the same report without the plugin"

    def test_other_specs_are_as_before(self) -> None:
        """A spec without its blocks has the same report with the plugin and without it."""
        if not self.plain:
            pytest.skip("`plain` names no spec")
        before = [_data(report) for report in self.reports(self.plain, self.without())]
        assert [_data(report) for report in self.reports(self.plain, self.plugins())] == before

    def test_it_prints_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        """Reports are on stdout, diagnostics on stderr: a plugin writes to neither."""
        list(self.results())
        assert capfd.readouterr() == ("", "")

    def test_an_evaluation_repeats(self) -> None:
        """A second evaluation, by other plugin objects, gives the same numbers."""
        first = [_data(report) for report in self.reports(self.spec, self.plugins())]
        assert [_data(report) for report in self.reports(self.spec, self.plugins())] == first

    def test_every_formula_computes_its_number(self) -> None:
        """Each printed formula of the plugin evaluates to the number printed with it."""
        for result in self.results():
            for what, shown, value in _formulas(result, self.name):
                for one in _parts(shown):
                    if one.is_expression:
                        inputs = {symbol: number for symbol, (number, _) in one.inputs.items()}
                        of = value if one is shown else one.value
                        found = compute(one.text, inputs)
                        assert _is_near(found, of), f"{what}: {one.text} = {found}, not {of}"

    def test_arrays_are_their_numbers(self) -> None:
        """A sweep gives the same results as a separate evaluation of each of its values."""
        for name, values in self.swept.items():
            for scenario in _scenarios(self.spec, self.plugins()):
                rows = scenario.replace({name: list(values)}).evaluate().rows()
                assert len(rows) == len(values), f"{name}: {len(rows)} rows of {len(values)}"
                for value, row in zip(values, rows, strict=True):
                    (single,) = scenario.replace({name: value}).evaluate().rows()
                    for figure, number in single.items():
                        if isinstance(number, str):  # a reason names what is worst in its array
                            continue
                        assert _is_equal(row[figure], number), (
                            f"{figure} at {name} = {value}: {row[figure]} in the sweep, "
                            f"{number} alone"
                        )


def imports_of(path: Path) -> Sequence[str]:
    """Return the names of the modules that the file at *path* imports."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            names += inside if node.module in PACKAGES else [node.module or ""]
    return names


def _scenarios(spec: str | Path, plugins: Plugins) -> Sequence[Scenario]:
    if isinstance(spec, Path):
        return load_file(spec, plugins=plugins)
    return load_text(spec, plugins=plugins)


def _files(plugin: ModuleType) -> Iterator[Path]:
    path = Path(str(plugin.__file__))
    yield from path.parent.rglob("*.py") if path.name == "__init__.py" else [path]


def _data(report: Report) -> Any:
    """Return a report as plain data, without the lists of plugins."""
    found = json.loads(report_json(report, sections=False))
    found.pop("with", None)
    found.pop("without", None)
    for result in found["results"]:
        result.pop("plugins", None)
    return found


def _formulas(result: Result, name: str) -> Iterator[tuple[str, Formula, Any]]:
    """Yield the name, the formula and the number of each contribution of the plugin."""
    for plugin, figure in (*result.figures, *result.details):
        if plugin.name == name:
            yield f"figure {figure.name}", figure.formula, figure.value
    if result.outcome is None:
        return
    for line in result.outcome.ledger:
        if line.plugin is not None and line.plugin.name == name:
            term = line.term
            seconds = term.seconds if isinstance(term, (Work, Once)) else line.exposed
            yield f"term {line.name}", line.formula, seconds
    for held in result.outcome.memory_lines:
        if held.plugin.name == name:
            yield f"memory {held.name}", held.formula, held.term.bytes_


def _parts(shown: Formula) -> Iterator[Formula]:
    """Yield a formula, and the formulas of its inputs, recursively."""
    seen: set[int] = set()
    waiting = [shown]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += one.parts.values()


def _is_near(found: Any, value: Any) -> bool:
    found, value = np.broadcast_arrays(found, np.asarray(value, dtype=float))
    return bool(np.allclose(found, value, rtol=_ROUNDING, atol=0.0, equal_nan=True))


def _is_equal(found: Any, value: Any) -> bool:
    if isinstance(value, float) and isinstance(found, (int, float)):
        return bool(np.isclose(found, value, rtol=_EQUAL, atol=0.0, equal_nan=True))
    return bool(found == value)
