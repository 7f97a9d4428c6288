"""Executors: this process, processes of this machine, or a remote engine.

An engine has the interface of :class:`concurrent.futures.Executor`. It is an entry point of the
group ``parcost.executors``: a function from the text after ``NAME://`` on the command line to an
executor. The batch closes the executor at the end. An engine that can detect the loss of all its
workers implements :class:`WatchedExecutor`.

Loky was tried instead of :class:`Processes`. Its workers printed tracebacks at Ctrl-C, survived the
end of their parent, and imported from the current directory (`docs/runtime.md`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import contextmanager
from functools import partial
from importlib.metadata import entry_points
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.context import SpawnProcess
from threading import Thread, current_thread, main_thread
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

from attrs import field

from parcost.contract.calls import CallError, call
from parcost.language.diagnostics import did_you_mean
from parcost.language.errors import ParcostError, error_text
from parcost.records import define, frozen
from parcost_apps.cli.process import allow_changes, protect_process
from parcost_apps.cli.threads import print_failures
from parcost_formats.rendering.rejection import reraise_interrupt

GROUP = "parcost.executors"
_ENDINGS = ("SIGINT", "SIGTERM", "SIGHUP")
_SAFE_PATH = "PYTHONSAFEPATH"
_MOMENT_SECONDS = 0.5  # between two checks whether workers are alive

P = ParamSpec("P")
T = TypeVar("T")


class UnknownExecutorError(ParcostError):
    """No engine has that name, or the address is empty."""


class ExecutorError(ParcostError):
    """An executor cannot be started, or is lost."""


@runtime_checkable
class WatchedExecutor(Protocol):
    """Optional interface of an executor that can detect the loss of its workers."""

    def failure(self) -> str:
        """Return the reason why no further result can arrive; "" while results can arrive."""


@frozen(eq=False)
class Engine:
    """The way to start executors: *start* returns a new executor, also after a failure.

    *workers* is the number of tasks that run at the same time, if known. *stop* ends running tasks,
    if the engine can. *name* is used in messages.
    """

    start: Callable[[], Executor]
    workers: int = field(default=16)
    stop: Callable[[], None] = field(default=lambda: None)
    name: str = "the executor"


@define(eq=False)
class Pool:
    """The executor of an engine: started by the first task, and restarted after a failure."""

    engine: Engine
    executor: Executor | None = None

    def submit(self, task: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand a call to a worker.

        Raises:
            ExecutorError: The executor takes no more work.
        """
        if self.executor is None:
            self.executor = self.engine.start()
        try:
            work = partial(self.executor.submit, task, *args, **kwargs)
            return call(work, passing=BrokenExecutor)
        except BrokenExecutor as error:  # it broke since the last answer
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed
        except CallError as error:
            raise self._failure("accepts no more tasks", error.cause) from error

    def result(self, future: Future[T]) -> T:
        """Wait for a result.

        Raises:
            ExecutorError: The executor is gone.
        """
        while not wait([future], _MOMENT_SECONDS).done:
            self._check()
        try:
            return future.result()
        except ParcostError:
            raise
        except BaseException as error:
            reraise_interrupt(error)
            self._check()  # then it is not a fault of the task
            raise

    def _check(self) -> None:
        """Raise an error if the executor reports that its workers are lost."""
        executor: object = self.executor
        if not isinstance(executor, WatchedExecutor):
            return
        try:
            why = call(executor.failure)
        except CallError as error:
            raise self._failure("does not report whether it is available", error.cause) from error
        if why:
            raise ExecutorError(f"{self.engine.name} is gone: {why}")

    def _failure(self, what: str, error: BaseException) -> ExecutorError:
        return ExecutorError(f"{self.engine.name} {what}: {error_text(error)}")

    def renew(self) -> None:
        """Discard a broken executor."""
        if self.executor is not None:
            self._shut_down(whole=False)
        self.executor = None

    def close(self, *, whole: bool) -> None:
        """End the workers; if the work is not complete (*whole*), also stop running tasks."""
        if self.executor is None:
            return
        self._shut_down(whole=whole)
        if not whole:
            self.engine.stop()

    def _shut_down(self, *, whole: bool) -> None:
        assert self.executor is not None
        try:
            call(partial(self.executor.shutdown, wait=whole, cancel_futures=True))
        except CallError as error:
            if whole:
                raise self._failure("cannot be shut down", error.cause) from error
            # else what cut the work short is on its way, and says more


class Processes(ProcessPoolExecutor):
    """A pool of processes in which only the parent handles Ctrl-C.

    No process imports anything from the directory in which it is started.
    """

    def __init__(self, jobs: int) -> None:
        # Spawned and not forked: the same everywhere, and no lock is copied while it is held.
        with _safe_path():  # locks start a process that tracks them
            super().__init__(jobs, get_context("spawn"), _initialize_worker)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call to a process, starting one if needed."""
        with _without_interrupts(), _safe_path(), _defer_signals():
            return super().submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes; without *wait*, do not wait for incomplete results.

        A worker may be killed in the middle of a result. Its reader then waits for the rest,
        because this process still holds the write end. So the write end is closed; otherwise the
        interpreter would hang at exit.
        """
        results = getattr(self, "_result_queue", None)
        super().shutdown(wait, cancel_futures=cancel_futures)
        if not wait and results is not None:
            results._writer.close()  # noqa: SLF001  the standard library has no other way


def processes(jobs: int) -> Engine:
    """Return an engine of *jobs* processes of this machine."""
    others = set(active_children())

    def start() -> Executor:
        if sys.flags.ignore_environment and not sys.flags.safe_path:
            raise ExecutorError(
                "worker processes would import modules from the current directory, because `python "
                "-E` hides the setting that prevents it; add -P"
            )
        return Processes(jobs)

    def stop() -> None:
        for process in set(active_children()) - others:
            process.terminate()

    return Engine(start, jobs, stop)


def start_process(
    target: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs
) -> SpawnProcess:
    """Start a process that ignores Ctrl-C and ends with this one.

    It imports nothing from the current directory.
    """
    process = get_context("spawn").Process(
        target=_run, args=(partial(target, *args, **kwargs),), daemon=True
    )
    with _without_interrupts(), _safe_path(), _defer_signals():
        process.start()
    return process


def _run(work: Callable[[], object]) -> None:
    _initialize_worker()
    work()


def find_engine(address: str) -> Engine:
    """Return the engine that *address* names, as in ``dask://host:8786``.

    Raises:
        UnknownExecutorError: There is no such engine.
    """
    name, colon, rest = address.partition("://")
    points = {point.name: point for point in entry_points(group=GROUP)}
    if not colon or not name:
        example = f"{min(points, default='NAME')}://HOST:PORT"
        raise UnknownExecutorError(f"`{address}` does not name an executor; write {example}")
    if name not in points:
        hint = did_you_mean(name, points) or "there are: " + (", ".join(sorted(points)) or "none")
        raise UnknownExecutorError(f"there is no executor `{name}`; {hint}")

    called = f"the executor `{address}`"

    def start() -> Executor:
        try:
            found = call(lambda: points[name].load()(rest), passing=ParcostError)
        except CallError as error:
            raise ExecutorError(f"{called} cannot be used: {error.text}") from error
        if not isinstance(found, Executor):
            kind = type(found).__name__
            raise ExecutorError(f"`{points[name].value}` returned {kind}, which is not an executor")
        return found

    return Engine(start, name=called)


def _initialize_worker() -> None:
    """Initialize a worker process."""
    print_failures()
    protect_process()
    _end_with_parent()


def _end_with_parent() -> None:
    """End this process when its parent ends, even if the parent was killed."""
    parent = parent_process()

    def watch() -> None:
        assert parent is not None
        parent.join()
        with allow_changes():
            os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def _defer_signals() -> Iterator[None]:
    """Defer signals until a process has started; a partly started one would print a traceback.

    Blocking the signals is not enough: another thread may receive them, and Python handles them in
    the main thread.
    """
    if current_thread() is not main_thread():
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}
    for name in _ENDINGS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
            before[number] = signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


@contextmanager
def _safe_path() -> Iterator[None]:
    """Start processes without the current directory in their import path.

    They run `python -c`, which would import modules from there first.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SAFE_PATH, None)
        else:
            os.environ[_SAFE_PATH] = before


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that never receive Ctrl-C; Ctrl-C in the meantime is delivered afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
