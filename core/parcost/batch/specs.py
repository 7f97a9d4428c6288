"""Which files a batch is about: named ones, those below a directory, those of a pattern."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from attrs import frozen

from parcost.batch.rejected import Rejected, reject


@frozen
class Spec:
    """A file to read; *in_directory* says that it was not named itself."""

    path: str
    in_directory: bool = False


def specs(named: Iterable[str]) -> Iterator[Spec | Rejected]:
    """Yield the spec files that *named* files, directories and patterns stand for, each once.

    A directory stands for the ``.par`` files in it and below, in sorted order; hidden
    directories are left out. In a pattern ``**`` stands for any directories.
    """
    seen: set[str] = set()
    for name in named:
        for spec in _meant(name):
            place = os.path.normpath(spec.path)
            if place not in seen:
                seen.add(place)
                yield spec


def several(named: Iterable[str]) -> bool:
    """Say whether *named* may stand for more than one file."""
    names = list(named)
    return len(names) > 1 or not names[0].endswith(".par") or _is_pattern(names[0])


def _meant(name: str) -> Iterator[Spec | Rejected]:
    path = Path(name)
    try:
        exists = path.exists()
    except OSError as error:
        yield reject(name, "unreadable-file", f"`{name}` cannot be read: {error.strerror}")
        return
    if path.is_dir():
        found = _below(path)
        yield from (_regular(Spec(inner, in_directory=True)) for inner in found)
        if not found:
            yield reject(name, "empty-directory", f"there is no `.par` file in `{name}`")
    elif exists and path.suffix != ".par":
        message = f"`{name}` is no spec: its name does not end in `.par`"
        yield reject(name, "not-a-spec", message)
    elif _is_pattern(name):
        found = sorted(p for p in glob.iglob(name, recursive=True) if p.endswith(".par"))  # noqa: PTH207  as named
        yield from (_regular(Spec(inner, in_directory=True)) for inner in found)
        if not found:
            yield reject(name, "no-match", f"no `.par` file matches `{name}`")
    else:
        yield _regular(Spec(name))


def _is_pattern(name: str) -> bool:
    return glob.has_magic(name) and not os.path.lexists(name)


def _regular(spec: Spec) -> Spec | Rejected:
    """Return *spec*, unless reading it might never end."""
    path = Path(spec.path)
    if path.exists() and not path.is_file():
        return reject(spec.path, "not-a-spec", f"`{spec.path}` is no spec: it is no regular file")
    return spec


def _below(folder: Path) -> list[str]:
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [str(Path(parent, name)) for name in files if name.endswith(".par")]
    return sorted(found)
