"""Files of a git revision, written to a temporary folder.

Only ``git rev-parse``, ``git ls-tree`` and ``git cat-file`` run. They read objects, and run no
hook, filter or pager of a repository.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from parcost.language.errors import SpecError
from parcost.system.files import SPEC, failure
from parcost.system.temporary import temporary_folder

_MOST_FILES = 100_000
_MOST_BYTES = 2**30  # of all files of a revision


def is_revision(name: str) -> bool:
    """Return whether *name* is a revision of the repository of the current directory."""
    if not name or name.startswith("-"):
        return False
    try:
        _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{tree}}")
    except SpecError:
        return False
    return True


def repository_paths(paths: Sequence[str]) -> list[str]:
    """Return *paths* from the current directory on, as a revision has them too.

    Raises:
        SpecError: One is outside of the repository, so that no revision has it.
    """
    top = Path(_git("rev-parse", "--show-toplevel").decode().rstrip("\n")).resolve()
    found = []
    for path in paths:
        whole = Path(path).resolve()
        if not whole.is_relative_to(top):
            message = f"`{path}` is outside of the repository, so no revision has it"
            raise failure("git", message, path, "compare two files: parcost diff A B")
        found.append(os.path.relpath(whole) if Path(path).is_absolute() else path)
    return found


@contextmanager
def files_of(revision: str) -> Iterator[Path]:
    """Give a folder with the specs of *revision*, as the current directory has them.

    It holds all regular files of the repository that are small enough to be a spec, since specs
    import others. Links are left out.

    Raises:
        SpecError: git is missing, there is no such revision, or it is too large.
    """
    top = Path(_git("rev-parse", "--show-toplevel").decode().rstrip("\n"))
    inside = _git("rev-parse", "--show-prefix").decode().rstrip("\n")
    listing = _git("ls-tree", "-r", "-z", "-l", "--full-tree", "--end-of-options", revision)
    found = list(_regular_files(listing))
    if len(found) > _MOST_FILES or sum(size for _, _, size in found) > _MOST_BYTES:
        raise failure("file-too-large", f"`{revision}` has too many files to be compared", revision)
    with temporary_folder() as folder:
        root = folder.path / top.name
        (root / ".git").mkdir(parents=True)  # marks the project that imports may not leave
        _write(root, found)
        here = root / inside
        here.mkdir(parents=True, exist_ok=True)
        yield here


def _regular_files(listing: bytes) -> Iterator[tuple[str, PurePosixPath, int]]:
    """Yield the object, the path and the size of each file that may be a spec."""
    for line in listing.split(b"\0"):
        head, _, name = line.partition(b"\t")
        parts = head.decode().split()
        if len(parts) != 4 or parts[0] not in ("100644", "100755") or int(parts[3]) > SPEC.limit:
            continue
        path = PurePosixPath(name.decode("utf-8", "surrogateescape"))
        if ".." not in path.parts and not path.is_absolute() and ".git" not in path.parts:
            yield parts[2], path, int(parts[3])


def _write(root: Path, files: Sequence[tuple[str, PurePosixPath, int]]) -> None:
    """Write files below *root*."""
    objects = "".join(f"{name}\n" for name, _, _ in files).encode()
    content = _git("cat-file", "--batch", given=objects)
    at = 0
    for _, path, size in files:
        at = content.index(b"\n", at) + 1  # behind the line of the object
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content[at : at + size])
        at += size + 1


def _git(*arguments: str, given: bytes = b"") -> bytes:
    """Return what a command of git prints.

    Raises:
        SpecError: It fails.
    """
    command = ["git", "--no-pager", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, input=given, capture_output=True, check=False)  # noqa: S603
    except OSError as error:
        message = f"git cannot be run: {error.strerror}"
        raise failure("git", message, "git", "install git, or compare files") from None
    if done.returncode:
        lines: Iterable[str] = done.stderr.decode("utf-8", "replace").splitlines()
        message = next(iter(lines), f"`git {arguments[0]}` failed").removeprefix("fatal: ")
        raise failure("git", f"git: {message}", "git")
    return done.stdout
