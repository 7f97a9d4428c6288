"""A root that exchanges messages with all other ranks, one after another.

They are a baseline. ``auto`` does not try them, because a tree is never slower. All messages are
estimated on ``group.pair``, the slowest boundary.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Phase, Real, hookimpl
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase


class Naive(PhasedAlgorithm):
    """The root sends the whole buffer to each rank, or receives and adds it."""

    name = "naive"
    operations = frozenset({"all_reduce", "broadcast", "reduce"})
    by_name_only = operations
    source = "Chan et al. 2007"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the messages of the root."""
        others = group.ranks - 1
        passes = 2 if operation == "all_reduce" else 1
        reduced = 0.0 if operation == "broadcast" else others * n
        return single_phase(group.pair, passes * others, passes * others * n, reduced)

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one expression."""
        once = "(P - 1) (alpha + n / B)"
        return ClosedForm(f"2 {once}" if operation == "all_reduce" else once, group.pair)


class Linear(PhasedAlgorithm):
    """The root sends each rank its part, or receives the part of each rank."""

    name = "linear"
    operations = frozenset({"scatter", "gather"})
    by_name_only = operations
    source = "Thakur, Rabenseifner, Gropp 2005"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return the messages of the root."""
        P = group.ranks
        return single_phase(group.pair, P - 1, n * (P - 1) / P)

    def closed_form(self, operation: str, group: Group) -> ClosedForm:  # noqa: ARG002
        """Return the time as one expression."""
        return ClosedForm("(P - 1) (alpha + n / P / B)", group.pair)


@hookimpl
def collectives() -> list[Naive | Linear]:
    """Return both algorithms."""
    return [Naive(), Linear()]
