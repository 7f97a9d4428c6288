"""The blocks of a study, after imports, extensions and overrides.

A definition is a stack of layers, from the lowest: its base, the prelude, imports, the file, the
study. The topmost layer that has an attribute sets its value. The value is evaluated in the scope
of its file, and may refer to attributes of all layers. The order of blocks in a file, or of files,
has no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory, evolve, field

from parcost.binding.modules import Module, base_of, given_twice, label_of, unknown_statement
from parcost.contract.schema import BlockType, Field
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem
from parcost.language.errors import SpecError, error_at
from parcost.records import define

Key = tuple[str, str]
DEEPEST_EXTENSION = 20
_FEW_KINDS = 3
_MOST_NAMES = 12  # in a message
_OF_A_FILE = ("study", "expect")  # blocks that no plugin declares


@define(eq=False)
class Definition:
    """A block of a study, with its layers merged; *is_default* if no file of the study has it.

    *kept* has the ids of a catalogue block and of its inner blocks. Studies share such a
    definition, so no layer is added to it.
    """

    type: BlockType
    label: str
    header: s.Block | None
    is_default: bool = False
    attributes: dict[str, tuple[s.Attribute, Module]] = Factory(dict)
    children: dict[Key, Definition] = Factory(dict)
    layers: list[tuple[s.Block, Module]] = field(factory=list)
    kept: frozenset[int] = frozenset()

    def copy(self) -> Definition:
        """Return a copy to which layers can be added."""
        return Definition(
            type=self.type,
            label=self.label,
            header=self.header,
            attributes=dict(self.attributes),
            children=dict(self.children),
            layers=list(self.layers),
        )

    @property
    def path_name(self) -> str:
        """The name of the block in paths: its label, or its kind without one."""
        return self.label or self.type.kind


@define(eq=False)
class Definitions:
    """Builds definitions, and collects errors in the blocks."""

    types: Mapping[str, BlockType]
    absences: Sequence[str]
    diagnostics: list[Diagnostic] = Factory(list)
    table: dict[Key, Definition] = Factory(dict)
    _named: dict[tuple[int, str, str], Definition] = Factory(dict)
    _opening: list[s.Block] = Factory(list)
    _validated: set[int] = Factory(set)
    _taken: set[int] = Factory(set)  # blocks whose kept definitions the study has

    def build(self, preludes: Iterable[Module], module: Module, study: s.Block | None) -> None:
        """Fill the table of blocks for *study* of *module*, or for the whole file without one."""
        for prelude in preludes:
            self._add_module(prelude, set())
        for definition in self.table.values():
            definition.is_default = True
        self._add_module(module, set())
        if study is not None:
            inner = [item for item in study.items if isinstance(item, s.Block)]
            self._add_all([b for b in inner if b.kind.text != "expect"], module)

    def copy(self) -> Definitions:
        """Return a copy to which definitions can be added; existing definitions are shared."""
        return evolve(
            self,
            diagnostics=[*self.diagnostics],
            table=dict(self.table),
            named=dict(self._named),
            opening=[],
            validated=set(self._validated),
            taken=set(self._taken),
        )

    def definition_of(self, module: Module, block: s.Block) -> Definition | None:
        """Return the definition of a block outside the study, such as one of a catalogue."""
        key = (id(module), block.kind.text, label_of(block))
        if key not in self._named:
            type_ = self._type(block)
            if type_ is None:
                return None
            self._place(self._named, key, type_, block, module)
        return self._named[key]

    def of_kind(self, kind: str) -> list[Definition]:
        """Return the blocks of *kind*; blocks of preludes only if the study has none."""
        every = [d for (other, _), d in self.table.items() if other == kind]
        return [d for d in every if not d.is_default] or every

    def _add_module(self, module: Module, done: set[int]) -> None:
        if id(module) in done:
            return
        done.add(id(module))
        imported: dict[Key, s.Block] = {}
        for other, block, name in module.imported_blocks:
            self._claim(imported, (block.kind.text, name), block)
            self._add(block, other, name)
        for other in module.merged:
            for block in other.blocks:
                self._claim(imported, (block.kind.text, label_of(block)), block)
            self._add_module(other, done)
        self._add_all(module.blocks, module)

    def _claim(self, imported: dict[Key, s.Block], key: Key, block: s.Block) -> None:
        other = imported.setdefault(key, block)
        if other is not block:
            self._report_duplicate(block, other, key)

    def _report_duplicate(self, again: s.Block, first: s.Block, key: Key) -> None:
        help = "remove one, rename one, or write several studies: `study NAME { ... }`"
        name = " ".join(filter(None, key))
        self.diagnostics.append(given_twice(name, again.kind.span, first.kind.span, help))

    def _add_all(self, blocks: Iterable[s.Block], module: Module) -> None:
        first: dict[Key, s.Block] = {}
        for block in blocks:
            key = (block.kind.text, label_of(block))
            if key in first:
                self._report_duplicate(block, first[key], key)
            else:
                first[key] = block
                self._add(block, module, key[1])

    def _add(self, block: s.Block, module: Module, label: str) -> None:
        type_ = self._type(block)
        if type_ is None:
            return
        if type_.inside:
            message = f"`{type_.kind}` belongs inside a `{type_.inside}`"
            self.diagnostics.append(problem("misplaced-block", message, block.kind.span))
            return
        self._check_label(block, type_)
        definition = self._place(self.table, (type_.kind, label), type_, block, module)
        if not definition.kept:
            definition.header = block
            definition.is_default = False

    def _lay(self, definition: Definition, block: s.Block, module: Module) -> None:
        """Add *block* as the top layer of *definition*, above the block that it extends."""
        if any(block is opening for opening in self._opening):
            self.diagnostics.append(
                problem("circular", f"`{definition.path_name}` extends itself", block.kind.span)
            )
            return
        if len(self._opening) > DEEPEST_EXTENSION:
            message = f"a chain of more than {DEEPEST_EXTENSION} blocks extend one another"
            self.diagnostics.append(problem("nesting-too-deep", message, block.kind.span))
            return
        self._opening.append(block)
        try:
            base = base_of(block)
            if base is not None:
                self._extend(definition, base, module)
        except SpecError as error:
            self.diagnostics += error.diagnostics
        finally:
            self._opening.pop()
        definition.layers.append((block, module))
        self._items(definition, block, module)

    def _extend(self, definition: Definition, base: s.Path, module: Module) -> None:
        found = find_block(base, module)
        kind = definition.type.kind
        if found is None or found[1].kind.text != kind:
            known = [label_of(b) for b in module.blocks if b.kind.text == kind]
            known += [name for _, b, name in module.imported_blocks if b.kind.text == kind]
            what = f"there is no `{kind}` called `{base.text}`"
            if found is not None:
                what = f"`{base.text}` is a `{found[1].kind.text}`, not a `{kind}`"
            raise error_at(
                "unknown-name", what, base.span, help=did_you_mean(base.text, filter(None, known))
            )
        self._lay(definition, found[1], found[0])

    def _items(self, definition: Definition, block: s.Block, module: Module) -> None:
        seen: dict[str, s.Attribute] = {}
        fields = definition.type.fields
        kind = definition.type.kind
        nested: dict[Key, s.Block] = {}
        validate = id(block) not in self._validated
        self._validated.add(id(block))
        for item in block.items:
            if isinstance(item, s.Attribute):
                name = item.name.text
                if name in seen:
                    if validate:
                        first = seen[name].name.span
                        self.diagnostics.append(given_twice(name, item.name.span, first))
                    continue
                seen[name] = item
                known = fields.get(name)
                if known is None or known.kind == "children" or item.words:
                    if validate:
                        self.diagnostics.append(_unknown_attribute(item, definition, self.types))
                    continue
                definition.attributes[name] = (item, module)
            elif isinstance(item, s.Block):
                key = (item.kind.text, label_of(item))
                if key in nested:
                    self._report_duplicate(item, nested[key], key)
                    continue
                nested[key] = item
                self._child(definition, item, module, key)
            elif validate and isinstance(item, s.Statement):
                self.diagnostics.append(unknown_statement(item))
            elif validate:
                message = f"a `{kind}` block contains attributes, not claims"
                help = "write `=`, or move the claim into `expect { ... }`"
                self.diagnostics.append(problem("misplaced-claim", message, item.span, help=help))

    def _child(self, parent: Definition, block: s.Block, module: Module, key: Key) -> None:
        type_ = self._type(block, parent)
        if type_ is None:
            return
        if type_.inside != parent.type.kind:
            where = f"inside a `{type_.inside}`" if type_.inside else "outside other blocks"
            self._report_place(block, where, parent)
            return
        self._check_label(block, type_)
        self._place(parent.children, key, type_, block, module)

    def _place(
        self,
        table: dict[Any, Definition],
        key: Any,
        type_: BlockType,
        block: s.Block,
        module: Module,
    ) -> Definition:
        """Add *block* to the definition at *key*, which ends in the label, and return the
        definition.
        """
        known = table.get(key)
        kept: Definition | None = module.laid.get((id(block), key[-1]))
        if known is None and kept is not None and self._taken.isdisjoint(kept.kept):
            self._taken |= kept.kept
            table[key] = kept
            return kept
        if known is None:
            made = Definition(type_, key[-1], block)
        else:
            made = known.copy() if known.kept else known
        table[key] = made
        self._lay(made, block, module)
        inner = [child.kept for child in made.children.values()]
        if module.catalogue and known is kept is None and all(inner) and not self.diagnostics:
            made.kept = frozenset((id(block),)).union(*inner)
            self._taken.add(id(block))
            module.laid[id(block), key[-1]] = made
        return made

    def _report_place(self, block: s.Block, where: str, parent: Definition) -> None:
        message = f"`{block.kind.text}` must be {where}, not inside `{parent.type.kind}`"
        self.diagnostics.append(problem("misplaced-block", message, block.kind.span))

    def _block_help(self, kind: str, parent: Definition | None) -> str:
        """Return the help line for a block of an unknown *kind* inside *parent*."""
        if parent is not None:
            fields = parent.type.fields.values()
            inside = [f"`{f.target}`" for f in fields if f.kind == "children" and f.target]
            if inside:
                return f"`{parent.type.kind}` contains blocks of {' and '.join(inside)}"
        return (
            alias_hint(kind, "", self.types)
            or _elsewhere(kind, self.types)
            or did_you_mean(kind, [*self.types, *_OF_A_FILE])
            or "docs/language.md lists the blocks"
        )

    def _type(self, block: s.Block, parent: Definition | None = None) -> BlockType | None:
        type_ = self.types.get(block.kind.text)
        if type_ is None and id(block) not in self._validated:
            self._validated.add(id(block))
            kind = block.kind.text
            if parent is not None and kind in _OF_A_FILE:
                self._report_place(block, "outside other blocks", parent)
                return None
            message = f"there is no block `{kind}`: no plugin declares it"
            help = self._block_help(kind, parent)
            self.diagnostics.append(
                problem("unknown-block", message, block.kind.span, help=help, notes=self.absences)
            )
        return type_

    def _check_label(self, block: s.Block, type_: BlockType) -> None:
        label = label_of(block)
        if label and type_.label == "none":
            message = f"`{type_.kind}` takes no label: a study has only one such block"
            help = f"write `{type_.kind} {{ ... }}`"
            self.diagnostics.append(
                problem("unexpected-label", message, block.words[0].span, help=help)
            )
        if not label and type_.label == "required":
            message = f"`{type_.kind}` needs a label"
            help = f"write `{type_.kind} NAME {{ ... }}`"
            self.diagnostics.append(problem("missing-label", message, block.kind.span, help=help))


def find_block(path: s.Path, module: Module) -> tuple[Module, s.Block] | None:
    """Return the block that *path* names in the scope of *module*, if any."""
    first, *rest = [part.text for part in path.parts]
    if rest:
        other = module.aliases.get(first)
        if other is None or len(rest) != 1:
            return None
        named = other.find_block(rest[0])
        return (other, named) if named is not None else None
    for one in module.scope:
        own = one.find_block(first)
        if own is not None:
            return one, own
        for other, block, name in one.imported_blocks:
            if name == first:
                return other, block
    return None


def _unknown_attribute(
    item: s.Attribute, definition: Definition, types: Mapping[str, BlockType]
) -> Diagnostic:
    fields = definition.type.fields
    name = item.name.text
    kind = definition.type.kind
    if item.words:
        word = item.words[0].text
        message = f"`{word}` is not allowed before an attribute"
        return problem("misplaced-attribute", message, item.words[0].span)
    if name in fields:
        child = fields[name].target
        message = f"`{name}` in `{kind}` is a block, not a value"
        help = f"write `{child} NAME {{ ... }}` inside"
        return problem("unknown-attribute", message, item.name.span, help=help)
    known = [n for n, f in fields.items() if f.kind != "children"]
    more = f", and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    listed = f"it has {', '.join(f'`{n}`' for n in known[:_MOST_NAMES])}{more}"
    message = f"`{kind}` has no attribute `{name}`"
    help = (
        alias_hint(name, kind, types)
        or _by_registry(name, fields)
        or _elsewhere(name, types)
        or _as_block(name, types)
        or did_you_mean(name, known)
        or listed
    )
    return problem("unknown-attribute", message, item.name.span, help=help)


def alias_hint(name: str, kind: str, types: Mapping[str, BlockType]) -> str | None:
    """Return a help line for a *name* that other tools use for an attribute; *kind* comes first."""
    aliased = alias_of(name, kind, types)
    if aliased is None:
        return None
    other, instead = aliased
    return f"write `{instead}`" + (f" in `{other}`" if other != kind else "")


def alias_of(name: str, kind: str, types: Mapping[str, BlockType]) -> tuple[str, str] | None:
    """Return the kind of block and the attribute that other tools call *name*, or None.

    An alias in *kind* comes first. Otherwise *name* must be no attribute of any block.
    """
    if kind in types and name in types[kind].aliases:
        return kind, types[kind].aliases[name]
    if any(name in type_.fields for type_ in types.values()):
        return None
    aliased = (other for other, type_ in types.items() if name in type_.aliases)
    other = next(aliased, None)
    return None if other is None else (other, types[other].aliases[name])


def _by_registry(name: str, fields: Mapping[str, Field]) -> str | None:
    """Return a help line naming the attribute whose registry is called *name*, or None.

    For `schedule`, this may be the attribute `kind`, whose values are the schedules.
    """
    for other, declared in fields.items():
        if declared.registry and name.rstrip("s") == declared.registry.rstrip("s"):
            return f"did you mean `{other}`? it is one of the {declared.registry}"
    return None


def find_kinds(name: str, types: Mapping[str, BlockType]) -> list[str]:
    """Return the quoted names of the blocks with an attribute *name*; if some of them are in every
    study, only those.
    """
    having = [type_ for type_ in types.values() if name in type_.fields]
    always = [type_ for type_ in having if type_.label == "none"]
    return [f"`{type_.kind}`" for type_ in always or having]


def _elsewhere(name: str, types: Mapping[str, BlockType]) -> str | None:
    """Return a help line naming the few blocks that have an attribute *name*, or None."""
    kinds = find_kinds(name, types)
    if not 0 < len(kinds) <= _FEW_KINDS:
        return None
    return f"`{name}` is an attribute of {' and of '.join(kinds)}"


def _as_block(name: str, types: Mapping[str, BlockType]) -> str | None:
    """Return a help line if *name* is a block, not an attribute."""
    if name not in types:
        return None
    called = "" if types[name].label == "none" else " NAME"
    return f"`{name}` is a block of its own: write `{name}{called} {{ ... }}`"
