"""The socket of the page, and the loop that serves it."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from parcost.language.errors import ParcostError
from parcost_apps.server.access import Address
from parcost_apps.server.application import LivePage, application

_MOST_CONNECTIONS = 64
_PATIENCE_SECONDS = 1  # with requests that go on when the server ends


class HeaderLimit(H11Protocol):
    """A connection that is closed if the header of a request takes longer than *head_seconds*.

    Otherwise a few clients that send half a header could occupy all connections.
    """

    head_seconds = 10.0
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._discard()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the timer when a header is awaited, and stop it when a header is complete."""
        if self.conn.their_state is not h11.IDLE:
            self._discard()
        elif self._limit is None:
            self._limit = self.loop.call_later(self.head_seconds, self.transport.close)

    def _discard(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


class AddressError(ParcostError):
    """The server cannot be bound to an address."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches *host*.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.5")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to *host*, at a free port if *port* is 0.

    Raises:
        AddressError: The port is in use, the host is not an address of this machine, or it means
        all addresses.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise AddressError(f"`{host}` is not an address") from None
    if ipaddress.ip_address(str(where[0]).partition("%")[0]).is_unspecified:
        message = (
            f"`{host}` means all addresses of this machine; write the address that clients use"
        )
        raise AddressError(message)
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.bind(where)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} of {host} is in use; leave `--port` out for a free one"
            raise AddressError(message) from None
        why = error.strerror or str(error)
        raise AddressError(f"port {port} of {host} cannot be used: {why}") from None
    return made


def address_of(made: socket.socket, host: str) -> Address:
    """Return the address of the page at a socket, with a new token."""
    port: int = made.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    hosts = [f"{shown.lower()}:{port}"]
    if is_loopback(host):
        hosts += [f"localhost:{port}"]
    if port == 80:
        hosts += [name.rpartition(":")[0] for name in hosts]
    return Address(hosts=list(dict.fromkeys(hosts)), port=port)


def serve(
    page: LivePage, address: Address, made: socket.socket, on_start: Callable[[], None]
) -> None:
    """Serve *page* until the process is interrupted; *on_start* is called when it is ready."""

    class PageServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            on_start()

    config = uvicorn.Config(
        application(page, address),
        loop="asyncio",
        http=HeaderLimit,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_PATIENCE_SECONDS,
    )
    server = PageServer(config)
    try:
        with _end_on_hang_up(server):
            server.run(sockets=[made])
    finally:
        page.end()
        made.close()


@contextmanager
def _end_on_hang_up(server: uvicorn.Server) -> Iterator[None]:
    """Shut *server* down when its terminal closes (SIGHUP); uvicorn handles the other signals."""
    number: int = getattr(signal, "SIGHUP", 0)
    ignored = not number or signal.getsignal(number) is signal.SIG_IGN
    if ignored or current_thread() is not main_thread():
        yield
        return
    came: list[int] = []

    def end_server(number: int, _: object) -> None:
        came.append(number)
        server.should_exit = True

    before = signal.signal(number, end_server)
    try:
        yield
    finally:
        signal.signal(number, before)
    if came:
        signal.raise_signal(number)
