"""Candidates for the Pareto front of step time and memory, out of millions of layouts.

The memory of all layouts is divided into bands. The fastest layout of each band by its score is a
candidate. Candidates are evaluated at the end, so printed values are exact. A layout between two
candidates may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from parcost.search.result import ALIKE, Rank, rank
from parcost.search.scored_layouts import values_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.search.scored_layouts import ScoredLayouts

_BANDS = 1024  # and what needs more than 4 TiB is in the last
_BAND_BYTES = 4 * 2.0**30


@frozen(eq=False)
class Candidate:
    """The fastest layout of a band, by its score."""

    band: int
    rank: Rank
    values: Mapping[str, Any]


class Front:
    """The fastest layout so far in each band of memory."""

    def __init__(self) -> None:
        self._least = np.full(_BANDS, np.inf)  # seconds in a band or in any with less memory
        self._found: dict[int, Candidate] = {}

    def offer(self, scored: ScoredLayouts, left: NDArray[np.bool_]) -> None:
        """Add the layouts of *scored* for which the mask *left* is true, if they improve a band."""
        flat = np.flatnonzero(left)
        if not len(flat):
            return
        seconds: Any = np.broadcast_to(scored.seconds, left.shape).reshape(-1)[flat]
        bytes_: Any = np.broadcast_to(scored.bytes_, left.shape).reshape(-1)[flat]
        bands, least = band_of(bytes_), least_by_band(seconds, bytes_)
        for band in map(int, np.flatnonzero((least <= self._least) & (least < np.inf))):
            for i in np.flatnonzero((bands == band) & (seconds <= least[band] * (1.0 + ALIKE))):
                values = values_at(scored, np.unravel_index(flat[i], left.shape))
                candidate = Candidate(band, rank(seconds[i], bytes_[i], values), values)
                if band not in self._found or candidate.rank < self._found[band].rank:
                    self._found[band] = candidate
        self._least = np.minimum.accumulate(np.minimum(least * (1.0 + ALIKE), self._least))

    def may_gain(self, seconds: Any, bytes_: Any) -> Any:
        """Return the mask where a layout with at least these seconds and bytes may be a
        candidate.
        """
        return seconds <= self._least[band_of(bytes_)]

    def candidates(self) -> Sequence[Candidate]:
        """Return the candidates, by band."""
        return faster(self._found.values())


def faster(candidates: Iterable[Candidate]) -> Sequence[Candidate]:
    """Return the fastest candidate of each band, except candidates that are not faster than one
    with less memory.
    """
    found: dict[int, Candidate] = {}
    for candidate in candidates:
        known = found.get(candidate.band)
        if known is None or candidate.rank < known.rank:
            found[candidate.band] = candidate
    kept: list[Candidate] = []
    for candidate in sorted(found.values(), key=lambda c: c.band):
        if not kept or candidate.rank[0] < kept[-1].rank[0]:
            kept.append(candidate)
    return kept


def least_by_band(seconds: Any, bytes_: Any) -> NDArray[np.float64]:
    """Return the lowest seconds in each band of memory, infinity in a band without layouts."""
    least = np.full(_BANDS, np.inf)
    np.minimum.at(least, band_of(bytes_), seconds)
    return least


def band_of(bytes_: Any) -> NDArray[np.intp]:
    """Return the band of memory of layouts with *bytes_*."""
    found: NDArray[np.intp] = np.minimum(bytes_ / _BAND_BYTES, _BANDS - 1).astype(np.intp)
    return found
