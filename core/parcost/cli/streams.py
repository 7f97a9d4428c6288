"""The streams of a command: results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, ClassVar, TextIO

import click

from parcost.cli.interrupts import Interrupts
from parcost.language.escapes import escape_keeping_color

_PATIENCE_SECONDS = 2.0
_AT_ONCE = getattr(select, "PIPE_BUF", 512)  # bytes that a pipe takes without blocking


class ClosedPipeError(Exception):
    """The reader of stdout is gone. Not an OSError, which click would turn into exit 1."""


def put(text: str, interrupts: Interrupts | None = None) -> None:
    """Write a result to stdout, at once, and whole also where *interrupts* come.

    On a terminal nothing but colours acts on it.
    """
    if sys.stdout.isatty():
        text = escape_keeping_color(text)
    with _writing_to_stdout():
        if interrupts is None or os.name == "nt":  # where pipes cannot be asked for room
            results().write(text)
            results().flush()
        else:
            with interrupts.hold():
                _put_whole(text, interrupts)


@contextmanager
def _writing_to_stdout() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError from error
    except OSError as error:
        forget(results())
        raise click.ClickException(f"stdout cannot be written: {error.strerror}") from error


def _put_whole(text: str, interrupts: Interrupts) -> None:
    """Write to stdout past its buffers, which lose what they hold when they are interrupted.

    Once interrupted, a reader who takes nothing for a while is not waited for.
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


def forget(stream: TextIO) -> None:
    """Point a stream elsewhere, so that Python does not complain about it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


class Reservation:
    """Reserves stdout for results: other output of this process goes to stderr.

    Plugins may print, and so may processes that they start and workers. A line of theirs
    between two results would leave nothing that a program can read.
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
            with _writing_to_stdout():
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
            with _writing_to_stdout():
                stream.flush()
        finally:
            os.dup2(self._kept, self._number)
            with suppress(OSError, ValueError):  # `flush` above has raised what matters
                stream.close()


def results() -> TextIO:
    """Return the stream that results go to: stdout, whatever else prints."""
    return Reservation.stream or sys.stdout


class _StandIn:
    """The replacement of a stream of this process while results are written."""

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
        if text != "":  # which is no reason to fail, and click asks whether it can be written
            with self._writing():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Let it be seen."""
        with self._writing():
            self._stream.flush()

    def close(self) -> None:
        """Flush the stream, and leave it open for what others have to write."""
        self.flush()

    def _writing(self) -> AbstractContextManager[None]:
        raise NotImplementedError


class Results(_StandIn):
    """Stdout: that it cannot be written is never mistaken for anything else."""

    name = "stdout"

    def _writing(self) -> AbstractContextManager[None]:
        return _writing_to_stdout()


class Messages(_StandIn):
    """Stderr: what cannot be written is dropped.

    A result is worth more than what is told beside it, and the exit code says how it came out.
    """

    name = "stderr"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError:  # its reader is gone, or the disk is full
            forget(self._stream)
