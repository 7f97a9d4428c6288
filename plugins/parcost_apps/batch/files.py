"""The files of a batch: named files, files below a directory, and files that match a pattern."""

from __future__ import annotations

import glob
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from attrs import evolve

from parcost.contract.importers import PLAIN, ImportOptions
from parcost.language.errors import SpecError
from parcost.records import frozen
from parcost.system.files import failure, project_root, real_path, split_recipe
from parcost_formats.rendering.rejection import Rejection, reject

_SEPARATOR = f"[{re.escape(os.sep + (os.altsep or ''))}]"
MOST_ENTRIES = 200_000  # a few seconds of a disk; the studies of no project are among more files
_FOREIGN = (".json", ".py", ".sh", ".sbatch", ".slurm", ".toml", ".yaml", ".yml")
_ANY = rf"\*\*(?:{_SEPARATOR}+|$)"
_ANY_FOLDERS = re.compile(rf"(?:^|(?<={_SEPARATOR}))(?:{_ANY})+")


@frozen
class Spec:
    """A file to read, with its import options; *in_directory* is true if it was found in a
    directory.
    """

    path: str
    in_directory: bool = False
    reading: ImportOptions = PLAIN


class _Walk:
    """The entries of directories for one name of the command line, counted against the limit."""

    def __init__(self, name: str, show: Callable[[str], None]) -> None:
        self._name, self._show, self._count = name, show, 0

    def visit(self, entries: int) -> None:
        """Count the entries of one more directory.

        Raises:
            SpecError: There are more than the limit.
        """
        self._count += entries
        self._show(f"looking for specs in {self._name}: {self._count:,} files and directories")
        if self._count > MOST_ENTRIES:
            raise failure(
                "directory-too-large",
                f"`{self._name}` holds more than {MOST_ENTRIES:,} files and directories, the limit",
                self._name,
                help="name the directory of the specs, or the files",
            )

    def files_below(self, folder: Path) -> Iterator[str]:
        """Yield the specs in a directory and its subdirectories, without hidden ones."""
        for parent, folders, files in os.walk(folder):
            self.visit(len(folders) + len(files))
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from (str(Path(parent, name)) for name in files if name.endswith(".par"))


def _ignore_line(text: str) -> None:
    """Ignore a line of progress."""


def specs(
    named: Iterable[str],
    reading: ImportOptions = PLAIN,
    show: Callable[[str], None] = _ignore_line,
) -> Iterator[Spec | Rejection]:
    """Yield each spec file once that *named* files, directories and patterns select.

    A directory selects the ``.par`` files in it and in its subdirectories, sorted, without hidden
    ones. In a pattern ``**`` stands for any directories. A directory with several links is read
    once. *reading* holds the import options of the files that are named. *show* prints progress. A
    name with more entries than the limit is rejected.
    """
    seen: set[tuple[str, str]] = set()
    for name in named:
        try:
            for spec in _specs_of(name, reading, _Walk(name, show)):
                recipe = spec.reading.recipe if isinstance(spec, Spec) else ""
                place = os.path.normpath(spec.path), recipe
                if place not in seen:
                    seen.add(place)
                    yield spec
        except SpecError as error:
            yield Rejection(path=name, diagnostics=error.diagnostics)


def foreign_files(folder: Path) -> list[str]:
    """Return the files in a directory that may be of another tool; none if it or a folder below has
    a spec.

    Raises:
        SpecError: The directory has too many entries.
    """
    below = _Walk(str(folder), _ignore_line).files_below(folder)
    return _foreign_inside(folder) if folder.is_dir() and next(below, None) is None else []


def _foreign_inside(folder: Path) -> list[str]:
    inside = (one for one in sorted(folder.iterdir()) if not one.name.startswith("."))
    paths = [str(one) for one in inside if one.suffix in _FOREIGN and one.is_file()]
    return [one.path for one in _regular_within(folder, paths) if isinstance(one, Spec)]


def is_several(named: Iterable[str]) -> bool:
    """Return whether *named* may select more than one file."""
    names = list(named)
    return len(names) > 1 or _is_pattern(names[0]) or os.path.isdir(names[0])


def _specs_of(name: str, reading: ImportOptions, walk: _Walk) -> Iterator[Spec | Rejection]:
    if not name:  # a path would take it for the directory where we are
        yield reject("''", "no-match", "a file name is empty")
        return
    path = Path(name)
    try:
        path.exists()  # raises for a path that no system has
    except OSError as error:
        yield reject(name, "unreadable-file", f"`{name}` cannot be read: {error.strerror}")
        return
    if path.is_dir():
        found = sorted(walk.files_below(path))
        yield from _regular_within(path, found)
        if not found:
            message, others = (
                f"there is no `.par` file in `{name}`",
                " ".join(_foreign_inside(path)),
            )
            help = f"name the files of other tools, such as {others[:200]}" if others else None
            yield reject(name, "empty-directory", message, help)
    elif _is_pattern(name):
        found = _distinct_paths(path for path in _matches(name, walk) if path.endswith(".par"))
        yield from _regular_within(_fixed_part(name), found)
        if not found:
            yield reject(name, "no-match", f"no `.par` file matches `{name}`")
    else:
        file, recipe = split_recipe(name)
        yield _regular(Spec(file, reading=evolve(reading, recipe=recipe) if recipe else reading))


def _is_pattern(name: str) -> bool:
    return glob.has_magic(name) and not os.path.lexists(name)


def _matches(pattern: str, walk: _Walk) -> Iterator[str]:
    """Yield the paths that match, spelled as in the pattern."""
    deep = _ANY_FOLDERS.search(pattern)
    if deep is None:
        yield from glob.iglob(pattern)  # noqa: PTH207  as named
        return
    head, tail = pattern[: deep.start()], pattern[deep.end() :]
    if not tail and pattern.endswith("**"):  # anything, and not a directory
        tail = "*"
    for top in glob.iglob(head) if head else [""]:  # noqa: PTH207  as named
        for folder in _folders(top, walk):
            yield from _matches(os.path.join(glob.escape(folder), tail), walk)  # noqa: PTH118  as named


def _folders(top: str, walk: _Walk) -> Iterator[str]:
    """Yield *top* and the directories below, each once; a real path comes before a link to it."""
    seen: set[tuple[int, int]] = set()
    inside, linked = deque([top]), deque[str]()
    while inside or linked:
        folder = (inside or linked).popleft()
        try:
            status = Path(folder).stat()
            found = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
        except OSError:  # it is gone, or not readable: nothing in it matches
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        walk.visit(len(found))
        yield folder
        for entry in found:
            path = os.path.join(folder, entry.name)  # noqa: PTH118  as named
            if not entry.name.startswith(".") and os.path.isdir(path):  # links may run in circles
                (linked if entry.is_symlink() else inside).append(path)


def _distinct_paths(paths: Iterable[str]) -> list[str]:
    """Return *paths* sorted, without duplicates that reach the same directory by a link."""
    real = cache(os.path.realpath)
    named: dict[tuple[str, str], str] = {}

    def place(path: str) -> tuple[str, str]:
        folder, name = os.path.split(path)
        return real(folder), name

    def by_link(path: str) -> bool:
        return place(path)[0] != os.path.normpath(Path(path).parent.absolute())

    for path in sorted(paths, key=lambda path: (by_link(path), path)):
        named.setdefault(place(path), path)
    return sorted(named.values())


def _regular(spec: Spec) -> Spec | Rejection:
    """Return *spec*, or a rejection if it is not a regular file; reading a pipe might never end."""
    path = Path(spec.path)
    if path.exists() and not path.is_file():
        return reject(
            spec.path, "not-a-spec", f"`{spec.path}` is not a spec: it is not a regular file"
        )
    return spec


def _regular_within(home: Path, paths: Iterable[str]) -> Iterator[Spec | Rejection]:
    """Yield the specs at *paths*; reject links that point outside of *home* and its project."""
    roots = (real_path(home), project_root(home / "any"))
    real = cache(os.path.realpath)
    for path in paths:
        linked = Path(path).is_symlink()
        place = Path(os.path.realpath(path) if linked else real(os.path.dirname(path)))  # noqa: PTH120  as named
        if any(place.is_relative_to(root) for root in roots):
            yield _regular(Spec(path, in_directory=True))
        else:
            message = f"`{path}` is a link to a file outside the project"
            yield reject(
                path, "link-escapes", message, "add the file, or its directory, to the command line"
            )


def _fixed_part(pattern: str) -> Path:
    """Return the directory that a pattern starts from.

    >>> _fixed_part("specs/runs/*/a?.par").as_posix(), _fixed_part("*.par").as_posix()
    ('specs/runs', '.')
    """
    parts = Path(pattern).parts
    first = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:first])
