"""Rejections: files, or studies of files, without a report, with their reasons."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from parcost.language.diagnostics import Diagnostic
from parcost.language.errors import ParcostError, SpecError, error_text
from parcost.records import frozen

T = TypeVar("T")
BAD_INPUT = 2
FAULT = 3


@frozen(kw_only=True)
class Rejection:
    """A file, or a study in it, without a report; *diagnostics* are the reasons."""

    path: str
    diagnostics: Sequence[Diagnostic]
    exit_code: int = BAD_INPUT


def reject(path: str, id: str, message: str, help: str | None = None) -> Rejection:
    """Return the rejection of a file, with one error as its reason."""
    return Rejection(path=path, diagnostics=[Diagnostic(id, message, place=path, help=help)])


def attempt(path: str, do: Callable[[], T]) -> T | Rejection:
    """Return ``do()``, or a rejection of the file at *path* if it raises."""
    try:
        return do()
    except SpecError as error:
        return Rejection(path=path, diagnostics=error.diagnostics)
    except ParcostError as error:
        found = Diagnostic("plugin-failed", str(error), place=path)
        return Rejection(path=path, diagnostics=[found], exit_code=FAULT)
    except BaseException as error:  # noqa: BLE001  a fault of ours must not lose other results
        reraise_interrupt(error)
        return Rejection(path=path, diagnostics=[internal_error(error, path)], exit_code=FAULT)


def internal_error(error: BaseException, place: str = "") -> Diagnostic:
    """Return the diagnostic of a bug in parcost itself.

    With ``PARCOST_DEBUG`` set the traceback is printed as well.
    """
    if os.environ.get("PARCOST_DEBUG"):
        traceback.print_exception(error)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = f" ({Path(where[0].filename).name}:{where[0].lineno})" if where else ""
    message = f"internal error: {error_text(error)}{at}"
    help = "this is a bug in parcost; PARCOST_DEBUG=1 prints the traceback"
    return Diagnostic("internal-error", message, place=place, help=help)


def reraise_interrupt(error: BaseException) -> None:
    """Raise *error* again if it is a KeyboardInterrupt, after errors of foreign code are caught.

    No other exception of foreign code, such as ``SystemExit`` or ``asyncio.CancelledError``, may
    end a run.
    """
    if isinstance(error, KeyboardInterrupt):
        raise error
