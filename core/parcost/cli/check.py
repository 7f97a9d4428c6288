"""``parcost check``: every problem of a spec, without evaluating it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.messages import write_message
from parcost.cli.pages import wants_color, wrap_sentences
from parcost.cli.streams import put, results
from parcost.language.escapes import escape_json

if TYPE_CHECKING:
    from parcost.contract.importers import ImportOptions
    from parcost.engine.scenario import Scenario
    from parcost.language.diagnostics import Diagnostic
    from parcost.plugins.selection import PluginSelection
    from parcost.report.rejection import Rejection


@click.command("check")
@options.paths
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "github", "junit", "sarif"]),
    default="text",
    show_default=True,
    help="Format of the problems; github annotates a pull request, junit and sarif are for CI.",
)
@options.study
@options.overrides
@options.reading
@options.selection
def command(
    paths: tuple[str, ...],
    format_: str,
    study: str | None,
    overrides: tuple[str, ...],
    reading: ImportOptions,
    selection: PluginSelection,
) -> int:
    """Find errors without an evaluation: syntax, names, units, rules.

    Problems go to stdout.
    """
    from parcost.batch.scenarios import scenarios

    values = options.parse_overrides(overrides)
    session = options.session(selection)
    found: dict[tuple[object, ...], Diagnostic] = {}
    paths_checked: dict[str, list[Diagnostic]] = {}
    worst = files = 0
    for spec, scenario in scenarios(paths, session, overrides=values, study=study, reading=reading):
        files += 1
        problems, code = _problems(spec.path, scenario)
        worst = max(worst, code if any(map(_is_error, problems)) else 0)
        new = {_key(d): d for d in problems if _key(d) not in found}
        paths_checked.setdefault(spec.path, []).extend(new.values())
        found |= new
    _write(paths_checked, format_)
    options.skip_faults(d.message for d in found.values() if d.id == "plugin-fault")
    count = sum(map(_is_error, found.values()))
    studies = f"{files} {'study' if files == 1 else 'studies'}"
    errors = f"{count or 'no'} {'error' if count == 1 else 'errors'}"
    more = "" if count else "; run `parcost eval` for the fit into memory"
    write_message(f"{studies} checked, {errors}{more}")
    return worst


def _problems(path: str, scenario: Scenario | Rejection) -> tuple[Sequence[Diagnostic], int]:
    """Return the problems of a spec, and the exit code if any of them is an error."""
    from parcost.batch.rejections import attempt
    from parcost.batch.scenarios import only_defines
    from parcost.language.errors import SpecError
    from parcost.report.rejection import Rejection

    if isinstance(scenario, Rejection):
        return scenario.diagnostics, scenario.exit_code
    checked = attempt(path, partial(_checked, scenario))
    if not isinstance(checked, Rejection):
        return checked, 3 if any(d.id == "plugin-fault" for d in checked) else 1
    if only_defines(scenario):  # the importing file has the rest
        return [d for d in checked.diagnostics if d.id != "missing-block"], checked.exit_code
    explained = scenario.explain(SpecError(checked.diagnostics))
    return explained.diagnostics, checked.exit_code


def _checked(scenario: Scenario) -> Sequence[Diagnostic]:
    """Return the problems of a study that can be bound, and of its search."""
    found = scenario.check()
    study = scenario.first
    if any(map(_is_error, found)) or not study.trains:
        return found
    goals = [goal for _, goal in study.contributions("search_goals")]
    if all(study.where(f"{goal.subject}.axes") is None for goal in goals):
        return found  # nothing is said, and looking into a search takes long to import
    from parcost.search.goals import unknown_axes, unknown_objective

    return [*found, *unknown_axes(scenario), *unknown_objective(scenario)]


def _write(by_path: Mapping[str, Sequence[Diagnostic]], format_: str) -> None:
    from parcost.language.diagnostic_text import render
    from parcost.output.diagnostics import as_data, github

    found = [diagnostic for diagnostics in by_path.values() for diagnostic in diagnostics]
    if format_ in ("junit", "sarif"):
        from parcost.output.ci_formats import cases_of, junit, sarif

        if format_ == "sarif":
            put(sarif(map(as_data, found)))
            return
        cases = (cases_of(path, list(map(as_data, some))) for path, some in by_path.items())
        put(junit(case for some in cases for case in some))
        return
    if format_ == "json":
        from parcost.output.data import header

        document = {**header(), "diagnostics": [as_data(d) for d in found]}
        put(escape_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
        return
    for diagnostic in found:
        if format_ == "github":
            put(github(diagnostic) + "\n")
        else:
            put(
                wrap_sentences(render(diagnostic, color=wants_color(results())), results()) + "\n\n"
            )


def _is_error(diagnostic: Diagnostic) -> bool:
    return diagnostic.severity.value == "error"


def _key(diagnostic: Diagnostic) -> tuple[object, ...]:
    spans = ((label.span.source.name, label.span.start) for label in diagnostic.labels)
    return (diagnostic.id, diagnostic.message, diagnostic.place, *spans)
