"""Parser of pipeline layouts such as ``Et*3|(tt|)*29|L``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_GROUP = re.compile(r"\(([^()]+)\)\*(\d+)")
_TIMES = re.compile(r"(.)\*(\d+)")
_MOST = 100_000  # characters
_PREDICTING, _LAYER = "m", "t"


class StagesTextError(ValueError):
    """Error: a text is not a pipeline layout."""


class Stage(NamedTuple):
    """The number of layers on a virtual stage, and of MTP layers (*predict*)."""

    layers: int
    predict: int


def stages(text: str) -> Sequence[Stage]:
    """Return the virtual stages of a layout, first to last.

    Commas are ignored. ``(...)*n`` and ``x*n`` repeat a group and a character.

    >>> [stage.layers for stage in stages("Et*3|(tt|)*2|L")]
    [3, 2, 2, 0, 0]

    Raises:
        StagesTextError: The text is something else, or its ends are not E and L.
    """
    whole = re.sub(r"[,\s]", "", text)
    for repeat in (_GROUP, _TIMES):
        whole = _unroll(repeat, whole)
    if not re.fullmatch(r"[Etm|L]*", whole):
        strange = re.sub(r"[Etm|L]", "", whole)[:1]
        raise StagesTextError(f"`{strange}` is not a layer; use E, t, m and L")
    if not re.fullmatch(r"E[^EL]*L", whole):
        raise StagesTextError("`E` must be first and `L` last, each exactly once")
    return [Stage(one.count(_LAYER), one.count(_PREDICTING)) for one in whole.split("|")]


def _unroll(repeat: re.Pattern[str], text: str) -> str:
    size = len(text)

    def several(found: re.Match[str]) -> str:
        nonlocal size
        times = int(found[2]) if len(found[2]) <= 6 else _MOST
        size += len(found[1]) * times
        if size > _MOST:
            raise StagesTextError("it has too many layers")
        return found[1] * times

    return repeat.sub(several, text)
