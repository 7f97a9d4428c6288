"""``parcost serve``: the page of a study, evaluated again at each change."""

from __future__ import annotations

import webbrowser
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.messages import Reporter, write_message
from parcost_apps.cli.streams import put

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins


@click.command("serve")
@click.argument("path", nargs=-1, metavar="[FILE...]")
@options.studies
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on; by default a free one.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--remote",
    is_flag=True,
    help="Allow a --host that other machines can reach. They need the token; traffic is not "
    "encrypted.",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and do not open a browser.")
@click.option(
    "--time-limit",
    metavar="SECONDS",
    type=click.FloatRange(min=0.1, max=3600.0),
    default=30.0,
    show_default=True,
    help="Time limit of one evaluation.",
)
def command(
    path: str | None,
    given: options.StudyOptions,
    port: int,
    host: str,
    remote: bool,
    no_browser: bool,
    time_limit: float,
) -> int:
    """Start a web page with a form of all attributes; each change is evaluated.

    Without FILE the page shows an example. Only this machine can open it, and only with the token
    in its address. The page can also search for the best layouts. Its address contains the current
    settings, so that it can be bookmarked. Ctrl-C stops the server.
    """
    try:
        from parcost_apps.server.application import LivePage
        from parcost_apps.server.live_study import Subject, live_exporter
        from parcost_apps.server.run import (
            AddressError,
            address_of,
            bound_socket,
            is_loopback,
            serve,
        )
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        from parcost.language.errors import MissingExtraError

        message = f"`parcost serve` needs {error.name}, which is not installed"
        raise MissingExtraError(message, "serve") from None
    from parcost.language.errors import SpecError
    from parcost_apps.batch.scenarios import only_study

    if isnan(time_limit):
        raise click.UsageError("`--time-limit nan`: a number of seconds is expected")
    if not is_loopback(host) and not remote:
        raise click.UsageError(
            f"`--host {host}` may be reached from other machines; add `--remote` to allow that"
        )
    study, values, reading, selection = given
    session = given.session()
    path = path or _example(session.plugins)
    try:
        live_exporter(session.plugins).live_page("")
        found = only_study(session, path, study, values, reading)
        assert found.first is not None  # it is bound
    except SpecError as error:
        Reporter()(error.diagnostics)
        return 2
    subject = Subject(
        path=path, study=study, overrides=values, reading=reading, selection=selection
    )
    try:
        made = bound_socket(host, port)
    except AddressError as error:
        raise click.UsageError(f"{error}") from error
    if not is_loopback(host):
        write_message(
            f"warning: other machines can reach {host}; anyone who sees the token in the address, "
            "or the traffic, can use the page"
        )
    address = address_of(made, host)

    def announce() -> None:
        put(f"{address.url}\n")
        if not no_browser:
            webbrowser.open(address.url)

    serve(LivePage.from_subject(subject, time_limit), address, made, announce)
    return 0


def _example(plugins: Plugins) -> str:
    """Return the file of the example in the catalogue."""
    for _, catalogue in plugins.offers("catalogues").values():
        if catalogue.example and isinstance(catalogue.root, Path):
            return str(catalogue.root / catalogue.example)
    raise click.UsageError("no catalogue has an example; give a FILE")
