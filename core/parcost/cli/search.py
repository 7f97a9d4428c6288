"""``parcost search``: the best layouts, and why the others lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from parcost.cli import options
from parcost.cli.output import Progress, Reporter, put, show

if TYPE_CHECKING:
    from parcost.api import Session
    from parcost.scenario import Scenario


@click.command("search")
@options.path
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=VALUES",
    help="Values that an axis may have: --over tp=1,2,4 or --over overlap.bucket='25 MB,50 MB'. "
    "May be repeated; the other axes stay open.",
)
@click.option(
    "--axes",
    metavar="NAME,...",
    help="Only these axes; the spec says the rest. All that plugins offer where it is left out.",
)
@click.option(
    "--objective",
    default="step_time",
    show_default=True,
    metavar="NAME",
    help="What to look for: step_time, mfu, tokens_per_second_per_device, cost_per_million_tokens.",
)
@click.option("--top", default=10, show_default=True, type=click.IntRange(1, 1000))
@click.option(
    "--budget",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0.0),
    help="When to stop proving; the gap that is left is told.",
)
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table")
@options.study
@options.overrides
@options.without
def command(
    path: str,
    over: tuple[str, ...],
    axes: str | None,
    objective: str,
    top: int,
    budget: float,
    format_: str,
    study: str | None,
    overrides: tuple[str, ...],
    without: tuple[str, ...],
) -> int:
    """Find the best layouts of a study for its model and machine.

    Every attribute that a plugin offers as an axis is chosen anew, whatever the spec says:
    degrees, micro-batch, recomputation, ZeRO stage, schedule, overlap. Attributes that the
    spec sweeps have the values that it lists. All legal layouts are scored, and replayed
    exactly from the best bound on until no other can be better.
    """
    from parcost.diagnostics import SpecError
    from parcost.search import told
    from parcost.search.run import search
    from parcost.search.space import space

    session = options.session(without)
    values = options.parse_overrides(overrides)
    progress = Progress()
    try:
        scenario = _scenario(session, path, study, values)
        given = {name: list(v) for name, v in scenario.axes}
        given |= _over(over)
        names = [name.strip() for name in axes.split(",")] if axes else []
        found = search(
            space(scenario, given, names),
            objective,
            keep=top,
            budget_seconds=budget,
            told=progress.show,
        )
        best = told.ranked(scenario, found)
    except SpecError as error:
        progress.clear()
        Reporter()(error.diagnostics)
        empty = {"empty-space", "nothing-fits"}
        return 1 if {d.id for d in error.diagnostics} & empty else 2
    progress.clear()
    if format_ == "json":
        put(json.dumps(told.data(scenario, found, best), indent=2) + "\n")
    else:
        show(told.tell(scenario, found, best))
    return 0


def _scenario(session: Session, path: str, study: str | None, values: Any) -> Scenario:
    from parcost.diagnostics import Diagnostic, SpecError, did_you_mean

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


def _over(given: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return ``--over`` options by axis; values are numbers, or words of the language."""
    values: dict[str, list[Any]] = {}
    for text in given:
        name, equals, listed = (part.strip() for part in text.partition("="))
        items = [item.strip() for item in listed.strip("[]").split(",") if item.strip()]
        if not (name and equals and items):
            raise click.UsageError(f"`--over {text}` gives no values; write `--over tp=1,2,4`")
        values[name] = [_value(item) for item in items]
    return values


def _value(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text
