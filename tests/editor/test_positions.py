"""Lines and columns: UTF-16 units by the codec of Python, edits by brute force."""

from __future__ import annotations

import random

import pytest

from parcost_apps.editor.positions import Lines, Position, TextRange

ALPHABET = ["a", "é", "\u2028", "\x0c", "\x85", "\U0001f680", "\n", "\r\n", "\r", " "]
UNITS = {"utf-16": ("utf-16-le", 2), "utf-8": ("utf-8", 1), "utf-32": ("utf-32-le", 4)}


def split(text: str) -> list[str]:
    """Return lines as the protocol has them: it knows three line ends, and Python ten."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@pytest.mark.parametrize("encoding", UNITS)
def test_positions_are_those_of_the_codec(encoding: str) -> None:
    codec, width = UNITS[encoding]
    rng = random.Random(encoding)
    for _ in range(60):
        text = "".join(rng.choices(ALPHABET, k=rng.randrange(30)))
        lines = Lines(text, encoding)
        for offset in range(len(text) + 1):
            if text[offset - 1 : offset + 1] == "\r\n":
                continue  # no place at all
            before = split(text[:offset])
            expected = (len(before) - 1, len(before[-1].encode(codec)) // width)
            assert tuple(lines.position(offset)) == expected
            assert lines.offset(Position(*expected)) == offset


def test_a_place_beyond_its_line_or_the_text_is_at_the_end() -> None:
    lines = Lines("ab\r\ncd")
    assert [lines.offset(Position(*p)) for p in ((0, 99), (1, 99), (7, 0), (-1, 0))] == [2, 6, 6, 0]


def test_an_edit_is_that_of_the_text() -> None:
    rng = random.Random(1)
    for _ in range(100):
        text = "".join(rng.choices(ALPHABET[:7], k=rng.randrange(20)))
        start = rng.randrange(len(text) + 1)
        end = rng.randrange(start, len(text) + 1)
        lines = Lines(text)
        assert lines.replace(lines.range(start, end), "X") == text[:start] + "X" + text[end:]


def test_a_range_backwards_removes_nothing() -> None:
    lines = Lines("abcd")
    assert lines.replace(TextRange(Position(0, 3), Position(0, 1)), "X") == "abcXd"
