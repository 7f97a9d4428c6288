"""Glob patterns, as used by `case`, `==` and `${NAME%pattern}`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

#: Characters of a pattern; a quoted one stands for itself.
PatternText: TypeAlias = Sequence[tuple[str, bool]]


class ShellPatternError(ValueError):
    """A pattern is not supported."""


def matches(pattern: PatternText, text: str) -> bool:
    """Return whether a pattern matches the whole *text*.

    >>> matches([("7", False), ("*", False)], "7b"), matches([("*", True)], "7b")
    (True, False)

    Raises:
        ShellPatternError: The pattern has an extended group, such as ``@(a|b)``.
    """
    return re.fullmatch(_regex(pattern), text, re.DOTALL) is not None


def _regex(pattern: PatternText) -> str:
    """Return a pattern as a regular expression that never backtracks into the text of a ``*``."""
    sections = [""]
    at = 0
    while at < len(pattern):
        char, literal = pattern[at]
        at += 1
        if not literal and char in "@!+?*" and pattern[at : at + 1] == [("(", False)]:
            raise ShellPatternError
        if literal or char not in "*?[":
            sections[-1] += re.escape(char)
        elif char == "*":
            sections.append("")
        elif char == "?":
            sections[-1] += "."
        elif (close := _find_end(pattern, at)) > 0:
            sections[-1] += _set(pattern[at:close])
            at = close + 1
        else:
            sections[-1] += re.escape(char)
    head, *rest = sections
    return (
        head
        + "".join(f"(?>.*?{one})" for one in rest[:-1])
        + "".join(f".*{one}" for one in rest[-1:])
    )


def _set(inner: PatternText) -> str:
    """Return a set of characters as a regular expression."""
    if any(one == ("[", False) for one in inner):
        raise ShellPatternError  # classes of characters
    negated = bool(inner) and inner[0] in (("!", False), ("^", False))
    chars = list(inner[negated:])
    found = ""
    while chars:
        first = last = chars.pop(0)[0]
        if len(chars) > 1 and chars[0] == ("-", False):
            last, chars = chars[1][0], chars[2:]
        found += f"{re.escape(first)}-{re.escape(last)}" if first <= last else ""
    if not found:
        return "." if negated else "(?!)"
    return f"[{'^' * negated}{found}]"


def _find_end(pattern: PatternText, at: int) -> int:
    start = at + (pattern[at : at + 1] in ([("!", False)], [("^", False)]))
    return next(
        (place for place in range(start + 1, len(pattern)) if pattern[place] == ("]", False)), -1
    )


def remove_match(text: str, pattern: PatternText, *, front: bool, longest: bool) -> str:
    """Return a text without the match at its front or end.

    Raises:
        ShellPatternError: The pattern is not supported, or the text is too long.
    """
    if len(text) > 500:
        raise ShellPatternError
    lengths = range(len(text) + 1)
    for length in reversed(lengths) if longest else lengths:
        part = text[:length] if front else text[len(text) - length :]
        if matches(pattern, part):
            return text[length:] if front else text[: len(text) - length]
    return text


def replace_matches(text: str, pattern: PatternText, new: str, *, how: str) -> str:
    """Return a text with matches replaced: the first, all (``/``), or at an end (``#``, ``%``).

    Raises:
        ShellPatternError: The pattern is not supported, or the text is too long.
    """
    if not pattern:
        return {"#": new + text, "%": text + new}.get(how, text)
    if len(text) > 300:
        if all(literal or char not in "*?[" for char, literal in pattern) and how in ("", "/"):
            plain = "".join(char for char, _ in pattern)
            return text.replace(plain, new, -1 if how == "/" else 1)
        raise ShellPatternError
    found: list[str] = []
    at = 0
    while at <= len(text):
        length = _longest_match(text, at, pattern, at_end=how == "%")
        if length and not (how == "#" and at):
            found.append(new)
            at += length
            if how != "/":
                break
        else:
            if how == "#":
                break
            found.append(text[at : at + 1])
            at += 1
    return "".join(found) + text[at:]


def _longest_match(text: str, at: int, pattern: PatternText, *, at_end: bool) -> int:
    ends = [len(text)] if at_end else range(len(text), at, -1)
    return next((end - at for end in ends if end > at and matches(pattern, text[at:end])), 0)
