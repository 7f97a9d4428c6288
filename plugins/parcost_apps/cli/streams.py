"""The streams of a command: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar, TextIO

import click

from parcost_apps.cli.colors import escape_keeping_color
from parcost_apps.cli.interrupts import Interrupts

_PATIENCE_SECONDS = 2.0
_AT_ONCE = getattr(select, "PIPE_BUF", 512)  # bytes that a pipe takes without blocking


class ClosedPipeError(Exception):
    """The reader of stdout has closed the pipe.

    It is not an OSError, which click would turn into exit code 1.
    """


def put(text: str, interrupts: Interrupts | None = None) -> None:
    """Write a result to stdout and flush it; *interrupts* are deferred until it is complete.

    On a terminal, control sequences except colours are escaped.
    """
    if sys.stdout.isatty():
        text = escape_keeping_color(text)
    with _raise_stdout_errors():
        if interrupts is None or os.name == "nt":  # where pipes cannot be asked for room
            results().write(text)
            results().flush()
        else:
            with interrupts.defer():
                _put_whole(text, interrupts)


@contextmanager
def _raise_stdout_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError from error
    except OSError as error:
        discard(results())
        raise click.ClickException(f"stdout cannot be written: {error.strerror}") from error


def _put_whole(text: str, interrupts: Interrupts) -> None:
    """Write to stdout without its buffer, which loses its content when it is interrupted.

    After an interrupt, the wait for a slow reader is short.
    """
    stream = results()
    try:
        number = stream.fileno()
    except OSError:  # what stands for stdout is in memory
        stream.write(text)
        return
    stream.flush()
    left = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
    while left:
        if select.select([], [number], [], _PATIENCE_SECONDS)[1]:
            left = left[os.write(number, left[:_AT_ONCE]) :]
        else:
            interrupts.check()


def discard(stream: TextIO) -> None:
    """Redirect a stream to the null device, so that Python prints no error about it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


class Reservation:
    """Reserves stdout for results: other output of this process goes to stderr.

    Plugins, workers and other child processes may print. Their output between two results would
    break the parser of a reader.
    """

    stream: ClassVar[TextIO | None] = None  # where results go

    def __init__(self) -> None:
        self._before: TextIO = sys.stdout
        self._number = self._kept = -1

    def __enter__(self) -> None:
        if Reservation.stream is not None:
            return
        Reservation.stream = self._before
        with suppress(OSError, ValueError):  # what stands for a stream is in memory
            number, other = self._before.fileno(), sys.stderr.fileno()
            with _raise_stdout_errors():
                self._before.flush()
            self._kept = os.dup(number)
            os.dup2(other, number)
            self._number = number
            Reservation.stream = os.fdopen(
                self._kept,
                "w",
                encoding=self._before.encoding,
                errors=self._before.errors,
                newline="",
            )
        sys.stdout = sys.stderr

    def __exit__(self, *_: object) -> None:
        stream = Reservation.stream
        if sys.stdout is not sys.stderr or stream is None:
            return
        sys.stdout, Reservation.stream = self._before, None
        if self._number < 0:
            return
        with suppress(OSError, ValueError):  # what was printed past `sys.stdout`
            self._before.flush()
        try:
            with _raise_stdout_errors():
                stream.flush()
        finally:
            os.dup2(self._kept, self._number)
            with suppress(OSError, ValueError):  # `flush` above has raised what matters
                stream.close()


def results() -> TextIO:
    """Return the stream for results: the real stdout, even while it is reserved."""
    return Reservation.stream or sys.stdout


class _StandIn:
    """Replaces a standard stream of this process, and handles write errors."""

    name = ""

    def __init__(self) -> None:
        self._stream: TextIO = getattr(sys, self.name)

    def __enter__(self) -> None:
        setattr(sys, self.name, self)

    def __exit__(self, *_: object) -> None:
        setattr(sys, self.name, self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text."""
        if text != "":  # which is not a failure, and click asks whether it can be written
            with self._handle_errors():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        with self._handle_errors():
            self._stream.flush()

    def close(self) -> None:
        """Flush the stream, and leave it open for others."""
        self.flush()

    def _handle_errors(self) -> AbstractContextManager[None]:
        raise NotImplementedError


class Results(_StandIn):
    """Stdout; a write error is raised as an error of stdout."""

    name = "stdout"

    def _handle_errors(self) -> AbstractContextManager[None]:
        return _raise_stdout_errors()


class Messages(_StandIn):
    """Stderr; if a write fails, the message is dropped.

    Results matter more than messages, and the exit code reports success or failure.
    """

    name = "stderr"

    @contextmanager
    def _handle_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError:  # its reader is gone, or the disk is full
            discard(self._stream)
