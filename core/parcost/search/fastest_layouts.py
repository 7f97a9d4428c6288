"""The fastest layout for each combination of degrees, kept while a search scores its layouts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf
from operator import and_
from typing import Any

import numpy as np
from attrs import field, frozen

from parcost.search.result import FastestLayout
from parcost.search.scored_layouts import ScoredLayouts, values_at


@frozen(eq=False)
class FastestLayouts:
    """Collects the fastest layout for each combination of degrees, as layouts are scored."""

    _found: dict[tuple[Any, ...], FastestLayout] = field(factory=dict)

    def __call__(self, scored: ScoredLayouts) -> None:
        """Add the layouts of *scored* that fit and are within the limits."""
        shape, criteria = scored.legal.shape, scored.criteria
        left = scored.legal & reduce(
            and_, (scored.bytes_ <= room for room in criteria.capacities), True
        )
        for limit in criteria.limits:
            left = left & limit.holds(scored.seconds, scored.bytes_)
        seconds = np.where(left, scored.seconds, inf).reshape(-1, shape[-1])
        best = seconds.argmin(axis=0)
        bytes_, exact = (np.broadcast_to(v, shape) for v in (scored.bytes_, scored.exact))
        for point in map(int, np.flatnonzero(seconds.min(axis=0) < inf)):
            taken = float(seconds[best[point], point])
            key = self._key(scored, point)
            known = self._found.get(key)
            if known is None or taken < known.seconds:
                index = self._index(int(best[point]), point, shape)
                self._found[key] = FastestLayout(
                    values=values_at(scored, index),
                    seconds=taken,
                    bytes_=float(bytes_[index]),
                    exact=bool(exact[index]),
                )

    def layouts(self) -> Sequence[FastestLayout]:
        """Return the layouts, the fastest first."""
        return sorted(self._found.values(), key=lambda layout: layout.seconds)

    @staticmethod
    def _key(scored: ScoredLayouts, point: int) -> tuple[Any, ...]:
        structure = scored.structure
        degrees = {name: float(values[point]) for name, values in structure.degrees.items()}
        return tuple(sorted((name, str(v)) for name, v in {**structure.values, **degrees}.items()))

    @staticmethod
    def _index(choice: int, point: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*map(int, np.unravel_index(choice, shape[:-1])), point)
