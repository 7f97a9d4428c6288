"""Attributes for a set of layers of one kind, counted from 0: the shortest that state it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost_formats.tools.drafts import digits


def settings_of_dense(found: Sequence[int], count: int) -> Iterator[tuple[str, str]]:
    """Yield the attributes that state the dense layers: a number of first layers, a step, or a
    list.
    """
    if not found:
        return
    if list(found) == list(range(len(found))) and len(found) < count:
        yield "dense_first", digits(len(found))
        return
    rest = sorted({*range(count)} - {*found})
    if rest and rest == list(range(rest[0], count, rest[0] + 1)):
        yield "moe_every", digits(rest[0] + 1)
        return
    yield "dense_layers", _list(found)


def settings_of_full(found: Sequence[int], count: int) -> Iterator[tuple[str, str]]:
    """Yield the attributes of layers with full attention: a step, or a list."""
    if not found:
        return
    every = found[0] + 1
    if list(found) == list(range(found[0], count, every)):
        yield "full_every", digits(every)
        return
    yield "full_layers", _list(found)


def _list(numbers: Sequence[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"
