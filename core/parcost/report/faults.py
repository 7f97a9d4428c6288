"""Plugins that failed, as lines of a report."""

from __future__ import annotations

from parcost.contract.plugin import Fault
from parcost.report.result import Result


def fault_line(fault: Fault) -> str:
    """Return that a plugin failed."""
    return f"incomplete: {fault}"


def fault_lines(result: Result) -> list[str]:
    """Return a line for each plugin that failed, whose part the report lacks."""
    return [fault_line(fault) for fault in result.faults]
