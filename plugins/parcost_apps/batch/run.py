"""The run of a batch: cached results are read, the rest evaluated, all in file order.

Entries are in the order of the files, for any distribution of the work. They are identical, because
one function computes them everywhere. Only a limited number of files is in progress at any time, so
memory does not grow with their number. If a worker dies, its work is repeated, file by file. A file
that kills a worker twice is rejected.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import field

from parcost.contract.entries import Entry
from parcost.language.diagnostics import Diagnostic
from parcost.language.errors import ParcostError, error_text
from parcost.records import define
from parcost.system.files import current_folder
from parcost.system.garbage import rare_collections
from parcost_apps.batch.cache import Cache, CachedResult
from parcost_apps.batch.files import Spec
from parcost_apps.batch.fingerprints import Environment, Question
from parcost_apps.batch.worker import Task, Worker, answers
from parcost_formats.rendering.rejection import FAULT, Rejection, reraise_interrupt

if TYPE_CHECKING:
    from concurrent.futures import Future

    from parcost_apps.batch.executors import Engine, Pool

_MOST_OF_A_TASK = 16  # files: enough to hide what handing over costs, and lost with a worker
_TASKS_OF_A_WORKER = 4
_MOST_OF_A_GROUP = 64
_STRIKES = 3


@define(eq=False)
class _Group:
    """Consecutive files: the entries already known, the files to evaluate, and their future."""

    known: dict[int, Sequence[Entry]] = field(factory=dict)
    todo: dict[int, Spec] = field(factory=dict)
    future: Future[list[CachedResult]] | None = None

    def __len__(self) -> int:
        return len(self.known) + len(self.todo)

    @property
    def ready(self) -> bool:
        return self.future is None or self.future.done()


@define(eq=False)
class BatchRun:
    """One batch: *worker* evaluates the files here, or an *engine* evaluates them elsewhere.

    *done* is the number of files whose entries were returned; *current* are the files whose entries
    are next. *progress* receives the progress inside a file that is evaluated here.
    """

    question: Question
    environment: Environment
    cache: Cache | None = None
    engine: Engine | None = None
    worker: Worker | None = None
    progress: Callable[[str], None] | None = None
    done: int = 0
    current: Sequence[str] = ()
    _strikes: int = 0

    def entries(self, files: Sequence[Spec | Rejection]) -> Iterator[Entry]:
        """Yield the entries of every file, in order."""
        if self.engine is None or not current_folder():  # workers start in the current directory
            with rare_collections():
                for file in files:
                    known = self._find_answer(file)
                    if known is None and isinstance(file, Spec):
                        known = self._take_answer(self._answer_here(file))
                    yield from known or ()
                    self.done += 1
        else:
            yield from self._spread(files, self.engine)

    def _find_answer(self, file: Spec | Rejection) -> Sequence[Entry] | None:
        """Return the entries of a rejected or cached file, or None if it must be evaluated."""
        if isinstance(file, Rejection):
            from parcost_apps.batch.entries import entry_of

            return [entry_of(file, self.question.part)]
        return self.cache.find(file, self.question) if self.cache is not None else None

    def _take_answer(self, answer: CachedResult) -> Sequence[Entry]:
        """Store a result in the cache and return its entries."""
        if self.cache is not None:
            self.cache.store(answer)
        return answer.entries

    def _answer_here(self, file: Spec) -> CachedResult:
        self.current = [file.path]
        if self.worker is None:
            self.worker = Worker(self.environment)
        keep = self.cache is not None
        answer = self.worker.answer(file, self.question, keep=keep, progress=self.progress)
        self.current = ()
        return answer

    # --- elsewhere ------------------------------------------------------------------------

    def _spread(self, files: Sequence[Spec | Rejection], engine: Engine) -> Iterator[Entry]:
        from parcost_apps.batch.executors import Pool

        pool = Pool(engine)
        size = math.ceil(len(files) / (_TASKS_OF_A_WORKER * engine.workers))
        size = max(1, min(size, _MOST_OF_A_TASK))
        window = 2 * engine.workers + 2
        waiting: deque[_Group] = deque()
        whole = False
        try:
            for group in self._groups(files, size):
                if group.todo:
                    group.future = self._submit(list(group.todo.values()), pool)
                waiting.append(group)
                while waiting and (len(waiting) > window or waiting[0].ready):
                    yield from self._finish(waiting.popleft(), waiting, pool)
            while waiting:
                yield from self._finish(waiting.popleft(), waiting, pool)
            whole = True
        finally:
            self._close(waiting, pool, whole=whole)

    def _groups(self, files: Sequence[Spec | Rejection], size: int) -> Iterator[_Group]:
        group = _Group()
        for file in files:
            known = self._find_answer(file)
            if known is None and isinstance(file, Spec):
                group.todo[len(group)] = file
            else:
                group.known[len(group)] = known or ()
            if len(group.todo) == size or len(group) == _MOST_OF_A_GROUP:
                yield group
                group = _Group()
        yield group

    def _finish(self, group: _Group, waiting: Sequence[_Group], pool: Pool) -> Iterator[Entry]:
        done: list[CachedResult] = []
        self.current = [spec.path for spec in group.todo.values()]
        if group.future is not None:
            try:
                done = pool.result(group.future)
            except ParcostError:
                raise
            except BaseException as error:  # noqa: BLE001  engines fail in their own ways
                reraise_interrupt(error)
                done = self._one_by_one(group, error, waiting, pool)
        self.current = ()
        for position, answer in zip(group.todo, done, strict=True):
            group.known[position] = self._take_answer(answer)
        for position in sorted(group.known):
            yield from group.known[position]
            self.done += 1

    def _one_by_one(
        self, group: _Group, error: BaseException, waiting: Sequence[_Group], pool: Pool
    ) -> list[CachedResult]:
        """Repeat the files of a failed group one at a time; reject each file that fails again."""
        from concurrent.futures import BrokenExecutor

        from parcost_apps.batch.executors import ExecutorError

        if isinstance(error, BrokenExecutor):
            pool.renew()
        found: list[CachedResult] = []
        for spec in group.todo.values():
            try:
                answered = pool.result(self._submit([spec], pool))
                found += answered
                self._strikes = 0
            except ParcostError:
                raise
            except BaseException as again:
                reraise_interrupt(again)
                self._strikes += 1
                if self._strikes == _STRIKES:
                    said = f"workers are killed repeatedly, the last one by {error_text(again)}"
                    raise ExecutorError(said) from again
                found.append(self._report_crash(spec, again))
                if isinstance(again, BrokenExecutor):
                    pool.renew()
        for other in waiting:
            if other.future is not None and other.ready and _broken(other.future):
                other.future = self._submit(list(other.todo.values()), pool)
        return found

    def _report_crash(self, spec: Spec, error: BaseException) -> CachedResult:
        from parcost_apps.batch.cache import CachedResult
        from parcost_apps.batch.entries import entry_of

        said = str(error) or type(error).__name__
        message = f"the worker that evaluated `{spec.path}` was killed: {said}"
        help = "memory may have run out, or a plugin ended the process; --jobs 1 shows the cause"
        found = [Diagnostic("worker-died", message, place=spec.path, help=help)]
        rejected = Rejection(path=spec.path, diagnostics=found, exit_code=FAULT)
        return CachedResult([entry_of(rejected, self.question.part)])

    def _submit(self, files: Sequence[Spec], pool: Pool) -> Future[list[CachedResult]]:
        task = Task(
            question=self.question,
            selection=self.environment.selection,
            expected=self.environment.digest,
            folder=current_folder(),
            keep=self.cache is not None,
        )
        return pool.submit(answers, task, files)

    def _close(self, waiting: Sequence[_Group], pool: Pool, *, whole: bool) -> None:
        """End the workers; after an interruption, cache the results that are complete."""
        for group in waiting:
            future = group.future
            if future is not None and future.done() and not _broken(future):
                for answer in future.result():
                    self._take_answer(answer)
        pool.close(whole=whole)


def _broken(future: Future[list[CachedResult]]) -> bool:
    return future.cancelled() or future.exception() is not None
