"""A daemon thread that reads from the editor.

At its end, a process waits for the pool threads of the standard library. A pool thread that reads
stdin would wait for an editor that has disconnected.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, TypeVar

from parcost.language.errors import ParcostError

T = TypeVar("T")

_MOST_BYTES = 64 * 2**20  # of a message
_MOST_HEADER = 8192  # bytes of a line


class ReaderThread(Executor):
    """Runs functions one after another in a thread that ends with the process."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        Thread(target=self._run, name="reader", daemon=True).start()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Return the future result of a call."""
        future: Future[T] = Future()
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    def _run(self) -> None:
        while True:
            future, call = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
                future.set_exception(error)


class MessageSizeError(ParcostError):
    """A message is too large to be read."""


class MessageStream:
    """The stream of an editor, whose messages have a limit.

    Raises:
        MessageSizeError: A message is larger. Later messages cannot be located.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readline(self) -> bytes:
        """Return a line of a header."""
        line = self._stream.readline(_MOST_HEADER)
        name, _, size = line.partition(b":")
        number = size.strip()
        if name.lower() == b"content-length" and number.isdigit():
            _check_size(number)
        elif len(line) >= _MOST_HEADER:
            raise MessageSizeError(f"a line of a header has more than {_MOST_HEADER:,} bytes")
        return line

    def read(self, size: int) -> bytes:
        """Return *size* bytes."""
        return self._stream.read(size)


def _check_size(number: bytes) -> None:
    if len(number) > len(str(_MOST_BYTES)) or int(number) > _MOST_BYTES:
        shown = number.decode() if len(number) <= 24 else f"{number[:20].decode()}..."
        message = f"a message of {shown} bytes is larger than the {_MOST_BYTES:,} bytes allowed"
        raise MessageSizeError(message)


def copy(number: int, mode: str) -> BinaryIO:
    """Return a stream over a duplicate of a descriptor; either can be closed alone."""
    stream: Any = os.fdopen(os.dup(number), mode)
    found: BinaryIO = stream
    return found
