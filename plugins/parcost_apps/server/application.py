"""The requests of the page, and their answers.

``GET /`` is the page. ``POST /evaluate`` answers a change with the report and the form, as parts of
the page. ``POST /spec`` answers it with the resolved spec. ``POST /search`` answers with events:
progress, then the best layouts. ``POST /stop`` ends the search of its page with the best layouts so
far.

Only one search runs at a time, and belongs to the page that started it. Other pages cannot start
another search or stop it.

Answers are JSON. Errors and timeouts are answered with diagnostics.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from attrs import define
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from parcost.language.diagnostics import Diagnostic
from parcost.language.escapes import escape_line
from parcost_apps.server.access import Address, Guard, answer_problems, error_response
from parcost_apps.server.bodies import (
    CHANGE_KEYS,
    LONGEST_SEARCH_SECONDS,
    PAGE_KEYS,
    SEARCH_KEYS,
    BodyError,
    SearchOrder,
    change_of,
    page_of,
    read_body,
    search_order_of,
)
from parcost_apps.server.evaluation_process import (
    EndedError,
    EvaluationProcess,
    OutOfTimeError,
    PageTask,
)
from parcost_apps.server.evaluation_queue import BusyError, EvaluationQueue, SupersededError
from parcost_apps.server.live_study import Subject
from parcost_formats.rendering.rejection import internal_error

_BESIDE_SECONDS = 600.0  # for what comes before and after a search
_BEAT_SECONDS = 10.0  # between two events at least, so that a lost reader is noticed


@define(eq=False)
class LivePage:
    """The page, and the two processes that evaluate and search for it."""

    queue: EvaluationQueue
    searches: EvaluationProcess
    _searcher: str | None = None  # the page whose search runs
    _page: Mapping[str, str] | None = None

    @classmethod
    def from_subject(cls, subject: Subject, seconds: float) -> LivePage:
        """Return the page of *subject*; an evaluation may take *seconds*."""
        return cls(EvaluationQueue(EvaluationProcess(subject), seconds), EvaluationProcess(subject))

    def end(self) -> None:
        """End both processes."""
        self.queue.process.end()
        self.searches.end()

    async def show(self, _: Request) -> Response:
        """Return the page."""
        if self._page is None:
            found = json.loads(await self.queue.ask(uuid4().hex, PageTask("page")))
            if "text" not in found:
                return _answer(json.dumps(found), 500)
            self._page = found
        policy = {"Content-Security-Policy": self._page["policy"]}
        return HTMLResponse(self._page["text"], headers=policy)

    async def evaluate(self, request: Request) -> Response:
        """Return the report and the form after a change on a page."""
        body = await read_body(request, CHANGE_KEYS)
        task = PageTask("evaluate", (change_of(body),))
        return _answer(await self.queue.ask(page_of(body), task))

    async def spec(self, request: Request) -> Response:
        """Return the resolved spec after a change on a page."""
        body = await read_body(request, CHANGE_KEYS)
        task = PageTask("spec", (change_of(body),))
        return _answer(await self.queue.ask(f"{page_of(body)} spec", task))

    async def search(self, request: Request) -> Response:
        """Return the events of a search."""
        body = await read_body(request, SEARCH_KEYS)
        page, order = page_of(body), search_order_of(body)
        if (found := self._search_rejection(page)) is not None:
            return answer_problems(409, [found])
        return StreamingResponse(self._events(page, order), media_type="text/event-stream")

    async def stop(self, request: Request) -> Response:
        """End the search of its page; other pages cannot end it."""
        if page_of(await read_body(request, PAGE_KEYS)) == self._searcher:
            self.searches.stop_search()
        return Response(status_code=204)

    def _search_rejection(self, page: str) -> Diagnostic | None:
        """Return the reason why a page cannot start a search now, or None."""
        if self._searcher is None:
            return None
        if self._searcher == page:
            return Diagnostic("search-runs", "a search runs already", help="stop it first")
        help = "stop it there, or wait until it ends"
        return Diagnostic("search-runs", "a search of another page is running", help=help)

    async def _events(self, page: str, order: SearchOrder) -> AsyncIterator[str]:
        """Yield progress events, then the answer; if the reader disconnects, the search ends."""
        if (found := self._search_rejection(page)) is not None:  # it began meanwhile
            yield _event("result", _problem_text(found))
            return
        self._searcher = page
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str] = asyncio.Queue()

        def show_progress(text: str) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, text)

        task = PageTask("search", (order,))
        most = (order.budget_seconds or LONGEST_SEARCH_SECONDS) + _BESIDE_SECONDS
        work = partial(self.searches.ask, task, most, show_progress)
        run = asyncio.ensure_future(asyncio.to_thread(work))
        run.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is noticed
        try:
            yield _event("progress", json.dumps("the search begins"))
            while not run.done():
                text = asyncio.ensure_future(queue.get())
                await asyncio.wait(
                    {run, text}, timeout=_BEAT_SECONDS, return_when="FIRST_COMPLETED"
                )
                if text.done():
                    yield _event("progress", json.dumps(escape_line(text.result())))
                else:
                    text.cancel()
                    yield ": the search goes on\n\n"
            yield _event("result", await _outcome(run))
        finally:
            if not run.done():
                self.searches.end()
            self._searcher = None


async def _outcome(run: Awaitable[str]) -> str:
    """Return the answer of a search, or its error, as JSON."""
    try:
        return await run
    except OutOfTimeError:
        found = Diagnostic("search-overdue", "the search took much longer than its limit")
    except EndedError:
        found = Diagnostic("search-ended", "the search was stopped")
    return _problem_text(found)


def _problem_text(diagnostic: Diagnostic) -> str:
    return bytes(answer_problems(200, [diagnostic]).body).decode()


def _event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


def _answer(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _overtime_answer(_: Request, __: Exception, seconds: float) -> Response:
    message = f"the evaluation was stopped after the time limit of {seconds:g} s"
    help = "make a sweep smaller, or start `parcost serve` with a larger `--time-limit`"
    return error_response(504, "evaluation-out-of-time", message, help)


def _process_end_answer(_: Request, __: Exception) -> Response:
    message = "the evaluation process ended"
    return error_response(503, "evaluation-ended", message, "try again, which starts a new process")


def _busy_answer(_: Request, error: Exception) -> Response:
    return error_response(503, "busy", str(error), "try again in a moment")


def _newer_change_answer(_: Request, error: Exception) -> Response:
    return error_response(409, "superseded", str(error))


def _body_answer(_: Request, error: Exception) -> Response:
    assert isinstance(error, BodyError)
    return error_response(error.status, error.id, str(error), error.help)


def _http_answer(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, "no-such-page", str(error.detail))


def _fault_answer(request: Request, error: Exception) -> Response:
    return answer_problems(500, [internal_error(error, request.url.path)])


def application(page: LivePage, address: Address) -> Callable[..., Awaitable[None]]:
    """Return the application that serves *page* at *address*, behind a guard."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            page.end()

    handlers: dict[Any, Callable[[Request, Exception], Response]] = {
        BodyError: _body_answer,
        SupersededError: _newer_change_answer,
        BusyError: _busy_answer,
        OutOfTimeError: partial(_overtime_answer, seconds=page.queue.seconds),
        EndedError: _process_end_answer,
        HTTPException: _http_answer,
        Exception: _fault_answer,
    }
    app = Starlette(
        routes=[
            Route("/", page.show),
            Route("/evaluate", page.evaluate, methods=["POST"]),
            Route("/spec", page.spec, methods=["POST"]),
            Route("/search", page.search, methods=["POST"]),
            Route("/stop", page.stop, methods=["POST"]),
        ],
        exception_handlers=handlers,
        lifespan=lifespan,
    )
    return Guard(app, address)
