"""The problems of a study that are found without an evaluation: syntax, names, units, rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from parcost.binding.allowances import Allowance, Suppression, suppress
from parcost.language.diagnostics import Diagnostic, Severity, problem
from parcost.language.errors import SpecError
from parcost.plugins.rulebooks import rule_tables
from parcost_apps.batch.scenarios import only_defines
from parcost_formats.rendering.rejection import Rejection, attempt

if TYPE_CHECKING:
    from parcost.engine.scenario import Scenario
    from parcost.engine.session import Session


def problems(path: str, scenario: Scenario | Rejection) -> tuple[Sequence[Diagnostic], int]:
    """Return the problems of a spec, and the exit code if any of them is an error.

    Warnings that the spec switches off are included: see :class:`Suppressions`.
    """
    return _problems(path, scenario, _check_study)


def problems_of_binding(path: str, scenario: Scenario | Rejection) -> Sequence[Diagnostic]:
    """Return the problems of syntax, names and units of a spec; no rule is evaluated."""
    found = _problems(path, scenario, lambda bound: bound.warnings)[0]
    return Suppressions().take(path, scenario, found)


def _problems(
    path: str,
    scenario: Scenario | Rejection,
    find: Callable[[Scenario], Sequence[Diagnostic]],
) -> tuple[Sequence[Diagnostic], int]:
    if isinstance(scenario, Rejection):
        return scenario.diagnostics, scenario.exit_code
    checked = attempt(path, partial(find, scenario))
    if not isinstance(checked, Rejection):
        return checked, 3 if any(d.id == "plugin-fault" for d in checked) else 1
    if only_defines(scenario):  # the importing file has the rest
        return [d for d in checked.diagnostics if d.id != "missing-block"], checked.exit_code
    explained = scenario.explain(SpecError(checked.diagnostics))
    return explained.diagnostics, checked.exit_code


def _check_study(scenario: Scenario) -> Sequence[Diagnostic]:
    """Return the problems of a bound study, and errors in its search block."""
    found = scenario.check_all()
    study = scenario.first
    if any(map(is_error, found)) or not study.trains:
        return found
    goals = [goal for _, goal in study.contributions("search_goals")]
    if all(study.where(f"{goal.subject}.axes") is None for goal in goals):
        return found  # nothing is said, and looking into a search takes long to import
    from parcost.search.goals import unknown_axes, unknown_objective

    return [*found, *unknown_axes(scenario), *unknown_objective(scenario)]


def is_error(diagnostic: Diagnostic) -> bool:
    """Return whether the severity of *diagnostic* is error."""
    return diagnostic.severity is Severity.ERROR


def key(diagnostic: Diagnostic) -> tuple[object, ...]:
    """Return a key that is equal for diagnostics with the same message at the same place."""
    spans = ((label.span.source.name, label.span.start) for label in diagnostic.labels)
    return (diagnostic.id, diagnostic.message, diagnostic.place, *spans)


class Suppressions:
    """The warnings that specs switch off, and the comments that do so."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], Suppression] = {}
        self._used: set[int] = set()
        self._allowances: dict[str, Sequence[Allowance]] = {}

    @property
    def suppressions(self) -> Sequence[Suppression]:
        """Every warning that is switched off, each listed once."""
        return list(self._by_key.values())

    def take(
        self, path: str, scenario: Scenario | Rejection, problems: Sequence[Diagnostic]
    ) -> Sequence[Diagnostic]:
        """Return the *problems* of a study that its spec does not switch off."""
        if isinstance(scenario, Rejection):
            return problems
        kept, suppressed = suppress(problems, scenario.module.all_allowances())
        self._by_key |= {key(one.diagnostic): one for one in suppressed}
        self._used |= {id(one.allowance) for one in suppressed}
        self._allowances[path] = scenario.module.allowances
        return kept

    def unused_warnings(self, session: Session) -> Iterator[tuple[str, Diagnostic]]:
        """Yield a warning, with its file, for each allowance without effect.

        Rules that need the outcome of a step are not evaluated here, so their allowances are
        skipped.
        """
        for path, allowances in self._allowances.items():
            for allowance in allowances:
                rule = rule_tables(session.plugins)[allowance.id]
                if id(allowance) not in self._used and not rule.get("outcome"):
                    yield path, _unused_allowance(allowance)


def _unused_allowance(allowance: Allowance) -> Diagnostic:
    """Return the warning about an allowance without effect."""
    return problem(
        "unused-allowance",
        f"`{allowance.id}` gives no warning here, so this comment has no effect",
        allowance.span,
        help="remove the comment",
        severity=Severity.WARNING,
    )
