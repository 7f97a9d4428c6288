"""A search in pieces: the processes of this machine, or an engine of elsewhere, do one each.

What one piece finds is the mark for those that begin later, which saves work and changes
nothing: pieces join to the same result to the bit, however they were cut. A piece whose
worker dies is done again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from parcost.batch.executors import Engine, ExecutorError, Pool
from parcost.batch.work import at_work
from parcost.diagnostics import ParcostError, raised, reraise_interrupt
from parcost.search.failing import objective_of
from parcost.search.found import Best, Found
from parcost.search.piece import Piece, RefusedError, joined
from parcost.search.run import Wish, piece
from parcost.search.space import space

if TYPE_CHECKING:
    from parcost.batch.keys import Environment
    from parcost.picked import Picked
    from parcost.search.space import Space

_PIECES_OF_A_WORKER = 3
_STRIKES = 3
_START_SECONDS = 5.0  # of a process, until it has read the spec


@frozen(kw_only=True, eq=False)
class Quest:
    """What is searched, for a worker that reads the file itself.

    *given* and *names* are those of :func:`parcost.search.space.space`.
    """

    path: str
    study: str
    overrides: Mapping[str, Any]
    given: Mapping[str, Sequence[Any]]
    names: Sequence[str]
    wish: Wish


@frozen(kw_only=True, eq=False)
class _Task:
    quest: Quest
    part: tuple[int, int]
    worst: float
    budget_seconds: float
    picked: Picked
    expected: str
    folder: str


def _done(task: _Task) -> Piece:
    """Search a part of the space of a file, in a process that may have done so before."""
    with at_work(task.picked, task.expected, task.folder) as worker:
        quest = task.quest
        found = worker.session.load(quest.path, quest.overrides)
        (scenario,) = (s for s in found if s.name == quest.study)
        whole = space(scenario, quest.given, quest.names)
        wish = evolve(quest.wish, budget_seconds=task.budget_seconds)
        return piece(whole, wish, task.part, worst=task.worst)


def spread(
    whole: Space,
    quest: Quest,
    environment: Environment,
    engine: Engine,
    *,
    told: Callable[[str], None] = lambda _: None,
    here: bool = False,
) -> Found:
    """Return the best layouts of *whole*, the space of *quest*, found by an *engine*.

    With *here*, this process searches the first parts, and the engine is started only once
    it saves more of the others than it costs to start.

    Raises:
        SpecError: There is no such objective, or no layout is legal, fits and is within
            the limits.
        ExecutorError: A part failed again and again, or nobody is left to do it.
    """
    start = time.monotonic()
    objective = objective_of(whole.scenario.first, quest.wish.objective)
    search = _Spread(whole, quest, environment, engine, told, start, here)
    pieces = search.pieces()
    try:
        found = joined(whole, objective, quest.wish.keep, pieces, start)
    except RefusedError:
        careful = evolve(quest, wish=evolve(quest.wish, careful=True))
        search = _Spread(whole, careful, environment, engine, told, start, here)
        pieces = search.pieces()
        found = joined(whole, objective, quest.wish.keep, pieces, start, careful=True)
    return evolve(found, workers=search.workers)


def saves_time(seconds: Sequence[float], left: int, workers: int) -> bool:
    """Return whether *workers* save more than they cost on the parts that are *left*.

    *seconds* are those of the parts so far. What the first took longer than the others is
    what every process makes once.
    """
    if len(seconds) <= 1 or not left:
        return False
    first, *others = seconds
    each = sum(others) / len(others)
    cost = _START_SECONDS + max(first - each, 0.0)
    return each * left * (1 - 1 / min(workers, left)) > cost


@define(eq=False)
class _Spread:
    """The pieces of a search as they come in."""

    whole: Space
    quest: Quest
    environment: Environment
    engine: Engine
    told: Callable[[str], None]
    start: float
    here: bool
    workers: int = 0  # those that were started
    _pool: Pool = field(init=False)
    _strikes: Counter[int] = field(factory=Counter)  # by part
    _best: Best = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._best = Best(self.quest.wish.keep)
        self._pool = Pool(self.engine)

    def pieces(self) -> Sequence[Piece]:
        """Return all pieces, or those that there are when somebody interrupts."""
        count = min(self.whole.count(), _PIECES_OF_A_WORKER * self.engine.workers)
        todo = list(range(count - 1, -1, -1))
        under_way: dict[Future[Piece], tuple[int, Executor | None]] = {}
        found: list[Piece] = []
        whole = False
        try:
            if self.here:
                self._search_here(todo, found)
            while todo or under_way:
                while todo and len(under_way) < self.engine.workers:
                    i = todo.pop()
                    future = self._submit((i, count))
                    under_way[future] = (i, self._pool.executor)
                self.told(f"{len(found)} of {count} parts of the space searched")
                for future in self._pool.ready(under_way):
                    i, executor = under_way.pop(future)
                    one = self._taken(future, executor, i)
                    if one is None:
                        todo.append(i)
                    else:
                        found.append(one)
            whole = True
        except KeyboardInterrupt:
            found.append(Piece(interrupted=True, part=count))
        finally:
            self._pool.close(whole=whole)
        return found

    def _taken(self, future: Future[Piece], executor: Executor | None, part: int) -> Piece | None:
        """Return what has been found, or None where it is to be done again."""
        try:
            found = self._pool.result(future)
        except ParcostError:
            raise
        except BaseException as error:
            reraise_interrupt(error)
            broken = isinstance(error, BrokenExecutor)
            if broken and executor is not self._pool.executor:
                return None  # all that it was doing breaks with a pool, and it is replaced
            self._strikes[part] += 1
            if self._strikes[part] == _STRIKES:
                said = f"a part of the space failed {_STRIKES} times, the last by {raised(error)}"
                raise ExecutorError(said) from error
            if broken:
                self._pool.renew()
            return None
        return self._noted(found)

    def _search_here(self, todo: list[int], found: list[Piece]) -> None:
        """Move parts from *todo* to *found*, while workers would not save enough of the others.

        Raises:
            KeyboardInterrupt: Somebody interrupted, and the last part is not whole.
        """
        count, seconds = len(todo), list[float]()
        while todo and not saves_time(seconds, len(todo), self.engine.workers):
            self.told(f"{len(found)} of {count} parts of the space searched")
            wish = evolve(self.quest.wish, budget_seconds=self._seconds_left())
            part = (todo.pop(), count)
            start = time.process_time()  # which others on the machine disturb less
            found.append(self._noted(piece(self.whole, wish, part, worst=self._best.worst)))
            seconds.append(time.process_time() - start)
            if found[-1].interrupted:
                raise KeyboardInterrupt

    def _noted(self, found: Piece) -> Piece:
        for degrees, layout in found.best:
            self._best.offer(degrees, layout)
        return found

    def _seconds_left(self) -> float:
        late = time.monotonic() - self.start
        return max(self.quest.wish.budget_seconds - late, 0.0)

    def _submit(self, part: tuple[int, int]) -> Future[Piece]:
        self.workers = self.engine.workers
        task = _Task(
            quest=self.quest,
            part=part,
            worst=self._best.worst,
            budget_seconds=self._seconds_left(),
            picked=self.environment.picked,
            expected=self.environment.digest,
            folder=str(Path.cwd()),
        )
        return self._pool.submit(_done, task)
