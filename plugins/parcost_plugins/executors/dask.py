"""Work on a Dask cluster: ``--executor dask://HOST:PORT``, the address of its scheduler.

Installed with the extra ``dask``. The workers have to run the same parcost and plugins, and
see the specs under the same names, as they do on a shared file system. A worker that dies
is no matter: the scheduler gives its tasks to the others. A scheduler that dies is the end of
the work, unless there is a new one at its address before the client gives up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

from parcost import PluginError

_PATIENCE_SECONDS = 10

P = ParamSpec("P")
T = TypeVar("T")


class Cluster(Executor):
    """The executor of a client, which is closed with it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        # Equal tasks are not the same task: a file may have changed between them.
        self._executor = client.get_executor(pure=False)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand a call to the scheduler."""
        future: Future[T] = self._executor.submit(fn, *args, **kwargs)
        return future

    def gone(self) -> str:
        """Say so once the client has given up its scheduler, which it does by itself."""
        if self._client.status in ("running", "connecting"):
            return ""
        return "its scheduler does not answer any more"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for what is under way, or cancel it; leave the cluster as it is."""
        if not self.gone():
            self._executor.shutdown(wait=wait and not cancel_futures)
        log = logging.getLogger("distributed.client")  # prints what it was cut short in
        before, log.disabled = log.disabled, True
        try:
            self._client.close()
        finally:
            log.disabled = before


def executor(address: str) -> Executor:
    """Return an executor of the cluster whose scheduler is at *address*.

    Raises:
        PluginError: The library is not installed, or nobody answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise PluginError(
            "`dask://` needs the library `distributed`: pip install 'parcost[dask]'"
        ) from None
    try:
        connect: Callable[..., Any] = Client
        client = connect(address, timeout=_PATIENCE_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise PluginError(f"no Dask scheduler answers at `{address}`: {error}") from error
    return Cluster(client)
