"""Evaluating a study: the rules before it runs, the step, and how it came out.

A study that is trained is a step, its figures and whatever calculations stand beside it.
One without anything to train consists of its calculations alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.evaluation.claims import Known, expectations
from parcost.evaluation.rules import Rules, diagnose, gather, message_at, rules
from parcost.numeric import all_of
from parcost.report import Result
from parcost.terms import Check, Figure

if TYPE_CHECKING:
    from parcost.outcome import Outcome
    from parcost.plugins import Plugin
    from parcost.scenario import Scenario
    from parcost.study import Study

__all__ = ["Rules", "diagnose", "evaluate", "expectations", "message_at", "refuse", "rules"]

LONGEST_SECONDS = 1e15  # thirty million years: beyond is no time of anything that runs
LARGEST_BYTES = 1e30


def refuse(study: Study, failed: Sequence[Check], at: Mapping[str, Any]) -> Result:
    """Return the result of a study that may not run."""
    found = [diagnose(check, study) for check in failed]
    return Result(study=study, outcome=None, diagnostics=found, at=at)


def evaluate(
    scenario: Scenario, study: Study, warnings: Sequence[Check], at: Mapping[str, Any]
) -> Result:
    """Return the result of a study that may run, of which rules only warn."""
    outcome, failed = _step(study, warnings) if study.trains else (None, warnings)
    figures = [*_figures(study, outcome), *calculated(study)]
    known = Known(figures, lambda: details(study, outcome))
    claims = expectations(scenario, known)
    found = [diagnose(check, study) for check in failed]
    if not study.axes:  # a sweep tells at which points a claim holds
        found += [claim.diagnostic for claim in claims if not claim.holds]
    if outcome is not None:
        outcome = evolve(outcome, faults=(*study.plugins.broken, *study.faults))
    return Result(
        study=study,
        outcome=outcome,
        legal=True,
        figures=tuple(figures),
        expectations=claims,
        diagnostics=found,
        at=at,
    )


def calculated(study: Study) -> list[tuple[Plugin, Figure]]:
    """Return the figures that need no step."""
    return [(p, f) for p, f in study.contributions("calculations") if isinstance(f, Figure)]


def details(study: Study, outcome: Outcome | None) -> Sequence[tuple[Plugin, Figure]]:
    """Return the figures of a step that are made on demand."""
    if outcome is None:
        return ()
    return tuple(study.plugins.ask("details", study.faults, study=study, outcome=outcome))


def _figures(study: Study, outcome: Outcome | None) -> Sequence[tuple[Plugin, Figure]]:
    if outcome is None:
        return ()
    return tuple(study.plugins.ask("figures", study.faults, study=study, outcome=outcome))


def _step(study: Study, warnings: Sequence[Check]) -> tuple[Outcome, Sequence[Check]]:
    """Return the step of *study*, judged, and every rule that fails."""
    from parcost.evaluation import reduce

    outcome = reduce.evaluate(study)
    asked = study.plugins.ask("verdicts", study.faults, study=study, outcome=outcome)
    judged = gather([_finite(study, outcome), *(check for _, check in asked)], study)
    failed = [*warnings, *judged.failed]
    unjudged = any(fault.hook in ("checks", "verdicts") for fault in study.faults)
    return evolve(outcome, feasible=judged.holds & (not unjudged), failed=failed), failed


def _finite(study: Study, outcome: Outcome) -> Check:
    """Return the rule that everything ends: an algorithm that cannot run takes for ever."""
    holds: Any = outcome.step_seconds < LONGEST_SECONDS
    endless: list[str] = []
    for _, term in study.contributions("terms"):
        ends = term.seconds < LONGEST_SECONDS
        if not all_of(ends):
            endless.append(f"`{term.name}`")
            holds = holds & ends
    for _, held in study.contributions("memory"):
        holds = holds & (held.bytes_ < LARGEST_BYTES)
        if not all_of(held.bytes_ < LARGEST_BYTES):
            endless.append(f"`{held.name}`")
    return Check(
        id="cannot-run",
        holds=holds,
        subject="",
        message="{terms} would take for ever",
        inputs={"terms": " and ".join(list(dict.fromkeys(endless))[:4]) or "the step"},
        help="an algorithm that cannot run over these ranks takes for ever, and so does a "
        "rate of next to nothing",
    )
