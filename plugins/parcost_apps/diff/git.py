"""Git commands that are safe for a repository of unknown origin.

Only ``git rev-parse``, ``merge-base``, ``ls-tree`` and ``cat-file`` run. They read objects. A
repository can name programs in many ways: hooks, filters, pagers, monitors, and the transport of a
partial clone, which fetches a missing object. The environment of every command disables those that
these four could start:

=========================  ===================================================================
``GIT_ALLOW_PROTOCOL``     empty: no transport at all, so ``uploadpack``, ``core.sshCommand`` and
                           ``core.gitProxy`` are never run, and nothing is connected to
``GIT_NO_LAZY_FETCH``      a missing object is an error (git 2.39.4 and later)
``safe.bareRepository``    a folder of a clone is not a separate repository
``core.fsmonitor``         off
=========================  ===================================================================

Output is read in a stream, with limits of bytes, memory and time.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from parcost.system.files import failure

try:
    import resource
except ImportError:  # as on Windows
    resource = None  # type: ignore[assignment]

_MOST_SECONDS = 30  # of one command: a listing of nested trees may have no end
_MOST_MEMORY = 400 * 2**20  # bytes that one command may allocate: objects are compressed
_MOST_OUTPUT = 2**16  # bytes of a command whose answer is a line
_SETTINGS = {
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.packedGitLimit": "128m",
}


def git_line(*arguments: str) -> str:
    """Return the line that a git command prints.

    Raises:
        SpecError: The command fails.
    """
    with _run(arguments) as output:
        found = output.read(_MOST_OUTPUT)
    return found.decode("utf-8", "surrogateescape").rstrip("\n")


def tree_entries(revision: str) -> Generator[tuple[str, str, bytes], None, None]:
    """Yield the mode, the object and the path of each entry of a revision.

    Raises:
        SpecError: git fails, or the listing takes too long.
    """
    arguments = ("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", revision)
    with _run(arguments) as output:
        rest = b""
        while block := output.read(2**16):
            *lines, rest = (rest + block).split(b"\0")
            for line in lines:
                head, _, name = line.partition(b"\t")
                mode, _, named = head.decode("ascii", "replace").split(" ")
                yield mode, named, name
            if len(rest) > _MOST_OUTPUT:
                raise failure(
                    "git", f"`{revision}` has a path of more than {_MOST_OUTPUT} bytes", "git"
                )


def contents(objects: Sequence[str], limit: int) -> Generator[bytes | None, None, None]:
    """Yield the content of each object in turn; None for an object of more than *limit* bytes.

    Objects are read one after another, so that only one is in memory.

    Raises:
        SpecError: git fails, or an object is missing.
    """
    with _run(("cat-file", "--batch-check"), "\n".join(objects)) as output:
        sizes = [_size_of(named, output.readline()) for named in objects]
    small = [named for named, size in zip(objects, sizes, strict=True) if size <= limit]
    with _run(("cat-file", "--batch"), "\n".join(small)) as output:
        for named, size in zip(objects, sizes, strict=True):
            if size > limit:
                yield None
                continue
            _size_of(named, output.readline())
            content = output.read(size + 1)
            if len(content) <= size:
                raise failure("git", f"git: the object {named} cannot be read", "git")
            yield content[:size]


def _size_of(named: str, line: bytes) -> int:
    """Return the size of an object in bytes, parsed from a *line* of git's output."""
    parts = line.decode("ascii", "replace").split()
    if len(parts) == 3 and parts[1] == "blob" and parts[2].isdecimal():
        return int(parts[2])
    message = f"the object {named} is not in this clone; parcost does not fetch it"
    raise failure("git", f"git: {message}", "git", "fetch the object, or compare two files")


@contextmanager
def _run(arguments: Sequence[str], given: str = "") -> Iterator[IO[bytes]]:
    """Yield the output stream of a git command.

    Raises:
        SpecError: The command fails, or takes too long.
    """
    command = ["git", "--no-pager", *arguments]
    try:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
        )
    except OSError as error:
        message = f"git cannot be run: {error.strerror}"
        raise failure("git", message, "git", "install git, or compare files") from None
    if hasattr(resource, "prlimit"):  # Linux
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(_MOST_SECONDS, end)
    timer.start()
    assert process.stdin
    assert process.stdout
    assert process.stderr
    errors: list[bytes] = []
    messages = threading.Thread(target=_drain, args=(process.stderr, errors))
    writer = threading.Thread(target=_write_input, args=(process.stdin, given))
    messages.start()
    writer.start()
    try:
        yield process.stdout
        process.wait()
    except BaseException:
        process.kill()
        if not late.is_set():
            raise
    finally:
        timer.cancel()
        process.stdout.close()
        process.wait()
        writer.join()
        messages.join()
    if late.is_set():
        message = f"`git {arguments[0]}` took more than {_MOST_SECONDS} s"
        raise failure("git", message, "git", "compare two files: parcost diff A B")
    if process.returncode:
        lines = b"".join(errors).decode("utf-8", "replace").splitlines()
        message = next(iter(lines), f"`git {arguments[0]}` failed").removeprefix("fatal: ")
        raise failure("git", f"git: {message}", "git")


def _drain(stream: IO[bytes], errors: list[bytes]) -> None:
    """Read all of a stream, and keep its beginning."""
    kept = 0
    with stream:
        while block := stream.read(2**12):
            if kept < _MOST_OUTPUT:
                errors.append(block)
                kept += len(block)


def _write_input(stream: IO[bytes], text: str) -> None:
    """Write a text to a command, which may have ended already."""
    try:
        with stream:
            stream.write(text.encode() + b"\n" if text else b"")
    except BrokenPipeError:  # its exit code says why
        return


def _environment() -> dict[str, str]:
    """Return an environment for git commands that starts no program and opens no connection."""
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for at, (name, value) in enumerate(_SETTINGS.items()):
        settings |= {f"GIT_CONFIG_KEY_{at}": name, f"GIT_CONFIG_VALUE_{at}": value}
    return {
        **os.environ,
        **settings,
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
