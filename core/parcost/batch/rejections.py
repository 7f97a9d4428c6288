"""What has no report, and why: no spec may end a batch."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from attrs import frozen

from parcost.language.diagnostics import (
    Diagnostic,
    ParcostError,
    SpecError,
    raised,
    reraise_interrupt,
)

T = TypeVar("T")

BAD_INPUT = 2
FAULT = 3


@frozen(kw_only=True)
class Rejected:
    """A file, or a study of one, without a report; *diagnostics* say why."""

    path: str
    diagnostics: Sequence[Diagnostic]
    exit_code: int = BAD_INPUT


def reject(path: str, id: str, message: str, help: str | None = None) -> Rejected:
    """Return a file without a report, for one reason."""
    return Rejected(path=path, diagnostics=[Diagnostic(id, message, place=path, help=help)])


def attempt(path: str, do: Callable[[], T]) -> T | Rejected:
    """Return ``do()``, or why it could not be done."""
    try:
        return do()
    except SpecError as error:
        return Rejected(path=path, diagnostics=error.diagnostics)
    except ParcostError as error:
        found = Diagnostic("plugin-failed", str(error), place=path)
        return Rejected(path=path, diagnostics=[found], exit_code=FAULT)
    except BaseException as error:  # noqa: BLE001  a fault of ours must not lose other results
        reraise_interrupt(error)
        return Rejected(path=path, diagnostics=[internal(error, path)], exit_code=FAULT)


def internal(error: BaseException, place: str = "") -> Diagnostic:
    """Return the diagnostic of a fault in parcost itself.

    With ``PARCOST_DEBUG`` set the traceback is printed as well.
    """
    if os.environ.get("PARCOST_DEBUG"):
        traceback.print_exception(error)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = f" ({Path(where[0].filename).name}:{where[0].lineno})" if where else ""
    message = f"internal error: {raised(error)}{at}"
    help = "this is a defect of parcost; PARCOST_DEBUG=1 prints where it happened"
    return Diagnostic("internal-error", message, place=place, help=help)
