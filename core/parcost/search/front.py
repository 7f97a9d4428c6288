"""Candidates for the front of time against memory, out of millions of layouts.

The memory of all layouts is cut into bands; of each the fastest layout by its score is a
candidate. They are replayed in the end, so that what is shown is exact, though a layout
between two of them may be missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from parcost.search.found import Place

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.search.score import Scored

_BANDS = 64
_BAND_BYTES = 4 * 2.0**30


def slim(scored: Scored) -> Scored:
    """Return what a replay needs of *scored*: not the numbers of millions of layouts."""
    return evolve(scored, seconds=None, exact=None, bytes_=None)


class Front:
    """The fastest layout of each band of memory so far."""

    def __init__(self) -> None:
        self._least = np.full(_BANDS, np.inf)
        self._places: list[Place | None] = [None] * _BANDS

    def offer(self, scored: Scored, left: NDArray[np.bool_]) -> None:
        """Consider the layouts of *scored* that are *left*."""
        flat = np.flatnonzero(left)
        if not len(flat):
            return
        seconds: Any = np.broadcast_to(scored.seconds, left.shape).reshape(-1)[flat]
        bytes_: Any = np.broadcast_to(scored.bytes_, left.shape).reshape(-1)[flat]
        bands = _band(bytes_)
        least = self._least.copy()
        np.minimum.at(least, bands, seconds)
        kept = slim(scored)
        for band in np.flatnonzero(least < self._least):
            first = flat[np.flatnonzero((bands == band) & (seconds == least[band]))[0]]
            index = tuple(int(i) for i in np.unravel_index(first, left.shape))
            exact = bool(np.broadcast_to(scored.exact, left.shape)[index])
            held = float(np.broadcast_to(scored.bytes_, left.shape)[index])
            self._places[band] = Place(kept, index, (float(least[band]), exact, held))
        self._least = least

    def may_gain(self, seconds: Any, bytes_: Any) -> Any:
        """Say where a layout of no fewer seconds and bytes might be a candidate."""
        return seconds < self._least[_band(bytes_)]

    def points(self) -> Sequence[Place]:
        """Return the candidates: each is faster than those that need less memory."""
        found, least = [], np.inf
        for seconds, place in zip(self._least, self._places, strict=True):
            if place is not None and seconds < least:
                found.append(place)
                least = seconds
        return found


def _band(bytes_: Any) -> NDArray[np.intp]:
    found: NDArray[np.intp] = np.minimum(bytes_ / _BAND_BYTES, _BANDS - 1).astype(np.intp)
    return found
