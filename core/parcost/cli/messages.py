"""Messages on stderr: diagnostics, and how far a run has got.

The progress bars of click were tried and left: they leave no room for messages (`docs/runtime.md`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING

from parcost.cli.pages import wants_color, wrap_sentences
from parcost.cli.streams import results
from parcost.language.escapes import escape_line, escape_lines, remove_color

if TYPE_CHECKING:
    from parcost.language.diagnostics import Diagnostic

_MOMENT_SECONDS = 2.0
_MOST_REMEMBERED = 10_000


def write_message(text: str) -> None:
    """Write a message to stderr, less what a terminal might act on."""
    _write_message(wrap_sentences(escape_lines(text), sys.stderr))


def _write_message(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Reporter:
    """Prints diagnostics on stderr, each once however many studies share its cause."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Print what has not been printed yet."""
        from parcost.language.diagnostic_text import render

        for diagnostic in diagnostics:
            self.show(render(diagnostic, color=True))

    def show(self, rendered: str) -> None:
        """Print a diagnostic that was rendered in colour, if it has not been printed yet."""
        if rendered not in self._told:
            if len(self._told) > _MOST_REMEMBERED:
                self._told.clear()
            self._told.add(rendered)
            shown = rendered if wants_color(sys.stderr) else remove_color(rendered)
            _write_message(wrap_sentences(shown, sys.stderr) + "\n")


class Progress:
    """A line on stderr that says how far work has got, once it takes longer than a moment.

    Only where a person waits for it: stderr is a terminal, and results go *elsewhere*.
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        self._start = monotonic()
        self._wanted = sys.stderr.isatty() and (elsewhere or not results().isatty())
        self._shown = False

    def show(self, text: str) -> None:
        """Put *text* in the place of what was shown before."""
        if self._wanted and monotonic() - self._start > _MOMENT_SECONDS:
            sys.stderr.write(f"\r{escape_line(text)}\x1b[K")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Make room for a message."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False
