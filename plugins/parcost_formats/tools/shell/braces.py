"""Brace expansion of a word: ``{a,b}`` and ``{1..4}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from parcost_formats.tools.shell.nodes import WordPart
from parcost_formats.tools.shell.words import ShellTextError

_RANGE = re.compile(r"(-?\d{1,18}|[A-Za-z])\.\.(-?\d{1,18}|[A-Za-z])(?:\.\.(-?\d{1,9}))?")
_DEEPEST = 30
MOST_PIECES = 300_000
TOO_MUCH = "references and loops in this file expand to too much text"


def expand_braces(
    parts: Sequence[WordPart], count: Callable[[int], None]
) -> Sequence[Sequence[WordPart]]:
    """Return the words of a brace expansion such as ``{a,b}`` or ``{1..4}``.

    *count* is called with numbers of pieces, and raises if there are too many.
    """
    plain = "".join(part.text for part in parts if part.kind == "text" and not part.quoted)
    if "{" not in plain or "}" not in plain or ("," not in plain and ".." not in plain):
        return [parts]
    items: list[WordPart] = []
    for part in parts:
        if part.kind != "text" or part.quoted:
            items.append(part)
            continue
        exact = len(part.text) == part.end - part.start
        for at, char in enumerate(part.text):
            start = part.start + at if exact else part.start
            items.append(WordPart("text", char, start, start + 1 if exact else part.end))
    listed = _alternatives(items, 0, count)
    count(sum(map(len, listed)))
    return [_join_parts(one) for one in listed]


def _alternatives(
    items: Sequence[WordPart], depth: int, count: Callable[[int], None]
) -> list[list[WordPart]]:
    """Return the words that the braces of a word stand for, each as its parts."""
    if depth > _DEEPEST:
        raise ShellTextError("braces are nested too deeply", 0, 1)
    count(len(items))
    for opening, (commas, closing) in sorted(_braces(items).items()):
        item = items[opening]
        inner = items[opening + 1 : closing]
        if commas:
            edges = [opening, *commas, closing]
            chosen = [
                found
                for left, right in pairwise(edges)
                for found in _alternatives(items[left + 1 : right], depth + 1, count)
            ]
        else:
            numbers = _range("".join(part.text for part in inner))
            if numbers is None or any(part.kind != "text" for part in inner):
                continue
            place = (item.start, items[closing].end)
            count(len(numbers))
            chosen = [[WordPart("text", one, *place)] for one in numbers]
        behind = _alternatives(items[closing + 1 :], depth + 1, count)
        total = sum(map(len, chosen)) * len(behind) + sum(map(len, behind)) * len(chosen)
        count(total + len(chosen) * len(behind) * (opening + 1))
        return [[*items[:opening], *one, *rest] for one in chosen for rest in behind]
    return [list(items)]


def _is_sign(part: WordPart, sign: str) -> bool:
    return part.kind == "text" and not part.quoted and part.text == sign


def _braces(items: Sequence[WordPart]) -> dict[int, tuple[list[int], int]]:
    """Return the commas and the end of each brace, by the index of its start."""
    found: dict[int, tuple[list[int], int]] = {}
    stack: list[tuple[int, list[int]]] = []
    for at, item in enumerate(items):
        if _is_sign(item, "{"):
            stack.append((at, []))
        elif stack and _is_sign(item, "}"):
            opening, commas = stack.pop()
            found[opening] = (commas, at)
        elif stack and _is_sign(item, ","):
            stack[-1][1].append(at)
    return found


def _range(text: str) -> Sequence[str] | None:
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last, step = found.groups()
    if first.isalpha() != last.isalpha():
        return None
    letters = first.isalpha()
    one, other = (ord(first), ord(last)) if letters else (int(first), int(last))
    stride = max(abs(int(step or 1)), 1)
    if abs(one - other) // stride > MOST_PIECES:
        raise ShellTextError(TOO_MUCH, 0, 1)
    numbers = range(one, other + (1 if other >= one else -1), stride if other >= one else -stride)
    if letters:
        return [chr(number_of) for number_of in numbers]
    padded = any(re.fullmatch(r"-?0\d+", text) for text in (first, last))
    width = max(len(first), len(last)) if padded else 0
    return [f"{number_of:0{width}d}" for number_of in numbers]


def _join_parts(parts: Sequence[WordPart]) -> Sequence[WordPart]:
    found: list[WordPart] = []
    for part in parts:
        last = found[-1] if found else None
        if (
            last is not None
            and last.kind == part.kind == "text"
            and not (last.quoted or part.quoted)
        ):
            found[-1] = WordPart("text", last.text + part.text, last.start, part.end)
        else:
            found.append(part)
    return found
