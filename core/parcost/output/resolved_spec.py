"""The resolved spec: a study as a spec with every value written out.

Values parse to exactly the same numbers, and provenance is kept. A comment names the origin of
each value. In a sweep a value that depends on another axis is printed as its expression.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from parcost.binding.conversion import qualifier
from parcost.contract.calls import CallError, call
from parcost.contract.schema import BlockType, Curve, Field, block_type
from parcost.language.errors import SpecError
from parcost.language.escapes import escape_lines
from parcost.language.numbers import literal
from parcost.language.units import BYTES, SECONDS
from parcost.language.writer import SpecAttribute, block_lines, provenance
from parcost.numeric import is_array
from parcost.records import frozen

if TYPE_CHECKING:
    from parcost.contract.origin import Origin
    from parcost.contract.study import Study

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def resolved(study: Study) -> str:
    """Return the spec of *study*: every block with every attribute.

    Blocks of the study's own file come first, in their order, then the blocks that they refer to.
    """
    labels = _labels(study)
    axes = dict(study.axes)
    parts = ["\n".join(lets)] if (lets := list(_lets(study, axes))) else []
    for title, blocks in _by_place(study).items():
        if blocks:
            parts.append(
                f"# --- {title}: {len(blocks)} {'block' if len(blocks) == 1 else 'blocks'}"
            )
            parts += ["\n".join(_block(block, study, labels, axes)) for block in blocks]
    return escape_lines("\n\n".join(parts) + "\n")


@frozen
class AttributeText:
    """An attribute as a spec writes it, and the origin of its value.

    *text* ends in the *provenance*, if it has one. If the attribute has no value, *implied* is the
    value in use, if there is any.
    """

    text: str = ""
    provenance: str = ""
    place: str = ""
    is_given: bool = False
    implied: str = ""


@frozen(kw_only=True)
class BlockText:
    """A block of a study with its attributes as texts; *path* is the prefix of their paths.

    *owner* is the block that holds it, or itself.
    """

    block: Any
    owner: Any
    title: str
    path: str
    attributes: Mapping[str, AttributeText]


def attributes(study: Study, other: Study | None = None) -> Mapping[str, AttributeText]:
    """Return every attribute with a value by its path: ``cluster.devices``, ``node.latency``.

    The path of an inner block begins with the label of its outer block:
    ``hgx_h100.node.bandwidth``. Blocks that the *other* study has too, such as a catalogue's, are
    omitted.
    """
    labels, axes = _labels(study), dict(study.axes)
    common = labels.items() & _labels(other).items() if other is not None else set()
    return {
        f"{text.path}.{name}": attribute
        for block in _reachable_blocks(study)
        if not common.issuperset((id(b), labels[id(b)]) for b in _closure([block]))
        for text in _block_texts(block, "", study, labels, axes)
        for name, attribute in text.attributes.items()
        if attribute.text
    }


def block_texts(study: Study) -> Mapping[str, Sequence[BlockText]]:
    """Return all blocks by their relation to the study's file; inner blocks follow outer ones."""
    labels, axes = _labels(study), dict(study.axes)
    return {
        title: [text for block in blocks for text in _block_texts(block, "", study, labels, axes)]
        for title, blocks in _by_place(study).items()
        if blocks
    }


def _block_texts(
    block: Any,
    prefix: str,
    study: Study,
    labels: Mapping[int, str],
    axes: Mapping[str, Any],
    owner: Any = None,
) -> Iterator[BlockText]:
    owner = owner or block
    type_ = block_type(type(block))
    label = labels.get(id(block), block.label)
    path = f"{prefix}{label or type_.kind}"
    own: dict[str, AttributeText] = {}
    for name, field in type_.fields.items():
        if field.kind != "children":
            entry = _attribute(block, name, type_, study, labels, axes)
            origin = study.origin(block, name)
            given = origin is not None and origin.how != "default"
            own[name] = (
                AttributeText(entry.value, _provenance(origin), entry.comment, given)
                if entry.is_set
                else AttributeText(place=entry.comment, implied=entry.value)
            )
    title = " ".join(filter(None, (type_.kind, label)))
    yield BlockText(block=block, owner=owner, title=title, path=path, attributes=own)
    for name, field in type_.fields.items():
        if field.kind == "children":
            for child in getattr(block, name):
                yield from _block_texts(child, f"{path}.", study, labels, axes, owner)


@frozen
class SpecBlock:
    """A block as a spec writes it; *references* are (kind, label) of other blocks, by attribute.

    It *is_referred* to if another block of the study names it, and *is_given* if the study's own
    file has it.
    """

    kind: str
    label: str
    text: str
    references: Mapping[str, tuple[str, str]]
    is_referred: bool
    is_given: bool


def spec_blocks(study: Study) -> Sequence[SpecBlock]:
    """Return every block of *study* with every attribute."""
    labels, blocks = _labels(study), _reachable_blocks(study)
    references = {id(block): _references(block) for block in blocks}
    referred = {id(other) for found in references.values() for other in found.values()}
    return [
        SpecBlock(
            block_type(type(block)).kind,
            labels[id(block)],
            "\n".join(_block(block, study, labels, {})),
            {
                name: (block_type(type(other)).kind, labels[id(other)])
                for name, other in references[id(block)].items()
            },
            id(block) in referred,
            any(True for _ in _starts(block, study)),
        )
        for block in blocks
    ]


def resolved_attributes(study: Study, outside: Collection[str]) -> Mapping[str, AttributeText]:
    """Return the values in use by block kind and attribute: ``precision.weights``.

    Values that a framework decides are included. Blocks of the kinds *outside* are not, nor are
    blocks that only they refer to.
    """
    labels = _labels(study)
    found: dict[str, AttributeText] = {}
    starts = [b for blocks in study.blocks.values() for b in blocks if not labels[id(b)]]
    waiting = [b for b in starts if block_type(type(b)).kind not in outside]
    seen = set(map(id, waiting))
    for block in waiting:
        _add_resolved(block, block_type(type(block)).kind, study, labels, found)
        for other in _references(block).values():
            if id(other) not in seen and block_type(type(other)).kind not in outside:
                seen.add(id(other))
                waiting.append(other)
    return found


def _add_resolved(
    block: Any,
    path: str,
    study: Study,
    labels: Mapping[int, str],
    found: dict[str, AttributeText],
) -> None:
    type_ = block_type(type(block))
    for name, field in type_.fields.items():
        value, place = getattr(block, name), ""
        if field.kind == "children":
            for child in value:
                _add_resolved(
                    child, f"{path}.{labels.get(id(child), child.label)}", study, labels, found
                )
            continue
        if field.kind == "reference":
            continue
        origin = study.origin(block, name)
        by_framework = value is None or (isinstance(value, tuple) and not value)
        if by_framework:
            value, place = _resolve(study, type_, name, {})
        text = "" if value is None else value_text(value, field, labels, None, None, study)
        given = (origin is not None and origin.how != "default") or bool(place)
        found[f"{path}.{name}"] = AttributeText(text, place=place, is_given=given)


def _references(block: Any) -> dict[str, Any]:
    """Return the blocks that *block* refers to, by attribute."""
    fields = block_type(type(block)).fields
    named = {n: getattr(block, n) for n, field in fields.items() if field.kind == "reference"}
    return {name: other for name, other in named.items() if other is not None}


def _by_place(study: Study) -> dict[str, list[Any]]:
    """Return all blocks by their relation to the study's file: own, referred to, or other."""
    blocks = _reachable_blocks(study)
    starts = {id(block): min(_starts(block, study), default=None) for block in blocks}
    own = [block for block in blocks if starts[id(block)] is not None]
    own.sort(key=lambda block: starts[id(block)] or 0)
    referred = [block for block in _closure(own) if starts[id(block)] is None]
    meant = {id(block) for block in referred}
    rest = [block for block in blocks if starts[id(block)] is None and id(block) not in meant]
    return {
        "blocks of the study's file": own,
        "blocks that they refer to": referred,
        "other blocks": rest,
    }


def _starts(block: Any, study: Study) -> Iterator[int]:
    """Yield the offsets of attributes of *block* in the study's file; 0 if set from outside."""
    for name, field in block_type(type(block)).fields.items():
        if field.kind == "children":
            for child in getattr(block, name):
                yield from _starts(child, study)
            continue
        origin = study.origin(block, name)
        if origin is not None and origin.how in ("given", "set"):
            yield origin.span.start if origin.span is not None and origin.how == "given" else 0


def _lets(study: Study, axes: Mapping[str, Any]) -> Iterator[str]:
    """Yield `let` lines for the names in expressions that depend on a sweep."""
    asked: list[str] = []
    for block in _reachable_blocks(study):
        asked += _expressions(block, study, axes)
    found: dict[str, str] = {}
    while asked:
        for path in _NAME.findall(asked.pop()):
            name = path if path in study.lets else path.partition(".")[0]
            if name in study.lets and name not in found:
                found[name] = study.lets[name]
                asked.append(found[name])
    for name, text in found.items():
        yield f"let {_flat(name)} = {_with_own_names(text, study)}"


def _expressions(block: Any, study: Study, axes: Mapping[str, Any]) -> Iterator[str]:
    type_ = block_type(type(block))
    for name, field in type_.fields.items():
        value = getattr(block, name)
        if field.kind == "children":
            for child in value:
                yield from _expressions(child, study, axes)
            continue
        swept = field.kind == "quantity" and value is not None and is_array(value)
        if swept and f"{block.label or type_.kind}.{name}" not in axes:
            yield _expression(study.origin(block, name))


def _with_own_names(text: str, study: Study) -> str:
    """Return an expression whose imported names are replaced by local ones without dots."""
    return _NAME.sub(lambda m: _flat(m[0]) if m[0] in study.lets else m[0], text)


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _reachable_blocks(study: Study) -> list[Any]:
    """Return the study's blocks, and the blocks that they refer to by an import's name."""
    blocks = [block for blocks in study.blocks.values() for block in blocks]
    return sorted(_closure(blocks), key=lambda b: (block_type(type(b)).kind, b.label))


def _closure(blocks: Sequence[Any]) -> list[Any]:
    """Return *blocks*, followed by all blocks that they refer to, directly or indirectly."""
    found = {id(block): block for block in blocks}
    waiting = list(found.values())
    for block in waiting:
        for other in _references(block).values():
            if id(other) not in found:
                found[id(other)] = other
                waiting.append(other)
    return list(found.values())


def _labels(study: Study) -> Mapping[int, str]:
    """Return a unique label for each block, even if two of a kind share one."""
    labels: dict[int, str] = {}
    taken: set[tuple[type, str]] = set()
    for block in _reachable_blocks(study):
        label = wanted = block.label
        number = 2
        while label and (type(block), label) in taken:
            label, number = f"{wanted}_{number}", number + 1
        taken.add((type(block), label))
        labels[id(block)] = label
    return labels


def _block(
    block: Any, study: Study, labels: Mapping[int, str], axes: Mapping[str, Any]
) -> list[str]:
    type_ = block_type(type(block))
    attributes, inner = list[SpecAttribute](), list[str]()
    for name, field in type_.fields.items():
        if field.kind != "children":
            attributes.append(_attribute(block, name, type_, study, labels, axes))
            continue
        for child in getattr(block, name):
            inner += _block(child, study, labels, axes)
    heading = " ".join(filter(None, (type_.kind, labels.get(id(block), block.label))))
    return block_lines(heading, attributes, inner)


def _attribute(
    block: Any,
    name: str,
    type_: BlockType,
    study: Study,
    labels: Mapping[int, str],
    axes: Mapping[str, Any],
) -> SpecAttribute:
    value = getattr(block, name)
    field = type_.fields[name]
    origin = study.origin(block, name)
    if value is None or (isinstance(value, tuple) and not value):
        value, reason = _resolve(study, type_, name, axes)
        text = "" if value is None else value_text(value, field, labels, None, None, study)
        return SpecAttribute(name, text, reason, is_set=False)
    swept = axes.get(f"{block.label or type_.kind}.{name}")
    text = value_text(value, field, labels, origin, swept, study)
    return SpecAttribute(name, f"{text}{_provenance(origin)}", place_of(origin))


def _resolve(study: Study, type_: BlockType, name: str, axes: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the value in use of an attribute that no spec sets, and the reason; None if unknown.

    It is unknown in a sweep, whose points may differ in it.
    """
    function = type_.resolvers.get(name)
    if function is None or axes:
        return None, ""
    try:
        found: tuple[Any, str] = call(partial(function, study))
    except (CallError, SpecError):  # such as a study without a framework
        return None, ""
    return found


def value_text(
    value: Any,
    field: Field,
    labels: Mapping[int, str],
    origin: Origin | None,
    swept: Any,
    study: Study,
) -> str:
    """Return a value in the notation of the language; *swept* values are a list."""
    word = qualifier(field, origin)
    if swept is not None:
        values = dict.fromkeys(float(v) for v in swept)
        return f"[{', '.join(literal(v, field.dimension) for v in values)}]{word}"
    match value:
        case bool():
            return "on" if value else "off"
        case str():
            return f'"{value}"' if field.kind == "text" else value
        case Curve():
            points = zip(value.sizes.tolist(), value.seconds.tolist(), strict=True)
            listed = (f"[{literal(n, BYTES)}, {literal(s, SECONDS)}]" for n, s in points)
            return f"curve({', '.join(listed)})"
        case tuple():
            return f"[{', '.join(map(str, value))}]"
        case _ if field.kind == "reference":
            return labels[id(value)]
        case _ if is_array(value):
            return _with_own_names(_expression(origin), study)
    return literal(float(value), field.dimension) + word


def _expression(origin: Origin | None) -> str:
    """Return the value as it was written."""
    if origin is not None and origin.expression:
        return origin.expression
    if origin is None or origin.span is None:
        return "?"
    return origin.span.text.partition("=")[2].partition("#")[0].strip()


def _provenance(origin: Origin | None) -> str:
    return "" if origin is None else provenance(origin.kind, origin.source)


def place_of(origin: Origin | None) -> str:
    """Return the place that sets a value: file and line, "default", or "set from outside"."""
    if origin is None:
        return ""
    if origin.how == "default":
        if origin.reason:
            return origin.reason
        plain = origin.expression.replace(".", "").replace("_", "").isalnum()
        return "default" if plain else f"default: {origin.expression}"
    if origin.span is None:
        return origin.how
    if origin.how == "set":
        return "set from outside"
    line, _ = origin.span.source.position(origin.span.start)
    return f"{origin.span.source.name}:{line}"
