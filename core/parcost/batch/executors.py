"""Where work is done: here, in processes of this machine, or on an engine of elsewhere.

All that is asked of an engine is the interface of :class:`concurrent.futures.Executor`. An
engine is an entry point of the group ``parcost.executors``: a function from what follows
``NAME://`` on the command line to an executor, which is closed when the work is done.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib.metadata import entry_points
from multiprocessing import active_children, get_context
from typing import ParamSpec, TypeVar

from attrs import define, field, frozen

from parcost.diagnostics import ParcostError, did_you_mean, raised, reraise_interrupt
from parcost.threads import tell_failures

GROUP = "parcost.executors"

P = ParamSpec("P")
T = TypeVar("T")


class UnknownExecutorError(ParcostError):
    """No engine has that name, or the address says nothing."""


class ExecutorError(ParcostError):
    """An engine cannot be used, or is gone."""


@frozen(eq=False)
class Engine:
    """How to get executors: *start* gives one, and a fresh one where that broke.

    *workers* is how many tasks it does at once, as far as that is known; *stop* ends those
    that are running, where that can be done.
    """

    start: Callable[[], Executor]
    workers: int = field(default=16)
    stop: Callable[[], None] = field(default=lambda: None)


@define(eq=False)
class Pool:
    """The executor of an engine, started when there is something to do, and anew where it broke."""

    engine: Engine
    executor: Executor | None = None

    def submit(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand a call to a worker.

        Raises:
            ExecutorError: The executor takes no more work.
        """
        if self.executor is None:
            self.executor = self.engine.start()
        try:
            return self.executor.submit(call, *args, **kwargs)
        except BrokenExecutor as error:  # it broke since the last answer
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed
        except BaseException as error:
            reraise_interrupt(error)
            said = f"the executor takes no more work: {raised(error)}"
            raise ExecutorError(said) from error

    def renew(self) -> None:
        """Leave a broken executor behind."""
        if self.executor is not None:
            self.executor.shutdown(wait=False, cancel_futures=True)
        self.executor = None

    def close(self, *, whole: bool) -> None:
        """End the workers; where the work is not *whole*, in the middle of what they do."""
        if self.executor is None:
            return
        self.executor.shutdown(wait=whole, cancel_futures=True)
        if not whole:
            self.engine.stop()


class Processes(ProcessPoolExecutor):
    """Processes that leave Ctrl-C to whoever waits for the results."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand a call to a process, which may be started for it."""
        with _without_interrupts():
            return super().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; without *wait*, let nothing wait for what one of them left unsaid.

        Who reads results waits for the rest of one whose writer was killed, and so would the
        interpreter at its end, as long as anybody could still write it: this process could.
        """
        results = getattr(self, "_result_queue", None)
        super().shutdown(wait, cancel_futures=cancel_futures)
        if not wait and results is not None:
            results._writer.close()  # noqa: SLF001  the standard library has no other way


def processes(jobs: int) -> Engine:
    """Return an engine of *jobs* processes of this machine."""
    others = set(active_children())

    def start() -> Executor:
        # Spawned and not forked: the same everywhere, and no lock is copied while it is held.
        return Processes(jobs, get_context("spawn"), tell_failures)

    def stop() -> None:
        for process in set(active_children()) - others:
            process.terminate()

    return Engine(start, jobs, stop)


def named(address: str) -> Engine:
    """Return the engine that *address* names, as in ``dask://host:8786``.

    Raises:
        UnknownExecutorError: There is no such engine.
    """
    name, colon, rest = address.partition("://")
    points = {point.name: point for point in entry_points(group=GROUP)}
    if not colon or not name:
        example = f"{min(points, default='NAME')}://HOST:PORT"
        raise UnknownExecutorError(f"`{address}` names no executor; write {example}")
    if name not in points:
        hint = did_you_mean(name, points) or "there are: " + (", ".join(sorted(points)) or "none")
        raise UnknownExecutorError(f"there is no executor `{name}`; {hint}")

    def start() -> Executor:
        try:
            found = points[name].load()(rest)
        except ParcostError:
            raise
        except BaseException as error:
            reraise_interrupt(error)
            said = f"the executor `{address}` cannot be used: {raised(error)}"
            raise ExecutorError(said) from error
        if not isinstance(found, Executor):
            kind = type(found).__name__
            raise ExecutorError(f"`{points[name].value}` returned {kind}, which is no executor")
        return found

    return Engine(start)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let processes that are started now never see Ctrl-C; what comes meanwhile comes later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
