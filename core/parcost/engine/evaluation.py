"""The evaluation of a study: its rules, its step, and its claims.

A study with training consists of a step, its figures and any calculations. A study without training
consists of its calculations alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, TypeAlias, TypeVar

from attrs import evolve

from parcost.contract.charts import Chart, PassTimeline
from parcost.contract.checks import Check
from parcost.contract.figures import Figure, Interval, MissingFigure, Section
from parcost.contract.outcome import Outcome
from parcost.contract.pipelines import Activity, Pipeline
from parcost.contract.plugin import Fault, Plugin
from parcost.contract.schema import block_name, block_type, with_inner_blocks
from parcost.contract.study import Study
from parcost.engine import reduce
from parcost.engine.attribute_reads import unread_checks
from parcost.engine.details import Details
from parcost.engine.rules import (
    by_effect,
    diagnose,
    diagnose_points,
    gather,
    number_checks,
    point_diagnostic,
)
from parcost.engine.shapes import valid_answers, validate_shapes
from parcost.engine.study import SpecStudy
from parcost.engine.trace import replay_activities
from parcost.expectations.claims import Claims, expectations
from parcost.numeric import all_of, any_of, array_kind, log2, max_of, quiet, where
from parcost.report.result import Expectation, Result
from parcost.report.verdict import RULES

T = TypeVar("T")
#: What plugins gave, each with its plugin.
Stamped: TypeAlias = "Sequence[tuple[Plugin, T]]"

LONGEST_SECONDS = 1e15  # thirty million years: longer than anything that runs
LARGEST_BYTES = 1e30
_USUAL_RATE = 1e9  # per second
_FARTHEST = 49.0  # powers of two: no job has as many tokens, and no device such a rate


def rejection(study: Study, failed: Sequence[Check], at: Mapping[str, Any]) -> Result:
    """Return the result of a study that violates a rule."""
    found = [diagnose(check, study) for check in by_effect(failed)]
    return Result(study=study, outcome=None, diagnostics=found, at=at)


def evaluate(
    claims: Claims, study: SpecStudy, warnings: Sequence[Check], at: Mapping[str, Any]
) -> Result:
    """Return the result of a study that passes all rules; *warnings* are added to its
    diagnostics.
    """
    if study.trains and not any_of((ends := duration_check(study)).holds):
        return rejection(study, [*warnings, ends], at)  # its sums would not be numbers
    outcome, failed = _step(study, warnings) if study.trains else (None, warnings)
    shown, intervals = _figures(study, outcome)
    details = Details(study, outcome, shown)
    failed = [*failed, *unread_checks(study, failed, details.all_figures)]
    shown += _bounds(shown, intervals)
    undefined = gather([*number_checks(figure for _, figure in shown)], study)
    if outcome is not None and undefined.failed:
        failed = [*failed, *undefined.failed]
        outcome = evolve(outcome, feasible=outcome.feasible & undefined.holds, failed=failed)
        details = Details(study, outcome, shown)
    result = _with_figures(study, outcome, details, shown, intervals)
    judged = expectations(claims, result)
    printed = {figure.name for _, figure in result.figures}
    claimed = dict.fromkeys(c.figure.name for c in judged if c.figure.name not in printed)
    known = {f.name: (plugin, f) for plugin, f in details.find_figures(list(claimed))}
    found = [diagnose_points(check, study, at) for check in by_effect(failed)]
    feasible = True if outcome is None else outcome.feasible
    judged = [_claim_at_points(claim, study, at, feasible) for claim in judged]
    found += [claim.diagnostic for claim in judged if claim.diagnostic is not None]
    if outcome is not None:
        outcome = evolve(outcome, faults=(*study.plugins.broken, *study.faults))
    return evolve(
        result,
        outcome=outcome,
        figures=(*result.figures, *map(known.__getitem__, claimed)),
        expectations=judged,
        diagnostics=found,
        at=at,
        make_sections=lambda brief: sections(study, outcome, brief=brief),
        make_charts=lambda: charts(study, outcome),
        make_timeline_charts=lambda: timeline_charts(study, outcome),
    )


def _with_figures(
    study: Study,
    outcome: Outcome | None,
    details: Details,
    shown: Stamped[Figure],
    intervals: Stamped[Interval],
) -> Result:
    """Return the result of a valid study with its figures, before claims are checked."""
    return Result(
        study=study,
        outcome=outcome,
        legal=True,
        figures=(*shown, *calculation_figures(study)),
        intervals=intervals,
        make_details=details.all_figures,
        find_details=details.find_figures,
        make_missing=lambda: missing_figures(study),
    )


def _claim_at_points(
    claim: Expectation, study: Study, at: Mapping[str, Any], feasible: Any
) -> Expectation:
    """Return *claim* with a diagnostic of the points of a sweep at which it fails, ignoring invalid
    points.
    """
    if claim.diagnostic is None or not (at or study.axes):
        return claim
    import numpy as np

    points = len(study.axes[0][1]) if study.axes else 1
    fails = np.broadcast_to(np.asarray(feasible) & ~np.asarray(claim.holds), (points,))
    if not fails.any():
        return evolve(claim, diagnostic=None)
    diagnostic = claim.diagnostic
    found = point_diagnostic(diagnostic, diagnostic.message, ~fails, study, at, runs=True)
    return evolve(claim, diagnostic=found)


def check_claims(claims: Claims, study: SpecStudy) -> None:
    """Check that the *claims* name existing figures in the right unit; do not compare values.

    Raises:
        SpecError: A claim names no figure of *study*, or is in another unit.
    """
    outcome: Outcome | None = None
    if study.trains:
        if not all_of(duration_check(study).holds):
            expectations(claims)
            return
        outcome = reduce.evaluate(study)
    shown, intervals = _figures(study, outcome)
    shown += _bounds(shown, intervals)
    known = _with_figures(study, outcome, Details(study, outcome, shown), shown, intervals)
    expectations(claims, known)


def calculation_figures(study: Study) -> list[tuple[Plugin, Figure]]:
    """Return the figures of calculations, which need no step."""
    return [(p, f) for p, f in study.contributions("calculations") if isinstance(f, Figure)]


def missing_figures(study: Study) -> Mapping[str, str]:
    """Return the figures that the study lacks, by name, each with its requirement."""
    asked = study.plugins.ask("figures", study.faults, taking="brief", study=study, brief=False)
    return {one.name: one.needs for _, one in asked if isinstance(one, MissingFigure)}


def sections(
    study: Study, outcome: Outcome | None, *, brief: bool
) -> Sequence[tuple[Plugin, Section]]:
    """Return tables of calculations, then sections such as advice and sensitivities.

    With *brief*, plugins may leave out sections without ``lead`` rows.
    """
    if study.axes and outcome is not None:
        return ()
    found = [(p, s) for p, s in study.contributions("calculations") if isinstance(s, Section)]
    if outcome is not None:
        with quiet():
            found += study.plugins.ask(
                "sections", study.faults, study=study, outcome=outcome, brief=brief
            )
    return tuple(found)


def charts(study: Study, outcome: Outcome | None) -> Sequence[tuple[Plugin, Chart]]:
    """Return the pictures of calculations, and of a step."""
    if study.axes:
        return ()
    with quiet():
        known = {"study": study} if outcome is None else {"study": study, "outcome": outcome}
        return tuple(study.plugins.ask("charts", study.faults, **known))


def timeline_charts(study: Study, outcome: Outcome | None) -> Sequence[tuple[Plugin, Chart]]:
    """Return the timeline pictures of the step's pipeline, or of the pipelines without a step."""
    if study.axes:
        return ()
    return tuple(
        stamped
        for timeline in timelines(study, outcome)
        for stamped in study.plugins.ask("charts", study.faults, timeline=timeline)
    )


def timelines(study: Study, outcome: Outcome | None) -> Iterator[PassTimeline]:
    """Yield the timeline of the step's pipeline, or of each pipeline without a step."""
    if outcome is not None:
        cut, devices, parts = outcome.pipeline, outcome.timeline(), outcome.pass_parts()
        yield _timeline(study.name, cut, devices, parts)
        return
    for _, run in study.contributions("replays"):
        devices, _ = replay_activities(run)
        kinds = {"F": run.times.F, "B": run.times.B, "W": run.times.W}
        parts = {
            (kind, stage): {"as stated": float(seconds)}
            for kind, row in kinds.items()
            for stage, seconds in enumerate(row)
        }
        fused = zip(run.times.B, run.times.W, strict=True)
        parts |= {
            ("BW", stage): {"B": float(b), "W": float(w)} for stage, (b, w) in enumerate(fused)
        }
        yield _timeline(run.name, run.pipeline, devices, parts)


def _timeline(
    name: str,
    cut: Pipeline,
    devices: Sequence[Sequence[Activity]],
    parts: Mapping[tuple[str, int], Mapping[str, float]],
) -> PassTimeline:
    end = max(device[-1].end for device in devices)
    return PassTimeline(name=name, pipeline=cut, devices=devices, seconds=end, parts=parts)


def _figures(
    study: Study, outcome: Outcome | None
) -> tuple[list[tuple[Plugin, Figure]], Stamped[Interval]]:
    """Return the figures of a step, and their prediction intervals."""
    if outcome is None:
        return [], ()
    asked = study.plugins.ask("figures", study.faults, study=study, outcome=outcome, brief=True)
    found = [*valid_answers(study, "figures", asked)]
    figures = [(plugin, one) for plugin, one in found if isinstance(one, Figure)]
    names = {figure.name for _, figure in figures}
    intervals: list[tuple[Plugin, Interval]] = []
    for plugin, one in found:
        if not isinstance(one, Interval):
            continue
        if one.name in names:
            intervals.append((plugin, one))
        elif not study.plugins.absences:  # of a plugin that is left out, the figure is missing too
            message = f"gave an interval of `{one.name}`, but there is no such figure"
            study.leave_out(Fault(plugin=plugin, hook="figures", message=message), one)
    return figures, tuple(intervals)


def _bounds(figures: Stamped[Figure], intervals: Stamped[Interval]) -> list[tuple[Plugin, Figure]]:
    """Return the ends of intervals as figures, for claims and files."""
    known = {figure.name: figure for _, figure in figures}
    found = []
    for plugin, interval in intervals:
        of = known[interval.name]
        for end, value, formula in (
            ("low", interval.low, interval.formula),
            ("high", interval.high, interval.upper),
        ):
            name = f"{of.name}_{end}"
            if name not in known:
                figure = Figure(
                    name=name,
                    title=f"{end} end of the interval of {of.title}",
                    value=value,
                    unit=of.unit,
                    formula=formula,
                    detail=True,
                )
                found.append((plugin, figure))
    return found


def _step(study: Study, warnings: Sequence[Check]) -> tuple[Outcome, Sequence[Check]]:
    """Return the outcome of the step of *study*, and every rule that fails."""
    outcome = reduce.evaluate(study)
    asked = valid_answers(
        study,
        "outcome_checks",
        study.plugins.ask("outcome_checks", study.faults, study=study, outcome=outcome),
    )
    seconds = outcome.step_seconds
    ends = _ends(study, seconds < LONGEST_SECONDS, {}, known=all_of(seconds < inf))
    judged = gather([ends, *(check for _, check in asked)], study)
    failed = [*warnings, *judged.failed]
    unjudged = any(fault.hook in RULES for fault in study.faults)
    return evolve(outcome, feasible=judged.holds & (not unjudged), failed=failed), failed


def duration_check(study: Study) -> Check:
    """Return the rule that no term is too large; an algorithm that cannot run has infinite time."""
    validate_shapes(study, "terms", "memory")  # nothing has been added up before
    holds: Any = True
    known = True
    names: dict[str, list[str]] = {}
    for _, term in study.contributions("terms"):
        ends = term.seconds < LONGEST_SECONDS
        if not all_of(ends):
            known = known and all_of(term.seconds < inf)
            names.setdefault("time", []).append(f"`{term.name}`")
            holds = holds & ends
    for _, held in study.contributions("memory"):
        fits = held.bytes_ < LARGEST_BYTES
        if not all_of(fits):
            names.setdefault("memory", []).append(f"`{held.name}`")
            holds = holds & fits
    return _ends(study, holds, names, known=known)


def _ends(study: Study, holds: Any, names: Mapping[str, Sequence[str]], *, known: bool) -> Check:
    """Return the rule that all of *names* have finite times; *known* is false if a time is
    infinite.
    """
    size = "correct a size that is far too large, or a rate that is almost zero"
    ranks = f"choose an algorithm that supports these ranks, or `auto`; or {size}"
    found = [
        f"no finite {what} for {' and '.join(list(dict.fromkeys(of))[:4])}"
        for what, of in names.items()
    ]
    subject = "" if all_of(holds) else _extreme_attribute(study)
    return Check(
        id="cannot-run",
        holds=holds,
        subject=subject,
        message="{terms}{attribute}",
        inputs={
            "terms": ", ".join(found) or "no finite time for the step",
            "attribute": f": `{subject}` is out of proportion" if subject else "",
        },
        help="correct this value" if subject else size if known else ranks,
    )


def _extreme_attribute(study: Study) -> str:
    """Return the attribute of the spec that is farthest from usual values; "" if all are close to
    them.
    """
    outer = [block for blocks in study.blocks.values() for block in blocks]
    farthest, found = _FARTHEST, ""
    for block in {id(one): one for top in outer for one in with_inner_blocks(top)}.values():
        fields = block_type(type(block)).fields
        for name, origin in study.origins.get(id(block), {}).items():
            value: Any = vars(block).get(name)
            if origin.how == "default" or not (isinstance(value, float) or array_kind(value)):
                continue
            usual = _USUAL_RATE if str(fields[name].dimension).endswith("/s") else 1.0
            distance: Any = log2(where(value > 0.0, value, usual) / usual)
            size = max_of(abs(distance))
            if size > farthest:
                farthest, found = size, f"{block_name(block)}.{name}"
    return found
