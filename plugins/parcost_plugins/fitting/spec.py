"""A fabric as the text of a .par file, with the log that it came from as provenance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen

from parcost.render.escapes import visible


@frozen(kw_only=True, eq=False)
class Level:
    """A level to be written: a line, or the points of a curve (bytes, seconds)."""

    name: str
    size: int  # units of the level below; 0 leaves it out
    unit: str
    latency: float
    bandwidth: float
    points: Sequence[tuple[float, float]] = ()


def fabric(name: str, levels: Iterable[Level], source: str, notes: Iterable[str]) -> str:
    """Return the text of a fabric block."""
    lines = [*(f"# {note}" for note in notes), f"fabric {name} {{"]
    for level in levels:
        lines += [f"  {line}" for line in _level(level, source)]
    return "\n".join([*lines, "}"]) + "\n"


def _level(level: Level, source: str) -> list[str]:
    told = visible(source.replace('"', "'").replace("\n", " "))
    lines = [f'level {level.name} @measured("{told}") {{']
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
