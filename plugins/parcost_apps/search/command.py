"""``parcost search``: the best layouts, and why the others are slower."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from parcost_apps import options
from parcost_apps.batch.pictures import picture_format, unknown_format, write_entries
from parcost_apps.cli.interrupts import Interrupts
from parcost_apps.cli.messages import Progress, Reporter, write_message
from parcost_apps.cli.output_files import OutputFile
from parcost_apps.cli.pages import show
from parcost_apps.cli.streams import put

if TYPE_CHECKING:
    from parcost.contract.settings import SettingsWriter
    from parcost.engine.scenario import Scenario
    from parcost.engine.session import Session
    from parcost.language.errors import SpecError
    from parcost.plugins.discovery import Plugins
    from parcost.search.best_first import SearchRequest
    from parcost.search.layout_search import LayoutSearch
    from parcost.search.result import SearchResult
    from parcost.search.space import Space
    from parcost_apps.batch.formats import Format
    from parcost_apps.export.settings import ExportedSettings
    from parcost_apps.search.report import RankedLayout
    from parcost_apps.search.sensitivity import Neighbour

_FAULT = 3
_TABLE, _JSON = _PAGES = ("table", "json")
_FAILED = {"search-disagrees", "plugin-failed"}
_NOTHING = {"empty-space", "nothing-fits", "nothing-within-limits", "out-of-time"}


def _reject_processes(_: click.Context, __: click.Parameter, value: str | None) -> None:
    """Reject `--jobs` and `--executor`: a search in several processes would repeat shared work."""
    if value is not None:
        raise click.UsageError(
            "a search runs in one process, so it has no `--jobs` or `--executor`; to use more "
            "processes, start one search for each value of an axis: `--over tp=4`"
        )


@click.command("search")
@options.job
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
    help="Search only these axes; the spec sets the others. By default all axes are searched.",
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
    help=(
        "Time limit of scoring in seconds, 60 by default; the batch in progress is finished, and "
        "the remaining gap is printed."
    ),
)
@click.option(
    "--sample",
    metavar="N",
    type=click.IntRange(1),
    help="Evaluate N random legal layouts of a space of any size, without a proof.",
)
@click.option(
    "--tolerance",
    metavar="SHARE",
    help="Layouts whose step times differ by less are listed with the simpler ones first: 3 % by "
    "default, 0 sorts by time.",
)
@click.option(
    "--headroom",
    metavar="SHARE",
    help="Share of the usable memory to keep free, such as '10 %'.",
)
@click.option(
    "--full",
    is_flag=True,
    help="Print every listed layout, the violated rules and the Pareto front.",
)
@click.option(
    "--front",
    is_flag=True,
    help="Print the Pareto front of step time and memory, which takes longer; --full and "
    "--format json have it as well.",
)
@click.option("--seed", default=0, show_default=True, help="Random seed of --sample.")
@click.option(
    "--format",
    "format_",
    default=_TABLE,
    show_default=True,
    metavar="NAME",
    help="table, json, or a format that draws the map of layouts and the front: html, svg, png.",
)
@click.option(
    "--out",
    metavar="FILE",
    help="Write every legal layout to FILE.csv, FILE.jsonl or FILE.parquet, or the pictures; with "
    "--emit, the settings.",
)
@click.option(
    "--emit",
    metavar="TOOL",
    help="Write the best layout as settings of a tool: megatron, torchtitan, deepspeed, ...; "
    "`parcost export --list` has them. With --out the settings go to a file, and the report to "
    "stdout.",
)
@click.option(
    "--rank",
    type=click.IntRange(1),
    help="Rank of the layout that --emit writes; 1 by default.",
)
@options.studies
@click.option("--jobs", "--executor", hidden=True, expose_value=False, callback=_reject_processes)
def command(
    path: str,
    over: tuple[str, ...],
    axes: str | None,
    objective: str | None,
    top: int | None,
    budget: float | None,
    sample: int | None,
    tolerance: str | None,
    headroom: str | None,
    full: bool,
    front: bool,
    seed: int,
    format_: str,
    out: str | None,
    emit: str | None,
    rank: int | None,
    given: options.StudyOptions,
) -> int:
    """Find the best layouts of a study for its model and machine.

    The search chooses every attribute that a plugin offers as an axis, whatever its value in
    the spec: degrees, micro-batch, recomputation, ZeRO stage, schedule, overlap. A sweep in
    the spec restricts its attribute to the listed values. The objective and limits are
    attributes of the spec, as `search { most_memory = 70 GiB }`, or of --set
    'search.most_memory=70 GiB'. The search computes a lower bound of the
    step time of all legal layouts. It evaluates them in order of this bound, until no other layout
    can be better.
    """
    from attrs import evolve

    from parcost.language.errors import SpecError
    from parcost.search.layout_search import layout_search
    from parcost.search.space import LARGEST
    from parcost_apps.batch.scenarios import only_study
    from parcost_apps.export.settings import write_settings, writer_of

    if budget is not None and isnan(budget):
        raise click.UsageError("`--budget nan` is not a time; write seconds, such as `--budget 60`")
    names = [] if axes is None else [name.strip() for name in axes.split(",")]
    if not all(names):
        raise click.UsageError(f"`--axes {axes}` has no names; write `--axes tp,pp`")
    session = given.session()
    picture = _picture(format_, session.plugins)
    _check_options(picture, format_, sample=sample, out=out, emit=emit, rank=rank)
    if headroom is not None:
        share = f"{_share('--headroom', headroom)!r}"
        given = given._replace(values={**given.values, "search.headroom": share})
    progress = Progress(elsewhere=True)  # results are written at the end
    exported: list[ExportedSettings] = []
    scenario: Scenario | None = None
    try:
        writer = writer_of(session, emit) if emit is not None else None
        values = _parse_over(over)
        chosen = {name: each[0] for name, each in values.items() if isinstance(each[0], str)}
        chosen = {name: word for name, word in chosen.items() if "." in name}
        scenario = only_study(session, path, given.study, {**chosen, **given.values}, given.reading)
        _check_trains(scenario, path)
        wanted = layout_search(
            scenario,
            over=values,
            axes=names,
            objective=objective,
            top=top,
            budget_seconds=budget,
            tolerance=None if tolerance is None else _share("--tolerance", tolerance),
            most=float("inf") if sample is not None else LARGEST,
        )
        has_front = front or full or format_ == _JSON
        wanted = evolve(wanted, request=evolve(wanted.request, front=has_front))
        points = out if emit is None and picture is None else None
        found = _search(wanted, points, progress, sample, seed, is_drawn=picture is not None)
        ranked = _rank(wanted.space, found)
        if writer is not None:
            exported.append(_settings(session, scenario, writer, found, rank or 1))
    except SpecError as failed:
        progress.clear()
        return _print_failure(failed if scenario is None else scenario.explain(failed))
    progress.clear()
    if exported and out is None:
        write_settings(exported, None)
    else:
        _print(ranked, picture, format_, out, rows=top, full=full, front=front)
    if exported and out is not None:
        write_settings(exported, out)
    return _exit_code(ranked)


def _check_trains(scenario: Scenario, path: str) -> None:
    """Reject a file of calculators, which have no layout.

    Raises:
        SpecError: The study has no training step.
    """
    from parcost.language.diagnostics import Diagnostic
    from parcost.language.errors import SpecError

    study = scenario.first
    if study.trains or not study.calculates:
        return
    message = f"`{path}` has no training step, only calculators without a layout"
    help = f"`parcost eval {path}` shows their results"
    raise SpecError([Diagnostic("missing-block", message, place=path, help=help)])


class _Ranking(NamedTuple):
    """A search, its best layouts, and the neighbours of the first layout."""

    whole: Space
    found: SearchResult
    best: Sequence[RankedLayout]
    near: Sequence[Neighbour]


def _picture(format_: str, plugins: Plugins) -> Format | None:
    """Return the chosen format if it draws, else None; an unknown name is a usage error."""
    if format_ in _PAGES:
        return None
    if (found := picture_format(format_, plugins)) is None:
        raise click.UsageError(unknown_format("a search", format_, _PAGES, plugins))
    return found


def _check_options(
    picture: Format | None,
    format_: str,
    *,
    sample: int | None,
    out: str | None,
    emit: str | None,
    rank: int | None,
) -> None:
    """Reject options that contradict each other, or have no effect."""
    if sample is not None and out is not None and emit is None:
        raise click.UsageError(
            "`--out` writes every layout, but `--sample` evaluates only some: remove one of them"
        )
    if emit is not None and picture is not None:
        raise click.UsageError(
            f"`--emit` writes settings, but `--format {format_}` writes pictures"
        )
    if emit is not None and out is None and format_ != _TABLE:
        raise click.UsageError(
            "`--emit` prints settings in place of the report: write the settings to a file with "
            f"`--out FILE`, and `--format {format_}` prints the report"
        )
    if rank is not None and emit is None:
        raise click.UsageError(
            "`--rank` selects the layout that `--emit TOOL` writes: add `--emit`"
        )
    if out is not None and emit is None and picture is None:
        _check_name(out)
    if picture is not None and sample is not None:
        raise click.UsageError(
            "pictures show all layouts, but `--sample` evaluates only some: remove one of them"
        )
    if picture is not None:
        picture.check(out)


def _search(
    wanted: LayoutSearch,
    points: str | None,
    progress: Progress,
    sample: int | None,
    seed: int,
    *,
    is_drawn: bool,
) -> SearchResult:
    """Return the best layouts; write all evaluated layouts to the file *points*, if given."""
    whole, request = wanted.space, wanted.request
    if sample is not None:
        from parcost.search.sample import sample as drawn

        return drawn(whole, request, sample, seed=seed, on_progress=progress.show)
    if is_drawn:
        from parcost_apps.search.pictures import search_for_map

        return search_for_map(whole, request, progress.show)
    if points is None:
        from parcost.search.best_first import search

        return search(whole, request, on_progress=progress.show)
    from parcost_apps.search.points import PointsError

    try:
        return _write_points(whole, request, points, progress)
    except PointsError as error:
        raise click.ClickException(f"`{points}` cannot be written: {error}") from error


def _rank(whole: Space, found: SearchResult) -> _Ranking:
    """Return the best layouts with the values in which they differ, and neighbours of the first."""
    from parcost_apps.search.report import rank_layouts
    from parcost_apps.search.sensitivity import neighbours

    return _Ranking(whole, found, rank_layouts(found), list(neighbours(found, whole.axes)))


def _print(
    ranked: _Ranking,
    picture: Format | None,
    format_: str,
    out: str | None,
    *,
    rows: int | None,
    full: bool,
    front: bool,
) -> None:
    """Write the report in a format. A page shows *rows* layouts, or all sections if *full*.

    With *front*, the page ends with the Pareto front.
    """
    from parcost_apps.search import report
    from parcost_apps.search.screen import search_screen

    if picture is not None:
        from parcost_apps.search.pictures import search_entry

        write_entries([search_entry(*ranked)], picture, out)
    elif format_ == _JSON:
        put(json.dumps(report.data(*ranked), indent=2) + "\n")
    elif full:
        show(report.search_page(*ranked))
    else:
        show(search_screen(*ranked, rows=rows, front=front))


def _print_failure(error: SpecError) -> int:
    """Print the reason why no layout fits, and return the exit code."""
    Reporter()(error.diagnostics)
    options.skip_faults(d.message.removeprefix("incomplete: ") for d in error.diagnostics)
    ids = {d.id for d in error.diagnostics}
    return _FAULT if ids & _FAILED else 1 if ids & _NOTHING else 2


def _exit_code(ranked: _Ranking) -> int:
    """Print the faults of plugins, and return the exit code."""
    from parcost_apps.search import report

    faults = report.faults(ranked.found, ranked.best)
    options.print_faults(fault.removeprefix("incomplete: ") for fault in faults)
    if ranked.found.interrupted:
        return Interrupts.exit_code()
    return _FAULT if faults else 0


def _settings(
    session: Session, scenario: Scenario, writer: SettingsWriter, found: SearchResult, rank: int
) -> ExportedSettings:
    """Return the settings of the layout at a *rank* for the tool of *writer*.

    Raises:
        SpecError: The tool cannot run it, or fewer layouts were found.
    """
    from parcost.search.layout_evaluation import settings
    from parcost.system.files import failure
    from parcost_apps.export.settings import export

    if rank > len(found.best):
        message = f"--rank {rank} is not listed: there are {len(found.best)} layouts"
        raise failure("unknown-rank", message, scenario.path, "list more layouts with --top")
    at = settings(scenario, found.best[rank - 1].values)
    return export(scenario.replace(at).first, writer, session)


def _write_points(
    whole: Space, request: SearchRequest, out: str, progress: Progress
) -> SearchResult:
    from parcost.search.best_first import search
    from parcost_apps.search.points import ParquetPoints, Points

    kind = Path(out).suffix.removeprefix(".")
    parquet = ParquetPoints(whole) if kind == "parquet" else None
    target = OutputFile(out)
    try:
        points = parquet.points if parquet is not None else Points(whole, kind, target.put)
        found = search(whole, request, on_progress=progress.show, points=points)
        if found.looked < found.structures:
            progress.clear()
            write_message(f"warning: `{out}` was not written: not every layout was evaluated")
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
    from parcost_apps.search.points import FORMATS

    if Path(out).suffix.removeprefix(".") not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise click.UsageError(
            f"`--out {out}` has no known format: its name must end in one of {known}"
        )


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


def _share(option: str, text: str) -> float:
    """Return a fraction below 1, written as `10 %` or `0.1`."""
    plain = text.strip()
    number = plain.removesuffix("%").strip()
    try:
        value = float(number) / (100.0 if plain.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise click.UsageError(f"`{option} {text}` is not a share: write `{option} '10 %'` or 0.1")
    return value


_ITEM = re.compile(r'(?:"[^"]*"|[^,])+')


def _value(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text
