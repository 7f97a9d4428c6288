"""Completion: the texts that may be inserted at the cursor, with their documentation.

    propose(analysis, text, offset)   # [Proposal("device = ", ...), ...]

In a block, these are attributes that it does not have yet and blocks that belong inside it. For a
value, they are the words of its declaration. For an import, they are entries of catalogues and
files in the folder of the spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from parcost.binding import sources
from parcost.binding.definitions import Definition
from parcost.binding.functions import functions
from parcost.binding.modules import entries, label_of
from parcost.contract.schema import BlockType, Field
from parcost.language import syntax as s
from parcost.language.errors import SpecError
from parcost.language.text import Span
from parcost.language.units import BIT_RATE, ONE, RATE, Dimension, known_units, unit
from parcost.records import record
from parcost.system.files import project_root
from parcost_apps.documentation.declarations import default, flow, value
from parcost_apps.editor.analysis import Analysis, BoundStudy, contains
from parcost_apps.editor.cursor import Cursor, cursor_at
from parcost_apps.editor.words import PROVENANCES, USAGES

_MOST_FILES = 200
_STATEMENTS = {
    "use": "import an entry of a catalogue, or a file",
    "let": "give a value a name",
    "study": "one of several studies of a file",
    "expect": "claims about figures, which `parcost eval` checks",
    "requires": "the versions of parcost and of plugins that the spec needs",
}


@record(eq=False)
class Proposal:
    """A completion of the text at the cursor.

    *text* replaces the characters from *start* to the cursor; ``$0`` in a *snippet* is the cursor
    position afterwards. *also* is a second text to insert, with its offset. Proposals of a lower
    *rank* come first.
    """

    label: str
    kind: str
    start: int
    text: str
    detail: str = ""
    doc: str = ""
    snippet: bool = False
    also: tuple[int, str] | None = None
    rank: int = 1


def propose(
    analysis: Analysis, text: str, offset: int, figures: Sequence[str] = ()
) -> list[Proposal]:
    """Return the completions at *offset* of *text*; *figures* are the names for claims."""
    study = analysis.study_at(offset)
    if study is None:
        return []
    cursor = cursor_at(text, offset)
    if cursor.inside == "comment":
        return []
    first = cursor.item[0].text if cursor.item else ""
    if first == "use":
        return list(_imports(analysis, study, cursor))
    if cursor.inside == "string":
        return []
    if cursor.kind == "expect" and not cursor.item:
        return [Proposal(name, "figure", cursor.start, name) for name in figures]
    if cursor.item and cursor.item[-1].kind == "AT":
        return [
            Proposal(kind, "provenance", cursor.start, f'{kind}("$0")', doc=doc, snippet=True)
            for kind, doc in PROVENANCES.items()
        ]
    if not cursor.item:
        return list(_items(analysis, study, cursor, offset))
    if cursor.item[-1].text == "extends":
        return list(_labels(study, cursor, cursor.item[0].text))
    if cursor.attribute:
        return list(_values(analysis, study, cursor))
    return []


# --- items --------------------------------------------------------------------------------


def _items(
    analysis: Analysis, study: BoundStudy, cursor: Cursor, offset: int
) -> Iterator[Proposal]:
    types = study.binder.types
    type_ = types.get(cursor.kind)
    if type_ is None:
        if cursor.kind not in ("", "study"):
            return
        inside = cursor.kind == "study"
        for word, doc in _STATEMENTS.items():
            if not inside or word in ("let", "expect"):
                yield _statement(word, doc, cursor)
        yield from (_block(one, cursor) for one in types.values() if not one.inside)
        return
    given = _attributes_of(analysis.tree, offset)
    for name, field in type_.fields.items():
        if name not in given and field.kind != "children":
            yield _attribute(type_, name, field, cursor)
    yield from (_block(one, cursor) for one in types.values() if one.inside == type_.kind)


def _statement(word: str, doc: str, cursor: Cursor) -> Proposal:
    bodies = {"study": "study $1 {\n  $0\n}", "expect": "expect {\n  $0\n}"}
    text = bodies.get(word, f"{word} ")
    return Proposal(word, "keyword", cursor.start, text, doc=doc, snippet=word in bodies, rank=2)


def _block(type_: BlockType, cursor: Cursor) -> Proposal:
    label = " $1" if type_.label == "required" else ""
    text = f"{type_.kind}{label} {{\n  $0\n}}"
    doc = flow(type_.schema.__doc__)
    return Proposal(type_.kind, "block", cursor.start, text, "block", doc, snippet=True, rank=2)


def _attribute(type_: BlockType, name: str, field: Field, cursor: Cursor) -> Proposal:
    falls_back = default(type_, name)
    detail = value(field).replace("`", "")
    doc = f"{field.doc}\n\nDefault: {falls_back}" if falls_back != "required" else field.doc
    rank = 0 if falls_back == "required" else 1
    return Proposal(name, "attribute", cursor.start, f"{name} = ", detail, doc, rank=rank)


def _attributes_of(tree: s.Block, offset: int) -> set[str]:
    """Return the attributes that the innermost block around *offset* already has."""
    block = tree
    while True:
        blocks = (item for item in block.items if isinstance(item, s.Block))
        inner = next((item for item in blocks if contains(item.span, offset)), None)
        if inner is None:
            return {item.name.text for item in block.items if isinstance(item, s.Attribute)}
        block = inner


# --- imports ------------------------------------------------------------------------------


def _imports(analysis: Analysis, study: BoundStudy, cursor: Cursor) -> Iterator[Proposal]:
    if cursor.inside == "string":
        yield from _files(analysis, cursor)
        return
    words = [word.text for word in cursor.item[1:]]
    if words and "_DOT" not in (cursor.item[-1].kind, cursor.item[-2].kind if words else ""):
        return  # the path is complete
    before = "".join(words)
    start = cursor.start - len(before)
    loader = study.scenario.loader
    for catalogue in loader.catalogues.values():
        for entry in entries(catalogue):
            name = ".".join((catalogue.name, *entry))
            if name.startswith(before):
                yield Proposal(name, "entry", start, name, entry[0])


def _files(analysis: Analysis, cursor: Cursor) -> Iterator[Proposal]:
    """Yield the specs and the folders that complete a partly typed path."""
    head, slash, _ = cursor.typed.rpartition("/")
    home = Path(analysis.path).parent
    folder = home / head if slash else home
    start = cursor.start + len(head + slash)
    try:
        if not folder.resolve().is_relative_to(project_root(Path(analysis.path))):
            return  # no spec may import what lies there
        found = sorted(folder.iterdir(), key=lambda one: one.name)[:_MOST_FILES]
    except (OSError, ValueError, RuntimeError, SpecError):
        return
    for one in found:
        if one.name.startswith(".") or one == Path(analysis.path):
            continue
        if one.suffix == sources.SUFFIX:
            yield Proposal(one.name, "file", start, one.name)
        elif one.is_dir():
            yield Proposal(f"{one.name}/", "folder", start, f"{one.name}/", rank=2)


# --- values -------------------------------------------------------------------------------


def _values(analysis: Analysis, study: BoundStudy, cursor: Cursor) -> Iterator[Proposal]:
    type_ = study.binder.types.get(cursor.kind)
    field = type_.fields.get(cursor.attribute) if type_ is not None else None
    last = cursor.value[-1].kind if cursor.value else "EQUAL"
    if last == "_DOT":
        yield from _members(study, cursor)
        return
    if last in ("NUMBER", "QUANTITY", "NAME", "STRING", "RPAR", "RSQB"):
        yield from _after(field, cursor, last)
        return
    if field is not None and field.kind in ("word", "switch"):
        for choice in study.binder.names.choices(field):
            yield Proposal(choice, "choice", cursor.start, choice, doc=_offer(study, field, choice))
        yield from _lets(study, cursor)
        return
    if field is not None and field.kind == "reference":
        yield from _labels(study, cursor, field.target)
        yield from _catalogue_proposals(analysis, study, cursor, field.target)
        yield from _lets(study, cursor)
        return
    if field is not None and field.kind == "text":
        return
    if type_ is not None:
        for name, other in type_.fields.items():
            if other.kind != "children" and name != cursor.attribute:
                yield Proposal(name, "attribute", cursor.start, name, doc=other.doc, rank=2)
    yield from _lets(study, cursor)
    table = study.binder.definitions.table.values()
    for called in dict.fromkeys(d.path_name for d in table if not d.is_default):
        yield Proposal(called, "block", cursor.start, called, rank=2)
    for name in functions():
        usage, doc = USAGES[name]
        text = f"{name}($0)"
        yield Proposal(name, "function", cursor.start, text, usage, doc, snippet=True, rank=3)


def _after(field: Field | None, cursor: Cursor, last: str) -> Iterator[Proposal]:
    """Yield completions after an operand: its unit, and the keywords that the attribute accepts."""
    if field is not None:
        for word in field.qualifiers:
            yield Proposal(word, "qualifier", cursor.start, word, "qualifier", rank=0)
    if last == "NUMBER":
        wanted = field.dimension if field is not None and field.kind == "quantity" else None
        for name in _units(wanted):
            dimension = "" if unit(name)[1] == ONE else str(unit(name)[1])
            yield Proposal(name, "unit", cursor.start, name, dimension)


def _units(wanted: Dimension | None) -> list[str]:
    """Return the units of a dimension; all simple ones if *wanted* is None.

    >>> [name for name in _units(RATE) if name.startswith("G")]
    ['GB/s', 'Gbps', 'GiB/s']
    """
    names = [*known_units(), *(f"{n}/s" for n, (_, d) in known_units().items() if d != ONE)]
    if wanted is None:
        return list(known_units())
    fitting = (wanted, BIT_RATE) if wanted == RATE else (wanted,)
    read = [name for name in names if unit(name)[1] in fitting]
    return sorted(name for name in read if "/" not in name or unit(name)[1] != BIT_RATE)


def _lets(study: BoundStudy, cursor: Cursor) -> Iterator[Proposal]:
    module = study.scenario.module
    lets = {**module.lets, **study.binder.study_lets}
    for one in module.scope[1:]:
        lets = {**one.lets, **lets}
    for name, node in lets.items():
        yield Proposal(name, "let", cursor.start, name, node.value.span.text, rank=1)


def _labels(study: BoundStudy, cursor: Cursor, kind: str) -> Iterator[Proposal]:
    """Yield the blocks of a kind that a name may refer to."""
    for (other, label), definition in study.binder.definitions.table.items():
        if other == kind and label:
            doc = flow(definition.type.schema.__doc__)
            yield Proposal(label, "block", cursor.start, label, kind, doc, rank=0)
    for alias, module in study.scenario.module.aliases.items():
        for block in module.blocks:
            if block.kind.text == kind and label_of(block):
                name = f"{alias}.{label_of(block)}"
                yield Proposal(name, "block", cursor.start, name, kind, rank=0)


def _catalogue_proposals(
    analysis: Analysis, study: BoundStudy, cursor: Cursor, kind: str
) -> Iterator[Proposal]:
    """Yield the catalogue entries of a kind; choosing one adds its import."""
    known = {label for (other, label) in study.binder.definitions.table if other == kind}
    at = place_of_imports(analysis.tree)
    for catalogue in study.scenario.loader.catalogues.values():
        for entry in entries(catalogue):
            if entry[0] == f"{kind}s" and entry[-1] not in known:
                use = f"use {'.'.join((catalogue.name, *entry))}"
                also = (at, f"{use}\n")
                yield Proposal(entry[-1], "entry", cursor.start, entry[-1], use, also=also, rank=2)


def place_of_imports(tree: s.Block) -> int:
    """Return the offset of the line after the last import, or of the first item."""
    at = tree.items[0].span.start if tree.items else 0
    for item in tree.items:
        match item:
            case s.Statement(words=[s.Path() as word, *_]) if word.text == "use":
                text = item.span.source.text
                end = text.find("\n", item.span.end)
                at = end + 1 if end >= 0 else item.span.start
    return at


def _members(study: BoundStudy, cursor: Cursor) -> Iterator[Proposal]:
    """Yield the names that may follow a dot: members of a block, or entries of a file."""
    names = cursor.path
    if not names:
        return
    module = study.scenario.module
    if names[0] in module.aliases and len(names) == 1:
        other = module.aliases[names[0]]
        for name, node in other.lets.items():
            yield Proposal(name, "let", cursor.start, name, node.value.span.text)
        for block in other.blocks:
            label = label_of(block) or block.kind.text
            yield Proposal(label, "block", cursor.start, label, block.kind.text)
        return
    found = _definition(study, cursor, names)
    if found is None:
        return
    for name, field in found.type.fields.items():
        if field.kind != "children":
            yield Proposal(name, "attribute", cursor.start, name, doc=field.doc)
    for child in found.children.values():
        yield Proposal(child.path_name, "block", cursor.start, child.path_name, child.type.kind)


def _definition(study: BoundStudy, cursor: Cursor, names: Sequence[str]) -> Definition | None:
    binder = study.binder
    own = next((d for d in binder.definitions.of_kind(cursor.kind)), None)
    span = Span(study.scenario.module.source, 0, 0)
    try:
        first = s.Name(names[0], span)
        found = binder.names.block(names[0], study.scenario.module, s.Path((first,), span))
    except SpecError:
        return None
    if found is None and own is not None:
        found = binder.inner(own, names[0])
    for name in names[1:]:
        found = binder.inner(found, name) if found is not None else None
    return found


def _offer(study: BoundStudy, field: Field, choice: str) -> str:
    """Return the documentation of a choice that a plugin offers."""
    if not field.registry:
        return ""
    offers = study.scenario.plugins.offers(field.registry)
    return flow(type(offers[choice][1]).__doc__, first=True) if choice in offers else ""
