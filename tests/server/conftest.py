"""A server of a page in a thread, with processes that do what a test wants."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from threading import Event, Thread
from typing import Any

import pytest
import uvicorn
from attrs import define, field

from parcost_apps.server.access import Address
from parcost_apps.server.application import LivePage, application
from parcost_apps.server.evaluation_process import EndedError, OutOfTimeError, PageTask
from parcost_apps.server.evaluation_queue import EvaluationQueue
from parcost_apps.server.run import address_of, bound_socket


@define(eq=False)
class Stub:
    """Stands for a process: answers tasks by a function, which may wait until it is ended."""

    answer: Callable[[PageTask, Callable[[str], None]], Any] = lambda task, _: {"task": task.name}
    tasks: list[PageTask] = field(factory=list)
    limits: list[float] = field(factory=list)
    ended: Event = field(factory=Event)
    stopped: Event = field(factory=Event)
    ends: int = 0

    def ask(
        self, task: PageTask, seconds: float, on_progress: Callable[[str], None] = print
    ) -> str:
        self.tasks.append(task)
        self.limits.append(seconds)
        if task.name == "page":
            return json.dumps({"text": "<p>the page</p>", "policy": "default-src 'self'"})
        found = self.answer(task, on_progress)
        if found is not None:
            return json.dumps(found)
        if not self.ended.wait(seconds):
            raise OutOfTimeError("late")
        self.ended.clear()
        raise EndedError("ended")

    def end(self) -> None:
        self.ends += 1
        self.ended.set()

    def stop_search(self) -> None:
        self.stopped.set()


@define(eq=False)
class Site:
    """A server that runs, and requests to it: by default those of its own page."""

    address: Address
    evaluations: Stub
    searches: Stub
    connections: list[HTTPConnection] = field(factory=list)

    @property
    def host(self) -> str:
        return self.address.hosts[0]

    @property
    def cookie(self) -> str:
        return f"{self.address.cookie}={self.address.token}"

    def own_headers(self) -> dict[str, str]:
        return {
            "Host": self.host,
            "Cookie": self.cookie,
            "Origin": f"http://{self.host}",
            "Content-Type": "application/json",
        }

    def connect(self) -> HTTPConnection:
        """Return a connection, which ends with the test."""
        self.connections.append(HTTPConnection("127.0.0.1", self.address.port, timeout=20))
        return self.connections[-1]

    def open(self, method: str, path: str, body: Any = None, **headers: str | None) -> HTTPResponse:
        own = {**self.own_headers(), **{k.replace("_", "-"): v for k, v in headers.items()}}
        connection = self.connect()
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in own.items():
            if value is not None:
                connection.putheader(name, value)
        if isinstance(body, dict):
            body = json.dumps(body).encode()
        if body is not None and "Transfer-Encoding" not in own:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> Any:
        """Return the status and the answer, which is JSON."""
        answer = self.open(method, path, body, **headers)
        return answer.status, json.loads(answer.read() or "null")


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture(scope="module")
def served() -> Iterator[Site]:
    evaluations, searches = Stub(), Stub()
    page = LivePage(EvaluationQueue(evaluations, 0.5), searches)  # type: ignore[arg-type]
    made = bound_socket("127.0.0.1", 0)
    address = address_of(made, "127.0.0.1")
    config = uvicorn.Config(
        application(page, address), log_config=None, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [made]})
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield Site(address, evaluations, searches)
    server.should_exit = True
    thread.join(10)
    made.close()
    assert not thread.is_alive()


@pytest.fixture
def site(served: Site) -> Iterator[Site]:
    """Return the server of the module, whose processes answer anew."""
    for stub in (served.evaluations, served.searches):
        stub.tasks.clear()
        stub.limits.clear()
        stub.ended.clear()
        stub.stopped.clear()
        stub.ends = 0
        stub.answer = lambda task, _: {"task": task.name}
    yield served
    while served.connections:
        served.connections.pop().close()
