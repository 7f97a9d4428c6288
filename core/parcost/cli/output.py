"""What a command prints where: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from parcost.diagnostics import Diagnostic
    from parcost.render.page import Item, Paper

_PIPED_WIDTH = 80
_WIDEST = 1000
_MOMENT_SECONDS = 2.0


class ClosedPipeError(Exception):
    """Nobody reads stdout any more. Not an OSError, which click would turn into exit 1."""


def is_terminal(stream: TextIO) -> bool:
    """Say whether a person reads *stream*; ``FORCE_COLOR`` says so for a pipe."""
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def wants_color(stream: TextIO) -> bool:
    """Say whether *stream* may be coloured: see no-color.org."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def paper(stream: TextIO | None = None) -> Paper:
    """Return what stdout is like to draw on. ``COLUMNS`` sets the width."""
    from parcost.render.page import Paper

    stream = stream or sys.stdout
    terminal = is_terminal(stream)
    width = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns if terminal else _columns()
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    unicode = terminal and encoding.startswith("utf")
    return Paper(width=width, color=wants_color(stream), unicode=unicode)


def put(text: str) -> None:
    """Write a result to stdout, at once."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ClosedPipeError from error
    except OSError as error:
        forget_stdout()
        raise click.ClickException(f"stdout cannot be written: {error.strerror}") from error


def forget_stdout() -> None:
    """Point stdout elsewhere, so that Python does not complain about it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


def show(items: Iterable[Item]) -> None:
    """Draw a page on stdout."""
    from parcost.render.page import draw

    put(draw(list(items), paper()))


def tell(text: str) -> None:
    """Write a message to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Reporter:
    """Prints diagnostics on stderr, each once however many studies share its cause."""

    def __init__(self) -> None:
        self._told: set[tuple[object, ...]] = set()

    def __call__(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Print what has not been printed yet."""
        from parcost.render.diagnostics import render

        color = wants_color(sys.stderr)
        for diagnostic in diagnostics:
            spans = ((lab.span.source.name, lab.span.start) for lab in diagnostic.labels)
            key = (diagnostic.id, diagnostic.message, diagnostic.place, *spans)
            if key not in self._told:
                self._told.add(key)
                tell(render(diagnostic, color=color) + "\n")


class Progress:
    """A line on stderr that says how far work has got, once it takes longer than a moment.

    Only where a person waits for it: stderr is a terminal, and results go elsewhere.
    """

    def __init__(self) -> None:
        self._start = monotonic()
        self._wanted = sys.stderr.isatty() and not sys.stdout.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        """Put *text* in the place of what was shown before."""
        if self._wanted and monotonic() - self._start > _MOMENT_SECONDS:
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Make room for a message."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False


def one_line(diagnostic: Diagnostic) -> str:
    """Return a diagnostic as ``file:line:column: error[id]: message``."""
    from parcost.render.diagnostics import visible

    place = diagnostic.place
    if diagnostic.labels:
        span = diagnostic.labels[0].span
        line, column = span.source.position(span.start)
        place = f"{span.source.name}:{line}:{column}"
    said = f"{diagnostic.severity.value}[{diagnostic.id}]: {diagnostic.message}"
    return visible(f"{place}: {said}" if place else said)


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    return min(int(columns), _WIDEST) if columns.isdigit() and columns != "0" else _PIPED_WIDTH
