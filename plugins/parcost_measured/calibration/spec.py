"""Fitted constants as text of a .par file, with the measurements as provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from parcost.language.escapes import escape_line
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
    lines = [*(f"# {note}" for note in notes), f"fabric {name} {{"]
    for level in levels:
        lines += [f"  {line}" for line in _level(level)]
    return "\n".join([*lines, "}"]) + "\n"


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
        inner: list[str] = []
        for kernel, heads in kernels.items():
            rates = [
                line
                for head, found in heads.items()
                for line in _nested_lines(f"head_rate {head}", _lines(found, 3), 2)
            ]
            inner += _nested_lines(f"attention_kernel {kernel}", rates, 1)
        texts.append(_block("attention_table", name, table, inner))
    for device, found in devices.items():
        imports[f"devices.{device}"] = None
        more = []
        if device in refers:
            more.append(("attention", f'{name}_{refers[device]} @measured("its own table")'))
        texts.append(_block("device", name, device, _lines(found, 1, more)))
    for label, found in frameworks.items():
        imports[f"frameworks.{label}"] = None
        texts.append(_block("framework", name, label, _lines(found, 1)))
    for label, inside in fabrics.items():
        imports[f"fabrics.{label}"] = None
        inner = []
        for level, found in inside.items():
            inner += _nested_lines(f"level {level}", _lines(found, 2), 1)
        texts.append(_block("fabric", name, label, inner))
    uses = "".join(f"use catalog.{one}\n" for one in sorted(imports))
    return "\n".join([uses, *texts]) if uses else ""


def _block(kind: str, name: str, label: str, inner: Iterable[str]) -> str:
    return "\n".join([f"{kind} {name}_{label} extends {label} {{", *inner, "}"]) + "\n"


def _lines(
    found: Sequence[SpecEntry], depth: int, more: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """Return attributes as text, one per line, with aligned values."""
    pairs = [*((e.constant.kind.attribute, _value(e)) for e in found), *more]
    width = max(len(name) for name, _ in pairs)
    return [f"{'  ' * depth}{name.ljust(width)} = {value}" for name, value in pairs]


def _nested_lines(heading: str, inner: Sequence[str], depth: int) -> list[str]:
    indent = "  " * depth
    return [f"{indent}{heading} {{", *inner, f"{indent}}}"]


def _value(entry: SpecEntry) -> str:
    source = escape_line(entry.source.replace('"', "'").replace("\n", " "))
    return f'{entry.constant.text(entry.value)} @{entry.kind}("{source}")'


def _level(level: SpecLevel) -> list[str]:
    source = escape_line(level.source.replace('"', "'").replace("\n", " "))
    lines = [f'level {level.name} @measured("{source}") {{']
    if level.size:
        lines.append(f"  size      = {level.size} {level.unit}")
    if level.points:
        points = ", ".join(f"[{_bytes(size)}, {_time(time)}]" for size, time in level.points)
        lines.append(f"  bandwidth = curve({points}) per_direction")
    else:
        lines.append(f"  bandwidth = {level.bandwidth / 1e9:.6g} GB/s per_direction")
    lines.append(f"  latency   = {_time(level.latency)}")
    return [*lines, "}"]


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
