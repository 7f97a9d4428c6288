"""``parcost validate``: a comparison of predictions with published, measured runs.

Imports are in the functions: a list of the commands imports only this module.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.interrupts import Interrupts
from parcost_apps.cli.messages import Progress, write_message
from parcost_apps.cli.output_files import OutputFile

if TYPE_CHECKING:
    from parcost.contract.entries import Entry
    from parcost.plugins.discovery import Plugins
    from parcost.plugins.selection import PluginSelection
    from parcost_apps.batch.executors import Engine
    from parcost_measured.validation.evaluation import RowResult
    from parcost_measured.validation.rows import PlacedRow, Rows
    from parcost_measured.validation.selection import Condition, RangeLimit
    from parcost_measured.validation.summary import Summary

_FLAWED, _FAULT = 1, 3
_NO_JSON = "the line is not JSON"  # of every line of a file that has no rows
_MOST_REPORTED = 50


@click.command("validate")
@click.argument("path", metavar="[RUNS.jsonl|DIR|LOG]", required=False)
@click.option(
    "--format",
    "given_format",
    type=click.Choice(["table", "json", "md", "csv", "html"]),
    show_default=options.BY_SUFFIX.format("table"),
    help="Format of the comparison; csv has a line for each row.",
)
@click.option(
    "--select",
    "conditions",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Select rows by a condition: source_key=nemo,torchtitan, 'hardware.gpus>=64', "
    "model.name=llama*, framework!=composer. May be repeated.",
)
@click.option(
    "--worst",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Number of rows to list, the largest errors first.",
)
@click.option(
    "--write-specs",
    "folder",
    metavar="DIR",
    help="Write the study of each row to DIR, with assumptions as comments.",
)
@click.option(
    "--intervals",
    "file",
    metavar="FILE.par",
    help="Write a block `accuracy`: ranges of measured / predicted by kind of run. Intervals "
    "are computed from it.",
)
@click.option(
    "--fail-over",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="Exit with 1 if the limit is exceeded: 'mape > 10 %', 'p90 of torchtitan > 20 %', "
    "'memory mape > 8 %', 'rejected > 1 %', 'coverage < 85 %', 'half-width of MoE > 15 %', "
    "'regret > 3 %' (time lost by choosing the predicted best layout), 'pairs < 95 %' (pairs of "
    "layouts in the measured order). May be repeated.",
)
@click.option(
    "--use",
    "uses",
    multiple=True,
    metavar="ENTRY",
    help="Device or fabric to compare a LOG with, such as catalog.fabrics.hgx_h100. By default "
    "it is chosen by the name of the device in the log.",
)
@options.overrides
@options.selection
@options.out
@options.jobs
@options.executor
def command(
    path: str | None,
    given_format: str | None,
    conditions: tuple[str, ...],
    worst: int,
    folder: str | None,
    file: str | None,
    limits: tuple[str, ...],
    uses: tuple[str, ...],
    overrides: tuple[str, ...],
    selection: PluginSelection,
    out: str | None,
    jobs: int | None,
    executor: str | None,
) -> int:
    """Compare predictions with measured runs.

    RUNS.jsonl has one run per line, and a directory stands for all such files in it. By default the
    published runs of the package are used. Each run becomes a study, which is evaluated with the
    constants of the catalogue only. Inconsistent rows are listed with line and reason, and the exit
    code is 1; the other rows are compared.

    LOG is the output of nccl-tests or rccl-tests. Each size is compared with the prediction on a
    fabric of the catalogue, for the fastest and for each algorithm.
    """
    from parcost_measured.validation.collective_log import is_log
    from parcost_measured.validation.evaluation import write_studies
    from parcost_measured.validation.frameworks import all_frameworks
    from parcost_measured.validation.hardware import families_of
    from parcost_measured.validation.summary import device_of, summarize

    format_ = options.output_format(given_format, out, ("json", "md", "csv", "html"), "table")
    values = options.parse_overrides(overrides)
    if path is not None and is_log(path):
        _reject_for_log(conditions, folder, file, limits, format_)
        return _compare_log(path, format_, uses, values, options.plugins(selection), out)
    if uses:
        raise click.UsageError(
            "`--use` applies only to a log of collectives; runs state their hardware"
        )
    label = _label(file) if file else ""
    wanted = [_limit(text) for text in limits]
    engine = options.engine(jobs, executor)
    plugins = options.plugins(selection)
    rows = _rows(path, plugins, conditions)
    for flaw in rows.flaws[:_MOST_REPORTED]:
        write_message(f"error[{flaw.kind}-row]: {flaw.text}")
    if len(rows.flaws) > _MOST_REPORTED:
        write_message(f"error: {len(rows.flaws) - _MOST_REPORTED:,} more rows have the same error")
    for name, count in rows.unknown.items():
        write_message(
            f"warning[unknown-field]: the unknown field `{name}` of {count:,} rows is ignored"
        )
    interrupts = Interrupts()
    with interrupts, OutputFile(out, interrupts) as target, _studies(folder) as place:
        cases = [*write_studies([*rows.placed, *rows.apart], place)]
        evaluated = _evaluate_cases(cases, selection, engine, values, elsewhere=out is not None)
        families = families_of({device_of(placed.row) for placed in rows.placed})
        profiles = all_frameworks(plugins)
        summary = summarize(evaluated, rows.flaws, rows.unknown, families, profiles)
        if file is not None:
            _write_intervals(file, label, summary)
        target.put(_text(summary, format_, worst, target, plugins))
    faults = list(dict.fromkeys(fault for case in evaluated for fault in case.faults))
    for fault in faults[:_MOST_REPORTED]:
        write_message(f"error: {fault}")
    for flaw in summary.flaws[len(rows.flaws) :]:
        write_message(f"error[{flaw.kind}-row]: {flaw.text}")
    for old in filter(None, (one.warning for one in summary.profiles)):
        write_message(f"warning[old-profile]: {old}")
    broken = [limit.text for limit in wanted if _is_broken(limit, summary)]
    for text in broken:
        write_message(f"error[over-the-limit]: {text}")
    scored = bool(summary.rows or summary.adapters)
    if not scored:
        why = "all are composed, or train adapters" if rows.apart else "the reasons are listed"
        write_message(f"error[no-row-scored]: no row could be scored; {why}")
    return _FAULT if faults else _FLAWED if summary.flaws or broken or not scored else 0


def _reject_for_log(
    conditions: tuple[str, ...],
    folder: str | None,
    file: str | None,
    limits: tuple[str, ...],
    format_: str,
) -> None:
    given = {
        "--select": conditions,
        "--write-specs": folder,
        "--intervals": file,
        "--fail-over": limits,
        "--format html": format_ == "html",
    }
    for option, value in given.items():
        if value:
            raise click.UsageError(
                f"`{option}` applies to runs, but this file is a log of collectives"
            )


def _compare_log(
    path: str,
    format_: str,
    uses: tuple[str, ...],
    values: Mapping[str, str],
    plugins: Plugins,
    out: str | None,
) -> int:
    from parcost_measured.validation import collective_log

    interrupts = Interrupts()
    with interrupts, OutputFile(out, interrupts) as target:
        found = collective_log.compare(path, uses, values, plugins)
        match format_:
            case "json":
                text = collective_log.to_json(found)
            case "csv":
                text = collective_log.to_csv(found)
            case "md":
                text = collective_log.to_markdown(found)
            case _:
                text = collective_log.to_table(found, target.paper())
        target.put(text)
    return 0


def _label(file: str) -> str:
    """Return the label of the block in *file*, by which a study imports it."""
    path = Path(file)
    if path.suffix != ".par" or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", path.stem):
        message = "a study imports the file by its name, such as `our_runs.par`"
        raise click.UsageError(f"`--intervals {file}`: {message}")
    if not os.path.isdir(path.parent):
        raise click.UsageError(f"`--intervals {file}`: there is no folder `{path.parent}`")
    return path.stem


def _write_intervals(file: str, label: str, summary: Summary) -> None:
    """Write the ranges of measured / predicted as a spec file."""
    from parcost_measured.validation.anchors import job_spreads
    from parcost_measured.validation.intervals import to_block
    from parcost_measured.validation.summary import device_of

    if "step_time" not in summary.left_out:
        message = "runs of several models are needed, so that some can be left out"
        raise click.UsageError(f"`--intervals {file}`: {message}")
    devices = Counter(device_of(one.row) for one in summary.rows)
    spreads = {
        jobs.model: {
            "jobs": str(len(jobs.jobs)),
            "layouts": str(sum(map(len, jobs.jobs))),
            "between": f"{jobs.spread.between:.3f}",
            "within": f"{jobs.spread.within:.3f}",
            "margin": f"{jobs.margin:.2f}",
        }
        for jobs in job_spreads(summary.rows)
    }
    text = to_block(label, summary.left_out, devices, spreads)
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"`--intervals {file}`: {error.strerror or error}"
        raise click.ClickException(message) from error
    write_message(f"wrote block `accuracy {label}` to `{file}`")


def _limit(text: str) -> RangeLimit:
    from parcost_measured.validation.selection import MalformedError, limit

    try:
        return limit(text)
    except MalformedError as error:
        raise click.UsageError(f"`--fail-over`: {error}") from error


def _rows(path: str | None, plugins: Plugins, conditions: Sequence[str]) -> Rows:
    """Return the rows of *path*, or the shipped ones, that meet all *conditions*."""
    from attrs import evolve

    from parcost_measured.validation.rows import files_of, read_files
    from parcost_measured.validation.selection import MalformedError, condition

    try:
        chosen = [condition(text) for text in conditions]
    except MalformedError as error:
        raise click.UsageError(f"`--select`: {error}") from error
    rows = read_files(files_of(Path(path)) if path else [_shipped_runs(plugins)])
    if not (rows.placed or rows.flaws or rows.apart):
        raise click.UsageError(f"`{path}` has no row")
    if (
        path
        and not (rows.placed or rows.apart)
        and all(_NO_JSON in flaw.reason for flaw in rows.flaws)
    ):
        raise click.UsageError(
            f"`{path}` is neither a file of runs (one JSON object per line: "
            f"{rows.flaws[0].text}) nor a log of nccl-tests or rccl-tests; for a training log, "
            f"use `parcost calibrate SPEC --anchor {path}`"
        )
    both = [*rows.placed, *rows.apart]
    kept = both
    for one in chosen:
        kept = _select(kept, one)
    if chosen and not kept:
        raise click.UsageError(f"`--select`: none of {len(both):,} rows matches")
    apart = [place for place in kept if place.row.group_apart]
    return evolve(rows, placed=[p for p in kept if not p.row.group_apart], apart=apart)


def _select(placed: Sequence[PlacedRow], one: Condition) -> list[PlacedRow]:
    """Return the rows that satisfy a condition; raise an error if no row has its field."""
    from difflib import get_close_matches

    from parcost_measured.validation.frameworks import profile_of
    from parcost_measured.validation.selection import MISSING, paths, value_of

    values = []
    for place in placed:
        framework = profile_of(place.row).framework if one.field == "framework" else ""
        further = {"framework": framework, "nodes": place.row.nodes}
        values.append(value_of(place.row, one.field, further))
    if placed and all(value is MISSING for value in values):
        close = get_close_matches(one.field, [*paths(), "framework", "nodes"], n=1)
        hint = f"did you mean `{close[0]}`?" if close else "such as source_key, model.name"
        raise click.UsageError(f"`--select`: no row has a field `{one.field}`; {hint}")
    return [p for p, value in zip(placed, values, strict=True) if one.holds(value)]


def _shipped_runs(plugins: Plugins) -> tuple[str, Path]:
    """Return the file of runs in a catalogue, and its name in messages; raise if none exists."""
    from parcost_measured.validation.rows import shipped_runs

    found = shipped_runs(plugins)
    if found is None:
        raise click.UsageError("no catalogue has measured runs; name a file: RUNS.jsonl")
    return found


@contextmanager
def _studies(folder: str | None) -> Iterator[Path]:
    """Yield the folder for the studies; it is kept if the user names it, else temporary."""
    if folder is None:
        from parcost.system.temporary import temporary_folder

        with temporary_folder() as temporary:
            yield temporary.path
        return
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        message = f"`--write-specs {folder}`: {error.strerror or error}"
        raise click.ClickException(message) from error


def _evaluate_cases(
    cases: Sequence[tuple[RowResult, Path | None]],
    selection: PluginSelection,
    engine: Engine | None,
    values: Mapping[str, str],
    *,
    elsewhere: bool,
) -> list[RowResult]:
    """Return the cases with their predictions; print progress and speed."""
    from parcost_measured.validation.evaluation import evaluate_cases

    progress, start = Progress(elsewhere=elsewhere), monotonic()

    def show(done: int) -> None:
        speed = done / max(monotonic() - start, 1e-9)
        progress.show(f"{done:,} of {len(cases):,} rows, {speed:.1f} a second")

    found = list(evaluate_cases(cases, selection, engine, values, show))
    progress.clear()
    taken = monotonic() - start
    write_message(
        f"{len(cases):,} rows in {taken:.1f} s, {len(cases) / max(taken, 1e-9):.1f} a second"
    )
    return found


def _text(summary: Summary, format_: str, worst: int, target: OutputFile, plugins: Plugins) -> str:
    from parcost_measured.validation import documents, pages

    match format_:
        case "json":
            return documents.to_json(summary)
        case "csv":
            return documents.to_csv(summary)
        case "md":
            return pages.to_markdown(summary, worst)
        case "html":
            return _html_page(pages.to_entry(summary, worst), target, plugins)
        case _:
            return pages.to_table(summary, target.paper(), worst)


def _html_page(entry: Entry, target: OutputFile, plugins: Plugins) -> str:
    """Return *entry* as an HTML page."""
    from parcost.contract.offers import Exporter
    from parcost_apps.batch.formats import find_format

    exporter = find_format("html", plugins).exporter
    assert isinstance(exporter, Exporter)
    return "".join(exporter.write([entry], target.paper()))


def _is_broken(limit: RangeLimit, summary: Summary) -> bool:
    """Return whether a figure violates *limit*; raise if the figure does not exist."""
    value = summary.value(limit.quantity, limit.metric, limit.group)
    if value is None:
        known = dict.fromkeys(group.name for group in summary.groups)
        names = "groups are " + ", ".join(known) if known else "no row was scored"
        raise click.UsageError(f"`--fail-over {limit.text}`: there is no such figure; {names}")
    return limit.is_broken(value)
