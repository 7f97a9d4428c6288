"""The writer of spec text: blocks as lines, in the layout of ``parcost fmt``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from parcost.language.escapes import escape_line

_WIDEST = 32  # a value longer than this does not push the comments of others aside


class SpecAttribute(NamedTuple):
    """An attribute to write; if no spec sets it, it is a comment with the value in use."""

    name: str
    value: str
    comment: str = ""
    is_set: bool = True


def block_lines(
    heading: str,
    attributes: Iterable[SpecAttribute | tuple[str, str]] = (),
    inner: Iterable[str] = (),
) -> list[str]:
    """Return the lines of a block; *inner* are the lines of blocks inside, which are indented.

    >>> level = block_lines("level node", [("size", "8 devices"), ("latency", "2 us")])
    >>> print("\\n".join(block_lines("fabric site", inner=level)))
    fabric site {
      level node {
        size    = 8 devices
        latency = 2 us
      }
    }
    """
    found = [SpecAttribute(*one) for one in attributes]
    width = max((len(one.name) for one in found), default=0)
    texts = [_text(one, width) for one in found]
    pairs = list(zip(texts, found, strict=True))
    short = [len(text) for text, one in pairs if one.comment and len(text) <= width + _WIDEST]
    column = max(short, default=0)
    lines = [f"{text:{column}}  # {one.comment}" if one.comment else text for text, one in pairs]
    return [f"{heading} {{", *(f"  {line}" for line in [*lines, *inner]), "}"]


def _text(one: SpecAttribute, width: int) -> str:
    if one.is_set:
        return f"{one.name:{width}} = {one.value}"
    return f"# {one.name} = {one.value}" if one.value else f"# {one.name}: none"


def provenance(kind: str, source: str) -> str:
    """Return a space and the provenance of a value, "" without a *kind*.

    >>> provenance("vendor", 'the "DGX"  data sheet')
    ' @vendor("the \\'DGX\\' data sheet")'
    """
    if not kind:
        return ""
    text = escape_line(" ".join(source.replace('"', "'").split()))
    return f' @{kind}("{text}")' if text else f" @{kind}"
