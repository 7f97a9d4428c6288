"""Failures of threads that plugins start: a warning line instead of a traceback.

The failed thread is no fault of a report, because the plugin has returned a result or another
fault. But it is printed. The hook is ``threading.excepthook`` of the standard library.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from traceback import extract_tb

_told: set[str] = set()


def print_failures() -> None:
    """Print a warning line, once, for each thread of this process that fails from now on."""
    threading.excepthook = _print_failure


def _print_failure(failed: threading.ExceptHookArgs) -> None:
    from parcost.language.errors import error_text

    if failed.exc_value is None or issubclass(failed.exc_type, SystemExit):
        return  # which ends a thread as it should
    if os.environ.get("PARCOST_DEBUG"):
        threading.__excepthook__(failed)
    last = extract_tb(failed.exc_traceback)[-1:]
    at = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
    line = f"warning: a thread raised {error_text(failed.exc_value)}{at}"
    if line not in _told and sys.stderr is not None:
        _told.add(line)
        with suppress(OSError, ValueError):  # stderr is closed: nothing can be printed
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
