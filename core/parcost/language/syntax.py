"""The syntax tree: nodes with their spans. Spans are ignored by equality."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from attrs import field

from parcost.language.text import Span
from parcost.records import record


@record
class Name:
    """An identifier."""

    text: str
    span: Span = field(eq=False, repr=False)


@record
class Number:
    """A literal such as ``96``, ``400 Gbps`` or ``16 Mi``; *unit* is "" for a bare number.

    *text* is the digits as written (``1_000``, ``3.35``, ``1e12``), without the unit.
    """

    text: str
    unit: str
    span: Span = field(eq=False, repr=False)


@record
class Text:
    """A quoted string, without its quotes."""

    value: str
    span: Span = field(eq=False, repr=False)


@record
class Path:
    """A dotted name such as ``cluster.devices``; one part is a plain word."""

    parts: tuple[Name, ...]
    span: Span = field(eq=False, repr=False)

    @cached_property
    def text(self) -> str:
        """The path as written, without spaces."""
        first, *rest = self.parts
        return ".".join([first.text, *(part.text for part in rest)]) if rest else first.text


@record
class List:
    """``[a, b, c]``: a sweep, or a list for an attribute whose value is a list."""

    items: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@record
class Chain:
    """Operands joined by operators of one precedence, left to right.

    ``a - b + c`` is ``Chain((a, b, c), ("-", "+"))``; a chain of any length is one node, so that a
    long sum is not a deep tree. Precedences, tightest first: ``* /``, ``+ -``, comparisons (``< <=
    > >= == !=``, exactly one operator), ``&&``, ``||``.
    """

    operands: tuple[Expr, ...]
    operators: tuple[str, ...]
    span: Span = field(eq=False, repr=False)


@record
class Unary:
    """``-a`` or ``!a``."""

    operator: str
    operand: Expr
    span: Span = field(eq=False, repr=False)


@record
class Conditional:
    """``condition ? then : otherwise``."""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(eq=False, repr=False)


@record
class FunctionCall:
    """``function(arguments)``."""

    function: Name
    arguments: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


Expr = Number | Text | Path | List | Chain | Unary | Conditional | FunctionCall
Word = Path | Text


@record
class Provenance:
    """The source of a value: ``@measured("nccl-tests, 2024-06")``."""

    kind: Name
    source: Text | None
    span: Span = field(eq=False, repr=False)


@record
class Attribute:
    """``name = value qualifier* @provenance*``.

    *name* is a path, for overrides such as ``level.bandwidth``; in a block it has one part. *words*
    are the words before the name: ``let x = 3`` has words ``(let,)`` and name ``x``.
    """

    words: tuple[Name, ...]
    name: Path
    value: Expr
    qualifiers: tuple[Name, ...]
    provenance: tuple[Provenance, ...]
    span: Span = field(eq=False, repr=False)


@record
class Claim:
    """``name REL expression [+- expression]``, in an ``expect`` block.

    ``=`` with a tolerance is also a claim; ``=`` without a tolerance is an Attribute. *relation* is
    one of ``= == != < <= > >=``.
    """

    name: Path
    relation: str
    value: Expr
    tolerance: Expr | None
    span: Span = field(eq=False, repr=False)


@record
class Statement:
    """A line of words and strings: ``use catalog.devices.h100_sxm as h100``."""

    words: tuple[Word, ...]
    span: Span = field(eq=False, repr=False)


@record
class Block:
    """``kind word* @provenance* { ... }``.

    *words* are the label and the following words: ``model big extends small { ... }`` has kind
    ``model`` and words ``(big, extends, small)``. A file is a block whose kind is empty.
    """

    kind: Name
    words: tuple[Word, ...]
    provenance: tuple[Provenance, ...]
    items: tuple[Item, ...]
    span: Span = field(eq=False, repr=False)


Item = Attribute | Claim | Statement | Block


def parts_of(node: Item | Expr) -> Iterator[Item | Expr]:
    """Yield the parts of a node: items of a block, operands, arguments, value"""
    match node:
        case Block(items=parts) | List(items=parts):
            yield from parts
        case Chain(operands=parts) | FunctionCall(arguments=parts):
            yield from parts
        case Unary(operand=part) | Attribute(value=part):
            yield part
        case Claim(value=value, tolerance=tolerance):
            yield value
            if tolerance is not None:
                yield tolerance
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            yield from (condition, then, otherwise)
