"""A lexer for Pygments, by the tokens of the language: `pygmentize -l par FILE`, and Sphinx."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
)

from parcost.language.parse import tables

_KINDS = {
    "COMMENT": Comment.Single,
    "STRING": String.Double,
    "NUMBER": Number,
    "QUANTITY": Number,
    "UNTERMINATED": Error,
    "UNKNOWN": Error,
    "WS": Whitespace,
    "_NL": Whitespace,
    "AT": Name.Decorator,
}
_OPERATORS = {"EQUAL", "RELATION", "TOLERANCE", "PLUS", "MINUS", "STAR", "SLASH", "OR", "AND"}
_OPERATORS |= {"NOT", "_QUESTION", "_COLON"}
_WORDS = {"use", "requires", "let", "extends", "as"}


class ParLexer(Lexer):  # type: ignore[misc]  # Pygments has no types
    """Colours specs."""

    name = "Parcost"
    aliases = ["par", "parcost"]  # noqa: RUF012  as Pygments declares it
    filenames = ["*.par"]  # noqa: RUF012

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """Yield the offset, the token type and the text of every token."""
        matches = [m for m in tables().tokens.finditer(text) if m[0]]
        kinds = [match.lastgroup or "" for match in matches]
        meaningful = [at for at, kind in enumerate(kinds) if kind not in ("WS", "COMMENT")]
        after = dict(pairwise(meaningful))
        before = {second: first for first, second in pairwise(meaningful)}
        for at, match in enumerate(matches):
            kind = kinds[at]
            if kind == "NAME":
                behind = kinds[after[at]] if at in after else ""
                ahead = kinds[before[at]] if at in before else ""
                token = _name(match[0], ahead, behind, _rest(kinds, after, at))
            else:
                token = _KINDS.get(kind, Operator if kind in _OPERATORS else Punctuation)
            yield match.start(), token, match[0]


def _name(text: str, ahead: str, behind: str, rest: Sequence[str]) -> Any:
    """Return the token type of a name, by the tokens beside it and the *rest* of its item."""
    if ahead == "AT":
        return Name.Decorator
    if behind in ("EQUAL", "RELATION"):
        return Name.Attribute
    starts = ahead in ("", "_NL", "_COMMA", "LBRACE", "RBRACE")
    if text in _WORDS and behind in ("NAME", "STRING"):
        return Keyword
    if starts and "LBRACE" in rest:
        return Keyword.Type
    return Name.Function if behind == "LPAR" else Name


def _rest(kinds: Sequence[str], after: dict[int, int], at: int) -> list[str]:
    """Return the kinds of the next few tokens after *at* on its line."""
    found: list[str] = []
    while at in after and len(found) < 12:
        at = after[at]
        if kinds[at] in ("_NL", "EQUAL", "RBRACE"):
            break
        found.append(kinds[at])
    return found
