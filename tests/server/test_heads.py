"""Connections that send half a head of a request end, and leave their places to others."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import uvicorn

from parcost_apps.server.run import HeaderLimit, bound_socket

PLACES = 8
HALF = b"GET / HTTP/1.1\r\nHost: x"


async def answer(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


@pytest.fixture
def port() -> Iterator[int]:
    class Hasty(HeaderLimit):
        head_seconds = 0.3

    made = bound_socket("127.0.0.1", 0)
    config = uvicorn.Config(
        answer, http=Hasty, ws="none", lifespan="off", log_config=None, limit_concurrency=PLACES
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [made]})
    thread.start()
    while not server.started:
        time.sleep(0.005)
    yield made.getsockname()[1]
    server.should_exit = True
    thread.join(10)
    made.close()


def status(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as one:
        one.sendall(HALF + b"\r\nConnection: close\r\n\r\n")
        return one.recv(100).split(b" ")[1]


def test_half_heads_do_not_hold_all_places(port: int) -> None:
    held = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(PLACES)]
    for one in held:
        one.sendall(HALF)
    time.sleep(0.05)
    assert status(port) == b"503"
    assert [one.recv(10) for one in held] == [b""] * PLACES  # ended by the server
    assert status(port) == b"200"
    for one in held:
        one.close()


def test_a_second_head_on_one_connection_has_the_same_limit(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), 5) as one:
        one.sendall(HALF + b"\r\n\r\n")
        found = b""
        while not found.endswith(b"here\r\n0\r\n\r\n"):
            found += one.recv(1000)
        one.sendall(HALF)
        assert one.recv(10) == b""
