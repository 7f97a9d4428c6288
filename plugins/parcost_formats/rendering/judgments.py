"""Parts of a page beside a verdict: claims, rules about the outcome, and plugins that failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parcost.language.diagnostics import Diagnostic, Severity
from parcost.report.result import Expectation, Result, point_count, value_at
from parcost.report.rows import Axes
from parcost.report.verdict import RULES, verdict_check

#: The swept values of a point, as text.
Key = tuple[str, ...]

_SHOWN = (  # beside the step
    "figures",
    "sections",
    "exporters",
)


def verdicts(result: Result) -> list[Diagnostic]:
    """Return the errors of rules about the outcome, such as memory; other rules and claims are
    excluded.
    """
    if result.outcome is None:
        return []
    claims = {id(claim.diagnostic) for claim in result.expectations}
    errors = (d for d in result.diagnostics if d.severity is Severity.ERROR)
    return [diagnostic for diagnostic in errors if id(diagnostic) not in claims]


def is_in_verdict(result: Result, diagnostic: Diagnostic) -> bool:
    """Return whether the verdict already has the message of *diagnostic*."""
    named = verdict_check(result)
    same = named is not None and named.id == diagnostic.id
    return same and diagnostic.severity is not Severity.ERROR


def judgment_failure(result: Result) -> str:
    """Return a sentence that names the plugins whose failed rules prevent a verdict, or ""."""
    faults = dict.fromkeys(str(f.plugin) for f in result.faults if f.hook in RULES)
    if not faults:
        return ""
    one = len(faults) == 1
    owner = f"a rule of plugin {next(iter(faults))}" if one else f"rules of {_plugins(faults)}"
    return f"Not checked: {owner} failed"


def step_failure(result: Result) -> str:
    """Return a sentence that names the plugins that failed in a hook of the step, or ""."""
    faults = [f for f in result.faults if f.hook not in (*RULES, *_SHOWN)]
    hooks = dict.fromkeys(f"`{fault.hook}`" for fault in faults)
    owners = dict.fromkeys(str(fault.plugin) for fault in faults)
    return f"Incomplete: {_plugins(owners)} failed in {' and '.join(hooks)}" if faults else ""


def _plugins(names: Iterable[str]) -> str:
    """Return the names of plugins, with "plugin" or "plugins" in front.

    >>> _plugins(["`a`"]), _plugins(["`a`", "`b`"])
    ('plugin `a`', 'plugins `a` and `b`')
    """
    listed = list(names)
    return f"plugin{'s' if len(listed) > 1 else ''} {' and '.join(listed)}"


def claims_by_point(
    axes: Axes, results: Sequence[Result]
) -> Mapping[Key, Sequence[tuple[Expectation, bool]]]:
    """Return every claim at every evaluated point, and whether it is met there."""
    found = {}
    for result in results:
        for i in range(point_count(result)):
            swept = {name: value_at(values, i) for name, values in result.study.axes}
            claims = [(claim, bool(value_at(claim.holds, i))) for claim in result.expectations]
            found[key_of({**result.at, **swept}, axes)] = claims
    return found


def key_of(point: Mapping[str, Any], axes: Axes) -> Key:
    """Return the key of a point: its swept values, as text."""
    return tuple(str(point[name]) for name, _ in axes)
