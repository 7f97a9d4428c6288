"""The command line.

Commands are entry points of the group ``parcost.commands``, both ours and those of third parties.
Importing one of our commands imports only click; heavy modules are imported when a command runs, so
that ``--help`` is instant. Every failure ends in a message and an exit code, and never in a
traceback:

    0  good
    1  a rule or an expectation failed, or nothing fits
    2  bad input: the command line, or the content of a file
    3  a plugin failed, or parcost did
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from parcost.version import __version__
from parcost_apps.cli.group import Commands, UnusableCommandError
from parcost_apps.cli.interrupts import ENDINGS, Interrupts
from parcost_apps.cli.messages import write_message
from parcost_apps.cli.process import protect_process
from parcost_apps.cli.streams import ClosedPipeError, Messages, Results, discard, results
from parcost_apps.cli.threads import print_failures

#: Objects made between two collections: what a command imports stays, and is most of them.
_BETWEEN_COLLECTIONS = 100_000
_PIPE_CLOSED = 141


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 good, 1 a rule or an expectation failed or nothing fits, "
    "2 bad input, 3 a plugin or parcost itself failed.",
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def parcost() -> None:
    """Predict the time, communication and memory of one LLM training step."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    gc.set_threshold(_BETWEEN_COLLECTIONS)
    if arguments is None:  # the process is ours, and all of its threads
        print_failures()
        protect_process()
    if sys.stderr is None:  # the shell closed it
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  until the end
    if sys.stdout is None:
        write_message("error: stdout is closed")
        return 2
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # never fail to print a name
    with Messages(), Results():
        code = _run(arguments)
    if arguments is None:
        gc.freeze()  # a last collection, as the process ends, would visit every object
    return code


def _run(arguments: Sequence[str] | None) -> int:
    Interrupts.reset()
    try:
        with Interrupts(*ENDINGS, ends=arguments is None):
            status = parcost.main(arguments, prog_name="parcost", standalone_mode=False)
            sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        return _usage(error)
    except UnusableCommandError as error:
        write_message(f"error: {error}")
        return 3
    except (KeyboardInterrupt, click.Abort) as stop:
        notes = getattr(stop.__cause__ or stop, "__notes__", ())  # Click raises an Abort from it
        write_message(" ".join(["interrupted", *notes]))
        return Interrupts.exit_code()
    except ClosedPipeError:
        discard(results())
        return _PIPE_CLOSED
    except BaseException as error:  # noqa: BLE001  the user never sees a traceback
        return _failure(error)
    return status if isinstance(status, int) else 0


def _usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        write_message(error.format_message())
        return 2
    context = getattr(error, "ctx", None)
    write_message(f"error: {error.format_message()}")
    if context is not None:
        write_message(f"  = help: `{context.command_path} --help` lists arguments and options")
    return 2


def _failure(error: BaseException) -> int:
    from parcost.language.errors import ParcostError, SpecError
    from parcost_apps.cli.messages import Reporter
    from parcost_formats.rendering.rejection import FAULT, internal_error

    if isinstance(error, SpecError):
        Reporter()(error.diagnostics)
        return 2
    if isinstance(error, ParcostError):
        write_message(f"error: {error}")
        return FAULT
    diagnostic = internal_error(error)
    write_message(f"error: {diagnostic.message}\n  = help: {diagnostic.help}")
    return FAULT
