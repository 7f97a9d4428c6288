"""Messages of syntax errors, in the words of users of .par files instead of grammar terms."""

from __future__ import annotations

import re
import unicodedata

_CLIP = 40

_SPELLED = {
    "NAME": "a name",
    "STRING": "a string",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "EQUAL": "`=`",
    "_COMMA": "`,`",
    "_COLON": "`:`",
    "AT": "`@`",
}
_VALUE = {"NAME", "NUMBER", "QUANTITY", "STRING", "LPAR", "LSQB", "MINUS", "NOT"}
_BODY = {"NAME", "STRING", "_NL"}

_INSTEAD = {
    "\r": "lines end with a newline, with or without a carriage return before it",
    ";": "items end with a new line or a comma",
    "'": 'write strings in double quotes: "..."',
    "“": 'write strings in straight double quotes: "..."',
    "”": 'write strings in straight double quotes: "..."',
    "%": "`%` is a unit, as in `41 %`, not the remainder of a division",
    "&": "write `&&` for and",
    "|": "write `||` for or",
    "$": "write names without `$`",
    "^": "the language has no power operator: write a product",
    "×": "write `*`",
    "·": "write `*`",
    "÷": "write `/`",
    "−": "write the ASCII minus, `-`",
    "–": "write the ASCII minus, `-`",
    "≤": "write `<=`",
    "≥": "write `>=`",
    "≠": "write `!=`",
}
_PAIRS = {
    "=>": "write `>=`",
    "=<": "write `<=`",
    "<>": "write `!=`",
    "**": "the language has no power operator: write a product",
    "//": "comments begin with `#`",
}
_WORD_OPERATORS = {"and": "write `&&` for and", "or": "write `||` for or"}


def describe_token(kind: str, text: str) -> str:
    """Return the name of a token for messages."""
    if kind == "_NL":
        return "end of line"
    if kind == "END":
        return "end of file"
    return f"`{text}`" if len(text) <= _CLIP else f"`{text[:_CLIP]}...`"


def describe_tokens(accepted: set[str]) -> str:
    """Return the list of expected tokens for messages, without improbable ones."""
    closers = [_SPELLED[kind] for kind in ("RSQB", "RPAR") if kind in accepted]
    if accepted >= _VALUE:
        return " or ".join(["a value", *closers])
    if "EQUAL" in accepted:
        return "`=`, `{` or the end of the line" if "_NL" in accepted else "`=` or `{`"
    if accepted >= _BODY:
        return "an attribute or a block"
    if "_NL" in accepted:
        return "a comma or the end of the line"
    if closers:
        return " or ".join([*["`,`"] * ("_COMMA" in accepted), *closers])
    kinds = [kind for kind in _SPELLED if kind in accepted]
    return " or ".join(_SPELLED[kind] for kind in kinds) or "an operator"


def syntax_hint(before: str, kind: str, text: str, accepted: set[str]) -> str | None:
    """Return a hint for syntax that belongs to another language, or None."""
    wants_value = accepted >= _VALUE
    if before + text in _PAIRS:
        return _PAIRS[before + text]
    if before.endswith("%"):
        return _INSTEAD["%"]
    if kind == "EQUAL" and "RELATION" in accepted:
        return "comparisons are written `==`"
    if kind == "_DOT" and wants_value:
        return "a number begins with a digit: `0.5`"
    if kind == "SLASH" and accepted >= _BODY:
        return "comments begin with `#`"
    if kind == "TOLERANCE":
        return "`+-` gives a claim its tolerance; the sum with a negative number is `+ -`"
    if kind == "PLUS" and wants_value:
        return "write positive numbers without a sign"
    if kind == "NAME" and before.endswith("}"):
        return "a comma or a new line separates blocks: `a { ... }, b { ... }`"
    if kind == "NAME":
        return _WORD_OPERATORS.get(text)
    return None


def describe_stray(character: str) -> tuple[str, str | None]:
    """Return the name of a character that is not in the language, and a hint.

    >>> describe_stray("≤")
    ('`≤` (U+2264, less-than or equal to)', 'write `<=`')
    """
    instead = _INSTEAD.get(character)
    if character.isascii() and character.isprintable():
        return f"`{character}`", instead
    name = unicodedata.name(character, "a control character").lower()
    described = f"U+{ord(character):04X}, {name}"
    if instead is None and character.isalpha():
        instead = "names are made of the letters a to z, digits and `_`"
    elif instead is None and character.isspace():
        instead = "write a normal space"
    if character.isprintable() and not character.isspace():
        return f"`{character}` ({described})", instead
    return described, instead


def begins_with_digit(text: str) -> bool:
    """Return whether a number looks like a name that starts with a digit, such as ``8b``.

    >>> begins_with_digit("8b"), begins_with_digit("8 b"), begins_with_digit("80")
    (True, False, False)
    """
    return re.fullmatch(r"[0-9]+[A-Za-z]+", text) is not None
