"""``parcost check``: every problem of a spec, without evaluating it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    from parcost.engine.session import Session
    from parcost.language.diagnostics import Diagnostic
    from parcost.plugins.selection import PluginSelection
    from parcost.report.rejection import Rejection
    from parcost.spec.allowances import Allowance, Suppression


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
    switched_off = _Suppressions()
    worst = files = 0
    for spec, scenario in scenarios(paths, session, overrides=values, study=study, reading=reading):
        files += 1
        problems, code = _problems(spec.path, scenario)
        problems = switched_off.take(spec.path, scenario, problems)
        worst = max(worst, code if any(map(_is_error, problems)) else 0)
        new = {_key(d): d for d in problems if _key(d) not in found}
        paths_checked.setdefault(spec.path, []).extend(new.values())
        found |= new
    if study is None and not values:
        for path, unused in switched_off.unused(session):
            paths_checked[path].append(unused)
            found[_key(unused)] = unused
    _write(paths_checked, switched_off.found, format_, session)
    options.skip_faults(d.message for d in found.values() if d.id == "plugin-fault")
    count = sum(map(_is_error, found.values()))
    studies = f"{files} {'study' if files == 1 else 'studies'}"
    errors = f"{count or 'no'} {'error' if count == 1 else 'errors'}"
    more = "" if count else "; run `parcost eval` for the fit into memory"
    write_message(f"{studies} checked, {errors}{more}")
    if format_ == "text":
        _write_hints(found.values(), switched_off.found)
    return worst


class _Suppressions:
    """The warnings that specs switch off, and the comments that do so."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], Suppression] = {}
        self._used: set[int] = set()
        self._allowances: dict[str, Sequence[Allowance]] = {}

    @property
    def found(self) -> Sequence[Suppression]:
        """Every warning that is switched off, once."""
        return list(self._by_key.values())

    def take(
        self, path: str, scenario: Scenario | Rejection, problems: Sequence[Diagnostic]
    ) -> Sequence[Diagnostic]:
        """Return the *problems* of a study that its spec does not switch off."""
        from parcost.report.rejection import Rejection
        from parcost.spec.allowances import suppress

        if isinstance(scenario, Rejection):
            return problems
        kept, suppressed = suppress(problems, scenario.module.all_allowances())
        self._by_key |= {_key(one.diagnostic): one for one in suppressed}
        self._used |= {id(one.allowance) for one in suppressed}
        self._allowances[path] = scenario.module.allowances
        return kept

    def unused(self, session: Session) -> Iterator[tuple[str, Diagnostic]]:
        """Yield a warning for each allowance that switches nothing off, with its file.

        Rules that need the outcome of a step are not judged here, nor are their allowances.
        """
        from parcost.plugins.rule_pages import rule_pages
        from parcost.spec.allowances import unused_allowance

        for path, allowances in self._allowances.items():
            for allowance in allowances:
                page = rule_pages(session.plugins).pages[allowance.id]
                if id(allowance) not in self._used and not page.outcome:
                    yield path, unused_allowance(allowance)


def _write_hints(found: Iterable[Diagnostic], suppressions: Sequence[Suppression]) -> None:
    """Write what is switched off, and which command explains what is not."""
    if suppressions:
        plural = "s" * (len(suppressions) > 1)
        write_message(f"{len(suppressions)} warning{plural} switched off:")
        for one in suppressions:
            write_message(f"  {one.diagnostic.id}: {one.reason}")
    if first := next((d.id for d in found), ""):
        write_message(f"`parcost rule {first}` explains a rule by its id")


def _problems(path: str, scenario: Scenario | Rejection) -> tuple[Sequence[Diagnostic], int]:
    """Return the problems of a spec, and the exit code if any of them is an error."""
    from parcost.batch.rejections import attempt
    from parcost.batch.scenarios import only_defines
    from parcost.report.rejection import Rejection

    if isinstance(scenario, Rejection):
        return scenario.diagnostics, scenario.exit_code
    checked = attempt(path, partial(_diagnostics, scenario))
    if not isinstance(checked, Rejection):
        return checked, 3 if any(d.id == "plugin-fault" for d in checked) else 1
    if only_defines(scenario):  # the importing file has the rest
        return [d for d in checked.diagnostics if d.id != "missing-block"], checked.exit_code
    return checked.diagnostics, checked.exit_code


def _diagnostics(scenario: Scenario) -> Sequence[Diagnostic]:
    """Return the problems of a study that can be bound, and of its search."""
    found = scenario.judge()
    study = scenario.first
    if any(map(_is_error, found)) or not study.trains:
        return found
    goals = [goal for _, goal in study.contributions("search_goals")]
    if all(study.where(f"{goal.subject}.axes") is None for goal in goals):
        return found  # nothing is said, and looking into a search takes long to import
    from parcost.search.goals import unknown_axes, unknown_objective

    return [*found, *unknown_axes(scenario), *unknown_objective(scenario)]


def _write(
    by_path: Mapping[str, Sequence[Diagnostic]],
    suppressions: Sequence[Suppression],
    format_: str,
    session: Session,
) -> None:
    from parcost.language.diagnostic_text import render
    from parcost.output.diagnostics import as_data, github, suppression_data

    found = [diagnostic for diagnostics in by_path.values() for diagnostic in diagnostics]
    if format_ == "sarif":
        from parcost.output.ci_formats import sarif
        from parcost.plugins.rule_pages import rule_pages

        both = [*map(as_data, found), *map(suppression_data, suppressions)]
        put(sarif(both, rule_pages(session.plugins).pages))
        return
    if format_ == "junit":
        from parcost.output.ci_formats import cases_of, junit

        cases = (cases_of(path, list(map(as_data, some))) for path, some in by_path.items())
        put(junit(case for some in cases for case in some))
        return
    if format_ == "json":
        from parcost.output.data import header

        document = {
            **header(),
            "diagnostics": [as_data(d) for d in found],
            "suppressions": [suppression_data(one) for one in suppressions],
        }
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
