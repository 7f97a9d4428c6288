"""Specs over the whole vocabulary: every block and attribute, at the edges, alone and in pairs.

The generator knows the schema and nothing else: kinds, dimensions, ranges, words, qualifiers
and references of each attribute come from the installed plugins. What a study needs to be
evaluated at all is in the bases, a file of short specs that run.

    from spec_generator import Generator

    generator = Generator()
    for case in generator.singles():            # each attribute at each of its edges
        case.text                             # a spec
    generator.random(seed=7, number=3).text   # a few attributes at once, some of them in lists

A case depends on the seed and its number alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from pathlib import Path

from attrs import evolve, field, frozen

from parcost.contract.schema import BlockType, Field
from parcost.language import syntax as s
from parcost.language.parse import parse
from parcost.language.text import Source
from parcost.language.units import ONE, Dimension
from parcost.plugins.discovery import Plugins, load

BASES = Path(__file__).parent / "bases"

#: Where a block stands: its kind and label, after those of the block around it.
Place = tuple[tuple[str, str], ...]

#: The ends of the ranges that attributes declare, and magnitudes in between.
_SMALL = ("0", "1e-300", "1e-30", "1e-18", "1e-9", "0.001", "0.5", "1")
_LARGE = (
    "1.5",
    "2",
    "7",
    "64",
    "1000",
    "4096",
    "1e6",
    "1e9",
    "1e12",
    "1e15",
    "1e18",
    "1e30",
    "1e300",
)
_COUNTS = (0, 1, 2, 3, 5, 8, 64, 100, 1000, 4096, 65_537, 10**6, 10**9, 2**31, 10**15, 2**53)
_TEXTS = ('""', '"x"', '"node"', '"network"', '"compute"', '"tp-cp-dp-pp"', '"dp-pp-cp-tp"')
_TEXTS += ('"tp"', '"a b"', '"port"', '"\u6f22 \u202e"', '"layout.tp, schedule.kind"', '"a{b}%s"')
_SERIES = ("[0]", "[1]", "[2]", "[3, 1]", "[1, 1, 1, 1]", "[4, 4]", "[2, 2, 2]", "[0, 0]")
_SERIES += ("[2147483647]", "[1000000, 1000000]", "[1, 2, 3, 4, 5, 6, 7, 8]", "7")


@frozen
class Node:
    """A block as it will be written."""

    kind: str
    label: str = ""
    parent: str = ""  # of which it is an extension
    attributes: Mapping[str, str] = field(factory=dict)
    children: tuple[Node, ...] = ()

    def lines(self, indent: str = "") -> Iterator[str]:
        """Yield the lines of the block."""
        words = [self.kind, self.label, *(("extends", self.parent) if self.parent else ())]
        yield f"{indent}{' '.join(filter(None, words))} {{"
        for name, value in self.attributes.items():
            yield f"{indent}  {name} = {value}"
        for child in self.children:
            yield from child.lines(indent + "  ")
        yield indent + "}"


@frozen
class Spec:
    """A spec that may be changed and written."""

    name: str
    uses: tuple[str, ...]
    nodes: tuple[Node, ...]

    @property
    def text(self) -> str:
        """The spec as a file has it."""
        lines = [*self.uses, *(line for node in self.nodes for line in node.lines())]
        return "\n".join(lines) + "\n"

    @property
    def trains(self) -> bool:
        """Whether there is a step."""
        return any(node.kind == "training" for node in self.nodes)

    def with_value(self, place: Place, name: str, value: str) -> Spec:
        """Return the spec with *value* for the attribute *name* of the block at *place*."""
        return evolve(self, nodes=_with_value(self.nodes, place, name, value))

    def extending(self, place: Place, parent: str) -> Spec:
        """Return the spec where the outermost block of *place* extends *parent*."""
        nodes = (
            evolve(n, parent=parent) if (n.kind, n.label) == place[0] else n for n in self.nodes
        )
        return evolve(self, nodes=tuple(nodes))

    def places(self) -> Iterator[tuple[Place, Node]]:
        """Yield every block of the spec with where it stands."""
        yield from _places(self.nodes, ())


@frozen
class Case:
    """A spec of the generator, and what was set in it."""

    base: str
    set: tuple[tuple[Place, str, str], ...]
    text: str


def _with_value(nodes: tuple[Node, ...], place: Place, name: str, value: str) -> tuple[Node, ...]:
    (kind, label), *inner = place
    if not any((node.kind, node.label) == (kind, label) for node in nodes):
        nodes = (*nodes, Node(kind, label))
    return tuple(
        node
        if (node.kind, node.label) != (kind, label)
        else evolve(node, children=_with_value(node.children, tuple(inner), name, value))
        if inner
        else evolve(node, attributes={**node.attributes, name: value})
        for node in nodes
    )


def _places(nodes: tuple[Node, ...], outer: Place) -> Iterator[tuple[Place, Node]]:
    for node in nodes:
        here = (*outer, (node.kind, node.label))
        yield here, node
        yield from _places(node.children, here)


@cache
def bases() -> Mapping[str, Spec]:
    """Return the specs that cases start from, by name."""
    return {path.stem: read(path.stem, path.read_text()) for path in sorted(BASES.glob("*.par"))}


def read(name: str, text: str) -> Spec:
    """Return a spec as blocks whose attributes are text."""
    tree, found = parse(Source(name, text))
    assert not found, found
    uses = tuple(item.span.text for item in tree.items if isinstance(item, s.Statement))
    nodes = tuple(_node(item) for item in tree.items if isinstance(item, s.Block))
    return Spec(name, uses, nodes)


def _node(block: s.Block) -> Node:
    words = [word.text if isinstance(word, s.Path) else word.value for word in block.words]
    return Node(
        kind=block.kind.text,
        label=words[0] if words else "",
        parent=words[2] if len(words) > 2 else "",
        attributes={
            item.name.text: " ".join([item.value.span.text, *(q.text for q in item.qualifiers)])
            for item in block.items
            if isinstance(item, s.Attribute)
        },
        children=tuple(_node(item) for item in block.items if isinstance(item, s.Block)),
    )


@frozen(slots=False)
class Generator:
    """Writes specs by the schema of *plugins*."""

    plugins: Plugins = field(factory=load)

    @cached_property
    def types(self) -> Mapping[str, BlockType]:
        """Every block of the language, by keyword."""
        return self.plugins.blocks

    def singles(self, first: int = 0, every: int = 1) -> Iterator[Case]:
        """Yield each attribute at each of its edges, alone, then as the first of a list.

        Or one of *every* so many, from the *first* on.
        """
        for name, place, attribute, text in islice(self._edges(), first, None, every):
            yield _case(name, bases()[name], [(place, attribute, text)])

    def _edges(self) -> Iterator[tuple[str, Place, str, str]]:
        for name, spec in bases().items():
            for place, attribute, field_ in self.attributes(spec):
                texts = self.values(spec, field_)
                yield from ((name, place, attribute, text) for text in texts)
                listed = as_list(texts[1:4]) if len(texts) > 1 else None
                if listed is not None:
                    yield name, place, attribute, listed

    def random(self, seed: int, number: int, *, light: bool = False) -> Case:
        """Return a case with one to four attributes set, mostly a pair; some are lists.

        A *light* one has no step nine times out of ten, and takes a third of the time.
        """
        rng = random.Random(seed * 1_000_003 + number)
        names = tuple(bases())
        if light and rng.random() < 0.9:
            names = tuple(name for name in names if not bases()[name].trains)
        name = rng.choice(names)
        spec = bases()[name]
        slots = self._slots(name)
        chosen = [rng.choice(slots) for _ in range(rng.choice((1, 2, 2, 2, 3, 4)))]
        settings = [(place, attr, self._drawn(rng, spec, f)) for place, attr, f in chosen]
        return _case(name, spec, settings)

    def _drawn(self, rng: random.Random, spec: Spec, field_: Field) -> str:
        texts = self.values(spec, field_)
        if rng.random() < 0.2:
            several = as_list([rng.choice(texts) for _ in range(rng.choice((1, 2, 2, 3)))])
            if several is not None:
                return several
        return rng.choice(texts)

    @cache  # noqa: B019  one generator lives as long as its process
    def _slots(self, name: str) -> Sequence[tuple[Place, str, Field]]:
        return list(self.attributes(bases()[name]))

    def attributes(self, spec: Spec) -> Iterator[tuple[Place, str, Field]]:
        """Yield what may be set in *spec*: of blocks that it has, and of those it may have.

        A study that is trained may have every block that needs no label; a calculator by
        itself only has its own.
        """
        here = dict(spec.places())
        kinds = {place[-1][0] for place in here}
        for place in here:
            yield from self._attributes_of(place)
        if "training" not in kinds:
            return
        for kind, type_ in self.types.items():
            if kind not in kinds and type_.label != "required" and not type_.inside:
                yield from self._attributes_of(((kind, ""),))

    def _attributes_of(self, place: Place) -> Iterator[tuple[Place, str, Field]]:
        for name, field_ in self.types[place[-1][0]].fields.items():
            if field_.kind != "children":
                yield place, name, field_

    def values(self, spec: Spec, field_: Field) -> Sequence[str]:
        """Return values of an attribute at the edges of what it accepts, as they are written."""
        match field_.kind:
            case "switch":
                return ("on", "off")
            case "word":
                offered = self.plugins.offers(field_.registry) if field_.registry else ()
                return (*field_.choices, *offered)
            case "text":
                return _TEXTS
            case "integers":
                return _SERIES
            case "reference":
                return self._references(spec, field_.target)
        return _numbers(field_)

    def _references(self, spec: Spec, kind: str) -> Sequence[str]:
        own = [node.label for node in spec.nodes if node.kind == kind and node.label]
        used = [use.split()[1].rpartition(".")[2] for use in spec.uses if f"{kind}s." in use]
        return tuple(dict.fromkeys([*own, *used])) or ("nothing",)


def _numbers(field_: Field) -> Sequence[str]:
    """Return numbers at the ends of a range, just inside and outside, and between."""
    low, high = field_.minimum, field_.maximum
    if field_.whole:
        counts = [n for n in _COUNTS if high is None or n <= high]
        numbers = [str(n) for n in counts if low is None or n >= low]
        ends = [int(end) + step for end, step in ((low, -1), (high, 1)) if end is not None]
        numbers += [str(n) for n in (*ends, *([int(high)] if high is not None else ()))]
    else:
        every = (*_SMALL, *_LARGE)
        numbers = [n for n in every if high is None or float(n) <= high]
        numbers = [n for n in numbers if low is None or float(n) >= low]
        if field_.positive:
            numbers = [n for n in numbers if float(n) > 0]
        if high is not None:
            numbers += [repr(high), repr(high * 2)]
    unit = _unit(field_.dimension)
    words = list(field_.qualifiers)
    texts = []
    for i, number in enumerate(numbers):
        word = words[i % len(words)] if words and (field_.must_qualify or i % 2) else ""
        texts.append(" ".join(filter(None, (number, unit, word))))
    if field_.curve:
        word = f" {words[0]}" if words else ""
        texts += [f"curve([1 KiB, 10 us], [1 GiB, 10 ms]){word}", f"curve([1 B, 1 us]){word}"]
    return tuple(dict.fromkeys(texts))


def _unit(dimension: Dimension) -> str:
    if dimension == ONE:
        return ""
    return _UNITS.get(str(dimension), str(dimension))


_UNITS = {"FLOP/s": "FLOPS", "J/s": "W"}


def as_list(texts: Sequence[str]) -> str | None:
    """Return values as a list, with the word behind them where it is one, if there is a list."""
    if any(text.startswith(("[", "curve")) for text in texts):
        return None
    items, words = [], set[str]()
    for text in texts:
        number, _, rest = text.partition(" ")
        unit, _, word = rest.partition(" ")
        if text.startswith('"'):
            items.append(text)
            continue
        if rest and unit.isidentifier() and (unit in _DIRECTIONS or not word):
            known = unit in _DIRECTIONS
            items.append(number if known else f"{number} {unit}")
            words |= {unit} if known else set()
        else:
            items.append(f"{number} {unit}".strip())
            words |= {word} if word else set()
    if len(words) > 1:
        words = {min(words)}
    return " ".join([f"[{', '.join(items)}]", *words])


_DIRECTIONS = ("per_direction", "bidirectional", "dense", "sparse", "tokens", "sequences")
_DIRECTIONS += ("devices", "nodes", "units", "total", "shard")


def _case(name: str, spec: Spec, settings: Sequence[tuple[Place, str, str]]) -> Case:
    for place, attribute, text in settings:
        spec = spec.with_value(place, attribute, text)
    return Case(name, tuple(settings), spec.text)
