"""Glob patterns, as used by `case`, `==` and `${NAME%pattern}`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    items = list(_items(pattern))
    at = place = 0
    star, back = -1, 0
    while at < len(text):
        if place < len(items) and items[place] == "*":
            star, back = place, at
            place += 1
        elif place < len(items) and _is_one(items[place], text[at]):
            place, at = place + 1, at + 1
        elif star >= 0:
            back += 1
            place, at = star + 1, back
        else:
            return False
    return all(item == "*" for item in items[place:])


def _items(pattern: PatternText) -> Iterator[str | tuple[bool, PatternText]]:
    """Yield ``*``, ``?`` and sets of characters; a single character is a set of one."""
    at = 0
    while at < len(pattern):
        char, literal = pattern[at]
        at += 1
        if literal:
            yield (True, [(char, True)])
        elif char in "@!+?*" and pattern[at : at + 1] == [("(", False)]:
            raise ShellPatternError
        elif char in "*?":
            yield char
        elif char == "[" and (close := _find_closing(pattern, at)) > 0:
            inner = pattern[at:close]
            negated = bool(inner) and inner[0] in (("!", False), ("^", False))
            if any(one == ("[", False) for one in inner):
                raise ShellPatternError  # classes of characters
            yield (not negated, inner[1:] if negated else inner)
            at = close + 1
        else:
            yield (True, [(char, True)])


def _find_closing(pattern: PatternText, at: int) -> int:
    start = at + (pattern[at : at + 1] in ([("!", False)], [("^", False)]))
    return next(
        (place for place in range(start + 1, len(pattern)) if pattern[place] == ("]", False)), -1
    )


def _is_one(item: str | tuple[bool, PatternText], char: str) -> bool:
    if isinstance(item, str):
        return item == "?"
    wanted, chars = item
    found = False
    at = 0
    while at < len(chars):
        if at + 2 < len(chars) and chars[at + 1] == ("-", False):
            found = found or chars[at][0] <= char <= chars[at + 2][0]
            at += 3
        else:
            found = found or chars[at][0] == char
            at += 1
    return found == wanted


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
