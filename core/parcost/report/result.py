"""The result of one evaluation, and whether it is good."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from parcost.contract.charts import Chart
from parcost.contract.figures import Figure, Interval, Section
from parcost.contract.outcome import Outcome
from parcost.contract.plugin import Fault, Plugin
from parcost.contract.study import Study
from parcost.language.diagnostics import Diagnostic, Severity, nearest_names
from parcost.language.numbers import quantity
from parcost.numeric import Mask, Real
from parcost.records import record

if TYPE_CHECKING:
    from parcost.binding.allowances import Suppression


@record(kw_only=True, eq=False)
class Expectation:
    """One claim of an ``expect`` block, with its result.

    *outcome* is a sentence that compares the claim with the figure. It is empty if the claim is
    true and its value is inside the interval of the figure.
    """

    text: str  # as written: "mfu = 41 % +- 3 %"
    figure: Figure
    holds: Mask
    outcome: str = ""
    diagnostic: Diagnostic | None  # what to say where it does not hold at every point


@record(kw_only=True, eq=False)
class Infeasible:
    """A point of a sweep that violates rules, with the messages of the rules."""

    at: Mapping[str, Any]
    reasons: Sequence[str]


@record(kw_only=True, eq=False, slots=False, repr=False)
class Result:
    """One evaluation: a study and its cost.

    *at* holds the structural sweep values of this result, by axis name. *outcome* is None if the
    study is invalid: then *legal* is false, and *diagnostics* has the reason. It is also None for a
    study without training, whose *figures* are calculations. If ``study.axes`` is not empty,
    numbers are arrays over the valid points; the axes have the swept values of each point.
    *infeasible* are the invalid points. *suppressions* are warnings that the spec switches off.
    """

    study: Study
    outcome: Outcome | None
    legal: bool = False
    figures: Sequence[tuple[Plugin, Figure]] = ()
    intervals: Sequence[tuple[Plugin, Interval]] = ()
    expectations: Sequence[Expectation] = ()
    diagnostics: Sequence[Diagnostic] = ()
    suppressions: Sequence[Suppression] = ()
    at: Mapping[str, Any] = {}
    infeasible: Sequence[Infeasible] = ()
    make_details: Callable[[], Sequence[tuple[Plugin, Figure]]] = tuple
    find_details: Callable[[Collection[str]], Sequence[tuple[Plugin, Figure]]] = lambda _: ()
    make_missing: Callable[[], Mapping[str, str]] = dict
    make_sections: Callable[[bool], Sequence[tuple[Plugin, Section]]] = lambda _: ()
    make_charts: Callable[[], Sequence[tuple[Plugin, Chart]]] = tuple
    make_timeline_charts: Callable[[], Sequence[tuple[Plugin, Chart]]] = tuple

    @property
    def swept(self) -> bool:
        """Whether the numbers are arrays over ``study.axes``."""
        return bool(self.study.axes)

    @property
    def faults(self) -> Sequence[Fault]:
        """The plugins that failed, including those that could not be loaded."""
        return (*self.study.plugins.broken, *self.study.faults)

    @property
    def feasible(self) -> Mask:
        """Whether the study is valid, and its step passes every rule about the outcome."""
        return self.legal if self.outcome is None else self.outcome.feasible

    def figure(self, name: str) -> Real:
        """Return the value of the figure called *name*, details included.

        Raises:
            KeyError: No plugin provides the figure, or the study is invalid.
        """
        for _, figure in self.figures:
            if figure.name == name:
                return figure.value
        for _, figure in self.find_details([name]):
            if figure.name == name:
                return figure.value
        if name in self.missing:
            raise KeyError(missing_message(name, self.missing))
        known = [figure.name for _, figure in (*self.figures, *self.details)]
        close = " or ".join(f"`{other}`" for other in nearest_names(name, known, 3))
        hint = f"; did you mean {close}?" if close else ""
        raise KeyError(missing_message(name, {}) + hint)

    def interval(self, name: str) -> Interval | None:
        """Return the prediction interval of the figure called *name*, or None if unknown."""
        return next((interval for _, interval in self.intervals if interval.name == name), None)

    def __repr__(self) -> str:
        """Return the study and its headline, in one line."""
        return f"<Result of `{self.study.name}`: {headline(self)}>"

    @cached_property
    def details(self) -> Sequence[tuple[Plugin, Figure]]:
        """Detailed figures: volumes, counts, ratios, bounds; computed on first read."""
        return self.make_details()

    @cached_property
    def missing(self) -> Mapping[str, str]:
        """The figures that are not available in this study, by name, each with its requirement."""
        return self.make_missing()

    @cached_property
    def sections(self) -> Sequence[tuple[Plugin, Section]]:
        """Tables of calculations, then sections such as advice; computed on first read."""
        return self.make_sections(False)

    @cached_property
    def brief_sections(self) -> Sequence[tuple[Plugin, Section]]:
        """The sections of the default screen: tables, and all sections with ``lead`` rows."""
        return self.sections if "sections" in vars(self) else self.make_sections(True)

    @cached_property
    def charts(self) -> Sequence[tuple[Plugin, Chart]]:
        """Pictures of the step, of pipelines without a step and of sections; made on first read.

        A sweep has none; charts of its points replace them.
        """
        drawn = [(p, section.chart) for p, section in self.sections if section.chart is not None]
        return (*self.make_charts(), *self.timeline_charts, *drawn)

    @cached_property
    def timeline_charts(self) -> Sequence[tuple[Plugin, Chart]]:
        """Pictures of pipelines over time; made on first read."""
        return self.make_timeline_charts()


def missing_message(name: str, missing: Mapping[str, str]) -> str:
    """Return the reason why a study has no figure *name*: a missing requirement, or an unknown
    name.

    >>> missing_message("energy", {"energy": "a block `energy { }`"})
    'the figure `energy` is not available in this study: it needs a block `energy { }`'
    >>> missing_message("enrgy", {})
    'no figure is called `enrgy`'
    """
    if needs := missing.get(name):
        return f"the figure `{name}` is not available in this study: it needs {needs}"
    return f"no figure is called `{name}`"


def headline(result: Result) -> str:
    """Return the validity of a result and its first figure, as text."""
    if not result.legal:
        return "may not run"
    first = next((figure for _, figure in result.figures), None)
    runs = "feasible" if is_good(result) else "fails a rule or a claim"
    if first is None:
        return runs
    return f"{first.name} = {quantity(first.value, first.unit)}, {runs}"


def is_good(result: Result) -> bool:
    """Return whether a result has a valid point, and claims hold at all valid points."""
    if not result.swept:
        errors = [d for d in result.diagnostics if d.severity is Severity.ERROR]
        return result.legal and not errors
    return bool(runnable(result).any()) and meets_claims(result)


def runnable(result: Result) -> Any:
    """Return the mask of points that are valid and fit in memory."""
    import numpy as np

    feasible = np.asarray(result.legal and result.feasible, dtype=bool)
    return np.broadcast_to(feasible, (point_count(result),))


def meets_claims(result: Result) -> bool:
    """Return whether all claims are true at all valid points."""
    runs = runnable(result)
    return all(bool((claim.holds | ~runs).all()) for claim in result.expectations)


def point_count(result: Result) -> int:
    """Return the number of points of a result."""
    return len(result.study.axes[0][1]) if result.study.axes else 1


def value_at(value: Any, point: int) -> Any:
    """Return the value of a number or array at one point, as a plain number."""
    if not hasattr(value, "ndim") or value.ndim == 0:
        return value.item() if hasattr(value, "item") else value
    return value[point].item()
