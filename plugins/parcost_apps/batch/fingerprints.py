"""Fingerprints (hashes) of everything that a result depends on, without importing a plugin.

Two runs give the same result if three things agree: the *environment*, which is the code of parcost
and of every plugin; the *question*, which is the text of the spec and the options of the command
line; and the texts that the spec imports. Code is hashed, because a plugin under development
changes without a new version. Specs in a package are hashed one by one, with the studies that use
them. So a new figure in the catalogue re-evaluates only those studies.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field

from parcost.contract.calls import CallError, call
from parcost.contract.importers import PLAIN, ImportOptions
from parcost.contract.plugin import Plugin
from parcost.plugins.selection import PluginSelection, files_of, module_of, name_of, texts
from parcost.records import define, frozen
from parcost.system.files import CODE, read_bytes
from parcost.version import __version__
from parcost_formats.rendering.view import View

if TYPE_CHECKING:
    from parcost.binding.modules import Loader, Module
    from parcost.contract.entries import Part
    from parcost.contract.plugin import Plugin

PLUGINS = "parcost"
_OURS = ("parcost", "parcost_apps", "parcost_formats", "parcost_grammar")
_COUNTS = ("numpy",)  # whose arithmetic is ours
_SPEC = ".par"
_MISSED = {"missing-file", "unreadable-file", "file-too-large", "not-utf8"}
_MISSED |= {"unknown-import", "import-escapes", "circular-import"}


@frozen
class Import:
    """A text that a spec imports: its name, its place and the hash of its content.

    *place* is relative to the import package *package*, or without one to the folder of the spec.
    So a copy of a whole tree refers to its own files.
    """

    name: str
    package: str
    place: str
    digest: str


@frozen(eq=False, slots=False)
class Environment:
    """The code of parcost and of the selected plugins."""

    selection: PluginSelection = field(factory=PluginSelection)

    @cached_property
    def packages(self) -> Mapping[str, Path]:
        """The import packages that hold the code, and their folders."""
        names = {*_OURS, *(point.module.partition(".")[0] for point in self._points)}
        found = {name: _location(name) for name in sorted(names)}
        return {name: path for name, path in found.items() if path is not None}

    @cached_property
    def digest(self) -> str:
        """A hash of the code, the versions and the selection of plugins."""
        hashed = sha256()
        versions = [f"{name} {_version(name)}" for name in _COUNTS]
        machine = (platform.python_version(), platform.machine())
        for text in (__version__, *machine, *versions, *self.selection.without):
            _add(hashed.update, text)
        for given in self.selection.files:
            _add(hashed.update, given)
            for name, content in texts(given):
                _add(hashed.update, name)
                _add(hashed.update, content)
        named: dict[int, str] = {}  # reading the metadata anew for each plugin would take long
        for point in self._points:
            came = point.dist
            if came is not None and id(came) not in named:
                named[id(came)] = f"{came.name} {came.version}"
            _add(hashed.update, f"{point.name} = {point.value}, {named.get(id(came), '')}")
        for name, path in self.packages.items():
            for file in _files(path):
                _add(hashed.update, f"{name}/{file.relative_to(path.parent).as_posix()}")
                _add(hashed.update, read_bytes(file, CODE))
        return hashed.hexdigest()

    def plugin(self, name: str) -> Plugin | None:
        """Return one plugin, imported, or None if it cannot be imported."""

        subject, _, part = name.partition(".")
        for file in self.selection.files:
            if name_of(file) == subject:
                return _import_plugin(Plugin(name, file), partial(module_of, file), part)
        for point in self._points:
            if point.name == subject:
                came = point.dist
                known = (came.name, came.version) if came is not None else ("", "")
                return _import_plugin(Plugin(name, *known), point.load, part)
        return None

    @cached_property
    def _points(self) -> Sequence[EntryPoint]:
        points = sorted(entry_points(group=PLUGINS), key=lambda point: (point.name, point.value))
        return [point for point in points if point.name not in self.selection.without]


def _import_plugin(plugin: Plugin, load: Callable[[], Any], part: str) -> Plugin | None:
    """Return *plugin* with its module, or None if the import fails."""
    try:
        module = call(load)
        if part:
            module = call(import_module, f"{module.__name__}.{part}")
    except CallError:  # which importing all of them reports
        return None
    return evolve(plugin, module=module)


@frozen
class Question:
    """The options of the command line that apply to every spec of a run."""

    overrides: Mapping[str, str]
    study: str | None
    part: Part
    view: View = field(factory=View)

    def key(
        self,
        environment: str,
        path: str,
        text: str,
        *,
        in_directory: bool,
        reading: ImportOptions = PLAIN,
    ) -> str:
        """Return the cache key of the result of a spec.

        *path* is hashed as the user wrote it, because reports and messages show it.
        """
        hashed = sha256()
        given = (f"{name} = {value}" for name, value in sorted(self.overrides.items()))
        study = "" if self.study is None else f"study {self.study}"
        about = ("named", "found")[in_directory]
        view = repr(self.view)
        how = reading.key
        for part in (environment, self.part, view, study, *given, about, *how, path, text):
            _add(hashed.update, part)
        return hashed.hexdigest()


@define(eq=False)
class Imports:
    """The imports of specs, as far as *loader* has read them; catalogue files are hashed once."""

    loader: Loader
    packages: Mapping[str, Path]
    _known: dict[str, Import | None] = field(factory=dict)

    def find(self, module: Module, path: str) -> list[Import] | None:
        """Return the imports of the spec at *path*.

        None if they cannot be listed: an import is missing, or is outside the shared folders.
        """
        found: list[Import] = []
        done: set[int] = set()
        left = [module, *self.loader.preludes()]
        while left:
            one = left.pop()
            if id(one) in done:
                continue
            done.add(id(one))
            left += _list_imports(one)
            if any(d.id in _MISSED for d in one.diagnostics):
                return None
            for place, text in one.beside.items():
                name = str(place) if Path(path).is_absolute() else os.path.relpath(place)
                beside = os.path.relpath(place, Path(path).parent.resolve())
                found.append(Import(name, "", beside, digest(text)))
            if one is module:
                continue
            placed = self._file(one, one.path, path) if one.path else self._resource(one)
            if placed is None:
                return None
            found.append(placed)
        return sorted(found, key=lambda i: (i.package, i.place))

    def _file(self, module: Module, path: Path, spec: str) -> Import:
        place = os.path.relpath(path.resolve(), Path(spec).parent.resolve())
        return Import(module.source.name, "", place, digest(module.source.text))

    def _resource(self, module: Module) -> Import | None:
        name = module.source.name
        if name not in self._known:
            self._known[name] = None
            root = self.loader.catalogues[module.catalogue].root
            file = Path(root, *name.split("/")[1:]) if isinstance(root, Path) else None
            for package, folder in self.packages.items():
                if file is not None and file.is_relative_to(folder):
                    place = file.relative_to(folder).as_posix()
                    self._known[name] = Import(name, package, place, digest(module.source.text))
        return self._known[name]


def location(one: Import, path: str, packages: Mapping[str, Path]) -> Path | None:
    """Return the current path of an import of the spec at *path*, or None without its package."""
    if not one.package:
        return Path(path).parent.resolve() / one.place
    package = packages.get(one.package)
    return None if package is None else package / one.place


def digest(text: str) -> str:
    """Return the hash of a text."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _list_imports(module: Module) -> list[Module]:
    selection = (other for other, _, _ in module.imported_blocks)
    return [*module.merged, *module.aliases.values(), *selection]


@cache
def _location(name: str) -> Path | None:
    """Return the folder of a package, or the file of a module, without importing it."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin else None


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of a package in a fixed order, except specs."""
    if path.is_file():
        yield path
        return
    yield from (file for file in files_of(path) if file.suffix != _SPEC)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _add(update: Callable[[bytes], None], part: str | bytes) -> None:
    """Hash *part* with its length, so that different lists of parts have different hashes."""
    data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    update(b"%d:" % len(data))
    update(data)
