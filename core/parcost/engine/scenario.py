"""A scenario: one study of a file, with its sweeps, ready to be evaluated.

Structural axes (stages, schedules) are evaluated value by value. Other axes are arrays over the
points that pass all rules, so invalid points are never evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from attrs import evolve, field

from parcost.binding.allowances import Allowance, suppress
from parcost.binding.binder import Binder
from parcost.binding.defaults import setting
from parcost.binding.modules import Loader, Module
from parcost.binding.scope import Sweep, SweepAxis
from parcost.contract.importers import ForeignSource
from parcost.engine import evaluation
from parcost.engine.attribute_reads import record, written_attributes
from parcost.engine.point_diagnostics import PointDiagnostic, PointNames, merge, merge_diagnostics
from parcost.engine.rules import (
    Rules,
    by_effect,
    diagnose_points,
    gather,
    message_at,
    rules,
)
from parcost.engine.study import SpecStudy
from parcost.expectations.claims import Claims, expectations
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, Severity, problem
from parcost.language.errors import SpecError
from parcost.language.escapes import quote_word
from parcost.numeric import all_of, any_of, quiet
from parcost.plugins.discovery import Plugins
from parcost.records import frozen
from parcost.report.report import Report
from parcost.report.result import Infeasible, Result

MOST_POINTS = 100_000  # of a sweep, which takes up to 6 kB for each
MOST_BOUND = 10_000  # points of sweeps that are bound one by one, some milliseconds each
MOST_ERRORS = 100


@frozen(eq=False, slots=False, repr=False)
class Scenario:
    """One study of a file. *overrides* are attributes set from outside, by path."""

    name: str
    path: str
    module: Module = field(repr=False)
    study: s.Block | None = field(repr=False)
    plugins: Plugins = field(repr=False)
    loader: Loader = field(repr=False)
    overrides: Mapping[str, s.Attribute] = field(factory=dict)
    judged: bool = True  # whether its claims and unread attributes are; both are about the file

    def __repr__(self) -> str:
        """Return the name and the file, in one line."""
        return f"<Scenario `{self.name}` of `{self.path}`>"

    @cached_property
    def _sweeps(self) -> dict[int, Sweep]:
        return {}

    @cached_property
    def _probe(self) -> tuple[SpecStudy, Sequence[SweepAxis], Binder]:
        study, binder = self._bind({})
        axes = sorted(binder.axes.values(), key=self._axis_position)
        points = 1
        for axis in axes:
            points *= len(axis.values)
        if points > MOST_POINTS:
            hint = "shorten a list, sweep in parts, or use `parcost search`"
            raise _too_many(axes, points, MOST_POINTS, hint)
        return study, axes, binder

    def _axis_position(self, axis: SweepAxis) -> tuple[int, int]:
        """Return the sort key of *axis*: axes in file order, then those set from outside."""
        if axis.name in self.overrides:
            return 2, list(self.overrides).index(axis.name)
        own = axis.span.source is self.module.source
        return (0, axis.span.start) if own else (1, 0)

    @property
    def binder(self) -> Binder:
        """The binder of the first pass, which knows every name of the scenario."""
        return self._probe[2]

    @property
    def _claims(self) -> Claims:
        if not self.judged:
            return Claims((), self.binder)
        own = [(block, self.module) for block in self.module.expects]
        inner = self.study.items if self.study is not None else ()
        blocks = [item for item in inner if isinstance(item, s.Block)]
        own += [(block, self.module) for block in blocks if block.kind.text == "expect"]
        return Claims(own, self.binder)

    @property
    def axes(self) -> Sequence[tuple[str, Sequence[Any]]]:
        """The swept attributes, by name, with their values."""
        return [(axis.name, axis.values) for axis in self._probe[1]]

    @property
    def first(self) -> SpecStudy:
        """The study with every sweep at its first value."""
        return self._probe[0].fresh()

    @property
    def settings(self) -> Mapping[str, str]:
        """The values set from outside, by path, as they were written."""
        return {
            path: node.span.text.partition("=")[2].strip() or node.value.span.text
            for path, node in self.overrides.items()
        }

    def command(self) -> str:
        """Return the command that evaluates the scenario, including all options."""
        return " ".join(self.command_words())

    def command_words(self) -> list[str]:
        """Return the words of :meth:`command`; an option and its value are one string."""
        active, reading = self.first.plugins, self.module.reading
        return [
            " ".join(["parcost eval", *map(quote_word, (self.path, *reading.files))]),
            *([f"--from {quote_word(reading.tool)}"] if reading.tool else []),
            *([f"--recipe {quote_word(reading.recipe)}"] if reading.recipe else []),
            *([f"--as {quote_word(reading.family)}"] if reading.family else []),
            *(["--text-only"] if reading.text_only else []),
            *(f"--anchor {quote_word(given)}" for given in reading.anchors),
            *(f"--set-env {quote_word(f'{name}={value}')}" for name, value in reading.environment),
            *(f"--use {quote_word(entry)}" for entry in reading.uses),
            *([f"--study {quote_word(self.name)}"] if self.study is not None else []),
            *(f"--without {name}" for name in active.left_out),
            *(f"--plugin {quote_word(path)}" for path in active.files),
            *(f"--set {quote_word(f'{path}={text}')}" for path, text in self.settings.items()),
        ]

    @property
    def warnings(self) -> Sequence[Diagnostic]:
        """The warnings found while the scenario was bound."""
        return self._probe[2].diagnostics

    def replace(self, values: Mapping[str, Any]) -> Scenario:
        """Return the scenario with other values: ``{"layout.tp": [1, 2, 4, 8]}``.

        Values are numbers in base units, words, expressions of the language, or lists
        and arrays of them, which are sweeps.
        """
        new = {path: setting(path, value) for path, value in values.items()}
        return evolve(self, overrides={**self.overrides, **new})

    def studies(self) -> Sequence[SpecStudy]:
        """Return the bound study, or one for each structural sweep value.

        Array axes have all points of their grid, flattened, including invalid ones.

        Raises:
            SpecError: The scenario cannot be bound.
        """
        try:
            return [study for _, study, _ in self._groups()]
        except SpecError as error:
            raise self.explain(error) from error

    def evaluate(self, progress: Callable[[int, int], None] | None = None) -> Report:
        """Return the report of the scenario.

        *progress* receives the number of points done and the total, for points that are bound one
        by one.

        Raises:
            SpecError: The scenario cannot be bound.
        """
        try:
            return self._evaluate(progress)
        except SpecError as error:
            raise self.explain(error) from error

    def _evaluate(self, progress: Callable[[int, int], None] | None) -> Report:
        results: list[Result] = []
        points = prod(len(axis.values) for axis in self._probe[1] if axis.structural)
        for done, group in enumerate(self._groups()):
            if progress is not None:
                progress(done, points)
            results += self._results(*group, unread=self.judged)
        units = {axis.name: axis.unit for axis in self._probe[1]}
        if self.axes:
            results = merge_diagnostics(results, self.axes, units)
        if allowances := self.module.all_allowances():
            results = [_with_suppressions(result, allowances) for result in results]
        return Report(name=self.name, path=self.path, axes=self.axes, results=results, units=units)

    def explain(self, error: SpecError) -> SpecError:
        """Return *error*, with the options that complete a file of another tool, if some are
        missing.
        """
        source = self.module.source
        if not isinstance(source, ForeignSource):
            return error
        return source.explain(error, self.module, self.overrides, self.plugins)

    def release(self) -> None:
        """Drop the bound study, which has reference cycles; used by batches."""
        if "_probe" in vars(self):
            self.binder.release()
            del vars(self)["_probe"]

    def check(self) -> Sequence[Diagnostic]:
        """Return the failures of rules, and the errors of claims about figures that do not exist.

        Warnings that the spec switches off are omitted.
        """
        return suppress(self.check_all(), self.module.all_allowances())[0]

    def check_all(self) -> Sequence[Diagnostic]:
        """Return the diagnostics of :meth:`check`, including warnings that the spec switches off.

        If some point of a sweep is valid, the errors of invalid points are warnings. Claims are
        checked against the step of the first point; values are not compared.
        """
        found = list(self.warnings)
        good, some = True, False
        points = 0
        for at, study, indices in self._groups():
            with quiet():
                judged = rules(study)
            good = good and all_of(judged.holds)
            some = some or any_of(judged.holds)
            points += len(study.axes[0][1]) if study.axes else 1
            found += [diagnose_points(check, study, at) for check in by_effect(judged.failed)]
            found += [
                Diagnostic("plugin-fault", str(fault), place=self.path) for fault in study.faults
            ]
            if any_of(judged.holds) and written_attributes(study):
                found += self._unread_warnings(at, study, indices)
        found = self._at_points(found, points, some)
        try:
            if good and not self._claims.empty:
                with quiet():
                    evaluation.check_claims(self._claims, self.first)
            else:
                expectations(self._claims)
        except SpecError as error:
            raise SpecError([*found, *error.diagnostics]) from error
        return found

    def _unread_warnings(
        self, at: Mapping[str, Any], study: SpecStudy, points: Mapping[int, Any]
    ) -> list[Diagnostic]:
        """Return the warnings of attributes that an evaluation does not read."""
        own = evolve(self, judged=False)
        results = own._results(at, study.fresh(), points, unread=True)  # noqa: SLF001  of this class
        every = [d for result in results for d in result.diagnostics if d.id == "no-effect"]
        return [d for d in every if d not in self.warnings]

    def _at_points(self, found: Sequence[Diagnostic], points: int, some: bool) -> list[Diagnostic]:
        """Return the diagnostics *found*, each with its points; errors become warnings if *some*
        points are valid.
        """
        parts = [
            evolve(d, severity=Severity.WARNING if some else d.severity)
            if isinstance(d, PointDiagnostic)
            else d
            for d in found
        ]
        units = {axis.name: axis.unit for axis in self._probe[1]}
        swept = [part for part in parts if isinstance(part, PointDiagnostic)]
        replace = merge(swept, PointNames(self.axes, units), points, points)
        return list(dict.fromkeys(map(replace, parts)))

    # --- binding ----------------------------------------------------------------------

    def _bind(self, points: Mapping[int, Any]) -> tuple[SpecStudy, Binder]:
        binder = Binder(
            types=self.plugins.blocks,
            registries=self._names,
            loader=self.loader,
            module=self.module,
            study=self.study,
            overrides=self.overrides,
            points=points,
            sweeps=self._sweeps,
        )
        blocks = binder.bind()
        errors = [d for d in binder.diagnostics if d.severity is Severity.ERROR]
        if errors:
            raise SpecError(self._first_errors(_without_consequential_errors(errors)))
        swept = {k: index for k, index in points.items() if not isinstance(index, int)}
        study = SpecStudy(
            self.name,
            blocks,
            self.plugins,
            [(binder.axes[k].name, _values(binder.axes[k], index)) for k, index in swept.items()],
            binder.origins,
            self.path,
            binder.lacking,
            lets=binder.names.used,
            replace=self._replacer(points),
            command=self.command,
            written=lambda: evolve(self, overrides={}).first,
        )
        return study, binder

    def _first_errors(self, errors: Sequence[Diagnostic]) -> Sequence[Diagnostic]:
        """Return the first errors, up to a limit, and a note with the number of omitted ones."""
        if len(errors) <= MOST_ERRORS:
            return errors
        message = f"{len(errors) - MOST_ERRORS} further errors are not shown"
        return [*errors[:MOST_ERRORS], Diagnostic("too-many-errors", message, place=self.path)]

    def _replacer(self, points: Mapping[int, Any]) -> Any:
        def replace(values: Mapping[str, Any]) -> SpecStudy:
            return self.replace(values)._bind(points)[0]  # noqa: SLF001

        return replace

    def _names(self, registry: str) -> Sequence[str]:
        return list(self.plugins.offers(registry))

    def _groups(self) -> Iterator[tuple[Mapping[str, Any], SpecStudy, Mapping[int, Any]]]:
        """Yield the structural values, the study and the index of each axis, for each combination
        of structural values.
        """
        study, axes, _ = self._probe
        structural = [axis for axis in axes if axis.structural]
        numeric = [axis for axis in axes if not axis.structural]
        bound_apart = prod(len(axis.values) for axis in structural)
        if bound_apart > MOST_BOUND:
            names = ", ".join(f"`{axis.name}`" for axis in structural)
            hint = (
                f"every value of {names} is evaluated separately: shorten a list, or sweep in parts"
            )
            raise _too_many(structural, bound_apart, MOST_BOUND, hint)
        if not axes:
            yield {}, study.fresh(), {}
            return
        grid = _mesh(numeric)
        for choice in product(*(range(len(axis.values)) for axis in structural)):
            fixed = {axis.key: i for axis, i in zip(structural, choice, strict=True)}
            at = {a.name: a.values[i] for a, i in zip(structural, choice, strict=True)}
            points = {**fixed, **grid}
            bound, binder = self._bind(points)
            for axis in binder.axes.values():
                if axis.structural and axis.key in grid:
                    message = (
                        f"`{axis.name}` cannot be swept: the structure of the study depends on it"
                    )
                    raise SpecError([Diagnostic("swept-argument", message, place=self.path)])
            yield at, bound, points

    # --- evaluating ---------------------------------------------------------------------

    def _results(
        self, at: Mapping[str, Any], study: SpecStudy, points: Mapping[int, Any], *, unread: bool
    ) -> Iterator[Result]:
        """Yield the results of the valid points, one for each set of fabric levels in use.

        With *unread*, a warning names attributes of the file that no plugin reads.
        """
        if not study.axes:
            with quiet(), record(study) if unread else nullcontext(study) as recorded:
                result = self._result(at, recorded)
            yield result
            return
        with quiet():
            judged = rules(study)
        if not any_of(judged.holds):
            yield evaluation.rejection(study, judged.failed, at)
            return
        infeasible = self._infeasible(points, judged)
        for part in _points_by_levels(study, judged.holds):
            yield self._result_of_part(at, *self._select(study, points, part), infeasible)
            infeasible = ()

    def _select(
        self, study: SpecStudy, points: Mapping[int, Any], kept: Any
    ) -> tuple[SpecStudy, Mapping[int, Any]]:
        """Return *study* at some of its points, and the index of each axis there."""
        some = {k: i if isinstance(i, int) else i[kept] for k, i in points.items()}
        part, replace = study.at_points(kept).fresh(), self._replacer(some)
        return evolve(part, replace=replace, left_out=set()), some

    def _result_of_part(
        self,
        at: Mapping[str, Any],
        part: SpecStudy,
        points: Mapping[int, Any],
        infeasible: Sequence[Infeasible],
    ) -> Result:
        """Return the result of the points of *part* with a finite step time, or of all if none has
        one.
        """
        import numpy as np

        with quiet(), record(part) as study:
            ends = gather([evaluation.duration_check(study)] if study.trains else [], study)
            if all_of(ends.holds) or not any_of(ends.holds):
                return evolve(self._result(at, study), infeasible=infeasible)
        infeasible = [*infeasible, *self._infeasible(points, ends)]
        some = self._select(part, points, np.flatnonzero(ends.holds))
        return self._result_of_part(at, *some, infeasible)

    def _result(self, at: Mapping[str, Any], study: SpecStudy) -> Result:
        """Return the result of a *study* whose points are all valid or all invalid."""
        judged = rules(study)
        if not any_of(judged.holds):
            return evaluation.rejection(study, judged.failed, at)
        warnings = [check for check in judged.failed if check.severity == "warning"]
        result = evaluation.evaluate(self._claims, study, warnings, at)
        found = [d for d in self.warnings if d.severity is Severity.WARNING]
        return evolve(result, diagnostics=[*found, *result.diagnostics])

    def _infeasible(self, points: Mapping[int, Any], judged: Rules) -> Sequence[Infeasible]:
        """Return the points that violate a rule, with the messages of the rules."""
        import numpy as np

        swept = [axis for axis in self._probe[1] if not isinstance(points[axis.key], int)]
        found: dict[int, list[str]] = {}
        for broken, check in judged.reasons:
            for i in np.flatnonzero(broken):
                found.setdefault(int(i), []).append(message_at(check, int(i)))
        return [
            Infeasible(
                at={axis.name: axis.values[int(points[axis.key][i])] for axis in swept},
                reasons=tuple(reasons),
            )
            for i, reasons in sorted(found.items())
        ]


def _with_suppressions(result: Result, allowances: Sequence[Allowance]) -> Result:
    """Return *result* with the warnings that the spec switches off in a separate list."""
    kept, suppressed = suppress(result.diagnostics, allowances)
    return evolve(result, diagnostics=kept, suppressions=suppressed)


_IMPORTS = {"missing-file", "unreadable-file", "unknown-import", "import-escapes"}
_IMPORTS |= {"circular-import", "not-utf8", "malformed-use"}
_UNKNOWN = {"unknown-name", "missing-block"}
_MISSING = {"missing-attribute", "missing-block", "unknown-name"}


def _too_many(axes: Sequence[SweepAxis], points: int, limit: int, hint: str) -> SpecError:
    sizes = " x ".join(str(len(axis.values)) for axis in axes)
    said = f"{sizes} = {points:,}" if len(axes) > 1 else f"{points:,}"
    message = f"the sweeps have {said} points; the limit is {limit:,}"
    found = problem("too-many-points", message, axes[-1].span, help=hint)
    return SpecError([found])


def _without_consequential_errors(errors: Sequence[Diagnostic]) -> Sequence[Diagnostic]:
    """Remove errors about missing names that follow from a failed import or a syntax error."""
    ids = {d.id for d in errors}
    echoes: set[str] = set()
    if ids & _IMPORTS:
        echoes |= _UNKNOWN
    if ids & {"syntax", "unknown-block"}:
        echoes |= _MISSING
    return [d for d in errors if d.id not in echoes]


def _points_by_levels(study: SpecStudy, holds: Any) -> Iterator[Any]:
    """Yield the indices of the valid points, grouped by the fabric levels that their groups span.

    A term has one resource name for all points, so only points with the same levels are evaluated
    together. A point has the same numbers in a sweep as in a separate evaluation.
    """
    import numpy as np

    legal = np.flatnonzero(np.broadcast_to(holds, (len(study.axes[0][1]),)))
    if not study.trains:
        yield legal
        return
    with np.errstate(all="ignore"):
        crossed = [
            np.broadcast_to(np.asarray(members) > 1, (len(study.axes[0][1]),))
            for _, group in study.contributions("groups")
            for members in group.shape
        ]
    if not crossed:
        yield legal
        return
    _, kinds = np.unique(np.stack(crossed)[:, legal], axis=1, return_inverse=True)
    for kind in range(int(kinds.max()) + 1):
        yield legal[kinds.ravel() == kind]


def _mesh(axes: Sequence[SweepAxis]) -> dict[int, Any]:
    """Return the indices of every point of the full grid of *axes*, flattened, by axis."""
    if not axes:
        return {}
    import numpy as np

    grid = np.meshgrid(*(np.arange(len(axis.values)) for axis in axes), indexing="ij")
    return {axis.key: index.ravel() for axis, index in zip(axes, grid, strict=True)}


def _values(axis: SweepAxis, index: Any) -> Any:
    import numpy as np

    return np.asarray(axis.values, dtype=np.float64)[index]
