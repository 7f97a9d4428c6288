"""Messages on stderr: diagnostics and progress.

The progress bars of click are not used, because they do not allow messages in between
(`docs/runtime.md`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from parcost.language.escapes import cut_names, escape_line, escape_lines
from parcost_apps.cli.colors import remove_color
from parcost_apps.cli.pages import wants_color, wrap_sentences
from parcost_apps.cli.streams import results

if TYPE_CHECKING:
    from parcost.language.diagnostics import Diagnostic

_INNER_END = re.compile(r"\n(?!\Z| *= (?:note|help): )")
_MOMENT_SECONDS = 2.0
_MOST_REMEMBERED = 10_000
_MOST_PATHS = 3  # that the note of a warning names


def write_message(text: str, *, remarks: bool = False) -> None:
    """Write a message to stderr, with terminal control characters removed.

    If *remarks* is set, all lines are wrapped; otherwise only sentences, on a terminal. A line end
    inside the sentence of an error is escaped, because it comes from an argument or a file.
    """
    if not remarks and text.startswith(("error", "warning")):
        text = _INNER_END.sub(r"\\n", text)
    _write_message(wrap_sentences(escape_lines(cut_names(text)), sys.stderr, remarks=remarks))


def _write_message(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def repeat_note(paths: Sequence[str]) -> str:
    """Return the note of a warning about the other files that have it.

    >>> repeat_note(["b.par"]), repeat_note([f"{name}.par" for name in "bcde"])
    ('the same in b.par', 'the same in 4 more files: b.par, c.par, d.par, ...')
    """
    if len(paths) == 1:
        return f"the same in {paths[0]}"
    more = ", ..." if len(paths) > _MOST_PATHS else ""
    return f"the same in {len(paths)} more files: {', '.join(paths[:_MOST_PATHS])}{more}"


class Reporter:
    """Prints each diagnostic once on stderr, even if several studies share it.

    A warning that was printed for another file is counted, and :meth:`show_repeats` prints the
    files.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._paths: dict[str, dict[str, None]] = {}  # of warnings, by their first lines

    def __call__(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Print the diagnostics that have not been printed yet."""
        from parcost.language.diagnostic_text import render

        for diagnostic in diagnostics:
            self.show(render(diagnostic, color=True))

    def show(self, rendered: str, path: str = "") -> None:
        """Print a diagnostic that was rendered in colour, if it has not been printed yet."""
        title = remove_color(rendered).partition("\n")[0]
        if path and title.startswith("warning"):
            paths = self._paths.setdefault(title, {})
            paths[path] = None
            if next(iter(paths)) != path:
                return
        if rendered not in self._told:
            if len(self._told) > _MOST_REMEMBERED:
                self._told.clear()
            self._told.add(rendered)
            shown = rendered if wants_color(sys.stderr) else remove_color(rendered)
            _write_message(wrap_sentences(shown, sys.stderr) + "\n")

    def show_repeats(self) -> None:
        """Print the other files of each warning that several files have."""
        for title, (_, *others) in self._paths.items():
            if others:
                write_message(f"{title}\n  = note: {repeat_note(others)}\n")
        self._paths.clear()


class Progress:
    """A progress line on stderr, shown once the work takes longer than a moment.

    It is shown only if stderr is a terminal and results go *elsewhere*.
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        self._start = monotonic()
        self._wanted = sys.stderr.isatty() and (elsewhere or not results().isatty())
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the progress line by *text*."""
        if self._wanted and monotonic() - self._start > _MOMENT_SECONDS:
            sys.stderr.write(f"\r{escape_line(text)}\x1b[K")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Erase the progress line before a message is printed."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False
