"""Pairwise exchange: an all-to-all in which every block goes straight to its rank.

The bytes of near and of far messages are under way at the same time, so the slowest
level decides. The innermost level carries the blocks of the ranks that it joins: what
leaves the unit has a port of its own. Beyond, levels follow one another on the way out,
and each carries the blocks of all ranks outside the unit below. Messages go straight, so
they share the links of a torus and may leave their rail; where they first move inside the
node (PXN), the innermost level carries these bytes as well.

A rank starts its messages one after another, so it pays the latency of every one,
whichever level decides. A reduce-scatter of the same messages moves what a ring does,
without a ring's neighbours, and is priced by partners
anywhere; ``auto`` leaves it out.
"""

from __future__ import annotations

from typing import Any

from parcost import Group, Phase, Real, hookimpl
from parcost.numeric import any_of, maximum, where
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase
from parcost_plugins.vocabulary.exchange import direct_links, partner_link, relayed_share

_FORMULAS = {
    "all_to_all": "max(k alpha' + (k + x (P - k - 1)) n / (P B') + max(M alpha), "
    "max(M (alpha + n / (P B))) + k alpha'), k messages within a unit, M that leave it at "
    "each level, x of those relayed inside",
    "reduce_scatter": "(P - 1) alpha + n (P - 1) / P / B",
}


class Pairwise(PhasedAlgorithm):
    """One message of n/P to each other rank."""

    name = "pairwise"
    operations = frozenset(_FORMULAS)
    by_name_only = frozenset({"reduce_scatter"})
    source = "Thakur, Rabenseifner, Gropp 2005"
    sees = "links"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time: of an all-to-all, that of its slowest level."""
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
        """Return what each level carries; of an all-to-all, all at the same time."""
        P = group.ranks
        if operation == "reduce_scatter":
            bytes_ = n * (P - 1) / P
            return single_phase(partner_link(group), P - 1, bytes_, bytes_)
        inner, *links = direct_links(group)
        near = group.shape[0] - 1.0
        inside: Real = group.fewest[0]
        found = [Phase(inner, near, (near + (P - inside) * relayed_share(group)) * n / P)]
        for g, least, link in zip(group.shape[1:], group.fewest[1:], links, strict=True):
            outside = where(g > 1, P - inside, 0.0)
            found.append(Phase(link, outside, outside * n / P))
            inside = inside * least
        return found

    def formula(self, operation: str) -> str:
        """Return the formula in letters."""
        return _FORMULAS[operation]

    def formula_for(self, operation: str, group: Group) -> tuple[Any, ...]:
        """Return the formula, and the links to distant ranks that it is of."""
        if operation == "reduce_scatter":
            return self.formula(operation), partner_link(group)
        near, *outer = self.phases(operation, 1.0, group)
        used = [(str(p.link.name), p) for p in outer if any_of(p.rounds > 0)]
        letters = {
            "k": near.rounds,
            "x": relayed_share(group),
            "M": {name: phase.rounds for name, phase in used},
            "alpha": ({name: phase.link.latency for name, phase in used}, "s"),
            "B": ({name: phase.link.bandwidth for name, phase in used}, "B/s"),
            "alpha'": (near.link.latency, "s"),
            "B'": (near.link.bandwidth, "B/s"),
        }
        return self.formula(operation), "links", letters


@hookimpl
def collectives() -> list[Pairwise]:
    """Offer the pairwise exchange."""
    return [Pairwise()]
