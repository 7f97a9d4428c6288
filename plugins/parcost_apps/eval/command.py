"""``parcost eval``: step reports of one spec or thousands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.interrupts import Interrupts
from parcost_apps.cli.messages import Progress, write_message
from parcost_apps.cli.output_files import OutputFile

if TYPE_CHECKING:
    from parcost_apps.batch.cache import Cache
    from parcost_apps.batch.files import Spec
    from parcost_apps.batch.fingerprints import Environment, Question
    from parcost_apps.batch.formats import Format, Watch
    from parcost_apps.batch.worker import Worker
    from parcost_apps.eval.shards import Shard
    from parcost_formats.rendering.rejection import Rejection
    from parcost_formats.rendering.view import Kind, Order, View


_FILE_FORMATS = ("md", "json", "jsonl", "csv", "parquet", "html", "svg", "png")


@click.command("eval")
@options.paths
@click.option(
    "--format",
    "format_",
    show_default=options.BY_SUFFIX.format("table"),
    metavar="NAME",
    help="table, md, json, jsonl, csv, parquet, html, svg, png, or a format of a plugin.",
)
@click.option(
    "--picture",
    metavar="NAME",
    help="Draw only this picture, with --format html, svg or png: step, memory, pipeline, ...",
)
@click.option("--full", is_flag=True, help="Print the whole report: every term, section and claim.")
@click.option(
    "--section",
    metavar="NAME",
    help="Print the parts of the whole report whose title contains NAME.",
)
@click.option(
    "--order",
    type=click.Choice(["execution", "size"]),
    help="Order of the terms in the whole report.  [default: execution]",
)
@click.option("--warnings", is_flag=True, help="Print every warning on the default screen.")
@click.option("--compare", is_flag=True, help="Print one table with a column for each study.")
@click.option(
    "--figures",
    metavar="NAME,...",
    help="Print only these figures, in this order; `parcost figures` lists them.",
)
@options.studies
@options.out
@options.jobs
@options.executor
@click.option(
    "--shard",
    metavar="I/N",
    help="Evaluate the I-th of N parts of the files, for `parcost merge`.",
)
@click.option(
    "--cache",
    "folder",
    metavar="DIR",
    help="Cache results in DIR instead of the user's cache folder.",
)
@click.option(
    "--no-cache",
    is_flag=True,
    envvar="PARCOST_NO_CACHE",
    help="Evaluate everything, without reading or writing the cache.",
)
def command(
    paths: tuple[str, ...],
    format_: str | None,
    picture: str | None,
    full: bool,
    section: str | None,
    order: Order | None,
    warnings: bool,
    compare: bool,
    figures: str | None,
    given: options.StudyOptions,
    out: str | None,
    jobs: int | None,
    executor: str | None,
    shard: str | None,
    folder: str | None,
    no_cache: bool,
) -> int:
    """Evaluate specs and print step reports.

    Reports go to stdout, problems to stderr. A directory stands for all .par files in it and
    below, a pattern for the files that match it. A bad file never stops the others. One study
    prints one screen, several print a line each. Results of a batch are cached; the next run
    evaluates only changed files.
    """
    from parcost_apps.batch.files import is_several, specs
    from parcost_apps.batch.fingerprints import Environment, Question
    from parcost_apps.batch.formats import Watch
    from parcost_apps.batch.run import BatchRun

    if folder and no_cache:
        raise click.UsageError("`--cache` and `--no-cache` contradict each other")
    part = _shard(shard)
    engine = options.engine(jobs, executor)
    options.check(given.selection)
    many = is_several(paths)
    environment = Environment(given.selection)
    uncached = no_cache or given.reading.anchors  # whose files may use others
    cache = None if uncached or not (many or folder) else _cache(folder, environment)
    name = options.output_format(format_, None if part else out, _FILE_FORMATS, "table")
    format_found, worker = _format(name, environment, cache)
    if part is None:
        format_found.check(out)
    view = _view(
        full=full,
        section=section,
        order=order,
        compare=compare,
        figures=figures,
        picture=picture,
        warnings=warnings,
        many=many,
    )
    _check_options(view, format_found, order)
    question = Question(given.values, given.study, format_found.reads, view)
    inside = Progress(elsewhere=True)  # nothing is written while a file is worked on
    files: Sequence[Spec | Rejection] = list(specs(paths, given.reading, inside.show))
    if part is not None:
        part, files = _select_files(part, files, format_found, environment, question)
    run = BatchRun(question, environment, cache, engine, worker, inside.show)
    warn = format_found.reads != "page" or view.kind in ("section", "compare")
    repeat = format_found.reads != "page" or view.kind in ("full", "section")
    elsewhere = out is not None
    watch = Watch(run, len(files), inside, elsewhere=elsewhere, warn=warn, repeat=repeat)
    with _watch_file(out, watch) as (target, interrupts):
        entries = watch(run.entries(files), interrupts)
        if part is None:
            format_found.write(entries, target, view)
        else:
            for line in part.lines(entries):
                target.put(line)
    if cache is not None:
        cache.prune()
    if many:
        write_message(watch.summary())
    watch.print_unknown_names()
    return watch.exit_code


@contextmanager
def _watch_file(out: str | None, watch: Watch) -> Iterator[tuple[OutputFile, Interrupts]]:
    """Yield the output file and move it into place at the end; after an error *watch* prints the
    cause.
    """
    from parcost.language.errors import SpecError

    interrupts = Interrupts()
    try:
        with interrupts, OutputFile(out, interrupts) as target:
            yield target, interrupts
    except KeyboardInterrupt:
        watch.print_interruption()
        raise
    except (click.ClickException, SpecError):
        watch.print_unknown_names()  # it may be why there is nothing to write
        raise


def _view(
    *,
    full: bool,
    section: str | None,
    order: Order | None,
    compare: bool,
    figures: str | None,
    picture: str | None,
    warnings: bool,
    many: bool,
) -> View:
    """Return the view that the options select; contradicting options are a usage error."""
    from parcost_formats.rendering.view import View

    kinds: dict[Kind, bool] = {
        "full": full,
        "section": section is not None,
        "compare": compare,
    }
    given = [kind for kind, wanted in kinds.items() if wanted]
    if len(given) > 1:
        raise click.UsageError(
            f"`--{given[0]}` and `--{given[1]}` exclude each other: give one of them"
        )
    kind: Kind = given[0] if given else "line" if many else "screen"
    if order is not None and kind not in ("full", "section"):
        raise click.UsageError("`--order` needs the whole report: add --full")
    names = tuple(name.strip() for name in figures.split(",")) if figures is not None else ()
    if figures is not None and not all(names):
        raise click.UsageError(f"`--figures {figures}` has no names; write --figures mfu,bubble")
    return View(
        kind=kind,
        section=section or "",
        order=order or "execution",
        figures=names,
        picture=picture or "",
        warnings=warnings,
    )


def _check_options(view: View, format_: Format, order: Order | None) -> None:
    """Reject options that a format does not read."""
    name, reads = format_.exporter.name, format_.reads
    if reads != "page" and (view.kind in ("full", "section", "compare") or order is not None):
        option = "order" if view.kind in ("screen", "line") else view.kind
        raise click.UsageError(f"`--{option}` has no effect on `--format {name}`")
    if view.picture and reads != "charts":
        raise click.UsageError(
            f"`--picture` has no effect on `--format {name}`, which draws no pictures"
        )
    if view.figures and reads not in ("page", "points"):
        raise click.UsageError(
            f"`--figures` has no effect on `--format {name}`, which has all figures"
        )


def _shard(text: str | None) -> Shard | None:
    if text is None:
        return None
    from parcost_apps.eval.shards import Shard, ShardError

    try:
        return Shard.parse(text)
    except ShardError as error:
        raise click.UsageError(f"`--shard`: {error}") from error


def _cache(folder: str | None, environment: Environment) -> Cache:
    from parcost_apps.batch.cache import Cache, default_place, make_private

    place = Path(folder) if folder else default_place()
    if not folder:
        make_private(place)
    return Cache(place, environment, write_message)


def _format(
    name: str, environment: Environment, cache: Cache | None
) -> tuple[Format, Worker | None]:
    """Return the format, and the worker that was started to find the format, if any."""
    from parcost_apps.batch.formats import find_cached_format, find_format, remember_formats
    from parcost_apps.batch.worker import Worker

    if cache is not None and (found := find_cached_format(name, environment, cache)):
        return found, None
    worker = Worker(environment)
    plugins = worker.session.plugins
    found = find_format(name, plugins)
    if cache is not None and not plugins.broken:
        remember_formats(plugins, cache)
    return found, worker


def _select_files(
    shard: Shard,
    files: Sequence[Spec | Rejection],
    format_: Format,
    environment: Environment,
    question: Question,
) -> tuple[Shard, Sequence[Spec | Rejection]]:
    """Return the shard with its run and format filled in, and its files."""
    from attrs import evolve

    from parcost_apps.eval.shards import run_of

    name = format_.exporter.name
    run = run_of(environment.digest, f"{name} {question!r}", [file.path for file in files])
    kind = question.view.kind
    named = evolve(shard, run=run, format=name, part=format_.reads, kind=kind)
    return named, shard.share(files)
