"""The output of ``printf`` and ``seq``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parcost_formats.tools.shell.values import Piece, ShellValue, text_of, unread_piece

_DIRECTIVE = re.compile(
    r"%(%|([-0+ #]*)(\d*)(?:\.(\d+))?([sdif]))|\\([ntr\\\"'0])|([^%\\]+|.)", re.DOTALL
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}
_MOST = 2_000_000


def format_printf(words: Sequence[ShellValue]) -> list[Piece] | None:
    """Return the output of ``printf words``; None if it is unknown.

    >>> [piece.text for piece in format_printf([[Piece("%02d,", 0, 1)], [Piece("7", 2, 3)]])]
    ['07', ',']
    """
    if not words or unread_piece(words[0]) is not None:
        return None
    text, rest = text_of(words[0]), list(words[1:])
    directives = list(_DIRECTIVE.finditer(text))
    place = (words[0][0].start, words[0][-1].end) if words[0] else (0, 0)
    found: list[Piece] = []
    while True:
        taken = False
        for one in directives:
            literal = _ESCAPES.get(one[6] or "", one[7])
            if one[0] == "%%":
                literal = "%"
            if one[5] is None:
                if literal in ("%", "\\", "\0") and one[0] not in ("%%", "\\\\"):
                    return None
                found.append(Piece(literal, *place))
                continue
            taken = True
            value = rest.pop(0) if rest else []
            shaped = _shaped(one, value, place)
            if shaped is None:
                return None
            found += shaped
        if not rest or not taken:
            return found


def _shaped(
    one: re.Match[str], value: ShellValue, place: tuple[int, int]
) -> Sequence[Piece] | None:
    flags, width, precision, kind = one[2], one[3], one[4], one[5]
    if kind == "s" and not width and precision is None:
        return value
    if unread_piece(value) is not None or len(width) > 4 or len(precision or "") > 3:
        return None
    text = text_of(value)
    spec = "%" + flags + width + (f".{precision}" if precision is not None else "")
    if kind == "s":
        text = (spec.replace("0", "") + "s") % text if flags else (spec + "s") % text
    elif not re.fullmatch(r"[-+]?\d{1,15}(\.\d{1,15})?" if kind == "f" else r"[-+]?\d{1,18}", text):
        if text:
            return None
        text = (spec + ("f" if kind == "f" else "d")) % 0
    else:
        if kind != "f" and len(text.lstrip("+-")) > 1 and text.lstrip("+-")[0] == "0":
            return None  # an octal number
        text = (spec + "f") % float(text) if kind == "f" else (spec + "d") % int(text)
    start, end = (value[0].start, value[-1].end) if value else place
    assumption = next((piece.assumption for piece in value if piece.assumption), "")
    return [Piece(text, start, end, "", assumption)]


def sequence_of_numbers(words: Sequence[str]) -> Sequence[str] | None:
    """Return the output of ``seq words``; None if it is unknown.

    >>> sequence_of_numbers(["16", "8", "32"])
    ['16', '24', '32']
    """
    separator_free = all(re.fullmatch(r"-?\d{1,9}", word) for word in words)
    if not separator_free or not 1 <= len(words) <= 3:
        return None
    first, step = (
        (int(words[0]) if len(words) > 1 else 1),
        (int(words[1]) if len(words) == 3 else 1),
    )
    last = int(words[-1])
    if not step:
        return None
    numbers = range(first, last + (1 if step > 0 else -1), step)
    if len(numbers) > _MOST:
        numbers = numbers[:_MOST]
    return [str(number) for number in numbers]
