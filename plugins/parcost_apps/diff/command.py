"""``parcost diff``: compare the step time and memory of a job before and after a change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost.language.escapes import quote_word
from parcost_apps import options
from parcost_apps.cli.messages import Reporter, write_message
from parcost_apps.cli.output_files import OutputFile
from parcost_apps.options.jobs import directory_job, is_one_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parcost.contract.importers import ImportOptions
    from parcost.engine.session import Session
    from parcost_apps.diff.studies import Difference, Side
    from parcost_apps.diff.thresholds import Threshold

_SEVERAL = 2


@click.command("diff")
@click.argument("sides", nargs=-1, required=True, metavar="A [B] | REVISION[..REVISION] FILE...")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "md", "json"]),
    show_default=options.BY_SUFFIX.format("text"),
    help="md is Markdown for a pull request.",
)
@click.option("--full", is_flag=True, help="Print every attribute and term that differs.")
@click.option(
    "--fail-on",
    "limits",
    multiple=True,
    metavar="LIMIT",
    help="Exit with 1 if a figure changes by more: --fail-on 'step_time > +2 %'. May be repeated.",
)
@options.studies
@options.out
def command(
    sides: tuple[str, ...],
    format_: str | None,
    full: bool,
    limits: tuple[str, ...],
    given: options.StudyOptions,
    out: str | None,
) -> int:
    """Compare two versions of specs: attributes, time and memory, term by term.

    A and B are files or directories, of specs or of one job of other tools. A git revision is
    compared with the working tree, or with a second revision: `parcost diff main -- specs/`.
    `main...topic` compares topic with the merge base of both. A single file, or several files of
    one job of other tools, is compared with itself changed by --set. Jobs that exceed memory are
    compared too.
    """
    from attrs import evolve

    from parcost_apps.diff.page import difference_data, difference_page
    from parcost_apps.diff.studies import differences

    study, values, reading, _ = given
    name = options.output_format(format_, out, ("md", "json"), "text")
    thresholds = list(_thresholds(limits))
    session = given.session()
    if values and is_one_job(sides, reading, lambda: session):
        reading = evolve(reading, files=(*sides[1:], *reading.files))
        sides = sides[:1]
    with ExitStack() as stack:
        before, after = _sides(sides, values, reading, stack, lambda: session)
        found = differences(before, after, session, study)
    Reporter()([*dict.fromkeys(d for _, one in found.rejections for d in one.diagnostics)])
    with OutputFile(out) as target:
        if name == "json":
            from parcost.language.json_encoding import encode

            target.put(encode(difference_data(found)) + "\n")
        else:
            from parcost_formats.rendering import markdown, text

            items = list(difference_page(found, full=full))
            drawn = markdown.draw(items) if name == "md" else text.draw(items, target.paper())
            target.put(drawn)
    failed = _report_failures(found, thresholds)
    worst = max((rejection.exit_code for _, rejection in found.rejections), default=0)
    return max(worst, int(failed))


def _thresholds(limits: Sequence[str]) -> Iterator[Threshold]:
    from parcost_apps.diff.thresholds import Threshold, ThresholdError

    for text in limits:
        try:
            yield Threshold.parse(text)
        except ThresholdError as error:
            raise click.UsageError(f"`--fail-on`: {error}") from error


def _sides(
    names: Sequence[str],
    values: Mapping[str, str],
    reading: ImportOptions,
    stack: ExitStack,
    session: Callable[[], Session],
) -> tuple[Side, Side]:
    """Return the two sides: two paths, two revisions, or a file with and without overrides."""
    from parcost_apps.diff.revisions import is_revision, merge_base, repository_paths
    from parcost_apps.diff.studies import Side

    first, *rest = names
    if os.path.exists(first) and len(names) <= _SEVERAL:
        if rest and values and os.path.exists(rest[0]) and Path(first).samefile(rest[0]):
            given = " ".join(
                f"--set {quote_word(f'{path}={text}')}" for path, text in values.items()
            )
            raise click.UsageError(
                "both sides are the same file, and `--set` applies to both; to compare the file "
                f"before and after `--set`, write `parcost diff {quote_word(first)} {given}`"
            )
        if rest:
            jobs = [(title, *directory_job(title, reading, session)) for title in names]
            before, after = (
                Side(title=title, paths=paths, overrides=values, reading=own)
                for title, paths, own in jobs
            )
            return before, after
        if not values:
            raise click.UsageError("give two files, a revision and files, or a file and --set")
        files, reading = directory_job(first, reading, session)
        job = ", ".join([*files, *reading.files])
        title = f"{job} with {', '.join(f'{k} = {v}' for k, v in values.items())}"
        return (
            Side(title=job, paths=files, completing=values, reading=reading),
            Side(title=title, paths=files, overrides=values, reading=reading),
        )
    old, dots, new = first.partition("..." if "..." in first else "..")
    for revision in filter(None, (old, new)):
        if not is_revision(revision):
            message = f"`{revision}` is neither a file nor a git revision of this repository"
            raise click.UsageError(message)
    if rest and not dots and not os.path.exists(rest[0]) and is_revision(rest[0]):
        both = quote_word(f"{first}..{rest[0]}")
        raise click.UsageError(
            f"`{rest[0]}` is also a revision; write two revisions as one word, `{both}`"
        )
    paths = repository_paths(rest or ["."])
    old = merge_base(old or "HEAD", new or "HEAD") if dots == "..." else old
    before = _revision_side(old or "HEAD", paths, values, reading, stack)
    if dots:
        return before, _revision_side(new or "HEAD", paths, values, reading, stack)
    return before, Side(title="now", paths=paths, overrides=values, reading=reading)


def _revision_side(
    revision: str,
    paths: Sequence[str],
    values: Mapping[str, str],
    reading: ImportOptions,
    stack: ExitStack,
) -> Side:
    from parcost_apps.diff.revisions import files_of
    from parcost_apps.diff.studies import Side

    folder = stack.enter_context(files_of(revision))
    return Side(title=revision, paths=paths, folder=folder, overrides=values, reading=reading)


def _report_failures(found: Difference, thresholds: Sequence[Threshold]) -> bool:
    """Print the studies that exceed a threshold; return whether any does."""
    from parcost.language.numbers import percent

    if thresholds and not (found.changes or found.same):
        raise click.UsageError(
            "`--fail-on`: no study has the same name on both sides, so nothing was compared"
        )
    failed = False
    for threshold in thresholds:
        known = False
        for change in found.changes:
            number = change.figure(threshold.figure)
            known = known or number is not None
            if number is not None and number.after is None and not change.valid[1]:
                failed = True
                why = "; ".join(change.reasons) or change.verdicts[1]
                at = "".join(f", {name} = {value}" for name, value in change.at.items())
                write_message(
                    f"error: {change.name}{at}: {threshold.figure} has no value after the change: "
                    f"{why}"
                )
            elif number is not None and threshold.is_met(change):
                failed = True
                write_message(
                    f"error: {change.name}: {threshold.figure} changes by "
                    f"{percent(number.relative, 2, signed=True)}, and the limit is {threshold}"
                )
        if not known and found.changes:
            names = sorted({f.name for change in found.changes for f in change.figures})
            if not names:
                failed = True
                write_message("error: no study has figures before or after the change")
                continue
            from parcost.language.diagnostics import did_you_mean

            hint = did_you_mean(threshold.figure, names) or "`parcost figures` lists them"
            raise click.UsageError(f"`--fail-on`: no figure is `{threshold.figure}`; {hint}")
    return failed
