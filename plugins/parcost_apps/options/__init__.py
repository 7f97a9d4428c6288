"""Arguments and options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from parcost_apps.cli.messages import write_message
from parcost_apps.cli.streams import Reservation
from parcost_apps.options.jobs import is_foreign, join_specs, with_files

if TYPE_CHECKING:
    from parcost.contract.importers import ImportOptions
    from parcost.engine.scenario import Scenario
    from parcost.engine.session import Session
    from parcost.plugins.discovery import Plugins
    from parcost.plugins.selection import PluginSelection
    from parcost.report.report import Report
    from parcost_apps.batch.executors import Engine
    from parcost_apps.batch.files import Spec
    from parcost_formats.rendering.rejection import Rejection

F = TypeVar("F", bound=Callable[..., Any])

_FAULT = 3
_ACTIVE = "parcost.plugins.discovery"  # the plugins of a command
_REPORTED = "parcost.faults"  # the faults that a command has reported
ALL = "all"  # numbers of an option that lists some
_MOST_NUMBERS = 1_000_000
_MOST_DIGITS = 18
_PLUGINS = "parcost"  # the group of entry points; importing plugins would take longer

paths = click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
path = click.argument("path", metavar="FILE")
job = click.argument("path", nargs=-1, required=True, metavar="FILE...")
study = click.option("--study", metavar="NAME", help="Only this study of the file.")
out = click.option(
    "--out",
    metavar="FILE",
    help="Write the results to FILE, atomically.",
)
_TEXT = ("", "txt", "text", "log", "out")  # suffixes of files of text
BY_SUFFIX = "by the suffix of --out, or {}"  # the format, if none is given
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Override an attribute, in the syntax of specs: "
    "--set layout.tp=4 --set 'overlap.bucket=25 MB'. May be repeated.",
)
jobs = click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Use N processes.")
executor = click.option(
    "--executor",
    metavar="NAME://ADDRESS",
    help="Use the workers of an engine: dask://host:8786, or an engine of a plugin.",
)


_READING = (
    click.option(
        "--from",
        "tool",
        default="",
        metavar="TOOL",
        help="Read files of another tool: megatron, huggingface, torchtitan, ...; "
        "`parcost import --list` lists them.",
    ),
    click.option(
        "--use",
        "uses",
        multiple=True,
        metavar="ENTRY",
        help="Add a catalogue entry, or another input file such as config.json: "
        "--use catalog.devices.h100_sxm. May be repeated.",
    ),
    click.option(
        "--recipe",
        default="",
        metavar="NAME",
        help="Configuration to read from a file with several; FILE:NAME is the same.",
    ),
    click.option(
        "--set-env",
        "variables",
        multiple=True,
        metavar="NAME=VALUE",
        help="Value of a variable of a launch script: --set-env DTYPE=fp8. May be repeated.",
    ),
    click.option(
        "--anchor",
        "anchors",
        multiple=True,
        metavar="FILE|TEXT",
        help="Correct predictions with measured runs of the job: a log, a file of measured runs "
        "(.jsonl, as for `parcost validate`), a spec with an `anchor`, or "
        "--anchor 'step_time = 4.1 s'. May be repeated.",
    ),
    click.option(
        "--as",
        "family",
        default="",
        metavar="MODEL_TYPE",
        help="Read a config.json as this model type: --as qwen3_moe.",
    ),
    click.option(
        "--text-only",
        is_flag=True,
        help="Evaluate the language model of a model with vision or audio towers.",
    ),
)


def output_format(given: str | None, out: str | None, names: Collection[str], default: str) -> str:
    """Return the format *given*, or the format in *names* with the suffix of *out*, or the
    default.

    Raises:
        click.UsageError: No format has the suffix, and the default is not written to such files.
    """
    suffix = Path(out or "").suffix.removeprefix(".").lower()
    if given or suffix in names:
        return given or suffix
    if suffix not in _TEXT and suffix.isalpha():  # as in `run.2026-11` none is meant
        from parcost.language.diagnostics import did_you_mean

        hint = did_you_mean(suffix, names) or f"the suffixes are {', '.join(names)}"
        said = f"`--out {out}`: no format has the suffix `.{suffix}`, and --format is not given"
        raise click.UsageError(f"{said}; {hint}")
    return default


def add_import_options(command: F, *, joins: bool = True) -> F:
    """Add the options for files of other tools to a *command*, as argument ``reading``.

    If the command *joins* files, several files of one job are read as one.
    """

    @wraps(command)
    def run(
        *,
        tool: str,
        uses: tuple[str, ...],
        recipe: str,
        variables: tuple[str, ...],
        family: str,
        text_only: bool,
        anchors: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        from parcost.contract.importers import ImportOptions

        environment = tuple(parse_environment(variables).items())
        given = ImportOptions(tool, uses, recipe, environment, family, text_only, anchors=anchors)
        options = with_files(given)
        if "names" in rest and is_foreign(rest["path"]):  # further files stand ahead of names
            more = tuple(takewhile(is_foreign, rest["names"]))
            rest["path"] = (rest["path"], *more)
            rest["names"] = rest["names"][len(more) :]
        kind = "path" if isinstance(rest.get("path"), tuple) else "paths"
        if joins and len(rest.get(kind, ())) > 1:
            from parcost.plugins.selection import PluginSelection

            chosen = PluginSelection(rest["without"], rest["files"])
            rest[kind], options = join_specs(
                rest[kind], options, lambda: session(chosen), only=kind == "path"
            )
        if isinstance(rest.get("path"), tuple):
            if len(rest["path"]) > 1:
                raise click.UsageError("give one spec, or the files of one job of other tools")
            rest["path"] = rest["path"][0] if rest["path"] else None
        return command(reading=options, **rest)

    for option in reversed(_READING):
        run = option(run)
    return run  # type: ignore[return-value]


def selection(command: F) -> F:
    """Add the options that select plugins to a *command*, as argument ``selection``.

    Output of plugins goes to stderr. Plugins that fail are printed, and the exit code is 3.
    """

    @click.option(
        "--plugin",
        "files",
        multiple=True,
        metavar="FILE",
        help="Add a plugin that is not installed: a Python file or a package folder. "
        "May be repeated.",
    )
    @click.option(
        "--without",
        multiple=True,
        metavar="PLUGIN",
        help="Leave a plugin out; `parcost plugins` lists them. May be repeated.",
    )
    @wraps(command)
    def run(*, files: tuple[str, ...], without: tuple[str, ...], **rest: Any) -> Any:
        from parcost.plugins.selection import PluginSelection

        with Reservation():
            try:
                code = command(selection=PluginSelection(without, files), **rest)
            except click.ClickException:
                print_faults(_faults())
                raise
            return _FAULT if print_faults(_faults()) and code <= _FAULT else code

    return run  # type: ignore[return-value]


class StudyOptions(NamedTuple):
    """The options that pick studies of files, set attributes, read other tools and add plugins."""

    study: str | None
    values: Mapping[str, str]
    reading: ImportOptions
    selection: PluginSelection

    def session(self) -> Session:
        """Return a session with the selected plugins."""
        return session(self.selection)

    def scenarios(
        self, paths: Sequence[str], session: Session
    ) -> Iterator[tuple[Spec, Scenario | Rejection]]:
        """Yield each spec with its scenarios, in order, or with a rejection."""
        from parcost_apps.batch.scenarios import scenarios

        study, values, reading, _ = self
        return scenarios(paths, session, overrides=values, study=study, reading=reading)

    def evaluate(self, paths: Sequence[str], session: Session) -> Iterator[Report | Rejection]:
        """Yield the reports of every spec, in order, and a rejection for each spec without a
        report.
        """
        from parcost_apps.batch.scenarios import evaluate

        study, values, reading, _ = self
        return evaluate(paths, session, overrides=values, study=study, reading=reading)


def studies(command: F) -> F:
    """Add the options of :class:`StudyOptions` to a *command*, as argument ``given``."""

    @study
    @overrides
    @add_import_options
    @selection
    @wraps(command)
    def run(
        *,
        study: str | None,
        overrides: tuple[str, ...],
        reading: ImportOptions,
        selection: PluginSelection,
        **rest: Any,
    ) -> Any:
        given = StudyOptions(study, parse_overrides(overrides), reading, selection)
        return command(given=given, **rest)

    return run  # type: ignore[return-value]


def print_faults(lines: Iterable[str]) -> bool:
    """Print which plugins failed, each line once; return whether any did."""
    known = click.get_current_context().meta.setdefault(_REPORTED, set())
    found = list(lines)
    for line in dict.fromkeys(found):
        if line not in known:
            known.add(line)
            write_message(f"error: {line}\n")
    return bool(found)


def skip_faults(lines: Iterable[str]) -> None:
    """Mark faults that a page already shows, so that they are not printed again."""
    click.get_current_context().meta.setdefault(_REPORTED, set()).update(lines)


def _faults() -> list[str]:
    """Return the faults of all plugins that the command has loaded."""
    active = click.get_current_context().meta.get(_ACTIVE, ())
    return [str(fault) for plugins in active for fault in plugins.faults]


def session(selection: PluginSelection) -> Session:
    """Return a session with the selected plugins."""
    from parcost.engine.session import Session

    return Session(plugins(selection))


def plugins(selection: PluginSelection) -> Plugins:
    """Return the selected plugins; an unknown one is a usage error."""
    check(selection)
    from parcost.plugins.discovery import load

    active = load(without=selection.without, files=selection.files)
    click.get_current_context().meta.setdefault(_ACTIVE, []).append(active)
    return active


def check(selection: PluginSelection) -> None:
    """Reject unknown names in `--without`, and plugin files that are not plugins."""
    from importlib.metadata import entry_points
    from pathlib import Path

    from parcost.language.diagnostics import did_you_mean
    from parcost.plugins.selection import name_of

    if not (selection.without or selection.files):
        return
    from parcost.plugins.discovery import names_of_parts

    known = entry_points(group=_PLUGINS).names
    for name in selection.without:
        parts = [] if name in known else names_of_parts(name.partition(".")[0])
        if name not in known and name not in parts:
            hint = did_you_mean(name, [*known, *parts]) or "`parcost plugins` lists them"
            raise click.UsageError(f"no plugin is called `{name}`; {hint}")
    names = {name: "installed" for name in known if name not in selection.without}
    for file in selection.files:
        path = Path(file)
        if not (
            (os.path.isfile(path) and path.suffix.lower() == ".py")
            or os.path.isfile(path / "__init__.py")
        ):
            here = "the path does not exist" if not os.path.exists(path) else "that is neither"
            message = f"`--plugin {file}` must be a Python file, or a folder that is a package"
            raise click.UsageError(f"{message}: {here}")
        name = name_of(file)
        if name in names:
            way = f"remove that plugin with `--without {name}`, or " if name in known else ""
            message = f"`--plugin {file}`: there is already a plugin called `{name}`: {names[name]}"
            raise click.UsageError(f"{message}; {way}give the file another name")
        names[name] = f"in `{file}`"


def parse_overrides(given: Sequence[str]) -> Mapping[str, str]:
    """Return ``--set`` options by attribute.

    >>> parse_overrides(["layout.tp=4", "cluster.device = h200"])
    {'layout.tp': '4', 'cluster.device': 'h200'}
    """
    values = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise click.UsageError(f"`--set {text}` has no value; write `--set layout.tp=4`")
        if name in values:
            raise click.UsageError(f"`--set {name}` is given twice")
        values[name] = value
    return values


def parse_environment(given: Sequence[str]) -> Mapping[str, str]:
    """Return ``--set-env`` options by variable; a value may be empty.

    >>> parse_environment(["DTYPE=fp8", "EXTRA="])
    {'DTYPE': 'fp8', 'EXTRA': ''}
    """
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and (name.isidentifier() or name.isdecimal())):
            raise click.UsageError(f"`--set-env {text}`: write `--set-env DTYPE=fp8`")
        if name in values:
            raise click.UsageError(f"`--set-env {name}` is given twice")
        values[name] = value
    return values


def parse_numbers(name: str, text: str) -> list[int]:
    """Return the numbers of a list such as ``0,5,96-103``; ``all`` gives an empty list.

    >>> parse_numbers("ranks", "0,5,8-10"), parse_numbers("ranks", "all")
    ([0, 5, 8, 9, 10], [])
    """
    if text == ALL:
        return []
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() if dash else True)):
            raise click.UsageError(
                f"`--{name}={text}` is not a list of numbers; write --{name}=0,5,8-15"
            )
        if max(len(first), len(last)) > _MOST_DIGITS:
            raise click.UsageError(
                f"a number of `--{name}` has {max(len(first), len(last)):,} digits, "
                f"and the limit is {_MOST_DIGITS}"
            )
        if dash and int(last) < int(first):
            raise click.UsageError(f"`{part}` of `--{name}={text}` must ascend: {last}-{first}")
        numbers = range(int(first), int(last or first) + 1)
        if len(found) + len(numbers) > _MOST_NUMBERS:
            raise click.UsageError(f"`--{name}` lists more than {_MOST_NUMBERS:,} numbers")
        found += numbers
    return found


def engine(jobs: int | None, executor: str | None) -> Engine | None:
    """Return the engine of `--jobs` or `--executor`, or None to work in this process."""
    if jobs and executor:
        raise click.UsageError("`--jobs` and `--executor` exclude each other")
    if not executor and (jobs or 1) == 1:
        return None
    from parcost_apps.batch.executors import UnknownExecutorError, find_engine, processes

    if executor:
        try:
            return find_engine(executor)
        except UnknownExecutorError as error:
            raise click.UsageError(f"`--executor`: {error}") from error
    return processes(jobs or 1)
