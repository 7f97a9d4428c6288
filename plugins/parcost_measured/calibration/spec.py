"""Fitted constants as text of a .par file, with the measurements as provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from parcost.language.writer import block_lines, provenance
from parcost_measured.calibration.constants import Constant


@frozen(kw_only=True, eq=False)
class SpecLevel:
    """A level to write: a line (latency and bandwidth), or points of a curve (bytes, seconds)."""

    name: str
    size: int  # units of the level below; 0 leaves it out
    unit: str
    latency: float
    bandwidth: float
    source: str
    points: Sequence[tuple[float, float]] = ()


@frozen(kw_only=True)
class SpecEntry:
    """A fitted constant to write: its value and its provenance."""

    constant: Constant
    value: float
    kind: str  # of provenance
    source: str


def interval_text(low: float, high: float, early: float, late: float) -> str:
    """Return the 90 % confidence intervals of a link as text, for its provenance."""
    return (
        f"; 90 % interval {low / 1e9:.4g} to {high / 1e9:.4g} GB/s and "
        f"{early * 1e6:.4g} to {late * 1e6:.4g} us"
    )


def fabric(name: str, levels: Iterable[SpecLevel], notes: Iterable[str]) -> str:
    """Return the text of a fabric block."""
    inner = [line for level in levels for line in _level(level)]
    return "\n".join(
        [*(f"# {note}" for note in notes), *block_lines(f"fabric {name}", (), inner), ""]
    )


def blocks(name: str, entries: Sequence[SpecEntry]) -> str:
    """Return catalogue blocks with the fitted values of constants.

    Each extends a block of the catalogue, and is called NAME_LABEL after it. A device with fitted
    attention rates refers to the table of these rates.
    """
    texts: list[str] = []
    imports: dict[str, None] = {}
    tables: dict[str, dict[str, dict[str, list[SpecEntry]]]] = {}
    devices: dict[str, list[SpecEntry]] = {}
    refers: dict[str, str] = {}
    frameworks: dict[str, list[SpecEntry]] = {}
    fabrics: dict[str, dict[str, list[SpecEntry]]] = {}
    for entry in entries:
        constant = entry.constant
        match constant.kind.block:
            case "head_rate":
                table, _, kernel = constant.inside.partition(".")
                rates_of = tables.setdefault(table, {}).setdefault(kernel, {})
                rates_of.setdefault(constant.label, []).append(entry)
                for device in constant.of:
                    devices.setdefault(device, [])
                    refers[device] = table
            case "device":
                for device in constant.of:
                    devices.setdefault(device, []).append(entry)
            case "framework":
                for label in constant.of:
                    frameworks.setdefault(label, []).append(entry)
            case _:
                inside = fabrics.setdefault(constant.inside, {})
                inside.setdefault(constant.label, []).append(entry)
    for table, kernels in tables.items():
        imports[f"attention_tables.{table}"] = None
        inner = [
            line
            for kernel, heads in kernels.items()
            for line in block_lines(
                f"attention_kernel {kernel}", inner=_block_texts("head_rate", heads)
            )
        ]
        texts.append(_block("attention_table", name, table, inner=inner))
    for device, found in devices.items():
        imports[f"devices.{device}"] = None
        values = [*map(_attribute, found)]
        if device in refers:
            own = provenance("measured", "its own table")
            values.append(("attention", f"{name}_{refers[device]}{own}"))
        texts.append(_block("device", name, device, values))
    for label, found in frameworks.items():
        imports[f"frameworks.{label}"] = None
        texts.append(_block("framework", name, label, map(_attribute, found)))
    for label, inside in fabrics.items():
        imports[f"fabrics.{label}"] = None
        texts.append(_block("fabric", name, label, inner=_block_texts("level", inside)))
    uses = "".join(f"use catalog.{one}\n" for one in sorted(imports))
    return "\n".join([uses, *texts]) if uses else ""


def _block_texts(kind: str, values: Mapping[str, Iterable[SpecEntry]]) -> list[str]:
    """Return the lines of a block of that *kind* for each label."""
    return [
        line
        for label, found in values.items()
        for line in block_lines(f"{kind} {label}", map(_attribute, found))
    ]


def _block(
    kind: str,
    name: str,
    label: str,
    values: Iterable[tuple[str, str]] = (),
    inner: Iterable[str] = (),
) -> str:
    heading = f"{kind} {name}_{label} extends {label}"
    return "\n".join([*block_lines(heading, values, inner), ""])


def _attribute(entry: SpecEntry) -> tuple[str, str]:
    value = entry.constant.text(entry.value)
    return entry.constant.kind.attribute, f"{value}{provenance(entry.kind, entry.source)}"


def _level(level: SpecLevel) -> list[str]:
    values = [("size", f"{level.size} {level.unit}")] if level.size else []
    if level.points:
        points = ", ".join(f"[{_bytes(size)}, {_time(time)}]" for size, time in level.points)
        values.append(("bandwidth", f"curve({points}) per_direction"))
    else:
        values.append(("bandwidth", f"{level.bandwidth / 1e9:.6g} GB/s per_direction"))
    values.append(("latency", _time(level.latency)))
    return block_lines(f"level {level.name}{provenance('measured', level.source)}", values)


def _bytes(size: float) -> str:
    for scale, unit in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if size >= scale and size % scale == 0:
            return f"{size / scale:g} {unit}"
    return f"{size:.9g} B"


def _time(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= scale:
            return f"{seconds / scale:.6g} {unit}"
    return f"{seconds / 1e-6:.6g} us"
