"""A thread that reads from the editor, and does not keep the process from ending.

The threads of a pool of the standard library are waited for when a process ends. One that reads
stdin would wait for an editor that is gone, or that has sent a signal instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from threading import Thread
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")


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


def copy(number: int, mode: str) -> BinaryIO:
    """Return a stream of its own over the file of a descriptor, which may be closed apart."""
    stream: Any = os.fdopen(os.dup(number), mode)
    found: BinaryIO = stream
    return found
