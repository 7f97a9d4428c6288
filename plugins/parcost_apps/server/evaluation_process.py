"""The evaluation process: unlike a thread, it can be killed at any moment.

Tasks are sent to it as objects. Results are returned as JSON, after a byte with their kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field, frozen

from parcost.language.errors import ParcostError
from parcost_apps.batch.executors import start_process
from parcost_apps.server.live_study import LiveStudy, Subject
from parcost_formats.rendering.diagnostics import as_data
from parcost_formats.rendering.rejection import Rejection, attempt

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

_READY, _PROGRESS, _ANSWER = b"r", b"p", b"a"
_START_SECONDS = 60.0
_STOP = "stop"
_PROGRESS_SECONDS = 0.1  # between two messages


class OutOfTimeError(ParcostError):
    """An answer took longer than its time limit."""


class EndedError(ParcostError):
    """The process ended before it answered."""


@frozen
class PageTask:
    """A request: a method of :class:`LiveStudy`, and its arguments."""

    name: Literal["page", "evaluate", "spec", "search"]
    arguments: tuple[Any, ...] = ()


@define(eq=False)
class EvaluationProcess:
    """A process with a study; it is started on demand, and restarted after its end."""

    subject: Subject
    _process: SpawnProcess | None = None
    _connection: Connection | None = None
    _is_ready: bool = False
    _is_stopped: bool = False
    _lock: Lock = field(factory=Lock)

    def ask(
        self,
        task: PageTask,
        seconds: float,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> str:
        """Return the answer to a task, as JSON. One task runs at a time.

        Raises:
            OutOfTimeError: The answer takes longer than *seconds*; the process is ended.
            EndedError: The process is ended, by :meth:`end` or by a fault.
        """
        with self._lock:
            self._is_stopped = False
            connection = self._connect()
            try:
                if not self._is_ready:
                    self._receive(connection, monotonic() + _START_SECONDS)
                    self._is_ready = True
                connection.send(task)
                if self._is_stopped:  # while the process started, which drops what is no task
                    connection.send(_STOP)
                until = monotonic() + seconds
                while True:
                    kind, text = self._receive(connection, until)
                    if kind == _ANSWER:
                        return text
                    on_progress(text)
            except BaseException:
                self._close()
                raise

    def stop_search(self) -> None:
        """Ask a search to end with the layouts found so far."""
        self._is_stopped = True
        connection = self._connection
        if connection is not None:
            with suppress(OSError, ValueError):  # the process has ended, and its search
                connection.send(_STOP)

    def end(self) -> None:
        """Kill the process; callers that wait for a result get an error."""
        process = self._process
        if process is not None:
            with suppress(ValueError):  # it is closed
                process.kill()

    def _connect(self) -> Connection:
        if self._connection is None or self._process is None or not self._process.is_alive():
            self._close()
            self._connection, other = Pipe()
            self._process = start_process(serve_tasks, other, self.subject)
            other.close()  # so that the end of the process is the end of the connection
        return self._connection

    def _receive(self, connection: Connection, until: float) -> tuple[bytes, str]:
        try:
            if not connection.poll(max(until - monotonic(), 0.0)):
                raise OutOfTimeError("the evaluation takes too long")
            found = connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise EndedError("the evaluation process has ended") from error
        return found[:1], found[1:].decode()

    def _close(self) -> None:
        self.end()
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.join()
        self._process = self._connection = None
        self._is_ready = False


def serve_tasks(connection: Connection, subject: Subject) -> None:
    """Process tasks until the connection ends: the main loop of the process."""

    def send(kind: bytes, text: str) -> None:
        connection.send_bytes(kind + text.encode())

    last = 0.0
    stopped = False

    def show_progress(text: str) -> None:
        nonlocal last, stopped
        if not stopped and connection.poll() and connection.recv() == _STOP:
            stopped = True
            raise KeyboardInterrupt
        if monotonic() - last > _PROGRESS_SECONDS:
            last = monotonic()
            send(_PROGRESS, text)

    with suppress(EOFError, OSError):  # the server has ended
        study = attempt(subject.path, lambda: LiveStudy.from_subject(subject))
        send(_READY, "")
        while True:
            task = connection.recv()
            stopped = False
            if task != _STOP:
                send(_ANSWER, _answer(study, task, show_progress))


def _answer(
    study: LiveStudy | Rejection, task: PageTask, show_progress: Callable[[str], None]
) -> str:
    if isinstance(study, LiveStudy):
        more = (show_progress,) if task.name == "search" else ()
        live = study
        found = attempt(live.subject.path, lambda: getattr(live, task.name)(*task.arguments, *more))
    else:
        found = study
    if isinstance(found, Rejection):
        found = {"diagnostics": [as_data(one) for one in found.diagnostics]}
    return json.dumps(found)
