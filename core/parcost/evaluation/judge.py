"""Whether a study may run, and whether it came out as expected.

Rules come from plugins as masks with a message; here they become diagnostics that
point at the attribute, or reasons that points of a sweep are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from parcost.binding.values import Quantity, number
from parcost.diagnostics import Diagnostic, Label, Severity, SpecError, did_you_mean, problem
from parcost.language import syntax as s
from parcost.language.units import ONE, unit
from parcost.numeric import all_of
from parcost.report import Expectation, Result
from parcost.terms import Check

if TYPE_CHECKING:
    from parcost.binding.document import Module
    from parcost.outcome import Outcome
    from parcost.plugins import Plugin
    from parcost.scenario import Scenario
    from parcost.study import Study
    from parcost.terms import Figure

LONGEST_SECONDS = 1e15  # thirty million years: beyond is no time of anything that runs
LARGEST_BYTES = 1e30


@frozen(eq=False)
class Rules:
    """What the rules say: where all errors hold, which fail, and where each fails."""

    holds: Any
    failed: Sequence[Check]
    reasons: Sequence[tuple[Any, Check]]


def refuse(study: Study, failed: Sequence[Check], at: Mapping[str, Any]) -> Result:
    """Return the result of a study that may not run."""
    found = [diagnose(check, study) for check in failed]
    return Result(study=study, outcome=None, diagnostics=found, at=at)


def evaluate(
    scenario: Scenario, study: Study, warnings: Sequence[Check], at: Mapping[str, Any]
) -> Result:
    """Return the result of a study that may run, of which rules only warn."""
    from parcost.evaluation import reduce

    outcome = reduce.evaluate(study)
    asked = study.plugins.ask("verdicts", study.faults, study=study, outcome=outcome)
    judged = gather([_finite(study, outcome), *(check for _, check in asked)], study)
    failed = [*warnings, *judged.failed]
    unjudged = any(fault.hook in ("checks", "verdicts") for fault in study.faults)
    outcome = evolve(outcome, feasible=judged.holds & (not unjudged), failed=failed)
    figures = tuple(study.plugins.ask("figures", study.faults, study=study, outcome=outcome))
    claims = expectations(scenario, figures)
    found = [diagnose(check, study) for check in failed]
    if not study.axes:  # a sweep tells at which points a claim holds
        found += [claim.diagnostic for claim in claims if not claim.holds]
    return Result(
        study=study,
        outcome=evolve(outcome, faults=(*study.plugins.broken, *study.faults)),
        figures=figures,
        expectations=claims,
        diagnostics=found,
        at=at,
    )


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


def rules(study: Study) -> Rules:
    """Return what every plugin's checks say."""
    return gather([check for _, check in study.contributions("checks")], study)


def gather(checks: Sequence[Check], study: Study) -> Rules:
    """Combine *checks*: the masks of errors are joined, failures kept in order of id."""
    holds: Any = True
    failed: list[Check] = []
    reasons: list[tuple[Any, Check]] = []
    points = len(study.axes[0][1]) if study.axes else 0
    for check in sorted(checks, key=lambda c: (c.id, c.subject)):
        mask = _mask(check.holds, points)
        if all_of(mask):
            continue
        failed.append(check)
        if check.severity == "error":
            reasons.append((not mask if isinstance(mask, bool) else ~mask, check))
            holds = mask & holds
    return Rules(holds, failed, reasons)


def _mask(holds: Any, points: int) -> Any:
    """Return *holds* for every point of a sweep, or as a bool without one."""
    if points:
        import numpy as np

        return np.broadcast_to(np.asarray(holds, dtype=bool), (points,))
    return bool(holds)


def diagnose(check: Check, study: Study) -> Diagnostic:
    """Return the diagnostic of a check that fails, at its first failing point."""
    first = _first_failure(check)
    inputs = {name: _at(value, first) for name, value in check.inputs.items()}
    message = check.message.format(**inputs)
    hint = check.help.format(**inputs) if check.help else None
    notes = tuple(note.format(**inputs) for note in check.notes)
    severity = Severity.ERROR if check.severity == "error" else Severity.WARNING
    span = study.where(check.subject)
    labels = (Label(span),) if span is not None else ()
    return Diagnostic(check.id, message, labels, notes, hint, severity, study.path or study.name)


def message_at(check: Check, point: int) -> str:
    """Return what *check* says of one point of a sweep."""
    return check.message.format(**{n: _at(v, point) for n, v in check.inputs.items()})


def _first_failure(check: Check) -> int:
    if isinstance(check.holds, bool):
        return 0
    import numpy as np

    return int(np.argmin(np.asarray(check.holds)))


def _at(value: Any, point: int) -> Any:
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e15 else value
    if hasattr(value, "ndim"):
        flat = value.reshape(-1)
        return _at(float(flat[min(point, len(flat) - 1)]), 0)
    return value


# --- expectations -----------------------------------------------------------------------


def expectations(
    scenario: Scenario, figures: Sequence[tuple[Plugin, Figure]] | None = None
) -> Sequence[Expectation]:
    """Return the claims of the scenario; without *figures*, only check that they bind."""
    found: list[Expectation] = []
    problems: list[Diagnostic] = []
    for block, module in _expect_blocks(scenario):
        for item in block.items:
            try:
                name, relation, value, tolerance = _claim(item)
                claim = _evaluate_claim(scenario, module, value, tolerance)
                if figures is not None:
                    found.append(_judge_claim(item, name, relation, claim, figures))
            except SpecError as error:
                problems += error.diagnostics
    if problems:
        raise SpecError(problems)
    return found


def _expect_blocks(scenario: Scenario) -> Sequence[tuple[s.Block, Module]]:
    own = [(block, scenario.module) for block in scenario.module.expects]
    if scenario.study is not None:
        inner = [i for i in scenario.study.items if isinstance(i, s.Block)]
        own += [(b, scenario.module) for b in inner if b.kind.text == "expect"]
    return own


def _claim(item: s.Item) -> tuple[s.Path, str, s.Expr, s.Expr | None]:
    if isinstance(item, s.Claim):
        return item.name, item.relation, item.value, item.tolerance
    if isinstance(item, s.Attribute) and not item.words:
        raise SpecError(
            [
                problem(
                    "missing-tolerance",
                    f"`{item.name.text} =` needs a tolerance",
                    item.span,
                    help=f"write `{item.span.text.strip()} +- 5 %`",
                )
            ]
        )
    raise SpecError(
        [problem("misplaced-statement", "`expect` holds claims such as `mfu >= 40 %`", item.span)]
    )


def _evaluate_claim(
    scenario: Scenario, module: Module, value: s.Expr, tolerance: s.Expr | None
) -> tuple[Quantity, Quantity | None]:
    binder = scenario.binder
    said = binder.claim_value(value, module)
    wanted = number(said, value.span)
    if tolerance is None:
        return wanted, None
    return wanted, number(binder.claim_value(tolerance, module), tolerance.span)


def _judge_claim(
    item: s.Item,
    name: s.Path,
    relation: str,
    claim: tuple[Quantity, Quantity | None],
    figures: Sequence[tuple[Plugin, Figure]],
) -> Expectation:
    figure = next((f for _, f in figures if f.name == name.text), None)
    if figure is None:
        known = [f.name for _, f in figures]
        raise SpecError(
            [
                problem(
                    "unknown-name",
                    f"no figure is called `{name.text}`",
                    name.span,
                    help=did_you_mean(name.text, known) or "figures are " + ", ".join(known),
                )
            ]
        )
    wanted, slack = claim
    dimension = unit(figure.unit)[1] if figure.unit else ONE
    if wanted.dimension != dimension:
        raise SpecError(
            [
                problem(
                    "wrong-dimension",
                    f"`{name.text}` is measured in {dimension}"
                    if dimension != ONE
                    else f"`{name.text}` is a plain number",
                    item.span,
                )
            ]
        )
    allowed = _absolute(slack, wanted, item, figure)
    holds = _compare(figure.value, relation, wanted.number, allowed)
    from parcost.render.numbers import quantity

    first = figure.value if isinstance(figure.value, (float, int)) else None
    got = quantity(first, figure.unit) if first is not None else "not met at every point"
    text = item.span.text.strip()
    diagnostic = problem(
        "expectation",
        f"`{text}` does not hold",
        item.span,
        f"this is {got}",
        notes=[f"{figure.title}: {figure.note}"] if figure.note else [],
    )
    return Expectation(text=text, figure=figure, holds=holds, diagnostic=diagnostic)


def _absolute(slack: Quantity | None, wanted: Quantity, item: s.Item, figure: Figure) -> Any:
    """Return the tolerance in the figure's unit.

    A tolerance in percent is a share of the wanted value; only for a figure that is
    itself in percent, such as MFU, it is in points.
    """
    if slack is None:
        return 0.0
    tolerance = item.tolerance if isinstance(item, s.Claim) else None
    in_percent = isinstance(tolerance, s.Number) and tolerance.unit == "%"
    if slack.dimension == wanted.dimension and (figure.unit == "%" or not in_percent):
        return slack.number
    if slack.dimension != ONE:
        raise SpecError(
            [
                problem(
                    "wrong-dimension",
                    f"this tolerance is in {slack.dimension}",
                    item.span,
                    help="write it in percent, or in the unit of the figure",
                )
            ]
        )
    return slack.number * abs(wanted.number)


def _compare(value: Any, relation: str, wanted: Any, allowed: Any) -> Any:
    holds = {
        "<=": lambda: value <= wanted + allowed,
        "<": lambda: value < wanted + allowed,
        ">=": lambda: value >= wanted - allowed,
        ">": lambda: value > wanted - allowed,
        "=": lambda: abs(value - wanted) <= allowed,
        "==": lambda: abs(value - wanted) <= allowed,
        "!=": lambda: abs(value - wanted) > allowed,
    }[relation]()
    return bool(holds) if isinstance(value, (float, int)) else holds
