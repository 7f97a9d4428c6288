"""Logs of nccl-tests and rccl-tests: a ``fabric`` whose bandwidth is a measured curve.

A log has the time of a collective by its size. The fabric has the time of one message by its size.
The algorithm relates both: in an all-reduce, a ring has 2 (n - 1) rounds with messages of 1/n of
the size. ``parcost calibrate`` fits lines to logs for any algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from parcost import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportFile,
    Translation,
    hookimpl,
)
from parcost.language.writer import provenance
from parcost_formats.tools.file_importer import FileError, FileImporter
from parcost_formats.tools.tables import table
from parcost_plugins.vocabulary.collective_timings import (
    Timings,
    UnreadableError,
    guess,
    has_row,
    read,
)

TOOL = "nccl_tests"
FABRIC = "measured"
_MARKS = ("nccl-tests", "rccl-tests", "algbw", '"out_of_place"', "Collective test starting")
_HEAD = 65_536  # characters that are searched for a row
_UNITS = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))


class CollectiveLog(FileImporter):
    """Logs of nccl-tests."""

    name = TOOL
    title = str(table(TOOL)["title"])
    source = str(table(TOOL)["source"])

    def recognizes(self, name: str, text: str) -> bool:  # noqa: ARG002
        """Return whether the text has a table of nccl-tests."""
        return any(mark in text for mark in _MARKS) or has_row(text[:_HEAD])

    def read_file(self, file: ImportFile) -> Translation:
        """Return the fabric that a log measures."""
        name, text = file.name, file.text
        try:
            tables = read(text)
        except UnreadableError as error:
            raise FileError(str(error), 0, len(text)) from None
        problems = [problem for one in tables for problem in _problems(one, text)]
        problems = problems or _second_tables(tables, text)
        if problems:
            return Translation(problems=[one.problem() for one in problems])
        ordered = sorted(tables, key=lambda one: one.nodes > 1)
        levels = [_level(one, PurePath(name).name, text) for one in ordered]
        missing = _find_missing_level(ordered)
        ignored = [ImportedKey(name="in-place", reason="times of out-of-place calls are used")]
        devices = dict.fromkeys(one.device for one in ordered if one.device)
        for device in devices:
            at = text.find(device)
            ignored.append(
                ImportedKey(
                    name=device,
                    start=max(at, 0),
                    end=max(at, 0) + len(device),
                    reason="name the device of the catalogue: `use catalog.devices.NAME`",
                )
            )
        fabric = ImportedBlock(kind="fabric", label=FABRIC, blocks=levels)
        return Translation(blocks=[fabric], ignored=ignored, missing=missing)


def _place(one: Timings, text: str) -> tuple[int, int]:
    """Return the span of a table in the text; in JSON, of the key ``results``."""
    if one.end:
        return one.start, one.end
    at = max(text.find('"results"'), 0)
    return at, at + 1


def _problems(one: Timings, text: str) -> list[FileError]:
    """Return errors for missing data of a table: ranks, nodes or operation."""
    start, end = _place(one, text)
    calibrate = "`parcost calibrate LOG` has options for what a log does not state"
    if one.ranks < 2:
        message = "the log does not list the ranks that took part in this table"
        help = f"{calibrate}: --ranks; or add the lines `#  Rank  0 ... on HOST device ...`"
        return [FileError(message, start, end, help)]
    if one.ranks % max(one.nodes, 1):
        message = f"{one.ranks} ranks are not divisible by {one.nodes} nodes"
        return [FileError(message, start, end)]
    operations = [one.operation] if one.operation else guess(one, one.ranks)
    if len(operations) != 1:
        fit = ", ".join(f"`{name}`" for name in operations)
        why = (
            f"the ratio of its bus and algorithm bandwidths matches {fit}"
            if fit
            else "the ratio of its bus and algorithm bandwidths matches no collective"
        )
        message = f"the log does not name its collective, and {why}"
        help = f"add the line `# Collective test starting: NAME_perf` above, or {calibrate}"
        return [FileError(message, start, end, help)]
    known = tuple(table(TOOL)["algorithms"])
    if operations[0] not in known:
        message = f"`{operations[0]}` is sent in chunks, whose sizes a log does not have"
        help = f"a curve supports {', '.join(known)}; {calibrate}"
        return [FileError(message, start, end, help)]
    count, most = len(set(one.sizes)), table(TOOL)["limits"]["points"]
    if count > most:
        message = f"{count:,} sizes are more than the {most:,} of a curve"
        return [FileError(message, start, end)]
    return []


def _second_tables(tables: Sequence[Timings], text: str) -> list[FileError]:
    """Return errors for more than one table of a level; a fabric has one level in nodes and one
    between.
    """
    problems: list[FileError] = []
    levels: set[bool] = set()
    for one in tables:
        across = one.nodes > 1
        if across in levels:
            start, end = _place(one, text)
            where = "between nodes" if across else "inside of a node"
            message = f"the log has a second table of times {where}, but a fabric has one"
            help = "keep one of them, or `parcost calibrate LOG --table N`"
            problems.append(FileError(message, start, end, help))
        levels.add(across)
    return problems


def _level(one: Timings, name: str, text: str) -> ImportedBlock:
    """Return the fabric level that a table measures."""
    across = one.nodes > 1
    operation = one.operation or guess(one, one.ranks)[0]
    points = _messages(one, operation)
    start, end = _place(one, text)
    nodes = f", {one.nodes} nodes" if across else ""
    how = table(TOOL)["algorithms"][operation]
    source = f"{name}: {operation} over {one.ranks} ranks{nodes}, as {how}"
    curve = ", ".join(f"[{_bytes(size)}, {_time(time)}]" for size, time in points)
    place: dict[str, Any] = {"start": start, "end": end}
    settings = []
    if not across:
        settings.append(
            ImportedValue(name="size", value=f"{one.ranks} devices", key="Rank", **place)
        )
    bandwidth = f"curve({curve}) per_direction{provenance('measured', source)}"
    settings.append(ImportedValue(name="bandwidth", value=bandwidth, key="time", **place))
    settings.append(_latency(points, one))
    return ImportedBlock(
        kind="level", label="network" if across else "node", settings=tuple(settings)
    )


def _messages(one: Timings, operation: str) -> list[tuple[float, float]]:
    """Return (bytes, seconds) of one message, by size; repeated sizes are averaged.

    The ranks of a node share its ports, so a message between nodes has only one port's part.
    """
    rounds = table(TOOL)["rounds"].get(operation, 0) * (one.ranks - 1)
    parts = one.ranks if rounds else 1
    ports = one.ranks // one.nodes if one.nodes > 1 else 1
    times: dict[float, list[float]] = {}
    for size, seconds in zip(one.sizes, one.seconds, strict=True):
        times.setdefault(size / parts / ports, []).append(seconds / max(rounds, 1))
    return [(size, sum(of) / len(of)) for size, of in sorted(times.items())]


def _latency(points: Sequence[tuple[float, float]], one: Timings) -> ImportedValue:
    """Return the latency of a message."""
    usual = table(TOOL)["latency"]
    size, seconds = points[0]
    if size <= usual["largest"]:
        why = f"the time of the smallest message that was timed, {_bytes(size)}"
        return ImportedValue(name="latency", value=_time(seconds), assumption=why)
    inner = "amd" if one.device.startswith("AMD") else "node"
    entry = usual["network" if one.nodes > 1 else inner]
    why = f"the smallest message that was timed has {_bytes(size)}; {entry['source']}"
    return ImportedValue(name="latency", value=entry["value"], assumption=why)


def _find_missing_level(tables: Sequence[Timings]) -> list[ImportedKey]:
    """Return the missing level within a node, if the log has only times between nodes."""
    first = tables[0]
    if first.nodes < 2 or first.ranks == first.nodes:
        return []
    each = first.ranks // first.nodes
    why = (
        f"the log has {each} ranks in a node and no times inside a node: import such a log "
        f"first, or write `level node {{ size = {each} devices, bandwidth = ..., latency = ... }}`"
    )
    return [ImportedKey(name="level node", reason=why)]


def _bytes(size: float) -> str:
    for scale, unit in _UNITS:
        if size >= scale and size % scale == 0:
            return f"{size / scale:g} {unit}"
    return f"{size:.9g} B"


def _time(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.6g} {unit}"
    return f"{seconds / 1e-6:.6g} us"


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of logs of nccl-tests."""
    return [CollectiveLog()]
