"""Ring collectives: the fewest bytes without in-network reduction, and the most rounds.

A ring over several levels is estimated on ``group.flat``. NCCL builds one ring per port, each
leaving the node through another port. So a ring uses every port of the group at a boundary. Every
round takes the longest latency on the ring.
"""

from __future__ import annotations

from attrs import evolve

from parcost import ClosedForm, Group, Phase, Real, hookimpl, record
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase
from parcost_plugins.collectives.pieces import pieces

_FORMULAS = {
    "all_reduce": "2 (P - 1) alpha + 2 n (P - 1) / P / B",
    "all_gather": "(P - 1) alpha + n (P - 1) / P / B",
    "reduce_scatter": "(P - 1) alpha + n (P - 1) / P / B",
}


@record(eq=False)
class Ring(PhasedAlgorithm):
    """Rounds of n/P bytes to the next rank; broadcast and reduce are pipelined chains.

    The number of *pieces* of a chain is optimised if it is not given.
    """

    pieces: Real | None = None

    name = "ring"
    operations = frozenset({*_FORMULAS, "broadcast", "reduce"})
    source = "Patarasuk and Yuan 2009; Thakur, Rabenseifner, Gropp 2005"

    def cut(self, pieces: Real) -> Ring:
        """Return the algorithm with its chains cut into *pieces* pieces."""
        return evolve(self, pieces=pieces)

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases around the ring."""
        P = group.ranks
        if operation in ("broadcast", "reduce"):
            rounds, bytes_ = pieces(P, n, group.flat, self.pieces)
            return single_phase(
                group.flat, rounds, bytes_, bytes_ if operation == "reduce" else 0.0
            )
        lap = n * (P - 1) / P
        if operation == "all_reduce":
            return single_phase(group.flat, 2 * (P - 1), 2 * lap, lap)
        return single_phase(group.flat, P - 1, lap, lap if operation == "reduce_scatter" else 0.0)

    def closed_form(self, operation: str, group: Group) -> ClosedForm | None:
        """Return the time as one expression; None for pipelined chains."""
        text = _FORMULAS.get(operation)
        return None if text is None else ClosedForm(text, group.flat)


@hookimpl
def collectives() -> list[Ring]:
    """Return the ring algorithm."""
    return [Ring()]
