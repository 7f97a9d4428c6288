"""Files of a git revision, written to a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath

from parcost.binding.sources import call_files
from parcost.language.errors import SpecError
from parcost.system.files import SPEC, failure
from parcost.system.temporary import temporary_folder
from parcost_apps.diff.git import contents, git_line, tree_entries

_MOST_FILES = 100_000
_MOST_BYTES = 256 * 2**20  # of all files of a revision
_MOST_SHOWN = 80  # characters of a path in a message
_INSTEAD = "compare two files: parcost diff A B"
_REGULAR = ("100644", "100755")  # modes of git


def is_revision(name: str) -> bool:
    """Return whether *name* is a revision of the repository of the current directory."""
    if not name or name.startswith("-"):
        return False
    try:
        git_line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{tree}}")
    except SpecError:
        return False
    return True


def merge_base(one: str, other: str) -> str:
    """Return the merge base of two branches, where `git diff A...B` begins.

    Raises:
        SpecError: git fails, or the branches have no commit in common.
    """
    try:
        return git_line("merge-base", one, other)
    except SpecError as error:
        message = f"`{one}` and `{other}` have no common commit in this clone"
        raise failure("git", message, one, f"compare them: `{one}..{other}`") from error


def repository_paths(paths: Sequence[str]) -> list[str]:
    """Return *paths* relative to the current directory, for use in a revision.

    Raises:
        SpecError: A path is outside of the repository, so that no revision has it.
    """
    top = Path(git_line("rev-parse", "--show-toplevel")).resolve()
    found = []
    for path in paths:
        whole = Path(path).resolve()
        if not whole.is_relative_to(top):
            message = f"`{path}` is outside the repository"
            raise failure("git", message, path, _INSTEAD)
        found.append(os.path.relpath(whole) if Path(path).is_absolute() else path)
    return found


@contextmanager
def files_of(revision: str) -> Iterator[Path]:
    """Yield a temporary folder with the specs of *revision*, for the current directory.

    It holds all regular files of the repository that are small enough to be a spec, since specs
    import others. Links and submodules are left out.

    Raises:
        SpecError: git is missing, there is no such revision, it is too large or damaged.
    """
    top = Path(git_line("rev-parse", "--show-toplevel"))
    inside = git_line("rev-parse", "--show-prefix")
    with temporary_folder() as folder:
        root = folder.path / top.name
        (root / ".git").mkdir(parents=True)  # marks the project that imports may not leave
        _write(root, _regular_files(revision), revision)
        here = root / inside
        here.mkdir(parents=True, exist_ok=True)
        with call_files(root, revision):
            yield here


def _regular_files(revision: str) -> Mapping[str, str]:
    """Return the git object id of each regular file of a revision, by its path."""
    found: dict[str, str] = {}
    for at, (mode, named, name) in enumerate(tree_entries(revision)):
        if at >= _MOST_FILES:
            message = f"`{revision}` has more than {_MOST_FILES:,} files"
            raise failure(
                "file-too-large", message, revision, "compare two files: parcost diff A B"
            )
        if mode not in _REGULAR:
            continue
        path = PurePosixPath(name.decode("utf-8", "surrogateescape"))
        if ".." in path.parts or path.is_absolute() or ".git" in path.parts:
            continue
        if str(path) in found:
            raise failure("git", f"`{revision}` has `{path}` twice", revision)
        found[str(path)] = named
    return found


def _write(root: Path, files: Mapping[str, str], revision: str) -> None:
    """Write files below *root*, one after another."""
    total = 0
    with closing(contents(list(files.values()), SPEC.limit)) as found:
        for path, content in zip(files, found, strict=True):
            if content is None:
                continue
            total += len(content)
            if total > _MOST_BYTES:
                message = f"`{revision}` has files of more than {_MOST_BYTES // 2**20} MiB"
                raise failure("file-too-large", message, revision, _INSTEAD)
            place = root / path
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                shown = path if len(path) < _MOST_SHOWN else f"{path[:_MOST_SHOWN]}..."
                raise failure("git", f"`{shown}` cannot be written: {reason}", revision) from None
