"""Readers of collective timings: text or JSON of nccl-tests, or plain columns.

The text of nccl-tests differs between versions. Some operations have no reduction columns, and
errors are ``0e+00`` or ``N/A``. Output of launchers and libraries may be between the rows. A file
may have several tables. In all versions a row starts with a size in bytes, a count and a type. The
next three numbers are microseconds, algorithm bandwidth and bus bandwidth. Other lines are skipped.

Before version 2.18 a log does not name its collective. If the ranks are known, the ratio of the two
bandwidths identifies the collective, unless several have this ratio.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from parcost import record

_TYPES = "u?int8|u?int32|u?int64|half|float16|bfloat16|float|double|f8e4m3|f8e5m2|fp8_e4m3|fp8_e5m2"
_ROW = re.compile(
    rf"(?:^|\s|>|:|\])(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>{_TYPES})\s+"
    r"(?:(?P<redop>sum|prod|min|max|avg|all|mulsum|none)\s+(?P<root>-?\d+)\s+)?"
    r"(?P<time>-?\d+(?:\.\d+)?)\s+(?P<algbw>\d+(?:\.\d+)?)\s+(?P<busbw>\d+(?:\.\d+)?)"
    r"(?:\s+(?P<wrong>\d+)(?=\s|$))?"
)
_LONGEST_LINE = 10_000
_LONGEST_NUMBER = 24  # characters
_MALFORMED = (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError)
_HEAD = re.compile(r"#\s+size\s+count\s+type")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s.*?\son\s+(\S+)\s+device\s+\d+\s+\[\S+\]\s*(.*?)\s*$")
_STARTING = re.compile(r"Collective test starting:\s*(\w+)")
_COMMAND = re.compile(r"\b(\w+)_perf\b")
_OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "scatter": "scatter",
    "gather": "gather",
    "sendrecv": "point_to_point",
}


@record(kw_only=True, eq=False)
class Timings:
    """One table: buffer *sizes* in bytes, and *seconds* per call.

    *operation*, *ranks* and *nodes* are "" or 0 if the log does not state them. The table is at
    *start* to *end* of the text.
    """

    sizes: Sequence[float]
    seconds: Sequence[float]
    operation: str = ""
    ranks: int = 0
    nodes: int = 0
    device: str = ""
    factor: float = 0.0  # bus bandwidth over algorithm bandwidth, 0 where it is not printed
    start: int = 0
    end: int = 0


class UnreadableError(ValueError):
    """Error: a file has no timings."""


def read(text: str) -> list[Timings]:
    """Return the tables of *text*.

    Raises:
        UnreadableError: The text has no table.
    """
    stripped = text.lstrip("\ufeff \t\r\n")
    if stripped.startswith("{"):
        return [_read_json(stripped)]
    found = list(_read_log(text)) or list(_read_columns(text))
    if not found:
        message = (
            "no timings: neither rows of nccl-tests (size, count, type, ... time, algbw, "
            "busbw), nor its JSON, nor two columns of size and time with their units"
        )
        raise UnreadableError(message)
    return found


def has_row(text: str) -> bool:
    """Return whether any line is a row of nccl-tests."""
    return any(len(line) <= _LONGEST_LINE and _ROW.search(line) for line in text.splitlines())


def _read_log(text: str) -> Iterator[Timings]:
    operation, device = "", ""
    hosts: dict[int, str] = {}
    rows: list[tuple[float, float, float]] = []
    start = end = after = 0
    for line in text.splitlines(keepends=True):
        at, after = after, after + len(line)
        if len(line) > _LONGEST_LINE:  # no row, and long to search
            continue
        if match := _STARTING.search(line) or (not operation and _COMMAND.search(line)):
            operation = _operation(match.group(1)) or operation
        if match := _RANK.search(line):
            if rows:
                yield _table(rows, operation, hosts, device, (start, end))
                rows, hosts = [], {}
            hosts[int(match.group(1))] = match.group(2)
            device = match.group(3)
        elif _HEAD.search(line) and rows:
            yield _table(rows, operation, hosts, device, (start, end))
            rows = []
        elif match := _ROW.search(line):
            _check_numbers(match)
            if int(match["wrong"] or 0):
                message = f"{match['wrong']} elements are wrong at {match['size']} B"
                raise UnreadableError(f"{message}: the collective failed there")
            time, algbw, busbw = (float(match.group(n)) for n in ("time", "algbw", "busbw"))
            ratio = busbw / algbw if algbw >= 1.0 else 0.0  # printed to 0.01, so inexact
            start, end = (start if rows else at), at + len(line.rstrip())
            rows.append((float(match.group("size")), time * 1e-6, ratio))
    if rows:
        yield _table(rows, operation, hosts, device, (start, end))


def _check_numbers(row: re.Match[str]) -> None:
    """Raise UnreadableError if a number has more digits than nccl-tests prints."""
    for name in ("size", "time", "algbw", "busbw", "wrong"):
        text = row[name] or ""
        if len(text) > _LONGEST_NUMBER:
            raise UnreadableError(f"{name}: {text[:12]}... has {len(text):,} digits")


def _table(
    rows: Sequence[tuple[float, float, float]],
    operation: str,
    hosts: Mapping[int, str],
    device: str,
    place: tuple[int, int],
) -> Timings:
    kept = _nonempty_rows([(size, seconds) for size, seconds, _ in rows])
    if not kept:
        raise UnreadableError("the table has no row with a size and a time")
    ratios = [ratio for _, _, ratio in rows if ratio]
    return Timings(
        sizes=[size for size, _ in kept],
        seconds=[seconds for _, seconds in kept],
        operation=operation,
        ranks=len(hosts),
        nodes=len(set(hosts.values())),
        device=device,
        factor=_median(ratios),
        start=place[0],
        end=place[1],
    )


def _median(ratios: Sequence[float]) -> float:
    """Return the median of ratios; 0 if there are none."""
    return sorted(ratios)[len(ratios) // 2] if ratios else 0.0


def _nonempty_rows(rows: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the rows with a size above zero; times of empty calls are not meaningful."""
    for size, seconds in rows:
        if not isfinite(size) or not isfinite(seconds):
            raise UnreadableError(f"a row has no finite numbers: {size:g} B, {seconds:g} s")
        if seconds < 0:
            raise UnreadableError(f"a time is negative: {seconds * 1e6:g} us at {size:g} B")
    return [(size, seconds) for size, seconds in rows if size > 0 and seconds > 0]


def _read_json(text: str) -> Timings:
    try:
        document = json.loads(text)
        results = document["results"]
        times = [float(row["out_of_place"]["time"]) * 1e-6 for row in results]
        sizes = [float(row["size"]) for row in results]
        devices = document.get("devices", [])
        command = str(next(iter(document.get("args", [])), ""))
        ranks = len({d["rank"] for d in devices})
        nodes = len({d["hostname"] for d in devices})
        device = str(devices[0]["device_info"]) if devices else ""
        calls = [row["out_of_place"] for row in results]
        faulty = sum(int(call.get("nwrong") or 0) for call in calls)
        widths = [(call.get("alg_bw"), call.get("bus_bw")) for call in calls]
        ratios = [float(bus) / float(alg) for alg, bus in widths if alg and bus and alg >= 1.0]
    except (*_MALFORMED, RecursionError) as error:
        message = f"not the JSON that nccl-tests writes: {error}"
        raise UnreadableError(message) from error
    if faulty:
        raise UnreadableError(f"{faulty} elements are wrong: the collective failed")
    rows = _nonempty_rows(list(zip(sizes, times, strict=True)))
    if not rows:
        raise UnreadableError("the JSON has no result with a size and a time")
    match = _COMMAND.search(command)
    return Timings(
        sizes=[size for size, _ in rows],
        seconds=[seconds for _, seconds in rows],
        operation=_operation(match.group(1)) if match else "",
        ranks=ranks,
        nodes=nodes,
        device=device,
        factor=_median(ratios),
    )


_SIZES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_SIZES |= {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_COLUMN = re.compile(r"^\s*([\d.eE+]+)\s*([A-Za-z]*)\s*[,;\t ]\s*([\d.eE+-]+)\s*([A-Za-zµ]*)\s*$")


def _read_columns(text: str) -> Iterator[Timings]:
    """Parse rows such as ``1 MiB, 85.6 us``, or numbers under ``size_bytes,time_us``."""
    unit, rows = "", []
    for line in text.splitlines():
        if len(line) > _LONGEST_LINE:
            continue
        if header := re.search(r"(?:time|seconds)\w*?_(s|ms|us|ns)\b|\b(seconds)\b", line.lower()):
            unit = header.group(1) or "s"
            continue
        if not (match := _COLUMN.match(line)):
            continue
        size, size_unit, time, time_unit = match.groups()
        scale, second = _SIZES.get(size_unit.lower()), _TIMES.get(time_unit.lower() or unit)
        if scale is None or second is None:
            continue
        try:
            row = float(size) * scale, float(time) * second
        except ValueError:
            continue
        rows.append(row)
    if kept := _nonempty_rows(rows):
        yield Timings(sizes=[size for size, _ in kept], seconds=[time for _, time in kept])


def _operation(name: str) -> str:
    return _OPERATIONS.get(name.lower().removesuffix("_perf"), "")


def bus_factor(operation: str, ranks: int) -> float:
    """Return bus bandwidth / (size / time), as defined by nccl-tests for any algorithm.

    >>> bus_factor("all_reduce", 16), bus_factor("all_to_all", 8), bus_factor("broadcast", 8)
    (1.875, 0.875, 1.0)
    """
    if operation == "all_reduce":
        return 2.0 * (ranks - 1) / ranks
    if operation in ("broadcast", "reduce", "point_to_point"):
        return 1.0
    return (ranks - 1) / ranks


def guess(timings: Timings, ranks: int) -> list[str]:
    """Return the operations whose ratio of bandwidths over *ranks* matches the table.

    >>> guess(Timings(sizes=[1.0], seconds=[1.0], factor=1.875), 16)
    ['all_reduce']
    """
    if not timings.factor or ranks < 2:
        return []
    names = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
    factors = {name: bus_factor(name, ranks) for name in names}
    return [name for name, f in factors.items() if abs(f / timings.factor - 1.0) < 0.02]
