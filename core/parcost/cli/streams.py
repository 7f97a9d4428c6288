"""What a command prints where: results on stdout, everything else on stderr.

click prints and parses, but its atomic files and progress bars were tried and left: the first
put half a result in place at Ctrl-C, the others leave no room for messages (`docs/runtime.md`).
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from errno import EISDIR
from math import inf
from pathlib import Path
from threading import current_thread, main_thread
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Self, TextIO

import click

from parcost.language.escapes import escape_keeping_color, escape_line, escape_lines
from parcost.system.temporary import Temporary, file_beside

if TYPE_CHECKING:
    from parcost.contract.page import Item, Paper
    from parcost.language.diagnostics import Diagnostic

_PIPED_WIDTH = 80
_MOST_DIGITS = 18  # of a number of columns
_WIDEST = 1000
_MOMENT_SECONDS = 2.0
_MOST_REMEMBERED = 10_000
_SPELLED = "backslashreplace"
_PATIENCE_SECONDS = 2.0
_AGAIN_SECONDS = 1.0
_AT_ONCE = getattr(select, "PIPE_BUF", 512)  # bytes that a pipe takes without blocking
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_SENTENCE = re.compile(r"(error|warning)\b| *= (note|help): ")  # what no program reads line by line
_CODE = re.compile(r"`[^`]{,40}`")
_JOINED = "\0"  # a space at which no line is broken
_HANGING = 2


class ClosedPipeError(Exception):
    """The reader of stdout is gone. Not an OSError, which click would turn into exit 1."""


def is_terminal(stream: TextIO) -> bool:
    """Return whether a person reads *stream*; ``FORCE_COLOR`` says so for a pipe."""
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def wants_color(stream: TextIO) -> bool:
    """Return whether *stream* may be coloured: see no-color.org."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def paper(stream: TextIO | None = None) -> Paper:
    """Return what stdout is like to draw on. ``COLUMNS`` sets the width."""
    from parcost.contract.page import Paper

    stream = stream or results()
    terminal = is_terminal(stream)
    width = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns if terminal else _columns()
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    unicode = terminal and encoding.startswith("utf")
    return Paper(width=min(width, _WIDEST), color=wants_color(stream), unicode=unicode)


def wrap_sentences(text: str, stream: TextIO) -> str:
    """Return diagnostics with their sentences wrapped as *stream* is wide; code stays whole.

    Only for a person, who has a terminal or sets ``COLUMNS``: others look for whole sentences.
    """
    if not (stream.isatty() or os.environ.get("COLUMNS")):
        return text
    width = paper(stream).width
    return "\n".join(
        part
        for line in text.split("\n")
        for part in (_wrap(line, width) if _SENTENCE.match(_COLOUR.sub("", line)) else [line])
    )


def _wrap(line: str, width: int) -> list[str]:
    """Return the words of *line* in lines, of which all but the first are indented."""
    words = _CODE.sub(lambda m: m[0].replace(" ", _JOINED), line.strip()).split(" ")
    plain = _COLOUR.sub("", line)
    margin = " " * (len(plain) - len(plain.lstrip()))
    lines = [margin + words[0]]
    deeper = margin + " " * (len("= help: ") if margin else _HANGING)
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if len(_COLOUR.sub("", longer)) <= width:
            lines[-1] = longer
        else:
            lines.append(deeper + word)
    return [line.replace(_JOINED, " ") for line in lines]


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


def show(items: Iterable[Item]) -> None:
    """Draw a page on stdout."""
    from parcost.output.text import draw

    put(draw(list(items), paper()))


def write_message(text: str) -> None:
    """Write a message to stderr, less what a terminal might act on."""
    _write_message(wrap_sentences(escape_lines(text), sys.stderr))


def _write_message(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Reporter:
    """Prints diagnostics on stderr, each once however many studies share its cause."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def __call__(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Print what has not been printed yet."""
        from parcost.language.diagnostic_text import render

        for diagnostic in diagnostics:
            self.show(render(diagnostic, color=True))

    def show(self, rendered: str) -> None:
        """Print a diagnostic that was rendered in colour, if it has not been printed yet."""
        if rendered not in self._told:
            if len(self._told) > _MOST_REMEMBERED:
                self._told.clear()
            self._told.add(rendered)
            shown = rendered if wants_color(sys.stderr) else _COLOUR.sub("", rendered)
            _write_message(wrap_sentences(shown, sys.stderr) + "\n")


class Progress:
    """A line on stderr that says how far work has got, once it takes longer than a moment.

    Only where a person waits for it: stderr is a terminal, and results go *elsewhere*.
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        self._start = monotonic()
        self._wanted = sys.stderr.isatty() and (elsewhere or not results().isatty())
        self._shown = False

    def show(self, text: str) -> None:
        """Put *text* in the place of what was shown before."""
        if self._wanted and monotonic() - self._start > _MOMENT_SECONDS:
            sys.stderr.write(f"\r{escape_line(text)}\x1b[K")
            sys.stderr.flush()
            self._shown = True

    def clear(self) -> None:
        """Make room for a message."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            self._shown = False


#: What ends a run as Ctrl-C does: timeouts, schedulers and terminals that close send it.
ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """Ctrl-C, which Python loses if it arrives while an object is removed.

    It is deferred inside :meth:`held`. So are other *signals*, unless they are ignored, as under
    ``nohup``. In a process that *ends* with the run, signals after the first are ignored.
    """

    number: ClassVar[int] = signal.SIGINT  # the last that came, and when
    when: ClassVar[float] = -inf

    def __init__(self, *signals: int, ends: bool = False) -> None:
        self._signals = signals or (signal.SIGINT, *ENDINGS)
        self._ends = ends
        self._noted = False
        self._held = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if current_thread() is main_thread():
            for number in self._signals:
                if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        ignored = self._ends and Interrupts.when > -inf
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if ignored else before)

    @classmethod
    def exit_code(cls) -> int:
        """Return what a run that was interrupted ends with, as a shell says it."""
        return 128 + cls.number

    @classmethod
    def forget(cls) -> None:
        """Begin anew: nothing has come yet."""
        cls.number, cls.when = signal.SIGINT, -inf

    def check(self) -> None:
        """Raise what was forgotten."""
        if self._noted:
            raise KeyboardInterrupt

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Finish what must not be cut in two, however often Ctrl-C comes meanwhile."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()

    def _note(self, number: int, _: object) -> None:
        again = number == Interrupts.number and monotonic() - Interrupts.when < _AGAIN_SECONDS
        Interrupts.number, Interrupts.when = number, monotonic()
        self._noted = True
        if not (self._held or again):  # `timeout` tells a process, and then the group it is in
            raise KeyboardInterrupt


class OutputFile:
    """Where results go: stdout, or a file that appears whole or not at all.

    What a file held before stays until the new one is complete, also where it never is.
    What is no regular file, such as a pipe, is written as it is. No *interrupts* cut what
    is put on stdout.
    """

    def __init__(self, name: str | None, interrupts: Interrupts | None = None) -> None:
        self.name = name
        self._interrupts = interrupts
        self._file: TextIO | None = None
        self._beside: Temporary | None = None
        if name is None:
            return
        path = Path(name)
        with self._complaining():
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR), name)
            if path.exists() and not path.is_file():
                self._file = path.open("w", encoding="utf-8", newline="")
                return
            handle, self._beside = file_beside(path)
            self._file = os.fdopen(handle, "w", encoding="utf-8", errors=_SPELLED, newline="")

    def put(self, text: str) -> None:
        """Write a piece of the results."""
        if self._file is None:
            put(text, self._interrupts)
            return
        with self._complaining():
            self._file.write(text)

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Have *save* write the file instead."""
        assert self._beside is not None
        with self._complaining():
            save(self._beside.path)

    def paper(self) -> Paper:
        """Return what the results are drawn on."""
        return paper(self._file)

    def finish(self) -> None:
        """Let the file appear."""
        if self._file is None:
            return
        with self._complaining():
            self._file.close()
            if self._beside is not None:
                self._beside.path.chmod(0o666 & ~_umask())
                self._beside.replace(Path(str(self.name)))
                self._beside = None

    def abandon(self) -> None:
        """Remove what is not complete."""
        if self._file is not None:
            with suppress(OSError):  # what could not be written cannot be flushed either
                self._file.close()
        if self._beside is not None:
            self._beside.remove()

    @contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            raise ClosedPipeError from error
        except OSError as error:
            said = f"`{self.name}` cannot be written: {error.strerror or error}"
            raise click.ClickException(said) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdecimal() or not columns.strip("0"):
        return _PIPED_WIDTH
    return int(columns) if len(columns) <= _MOST_DIGITS else _WIDEST
