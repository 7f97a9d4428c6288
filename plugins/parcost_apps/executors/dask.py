"""Work on a Dask cluster: ``--executor dask://HOST:PORT``, the address of its scheduler.

Installed with the extra ``dask``. The workers must run the same parcost and plugins. They must see
the specs under the same names, as on a shared file system. If a worker dies, the scheduler gives
its tasks to others. If the scheduler dies, the work ends, unless a new scheduler starts at its
address before the client's timeout.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from parcost import Diagnostic, MissingExtraError, SpecError

_PATIENCE_SECONDS = 5
_PORT = 8786  # where a scheduler listens by default

P = ParamSpec("P")
T = TypeVar("T")


class DaskExecutor(Executor):
    """The executor of a client, which is closed with it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # Equal tasks are not the same task: a file may have changed between them.
        self._executor = client.get_executor(pure=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand a call to the scheduler."""
        future: Future[T] = self._executor.submit(fn, *args, **kwargs)
        return future

    def failure(self) -> str:
        """Return an error message if the client has lost its scheduler, else ""."""
        if self._client.status in ("running", "connecting"):
            return ""
        return "its scheduler no longer answers"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for running tasks, or cancel them; the cluster itself keeps running."""
        if not self.failure():
            self._executor.shutdown(wait=wait and not cancel_futures)
        with _silence("distributed.client"):  # which prints what it was cut short in
            self._client.close()


def executor(address: str) -> Executor:
    """Return an executor of the cluster whose scheduler is at *address*.

    Raises:
        MissingExtraError: The library is not installed.
        SpecError: No scheduler answers at the address.
    """
    try:
        from distributed import Client
    except ImportError:
        message = "`dask://` needs the library `distributed`, which is not installed"
        raise MissingExtraError(message, "dask") from None
    unreachable = _connection_error(address)
    if unreachable:
        raise _failure(address, unreachable)
    try:
        # A client that was never connected must not wait for its scheduler when it is removed.
        connect: Callable[..., Any] = type("Client", (Client,), {"__del__": lambda _: None})
        settings = {"timeout": _PATIENCE_SECONDS, "set_as_default": False}
        with _silence("distributed"):
            client = _call_within(2 * _PATIENCE_SECONDS, lambda: connect(address, **settings))
    except Exception as error:  # any error of the library, as the server may not be Dask
        raise _failure(address, " ".join(str(error).split())) from error
    return DaskExecutor(client)


def _failure(address: str, why: str) -> SpecError:
    message = f"no Dask scheduler answers at `{address}`: {why}"
    help = "write dask://HOST:PORT, the address that `dask scheduler` prints"
    found = Diagnostic("no-executor", message, place=f"--executor dask://{address}", help=help)
    return SpecError([found])


def _connection_error(address: str) -> str:
    """Return the reason why *address* accepts no connection; "" if it does, or if it is not a TCP
    address.

    The client of Dask would retry for long, and print a traceback.
    """
    scheme, _, rest = address.rpartition("://")
    if scheme not in ("", "tcp", "tls"):
        return ""
    try:
        found = urlsplit(f"//{rest}")
        host, port = found.hostname, found.port or _PORT
    except ValueError as error:
        return str(error)
    if not host:
        return "it has no host"
    limits = (_PATIENCE_SECONDS, lambda: socket.create_connection((host, port), _PATIENCE_SECONDS))
    try:
        _call_within(*limits).close()
    except (OSError, UnicodeError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def _call_within(seconds: float, call: Callable[[], T]) -> T:
    """Return ``call()`` under a time limit that also holds for name resolution and handshakes.

    Raises:
        TimeoutError: The call takes longer.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"nothing came within {seconds} s") from error


@contextmanager
def _silence(name: str) -> Iterator[None]:
    """Mute a logger inside the `with` block."""
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
