"""The result of one evaluation, and whether it is good."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from parcost.contract.outcome import Outcome
from parcost.contract.plugin import Fault, Plugin
from parcost.contract.study import Study
from parcost.contract.terms import Figure, Interval, Section
from parcost.language.diagnostics import Diagnostic, Severity, nearest
from parcost.language.numbers import quantity
from parcost.numeric import Mask, Real
from parcost.records import record


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
    Numbers are arrays over the points that may run where ``study.axes`` is not empty; that
    gives the swept values of each point. *infeasible* are the points that may not.
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
    make_details: Callable[[], Sequence[tuple[Plugin, Figure]]] = tuple
    make_sections: Callable[[], Sequence[tuple[Plugin, Section]]] = tuple

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
        known = [figure.name for _, figure in (*self.figures, *self.details)]
        close = " or ".join(f"`{other}`" for other in nearest(name, known, 3))
        hint = f"; did you mean {close}?" if close else ""
        raise KeyError(f"no figure is called `{name}`{hint}")

    def interval(self, name: str) -> Interval | None:
        """Return where the measured value of the figure called *name* lies, if that is known."""
        return next((interval for _, interval in self.intervals if interval.name == name), None)

    def __repr__(self) -> str:
        """Return the study and its headline, in one line."""
        return f"<Result of `{self.study.name}`: {headline(self)}>"

    @cached_property
    def details(self) -> Sequence[tuple[Plugin, Figure]]:
        """Further figures: volumes, counts, ratios, bounds; made when first read."""
        return self.make_details()

    @cached_property
    def sections(self) -> Sequence[tuple[Plugin, Section]]:
        """Tables of calculations, then advice, sensitivities and the like; made when first read."""
        return self.make_sections()


def figure_text(figure: Figure) -> str:
    """Return the value of a figure for reading, or the ends of what a sweep gives."""
    return quantity(figure.value, figure.unit)


def headline(result: Result) -> str:
    """Return whether a result runs, and its first figure."""
    if not result.legal:
        return "may not run"
    first = next((figure for _, figure in result.figures), None)
    runs = "feasible" if is_good(result) else "fails a rule or a claim"
    return runs if first is None else f"{first.name} = {figure_text(first)}, {runs}"


def is_good(result: Result) -> bool:
    """Return whether a result is feasible and as expected; a sweep needs one point that is."""
    if not result.legal:
        return False
    if not result.swept:
        errors = [d for d in result.diagnostics if d.severity is Severity.ERROR]
        return not errors
    import numpy as np

    holds = np.broadcast_to(np.asarray(result.feasible, dtype=bool), (point_count(result),))
    for claim in result.expectations:
        holds = holds & np.asarray(claim.holds, dtype=bool)
    return bool(holds.any())


def point_count(result: Result) -> int:
    """Return how many points a result is of."""
    return len(result.study.axes[0][1]) if result.study.axes else 1
