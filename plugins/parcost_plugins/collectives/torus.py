"""Bucket algorithms on a torus, whose nodes have a link in each direction of each dimension.

A level is a torus if it has ``kind = torus`` and ``dimensions``; its bandwidth is the bandwidth of
one link in one direction. A group occupies the nearest dimensions in order. In a partly occupied
dimension it has no wrap-around links. A group must fill its dimensions evenly.

``bucket`` processes one dimension after another through one port. ``torus`` splits the buffer and
sends each part through the dimensions in a different order, so all links are busy. This is exact
for equal dimensions, and a lower bound for others.
"""

from __future__ import annotations

from typing import Any

from parcost import Group, Link, Mask, Phase, Real, hookimpl
from parcost.numeric import divides, floor, maximum, minimum, where
from parcost_plugins.collectives.phases import PhasedAlgorithm
from parcost_plugins.physics.exchange import exchange_links

_NEEDS = "levels with `kind = torus`, and `dimensions` that the ranks fill"


class _TorusAlgorithm(PhasedAlgorithm):
    """The common part of both algorithms: every crossed level is a torus."""

    source = "Chan et al. 2007; jax-ml/scaling-book"

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return whether the ranks fill dimensions of a torus on every level."""
        able: Mask = True
        for g, link in zip(group.shape, group.links, strict=True):
            level: Any = link.level
            if getattr(level, "kind", "") != "torus" or not level.dimensions:
                able = able & (g <= 1)
                continue
            left = g
            for size in level.dimensions:
                here = minimum(left, float(size))
                able = able & divides(here, left)
                left = left / here
            able = able & (left == 1)
        return able

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the requirements of the algorithm."""
        return _NEEDS


class Bucket(_TorusAlgorithm):
    """A ring along each dimension, one after another."""

    name = "bucket"
    operations = frozenset({"all_reduce", "all_gather", "reduce_scatter"})

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases of the dimensions, nearest first."""
        passes = 2 if operation == "all_reduce" else 1
        found = []
        for g, link in zip(group.shape, group.links, strict=True):
            for K, _ in _dimensions(g, link):
                share = n * (K - 1) / K
                reduced = 0.0 if operation == "all_gather" else share
                found.append(Phase(link, passes * (K - 1), passes * share, reduced))
                n = n / K
        return found


class Torus(_TorusAlgorithm):
    """All dimensions at the same time, in both directions if there is a wrap-around."""

    name = "torus"
    operations = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases in which each part of the buffer passes its next dimension."""
        if operation == "all_to_all":
            return [
                Phase(link, _rounds(g, link), n * (g - 1) / g)
                for g, link in zip(group.shape, exchange_links(group), strict=True)
            ]
        passes = 2 if operation == "all_reduce" else 1
        found = []
        for g, link in zip(group.shape, group.links, strict=True):
            rounds, bytes_ = _turns(n, _dimensions(g, link))
            reduced = 0.0 if operation == "all_gather" else n * (g - 1) / g
            found.append(Phase(link, passes * rounds, passes * bytes_, reduced))
            n = n / g
        return found


def _dimensions(g: Real, link: Link) -> list[tuple[Real, Mask]]:
    """Return the ranks along each dimension, and whether they form a ring."""
    level: Any = link.level
    found: list[tuple[Real, Mask]] = []
    for size in getattr(level, "dimensions", ()):
        here = minimum(g, float(size))
        found.append((here, (here == size) & bool(level.wrap)))
        g = g / here
    return found


def _turns(n: Real, dimensions: list[tuple[Real, Mask]]) -> tuple[Real, Real]:
    """Return the rounds of all phases, and the bytes through one direction of a link."""
    rounds: Real = 0.0
    used: Real = 0.0
    ranks: Real = 1.0
    rings: Mask = True
    for K, ring in dimensions:
        rounds = rounds + where(ring, floor(K / 2), K - 1)
        used = used + minimum(K - 1, 1.0)
        ranks = ranks * K
        rings = rings & (ring | (K <= 1))
    directions = where(rings, 2.0, 1.0)
    return rounds, n * (ranks - 1) / ranks / (maximum(used, 1.0) * directions)


def _rounds(g: Real, link: Link) -> Real:
    """Return the number of links on the longest path along a dimension."""
    rounds: Real = 0.0
    for K, ring in _dimensions(g, link):
        rounds = maximum(rounds, where(ring, floor(K / 2), K - 1))
    return rounds


@hookimpl
def collectives() -> list[Bucket | Torus]:
    """Return both algorithms."""
    return [Bucket(), Torus()]
