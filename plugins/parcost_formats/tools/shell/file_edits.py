"""Texts of files after simple edits of a shell script: ``sed``, ``jq`` and ``envsubst``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

LONGEST = 65_536  # characters of a file that is edited
_LONGEST_WORD = 1000  # characters of a replacement or of an expression of jq
_MOST_REPEATS = 2  # of `*` and `+` in a pattern: more of them may take long
_MOST_STEPS = 3 * 10**7  # of all expressions: a line of n characters takes n^2 with one repeat
_PLAIN = re.compile(r"[\w \t\"',:=/<>~!@#%;&-]")
_SET = re.compile(r"\[\^?[\w .\"',:/-]+\]|\[\^?\"\]")
_ASSIGNMENT = re.compile(r"\s*((?:\.[A-Za-z_]\w*)+)\s*=\s*(.+?)\s*", re.DOTALL)
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


def edit_by_sed(text: str, words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """Return the text after ``sed -i`` with plain substitutions, and the files that it edits.

    *words* are the words after ``sed``. Return None for other expressions.

    >>> edit_by_sed('{"stage": 2}', ["-i", 's/"stage": [0-9]*/"stage": 3/', "ds.json"])
    ('{"stage": 3}', ['ds.json'])
    """
    expressions: list[str] = []
    operands: list[str] = []
    extended = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-e", "--expression") and rest:
            expressions.append(rest.pop(0))
        elif word in ("-E", "-r", "--regexp-extended", "-iE", "-Ei", "-ri", "-ir"):
            extended = True
        elif word in ("-i", "--in-place", "") or re.fullmatch(r"-i\.\w+", word):
            continue
        elif word.startswith("-"):
            return None
        else:
            operands.append(word)
    if not expressions:
        expressions = operands[:1]
        operands = operands[1:]
    if not operands or len(text) > LONGEST:
        return None
    left = _MOST_STEPS
    for expression in expressions:
        for one in expression.split(";") if ";" in expression else [expression]:
            edited, steps = _substitute(text, one.strip(), left, extended=extended)
            left -= steps
            if edited is None or len(edited) > LONGEST:
                return None
            text = edited
    return text, operands


def _substitute(text: str, expression: str, most: int, *, extended: bool) -> tuple[str | None, int]:
    """Return a text after one ``s/old/new/g``, and the steps that it takes.

    The text is None if the expression is another, or takes more than *most* steps.
    """
    mark = expression[1:2]
    if len(expression) < 4 or expression[0] != "s" or mark == "\\" or mark.isalnum():
        return None, 0
    parts = re.split(rf"(?<!\\){re.escape(mark)}", expression[2:])
    if len(parts) != 3 or parts[2] not in ("", "g"):
        return None, 0
    old, new = (part.replace(f"\\{mark}", mark) for part in parts[:2])
    pattern, repeats = _pattern(old, extended=extended)
    if pattern is None or re.search(r"\\|&", new) or len(new) > _LONGEST_WORD:
        return None, 0
    if pattern.match(""):  # sed and Python differ in where they replace nothing
        return None, 0
    count = 0 if parts[2] else 1
    lines = text.split("\n")
    steps = sum((len(line) + 1) ** (repeats + 1) for line in lines)
    if steps > most:
        return None, 0
    return "\n".join(pattern.sub(lambda _: new, line, count) for line in lines), steps


def _pattern(text: str, *, extended: bool) -> tuple[re.Pattern[str] | None, int]:
    """Return a plain pattern of sed, and its number of repeats; None for other patterns.

    A plain one has letters, ``.``, sets, and few repeats.
    """
    found: list[str] = []
    literal = {*'.*[]/"$^-', *("{}" if extended else "")}  # behind a backslash
    repeats = at = 0
    while at < len(text):
        char = text[at]
        group = _SET.match(text, at)
        if char == "\\" and text[at + 1 : at + 2] in literal:
            found.append(re.escape(text[at + 1]))
            at += 1
        elif group is not None:
            found.append(group[0])
            at = group.end() - 1
        elif char == "*" or (extended and char == "+"):
            repeats += 1
            if not found or found[-1] in ("*", "+", "^"):
                return None, 0
            found.append(char)
        elif char == "." or (char == "^" and not at) or (char == "$" and at == len(text) - 1):
            found.append(char)
        elif _PLAIN.match(char) or (not extended and char in "{}()+?|$"):
            found.append(re.escape(char))
        else:
            return None, 0
        at += 1
    if not found or repeats > _MOST_REPEATS:
        return None, 0
    try:
        return re.compile("".join(found)), repeats
    except re.error:  # such as `[9-0]`
        return None, 0


def edit_by_jq(text: str, expression: str, given: dict[str, Any]) -> str | None:
    """Return a JSON text after assignments such as ``.a.b = 3 | .c = $x``; None for others.

    *given* are the variables of ``--arg`` and ``--argjson``.

    >>> edit_by_jq('{"zero_optimization": {"stage": 2}}', ".zero_optimization.stage = 3", {})
    '{"zero_optimization": {"stage": 3}}'
    """
    if len(text) > LONGEST or len(expression) > _LONGEST_WORD:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    for one in expression.split("|"):
        match = _ASSIGNMENT.fullmatch(one)
        if match is None:
            return None
        try:
            value = given[match[2][1:]] if match[2].startswith("$") else json.loads(match[2])
        except (KeyError, ValueError, RecursionError):
            return None
        *owners, last = match[1].split(".")[1:]
        place = found
        for name in owners:
            if isinstance(place, dict):
                place = place.setdefault(name, {})
        if not isinstance(place, dict):
            return None
        place[last] = value
    return json.dumps(found)


def references(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a text between references to variables, with the name after each.

    >>> list(references("a $B c"))
    [('a ', 'B'), (' c', '')]
    """
    at = 0
    for match in _REFERENCE.finditer(text):
        yield text[at : match.start()], match[1] or match[2]
        at = match.end()
    yield text[at:], ""
