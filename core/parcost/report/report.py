"""A report: everything that is known about a scenario once it is evaluated.

A scenario without sweeps has one result. A sweep over plain quantities is one result
whose numbers are arrays; a sweep over something structural (a schedule, the number of
stages, a device) has one result for each of its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.outcome import Fault, Outcome
    from parcost.contract.terms import Figure, Interval, Section
    from parcost.engine.study import Study
    from parcost.language.diagnostics import Diagnostic
    from parcost.numeric import Mask, Real
    from parcost.plugins.discovery import Plugin


@record(kw_only=True, eq=False)
class Expectation:
    """One claim of an ``expect`` block, and whether it holds."""

    text: str  # as written: "mfu = 41 % +- 3 %"
    figure: Figure
    holds: Mask
    diagnostic: Diagnostic | None  # what to say where it does not hold at every point


@record(kw_only=True, eq=False)
class Infeasible:
    """A point of a sweep that breaks rules, and what each of them says."""

    at: Mapping[str, Any]
    reasons: Sequence[str]


@record(kw_only=True, eq=False, slots=False, repr=False)
class Result:
    """One evaluation: a study and what it costs.

    *at* holds the structural sweep values of this result, by axis name. *outcome* is
    None where the study cannot run at all, and *diagnostics* say why, and where it has
    nothing to train, whose *figures* are calculations; *legal* tells the two apart.
    Numbers are
    arrays over the points that may run where ``study.axes`` is not empty; that gives
    the swept values of each point. *infeasible* are the points that may not.
    """

    study: Study
    outcome: Outcome | None
    legal: bool = False
    figures: Sequence[tuple[Plugin, Figure]] = ()
    intervals: Sequence[tuple[Plugin, Interval]] = ()
    expectations: Sequence[Expectation] = ()
    diagnostics: Sequence[Diagnostic] = ()
    at: Mapping[str, Any] = {}
    infeasible: Sequence[Infeasible] = ()

    @property
    def swept(self) -> bool:
        """Whether the numbers are arrays over ``study.axes``."""
        return bool(self.study.axes)

    @property
    def faults(self) -> Sequence[Fault]:
        """The plugins that failed, broken ones included."""
        return (*self.study.plugins.broken, *self.study.faults)

    @property
    def feasible(self) -> Mask:
        """Whether the study may run, and its step meets every verdict."""
        return self.legal if self.outcome is None else self.outcome.feasible

    def figure(self, name: str) -> Real:
        """Return the value of the figure called *name*, a detail included.

        Raises:
            KeyError: There is none, because no plugin gave it or the study may not run.
        """
        for _, figure in self.figures:
            if figure.name == name:
                return figure.value
        for _, figure in self.details:
            if figure.name == name:
                return figure.value
        from parcost.language.diagnostics import nearest

        known = [figure.name for _, figure in (*self.figures, *self.details)]
        close = " or ".join(f"`{other}`" for other in nearest(name, known, 3))
        hint = f"; did you mean {close}?" if close else ""
        raise KeyError(f"no figure is called `{name}`{hint}")

    def interval(self, name: str) -> Interval | None:
        """Return where the measured value of the figure called *name* lies, if that is known."""
        return next((interval for _, interval in self.intervals if interval.name == name), None)

    def __repr__(self) -> str:
        """Return the study and its headline, in one line."""
        return f"<Result of `{self.study.name}`: {_headline(self)}>"

    @cached_property
    def details(self) -> Sequence[tuple[Plugin, Figure]]:
        """Further figures: volumes, counts, ratios, bounds; made when first read."""
        from parcost.engine.evaluation import details
        from parcost.numeric import quiet

        with quiet():
            return details(self.study, self.outcome)

    @cached_property
    def sections(self) -> Sequence[tuple[Plugin, Section]]:
        """Tables of calculations, then advice, sensitivities and the like; made when first read."""
        from parcost.contract.terms import Section
        from parcost.numeric import quiet

        if not self.legal or (self.swept and self.outcome is not None):
            return ()
        study = self.study
        found = [(p, s) for p, s in study.contributions("calculations") if isinstance(s, Section)]
        if self.outcome is not None:
            with quiet():
                found += study.plugins.ask(
                    "sections", study.faults, study=study, outcome=self.outcome
                )
        return tuple(found)


@record(kw_only=True, eq=False, repr=False)
class Report:
    """The results of one scenario. *path* is the file as the user named it.

    *units* are the base units of the swept values, by axis name; "" for plain numbers.
    """

    name: str
    path: str
    axes: Sequence[tuple[str, Sequence[Any]]]
    results: Sequence[Result]
    units: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Return the name, the file and the headline, in one line."""
        axes = " x ".join(f"{len(values)} {name}" for name, values in self.axes)
        found = f"sweep of {axes}" if axes else "; ".join(map(_headline, self.results))
        return f"<Report `{self.name}` of `{self.path}`: {found}>"

    def _repr_html_(self) -> str:
        """Return a small table for notebooks: the figures of every result."""
        from html import escape

        rows = [
            f"<tr><td>{escape(figure.title)}</td><td>{escape(_value(figure))}</td></tr>"
            for result in self.results
            for _, figure in result.figures
            if not figure.detail
        ]
        caption = escape(f"{self.name} of {self.path}")
        return f"<table><caption>{caption}</caption>{''.join(rows)}</table>"

    @property
    def result(self) -> Result:
        """The only result of a scenario without structural sweeps."""
        (only,) = self.results
        return only

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        """Every diagnostic of every result."""
        return [d for result in self.results for d in result.diagnostics]

    @property
    def exit_code(self) -> int:
        """0 good; 1 a rule or an expectation failed or nothing fits; 3 a plugin failed.

        A sweep is good where one of its points is.
        """
        if any(result.faults for result in self.results):
            return 3
        some = any if self.axes else all
        return int(not some(_good(result) for result in self.results))

    def rows(self, figures: Sequence[str] = ()) -> Sequence[Mapping[str, Any]]:
        """Return one mapping per point: axis values, figures, ``feasible``, ``reason``.

        Figures of a point that cannot run are None. *figures* are those to return, by name;
        without any they are all but the details.

        Raises:
            KeyError: No figure has that name.
        """
        from parcost.report.figures import missing_names
        from parcost.report.rows import rows

        for name, hint in missing_names(self, figures).items():
            raise KeyError(f"no figure is called {name!r}" + (f"; {hint}" if hint else ""))
        return rows(self, figures)


def _value(figure: Figure) -> str:
    """Return the value of a figure for reading, or the ends of what a sweep gives."""
    from parcost.language.numbers import quantity

    return quantity(figure.value, figure.unit)


def _headline(result: Result) -> str:
    """Return whether a result runs, and its first figure."""
    if not result.legal:
        return "may not run"
    first = next((figure for _, figure in result.figures), None)
    runs = "feasible" if _good(result) else "fails a rule or a claim"
    return runs if first is None else f"{first.name} = {_value(first)}, {runs}"


def _good(result: Result) -> bool:
    """Whether a single point is feasible and as expected; a sweep needs one that is."""
    from parcost.report.rows import good

    return good(result)
