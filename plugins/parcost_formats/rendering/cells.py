"""Text of cells, shares and notes, the same on every page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parcost.language.numbers import quantity
from parcost_formats.rendering.columns import column

if TYPE_CHECKING:
    from parcost.contract.plugin import PluginSet
    from parcost.report.report import Report


def cell(value: Any) -> str:
    """Return the text of one cell; a pair is a number and its unit.

    >>> cell("x"), cell((0.25, "s")), cell(4.0)
    ('x', '250 ms', '4')
    """
    match value:
        case str():
            return value
        case (number, str(unit)):
            return quantity(number, unit)
        case list() | tuple():
            return f"[{', '.join(map(cell, value))}]"
    return quantity(value)


def cells(values: Sequence[Any]) -> list[str]:
    """Return the texts of the cells of one column; bytes have units of one kind.

    >>> cells([(2**30, "B"), (25e6, "B"), "-"])
    ['1 GiB', '23.84 MiB', '-']
    """
    bytes_ = [value[0] for value in values if _in_bytes(value)]
    if len(bytes_) < 2:
        return [cell(value) for value in values]
    spelled = iter(column(bytes_, "B"))
    return [next(spelled) if _in_bytes(value) else cell(value) for value in values]


def _in_bytes(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[1] == "B"


def share(part: Any, whole: Any) -> str:
    """Return *part* of *whole* in percent, without the sign.

    >>> share(1.0, 8.0), share(8.0, 8.0)
    ('12.5', '100')
    """
    if not whole:
        return "-"
    return "100" if part == whole else f"{100 * part / whole:.1f}"


def axis_value(report: Report, name: str, value: Any) -> str:
    """Return the value of the axis *name* at a point, with its unit."""
    unit = report.units.get(name, "")
    return quantity(value, unit) if unit else cell(value)


def plugin_note(plugins: PluginSet) -> str:
    """Return a suffix for a verdict, with the names of third-party and excluded plugins, or ""."""
    installed = [
        str(plugin)
        for plugin in plugins.foreign
        if plugin.distribution and plugin.distribution not in plugins.files
    ]
    outside = ", ".join([*installed, *plugins.files])
    files = f"; with: {outside}" if outside else ""
    return files + (f"; without: {', '.join(plugins.left_out)}" if plugins.left_out else "")
