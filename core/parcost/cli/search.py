"""``parcost search``: the best layouts, and why the others lost."""

from __future__ import annotations

import json
import re
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parcost.cli import options
from parcost.cli.interrupts import Interrupts
from parcost.cli.messages import Progress, Reporter, write_message
from parcost.cli.output_files import OutputFile
from parcost.cli.pages import show
from parcost.cli.pictures import PICTURES, write_entries
from parcost.cli.streams import put

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parcost.contract.importers import ImportOptions
    from parcost.contract.searches import Goal
    from parcost.engine.scenario import Scenario
    from parcost.plugins.selection import PluginSelection
    from parcost.search.best_first import SearchRequest
    from parcost.search.fastest_layouts import FastestLayouts
    from parcost.search.result import SearchResult
    from parcost.search.space import Space

_FAULT = 3
_MOST_MAPPED = 20_000_000  # layouts, legal or not, of which a map is drawn
_FAILED = {"search-disagrees", "plugin-failed"}
_NOTHING = {"empty-space", "nothing-fits", "nothing-within-limits", "out-of-time"}


def _refuse_processes(_: click.Context, __: click.Parameter, value: str | None) -> None:
    """Refuse what other commands take: each process would make anew what layouts share."""
    if value is not None:
        raise click.UsageError(
            "a search runs in one process, as two were slower, and takes no `--jobs` or "
            "`--executor`; to use more, start one for each value of an axis: `--over tp=4`"
        )


@click.command("search")
@options.path
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values of an axis: --over tp=1,2,4 or --over cluster.device=h100_sxm,b200. "
    "May be repeated; the other axes keep all their values.",
)
@click.option(
    "--axes",
    metavar="NAME,...",
    help="Search only these axes; the spec sets the others. By default all axes of plugins.",
)
@click.option(
    "--objective",
    metavar="NAME",
    help="The objective: step_time (the default), mfu, tokens_per_second_per_device, "
    "cost_per_million_tokens, fewest_devices.",
)
@click.option(
    "--top", type=click.IntRange(1, 1000), help="Number of layouts to list; 10 by default."
)
@click.option(
    "--budget",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0),
    help="Time limit of the search, 60 by default; the remaining optimality gap is printed.",
)
@click.option(
    "--sample",
    metavar="N",
    type=click.IntRange(1),
    help="Evaluate N random legal layouts of a space of any size, without a proof.",
)
@click.option("--seed", default=0, show_default=True, help="Random seed of --sample.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", *PICTURES]),
    default="table",
    help="html, svg and png draw the map of layouts and the front, into --out.",
)
@click.option(
    "--out",
    metavar="FILE",
    help="Write every legal layout to FILE.csv, FILE.jsonl or FILE.parquet, or the pictures.",
)
@options.study
@options.overrides
@options.reading
@options.selection
@click.option("--jobs", "--executor", hidden=True, expose_value=False, callback=_refuse_processes)
def command(
    path: str,
    over: tuple[str, ...],
    axes: str | None,
    objective: str | None,
    top: int | None,
    budget: float | None,
    sample: int | None,
    seed: int,
    format_: str,
    out: str | None,
    study: str | None,
    overrides: tuple[str, ...],
    reading: ImportOptions,
    selection: PluginSelection,
) -> int:
    """Find the best layouts of a study for its model and machine.

    The search chooses every attribute that a plugin offers as an axis, whatever its value in
    the spec: degrees, micro-batch, recomputation, ZeRO stage, schedule, overlap. A sweep in
    the spec restricts its attribute to the listed values. The objective and limits are
    attributes of the spec, as `search { most_memory = 70 GiB }`, or of --set
    'search.most_memory=70 GiB'. All legal layouts are bounded. Then they are replayed, the
    lowest bound first, until no other layout can be better.
    """
    from parcost.batch.entries import charts_of
    from parcost.batch.scenarios import only_study
    from parcost.contract.entries import Entry
    from parcost.language.errors import SpecError
    from parcost.output import search
    from parcost.output.search_charts import search_charts
    from parcost.search.fastest_layouts import FastestLayouts
    from parcost.search.goals import goal_of
    from parcost.search.layout_evaluation import settings
    from parcost.search.sample import sample as drawn
    from parcost.search.sensitivity import neighbours
    from parcost.search.space import LARGEST, space

    if budget is not None and isnan(budget):
        raise click.UsageError("`--budget nan` is no time; write seconds, such as `--budget 60`")
    if sample is not None and out is not None:
        raise click.UsageError("`--out` writes every layout, and `--sample` looks at a few")
    fastest = FastestLayouts() if format_ in PICTURES else None
    if out is not None and fastest is None:
        _check_name(out)
    if fastest is not None and sample is not None:
        raise click.UsageError("`--sample` looks at a few layouts, and pictures show all")
    session = options.session(selection)
    values = options.parse_overrides(overrides)
    progress = Progress(elsewhere=True)  # results are written at the end
    try:
        scenario = only_study(session, path, study, values, reading)
        goal = goal_of(scenario.first)
        given = {name: list(v) for name, v in scenario.axes}
        given |= _parse_over(over)
        _check_goal(scenario, given, axes, objective)
        names = [name.strip() for name in axes.split(",")] if axes else list(goal.axes)
        most = float("inf") if sample is not None else LARGEST
        whole = space(scenario, given, names, most=most)
        request = _request(goal, objective, top, budget)
        if sample is not None:
            found = drawn(whole, request, sample, seed=seed, on_progress=progress.show)
        else:
            found = _search(whole, request, out, progress, fastest)
        best = search.rank_layouts(found)
        at = settings(scenario, found.best[0].values)
        near = list(neighbours(scenario, whole.axes, at, found.best[0]))
    except SpecError as error:
        progress.clear()
        Reporter()(error.diagnostics)
        options.skip_faults(d.message.removeprefix("incomplete: ") for d in error.diagnostics)
        ids = {d.id for d in error.diagnostics}
        return _FAULT if ids & _FAILED else 1 if ids & _NOTHING else 2
    progress.clear()
    if fastest is not None:
        page = [*search.search_page(whole, found, best, near)]
        charts = search_charts(whole, found, fastest.layouts())
        text = charts_of(page, charts)
        entry = Entry(path=path, name=scenario.name, part="charts", text=text)
        write_entries([entry], format_, out, session.plugins)
    elif format_ == "json":
        put(json.dumps(search.data(whole, found, best, near), indent=2) + "\n")
    else:
        show(search.search_page(whole, found, best, near))
    faults = search.faults(found, best)
    options.print_faults(fault.removeprefix("incomplete: ") for fault in faults)
    if found.interrupted:
        return Interrupts.exit_code()
    return _FAULT if faults else 0


def _request(
    goal: Goal, objective: str | None, top: int | None, budget: float | None
) -> SearchRequest:
    from parcost.search.best_first import SearchRequest

    standard = SearchRequest()
    if budget is None:
        budget = goal.budget_seconds
    return SearchRequest(
        objective=objective or goal.objective or standard.objective,
        keep=top or goal.keep or standard.keep,
        budget_seconds=standard.budget_seconds if budget is None else budget,
    )


def _check_goal(
    scenario: Scenario, given: Iterable[str], axes: str | None, objective: str | None
) -> None:
    """Refuse what the spec says of the search, unless the command line says it, and is not there.

    Raises:
        SpecError: Nothing offers an axis or the objective.
    """
    from parcost.language.errors import SpecError
    from parcost.search.goals import unknown_axes, unknown_objective

    wrong = [] if axes else list(unknown_axes(scenario, given))
    wrong += [] if objective else unknown_objective(scenario)
    if wrong:
        raise SpecError(wrong)


def _search(
    whole: Space,
    request: SearchRequest,
    out: str | None,
    progress: Progress,
    fastest: FastestLayouts | None,
) -> SearchResult:
    from parcost.search.best_first import search

    if fastest is not None:
        points = fastest if whole.size <= _MOST_MAPPED else None
        return search(whole, request, on_progress=progress.show, points=points)
    if out is None:
        return search(whole, request, on_progress=progress.show)
    from parcost.output.search_points import PointsError

    try:
        return _write_points(whole, request, out, progress)
    except PointsError as error:
        raise click.ClickException(f"`{out}` cannot be written: {error}") from error


def _write_points(
    whole: Space, request: SearchRequest, out: str, progress: Progress
) -> SearchResult:
    from parcost.output.search_points import ParquetPoints, Points
    from parcost.search.best_first import search

    kind = Path(out).suffix.removeprefix(".")
    parquet = ParquetPoints(whole) if kind == "parquet" else None
    target = OutputFile(out)
    try:
        points = parquet.points if parquet is not None else Points(whole, kind, target.put)
        found = search(whole, request, on_progress=progress.show, points=points)
        if found.looked < found.structures:
            progress.clear()
            write_message(f"warning: `{out}` was not written: not every layout was looked at")
            return found
        if parquet is not None:
            target.save_with(parquet.save)
        target.finish()
    finally:
        target.abandon()
        if parquet is not None:
            parquet.close()
    return found


def _check_name(out: str) -> None:
    from parcost.output.search_points import FORMATS

    if Path(out).suffix.removeprefix(".") not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise click.UsageError(f"`--out {out}` has no format: its name ends in one of {known}")


def _parse_over(given: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return ``--over`` options by axis; values are numbers, or words of the language."""
    values: dict[str, list[Any]] = {}
    for text in given:
        name, equals, listed = (part.strip() for part in text.partition("="))
        items = [item.strip() for item in _ITEM.findall(listed.strip("[]")) if item.strip()]
        if not (name and equals and items):
            raise click.UsageError(f"`--over {text}` gives no values; write `--over tp=1,2,4`")
        if name in values:
            raise click.UsageError(f"`--over {name}` is given twice")
        values[name] = list(dict.fromkeys(_value(item) for item in items))
    return values


_ITEM = re.compile(r'(?:"[^"]*"|[^,])+')


def _value(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text
