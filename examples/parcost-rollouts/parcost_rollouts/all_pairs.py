"""All pairs: each rank takes its share of the sum straight from every other one.

Where a switch or a full mesh joins all ranks, no rank passes anything on. In one step
a rank reads its 1/P of all P - 1 buffers and adds them up, in another it writes the sum to
all: the bytes of a ring, without the latency of 2 (P - 1) hops. Beyond a node the messages
would crowd on the ports, so it is for one node only.
"""

from __future__ import annotations

from parcost import ClosedForm, Collective, Group, Mask, Real, hookimpl
from parcost.numeric import INFINITY, minimum, where

_STEPS = {"reduce_scatter": 1.0, "all_gather": 1.0, "all_reduce": 2.0}


class AllPairs(Collective):
    """Straight reads and writes inside a node: a reduce-scatter, an all-gather, or both."""

    name = "all_pairs"
    operations = frozenset(_STEPS)
    source = "Cowan et al. 2023, MSCCLang: All Pairs"

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return the rule that all ranks are on one node."""
        return group.shape[0] == group.ranks

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the requirement."""
        return "all ranks on one node"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation*, infinite over several nodes."""
        steps, P = _STEPS[operation], group.ranks
        others = minimum(P - 1, 1.0)  # a single rank waits for no other
        moved = n * (P - 1) / P
        summed = 0.0 if operation == "all_gather" else moved * group.reduction
        time = group.links[0].seconds(steps * others, steps * moved) + summed
        return where(self.able(operation, group), time, INFINITY)

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one expression."""
        if operation == "all_reduce":
            return ClosedForm("2 alpha + 2 n (P - 1) / P / B", group.flat)
        return ClosedForm("alpha + n (P - 1) / P / B", group.flat)


@hookimpl
def collectives() -> list[AllPairs]:
    """Offer the algorithm."""
    return [AllPairs()]
