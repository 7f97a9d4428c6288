"""Schemas of blocks: plugins declare each block as a class.

    @block("level", inside="fabric", label="required")
    class Level:
        "One level of a fabric, from the fastest outwards."

        size: Real = integer(minimum=1, doc="devices that one unit of the level joins")
        bandwidth: Rate = quantity(RATE, qualifiers=DIRECTION, curve=True, doc="per device")
        latency: Real = quantity(SECONDS, default=0.0, doc="start-up time of a message")

The class is the schema, the documentation and the static type of ``study[Fabric]``. Every attribute
has a documentation line, a dimension and a default. The language reference and ``parcost show`` use
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache, cached_property
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, dataclass_transform

import attrs

from parcost.contract.queries import READS
from parcost.language.units import ONE, Dimension
from parcost.records import frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parcost.numeric import Real

T = TypeVar("T")

#: A function from a study to the value of an attribute that no spec gives, and its reason.
Resolver: TypeAlias = "Callable[[Any], tuple[Any, str]]"

_KEY = "parcost"
_AXES = " axes"  # in the dictionary of a block: its attributes on axes
REQUIRED: Any = attrs.NOTHING


@frozen(eq=False)
class Curve:
    """Measured points: message sizes in bytes, and the seconds that one message takes.

    It can replace a bandwidth. Between points the time is interpolated linearly in log-log;
    outside, the bandwidth of the nearest segment is used.
    """

    sizes: NDArray[np.float64]
    seconds: NDArray[np.float64]


#: A bandwidth in bytes per second, or measured points in place of one.
Rate: TypeAlias = "Real | Curve"


@frozen(kw_only=True)
class Field:
    """The declaration of one attribute."""

    kind: str  # quantity, word, switch, text, reference, integers, children
    doc: str
    dimension: Dimension = ONE
    minimum: float | None = None
    maximum: float | None = None
    positive: bool = False
    whole: bool = False
    structural: bool = False
    qualifiers: Mapping[str, float | str] = {}
    must_qualify: bool = False
    curve: bool = False
    choices: tuple[str, ...] = ()
    registry: str = ""
    target: str = ""


@frozen(kw_only=True, slots=False)
class BlockType:
    """The declaration of one kind of block."""

    kind: str
    label: str  # "required", "optional" or "none"
    inside: str
    schema: type
    fields: Mapping[str, Field]
    defaults: Mapping[str, Any]  # as declared: a value, None, or an expression
    aliases: Mapping[str, str] = MappingProxyType({})  # names of other tools, and those of here
    any_of: Mapping[tuple[str, ...], str] = MappingProxyType({})  # attributes that rules ask for
    example: str = ""  # a block to copy, on one line
    used_with: Mapping[tuple[str, ...], str] = MappingProxyType({})  # what attributes wait for
    resolvers: dict[str, Resolver] = attrs.field(factory=dict)  # of attributes without a value

    @cached_property
    def may_be_implied(self) -> bool:
        """Whether every study has such a block, even if no file contains it."""
        complete = all(name in self.defaults for name in self.fields)
        return complete and self.label == "none" and not self.inside

    @cached_property
    def children(self) -> Sequence[str]:
        """The attributes that contain inner blocks."""
        return [name for name, field in self.fields.items() if field.kind == "children"]

    @cached_property
    def needs(self) -> Mapping[str, tuple[str, ...]]:
        """The conditions under which attributes have an effect, by name; conditions of the whole
        block come first.
        """
        every = tuple(text for names, text in self.used_with.items() if not names)
        own = {name: (text,) for names, text in self.used_with.items() for name in names}
        found = {name: every + own.get(name, ()) for name in self.fields}
        return {name: needs for name, needs in found.items() if needs}


def resolver(schema: type, name: str) -> Callable[[Resolver], Resolver]:
    """Declare the function that computes the attribute *name* if no spec sets it.

    The default of the attribute is None. The function has a study as argument. It returns the value
    in use and the reason: ``("on", "by framework fsdp2")``. ``parcost show`` prints both.
    """

    def make(function: Resolver) -> Resolver:
        block_type(schema).resolvers[name] = function
        return function

    return make


def quantity(
    dimension: Dimension,
    *,
    doc: str,
    default: Any = REQUIRED,
    minimum: float | None = 0.0,
    maximum: float | None = None,
    positive: bool = False,
    qualifiers: Mapping[str, float | str] | None = None,
    must_qualify: bool = False,
    curve: bool = False,
) -> Any:
    """Declare a number with a dimension; it is an array in a sweep.

    *qualifiers* maps words after the value to factors on it (``{"per_direction": 1,
    "bidirectional": 0.5}``); with *must_qualify*, a missing qualifier is an error that lists the
    choices. *curve* allows measured points in place of the number. A *default* that is a string is
    an expression of the language in the block's own scope: ``default="hidden / heads"``; None is
    "not given". A qualifier whose factor is a string divides by that attribute of the block:
    ``{"sequences": 1, "tokens": "sequence"}``. A dimension of bytes per second accepts bits per
    second and converts.
    """
    return _field(
        default,
        Field(
            kind="quantity",
            doc=doc,
            dimension=dimension,
            minimum=minimum,
            maximum=maximum,
            positive=positive,
            qualifiers=qualifiers or {},
            must_qualify=must_qualify,
            curve=curve,
        ),
    )


def fraction(
    *,
    doc: str,
    default: Any = REQUIRED,
    maximum: float | None = 1.0,
    positive: bool = False,
) -> Any:
    """Declare a fraction, written as a plain number or in percent; *positive* excludes 0."""
    return quantity(ONE, doc=doc, default=default, maximum=maximum, positive=positive)


def integer(
    *,
    doc: str,
    default: Any = REQUIRED,
    minimum: float | None = 1.0,
    maximum: float | None = None,
    structural: bool = False,
    qualifiers: Mapping[str, float | str] | None = None,
    must_qualify: bool = False,
) -> Any:
    """Declare a whole number, bound as a float so that formulas stay exact to 2**53.

    *structural* numbers set the shape of the evaluation (stages, chunks): they are plain Python
    ints in the block, and a sweep over one is evaluated value by value.
    """
    return _field(
        default,
        Field(
            kind="quantity",
            doc=doc,
            minimum=minimum,
            maximum=maximum,
            whole=True,
            structural=structural,
            qualifiers=qualifiers or {},
            must_qualify=must_qualify,
        ),
    )


def word(*choices: str, doc: str, default: Any = REQUIRED, registry: str = "") -> Any:
    """Declare a word from a list of choices.

    With *registry*, the names that plugins register under that hook (``schedules``,
    ``collectives``, ``kernels``) are choices too.
    """
    return _field(default, Field(kind="word", doc=doc, choices=choices, registry=registry))


def switch(*, doc: str, default: Any = REQUIRED) -> Any:
    """Declare ``on`` or ``off``, bound as a bool."""
    return _field(default, Field(kind="switch", doc=doc, choices=("on", "off")))


def string(*, doc: str, default: Any = REQUIRED) -> Any:
    """Declare a quoted string."""
    return _field(default, Field(kind="text", doc=doc))


def reference(target: str, *, doc: str, default: Any = REQUIRED) -> Any:
    """Declare a reference to a block of kind *target*, bound as its object.

    ``default="model"`` refers to the only block of that kind.
    """
    return _field(default, Field(kind="reference", doc=doc, target=target))


def integers(*, doc: str, default: Any = REQUIRED, minimum: float = 0.0) -> Any:
    """Declare a list of whole numbers, bound as a tuple of ints; a list must not be empty."""
    return _field(default, Field(kind="integers", doc=doc, minimum=minimum, structural=True))


def children(target: str, *, doc: str) -> Any:
    """Declare the nested blocks of kind *target*, bound as a tuple in file order."""
    return _field((), Field(kind="children", doc=doc, target=target))


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(
        quantity,
        fraction,
        integer,
        word,
        switch,
        string,
        reference,
        integers,
        children,
    ),
)
def block(
    kind: str,
    *,
    label: str = "optional",
    inside: str = "",
    aliases: Mapping[str, str] = MappingProxyType({}),
    any_of: Mapping[tuple[str, ...], str] = MappingProxyType({}),
    example: str = "",
    used_with: Mapping[tuple[str, ...], str] = MappingProxyType({}),
) -> Callable[[type[T]], type[T]]:
    """Make a class the schema of the blocks called *kind*.

    *label* is "required", "optional" or "none"; *inside* is the kind of the outer block, if the
    block is nested. A labelled block's object has its label as ``.label``. *aliases* maps names in
    other tools, or in earlier versions, to attributes: ``{"vocab_size": "vocabulary"}``. *any_of*
    are groups of attributes of which rules need one, each with a help text. *example* is a block to
    copy, printed if a study has none. *used_with* has the conditions for attributes to have an
    effect: ``{("chunks",): "`overlap.tensor = pipelined`"}``; the key ``()`` stands for all other
    attributes. If a spec sets such an attribute and no plugin reads it, a warning has this help
    text.
    """

    def make(cls: type[T]) -> type[T]:
        own = {name: part for name, part in vars(cls).items() if _KEY in _metadata(part)}
        for name in own:  # so that a block has no value of an attribute on an axis
            delattr(cls, name)
        these = {**own, "label": attrs.field(default="")}
        cls.__repr__ = _block_text  # type: ignore[method-assign]
        made: type[T] = frozen(cls, these=these, kw_only=True, eq=False, repr=False)
        declared = {name: _metadata(part)[_KEY] for name, part in own.items()}
        fields = {name: field for name, (field, _) in declared.items()}
        defaults = {name: value for name, (_, value) in declared.items() if value is not REQUIRED}
        base: BlockType | None = getattr(cls, "__block__", None)
        made.__block__ = BlockType(  # type: ignore[attr-defined]
            kind=kind,
            label=label,
            inside=inside,
            schema=made,
            fields={**(base.fields if base else {}), **fields},
            defaults={**(base.defaults if base else {}), **defaults},
            aliases=aliases,
            any_of=any_of,
            example=example,
            used_with=used_with,
        )
        return made

    return make


def new_block(schema: type[T], values: Mapping[str, Any]) -> T:
    """Return a block with *values* for all of its attributes, and its label.

    This does not call the class, because constructors of most blocks are never used.
    """
    made = object.__new__(schema)
    vars(made).update(values)
    return made


def block_type(schema: type) -> BlockType:
    """Return the declaration of the block class *schema*."""
    found: BlockType = schema.__block__  # type: ignore[attr-defined]
    return found


def block_name(block: object) -> str:
    """Return the name of a block in paths: its label, or its kind if it has no label."""
    label: str = vars(block)["label"]
    return label or block_type(type(block)).kind


def inner_blocks(block: object) -> Iterator[Any]:
    """Yield the blocks inside a block."""
    for name in block_type(type(block)).children:
        yield from getattr(block, name)


def with_inner_blocks(block: object) -> Iterator[Any]:
    """Yield a block, then all blocks inside it at every depth."""
    yield block
    for child in inner_blocks(block):
        yield from with_inner_blocks(child)


def on_axes(block: T, values: Mapping[str, Any], axes: Mapping[str, tuple[str, Any]]) -> T:
    """Return a copy of *block* with new *values*; reads of attributes on *axes* are recorded.

    *axes* maps an attribute to the name of its axis and the hash key of its value. Such an
    attribute is removed from the dictionary of the block, so that reading all others costs nothing
    extra.
    """
    found = copy(block)
    own = vars(found)
    own.update(values)
    if axes:
        placed = {name: (*axis, own.pop(name)) for name, axis in axes.items()}
        own[_AXES] = {**own.get(_AXES, {}), **placed}
        schema: type = type(block)
        object.__setattr__(found, "__class__", _class_on_axes(schema))
    return found


def change_values(
    blocks: Mapping[type, tuple[Any, ...]], change: Callable[[Any], Mapping[str, Any]]
) -> tuple[dict[type, tuple[Any, ...]], Mapping[int, Any]]:
    """Return *blocks*, each with the new values that ``change(block)`` returns, inner ones too.

    A block without changes is returned unchanged, and a block in two places stays one object. The
    second result has the new block of each block, by the id of the old one.
    """
    made: dict[int, Any] = {}

    def change_one(block: Any) -> Any:
        if id(block) not in made:
            held = vars(block)
            new = {name: v for name, v in change(block).items() if v is not held[name]}
            for name in block_attributes(block.__class__):
                value = held.get(name)
                if value.__class__ is tuple:
                    items = tuple(map(change_one, value))
                    if not all(map(is_, items, value)):
                        new[name] = items
                elif value is not None and (inner := change_one(value)) is not value:
                    new[name] = inner
            made[id(block)] = on_axes(block, new, {}) if new else block
        return made[id(block)]

    return {schema: tuple(map(change_one, found)) for schema, found in blocks.items()}, made


@cache
def block_attributes(schema: type) -> Sequence[str]:
    """Return the names of the attributes whose values are blocks: references and inner blocks."""
    fields = block_type(schema).fields.items()
    return [name for name, field in fields if field.kind in ("children", "reference")]


@cache
def _class_on_axes(schema: type) -> type:
    """Return the class of blocks with attributes on axes; reads of all other attributes have no
    overhead.
    """
    if "__getattr__" in vars(schema):
        return schema
    return type(schema.__name__, (schema,), {"__getattr__": _on_axis})


def _on_axis(block: object, name: str) -> Any:
    """Return the value of attribute *name*, which is on an axis, and record the read."""
    try:
        axis, key, value = vars(block)[_AXES][name]
    except KeyError:
        message = f"`{type(block).__name__}` has no attribute `{name}`"
        raise AttributeError(message, name=name, obj=block) from None
    reads = READS.get()
    if reads is not None:
        reads.record(axis, key)
    return value


def _block_text(block: object) -> str:
    """Return the repr of a block in the style of attrs, without compiling one for each class."""
    values = (f"{name}={value!r}" for name, value in vars(block).items())
    return f"{type(block).__qualname__}({', '.join(values)})"


def _field(default: Any, field: Field) -> Any:
    return attrs.field(default=default, metadata={_KEY: (field, default)})


def _metadata(part: Any) -> Mapping[str, Any]:
    """Return the metadata of a member of a class that is not created yet; empty if it is not a
    field.
    """
    found: Mapping[str, Any] = getattr(part, "metadata", {})
    return found
