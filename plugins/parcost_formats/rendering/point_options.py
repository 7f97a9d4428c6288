"""The command-line options that select one point of a sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from parcost.binding.conversion import qualifier
from parcost.contract.schema import block_name, block_type, inner_blocks
from parcost.language import units
from parcost.language.numbers import literal
from parcost.numeric import is_array
from parcost_formats.rendering.cells import cell

if TYPE_CHECKING:
    from parcost.contract.study import Study
    from parcost.report.report import Report


def point_options(report: Report) -> str:
    """Return the command-line options that select one point of a sweep."""
    options = [f"--set {shlex.quote(setting)}" for setting in settings(report)]
    lets = [
        f"one value of `{name}` in the file" for name, _ in report.axes if not _is_set(report, name)
    ]
    return " and ".join(filter(None, [" ".join(options), *lets]))


def settings(report: Report) -> list[str]:
    """Return the settings that select the first valid point of a swept scenario.

    A sweep in a `let`, or inside an expression, is omitted, because no path leads to it.
    """
    points = report.rows()
    point = next((p for p in points if p["feasible"]), points[0])
    names = [name for name, _ in report.axes if _is_set(report, name)]
    return [_setting(report, name, point[name]) for name in names]


def _is_set(report: Report, name: str) -> bool:
    """Return whether a path leads to the swept value, and it is the whole of its attribute."""
    owner, _, attribute = name.rpartition(".")
    for _, block in _blocks(report.results[0].study):
        type_ = block_type(type(block))
        if owner in (block.label, type_.kind) and attribute in type_.fields:
            field = type_.fields[attribute]
            plain = field.kind != "quantity" or field.dimension == units.ONE
            return plain or bool(report.units.get(name, ""))
    return bool(owner)


def _setting(report: Report, name: str, value: Any) -> str:
    """Return ``path=value`` for an axis, as `--set` takes it."""
    owner, _, attribute = name.rpartition(".")
    path, word = name, ""
    for within, block in _blocks(report.results[0].study):
        type_ = block_type(type(block))
        if owner in (block.label, type_.kind) and attribute in type_.fields:
            path, word = f"{within}{name}", qualifier(type_.fields[attribute])
            if is_array(getattr(block, attribute)):
                break  # of several blocks with this label, the one that sweeps
    if isinstance(value, (bool, str, list)) or value is None:
        return f"{path}={cell(value)}"
    unit = report.units.get(name, "")
    return f"{path}={literal(float(value), units.unit(unit)[1] if unit else units.ONE)}{word}"


def _blocks(study: Study) -> Iterator[tuple[str, Any]]:
    """Yield every block with the prefix of its path; inner blocks have their outer block's name."""
    for blocks in study.blocks.values():
        for block in blocks:
            yield "", block
            yield from ((f"{block_name(block)}.", inner) for inner in inner_blocks(block))
