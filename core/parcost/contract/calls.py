"""Calls of plugin code through one function that catches every exception.

A plugin may raise anything, including ``SystemExit`` and errors that cannot be printed. Only
``KeyboardInterrupt`` ends a run. The caller decides how to continue without the result, and names
the called function:

    try:
        hop = call(schedule.order, 4, 8, 1)
    except CallError as error:
        raise OrderError(f"`order` {error}") from error  # `order` raised KeyError: 'warp'
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


class CallError(Exception):
    """Error for an exception *cause* in a plugin; its text has the error and its place in
    *module*.
    """

    def __init__(self, cause: BaseException, module: object = None) -> None:
        from parcost.language.errors import error_text

        self.cause = cause
        #: The kind of the error, what it says, and its place in the code of the plugin.
        self.text = f"{error_text(cause)}{place(cause, module)}"
        super().__init__(f"raised {self.text}")


def call(
    function: Callable[..., T],
    *arguments: object,
    module: object = None,
    passing: type[BaseException] | tuple[type[BaseException], ...] = (),
) -> T:
    """Call a plugin's *function* and return its result.

    *module* is the plugin's module, for the place of an error. Errors of the types *passing* are
    raised unchanged.

    Raises:
        CallError: The function raises any other exception except ``KeyboardInterrupt``.
    """
    try:
        return function(*arguments)
    except passing:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise CallError(error, module) from error


def place(error: BaseException, module: object) -> str:
    """Return the file and line of a plugin at which an error was raised, "" if unknown."""
    members = vars(module) if isinstance(module, ModuleType) else {}
    file = members.get("__file__")
    if not isinstance(file, str):
        return ""
    own = str(Path(file).parent) + os.sep if "__path__" in members else file
    frames = [f for f in extract_tb(error.__traceback__) if f.filename.startswith(own)]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
