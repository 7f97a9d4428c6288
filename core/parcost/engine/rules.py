"""The rules of plugins: the points of a study that they allow, and their messages.

Rules of plugins are masks with a message. This module converts them to diagnostics at the
attribute, or to reasons why points of a sweep are excluded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.contract.checks import Check, check_message, first_failure
from parcost.contract.figures import Figure
from parcost.contract.schema import block_type
from parcost.engine.point_diagnostics import PointDiagnostic
from parcost.engine.shapes import validate_shapes
from parcost.language.diagnostics import Diagnostic, Label, Severity
from parcost.language.errors import SpecError
from parcost.numeric import all_of, is_array
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.study import Study


NAMES = re.compile(r"[a-z_]\w*(?:\.\w+)?")  # of attributes in the default of another


@record(eq=False)
class Rules:
    """The result of rules: the mask of points without error, the failed rules, and the mask of each
    failure.
    """

    holds: Any
    failed: Sequence[Check]
    reasons: Sequence[tuple[Any, Check]]


def rules(study: Study) -> Rules:
    """Return the result of all plugins' rules; without training, of calculations only."""
    validate_shapes(study, "calculations", *(["checks"] if study.trains else []))
    asked = [check for _, check in study.contributions("checks")] if study.trains else []
    answers = [answer for _, answer in study.contributions("calculations")]
    if not study.trains and not answers and study.plugins.absences:
        message = (
            "the study has nothing to evaluate: neither a training step nor a calculator block"
        )
        notes = tuple(study.plugins.absences)
        raise SpecError([Diagnostic("missing-plugin", message, notes=notes, place=study.path)])
    stated = [answer for answer in answers if isinstance(answer, Check)]
    return gather([*asked, *stated, *number_checks(answers)], study)


def number_checks(answers: Iterable[Any]) -> Iterator[Check]:
    """Yield the rule that figures are not NaN, for each block that has a NaN figure.

    Sums of very large values are infinite, and the difference of two infinities is NaN.
    """
    found: dict[str, list[tuple[Figure, Any]]] = {}
    for figure in answers:
        if isinstance(figure, Figure):
            same = figure.value == figure.value
            if not all_of(same):
                found.setdefault(figure.name.rpartition(".")[0], []).append((figure, same))
    for undefined in found.values():
        figure, holds = undefined[0]
        for _, same in undefined[1:]:
            holds = holds & same
        yield Check(
            id="not-a-number",
            holds=holds,
            subject=figure.name,
            message="`{name}`{more} cannot be computed: values here are too large or too small",
            inputs={
                "name": figure.name,
                "more": f" and {len(undefined) - 1} more" if len(undefined) > 1 else "",
            },
            notes=[f"{figure.name} = {figure.formula.text}"] if figure.formula.text else [],
        )


def gather(checks: Sequence[Check], study: Study) -> Rules:
    """Combine *checks*: join the masks of errors, and sort failures by id.

    A failure is omitted if another error rejects its inputs; that error names it.
    """
    holds: Any = True
    failed: list[Check] = []
    reasons: list[tuple[Any, Check]] = []
    points = len(study.axes[0][1]) if study.axes else 0
    found: list[tuple[Check, Any]] = []
    for check in sorted(checks, key=lambda c: (c.id, c.subject)):
        mask = _mask(check.holds, points)
        if not all_of(mask):
            found.append((check, mask))
    for check, mask in _with_valid_inputs(found, study):
        failed.append(check)
        if check.severity == "error":
            reasons.append((not mask if isinstance(mask, bool) else ~mask, check))
            holds = mask & holds
    return Rules(holds, failed, reasons)


def _with_valid_inputs(
    found: Sequence[tuple[Check, Any]], study: Study
) -> Sequence[tuple[Check, Any]]:
    """Return the failures, limited to points where no other error rejects their inputs.

    The errors that reject inputs name the rules that were not checked.
    """
    kept: list[tuple[Check, Any]] = []
    waiting: dict[int, set[str]] = {}
    for check, mask in found:
        sources = _sources(check.reads, study)
        for other, broken in found:
            if other is check or other.severity != "error" or other.subject not in sources:
                continue
            valid = mask | (not broken if isinstance(broken, bool) else ~broken)
            if not all_of(valid == mask):
                waiting.setdefault(id(other), set()).add(check.id)
            mask = valid  # noqa: PLW2901  one error after another
        if not all_of(mask):
            kept.append((evolve(check, holds=mask) if check.reads else check, mask))
    return [(_add_waiting_rules(check, waiting.get(id(check), ())), mask) for check, mask in kept]


def _add_waiting_rules(check: Check, waiting: Iterable[str]) -> Check:
    """Return *check* with a note that names the rules that are not checked until it is fixed."""
    names = ", ".join(sorted(waiting))
    note = f"not checked until this is fixed: {names}"
    return evolve(check, notes=[*check.notes, note]) if names else check


def _sources(names: Iterable[str], study: Study) -> set[str]:
    """Return *names* and all attributes that their defaults depend on, such as devices for dp."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        kind, _, attribute = name.rpartition(".")
        for block in (b for blocks in study.blocks.values() for b in blocks):
            if kind in (block.label, block_type(type(block)).kind):
                origin = study.origin(block, attribute)
                if origin is not None and origin.how == "default":
                    used = NAMES.findall(origin.expression)
                    left += [one if "." in one else f"{kind}.{one}" for one in used]
    return found


def _mask(holds: Any, points: int) -> Any:
    """Return *holds* as a mask over the points of a sweep, or as a bool without a sweep."""
    if points:
        import numpy as np

        return np.broadcast_to(np.asarray(holds, dtype=bool), (points,))
    return bool(holds)


def by_effect(checks: Iterable[Check]) -> list[Check]:
    """Return *checks* sorted by effect: errors, then warnings with a loss, with a gain, and others;
    largest first.
    """
    return sorted(checks, key=_rank)


def _rank(check: Check) -> tuple[bool, bool, float]:
    factor: Any = check.factor
    if is_array(factor):
        flat = factor.reshape(-1)
        factor = float(flat[min(first_failure(check), len(flat) - 1)])
    return check.severity != "error", not factor > 1, -factor if factor > 1 else factor


def diagnose(check: Check, study: Study) -> Diagnostic:
    """Return the diagnostic of a check that fails, at its first failing point."""
    words = check_message(check, first_failure(check))
    severity = Severity.ERROR if check.severity == "error" else Severity.WARNING
    span = study.where(check.subject)
    labels = (Label(span),) if span is not None else ()
    place = study.path or study.name
    return Diagnostic(check.id, words.message, labels, words.notes, words.help, severity, place)


def diagnose_points(check: Check, study: Study, at: Mapping[str, Any]) -> Diagnostic:
    """Return the diagnostic of a failed check, with the points of a sweep at which it fails.

    *at* holds the structural values of these points.
    """
    found = diagnose(check, study)
    if not (at or study.axes):
        return found
    points = len(study.axes[0][1]) if study.axes else 1
    return point_diagnostic(found, check.message, _mask(check.holds, points), study, at)


def point_diagnostic(
    found: Diagnostic,
    template: str,
    holds: Any,
    study: Study,
    at: Mapping[str, Any],
    *,
    runs: bool = False,
) -> Diagnostic:
    """Return *found* with the number of points where *holds* is false, and the first of them."""
    import numpy as np

    failing = np.flatnonzero(~np.asarray(holds))
    point = {name: values[failing[0]].item() for name, values in study.axes}
    return PointDiagnostic(
        found.id,
        found.message,
        found.labels,
        found.notes,
        found.help,
        found.severity,
        found.place,
        template=template,
        count=len(failing),
        first={**at, **point},
        runs=runs,
    )


def message_at(check: Check, point: int) -> str:
    """Return the message of *check* at one point of a sweep."""
    return check_message(check, point).message
