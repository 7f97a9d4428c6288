"""Lower bounds of every algorithm: rounds, bytes through ports, and bytes to add.

The bound is available as the algorithm ``lower_bound``, which must be chosen by name. It is the
largest of three limits.

- Latency: after r rounds a rank with k ports has data of at most (k + 1)^r ranks, itself included.
  If switches multicast, one round is enough.
- Bytes: at every level, data for ranks outside a unit pass through the ports of the unit. So an
  all-reduce sends 2n (P - 1)/P through the port of a rank. If the switches reduce, each rank sends
  its data once. A torus has two ports per dimension. The blocks of an all-to-all cross the
  bisection of its longest dimension.
- Sums: n (P - 1)/P bytes on the busiest rank, if the work is spread evenly.

The fastest link determines the bound, because an algorithm may use all levels at the same time.
"""

from __future__ import annotations

from typing import TypeVar

from parcost import Collective, Group, Link, Real, hookimpl
from parcost.numeric import ceil, ceil_log2, log, maximum, minimum
from parcost_plugins.physics.exchange import exchange_links
from parcost_plugins.vocabulary import OPERATIONS

T = TypeVar("T")

_ROUNDING = 1e-9  # of a quotient of logarithms, which is whole where a power is exact
_ADDS = frozenset({"all_reduce", "reduce", "reduce_scatter"})


class LowerBound(Collective):
    """The largest of the limits of latency, bytes and sums."""

    name = "lower_bound"
    operations = frozenset(OPERATIONS)
    by_name_only = operations
    source = "Chan et al. 2007; Patarasuk and Yuan 2009"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the largest lower bound in seconds."""
        if operation == "point_to_point":
            other = minimum(group.ranks - 1, 1.0)
            return group.hop.seconds(other, n * other)
        P = group.ranks
        sums = group.reduction * n * (P - 1) / P if operation in _ADDS else 0.0
        return maximum(
            maximum(_latency_seconds(group), _boundary_seconds(operation, n, group)), sums
        )


def _latency_seconds(group: Group) -> Real:
    """Return the minimum time in seconds, by latency alone, until each rank has data of all others.

    In each round a rank with k ports receives from k others. So it takes ceil(log P / log(k + 1))
    rounds.
    """
    alpha = group.links[0].latency
    multicasts = False
    ports = 1.0
    for link in group.links:
        alpha = minimum(alpha, link.latency)
        ports = max(ports, _ports(link))
        multicasts = multicasts or _level(link, "in_network", default=False)
    if ports == 1.0:
        rounds = ceil_log2(group.ranks)
    else:
        rounds = ceil(log(group.ranks) / log(ports + 1.0) - _ROUNDING)
    return alpha * (minimum(rounds, 1.0) if multicasts else rounds)


def _boundary_seconds(operation: str, n: Real, group: Group) -> Real:
    """Return the seconds in which the slowest unit sends or receives across its boundary."""
    P = group.ranks
    members: Real = 1.0  # of the unit, at most
    longest: Real = 0.0
    if operation == "all_to_all":
        rates = [link.bandwidth for link in exchange_links(group)]
    else:
        rates = [_rate(link) for link in group.links]
    for i, g in enumerate(group.shape):
        rate: Real = 0.0  # of one rank, through this boundary and all further out
        reduces = False
        for link, own in zip(group.links[i:], rates[i:], strict=True):
            rate = rate + own
            reduces = reduces or _level(link, "in_network", default=False)
        bytes_ = _boundary_bytes(operation, n, members, P, reduces=reduces)
        longest = maximum(longest, bytes_ * minimum(P - members, 1.0) / (members * rate))
        members = minimum(members * g, P)
    return longest


def _boundary_bytes(operation: str, n: Real, members: Real, P: Real, *, reduces: bool) -> Real:
    """Return the bytes that must pass the boundary of a unit of *members* in one direction."""
    others = 1 - members / P
    if operation == "all_reduce":
        return n * (minimum(2 * others, 1.0) if reduces else 2 * others)
    if operation == "all_to_all":
        return n * members * others
    if operation in ("broadcast", "reduce"):
        return n
    return n * others


def _rate(link: Link) -> Real:
    """Return the bandwidth of all ports of a rank together, in B/s."""
    return link.bandwidth * _ports(link)


def _ports(link: Link) -> float:
    """Return the number of ports of a rank: two for each dimension of a torus, else one."""
    if _level(link, "kind", default="") != "torus":
        return 1.0
    return max(2.0 * len(_level(link, "dimensions", default=())), 1.0)


def _level(link: Link, attribute: str, *, default: T) -> T:
    found: T = getattr(link.level, attribute, default)
    return found


@hookimpl
def collectives() -> list[LowerBound]:
    """Return the lower bound."""
    return [LowerBound()]
