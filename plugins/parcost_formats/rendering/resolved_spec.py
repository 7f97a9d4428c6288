"""The resolved spec: a study as a spec with every value written out.

Values parse to exactly the same numbers, and provenance is kept. A comment names the origin of
each value. In a sweep a value that depends on another axis is printed as its expression.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from parcost.binding.conversion import qualifier
from parcost.contract.calls import CallError, call
from parcost.contract.schema import (
    Curve,
    Field,
    block_name,
    block_type,
    inner_blocks,
    with_inner_blocks,
)
from parcost.language.errors import SpecError
from parcost.language.escapes import escape_lines
from parcost.language.numbers import literal, spec_text
from parcost.language.units import BYTES, SECONDS
from parcost.language.writer import SpecAttribute, block_lines, provenance
from parcost.numeric import is_array
from parcost.records import frozen

if TYPE_CHECKING:
    from parcost.contract.origin import Origin
    from parcost.contract.study import Study

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def render_spec(study: Study) -> str:
    """Return the spec of *study*: every block with every attribute.

    Blocks of the study's own file come first, in their order, then the blocks that they refer to.
    """
    texts = SpecTexts(study)
    parts = ["\n".join(lets)] if (lets := list(_lets(study))) else []
    for title, blocks in _by_place(study).items():
        if blocks:
            parts.append(
                f"# --- {title}: {len(blocks)} {'block' if len(blocks) == 1 else 'blocks'}"
            )
            parts += ["\n".join(texts.block(block)) for block in blocks]
    return escape_lines("\n\n".join(parts) + "\n")


@frozen
class AttributeText:
    """An attribute as written in a spec, and the origin of its value.

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
    texts = SpecTexts(study)
    labels = texts.labels
    common = labels.items() & _labels(other).items() if other is not None else set()
    return {
        f"{text.path}.{name}": attribute
        for block in _reachable_blocks(study)
        if not common.issuperset((id(b), labels[id(b)]) for b in _closure([block]))
        for text in texts.block_texts(block)
        for name, attribute in text.attributes.items()
        if attribute.text
    }


def block_texts(study: Study) -> Mapping[str, Sequence[BlockText]]:
    """Return all blocks by their relation to the study's file; inner blocks follow outer ones."""
    texts = SpecTexts(study)
    return {
        title: [text for block in blocks for text in texts.block_texts(block)]
        for title, blocks in _by_place(study).items()
        if blocks
    }


@frozen
class SpecBlock:
    """A block as written in a spec; *references* are (kind, label) of other blocks, by attribute.

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
    texts, blocks = SpecTexts(study, axes={}), _reachable_blocks(study)
    references = {id(block): _references(block) for block in blocks}
    referred = {id(other) for found in references.values() for other in found.values()}
    return [
        SpecBlock(
            block_type(type(block)).kind,
            texts.labels[id(block)],
            "\n".join(texts.block(block)),
            {
                name: (block_type(type(other)).kind, texts.labels[id(other)])
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
    texts = SpecTexts(study, axes={})
    found: dict[str, AttributeText] = {}
    starts = [b for blocks in study.blocks.values() for b in blocks if not texts.labels[id(b)]]
    waiting = [b for b in starts if block_type(type(b)).kind not in outside]
    seen = set(map(id, waiting))
    for block in waiting:
        found |= texts.values_in_use(block, block_type(type(block)).kind)
        for other in _references(block).values():
            if id(other) not in seen and block_type(type(other)).kind not in outside:
                seen.add(id(other))
                waiting.append(other)
    return found


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
    for one in with_inner_blocks(block):
        for name in attributes_of(one):
            origin = study.origin(one, name)
            if origin is not None and origin.how in ("given", "set"):
                yield origin.span.start if origin.span is not None and origin.how == "given" else 0


def _lets(study: Study) -> Iterator[str]:
    """Yield `let` lines for the names in expressions that depend on a sweep."""
    asked = [text for block in _reachable_blocks(study) for text in _expressions(block, study)]
    found: dict[str, str] = {}
    while asked:
        for path in _NAME.findall(asked.pop()):
            name = path if path in study.lets else path.partition(".")[0]
            if name in study.lets and name not in found:
                found[name] = study.lets[name]
                asked.append(found[name])
    for name, text in found.items():
        yield f"let {_flat(name)} = {_with_own_names(text, study)}"


def _expressions(block: Any, study: Study) -> Iterator[str]:
    """Yield the expressions of the values that follow from a sweep."""
    axes = dict(study.axes)
    for one in with_inner_blocks(block):
        for name, field in attributes_of(one).items():
            value = getattr(one, name)
            swept = field.kind == "quantity" and value is not None and is_array(value)
            if swept and f"{block_name(one)}.{name}" not in axes:
                yield _expression(study.origin(one, name))


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


class SpecTexts:
    """The blocks and values of a study in the notation of the language.

    *axes* are the values of its sweep. Values that no spec sets are unknown in a sweep, whose
    points may differ in them.
    """

    def __init__(self, study: Study, axes: Mapping[str, Any] | None = None) -> None:
        self._study = study
        self._axes = dict(study.axes) if axes is None else axes

    @cached_property
    def labels(self) -> Mapping[int, str]:
        """The label of each block by its id, unique among the blocks of a kind."""
        return _labels(self._study)

    def block(self, block: Any) -> list[str]:
        """Return the lines of a block with every attribute."""
        attributes = [self._attribute(block, name) for name in attributes_of(block)]
        inner = [line for child in inner_blocks(block) for line in self.block(child)]
        return block_lines(self._heading(block), attributes, inner)

    def block_texts(self, block: Any, prefix: str = "", owner: Any = None) -> Iterator[BlockText]:
        """Yield a block, and those inside of it, with their attributes as texts."""
        path = f"{prefix}{self._label(block) or block_type(type(block)).kind}"
        own: dict[str, AttributeText] = {}
        for name in attributes_of(block):
            entry, origin = self._attribute(block, name), self._study.origin(block, name)
            given = origin is not None and origin.how != "default"
            own[name] = (
                AttributeText(entry.value, _provenance(origin), entry.comment, given)
                if entry.is_set
                else AttributeText(place=entry.comment, implied=entry.value)
            )
        owner, title = owner or block, self._heading(block)
        yield BlockText(block=block, owner=owner, title=title, path=path, attributes=own)
        for child in inner_blocks(block):
            yield from self.block_texts(child, f"{path}.", owner)

    def values_in_use(self, block: Any, path: str) -> dict[str, AttributeText]:
        """Return the attributes of a block, except references, with the values in use."""
        found: dict[str, AttributeText] = {}
        for name, field in attributes_of(block).items():
            value, place, origin = getattr(block, name), "", self._study.origin(block, name)
            if field.kind == "reference":
                continue
            if _is_unset(value):
                value, place = self._resolve(block, name)
            text = "" if value is None else self.value(value, field)
            given = (origin is not None and origin.how != "default") or bool(place)
            found[f"{path}.{name}"] = AttributeText(text, place=place, is_given=given)
        for child in inner_blocks(block):
            found |= self.values_in_use(child, f"{path}.{self._label(child)}")
        return found

    def value(
        self, value: Any, field: Field, origin: Origin | None = None, swept: Any = None
    ) -> str:
        """Return a value in the notation of the language; *swept* values are a list."""
        word = qualifier(field, origin)
        if swept is not None:
            values = dict.fromkeys(float(v) for v in swept)
            return f"[{', '.join(literal(v, field.dimension) for v in values)}]{word}"
        match value:
            case bool():
                return str(spec_text(value))
            case str():
                return f'"{value}"' if field.kind == "text" else value
            case Curve():
                points = zip(value.sizes.tolist(), value.seconds.tolist(), strict=True)
                listed = (f"[{literal(n, BYTES)}, {literal(s, SECONDS)}]" for n, s in points)
                return f"curve({', '.join(listed)})"
            case tuple():
                return f"[{', '.join(map(str, value))}]"
            case _ if field.kind == "reference":
                return self.labels[id(value)]
            case _ if is_array(value):
                return _with_own_names(_expression(origin), self._study)
        return literal(float(value), field.dimension) + word

    def _label(self, block: Any) -> str:
        label: str = self.labels.get(id(block), block.label)
        return label

    def _heading(self, block: Any) -> str:
        return " ".join(filter(None, (block_type(type(block)).kind, self._label(block))))

    def _attribute(self, block: Any, name: str) -> SpecAttribute:
        value, field = getattr(block, name), block_type(type(block)).fields[name]
        if _is_unset(value):
            value, reason = self._resolve(block, name)
            text = "" if value is None else self.value(value, field)
            return SpecAttribute(name, text, reason, is_set=False)
        origin = self._study.origin(block, name)
        text = self.value(value, field, origin, self._axes.get(f"{block_name(block)}.{name}"))
        return SpecAttribute(name, f"{text}{_provenance(origin)}", place_of(origin))

    def _resolve(self, block: Any, name: str) -> tuple[Any, str]:
        """Return the value in use of an attribute that no spec sets, and the reason, or None."""
        function = block_type(type(block)).resolvers.get(name)
        if function is None or self._axes:
            return None, ""
        try:
            found: tuple[Any, str] = call(partial(function, self._study))
        except (CallError, SpecError):  # such as a study without a framework
            return None, ""
        return found


def _is_unset(value: Any) -> bool:
    return value is None or (isinstance(value, tuple) and not value)


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
    """Return the place that sets a value: file and line, "default", or "override"."""
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
        return "override"
    line, _ = origin.span.source.position(origin.span.start)
    return f"{origin.span.source.name}:{line}"


def attributes_of(block: object) -> Mapping[str, Field]:
    """Return the attributes of a block by name, except those whose values are blocks."""
    fields = block_type(type(block)).fields
    return {name: field for name, field in fields.items() if field.kind != "children"}
