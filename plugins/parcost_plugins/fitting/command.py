"""``parcost fit``: a link out of measured timings, as a fabric block to check in.

Imports are in the functions: listing the commands imports this module and no more.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from parcost import Collective
    from parcost_plugins.fitting.least_squares import Line
    from parcost_plugins.fitting.tables import Timings

_USUAL = ("ring", "pairwise", "direct")  # what libraries run, the first that does the operation
_OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "all_to_all",
    "point_to_point",
)
_CLOSE = 0.15  # largest relative error of a line that still tells how a link behaves


@click.command("fit")
@click.argument("log", metavar="LOG")
@click.option(
    "--operation",
    metavar="NAME",
    help="Which collective, where the log does not say: " + ", ".join(_OPERATIONS) + ".",
)
@click.option("--ranks", type=click.IntRange(2), help="How many ranks, where the log does not say.")
@click.option("--nodes", type=click.IntRange(1), help="On how many nodes they were.")
@click.option("--ports", type=click.IntRange(1), help="Network ports of a node; one per rank.")
@click.option("--algorithm", metavar="NAME", help="What the library ran: ring, if it can.")
@click.option("--table", type=click.IntRange(1), help="Which table of a log that has several.")
@click.option(
    "--as",
    "form",
    type=click.Choice(["auto", "line", "curve"]),
    default="auto",
    show_default=True,
    help="A latency and a bandwidth, or every point; auto takes the line where it is close.",
)
@click.option("--name", default="measured", show_default=True, help="Label of the fabric.")
@click.option("--out", type=click.Path(dir_okay=False), help="A file to write the fabric into.")
def command(
    log: str,
    operation: str | None,
    ranks: int | None,
    nodes: int | None,
    ports: int | None,
    algorithm: str | None,
    table: int | None,
    form: str,
    name: str,
    out: str | None,
) -> int:
    """Fit a link to timings of a collective, and write it as a fabric block.

    LOG is what nccl-tests printed (any version, or its JSON), or two columns of size and
    time. Sizes are those of the big buffer, as nccl-tests counts them. What the fit says
    and how far it is off goes to stderr; the block goes to stdout, or into --out.
    """
    from parcost_plugins.fitting import links, spec

    timings = _chosen(_read(log), table)
    over = ranks or timings.ranks
    if over < 2:
        raise click.UsageError(f"{log} does not say how many ranks took part; add --ranks")
    done = operation or timings.operation or _guessed(timings, over, log)
    offered = _algorithm(algorithm, done)
    hosts = nodes or timings.nodes or 1
    if over % hosts:
        raise click.UsageError(f"{over} ranks do not divide over {hosts} nodes")
    try:
        line = links.line(offered, done, over, timings.sizes, timings.seconds)
    except ValueError as error:
        raise click.UsageError(f"{log}: {error}") from error
    _report(line, timings, done, over, offered.name)
    shared = (ports or over // hosts) if hosts > 1 else 1
    _compare(line.bandwidth / shared, timings, hosts)
    curve = form == "curve" or (form == "auto" and line.largest_error > _CLOSE)
    timed = (timings.sizes, timings.seconds)
    points = links.messages(offered, done, over, *timed, ports=shared) if curve else []
    text = spec.fabric(
        name,
        [
            spec.Level(
                name="network" if hosts > 1 else "node",
                size=0 if hosts > 1 else over,
                unit="devices",
                latency=line.latency,
                bandwidth=line.bandwidth / shared,
                points=points,
            )
        ],
        f"{Path(log).name}, {done} by {offered.name} over {over} ranks, {hosts} nodes",
        _notes(line, hosts, shared, curve=curve),
    )
    _write(text, out)
    return 0


def _read(log: str) -> list[Timings]:
    from parcost.files import LOG, decode, read_stdin, read_text
    from parcost_plugins.fitting import tables

    text = decode(read_stdin(LOG), "<stdin>") if log == "-" else read_text(log, LOG)
    try:
        return tables.read(text)
    except tables.UnreadableError as error:
        raise click.UsageError(f"{log}: {error}") from error


def _chosen(found: list[Timings], table: int | None) -> Timings:
    if table is None and len(found) > 1:
        raise click.UsageError(f"the log has {len(found)} tables; pick one with --table 1")
    if table is not None and table > len(found):
        raise click.UsageError(f"the log has {len(found)} tables, and no table {table}")
    return found[(table or 1) - 1]


def _guessed(timings: Timings, ranks: int, log: str) -> str:
    from parcost_plugins.fitting import tables

    may = tables.guess(timings, ranks)
    if len(may) == 1:
        return may[0]
    why = f"its bandwidths fit {', '.join(may)}" if may else "nor do its bandwidths"
    raise click.UsageError(f"{log} does not say which collective it timed, {why}; add --operation")


def _algorithm(name: str | None, operation: str) -> Collective:
    from contextlib import redirect_stdout

    from parcost.plugins import load

    with redirect_stdout(sys.stderr):  # plugins may print
        offered = load().named("collectives")
    able = [n for n, (_, a) in offered.items() if operation in a.operations]
    if not able:
        known = sorted({o for _, a in offered.values() for o in a.operations})
        hint = _meant(operation, known) or f"they offer {', '.join(known)}"
        raise click.UsageError(f"no plugin offers the operation `{operation}`; {hint}")
    wanted = name or next((n for n in _USUAL if n in able), able[0])
    if wanted not in able:
        what = f"does not do `{operation}`" if wanted in offered else "is none that a plugin offers"
        raise click.UsageError(f"the algorithm `{wanted}` {what}; these do: {', '.join(able)}")
    found: Collective = offered[wanted][1]
    return found


def _meant(operation: str, known: list[str]) -> str | None:
    """Return which operation may be meant; some libraries write their names in one word."""
    from difflib import get_close_matches

    words = {name.replace("_", ""): name for name in known}
    close = get_close_matches(re.sub(r"[^a-z]", "", operation.lower()), words, n=1)
    return f"did you mean `{words[close[0]]}`?" if close else None


def _report(line: Line, timings: Timings, operation: str, ranks: int, algorithm: str) -> None:
    from parcost.render.escapes import visible
    from parcost.render.numbers import quantity

    largest = max(range(len(timings.sizes)), key=timings.sizes.__getitem__)
    achieved = timings.sizes[largest] / timings.seconds[largest]
    crossover = line.latency * line.bandwidth
    for text in (
        f"{operation} by {algorithm} over {ranks} ranks"
        + (f" of {timings.device}" if timings.device else "")
        + f", {len(timings.sizes)} sizes",
        f"latency of a message (alpha)   {line.latency * 1e6:.4g} us",
        f"bandwidth of a rank (1 / beta) {line.bandwidth / 1e9:.4g} GB/s per direction",
        f"algorithm bandwidth            {achieved / 1e9:.4g} GB/s, n over time at the largest n",
        f"crossover (alpha B)            {quantity(crossover, 'B')} of one message",
        f"error of the line              {_errors(line)}"
        + (f", at {quantity(line.worst_size, 'B')}" if line.sizes > 2 else ""),
    ):
        click.echo(visible(text), err=True)


def _compare(bandwidth: float, timings: Timings, hosts: int) -> None:
    """Warn of a port that is faster than the device of the log has any."""
    from parcost_plugins.fitting.rates import line_rate

    known = line_rate(timings.device, outermost=hosts > 1)
    if known is None or bandwidth <= known[0]:
        return
    rate, system = known
    click.echo(
        f"warning[fit-above-line-rate]: the fit says {bandwidth / 1e9:.4g} GB/s, and "
        f"`{system}` has {rate / 1e9:.4g} GB/s per direction: another algorithm ran, or the "
        "switch reduces",
        err=True,
    )


def _errors(line: Line) -> str:
    if line.sizes == 2:
        return "not known: any two sizes lie on a line"
    return f"{line.mean_error:.1%} on average, {line.largest_error:.1%} at most"


def _notes(line: Line, hosts: int, shared: int, *, curve: bool) -> list[str]:
    notes = [f"A line through the timings is off by {_errors(line)}."]
    if line.sizes == 2:
        notes = [f"The error of a line through the timings is {_errors(line)}."]
    if curve:
        notes.append("Every point is kept: the time of one message by its size.")
    if hosts > 1:
        notes.append(
            f"Bandwidth of one port: the ring left each node through {shared}. "
            "Add the levels inside of a node."
        )
    return notes


def _write(text: str, out: str | None) -> None:
    if out is None:
        click.echo(text, nl=False)
        return
    from parcost.render.escapes import visible

    path = Path(out)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise click.UsageError(f"{out} exists already; remove it or choose another name") from error
    except OSError as error:
        raise click.UsageError(f"{out} cannot be written: {error.strerror}") from error
    click.echo(visible(f"wrote {out}"), err=True)
