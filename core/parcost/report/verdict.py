"""The verdict of a result, defined once for all screens, formats and exit codes. A result is valid
unless a rule of severity ``error`` fails.

A failed rule with a verdict sets it: such a rule is an error ("does not fit in memory") or a
warning ("tight in memory").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost.report.result import value_at

if TYPE_CHECKING:
    from parcost.contract.checks import Check
    from parcost.report.result import Result

FITS = "fits in memory"
INVALID = "invalid"
NOT_JUDGED = "not checked"
VALID = "valid"  # of a study without a step
#: Hooks of rules: without an answer of each, a study is not checked.
RULES = ("checks", "outcome_checks")


def verdict(result: Result, point: int = 0) -> str:
    """Return the verdict of one point, such as "fits in memory" or "tight in memory"."""
    if result.outcome is None:
        return VALID if result.legal else INVALID
    named = verdict_check(result, point)
    errors = [
        check
        for check in result.outcome.failed
        if check.severity == "error" and not value_at(check.holds, point)
    ]
    if any(not check.verdict for check in errors):
        return INVALID
    if named is not None:
        return named.verdict
    return FITS if value_at(result.feasible, point) else NOT_JUDGED


def verdict_check(result: Result, point: int = 0) -> Check | None:
    """Return the failed rule that sets the verdict of a point, errors first; None if there is
    none.
    """
    if result.outcome is None:
        return None
    failed = (check for check in result.outcome.failed if check.verdict)
    named = [check for check in failed if not value_at(check.holds, point)]
    return min(named, key=lambda check: check.severity != "error", default=None)
