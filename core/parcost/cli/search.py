"""``parcost search``: the best layouts, and why the others lost."""

from __future__ import annotations

import json
import re
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parcost.cli import options
from parcost.cli.streams import Interrupts, Progress, Reporter, Target, put, show, write_message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parcost.contract.terms import Goal
    from parcost.engine.scenario import Scenario
    from parcost.engine.session import Session
    from parcost.plugins.selection import PluginSelection
    from parcost.search.best_first import Wish
    from parcost.search.result import SearchResult
    from parcost.search.space import Space

_FAULT = 3
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
    help="Values that an axis may have: --over tp=1,2,4 or --over cluster.device=h100_sxm,b200. "
    "May be repeated; the other axes stay open.",
)
@click.option(
    "--axes",
    metavar="NAME,...",
    help="Only these axes; the spec says the rest. All that plugins offer where it is left out.",
)
@click.option(
    "--objective",
    metavar="NAME",
    help="What to look for: step_time (the default), mfu, tokens_per_second_per_device, "
    "cost_per_million_tokens, fewest_devices.",
)
@click.option("--top", type=click.IntRange(1, 1000), help="Layouts to list; 10 by default.")
@click.option(
    "--budget",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0),
    help="When to stop proving, 60 by default; the gap that is left is told.",
)
@click.option(
    "--sample",
    metavar="N",
    type=click.IntRange(1),
    help="Evaluate N legal layouts drawn at random, however large the space; proves nothing.",
)
@click.option("--seed", default=0, show_default=True, help="Of what --sample draws.")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--out",
    metavar="FILE",
    help="Write every legal layout into FILE.csv, FILE.jsonl or FILE.parquet.",
)
@options.study
@options.overrides
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
    selection: PluginSelection,
) -> int:
    """Find the best layouts of a study for its model and machine.

    Every attribute that a plugin offers as an axis is chosen anew, whatever the spec says:
    degrees, micro-batch, recomputation, ZeRO stage, schedule, overlap. Attributes that the
    spec sweeps have the values that it lists. What to look for and what must hold may stand
    in the spec, as `search { most_memory = 70 GiB }`, or come with --set
    'search.most_memory=70 GiB'. All legal layouts are scored, and replayed exactly from
    the best bound on until no other can be better.
    """
    from parcost.language.errors import SpecError
    from parcost.output import search
    from parcost.search.goals import goal_of
    from parcost.search.layout_evaluation import settings
    from parcost.search.sample import sample as drawn
    from parcost.search.sensitivity import neighbours
    from parcost.search.space import LARGEST, space

    if budget is not None and isnan(budget):
        raise click.UsageError("`--budget nan` says no time; write seconds, such as `--budget 60`")
    if sample is not None and out is not None:
        raise click.UsageError("`--out` writes every layout, and `--sample` looks at a few")
    if out is not None:
        _check_name(out)
    session = options.session(selection)
    values = options.parse_overrides(overrides)
    progress = Progress(elsewhere=True)  # results are written at the end
    try:
        scenario = _scenario(session, path, study, values)
        goal = goal_of(scenario.first)
        given = {name: list(v) for name, v in scenario.axes}
        given |= _parse_over(over)
        _check_goal(scenario, given, axes, objective)
        names = [name.strip() for name in axes.split(",")] if axes else list(goal.axes)
        most = float("inf") if sample is not None else LARGEST
        whole = space(scenario, given, names, most=most)
        wish = _wish(goal, objective, top, budget)
        if sample is not None:
            found = drawn(whole, wish, sample, seed=seed, told=progress.show)
        else:
            found = _search(whole, wish, out, progress)
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
    if format_ == "json":
        put(json.dumps(search.data(whole, found, best, near), indent=2) + "\n")
    else:
        show(search.search_page(whole, found, best, near))
    faults = search.faults(found, best)
    options.print_faults(fault.removeprefix("incomplete: ") for fault in faults)
    if found.interrupted:
        return Interrupts.exit_code()
    return _FAULT if faults else 0


def _wish(goal: Goal, objective: str | None, top: int | None, budget: float | None) -> Wish:
    from parcost.search.best_first import Wish

    standard = Wish()
    if budget is None:
        budget = goal.budget_seconds
    return Wish(
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


def _search(whole: Space, wish: Wish, out: str | None, progress: Progress) -> SearchResult:
    from parcost.search.best_first import search

    if out is None:
        return search(whole, wish, told=progress.show)
    from parcost.output.search_points import PointsError

    try:
        return _write_points(whole, wish, out, progress)
    except PointsError as error:
        raise click.ClickException(f"`{out}` cannot be written: {error}") from error


def _write_points(whole: Space, wish: Wish, out: str, progress: Progress) -> SearchResult:
    from parcost.output.search_points import Parquet, Points
    from parcost.search.best_first import search

    kind = Path(out).suffix.removeprefix(".")
    parquet = Parquet(whole) if kind == "parquet" else None
    target = Target(out)
    try:
        points = parquet.points if parquet is not None else Points(whole, kind, target.put)
        found = search(whole, wish, told=progress.show, points=points)
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
        raise click.UsageError(f"`--out {out}` says no format: its name ends in one of {known}")


def _scenario(session: Session, path: str, study: str | None, values: Any) -> Scenario:
    from parcost.language.diagnostics import Diagnostic, did_you_mean
    from parcost.language.errors import SpecError

    found = [s for s in session.load(path, values) if study in (None, s.name)]
    if len(found) == 1:
        return found[0]
    known = [s.name for s in session.load(path, values)]
    if study is not None:
        message = f"`{path}` has no study called `{study}`"
        help = did_you_mean(study, known) or "it has " + ", ".join(known)
    else:
        message = f"`{path}` has {len(known)} studies, and one is searched at a time"
        help = "pick one with --study: " + ", ".join(known)
    raise SpecError([Diagnostic("unknown-study", message, place=path, help=help)])


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
