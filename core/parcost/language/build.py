"""Builds the nodes of the syntax tree: one method for each rule of the grammar."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

from attrs import evolve

from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, problem
from parcost.language.lalr import Token
from parcost.language.text import Source, Span

#: The levels that a token opens or closes; the last tokens of operands.
BRACKETS = {"LPAR": 1, "LSQB": 1, "RPAR": -1, "RSQB": -1}
BRACES = {"LBRACE": 1, "RBRACE": -1}
OPERANDS = {"NAME", "NUMBER", "QUANTITY", "STRING", "RPAR", "RSQB"}
_UNIT = ascii_letters + "/%µμ"
_COMPOUND = (s.Chain, s.Unary, s.Conditional)


def split_quantity(text: str) -> tuple[str, str]:
    """Return the number and the unit of a quantity.

    >>> split_quantity("1e3GB/s")
    ('1e3', 'GB/s')
    """
    digits = text.rstrip(_UNIT)
    return digits.rstrip(" \t"), text[len(digits) :].replace("μ", "µ")  # Greek to micro


class Builder:
    """Builds the syntax tree of one file: one method for each rule.

    A method gets the values of the rule's parts in order: nodes, tokens and, for the body of a
    block, a list of items. Only at the start of an item the grammar accepts more words than the
    language. Errors in them are added to ``diagnostics``; the method returns None, and the body
    omits the item.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []

    # Items

    def start(self, parts: list[Any]) -> s.Block:
        """Make the root block of the file."""
        whole = Span(self.source, 0, len(self.source.text))
        return s.Block(s.Name("", Span(self.source, 0, 0)), (), (), tuple(parts[0]), whole)

    def body(self, parts: list[Any]) -> list[s.Item]:
        """Make the list of items between braces."""
        return [item for item in parts if item is not None] if self.diagnostics else parts

    def block(self, parts: list[Any]) -> s.Block | None:
        """Make ``kind word* provenance* { ... }``."""
        *head, _, body, close = parts
        words = tuple(part for part in head if type(part) is not s.Provenance)
        kind = self._plain(words[0], "a block begins with its kind")
        if kind is None:
            return None
        span = Span(self.source, kind.span.start, close.end())
        return s.Block(kind, words[1:], tuple(head[len(words) :]), tuple(body), span)

    def attribute(self, parts: list[Any]) -> s.Attribute | None:
        """Make ``word* name = value qualifier* provenance*``."""
        equal = 1
        while type(parts[equal]) in (s.Path, s.Text):
            equal += 1
        *before, name = parts[:equal]
        words = [self._plain(word, "an attribute begins with plain words") for word in before]
        if None in words or not self._is_path(name):
            return None
        value, *after = parts[equal + 1 :]
        provenance = [part for part in after if type(part) is s.Provenance]
        qualifiers = [self._name(token) for token in after[: len(after) - len(provenance)]]
        last = (provenance or qualifiers or [value])[-1]
        return s.Attribute(
            tuple(words),  # type: ignore[arg-type]  # none of them is None
            name,
            value,
            tuple(qualifiers),
            tuple(provenance),
            Span(self.source, parts[0].span.start, last.span.end),
        )

    def claim(self, parts: list[Any]) -> s.Claim | None:
        """Make ``name REL value [+- tolerance]``."""
        name, relation, *rest = parts
        if type(relation) in (s.Path, s.Text):
            self._wrong(
                "a claim begins with one name", relation.span, "a second word is not allowed"
            )
            return None
        if not self._is_path(name):
            return None
        tolerance = rest[2] if len(rest) > 1 else None
        span = Span(self.source, name.span.start, rest[-1].span.end)
        return s.Claim(name, relation[0], rest[0], tolerance, span)

    def statement(self, parts: list[Any]) -> s.Statement | None:
        """Make a statement: a line of words and strings."""
        if self._plain(parts[0], "a statement begins with a plain word") is None:
            return None
        return s.Statement(tuple(parts), parts[0].span.to(parts[-1].span))

    def provenance(self, parts: list[Any]) -> s.Provenance:
        """Make ``@kind("source")``."""
        source = self.text(parts[3:4]) if len(parts) > 2 else None
        span = Span(self.source, parts[0].start(), parts[-1].end())
        return s.Provenance(self._name(parts[1]), source, span)

    # Expressions

    def path(self, parts: list[Token]) -> s.Path:
        """Make ``a.b.c``."""
        if len(parts) == 1:  # most are
            name = self._name(parts[0])
            return s.Path((name,), name.span)
        names = tuple([self._name(token) for token in parts])
        return s.Path(names, names[0].span.to(names[-1].span))

    def text(self, parts: list[Token]) -> s.Text:
        """Make a string, without its quotes."""
        (token,) = parts
        return s.Text(token[0][1:-1], self._span(token))

    def number(self, parts: list[Token]) -> s.Number:
        """Make a plain number."""
        (token,) = parts
        return s.Number(token[0], "", self._span(token))

    def quantity(self, parts: list[Token]) -> s.Number:
        """Make a number with a unit."""
        (token,) = parts
        return s.Number(*split_quantity(token[0]), self._span(token))

    def conditional(self, parts: list[s.Expr]) -> s.Conditional:
        """Make ``condition ? then : otherwise``."""
        condition, then, otherwise = parts
        return s.Conditional(condition, then, otherwise, condition.span.to(otherwise.span))

    def chain(self, parts: list[Any]) -> s.Chain:
        """Make operands joined by operators of one precedence."""
        operators = tuple([token[0] for token in parts[1::2]])
        return s.Chain(tuple(parts[::2]), operators, parts[0].span.to(parts[-1].span))

    disjunction = conjunction = comparison = sum = product = chain

    def unary(self, parts: list[Any]) -> s.Unary:
        """Make ``-a`` or ``!a``."""
        operator, operand = parts
        span = Span(self.source, operator.start(), operand.span.end)
        return s.Unary(operator[0], operand, span)

    def call(self, parts: list[Any]) -> s.FunctionCall:
        """Make ``function(arguments)``."""
        function = self._name(parts[0])
        span = Span(self.source, function.span.start, parts[-1].end())
        return s.FunctionCall(function, tuple(parts[2:-1]), span)

    def sequence(self, parts: list[Any]) -> s.List:
        """Make ``[a, b, c]``."""
        return s.List(tuple(parts[1:-1]), Span(self.source, parts[0].start(), parts[-1].end()))

    def group(self, parts: list[Any]) -> s.Expr:
        """Make ``(a)``: the inner expression, whose span includes the parentheses if compound."""
        opened, inner, closed = parts
        if type(inner) not in _COMPOUND:
            return inner  # type: ignore[no-any-return]
        return evolve(inner, span=Span(self.source, opened.start(), closed.end()))  # type: ignore[no-any-return]

    # Parts of nodes

    def _span(self, token: Token) -> Span:
        return Span(self.source, token.start(), token.end())

    def _name(self, token: Token) -> s.Name:
        return s.Name(token[0], Span(self.source, token.start(), token.end()))

    def _plain(self, word: s.Word, rule: str) -> s.Name | None:
        if type(word) is s.Path and len(word.parts) == 1:
            return word.parts[0]
        what = "a quoted string" if type(word) is s.Text else "a path"
        self._wrong(rule, word.span, f"this is {what}")
        return None

    def _is_path(self, word: s.Word) -> bool:
        if type(word) is s.Path:
            return True
        self._wrong("write names without quotes", word.span, "expected a name")
        return False

    def _wrong(self, message: str, span: Span, label: str) -> None:
        self.diagnostics.append(problem("syntax", message, span, label))
