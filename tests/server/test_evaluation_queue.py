"""Evaluations one at a time, within their time; searches with progress, and their end."""

from __future__ import annotations

import asyncio
import json
from multiprocessing import Pipe
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pytest

from parcost_apps.server.bodies import LONGEST_SEARCH_SECONDS
from parcost_apps.server.evaluation_process import EvaluationProcess, OutOfTimeError, PageTask
from parcost_apps.server.evaluation_queue import BusyError, EvaluationQueue, SupersededError
from parcost_apps.server.live_study import Subject


def problem_of(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["diagnostics"][0]["id"]


def test_an_evaluation_past_its_limit_is_answered(site: Any) -> None:
    site.evaluations.answer = lambda *_: None
    answer = site.ask("POST", "/evaluate", {})
    assert problem_of(answer) == (504, "evaluation-out-of-time")
    assert "0.5 s" in answer[1]["diagnostics"][0]["message"]
    site.evaluations.answer = lambda *_: {"well": True}
    assert site.ask("POST", "/evaluate", {}) == (200, {"well": True})


def test_a_process_that_ends_is_answered(site: Any) -> None:
    site.evaluations.answer = lambda *_: None
    site.evaluations.end()
    assert problem_of(site.ask("POST", "/evaluate", {})) == (503, "evaluation-ended")


def test_a_fault_of_the_server_is_no_traceback(site: Any, capfd: Any) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    site.evaluations.answer = fail
    assert problem_of(site.ask("POST", "/evaluate", {})) == (500, "internal-error")
    assert "Traceback" not in "".join(capfd.readouterr())


def order_of(stub: Any, *pages: str, seconds: float = 30.0, grace: float = 30.0) -> list[Any]:
    """Return what becomes of changes that arrive one after another, numbered, while one runs."""

    async def run() -> list[Any]:
        queue = EvaluationQueue(stub, seconds, grace)
        asked = []
        for number, page in enumerate(pages):
            task = PageTask("evaluate", (number,))
            asked.append(asyncio.create_task(queue.ask(page, task)))
            while not stub.tasks:  # noqa: ASYNC110  a thread fills them once the first runs
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
        stub.stopped.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(run())


def test_a_newer_change_of_a_page_discards_older_ones(stub: Any) -> None:
    """The first runs, the others wait; of each page the newest is done, in the order of arrival."""

    def answer(task: Any, _: Any) -> Any:
        assert stub.stopped.wait(10)
        return task.arguments[0]

    stub.answer = answer
    found = order_of(stub, "one", "two", "one", "one", "two")
    assert [type(x) for x in found[:3]] == [SupersededError] * 3
    assert found[3:] == ["3", "4"]
    assert [task.arguments[0] for task in stub.tasks] == [0, 3, 4]
    assert stub.ends == 0


def test_a_long_evaluation_gives_way_to_a_newer_change(stub: Any) -> None:
    """The first would run for half a minute; it is ended after a moment."""
    stub.answer = lambda task, _: task.arguments[0] or None
    found = order_of(stub, "one", "one", grace=0.01)
    assert isinstance(found[0], SupersededError)
    assert found[1] == "1"
    assert stub.ends == 1


def test_another_page_waits_and_ends_nothing(stub: Any) -> None:
    stub.answer = lambda task, _: task.arguments[0] or None
    found = order_of(stub, "one", "two", seconds=0.2, grace=0.01)
    assert isinstance(found[0], OutOfTimeError)
    assert found[1] == "1"
    assert stub.ends == 0


def test_only_so_many_pages_wait(stub: Any) -> None:
    stub.answer = lambda task, _: stub.stopped.wait(10) and task.arguments[0]
    found = order_of(stub, *(f"page{n}" for n in range(18)))
    assert [type(x) for x in found] == [str] * 16 + [BusyError] * 2


def events(text: str) -> list[tuple[str, Any]]:
    found = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: ")]
    return [(a.removeprefix("event: "), json.loads(b.removeprefix("data: "))) for a, b in found]


def test_a_search_tells_its_progress_and_ends_with_what_it_has(site: Any) -> None:
    def answer(task: Any, on_progress: Any) -> Any:
        assert task.arguments[0].axes == ("layout.tp",)
        on_progress("12 legal layouts\nevent: result")
        site.searches.stopped.wait(10)
        return {"layouts": []}

    site.searches.answer = answer
    response = site.open("POST", "/search", {"axes": ["layout.tp"], "page": "one"})
    assert response.headers["Content-Type"].startswith("text/event-stream")
    head = b""
    while b"12 legal" not in head:
        head += response.read1()
    for page, help in (("one", "stop it first"), ("two", "stop it there, or wait")):
        rejected = site.ask("POST", "/search", {"page": page})
        assert problem_of(rejected) == (409, "search-runs")
        assert help in rejected[1]["diagnostics"][0]["help"]
    for body in ({"page": "two"}, {}):  # another page stops nothing
        assert site.ask("POST", "/stop", body) == (204, None)
    assert not site.searches.stopped.is_set()
    assert site.ask("POST", "/stop", {"page": "one"}) == (204, None)
    found = events((head + response.read()).decode())
    assert found == [
        ("progress", "the search begins"),
        ("progress", "12 legal layouts\\nevent: result"),  # which ends no line
        ("result", {"layouts": []}),
    ]


def test_who_leaves_a_search_ends_it(site: Any) -> None:
    site.searches.answer = lambda *_: None
    response = site.open("POST", "/search", {"budget_seconds": 600})
    assert b"begins" in response.read1()
    response.close()
    site.connections.pop().close()
    until = monotonic() + 10
    while not site.searches.ends:
        assert monotonic() < until
        sleep(0.01)
    site.searches.answer = lambda *_: {"layouts": []}
    again = site.open("POST", "/search", {})
    assert events(again.read().decode())[-1] == ("result", {"layouts": []})


def test_only_a_search_that_never_ends_is_cut_off(site: Any) -> None:
    """A search ends by its own budget, and then compares and draws; the page waits for that."""
    site.open("POST", "/search", {"budget_seconds": 1}).read()
    site.open("POST", "/search", {}).read()
    beside = 600  # seconds for what is not search
    assert site.searches.limits == [1 + beside, LONGEST_SEARCH_SECONDS + beside]


def test_a_search_that_never_ends_is_ended(site: Any) -> None:
    def answer(*_: Any) -> None:
        raise OutOfTimeError("late")

    site.searches.answer = answer
    found = events(site.open("POST", "/search", {}).read().decode())
    assert found[-1][1]["diagnostics"][0]["id"] == "search-overdue"


def test_a_stop_reaches_a_search_whose_process_still_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = Pipe()
    starting = Event()

    def connected(_: EvaluationProcess) -> Any:
        starting.set()
        return ours

    monkeypatch.setattr(EvaluationProcess, "_connect", connected)
    process, task = EvaluationProcess(Subject(path="job.par")), PageTask("search")
    thread = Thread(target=process.ask, args=(task, 10.0))
    thread.start()
    assert starting.wait(10)
    process.stop_search()
    theirs.send_bytes(b"r")
    assert [theirs.poll(10) and theirs.recv() for _ in range(2)] == [task, "stop"]
    theirs.send_bytes(b"a{}")
    thread.join(10)
    assert not thread.is_alive()
