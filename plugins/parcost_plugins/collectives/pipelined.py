"""A hierarchical all-reduce in chunks, so that the levels work at the same time.

While one chunk crosses the network, the next is reduced in the node. With c chunks the busiest
level works all the time, and the others add one chunk each: ``max + (sum - max) / c``, where every
chunk pays its latencies. Few libraries implement it, so ``auto`` does not try it. ``auto`` does not
try the limit of infinitely many chunks without latencies, either.
"""

from __future__ import annotations

from attrs import evolve

from parcost import ClosedForm, Collective, Group, Phase, Real, hookimpl, record
from parcost.numeric import maximum, minimum, where
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.phases import phase_seconds

_BEST = tuple(2.0**exponent for exponent in range(9))
_HIERARCHY = Hierarchical()


@record(eq=False)
class HierarchicalPipelined(Collective):
    """The best power-of-two number of chunks up to 256, or *pieces* if given."""

    pieces: Real | None = None

    name = "hierarchical_pipelined"
    operations = frozenset({"all_reduce"})
    by_name_only = operations
    source = "Rabenseifner 2004, level by level, chunk by chunk"

    def cut(self, pieces: Real) -> HierarchicalPipelined:
        """Return the algorithm with *pieces* chunks."""
        return evolve(self, pieces=pieces)

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the seconds of *operation*."""
        return _in_chunks(self._chunks(operation, n, group), operation, n, group)

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the traffic of each level over all chunks; the levels overlap."""
        chunks = self._chunks(operation, n, group)
        return [p._replace(rounds=p.rounds * chunks) for p in _levels(operation, n, group)]

    def _chunks(self, operation: str, n: Real, group: Group) -> Real:
        """Return the number of chunks: as given, or the fastest."""
        if self.pieces is not None:
            return self.pieces
        chunks: Real = _BEST[0]
        least = _in_chunks(chunks, operation, n, group)
        for more in _BEST[1:]:
            seconds = _in_chunks(more, operation, n, group)
            chunks = where(seconds < least, more, chunks)
            least = minimum(least, seconds)
        return chunks


class HierarchicalOverlapped(Collective):
    """The limit of complete overlap: the busiest level determines the time. No library
    reaches it.
    """

    name = "hierarchical_overlapped"
    operations = frozenset({"all_reduce"})
    by_name_only = operations
    source = "lower bound of the hierarchy in chunks"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the seconds of the busiest level."""
        return _busiest_level(_levels(operation, n, group), group)

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the traffic of each level; all levels work at the same time."""
        return _levels(operation, n, group)

    def closed_form(self, operation: str, group: Group) -> ClosedForm:  # noqa: ARG002
        """Return the time as one expression."""
        return ClosedForm("max(2 (g - 1) (alpha + n / G / g / B))", group.links)


def _levels(operation: str, n: Real, group: Group) -> list[Phase]:
    return _HIERARCHY.phases(operation, n, group)


def _in_chunks(chunks: Real, operation: str, n: Real, group: Group) -> Real:
    """Return the seconds of *chunks* equal chunks; each level processes one chunk at a time."""
    phases = _levels(operation, n / chunks, group)
    return (chunks - 1) * _busiest_level(phases, group) + phase_seconds(phases, group)


def _busiest_level(phases: list[Phase], group: Group) -> Real:
    """Return the seconds of the busiest level; additions of all levels are in sequence."""
    longest: Real = 0.0
    added: Real = 0.0
    for phase in phases:
        longest = maximum(longest, phase_seconds([phase], group))
        added = added + phase.reduced
    return maximum(longest, group.reduction * added)


@hookimpl
def collectives() -> list[HierarchicalPipelined | HierarchicalOverlapped]:
    """Return the pipelined hierarchy and its limit."""
    return [HierarchicalPipelined(), HierarchicalOverlapped()]
