"""``parcost fmt``: the canonical form of specs, with their comments. It needs no plugin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost.language.escapes import escape_line, escape_lines
from parcost.system.temporary import file_beside
from parcost_apps import options
from parcost_apps.cli.messages import Reporter, write_message
from parcost_apps.cli.streams import put

if TYPE_CHECKING:
    from parcost.language.text import Source


@click.command("fmt")
@options.paths
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
def command(paths: tuple[str, ...], check: bool, diff: bool) -> int:
    """Format specs in the canonical form; comments are kept.

    A file that does not parse stays unchanged, and its errors are printed. `-` reads stdin
    and writes stdout.
    """
    if "-" in paths and len(paths) > 1:
        raise click.UsageError("`-` cannot be combined with files")
    if paths == ("-",):
        return _stdin(check=check, diff=diff)
    return _files(paths, check=check, diff=diff)


def _stdin(*, check: bool, diff: bool) -> int:
    from parcost.language.errors import SpecError
    from parcost.language.text import Source
    from parcost.system import files

    text = files.decode(files.read_stdin(files.SPEC), "<stdin>")
    try:
        formatted = _format(Source("<stdin>", text))
    except SpecError as error:
        Reporter()(error.diagnostics)
        if not (check or diff):
            put(
                escape_lines(text) if sys.stdout.isatty() else text
            )  # an editor that takes what is written loses nothing
        return 2
    if diff:
        put(_difference("<stdin>", text, formatted))
    elif not check:
        put(escape_lines(formatted) if sys.stdout.isatty() else formatted)
    return int((check or diff) and formatted != text)


def _files(paths: Iterable[str], *, check: bool, diff: bool) -> int:
    from parcost_apps.batch.files import specs
    from parcost_formats.rendering.rejection import Rejection, attempt

    report = Reporter()
    worst = changed = same = 0
    for spec in specs(paths):
        if isinstance(spec, Rejection):
            done: Rejection | tuple[str, str, str] = spec
        else:
            done = attempt(spec.path, partial(_texts, spec.path))
        if isinstance(done, Rejection):
            report(done.diagnostics)
            worst = max(worst, done.exit_code)
            continue
        name, text, formatted = done
        if formatted == text:
            same += 1
            continue
        changed += 1
        if diff:
            put(_difference(name, text, formatted))
            continue
        if not check:
            try:
                write_atomically(Path(name), formatted)
            except OSError as error:
                write_message(f"error: `{name}` cannot be written: {error.strerror}")
                worst = max(worst, 2)
                continue
        put(f"{escape_line(name)}\n")
    verb = "would change" if check or diff else "changed"
    write_message(f"{changed} {verb}, {same} unchanged")
    return max(worst, int(bool(changed) and (check or diff)))


def _texts(path: str) -> tuple[str, str, str]:
    from parcost.binding import sources

    source = sources.read(Path(path), path)
    return path, source.text, _format(source)


def _format(source: Source) -> str:
    """Return the text of *source* in its canonical form.

    Raises:
        SpecError: The source has syntax errors.
    """
    from parcost.language.errors import SpecError
    from parcost.language.format import format_text
    from parcost.language.parse import parse

    mistakes = parse(source)[1]
    if mistakes:
        raise SpecError(mistakes)
    return format_text(source.text)


def _difference(path: str, before: str, after: str) -> str:
    lines = unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"{path} (as it is)",
        f"{path} (formatted)",
    )
    marked = (
        line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines
    )
    return escape_lines("".join(marked))


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of *path* atomically: a reader never gets a part of the new text."""
    path = path.resolve()
    mode = path.stat().st_mode
    handle, beside = file_beside(path)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        beside.path.chmod(mode)
        beside.replace(path)
    except BaseException:
        beside.remove()
        raise
