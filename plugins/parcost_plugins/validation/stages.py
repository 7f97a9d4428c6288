"""Layers on the stages of a pipeline, where they do not divide."""

from __future__ import annotations

from attrs import frozen

from parcost_plugins.validation.frameworks import Dealing


@frozen
class Dealt:
    """Layers of each virtual stage, and the rule that dealt them."""

    layers: tuple[int, ...]
    rule: str


def deal(layers: int, stages: int, dealing: Dealing, *, ends: bool | None = None) -> Dealt:
    """Return *layers* dealt to virtual *stages*, which they do not divide over.

    *ends* says that embedding and head count as a layer each, where a row does.

    >>> deal(78, 12, "fill").layers
    (7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1)
    >>> deal(126, 64, "ends").layers[:2]
    (1, 2)
    >>> deal(10, 4, "spread").layers
    (2, 3, 3, 2)
    """
    if dealing == "spread":
        return Dealt(_spread(layers, stages), "the rest goes to the first stages")
    if ends or (dealing == "ends" and ends is None and not (layers + 2) % stages):
        found = _fill(layers + 2, stages)
        return Dealt(_without_ends(found), "embedding and head count as a layer each")
    if dealing == "ends" and not (layers + 1) % stages:
        found = _fill(layers + 1, stages)
        return Dealt((*found[:-1], found[-1] - 1), "the head counts as a layer")
    return Dealt(_fill(layers, stages), "stages are filled from the first")


def _fill(count: int, stages: int) -> tuple[int, ...]:
    """Fill stages up to the least that holds *count*, from the first.

    >>> _fill(61, 16)[-2:]
    (4, 1)
    """
    each = -(-count // stages)
    return tuple(max(0, min(each, count - each * stage)) for stage in range(stages))


def _without_ends(dealt: tuple[int, ...]) -> tuple[int, ...]:
    return (dealt[0] - 1, *dealt[1:-1], dealt[-1] - 1)


def _spread(layers: int, stages: int) -> tuple[int, ...]:
    """Deal as torchtitan does: embedding and head count as a layer, the rest to the first."""
    each, rest = divmod(layers + 2, stages)
    return _without_ends(tuple(each + (stage < rest) for stage in range(stages)))
