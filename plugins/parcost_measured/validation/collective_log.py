"""A log of nccl-tests or rccl-tests compared with predictions for a fabric.

The study of a log has the ranks of the log on a fabric of the catalogue, without a model:

    use catalog.devices.h100_sxm
    use catalog.fabrics.hgx_h100
    cluster { devices = 16 }

Each size is estimated by every algorithm of the library, and by the fastest. Bus bandwidth is
defined as in nccl-tests: size over time, times a factor of the operation. The factor of a ring is
used for any algorithm.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve, frozen

from parcost import Study, load_text
from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Table
from parcost.language.numbers import percent
from parcost.numeric import INFINITY
from parcost_formats.rendering import markdown
from parcost_formats.rendering.columns import column
from parcost_formats.rendering.text import draw
from parcost_measured.validation.hardware import ENTRIES
from parcost_measured.validation.scores import score
from parcost_plugins.vocabulary import collective_timings
from parcost_plugins.vocabulary.collective_timings import Timings, bus_factor

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins

_GROUP = "job"  # every rank of the log
_LATENCY_BOUND = 64 * 1024  # bytes up to which a collective is mostly start-up
_BANDWIDTH_BOUND = 64 * 2**20  # bytes from which it is mostly transfer
_ALGORITHMS_ABREAST = 5  # columns that 80 characters hold
_COLUMNS = (
    "file",
    "operation",
    "ranks",
    "size_bytes",
    "measured_seconds",
    "predicted_seconds",
    "error",
    "algorithm",
)


@frozen(kw_only=True)
class CollectiveRow:
    """One size: measured and predicted seconds, for the fastest *algorithm* and for each."""

    size: float
    measured: float
    predicted: float
    algorithm: str
    seconds: Mapping[str, float]

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1.0


@frozen(kw_only=True)
class CollectiveComparison:
    """The rows of one table of a log, and the study that gave the predictions."""

    name: str
    timings: Timings
    uses: Sequence[str]
    nodes: int  # that the fabric places the ranks on
    rows: Sequence[CollectiveRow]

    @property
    def factor(self) -> float:
        """The bus bandwidth factor of nccl-tests: bus bandwidth / (size / time)."""
        return bus_factor(self.timings.operation, self.timings.ranks)


def is_log(path: str) -> bool:
    """Return whether a file is a log of collectives, and not a file of runs."""
    from parcost.system.files import LOG, read_text

    if Path(path).suffix == ".jsonl" or not os.path.isfile(path):
        return False
    content = read_text(path, LOG)
    return collective_timings.has_row(content) or '"out_of_place"' in content


def compare(
    path: str, uses: Sequence[str], values: Mapping[str, str], plugins: Plugins
) -> list[CollectiveComparison]:
    """Return the tables of a log with their predictions; *values* are set in the study.

    Raises:
        SpecError: The study is invalid, such as an entry that is in no catalogue.
    """
    from parcost.system.files import LOG, read_text

    try:
        tables = collective_timings.read(read_text(path, LOG))
    except collective_timings.UnreadableError as error:
        raise click.UsageError(f"{path}: {error}") from error
    return [_compare_table(path, table, uses, values, plugins) for table in tables]


def _compare_table(
    path: str, timings: Timings, uses: Sequence[str], values: Mapping[str, str], plugins: Plugins
) -> CollectiveComparison:
    entries = _entries(path, timings, uses)
    text = "".join(f"use {entry}\n" for entry in entries)
    text += f"cluster {{ devices = {timings.ranks or 1} }}\n"
    if not timings.ranks and "cluster.devices" not in values:
        message = "the log does not list its ranks; add `--set cluster.devices=N`"
        raise click.UsageError(f"{path}: {message}")
    (scenario,) = load_text(text, "--use", plugins=plugins, overrides=values)
    if scenario.axes:
        raise click.UsageError(
            f"a log is compared with one fabric; `{scenario.axes[0][0]}` is swept"
        )
    study = scenario.first
    group = study.group(_GROUP)
    known = evolve(timings, ranks=int(group.ranks))
    known = evolve(known, operation=timings.operation or _guess(path, known))
    return CollectiveComparison(
        name=path,
        timings=known,
        uses=entries,
        nodes=max(int(group.ranks // group.shape[0]), 1),
        rows=[
            _price(study, known.operation, size, seconds)
            for size, seconds in zip(known.sizes, known.seconds, strict=True)
        ],
    )


def _entries(path: str, timings: Timings, uses: Sequence[str]) -> list[str]:
    """Return *uses* with the device of the log, and the fabric of servers with this device."""
    folders = {use.split(".")[1] for use in uses if use.startswith("catalog.")}
    if any(not use.startswith("catalog.") for use in uses):
        folders.add("fabrics")  # a file of one's own
    lacking = {"devices", "fabrics"} - folders
    if "systems" in folders or not lacking:
        return list(uses)
    for entry in ENTRIES:
        if timings.device and re.search(entry.pattern, timings.device, re.IGNORECASE):
            added = [f"catalog.devices.{entry.device}"] if "devices" in lacking else []
            if "fabrics" in lacking:
                added.append(f"catalog.fabrics.{entry.fabric}")
            return [*added, *uses]
    named = (
        f"`{timings.device}` is not a device of the catalogue"
        if timings.device
        else ("the log does not name its device")
    )
    options = " ".join(f"--use catalog.{folder}.NAME" for folder in sorted(lacking))
    raise click.UsageError(f"{path}: {named}; add {options}")


def _guess(path: str, timings: Timings) -> str:
    found = collective_timings.guess(timings, timings.ranks)
    if len(found) == 1:
        return found[0]
    may_be = f"it may be {', '.join(found)}; " if found else ""
    message = f"the log does not name its collective; {may_be}write it into the log as a line"
    raise click.UsageError(f"{path}: {message}: # Collective test starting: all_reduce_perf")


def _price(study: Study, operation: str, size: float, measured: float) -> CollectiveRow:
    call = study.collective(operation, size, _GROUP)
    each: dict[str, float] = {}
    for algorithm in study.candidates(operation):
        seconds = algorithm.seconds(operation, size, study.group(_GROUP))
        if seconds < INFINITY:
            each[algorithm.name] = float(seconds)
    return CollectiveRow(
        size=size,
        measured=measured,
        predicted=float(call.seconds),
        algorithm=str(call.algorithm),
        seconds=each,
    )


def to_table(found: Sequence[CollectiveComparison], paper: Paper) -> str:
    """Return the comparison as text for a terminal."""
    return draw([item for one in found for item in _page(one)], paper)


def to_markdown(found: Sequence[CollectiveComparison]) -> str:
    """Return the comparison in Markdown."""
    return markdown.draw([item for one in found for item in _page(one)])


def to_json(found: Sequence[CollectiveComparison]) -> str:
    """Return the comparison as JSON, in base units."""
    return json.dumps({"logs": [_document(one) for one in found]}, indent=2) + "\n"


def to_csv(found: Sequence[CollectiveComparison]) -> str:
    """Return CSV with a line for each size of each table."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one in found:
        of_log = (one.name, one.timings.operation, one.timings.ranks)
        for row in one.rows:
            writer.writerow(
                [*of_log, row.size, row.measured, row.predicted, row.error, row.algorithm]
            )
    return text.getvalue()


def _page(one: CollectiveComparison) -> Iterator[Item]:
    timings, factor = one.timings, one.factor
    yield Heading(f"{timings.operation} over {timings.ranks} ranks: {one.name}", 1)
    yield Line("Predicted with " + ", ".join(f"`{use}`" for use in one.uses) + ".")
    if timings.nodes and timings.nodes != one.nodes:
        yield Line(
            f"The log has {timings.nodes} nodes, but the fabric places the ranks on {one.nodes}.",
            "warning",
        )
    yield Heading("Error of the time, predicted / measured - 1")
    yield _errors(one.rows)
    yield Heading("Measured and predicted")
    rows = [
        Row([*cells, percent(row.error, signed=True), row.algorithm])
        for row, *cells in zip(
            one.rows,
            column([row.size for row in one.rows], "B"),
            column([row.measured for row in one.rows], "s"),
            column([row.predicted for row in one.rows], "s"),
            column([factor * row.size / row.measured for row in one.rows], "B/s"),
            column([factor * row.size / row.predicted for row in one.rows], "B/s"),
            strict=True,
        )
    ]
    titles = ("measured", "predicted", "bus bandwidth", "predicted", "error")
    yield Table(
        [Column("size", "right"), *(Column(title, "right") for title in titles), Column("fastest")],
        rows,
    )
    yield Line(
        f"Bus bandwidth is {factor:.4g} x size / time, as nccl-tests prints it for every "
        "algorithm; a tree and NVLS send fewer bytes than a ring, so it may exceed the link rate."
    )
    yield Heading("By algorithm")
    names = list(dict.fromkeys(name for row in one.rows for name in row.seconds))
    sizes = column([row.size for row in one.rows], "B")
    for start in range(0, len(names), _ALGORITHMS_ABREAST):
        abreast = names[start : start + _ALGORITHMS_ABREAST]
        times = [column([row.seconds.get(name) for row in one.rows], "s") for name in abreast]
        yield Table(
            [Column("size", "right"), *(Column(name, "right") for name in abreast)],
            [Row(list(cells)) for cells in zip(sizes, *times, strict=True)],
        )
        yield Line("")
    yield from (Line(text) for text in _switches(one.rows))


def _errors(rows: Sequence[CollectiveRow]) -> Table:
    parts = (
        ("all", list(rows)),
        ("up to 64 KiB", [row for row in rows if row.size <= _LATENCY_BOUND]),
        ("from 64 MiB", [row for row in rows if row.size >= _BANDWIDTH_BOUND]),
    )
    found = [(title, score([row.error for row in part])) for title, part in parts]
    return Table(
        [Column("sizes"), *(Column(t, "right") for t in ("n", "mean", "median", "signed", "p90"))],
        [
            Row(
                [
                    title,
                    f"{s.n:,}",
                    *(percent(x) for x in (s.mape, s.median, s.mean, s.p90)),
                ]
            )
            for title, s in found
            if s is not None
        ],
    )


def _switches(rows: Sequence[CollectiveRow]) -> Iterator[str]:
    """Yield sentences about the sizes between which the fastest algorithm changes."""
    sizes = column([row.size for row in rows], "B")
    for i in range(1, len(rows)):
        before, after = rows[i - 1], rows[i]
        if before.algorithm != after.algorithm:
            yield (
                f"The fastest changes from `{before.algorithm}` to `{after.algorithm}` between "
                f"{sizes[i - 1]} and {sizes[i]}."
            )


def _document(one: CollectiveComparison) -> dict[str, Any]:
    s = score([row.error for row in one.rows])
    return {
        "file": one.name,
        "operation": one.timings.operation,
        "ranks": one.timings.ranks,
        "nodes": one.nodes,
        "uses": list(one.uses),
        "bus_factor": one.factor,
        "error": None if s is None else {"mape": s.mape, "median": s.median, "mean": s.mean},
        "rows": [
            {
                "size_bytes": row.size,
                "measured_seconds": row.measured,
                "predicted_seconds": row.predicted,
                "error": row.error,
                "algorithm": row.algorithm,
                "seconds": dict(row.seconds),
            }
            for row in one.rows
        ],
    }
