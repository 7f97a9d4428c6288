"""Two-level all-reduces with one leader rank per node.

The ring of leaders sends the whole buffer through one port of each node. The other ports are idle.
So the network time is g times that of a hierarchy over all ranks. ``auto`` does not try them,
because they are never faster; textbooks describe them. ``group.hop`` is the port of a leader. With
one rank per node, or in one node, they are a ring.
"""

from __future__ import annotations

from math import prod

from parcost import Group, Phase, Real, hookimpl
from parcost.numeric import ceil_log2, minimum
from parcost_plugins.collectives.phases import PhasedAlgorithm


class LeaderAllReduce(PhasedAlgorithm):
    """All-reduce in the node, all-reduce of the leaders, broadcast in the node."""

    name = "leader_all_reduce"
    operations = frozenset({"all_reduce"})
    by_name_only = operations
    source = "two-level all-reduce as in textbooks"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return the three phases; the broadcast is pipelined."""
        g, near = group.shape[0], group.links[0]
        ring = n * (g - 1) / g
        inside = Phase(near, 2 * (g - 1), 2 * ring, ring)
        share = _is_two_level(group)
        return [inside, _leaders(n, group), Phase(near, ceil_log2(g) * share, n * share)]


class LeaderReduce(PhasedAlgorithm):
    """Reduce in the node, all-reduce of the leaders, broadcast in the node."""

    name = "leader_reduce"
    operations = frozenset({"all_reduce"})
    by_name_only = operations
    source = "two-level all-reduce as in textbooks"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return the three phases; the reduction and the broadcast are pipelined."""
        g, near = group.shape[0], group.links[0]
        several = minimum(g - 1, 1.0)
        inside = Phase(near, ceil_log2(g), n * several, n * several)
        return [inside, _leaders(n, group), inside._replace(reduced=0.0)]


def _leaders(n: Real, group: Group) -> Phase:
    """Return the ring of the leaders."""
    k = _nodes(group)
    ring = n * (k - 1) / k
    return Phase(group.hop, 2 * (k - 1), 2 * ring, ring)


def _is_two_level(group: Group) -> Real:
    """Return 1 if there are several ranks per node and several nodes, else 0."""
    return minimum(group.shape[0] - 1, 1.0) * minimum(_nodes(group) - 1, 1.0)


def _nodes(group: Group) -> Real:
    """Return the number of nodes of *group*, also if nodes hold different numbers of ranks."""
    return prod(group.shape[1:], start=1.0)


@hookimpl
def collectives() -> list[LeaderAllReduce | LeaderReduce]:
    """Return both algorithms."""
    return [LeaderAllReduce(), LeaderReduce()]
