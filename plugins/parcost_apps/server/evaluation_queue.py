"""The queue of evaluations: one runs at a time, and only the newest request of each page is kept.

A page sends a request at every change. While one evaluation runs, the newest request of each page
waits; older ones are answered immediately. If a page has sent a newer request, its running
evaluation is stopped after a short time.
"""

from __future__ import annotations

import asyncio
from functools import partial

from attrs import define, field

from parcost.language.errors import ParcostError
from parcost_apps.server.evaluation_process import EvaluationProcess, PageTask

_MOST_WAITING = 16


class SupersededError(ParcostError):
    """The page has sent a newer request."""


class BusyError(ParcostError):
    """Too many pages are waiting."""


@define(eq=False)
class EvaluationQueue:
    """Passes the tasks of pages to the evaluation process, one after another."""

    process: EvaluationProcess
    seconds: float
    grace_seconds: float = 1.0
    _newest: dict[str, object] = field(factory=dict)
    _running: tuple[str, object] | None = None
    _lock: asyncio.Lock = field(factory=asyncio.Lock)

    async def ask(self, page: str, task: PageTask) -> str:
        """Return the answer to a task of a page.

        Raises:
            SupersededError: The page has asked for something newer meanwhile.
            BusyError: Too many pages wait.
            OutOfTimeError: The answer takes longer than the limit.
            EndedError: The process ended unexpectedly.
        """
        if page not in self._newest and len(self._newest) >= _MOST_WAITING:
            raise BusyError("too many pages wait for an evaluation")
        ticket = self._newest[page] = object()
        if self._running is not None and self._running[0] == page:
            asyncio.get_running_loop().call_later(self.grace_seconds, self._end, self._running)
        try:
            async with self._lock:
                self._check(page, ticket)
                self._running = (page, ticket)
                try:
                    work = partial(self.process.ask, task, self.seconds)
                    return await asyncio.to_thread(work)
                finally:
                    self._running = None
                    self._check(page, ticket)
        finally:
            if self._newest.get(page) is ticket:
                del self._newest[page]

    def _check(self, page: str, ticket: object) -> None:
        if self._newest.get(page) is not ticket:
            raise SupersededError("the page has sent a newer request")

    def _end(self, run: tuple[str, object]) -> None:
        """Kill a run that is still going on."""
        if self._running is run:
            self.process.end()
