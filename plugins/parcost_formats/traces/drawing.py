"""The activity of every device over time, drawn as text.

One line per device; the width of a pass is proportional to its time, and idle time is dots. If the
whole does not fit, the middle is left out: schedules differ in how a pipeline fills and drains. If
a device then has no pass, lines are groups of devices, and the whole step fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from parcost import ops_of
from parcost.contract.page import Column, Heading, Item, Line, Row, Table
from parcost.contract.pipelines import Activity, Op, Pair
from parcost.language.numbers import quantity
from parcost_formats.rendering.cells import cell

if TYPE_CHECKING:
    from parcost.contract.traces import StepTrace

_CUT = " ~~ "
_MARGIN = 2  # of the page
_CHUNKS = "abcdefghijklmnopqrstuvwxyz"
_ROWS, _MOST = 16, 64  # groups of devices, and devices with a line each
_PASS = re.compile(r"[FBW]\d?")
_DIGITS = 9  # of a share that is a difference of sums
_KEY = {
    "F": "F forward",
    "B": "B backward",
    "BW": "B backward",
    "W": "W weight gradients",
}


def page(trace: StepTrace, width: int) -> Iterator[Item]:
    """Yield the timeline of *trace* under its title, for a page *width* in characters."""
    at = ", ".join(f"{key} = {cell(value)}" for key, value in trace.at.items())
    part = f": {trace.part}" if trace.part else ""
    yield Heading(f"{trace.name}{part}, {at}" if at else f"{trace.name}{part}", 1, aside=trace.path)
    yield from device_items(trace, width)


def device_items(trace: StepTrace, width: int) -> Iterator[Item]:
    """Yield the lines of a pipeline's devices, and a table of their phases."""
    devices, cut = trace.activities(), trace.pipeline
    end = max(device[-1].end for device in devices)
    chunks = f", {cut.chunks} chunks each" if cut.chunks > 1 else ""
    yield Line(
        f"{cut.schedule} on {cut.stages} pipeline device{'s' * (cut.stages > 1)}{chunks}, "
        f"{cut.micro_batches:g} micro-batch{'es' * (cut.micro_batches != 1)}: {quantity(end, 's')}"
        "; optimizer step and gradient reduction not shown"
    )
    lines = [*draw(devices[:_MOST], width - _MARGIN)]
    size = 1
    hidden = any(_CUT in text and not _PASS.search(text) for text in lines)
    if grouped := len(devices) > _MOST or hidden:
        size = -(-len(devices) // _ROWS)
        lines = [*draw_groups(devices, width - _MARGIN, size)]
    for text in lines:
        yield Line(text)
    if grouped:
        kinds = _legend(devices).replace(", number: micro-batch", "")
        each = f"{size} devices" if size > 1 else "its device"
        yield Line(
            f"Each column shows the pass that takes most of the time of {each}: {kinds}", "faint"
        )
        some = f"{len(devices) - len(lines)} of {len(devices)} devices and " if size > 1 else ""
        yield Line(f"The table leaves {some}the numbers of passes out: see --format json", "faint")
    else:
        yield Line(f"{_legend(devices)}. {_unit(devices)}", "faint")
    if any(_CUT in text for text in lines):
        text = "the middle is not shown; set COLUMNS to a larger width to see more"
        yield Line(f"{_CUT.strip()}: {text}", "faint")
    yield Line("warm-up, steady, drain: passes; in flight: peak number of micro-batches", "faint")
    yield _phases(trace, end, range(0, len(devices), size))


def draw(devices: Sequence[Sequence[Activity]], width: int) -> Iterator[str]:
    """Yield a line for each device, at most *width* long if possible.

    >>> f, b = Activity(Op("F", 0, 0), 0.0, 1.0), Activity(Op("BW", 0, 0), 2.0, 4.0)
    >>> list(draw([[f, b]], 40))
    ['device 0  F0 ...B0---']
    """
    columns, rows = _rows(devices)
    labels = [
        f"device {d}".ljust(len(f"device {len(devices) - 1}")) + "  " for d in range(len(rows))
    ]
    room = width - len(labels[0])
    for label, row in zip(labels, rows, strict=True):
        if columns <= room:
            yield label + row.rstrip()
            continue
        right = max((room - len(_CUT)) * 2 // 5, 1)
        left = max(room - len(_CUT) - right, 1)
        yield label + row[:left] + _CUT + row[-right:].rstrip()


def draw_groups(devices: Sequence[Sequence[Activity]], width: int, size: int) -> Iterator[str]:
    """Yield a line for each *size* devices: in a column, the passes that take most of its time.

    >>> f, b = Activity(Op("F", 0, 0), 0.0, 2.0), Activity(Op("BW", 0, 0), 4.0, 8.0)
    >>> list(draw_groups([[f, b], [f, b]], 21, 2))
    ['devices 0-1  FF..BBBB']
    """
    end = max(device[-1].end for device in devices)
    groups = [devices[d : d + size] for d in range(0, len(devices), size)]
    names = [f"devices {i * size}-{i * size + len(one) - 1}" for i, one in enumerate(groups)]
    widest = max(map(len, names)) + 2
    columns = max(width - widest, 1)
    step = end / columns or 1.0
    for name, group in zip(names, groups, strict=True):
        taken: list[dict[str, float]] = [{} for _ in range(columns)]
        for activity in (a for device in group for a in device):
            sign = "+" if isinstance(activity.op, Pair) else activity.op.kind[0]
            for i in range(int(activity.start / step), min(int(activity.end / step) + 1, columns)):
                inside = min(activity.end, (i + 1) * step) - max(activity.start, i * step)
                taken[i][sign] = taken[i].get(sign, 0.0) + max(inside, 0.0)
        row = [
            max(one, key=one.__getitem__) if 2 * sum(one.values()) >= len(group) * step else "."
            for one in taken
        ]
        yield name.ljust(widest) + "".join(row).rstrip()


def _rows(devices: Sequence[Sequence[Activity]]) -> tuple[int, list[str]]:
    end = max(device[-1].end for device in devices)
    scale = _column(devices)
    columns = round(end / scale)
    rows = []
    for device in devices:
        row = ["."] * columns
        places = _places(device)
        for activity in device:
            first, last = round(activity.start / scale), round(activity.end / scale)
            text = _text(activity.op, places)[: last - first]
            row[first:last] = text.ljust(last - first - 1, "-").ljust(last - first)
        rows.append("".join(row))
    return columns, rows


def _column(devices: Sequence[Sequence[Activity]]) -> float:
    """Return the seconds per character, so that the name of the shortest pass fits."""
    taken = [a.end - a.start for device in devices for a in device if a.end > a.start]
    if not taken:
        return 1.0
    longest = max(max(a.end for a in device) for device in devices)
    names = max(len(_text(a.op, _places(device))) for device in devices for a in device[:1])
    most = max(op.micro_batch for device in devices for a in device for op in ops_of(a.op))
    each = names - 1 + len(str(most)) + 1
    return float(max(min(taken) / each, longest / 4000))


def _text(op: Op | Pair, places: dict[int, str]) -> str:
    return "+".join(f"{o.kind[0]}{o.micro_batch}{places[o.stage]}" for o in ops_of(op))


def _places(device: Sequence[Activity]) -> dict[int, str]:
    """Return a letter for each virtual stage of a device with several, else ""."""
    held = sorted({op.stage for activity in device for op in ops_of(activity.op)})
    letters = _CHUNKS if 1 < len(held) <= len(_CHUNKS) else [""] * len(held)
    return dict(zip(held, letters, strict=False))


def _legend(devices: Sequence[Sequence[Activity]]) -> str:
    kinds = {op.kind for device in devices for a in device for op in ops_of(a.op)}
    said = list(dict.fromkeys(_KEY[kind] for kind in ("F", "B", "BW", "W") if kind in kinds))
    said.append("number: micro-batch")
    if any(len(_places(device)) > 1 for device in devices):
        said.append("letter: stage on the device")
    if any(isinstance(a.op, Pair) for device in devices for a in device):
        said.append("+: two passes at once")
    return ", ".join([*said, "dots: idle"])


def _unit(devices: Sequence[Sequence[Activity]]) -> str:
    return f"One column is {quantity(_column(devices), 's')}"


def _phases(trace: StepTrace, end: float, shown: Sequence[int]) -> Table:
    """Return a table of warm-up, steady state and drain of the devices *shown*, in passes.

    The steady state begins with the forward pass before the first backward pass. It ends with the
    backward pass after the last forward pass. Without it all forward passes are warm-up, as in
    GPipe.
    """
    head = ("device", "stages", "warm-up", "steady", "drain", "idle", "in flight")
    rows = []
    devices = trace.activities()
    for d in shown:
        device = devices[d]
        kinds = [{op.kind for op in ops_of(a.op)} for a in device]
        first = next(i for i, kind in enumerate(kinds) if kind != {"F"})
        last = len(kinds) - next(i for i, kind in enumerate(reversed(kinds)) if "F" in kind)
        if last > first:
            first, last = first - 1, last + 1
        busy = sum(a.end - a.start for a in device)
        counts = (first, last - first, len(kinds) - last)
        share = round(1 - busy / end, _DIGITS) + 0.0 if end else 0.0  # + 0.0: no -0
        idle = quantity(share, "%", 3)
        held = ", ".join(map(str, trace.held[d]))
        cells = (str(d), held, *map(str, counts), idle, str(trace.alive[d]))
        rows.append(Row(cells))
    return Table([Column(title, "left" if title == "stages" else "right") for title in head], rows)


def data(trace: StepTrace) -> dict[str, Any]:
    """Return the passes of each device as plain data."""
    part = {"pipeline": trace.part} if trace.part else {}
    devices = [
        [
            {
                "passes": [
                    {"kind": op.kind, "micro_batch": op.micro_batch, "stage": op.stage}
                    for op in ops_of(activity.op)
                ],
                "start_seconds": activity.start,
                "end_seconds": activity.end,
            }
            for activity in device
        ]
        for device in trace.activities()
    ]
    found = {"study": trace.name, "path": trace.path, "at": dict(trace.at)}
    return {**found, **part, "devices": devices}
