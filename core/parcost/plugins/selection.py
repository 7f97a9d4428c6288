"""The selection of plugins for a run, as data for other processes; and plugin files.

The code of a file is identified by its text: an edited file becomes a new module, and earlier
studies keep the old module. Byte code is neither read nor written, because an edit within one
second would be missed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from attrs import field

from parcost.records import frozen
from parcost.system.files import CODE, read_bytes

_PREFIX = "parcost_file_"  # of the names of modules


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


@frozen
class PluginSelection:
    """The plugins of a run: the installed ones except *without* (names), and *files* (paths)."""

    without: tuple[str, ...] = field(default=(), converter=_in_order)
    files: tuple[str, ...] = field(default=(), converter=_in_order)


def name_of(path: str) -> str:
    """Return the name of the plugin in a file, or in a folder.

    >>> name_of("work/eager-1f1b.py"), name_of("work/data.loader")
    ('eager_1f1b', 'data_loader')
    """
    place = Path(path).resolve()
    stem = place.name if os.path.isdir(place) or place.suffix not in SOURCE_SUFFIXES else place.stem
    return re.sub(r"\W", "_", stem)


def texts(path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of a file, or of every file in a folder, in a fixed order.

    Hidden and compiled files, and special files such as pipes, are skipped.

    Raises:
        SpecError: A file cannot be read, or is too large.
    """
    place = Path(path)
    if not place.is_dir():
        yield place.name, read_bytes(place, CODE, path)
        return
    for file in files_of(place):
        yield file.relative_to(place).as_posix(), read_bytes(file, CODE)


def files_of(folder: Path) -> Iterator[Path]:
    """Yield the regular files in *folder* and below, in a fixed order; links are followed.

    Hidden and compiled files are skipped, and no folder is entered twice.
    """
    entered: set[Path] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        here = Path(parent).resolve()
        if here in entered:
            folders.clear()
            continue
        entered.add(here)
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n != "__pycache__")
        for name in sorted(names):
            file = Path(parent, name)
            if not name.startswith(".") and not name.endswith(".pyc") and file.is_file():
                yield file


def module_of(path: str) -> object:
    """Return the module in a file, or in a package folder; it runs once for each text.

    Raises:
        ImportError: There is no module, or it has no hook.
        SpecError: A file cannot be read, or is too large.
    """
    place = Path(path).resolve()
    hashed = sha256(f"{place}".encode("utf-8", "surrogatepass"))
    for name, content in texts(path):
        hashed.update(f"{name} {len(content)} ".encode("utf-8", "surrogatepass"))
        hashed.update(content)
    called = f"{_PREFIX}{name_of(path)}_{hashed.hexdigest()[:16]}"
    if called in sys.modules:
        return sys.modules[called]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    file = place / "__init__.py" if place.is_dir() else place
    spec = spec_from_file_location(
        called,
        file,
        loader=_Source(called, str(file)),
        submodule_search_locations=[str(place)] if place.is_dir() else None,
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"`{file}` is not a Python file")
    module = sys.modules[called] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[called]
        raise
    things = vars(module)
    if "PARTS" not in things and not any(hasattr(t, "parcost_impl") for t in things.values()):
        raise ImportError("it has no hook: mark functions with `@hookimpl`")
    return module


class _Source(SourceFileLoader):
    """Loads a module from its source, ignoring byte code."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(read_bytes(path, CODE), path)


class _Finder(MetaPathFinder):
    """Finds the modules of a package that is a plugin."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PREFIX):
            return None
        for folder in path or ():
            found = FileFinder(folder, (_Source, SOURCE_SUFFIXES)).find_spec(fullname, target)
            if found is not None:
                return found
        return None
