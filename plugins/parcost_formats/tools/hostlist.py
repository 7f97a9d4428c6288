"""Lists of hosts as Slurm abbreviates them: ``gpu-a[01-02,05],login1``."""

from __future__ import annotations

import re
from collections.abc import Iterator

_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?$")
_WHOLE = re.compile(r"[0-9]{1,9}")


class HostListError(ValueError):
    """A text is not a list of hosts, or it lists too many."""


def whole_number(text: str) -> int | None:
    """Return a whole number of at most nine digits; None for any other text.

    >>> whole_number("16"), whole_number("-1"), whole_number("9" * 5000)
    (16, None, None)
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def expand(text: str, most: int) -> list[str]:
    """Return the host names of a list.

    >>> expand("a[1-2,4],b", 10)
    ['a1', 'a2', 'a4', 'b']
    >>> expand("r[1-2]n[08-09]", 10)
    ['r1n08', 'r1n09', 'r2n08', 'r2n09']

    Raises:
        HostListError: The list is malformed, or has more than *most* names.
    """
    names: list[str] = []
    for part in _parts(text):
        for name in _names(part, most - len(names)):
            names.append(name)
            if len(names) > most:
                raise HostListError(f"`{text[:40]}` has more than {most:,} names")
    return names


def _parts(text: str) -> Iterator[str]:
    """Yield the parts separated by commas outside of brackets."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise HostListError(f"the brackets of `{text[:40]}` do not match")
        if sign == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if depth:
        raise HostListError(f"the brackets of `{text[:40]}` do not match")
    yield text[start:]


def _names(part: str, most: int) -> Iterator[str]:
    """Yield the host names of one pattern."""
    match = _BRACKET.search(part)
    if match is None:
        if part.strip():
            yield part.strip()
        return
    head, tail = part[: match.start()], part[match.end() :]
    for number in _numbers(match[1], most):
        yield from _names(f"{head}{number}{tail}", most)


def _numbers(text: str, most: int) -> Iterator[str]:
    """Yield the numbers of a bracket, zero-padded as written."""
    for item in text.split(","):
        match = _RANGE.match(item.strip())
        if match is None:
            raise HostListError(f"`{item[:40]}` is neither a number nor a range of numbers")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise HostListError(f"the range `{item[:40]}` is descending")
        if int(last) - int(first) > most:
            raise HostListError(f"the range `{item[:40]}` has more than {most:,} names")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
