"""Failures of plugins, as lines of a report."""

from __future__ import annotations

from collections.abc import Iterable

from parcost.contract.plugin import Fault
from parcost.report.result import Result

#: Hooks of rules: without an answer of each, a study is not checked.
RULES = ("checks", "outcome_checks")
_SHOWN = (  # beside the step
    "figures",
    "details",
    "missing_figures",
    "sections",
    "views",
    "exporters",
)


def fault_line(fault: Fault) -> str:
    """Return the line for a failed plugin."""
    return f"incomplete: {fault}"


def fault_lines(result: Result) -> list[str]:
    """Return a line for each failed plugin, whose contributions the report lacks."""
    return [fault_line(fault) for fault in result.faults]


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
