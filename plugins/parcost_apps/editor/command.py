"""``parcost lsp``: the server that editors start."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from parcost.engine.session import Session
    from parcost.plugins.selection import PluginSelection

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MOST_PORTS = 65535


@click.command("lsp")
@click.option(
    "--tcp",
    metavar="HOST:PORT",
    help="Wait for one editor on a local port, 127.0.0.1:2087, in place of stdin and stdout.",
)
@options.selection
def command(tcp: str | None, selection: PluginSelection) -> int:
    """Language server (started by your editor).

    Diagnostics, hover, completion, definitions, rename, formatting, and a summary of the result
    above each study.
    """
    if find_spec("pygls") is None:
        from parcost.language.errors import MissingExtraError

        raise MissingExtraError("`parcost lsp` needs pygls, which is not installed", "lsp")
    address = _address(tcp) if tcp is not None else None
    if address is None and sys.stdin.isatty():
        raise click.UsageError("`parcost lsp` is started by an editor: see docs/guide/editor.md")
    options.session(selection)  # a plugin that fails is named now

    def make_session() -> Session:
        from parcost.engine.session import Session
        from parcost.plugins.discovery import load

        return Session(load(without=selection.without, files=selection.files))

    from parcost_apps.cli.streams import results
    from parcost_apps.editor.server import listen, serve
    from parcost_apps.editor.streams import MessageSizeError

    try:
        if address is None:
            code = serve(make_session, sys.stdin.fileno(), results().fileno())
        else:
            code = listen(make_session, *address)
    except MessageSizeError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.UsageError(f"`--tcp {tcp}`: {error.strerror}") from error
    if Interrupts.when > -inf:  # which the library of the protocol takes for an end
        raise KeyboardInterrupt
    return code


def _address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address of this machine.

    >>> _address("localhost:2087"), _address("[::1]:2087")
    (('localhost', 2087), ('::1', 2087))
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and port.isdecimal() and 0 < int(port) <= _MOST_PORTS):
        raise click.UsageError(f"`--tcp {text}` is not an address: write --tcp 127.0.0.1:2087")
    if host not in _LOOPBACK:
        message = f"`--tcp {text}`: specs are served to this machine alone; write 127.0.0.1"
        raise click.UsageError(message)
    return host, int(port)
