"""``parcost check``: every problem of a spec, without evaluating it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from parcost_apps import options
from parcost_apps.cli.messages import repeat_note, write_message
from parcost_apps.cli.pages import wants_color, wrap_sentences
from parcost_apps.cli.streams import put, results
from parcost_formats.rendering.escapes import escape_json

if TYPE_CHECKING:
    from parcost.binding.allowances import Suppression
    from parcost.engine.session import Session
    from parcost.language.diagnostics import Diagnostic
    from parcost_apps.documentation.rulebooks import RulePage


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
@options.studies
def command(
    paths: tuple[str, ...],
    format_: str,
    given: options.StudyOptions,
) -> int:
    """Find errors in syntax, names, units and rules, without an evaluation.

    Problems go to stdout.
    """
    from parcost_apps.check.problems import Suppressions, is_error, key, problems

    session = given.session()
    found: dict[tuple[object, ...], Diagnostic] = {}
    paths_checked: dict[str, list[Diagnostic]] = {}
    switched_off = Suppressions()
    worst = files = 0
    for spec, scenario in given.scenarios(paths, session):
        files += 1
        of_study, code = problems(spec.path, scenario)
        of_study = switched_off.take(spec.path, scenario, of_study)
        worst = max(worst, code if any(map(is_error, of_study)) else 0)
        new = {key(d): d for d in of_study if key(d) not in found}
        paths_checked.setdefault(spec.path, []).extend(new.values())
        found |= new
    if given.study is None and not given.values:
        for path, unused in switched_off.unused_warnings(session):
            paths_checked[path].append(unused)
            found[key(unused)] = unused
    _write(paths_checked, switched_off.suppressions, format_, session)
    options.skip_faults(d.message for d in found.values() if d.id == "plugin-fault")
    count = sum(map(is_error, found.values()))
    studies = f"{files} {'study' if files == 1 else 'studies'}"
    errors = f"{count or 'no'} {'error' if count == 1 else 'errors'}"
    more = (
        "" if count else "; `parcost eval` also checks that the job is complete and fits in memory"
    )
    write_message(f"{studies} checked, {errors}{more}")
    if format_ == "text":
        _write_hints(found.values(), switched_off.suppressions)
    return worst


def _write_hints(found: Iterable[Diagnostic], suppressions: Sequence[Suppression]) -> None:
    """Write the warnings that are switched off, and the command that explains a rule."""
    if suppressions:
        plural = "s" * (len(suppressions) > 1)
        write_message(f"{len(suppressions)} warning{plural} switched off:")
        for one in suppressions:
            write_message(f"  {one.diagnostic.id}: {one.reason}")
    if first := next((d.id for d in found), ""):
        write_message(f"`parcost rule {first}` explains the rule")


def _write(
    by_path: Mapping[str, Sequence[Diagnostic]],
    suppressions: Sequence[Suppression],
    format_: str,
    session: Session,
) -> None:
    from parcost.language.diagnostic_text import render
    from parcost_formats.rendering.diagnostics import as_data, suppression_data
    from parcost_formats.reports.ci_formats import cases_of, github, junit, sarif

    found = [diagnostic for diagnostics in by_path.values() for diagnostic in diagnostics]
    if format_ == "sarif":
        from parcost_apps.documentation.rulebooks import rule_pages

        pages = rule_pages(session.plugins).pages
        both = [*map(as_data, found), *map(suppression_data, suppressions)]
        put(sarif(both, {id: _rule(page) for id, page in pages.items()}))
        return
    if format_ == "junit":
        cases = (cases_of(path, list(map(as_data, some))) for path, some in by_path.items())
        put(junit(case for some in cases for case in some))
        return
    if format_ == "json":
        from parcost_formats.rendering.json_header import header

        document = {
            **header(),
            "diagnostics": [as_data(d) for d in found],
            "suppressions": [suppression_data(one) for one in suppressions],
        }
        put(escape_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n")
        return
    if format_ == "github":
        put("".join(f"{github(as_data(diagnostic))}\n" for diagnostic in found))
        return
    for diagnostic in _merge_warnings(by_path):
        text = render(diagnostic, color=wants_color(results()))
        put(wrap_sentences(text, results()) + "\n\n")


def _merge_warnings(by_path: Mapping[str, Sequence[Diagnostic]]) -> Iterable[Diagnostic]:
    """Return the diagnostics; equal warnings of several files are one, with a note."""
    from attrs import evolve

    from parcost.language.diagnostics import Severity

    paths: dict[tuple[str, str], dict[str, None]] = {}
    for path, diagnostics in by_path.items():
        for one in diagnostics:
            paths.setdefault((one.id, one.message), {})[path] = None
    for path, diagnostics in by_path.items():
        for one in diagnostics:
            first, *others = paths[one.id, one.message]
            if others and one.severity is Severity.WARNING:
                if path == first:
                    yield evolve(one, notes=(*one.notes, repeat_note(others)))
            else:
                yield one


def _rule(page: RulePage) -> dict[str, Any]:
    """Return the properties of a rule in SARIF, including the texts that a viewer shows."""
    from parcost_apps.documentation.rule_pages import markdown

    return {
        "name": "".join(word.capitalize() for word in page.id.split("-")),
        "shortDescription": {"text": page.title},
        "fullDescription": {"text": page.why},
        "help": {"text": page.fix, "markdown": markdown(page)},
        "defaultConfiguration": {"level": page.severity},
    }
