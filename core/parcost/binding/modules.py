"""A file, parsed as far as possible without plugins: imports, lets, blocks, studies.

A module is one file. Importing is by name from a catalogue, ``use catalog.devices.x``, or by path,
``use "site.par" as site``. Without ``as``, the blocks of an imported file become part of the
importing study, which may override them; with ``as`` they are accessed through the name. A
catalogue import adds the one block that it names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from attrs import Factory, evolve

from parcost.binding import sources
from parcost.binding.allowances import Allowance, read_allowances
from parcost.binding.values import BoundValue
from parcost.contract.importers import PLAIN, ForeignFile, ForeignSource, ImportOptions
from parcost.contract.offers import Catalogue
from parcost.contract.origin import Origin
from parcost.language import syntax as s
from parcost.language.diagnostics import (
    Diagnostic,
    Severity,
    did_you_mean,
    nearest_names,
    problem,
)
from parcost.language.errors import SpecError, error_at
from parcost.language.parse import parse
from parcost.language.text import Source, Span
from parcost.records import define, record
from parcost.system.files import (
    SPEC,
    check_size,
    current_folder,
    failure,
    path_error,
    project_root,
    real_path,
    split_recipe,
)

STATEMENTS = ("use", "requires")
MOST_IMPORTS = 100  # deep: each takes a part of the interpreter's stack
_ANCHOR = "anchor"  # the kind of a block of a measured run


@record(eq=False)
class Buffer:
    """The unsaved text of a file in an editor; *serial* distinguishes its versions."""

    text: str
    serial: int


@define(eq=False)
class Module:
    """One file: its own items, and its imports."""

    source: Source
    path: Path | None  # None for a file of a catalogue
    catalogue: str = ""
    tree: s.Block | None = None
    lets: dict[str, s.Attribute] = Factory(dict)
    blocks: list[s.Block] = Factory(list)
    studies: list[s.Block] = Factory(list)
    expects: list[s.Block] = Factory(list)
    requires: list[s.Statement] = Factory(list)
    merged: list[Module] = Factory(list)  # imported without a name
    aliases: dict[str, Module] = Factory(dict)  # imported with one
    #: Catalogue blocks, and their names here.
    imported_blocks: list[tuple[Module, s.Block, str]] = Factory(list)
    diagnostics: list[Diagnostic] = Factory(list)
    allowances: list[Allowance] = Factory(list)
    reading: ImportOptions = PLAIN
    beside: Mapping[Path, str] = Factory(dict)  # texts of other files that it is read from
    literals: dict[tuple[str, int], BoundValue] = Factory(dict)  # by how, and id of the attribute
    laid: dict[tuple[int, str], Any] = Factory(dict)  # kept definitions, by block and label
    built: dict[int, Any] = Factory(dict)  # the definitions of each study, by the id of its block

    @cached_property
    def scope(self) -> list[Module]:
        """This file and the files merged into it, each once, in the order of lookup."""
        return modules_behind(self, lambda one: one.merged)

    def closure(self) -> list[Module]:
        """Return this file and every file that it imports, each once."""
        return modules_behind(
            self,
            lambda one: [
                *one.merged,
                *one.aliases.values(),
                *(module for module, _, _ in one.imported_blocks),
            ],
        )

    def all_allowances(self) -> list[Allowance]:
        """Return the allowances of this file and of every file that it imports."""
        return [allowance for one in self.closure() for allowance in one.allowances]

    def find_block(self, label: str) -> s.Block | None:
        """Return the first block of the file with this *label*."""
        return self._blocks_by_label.get(label) if label else None

    @cached_property
    def _blocks_by_label(self) -> Mapping[str, s.Block]:
        return {label_of(block): block for block in reversed(self.blocks)}


def modules_behind(module: Module, inner: Callable[[Module], Sequence[Module]]) -> list[Module]:
    """Return a file and all files that *inner* leads to, depth first, each once."""
    found: dict[int, Module] = {}
    left = [module]
    while left:
        one = left.pop()
        if id(one) not in found:
            found[id(one)] = one
            left += reversed(inner(one))
    return list(found.values())


@define(eq=False)
class Loader:
    """Reads modules, each once. *catalogues* are the catalogues by name.

    *absences* has a sentence for each plugin that is not in use. *rules* returns the table of each
    rule, which only a file with allowances needs. *read_foreign* reads a file of another tool.
    *tool_of* returns the importer of a file by the kind of its blocks. *buffers* are unsaved texts
    in place of files, by real path.

    *made* caches objects of catalogue blocks that are equal in every study. By the id of an object
    it has the origins of its attributes and of its inner objects.
    """

    catalogues: Mapping[str, Catalogue]
    absences: Sequence[str]
    rules: Callable[[], Mapping[str, Mapping[str, Any]]]
    read_foreign: Callable[[Source, Path, ImportOptions], ForeignFile]
    tool_of: Callable[[str, str], str]
    buffers: Mapping[str, Buffer] = Factory(dict)
    made: dict[tuple[Any, ...], tuple[Any, Mapping[int, Mapping[str, Origin]]]] = Factory(dict)
    _listed: dict[str, dict[tuple[str, ...], str]] = Factory(dict)
    _modules: dict[str, Module] = Factory(dict)
    _stamps: dict[str, tuple[tuple[int, int], ...]] = Factory(dict)
    _open: list[str] = Factory(list)
    _checked: dict[str, bool] = Factory(dict)  # whether a file is as it was, by this load

    def __len__(self) -> int:
        """Return the number of files in memory."""
        return len(self._modules)

    def file(
        self,
        path: Path,
        name: str,
        root: Path | None = None,
        *,
        keep: bool = True,
        reading: ImportOptions = PLAIN,
    ) -> Module:
        """Return the module in the file at *path*, read again only if it changed.

        The module is cached if *keep* is true; its imports are always cached. *reading* holds the
        options for a file of another tool.

        Raises:
            SpecError: The file cannot be read. Errors inside are in ``diagnostics``.
        """
        self._begin()
        place = real_path(path, name)
        if path.suffix == sources.SUFFIX != place.suffix and place.exists():
            message = f"`{name}` is a link to `{place.name}`, which is not a spec"
            raise failure("not-a-spec", message, name)
        key = ":".join((*reading.key, str(place)))
        if key in self._modules and self._fresh(key, path):
            return self._modules[key]
        stamps = (self._stamp(path),)
        buffer = self.buffers.get(str(place))
        if buffer is None:
            source = sources.read(path, name)
        else:
            check_size(buffer.text.encode("utf-8"), SPEC, name)
            source = Source(name, buffer.text)
        module = self._module(source, path, key, root, keep=keep, reading=reading)
        if keep:
            self._stamps[key] = (*stamps, *map(self._stamp, module.beside))
            self._checked[key] = True
        return module

    def text(self, text: str, name: str) -> Module:
        """Return the module with the given source text; relative imports start at *name*."""
        self._begin()
        source = Source(name, text)
        path = Path(current_folder(), name)
        return self._module(source, path, f"text:{name}", None, keep=False, plain=True)

    def catalogue_file(self, catalogue: Catalogue, steps: tuple[str, ...]) -> Module:
        """Return the module of a catalogue at *steps*: folders and the file name without suffix."""
        name = "/".join((catalogue.name, *steps)) + ".par"
        key = f"catalogue:{name}"
        if key not in self._modules:
            resource = catalogue.root
            for step in steps[:-1]:
                resource = resource / step
            source = sources.read_resource(resource / f"{steps[-1]}.par", name)
            self._module(source, None, key, None, catalogue=catalogue.name)
        return self._modules[key]

    def preludes(self) -> Iterable[Module]:
        """Return the modules whose blocks every study inherits."""
        for name in sorted(self.catalogues):
            catalogue = self.catalogues[name]
            if catalogue.prelude:
                steps = tuple(catalogue.prelude.removesuffix(".par").split("/"))
                yield self.catalogue_file(catalogue, steps)

    def _begin(self) -> None:
        """Check files for changes again, unless this load is an import of another load."""
        if not self._open:
            self._checked.clear()

    def _fresh(self, key: str, path: Path) -> bool:
        """Return whether the module at *path* and all files that it imports are unchanged.

        Each file is checked once per load, however many files import it.
        """
        known = self._checked.get(key)
        if known is None:
            self._checked[key] = True  # for imports in a circle
            module = self._modules[key]
            inner = [
                (":".join((*other.reading.key, str(other.path.resolve()))), other.path)
                for other in (*module.merged, *module.aliases.values())
                if other.path is not None
            ]
            stamps = tuple(map(self._stamp, (path, *module.beside)))
            known = self._stamps.get(key) == stamps and all(
                self._fresh(name, place) for name, place in inner
            )
            self._checked[key] = known
        return known

    def _stamp(self, path: Path) -> tuple[int, int]:
        """Return a pair that changes with a file: time (ns) and size (bytes), or a serial."""
        try:
            buffer = self.buffers.get(str(path.resolve())) if self.buffers else None
            if buffer is not None:
                return (-1, buffer.serial)
            status = path.stat()
        except (OSError, ValueError, RuntimeError):
            return (0, 0)
        return (status.st_mtime_ns, status.st_size)

    def forget_files(self) -> None:
        """Remove all files outside catalogues from the cache, so that they are read again."""
        for key in [key for key in self._modules if not key.startswith("catalogue:")]:
            del self._modules[key]

    def _module(
        self,
        source: Source,
        path: Path | None,
        key: str,
        root: Path | None,
        *,
        catalogue: str = "",
        keep: bool = True,
        reading: ImportOptions = PLAIN,
        plain: bool = False,
    ) -> Module:
        beside: Mapping[Path, str] = {}
        if plain or path is None or (path.suffix == sources.SUFFIX and not reading.tool):
            tree, found = parse(source)
            if all(name.endswith(sources.SUFFIX) for name in reading.files):
                found += reading.unused_warnings([source.name])
        else:
            file = self.read_foreign(source, path, reading)
            source, tree, beside, found = file.source, file.tree, file.beside, [*file.diagnostics]
        module = Module(source, path, catalogue, tree, reading=reading, beside=beside)
        module.diagnostics += found
        module.allowances, wrong = read_allowances(
            source, tree, self.rules, foreign=isinstance(source, ForeignSource)
        )
        module.diagnostics += wrong
        if keep:
            self._modules[key] = module
        self._open.append(key)
        try:
            for item in (*tree.items, *use_items(reading)):
                self._item(item, module, root)
            self._merge_files(module, plain=not isinstance(source, ForeignSource))
            self._merge_anchors(module, root)
        finally:
            self._open.pop()
        if not tree.items and not any(one.severity is Severity.ERROR for one in found):
            message = f"`{source.name}` is empty"
            help = "write blocks, or import entries that `parcost catalog` lists"
            module.diagnostics.append(
                Diagnostic("empty-file", message, place=source.name, help=help)
            )
        return module

    def _merge_files(self, module: Module, *, plain: bool) -> None:
        """Merge the other specs of the command line; *plain* also merges files of other tools."""
        for name in module.reading.files:
            if plain or name.endswith(sources.SUFFIX):
                path, recipe = split_recipe(name)
                own = evolve(module.reading, uses=(), files=(), recipe=recipe)
                own = PLAIN if name.endswith(sources.SUFFIX) else own
                module.merged.append(self.file(Path(path), path, reading=own))

    def _merge_anchors(self, module: Module, root: Path | None) -> None:
        """Merge the measured runs that the command line adds, as blocks or as files of runs."""
        for number, given in enumerate(module.reading.anchors, 1):
            if "=" in given and not os.path.exists(given):
                text = f"{_ANCHOR} given_{number} {{ {given} }}\n"
                for item in _parse_whole(Source(f"--anchor {given}", text)).items:
                    self._item(item, module, root)
                continue
            tool = self.tool_of(given, _ANCHOR)
            module.merged.append(self.file(Path(given), given, reading=ImportOptions(tool=tool)))

    def _item(self, item: s.Item, module: Module, root: Path | None) -> None:
        match item:
            case s.Block(kind=kind) if kind.text == "study":
                module.studies.append(item)
            case s.Block(kind=kind) if kind.text == "expect":
                module.expects.append(item)
            case s.Block():
                module.blocks.append(item)
            case s.Attribute():
                add_let(item, module.lets, module.diagnostics)
            case s.Claim():
                message = "a claim must be inside `expect`"
                help = f"write `expect {{ {item.span.text} }}`"
                module.diagnostics.append(problem("misplaced-claim", message, item.span, help=help))
            case s.Statement():
                self._statement(item, module, root)

    def _statement(self, item: s.Statement, module: Module, root: Path | None) -> None:
        first = item.words[0]
        word = first.text if isinstance(first, s.Path) else ""
        if word == "use":
            try:
                self.use(item, module, root)
            except SpecError as error:
                module.diagnostics += error.diagnostics
        elif word == "requires":
            module.requires.append(item)
        else:
            module.diagnostics.append(unknown_statement(item))

    def use(self, item: s.Statement, module: Module, root: Path | None) -> None:
        """Add the import of a statement to *module*.

        Raises:
            SpecError: There is no such entry or file, or it has errors.
        """
        target, alias = _use_words(item)
        if not isinstance(target, s.Text):
            self._import_block(target, alias, module)
            return
        imported = self._find_import(target, module, root)
        if alias is None:
            module.merged.append(imported)
            return
        if isinstance(imported.source, ForeignSource):
            kinds = list(dict.fromkeys(block.kind.text for block in imported.blocks))
            if len(imported.blocks) == 1:
                module.imported_blocks.append((imported, imported.blocks[0], alias.text))
                return
            if alias.text in kinds:
                raise _several_blocks(target, alias, kinds)
        if alias.text in module.aliases:
            raise error_at("duplicate", f"the name `{alias.text}` is given twice", alias.span)
        module.aliases[alias.text] = imported

    def _find_import(self, target: s.Text, module: Module, root: Path | None) -> Module:
        if module.path is None:
            message = "files of a catalogue are imported by name, not by path"
            raise error_at("import-escapes", message, target.span)
        root = root or project_root(module.path)
        try:
            path = (module.path.parent / target.value).resolve()
        except (OSError, ValueError, RuntimeError):  # a null byte, or links in a circle
            named = sources.relative_name(module.path.parent / target.value, module.source.name)
            reason = path_error(Path(named))
            message = f"`{target.value}` cannot be read: {reason}"
            raise error_at("unreadable-file", message, target.span) from None
        if not path.is_relative_to(root.resolve()):
            message = f"`{target.value}` is outside the project"
            help = "import from the folder of the project, or from a catalogue by name"
            raise error_at(
                "import-escapes",
                message,
                target.span,
                "this path is outside the project",
                help=help,
            )
        if path.suffix != sources.SUFFIX == Path(target.value).suffix:
            message = f"`{target.value}` is a link to `{path.name}`, which is not a spec"
            raise error_at("not-a-spec", message, target.span)
        key = str(path)
        if key in self._open:
            chain = self._open[self._open.index(key) :]
            names = " -> ".join(os.path.relpath(k, Path(key).parent) for k in [*chain, key])
            raise error_at("circular-import", f"a file imports itself: {names}", target.span)
        if len(self._open) > MOST_IMPORTS:
            raise error_at("circular-import", "imports are nested too deeply", target.span)
        name = sources.relative_name(path, module.source.name)
        try:
            return self.file(path, name, root)
        except SpecError as error:
            raise SpecError(
                [
                    problem(d.id, d.message, target.span, "imported here", help=d.help)
                    for d in error.diagnostics
                ]
            ) from None

    def _import_block(self, target: s.Path, alias: s.Name | None, module: Module) -> None:
        catalogue_name, *steps = [part.text for part in target.parts]
        catalogue = self.catalogues.get(catalogue_name)
        if catalogue is None:
            known = self.entries_of()
            close = nearest_names(target.parts[-1].text, known, 1)
            raise error_at(
                "unknown-import",
                f"no catalogue is called `{catalogue_name}`",
                target.parts[0].span,
                help=(f"did you mean `use {known[close[0]]}`?" if close else None)
                or did_you_mean(catalogue_name, self.catalogues)
                or "a file is imported by a path in quotes",
                notes=self.absences,
            )
        entries = self._entries(catalogue)
        if tuple(steps) not in entries:
            hint = did_you_mean(target.text, entries.values()) or "`parcost catalog` lists it"
            message = f"the catalogue has no `{target.text}`"
            raise error_at("unknown-import", message, target.span, help=hint)
        imported = self.catalogue_file(catalogue, tuple(steps))
        name = (alias or target.parts[-1]).text
        for block in imported.blocks:
            if label_of(block) == steps[-1]:
                module.imported_blocks.append((imported, block, name))
                return
        message = f"`{imported.source.name}` has no block labelled `{steps[-1]}`"
        raise error_at("unknown-import", message, target.span)

    def import_hint(self, name: str, kind: str, known: Iterable[str]) -> str | None:
        """Return a help line with the catalogue entry with this or a similar *name*, or None.

        Only entries in the folder of a *kind* count. Entries in *known* are already
        imported.
        """
        of_kind = {n: path for n, path in self.entries_of(kind).items() if n not in known}
        if name in of_kind:
            return f"import it: `use {of_kind[name]}`"
        if did_you_mean(name, known):
            return None
        hint = did_you_mean(name, of_kind)
        folders = sorted({path.rpartition(".")[0] for path in of_kind.values()})
        return f"{hint} import it from `{folders[0]}`" if hint else None

    def entries_of(self, kind: str = "") -> Mapping[str, str]:
        """Return the paths of the catalogue entries of block *kind*, or of all entries, by
        label.
        """
        folders = (kind, f"{kind}s", f"{kind[:-1]}ies")
        return {
            entry[-1]: path
            for catalogue in self.catalogues.values()
            for entry, path in self._entries(catalogue).items()
            if not kind or entry[0] in folders
        }

    def _entries(self, catalogue: Catalogue) -> Mapping[tuple[str, ...], str]:
        """Return the importable names of a catalogue, with their spelling; cached."""
        if catalogue.name not in self._listed:
            self._listed[catalogue.name] = {
                entry: ".".join((catalogue.name, *entry)) for entry in entries(catalogue)
            }
        return self._listed[catalogue.name]


def entries(catalogue: Catalogue) -> list[tuple[str, ...]]:
    """Return the importable names of a catalogue: folders and the file name without suffix."""
    found: list[tuple[str, ...]] = []

    def walk(folder: Any, steps: tuple[str, ...]) -> None:
        for entry in sorted(folder.iterdir(), key=lambda e: str(e.name)):
            if entry.name.endswith(".par"):
                name = "/".join((*steps, entry.name))
                if name not in (catalogue.prelude, catalogue.example):
                    found.append((*steps, name.rsplit("/")[-1].removesuffix(".par")))
            elif entry.is_dir() and not entry.name.startswith(("_", ".")):
                walk(entry, (*steps, entry.name))

    walk(catalogue.root, ())
    return found


def add_let(item: s.Attribute, lets: dict[str, s.Attribute], diagnostics: list[Diagnostic]) -> None:
    """Add ``let name = value`` to *lets*, or its error to *diagnostics*."""
    words = [w.text for w in item.words]
    name = item.name.text
    if words != ["let"] or len(item.name.parts) != 1:
        hint = f"write `let {item.name.parts[-1].text} = ...`, or move it into a block"
        if words and words[0] in STATEMENTS:
            hint = f"after `{words[0]}`, write names of letters, digits, `_` and dots"
        elif words and words[0] != "let":
            hint = f"write `{' '.join(words)} {{ {name} = ... }}`"
        message = f"`{name}` must be inside a block"
        diagnostics.append(problem("misplaced-attribute", message, item.name.span, help=hint))
    elif name in lets:
        diagnostics.append(given_twice(name, item.name.span, lets[name].name.span))
    else:
        lets[name] = item


def given_twice(name: str, again: Span, first: Span, help: str | None = None) -> Diagnostic:
    """Return the error of a name that is defined twice."""
    message = f"`{name}` is given twice"
    return problem(
        "duplicate", message, again, "again here", also=[(first, "first here")], help=help
    )


def unknown_statement(item: s.Statement) -> Diagnostic:
    """Return the diagnostic for a line of words that is not a statement."""
    word = item.words[0].text if isinstance(item.words[0], s.Path) else item.words[0].value
    hint = did_you_mean(word, STATEMENTS)
    message = f"`{word}` is neither a statement nor the start of a block"
    help = hint or f"write `{word} {{ ... }}` for a block or `{word} = ...` for a value"
    return problem("unknown-statement", message, item.words[0].span, help=help)


def label_of(block: s.Block) -> str:
    """Return the label of a block, "" if it has none."""
    if not block.words:
        return ""
    first = block.words[0]
    if isinstance(first, s.Text):
        return first.value
    return "" if first.text == "extends" else first.text


def base_of(block: s.Block) -> s.Path | None:
    """Return the path of the block that *block* extends, or None.

    Raises:
        SpecError: The words after the label are not ``extends NAME``.
    """
    words = list(block.words)
    if words and label_of(block):
        words = words[1:]
    if not words:
        return None
    match words:
        case [s.Path() as word, s.Path() as base] if word.text == "extends":
            return base
    first = words[0]
    message = "a block starts with `kind`, `kind label` or `kind label extends other`"
    help = "write the label as one word" if label_of(block) else None
    raise error_at("unexpected-word", message, first.span, help=help)


def use_items(reading: ImportOptions) -> Sequence[s.Statement]:
    """Return the imports that the command line adds to a file."""
    if not reading.uses:
        return ()
    text = "".join(f"use {entry}\n" for entry in reading.uses)
    tree = _parse_whole(Source("--use", text))
    return [item for item in tree.items if isinstance(item, s.Statement)]


def _parse_whole(source: Source) -> s.Block:
    tree, found = parse(source)
    if found:
        raise SpecError(found)
    return tree


def _several_blocks(target: s.Text, alias: s.Name, kinds: Sequence[str]) -> SpecError:
    """Return the error of a file with several blocks where one block is expected."""
    said = ", ".join(f"`{kind}`" for kind in kinds)
    message = f"`{target.value}` has several blocks ({said}); `as` needs a file with one block"
    help = f'write `use "{target.value}"` to import all of them'
    return error_at("import", message, alias.span, help=help)


def _use_words(item: s.Statement) -> tuple[s.Word, s.Name | None]:
    match item.words[1:]:
        case [target]:
            return target, None
        case [target, s.Path() as word, s.Path(parts=[alias])] if word.text == "as":
            return target, alias
    message = "`use` needs one name or one file"
    help = 'write `use catalog.devices.NAME` or `use "file.par" as NAME`'
    raise error_at("malformed-use", message, item.span, help=help)
