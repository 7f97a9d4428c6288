"""Candidates for the front of time against memory, out of millions of layouts.

The memory of all layouts is cut into bands; of each the fastest layout by its score is a
candidate. They are replayed in the end, so that what is shown is exact, though a layout
between two of them may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from attrs import evolve, frozen

from parcost.search.found import Place, spellings
from parcost.search.score import values_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.search.score import Scored

_BANDS = 64
_BAND_BYTES = 4 * 2.0**30

C = TypeVar("C")
Rank = tuple[float, float, list[str]]  # seconds, bytes, and values: who comes first in a band


def slim(scored: Scored) -> Scored:
    """Return what a replay needs of *scored*: not the numbers of millions of layouts."""
    return evolve(scored, seconds=None, exact=None, bytes_=None)


@frozen(eq=False)
class Candidate:
    """The fastest layout of a band so far."""

    rank: Rank
    place: Place


class Front:
    """The fastest layout of each band of memory so far."""

    def __init__(self) -> None:
        self._least = np.full(_BANDS, np.inf)
        self._found: dict[int, Candidate] = {}

    def offer(self, scored: Scored, left: NDArray[np.bool_]) -> None:
        """Consider the layouts of *scored* that are *left*."""
        flat = np.flatnonzero(left)
        if not len(flat):
            return
        seconds: Any = np.broadcast_to(scored.seconds, left.shape).reshape(-1)[flat]
        bytes_: Any = np.broadcast_to(scored.bytes_, left.shape).reshape(-1)[flat]
        bands = _band(bytes_)
        least = np.full(_BANDS, np.inf)
        np.minimum.at(least, bands, seconds)
        kept = slim(scored)
        for band in map(int, np.flatnonzero((least <= self._least) & (least < np.inf))):
            fastest = np.flatnonzero((bands == band) & (seconds == least[band]))
            smallest = fastest[bytes_[fastest] == bytes_[fastest].min()]
            for i in smallest:
                index = tuple(int(k) for k in np.unravel_index(flat[i], left.shape))
                exact = bool(np.broadcast_to(scored.exact, left.shape)[index])
                place = Place(kept, index, float(seconds[i]), exact, float(bytes_[i]))
                rank = (place.seconds, place.bytes_, spellings(values_at(kept, index)))
                if band not in self._found or rank < self._found[band].rank:
                    self._found[band] = Candidate(rank, place)
        self._least = np.minimum(least, self._least)

    def may_gain(self, seconds: Any, bytes_: Any) -> Any:
        """Say where a layout of no fewer seconds and bytes might be a candidate."""
        return seconds <= self._least[_band(bytes_)]

    def candidates(self) -> Mapping[int, Candidate]:
        """Return the candidates, by band."""
        return faster((band, c.rank, c) for band, c in self._found.items())


def faster(candidates: Iterable[tuple[int, Rank, C]]) -> Mapping[int, C]:
    """Return the first of each band, unless one of a lower band is as fast."""
    found: dict[int, tuple[Rank, C]] = {}
    for band, rank, candidate in candidates:
        if band not in found or rank < found[band][0]:
            found[band] = (rank, candidate)
    kept: dict[int, C] = {}
    least = np.inf
    for band, (rank, candidate) in sorted(found.items(), key=lambda item: item[0]):
        if rank[0] < least:
            kept[band], least = candidate, rank[0]
    return kept


def _band(bytes_: Any) -> NDArray[np.intp]:
    found: NDArray[np.intp] = np.minimum(bytes_ / _BAND_BYTES, _BANDS - 1).astype(np.intp)
    return found
