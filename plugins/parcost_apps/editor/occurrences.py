"""The names in a file, and the target of each.

    for occurrence in occurrences(analysis, offset):
        occurrence.span.text, occurrence.referent.kind    # "h100_sxm", "block"

Hover, definitions, references and rename all use this one walk over the syntax tree. Names are
resolved as in the binder: by definitions, lets and block lookup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parcost.binding.definitions import Definition, find_block
from parcost.binding.modules import Module, base_of, label_of
from parcost.contract.schema import BlockType, Field
from parcost.language import syntax as s
from parcost.language.errors import SpecError
from parcost.language.text import Span
from parcost.records import record
from parcost_apps.editor.analysis import Analysis, BoundStudy, contains

#: Kinds of referents that a file of the user defines by name.
NAMED = ("block", "let", "alias", "study")


@record(eq=False)
class Referent:
    """The target of a name.

    *kind* is block, let, alias, study, attribute, keyword, choice, entry, file, unit, function,
    figure, qualifier or provenance. *span* is the definition, None if no file has one. *what* is
    the Python object behind it, such as a field or a definition. *path* is the path of an
    attribute: ``cluster.devices``.
    """

    kind: str
    name: str
    span: Span | None = None
    what: Any = None
    path: str = ""


@record(eq=False)
class Occurrence:
    """A name in a file, and its target."""

    span: Span
    referent: Referent


@record(eq=False)
class NameScope:
    """The scope of a name: its file, its study, its block with the path of the block, its
    attribute.
    """

    analysis: Analysis
    study: BoundStudy
    module: Module
    definition: Definition | None = None
    path: str = ""
    field: Field | None = None


def occurrence_at(analysis: Analysis, offset: int) -> Occurrence | None:
    """Return the name at *offset*; the shortest if several overlap."""
    found = [o for o in occurrences(analysis, offset) if contains(o.span, offset)]
    return min(found, key=lambda o: o.span.end - o.span.start, default=None)


def occurrences(analysis: Analysis, offset: int | None = None) -> Iterator[Occurrence]:
    """Yield the names of a file; if *offset* is given, only the names of the item there."""
    module = analysis.module
    study = analysis.study_at(offset or 0)
    if module is None or study is None:
        return
    for item in _items(analysis.tree, offset):
        yield from _item(item, NameScope(analysis, study, module), offset)


def _items(block: s.Block, offset: int | None) -> Iterator[s.Item]:
    for item in block.items:
        if offset is None or contains(item.span, offset):
            yield item


def _item(item: s.Item, scope: NameScope, offset: int | None) -> Iterator[Occurrence]:
    match item:
        case s.Block(kind=kind) if kind.text == "study":
            yield from _study(item, scope, offset)
        case s.Block(kind=kind) if kind.text == "expect":
            yield Occurrence(kind.span, Referent("keyword", "expect"))
            for inner in _items(item, offset):
                yield from _claim(inner, scope)
        case s.Block():
            key = (item.kind.text, label_of(item))
            definition = scope.study.binder.definitions.table.get(key)
            yield from _block(item, definition, "", scope, offset)
        case s.Attribute(words=[word], name=name) if word.text == "let":
            yield Occurrence(name.span, Referent("let", name.text, name.span, item))
            yield from _value(item, scope)
        case s.Statement():
            yield from _statement(item, scope)


def _study(item: s.Block, scope: NameScope, offset: int | None) -> Iterator[Occurrence]:
    own = next((one for one in scope.analysis.studies if one.block is item), scope.study)
    yield Occurrence(item.kind.span, Referent("keyword", "study"))
    if item.words:
        label = item.words[0].span
        yield Occurrence(label, Referent("study", label_of(item), label, item))
    for inner in _items(item, offset):
        yield from _item(inner, NameScope(scope.analysis, own, scope.module), offset)


def _block(
    item: s.Block,
    definition: Definition | None,
    prefix: str,
    scope: NameScope,
    offset: int | None,
) -> Iterator[Occurrence]:
    types = scope.study.binder.types
    type_ = types.get(item.kind.text)
    if type_ is None:
        return
    yield Occurrence(item.kind.span, Referent("keyword", type_.kind, None, type_))
    label = label_of(item)
    path = f"{prefix}{label or type_.kind}"
    if label:
        referent = block_referent(definition, scope.module) if definition else None
        span = item.words[0].span
        yield Occurrence(span, referent or Referent("block", label, span, definition))
    base = _base(item)
    if base is not None:
        yield from _base_names(base, scope)
    yield from _provenances(item.provenance)
    inside = NameScope(scope.analysis, scope.study, scope.module, definition, path)
    for inner in _items(item, offset):
        if isinstance(inner, s.Attribute) and not inner.words:
            yield from _attribute(inner, type_, inside)
        elif isinstance(inner, s.Block):
            key = (inner.kind.text, label_of(inner))
            child = definition.children.get(key) if definition else None
            yield from _block(inner, child, f"{path}.", inside, offset)


def _attribute(item: s.Attribute, type_: BlockType, scope: NameScope) -> Iterator[Occurrence]:
    name = item.name.text
    field = type_.fields.get(name)
    if field is not None:
        where = item.name.span
        referent = Referent("attribute", name, where, (type_, field), f"{scope.path}.{name}")
        yield Occurrence(item.name.span, referent)
    inside = NameScope(
        scope.analysis, scope.study, scope.module, scope.definition, scope.path, field
    )
    yield from _value(item, inside)
    for word in item.qualifiers:
        yield Occurrence(word.span, Referent("qualifier", word.text, None, field))
    yield from _provenances(item.provenance)


def _provenances(given: Sequence[s.Provenance]) -> Iterator[Occurrence]:
    for one in given:
        yield Occurrence(one.kind.span, Referent("provenance", one.kind.text, None, one))


def _value(item: s.Attribute, scope: NameScope) -> Iterator[Occurrence]:
    yield from _expression(item.value, scope)


def _claim(item: s.Item, scope: NameScope) -> Iterator[Occurrence]:
    if isinstance(item, (s.Claim, s.Attribute)):
        yield Occurrence(item.name.span, Referent("figure", item.name.text, None, item))
        yield from _expression(item.value, scope)
        if isinstance(item, s.Claim) and item.tolerance is not None:
            yield from _expression(item.tolerance, scope)


def _expression(node: s.Expr, scope: NameScope) -> Iterator[Occurrence]:
    left: list[s.Expr] = [node]
    while left:
        match left.pop():
            case s.Path() as path:
                yield from _path(path, scope)
            case s.Number(unit=unit, span=span) if unit:
                start = span.end - len(unit)
                where = Span(span.source, start, span.end)
                is_word = scope.field is not None and unit in scope.field.qualifiers
                kind = "qualifier" if is_word else "unit"
                yield Occurrence(where, Referent(kind, unit, None, scope.field))
            case s.List(items=parts) | s.Chain(operands=parts):
                left += parts
            case s.Unary(operand=operand):
                left.append(operand)
            case s.Conditional(condition=condition, then=then, otherwise=otherwise):
                left += (condition, then, otherwise)
            case s.FunctionCall(function=function, arguments=arguments):
                yield Occurrence(function.span, Referent("function", function.text))
                left += arguments


def _path(node: s.Path, scope: NameScope) -> Iterator[Occurrence]:
    try:
        yield from _resolve(node, scope)
    except SpecError:  # an ambiguous name, which a diagnostic reports
        return


def _resolve(node: s.Path, scope: NameScope) -> Iterator[Occurrence]:
    """Yield the parts of a path, resolved in the same order as in the binder."""
    names, field = scope.study.binder.names, scope.field
    first, *rest = node.parts
    kind = field.kind if field is not None else ""
    choices = names.choices(field) if field is not None and kind in ("word", "switch") else ()
    if first.text in choices and not rest:
        yield Occurrence(first.span, Referent("choice", first.text, None, field))
        return
    let = names.let(first.text, scope.module)
    if kind in ("word", "switch", "text"):
        if let is not None:
            yield Occurrence(first.span, _let_referent(let))
        return
    own = scope.definition
    if kind != "reference" and own is not None and first.text in own.type.fields:
        yield Occurrence(first.span, _member_referent(own, first.text, scope.path))
        yield from _members(scope, scope.study.binder.inner(own, first.text), first.text, rest)
        return
    if let is not None and (kind != "reference" or not rest):
        yield Occurrence(first.span, _let_referent(let))
        return
    if field is not None and kind == "reference" and not rest:
        found = names.block_of_kind(first.text, field.target, scope.module, node)
    else:
        found = names.block(first.text, scope.module, node)
    if found is not None:
        yield Occurrence(first.span, block_referent(found, scope.module) or _keyword(found))
        yield from _members(scope, found, found.path_name, rest)
        return
    if first.text in scope.module.aliases and rest:
        yield from _through_alias(node, scope)


def _through_alias(node: s.Path, scope: NameScope) -> Iterator[Occurrence]:
    first, second, *rest = node.parts
    other = scope.module.aliases[first.text]
    where = alias_span(scope.module, first.text)
    yield Occurrence(first.span, Referent("alias", first.text, where, other))
    if second.text in other.lets:
        yield Occurrence(second.span, _let_referent((other.lets[second.text], other)))
        return
    for block in other.blocks:
        if second.text in (label_of(block), block.kind.text):
            found = scope.study.binder.definitions.definition_of(other, block)
            if found is not None:
                yield Occurrence(second.span, block_referent(found, other) or _keyword(found))
                yield from _members(scope, found, found.path_name, rest)
            return


def _members(
    scope: NameScope, definition: Definition | None, path: str, names: Sequence[s.Name]
) -> Iterator[Occurrence]:
    """Yield the parts of a path that follow the name of a block."""
    for name in names:
        if definition is None:
            return
        field = definition.type.fields.get(name.text)
        inner = scope.study.binder.inner(definition, name.text)
        if field is not None and field.kind != "children":
            yield Occurrence(name.span, _member_referent(definition, name.text, path))
            path = inner.path_name if inner is not None else ""
        elif inner is not None:
            yield Occurrence(name.span, block_referent(inner, scope.module) or _keyword(inner))
            path = f"{path}.{inner.path_name}"
        definition = inner


def _base(item: s.Block) -> s.Path | None:
    try:
        return base_of(item)
    except SpecError:
        return None


def _base_names(base: s.Path, scope: NameScope) -> Iterator[Occurrence]:
    found = find_block(base, scope.module)
    if found is None:
        return
    module, block = found
    *alias, name = base.parts
    if alias:
        where = alias_span(scope.module, alias[0].text)
        yield Occurrence(alias[0].span, Referent("alias", alias[0].text, where, module))
    if label_of(block) == name.text:
        definition = scope.study.binder.definitions.definition_of(module, block)
        yield Occurrence(name.span, Referent("block", name.text, block.words[0].span, definition))
    else:  # the name that an import gives it
        where = alias_span(scope.module, name.text)
        yield Occurrence(name.span, Referent("alias", name.text, where, block))


def _statement(item: s.Statement, scope: NameScope) -> Iterator[Occurrence]:
    first, *words = item.words
    if not isinstance(first, s.Path) or first.text != "use":
        return
    yield Occurrence(first.span, Referent("keyword", "use"))
    target = words[0] if words else None
    if isinstance(target, s.Text):
        imported = _file_at(target, scope)
        where = Span(imported.source, 0, 0) if imported is not None else None
        yield Occurrence(target.span, Referent("file", target.value, where, imported))
    elif isinstance(target, s.Path):
        yield Occurrence(target.span, _entry_referent(target, scope))
    match words[1:]:
        case [s.Path() as word, s.Path(parts=[alias])] if word.text == "as":
            yield Occurrence(alias.span, Referent("alias", alias.text, alias.span))


def _file_at(target: s.Text, scope: NameScope) -> Module | None:
    """Return the module of an import by path, if it could be read."""
    module = scope.module
    if module.path is None:
        return None
    try:
        place = (module.path.parent / target.value).resolve()
    except (OSError, ValueError, RuntimeError):
        return None
    files = (*module.merged, *module.aliases.values(), *(m for m, _, _ in module.imported_blocks))
    return next((one for one in files if one.path is not None and one.path == place), None)


def _entry_referent(target: s.Path, scope: NameScope) -> Referent:
    """Return the catalogue block that an import names."""
    name = "/".join(part.text for part in target.parts) + ".par"
    for module, block, _ in scope.module.imported_blocks:
        if module.source.name == name:
            span = block.words[0].span if block.words else block.kind.span
            return Referent("entry", target.text, span, block)
    return Referent("entry", target.text)


def block_referent(definition: Definition, module: Module) -> Referent | None:
    """Return the lowest layer of a block that has the same label; layers above override it.

    The block after ``extends`` is not such a layer. A block without a label has no referent.
    """
    if not definition.label:
        return None
    bases = set()
    for block, home in definition.layers:
        base = _base(block)
        found = find_block(base, home) if base is not None else None
        bases |= {id(found[1])} if found is not None else set()
    for block, _ in definition.layers:
        if label_of(block) == definition.label and id(block) not in bases:
            return Referent("block", definition.label, block.words[0].span, definition)
    where = alias_span(module, definition.label)
    return Referent("alias", definition.label, where, definition)


def alias_span(module: Module, name: str) -> Span | None:
    """Return the span where *name* is defined by an import of *module*, or of a merged file."""
    for one in module.scope:
        for item in one.tree.items if one.tree is not None else ():
            match item:
                case s.Statement(words=[_, _, _, s.Path(parts=[alias])]) if alias.text == name:
                    return alias.span
    return None


def _keyword(definition: Definition) -> Referent:
    span = definition.header.kind.span if definition.header is not None else None
    return Referent("keyword", definition.type.kind, span, definition.type)


def _let_referent(let: tuple[s.Attribute, Module]) -> Referent:
    node, _ = let
    return Referent("let", node.name.text, node.name.span, node)


def _member_referent(definition: Definition, name: str, path: str) -> Referent:
    given = definition.attributes.get(name)
    span = given[0].name.span if given is not None else None
    what = (definition.type, definition.type.fields[name])
    return Referent("attribute", name, span, what, f"{path}.{name}" if path else "")
