"""Logs of collectives as fabric levels, fitted one by one and together."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen

from parcost.language.numbers import percent, quantity
from parcost_measured.calibration import links, spec
from parcost_measured.calibration.inputs import FieldError, TableRow, number, text
from parcost_measured.calibration.least_squares import FittedLine
from parcost_measured.validation.rows import Flaw
from parcost_plugins.vocabulary import collective_timings
from parcost_plugins.vocabulary.collective_timings import Timings

if TYPE_CHECKING:
    from parcost import Collective

_USUAL = ("ring", "pairwise", "direct")  # what libraries run, the first that does the operation
_CLOSE = 0.15  # largest relative error of a line that still tells how a link behaves
_APART = 1.25  # ratio of two bandwidths of one link from which logs contradict each other
OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "point_to_point",
)


@frozen(kw_only=True)
class Options:
    """The options for logs on the command line."""

    operation: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    ports: int | None = None
    algorithm: str | None = None
    table: int | None = None
    form: str = "auto"
    device: str = ""  # of logs that do not name theirs


@frozen(kw_only=True, eq=False)
class Log:
    """One table of timings, its collective and ranks, and the line fitted to it."""

    name: str
    timings: Timings
    operation: str
    algorithm: Any
    ranks: int
    nodes: int
    shared: int  # ports that a rank's messages leave a node through
    line: FittedLine


@frozen(kw_only=True, eq=False)
class NetworkLink:
    """A fabric level fitted to logs; *notes* are comments above it, *warnings* are printed."""

    level: spec.SpecLevel
    logs: Sequence[Log]
    notes: Sequence[str]
    warnings: Sequence[str]


def read(name: str, options: Options) -> Timings:
    """Return the timings of one log, or of the table chosen in it."""
    from parcost.system.files import LOG, decode, read_stdin, read_text

    content = decode(read_stdin(LOG), "<stdin>") if name == "-" else read_text(name, LOG)
    try:
        found = collective_timings.read(content)
    except collective_timings.UnreadableError as error:
        raise click.UsageError(f"{name}: {error}") from error
    table = options.table
    if table is None and len(found) > 1:
        raise click.UsageError(f"the log has {len(found)} tables; choose one with --table 1")
    if table is not None and table > len(found):
        raise click.UsageError(f"the log has {len(found)} tables, and no table {table}")
    return found[(table or 1) - 1]


def rows(placed: Iterable[TableRow | Flaw]) -> tuple[list[tuple[str, Timings]], list[Flaw]]:
    """Return the timings of a table with one row per size, and the flaws of rows."""
    flaws: list[Flaw] = []
    found: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for one in placed:
        if isinstance(one, Flaw):
            flaws.append(one)
            continue
        row = one.value
        try:
            operation = text(row, "collective")
            size = number(row, "message_bytes")
            seconds = number(row, "time_us") * 1e-6
            ranks, nodes = number(row, "ranks"), number(row, "nodes")
            device = str(row.get("gpu") or row.get("device") or "")
        except FieldError as error:
            flaws.append(one.flaw(str(error)))
            continue
        key = (one.file, operation, int(ranks), int(nodes), device)
        found.setdefault(key, []).append((size, seconds))
    tables_ = []
    for (file, operation, ranks, nodes, device), points in found.items():
        ordered = sorted(points)
        timings = Timings(
            sizes=[size for size, _ in ordered],
            seconds=[time for _, time in ordered],
            operation=operation,
            ranks=ranks,
            nodes=nodes,
            device=device,
        )
        tables_.append((f"{file}: {operation} over {ranks}", timings))
    return tables_, flaws


def fit_log(name: str, timings: Timings, options: Options) -> Log:
    """Return the line through the timings of one log."""
    over = options.ranks or timings.ranks
    if over < 2:
        raise click.UsageError(f"{name} does not say how many ranks took part; add --ranks")
    done = options.operation or timings.operation or _guess_operation(timings, over, name)
    offered = _algorithm(options.algorithm, done)
    hosts = options.nodes or timings.nodes or 1
    if over % hosts:
        raise click.UsageError(f"{over} ranks are not divisible by {hosts} nodes")
    try:
        line = links.fit_link(offered, done, over, timings.sizes, timings.seconds)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error
    return Log(
        name=name,
        timings=evolve(timings, device=timings.device or options.device),
        operation=done,
        algorithm=offered,
        ranks=over,
        nodes=hosts,
        shared=(options.ports or over // hosts) if hosts > 1 else 1,
        line=line,
    )


def levels(logs: Sequence[Log], form: str) -> list[NetworkLink]:
    """Return the fabric levels of the logs: within a node, and between nodes."""
    found = []
    for across in (False, True):
        members = [log for log in logs if (log.nodes > 1) == across]
        if members:
            found.append(_level(members, form, across=across))
    return found


def _level(logs: Sequence[Log], form: str, *, across: bool) -> NetworkLink:
    devices = list(dict.fromkeys(log.timings.device for log in logs if log.timings.device))
    if len(devices) > 1:
        raise click.UsageError(
            f"the logs are from {', '.join(devices)}, but a level joins devices of one kind: "
            "calibrate from the logs of one machine"
        )
    line = logs[0].line if len(logs) == 1 else _common_line(logs)
    rates = [log.line.bandwidth / log.shared for log in logs]
    shared = logs[0].shared
    warnings = [warning for log in logs if (warning := _speed_warning(log))]
    low, high = (rate / shared for rate in line.bandwidth_within)
    early, late = line.latency_within
    bandwidth = line.bandwidth / shared
    if max(rates) > min(rates) * _APART:
        slowest, fastest = (logs[rates.index(f(rates))].name for f in (min, max))
        warnings.append(
            f"warning[contradictory-logs]: `{slowest}` gives {min(rates) / 1e9:.4g} GB/s and "
            f"`{fastest}` {max(rates) / 1e9:.4g} GB/s for the same link: because of other traffic, "
            "another algorithm, or another fabric; the interval includes both"
        )
        low, high = min(low, *rates), max(high, *rates)
    curve = form == "curve" or (form == "auto" and line.largest_error > _CLOSE)
    if curve and len(logs) > 1:
        warnings.append(
            f"warning[uneven-link]: a line through {len(logs)} logs is off by "
            f"{percent(line.largest_error, 0)} at most; calibrate from one of them for a curve"
        )
        curve = False
    first = logs[0]
    timed = (first.timings.sizes, first.timings.seconds)
    points = (
        links.messages(first.algorithm, first.operation, first.ranks, *timed, ports=shared)
        if curve
        else []
    )
    source = "; ".join(
        f"{log.name.rpartition('/')[2]}, {log.operation} by {log.algorithm.name} over "
        f"{log.ranks} ranks, {log.nodes} nodes"
        for log in logs
    )
    interval = "" if line.sizes == 2 or curve else spec.interval_text(low, high, early, late)
    level = spec.SpecLevel(
        name="network" if across else "node",
        size=0 if across else max(log.ranks for log in logs),
        unit="devices",
        latency=line.latency,
        bandwidth=bandwidth,
        points=points,
        source=source + interval,
    )
    return NetworkLink(
        level=level, logs=logs, notes=_notes(line, across, shared, curve=curve), warnings=warnings
    )


def _common_line(logs: Sequence[Log]) -> FittedLine:
    """Return the line fitted to all logs of a link, with the rounds of each log's algorithm."""
    from parcost_measured.calibration.least_squares import fit

    sizes: list[float] = []
    seconds: list[float] = []
    rounds: list[float] = []
    moved: list[float] = []
    shared = logs[0].shared
    for log in logs:
        for n, time in zip(log.timings.sizes, log.timings.seconds, strict=True):
            r, b = links.counts(log.algorithm, log.operation, n, (log.ranks,))
            sizes.append(n)
            seconds.append(time)
            rounds.append(r)
            moved.append(b * shared / log.shared)
    return fit(sizes, seconds, rounds, moved)


def _guess_operation(timings: Timings, ranks: int, name: str) -> str:
    may = collective_timings.guess(timings, ranks)
    if len(may) == 1:
        return may[0]
    why = f"its bandwidths fit {', '.join(may)}" if may else "neither do its bandwidths"
    raise click.UsageError(f"{name} does not say which collective it timed, {why}; add --operation")


def _algorithm(name: str | None, operation: str) -> Collective:
    from contextlib import redirect_stdout

    from parcost.plugins.discovery import load

    with redirect_stdout(sys.stderr):  # plugins may print
        offered = load().offers("collectives")
    able = [n for n, (_, a) in offered.items() if operation in a.operations]
    if not able:
        known = sorted({o for _, a in offered.values() for o in a.operations})
        hint = _nearest_operation(operation, known) or f"they offer {', '.join(known)}"
        raise click.UsageError(f"no plugin offers the operation `{operation}`; {hint}")
    wanted = name or next((n for n in _USUAL if n in able), able[0])
    if wanted not in able:
        what = f"does not do `{operation}`" if wanted in offered else "is not provided by a plugin"
        raise click.UsageError(f"the algorithm `{wanted}` {what}; these do: {', '.join(able)}")
    found: Collective = offered[wanted][1]
    return found


def _nearest_operation(operation: str, known: list[str]) -> str | None:
    """Return a suggestion for an unknown operation; some libraries write names in one word."""
    from difflib import get_close_matches

    words: Mapping[str, str] = {name.replace("_", ""): name for name in known}
    close = get_close_matches(re.sub(r"[^a-z]", "", operation.lower()), words, n=1)
    return f"did you mean `{words[close[0]]}`?" if close else None


def lines(log: Log) -> list[str]:
    """Return the summary of one log, line by line."""
    timings, line = log.timings, log.line
    largest = max(range(len(timings.sizes)), key=timings.sizes.__getitem__)
    achieved = timings.sizes[largest] / timings.seconds[largest]
    crossover = line.latency * line.bandwidth
    return [
        f"{log.operation} by {log.algorithm.name} over {log.ranks} ranks"
        + (f" of {timings.device}" if timings.device else "")
        + f", {len(timings.sizes)} sizes",
        f"latency of a message (alpha)   {line.latency * 1e6:.4g} us",
        f"bandwidth of a rank (1 / beta) {line.bandwidth / 1e9:.4g} GB/s per direction",
        f"algorithm bandwidth            {achieved / 1e9:.4g} GB/s, n over time at the largest n",
        f"crossover (alpha B)            {quantity(crossover, 'B')} of one message",
        f"error of the line              {_errors(line)}"
        + (f", at {quantity(line.worst_size, 'B')}" if line.sizes > 2 else ""),
    ]


def _speed_warning(log: Log) -> str:
    """Return a warning if the fitted bandwidth exceeds the line rate of the device's ports."""
    from parcost_measured.calibration.rates import line_rate

    bandwidth = log.line.bandwidth / log.shared
    known = line_rate(log.timings.device, outermost=log.nodes > 1)
    if known is None or bandwidth <= known[0]:
        return ""
    rate, system = known
    return (
        f"warning[fit-above-line-rate]: the fit gives {bandwidth / 1e9:.4g} GB/s, but `{system}` "
        f"has {rate / 1e9:.4g} GB/s per direction: another algorithm was used, or the switch "
        "reduces"
    )


def _errors(line: FittedLine) -> str:
    if line.sizes == 2:
        return "unknown: a line fits any two sizes exactly"
    return f"{percent(line.mean_error)} on average, {percent(line.largest_error)} at most"


def _notes(line: FittedLine, across: bool, shared: int, *, curve: bool) -> list[str]:
    notes = [f"A line through the timings is off by {_errors(line)}."]
    if line.sizes == 2:
        notes = [f"The error of a line through the timings is {_errors(line)}."]
    if curve:
        notes.append("Every point is kept: the time of one message by its size.")
    if across:
        notes.append(f"Bandwidth of one port: the ring left each node through {shared}.")
    return notes
