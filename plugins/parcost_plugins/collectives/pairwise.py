"""Pairwise exchange: an all-to-all in which every block is sent directly to its rank.

Messages on all levels are in flight at the same time, so the slowest level determines the time. The
innermost level carries the blocks for ranks of the same unit. Each outer level carries the blocks
for all ranks outside the unit below. Messages take direct paths, so they share the links of a torus
and may leave their rail. If they first move inside the node (PXN), the innermost level carries
these bytes, too.

A rank starts its messages one after another, so it pays the latency of every message, at any level.
A reduce-scatter of the same messages moves the bytes of a ring, but between arbitrary partners.
``auto`` does not try a reduce-scatter by this algorithm.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Link, Phase, Real, hookimpl
from parcost.numeric import any_of, maximum, where
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase
from parcost_plugins.physics.exchange import direct_links, partner_link, relayed_share

_FORMULAS = {
    "all_to_all": "max(m alpha' + (m + r (P - m - 1)) n / (P B') + max(M alpha), "
    "max(M (alpha + n / (P B))) + m alpha'), m messages within a unit, M that leave it at "
    "each level, r the share of those relayed inside",
    "reduce_scatter": "(P - 1) alpha + n (P - 1) / P / B",
}


class Pairwise(PhasedAlgorithm):
    """One message of n/P bytes to each other rank."""

    name = "pairwise"
    operations = frozenset(_FORMULAS)
    by_name_only = frozenset({"reduce_scatter"})
    source = "Thakur, Rabenseifner, Gropp 2005"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the seconds; an all-to-all takes the time of its slowest level."""
        if operation == "reduce_scatter":
            return super().seconds(operation, n, group)
        near, *outer = self.phases(operation, n, group)
        far: Real = 0.0  # seconds on the slowest of the levels further out
        waits: Real = 0.0  # for the messages that leave the innermost unit to start
        for link, outside, bytes_, _ in outer:
            far = maximum(far, link.seconds(outside, bytes_))
            waits = maximum(waits, outside * link.latency)
        inside = near.link.seconds(near.rounds, near.bytes_)
        return maximum(inside + waits, far + near.rounds * near.link.latency)

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the traffic of each level; in an all-to-all, all levels work at the same time."""
        P = group.ranks
        if operation == "reduce_scatter":
            bytes_ = n * (P - 1) / P
            return single_phase(partner_link(group), P - 1, bytes_, bytes_)
        (inner, near), *outer = _messages(group)
        relayed = (P - group.fewest[0]) * relayed_share(group)
        found = [Phase(inner, near, (near + relayed) * n / P)]
        return found + [Phase(link, outside, outside * n / P) for link, outside in outer]

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one expression."""
        text = _FORMULAS[operation]
        if operation == "reduce_scatter":
            return ClosedForm(text, partner_link(group))
        (inner, near), *outer = _messages(group)
        used = [(str(link.name), link, M) for link, M in outer if any_of(M > 0)]
        symbols = {
            "m": near,
            "r": relayed_share(group),
            "M": {name: M for name, _, M in used},
            "alpha": ({name: link.latency for name, link, _ in used}, "s"),
            "B": ({name: link.bandwidth for name, link, _ in used}, "B/s"),
            "alpha'": (inner.explain_latency(), "s"),
            "B'": (inner.explain_bandwidth(), "B/s"),
        }
        return ClosedForm(text, symbols=symbols)


def _messages(group: Group) -> list[tuple[Link, Real]]:
    """Return the link of each level, and the messages per rank on it."""
    inner, *links = direct_links(group)
    found: list[tuple[Link, Real]] = [(inner, group.shape[0] - 1)]
    inside: Real = group.fewest[0]
    for g, least, link in zip(group.shape[1:], group.fewest[1:], links, strict=True):
        found.append((link, where(g > 1, group.ranks - inside, 0.0)))
        inside = inside * least
    return found


@hookimpl
def collectives() -> list[Pairwise]:
    """Return the pairwise exchange."""
    return [Pairwise()]
