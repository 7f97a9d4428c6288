"""Ctrl-C and the other signals that end a run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import current_thread, main_thread
from time import monotonic
from typing import Any, ClassVar, Self

_AGAIN_SECONDS = 1.0

#: What ends a run as Ctrl-C does: timeouts, schedulers and terminals that close send it.
ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """Handles Ctrl-C, which Python loses if it arrives while an object is finalized.

    It is deferred inside :meth:`defer`, as are other *signals*, unless they are ignored
    (``nohup``). In a process that *ends* with the run, signals after the first are ignored.
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
                    self._before[number] = signal.signal(number, self._record)
        return self

    def __exit__(self, *_: object) -> None:
        ignored = self._ends and Interrupts.when > -inf
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if ignored else before)

    @classmethod
    def exit_code(cls) -> int:
        """Return the exit code of an interrupted run: 128 plus the number of the signal."""
        return 128 + cls.number

    @classmethod
    def reset(cls) -> None:
        """Reset the record of received signals."""
        cls.number, cls.when = signal.SIGINT, -inf

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has arrived."""
        if self._noted:
            raise KeyboardInterrupt

    @contextmanager
    def defer(self) -> Iterator[None]:
        """Defer Ctrl-C until the end of this context, then raise it."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()

    def _record(self, number: int, _: object) -> None:
        again = number == Interrupts.number and monotonic() - Interrupts.when < _AGAIN_SECONDS
        Interrupts.number, Interrupts.when = number, monotonic()
        self._noted = True
        if not (self._held or again):  # `timeout` tells a process, and then the group it is in
            raise KeyboardInterrupt
