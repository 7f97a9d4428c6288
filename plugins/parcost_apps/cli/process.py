"""State of the whole process that a plugin must not change: exit, current directory, recursion
limit.

`os._exit(0)` in a plugin would end a batch without its results and with exit code 0. After
`os.chdir` the next file is missing, and with a lower recursion limit another plugin fails. So each
of these calls raises an error that names the plugin. A process that a plugin forks may call all of
them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

_REASONS = {
    "_exit": "it would end the process before results are written",
    "abort": "it would end the process before results are written",
    "chdir": "paths on the command line are relative to the current directory",
    "fchdir": "paths on the command line are relative to the current directory",
}
_open = local()


class ProcessStateError(RuntimeError):
    """A plugin would change the state of the whole process."""


def protect_process() -> None:
    """Make calls that would end this process, or change its state, raise an error."""
    own = os.getpid()
    for name, reason in _REASONS.items():
        if hasattr(os, name):
            setattr(os, name, _reject(own, name, getattr(os, name), reason))
    limit = sys.setrecursionlimit

    def set_limit(number: int, /) -> None:
        if number < sys.getrecursionlimit() and os.getpid() == own:
            message = "`sys.setrecursionlimit` would lower the limit for all plugins"
            raise ProcessStateError(message)
        limit(number)

    sys.setrecursionlimit = set_limit


@contextmanager
def allow_changes() -> Iterator[None]:
    """Allow parcost's own code to change the state of the process, inside this context."""
    _open.is_open = True
    try:
        yield
    finally:
        _open.is_open = False


def _reject(own: int, name: str, function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Return *function*, with an error for calls by plugins in the process *own*."""

    def raise_error(*arguments: Any, **named: Any) -> Any:
        if os.getpid() != own or getattr(_open, "is_open", False):
            return function(*arguments, **named)
        raise ProcessStateError(f"`os.{name}` is not allowed: {reason}")

    return raise_error
