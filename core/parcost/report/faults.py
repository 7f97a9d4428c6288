"""Failures of plugins, as lines of a report."""

from __future__ import annotations

from parcost.contract.plugin import Fault
from parcost.report.result import Result

#: Hooks of rules: without an answer of each, a study is not checked.
RULES = ("checks", "outcome_checks")


def fault_line(fault: Fault) -> str:
    """Return the line for a failed plugin."""
    return f"incomplete: {fault}"


def fault_lines(result: Result) -> list[str]:
    """Return a line for each failed plugin, whose contributions the report lacks."""
    return [fault_line(fault) for fault in result.faults]
