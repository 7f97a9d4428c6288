"""The exceptions of parcost, and error texts for exceptions of external code.

ParcostError
  SpecError     bad input: one or more diagnostics of one study or file
    MissingExtraError  a library of an extra is not installed
  PluginError   a plugin could not be loaded, or broke its contract
    FaultError  the same, with the plugin named, where a study needs its answer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec

from parcost.language.diagnostic_text import render
from parcost.language.diagnostics import Diagnostic, one_line, problem, type_name

P = ParamSpec("P")


class ParcostError(Exception):
    """Base class of all errors that parcost raises on purpose."""

    @property
    def first_message(self) -> str:
        """The message of the first diagnostic, or else the first line."""
        return str(self).partition("\n")[0]


class SpecError(ParcostError):
    """Bad input; carries every diagnostic found, in source order."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(sorted(diagnostics, key=_order))
        super().__init__(self.diagnostics)

    def __str__(self) -> str:
        return "\n\n".join(render(d) for d in self.diagnostics)

    @property
    def first_message(self) -> str:
        return self.diagnostics[0].message if self.diagnostics else super().first_message


def error_of(make: Callable[P, Diagnostic]) -> Callable[P, SpecError]:
    """Return a function that calls *make* and returns its diagnostic as an error."""
    return lambda *values, **options: SpecError([make(*values, **options)])


error_at = error_of(problem)


class MissingExtraError(SpecError):
    """A library of an extra is not installed; every command then ends with exit code 2."""

    def __init__(self, message: str, extra: str, otherwise: str = "") -> None:
        help = f"pip install 'parcost[{extra}]'" + (f"; {otherwise}" if otherwise else "")
        super().__init__([Diagnostic("missing-extra", message, help=help)])


class PluginError(ParcostError):
    """A plugin could not be loaded, failed in a call, or broke its contract."""


class FaultError(PluginError):
    """A plugin on which a study depends failed; the message names it."""


def error_text(error: BaseException) -> str:
    """Return the type and the message of an error in one line, even if its ``str`` fails."""
    kind = type_name(error)
    try:
        text = one_line(f"{error}")
    except BaseException as other:  # `str` of a plugin's error may raise anything, even SystemExit
        if isinstance(other, KeyboardInterrupt):
            raise
        return kind
    return f"{kind}: {text}" if text else kind


def _order(diagnostic: Diagnostic) -> tuple[str, int]:
    if not diagnostic.labels:
        return (diagnostic.place, -1)
    span = diagnostic.labels[0].span
    return (span.source.name, span.start)
