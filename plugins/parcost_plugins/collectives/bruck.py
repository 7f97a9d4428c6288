"""Bruck's algorithms: logarithmically many rounds for any number of ranks.

The distances of partners are powers of two, independent of the placement. So every round is
estimated on ``group.pair``, the slowest boundary. The local reordering of blocks is not included.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Phase, Real, hookimpl
from parcost.numeric import any_of, ceil_log2, floor, maximum
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase
from parcost_plugins.physics.exchange import partner_link

_FORMULAS = {
    "all_gather": "ceil(log2(P)) alpha + n (P - 1) / P / B",
    "all_to_all": "ceil(log2(P)) alpha + n / P S / B, S one-bits in 1 to P - 1",
}


class Bruck(PhasedAlgorithm):
    """Round k moves blocks by 2^k ranks: all blocks received so far (all-gather), or blocks whose
    bit k is set.
    """

    name = "bruck"
    operations = frozenset(_FORMULAS)
    source = "Bruck et al. 1997"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return one phase for all rounds."""
        P = group.ranks
        blocks = P - 1 if operation == "all_gather" else one_bits(P)
        return single_phase(partner_link(group), ceil_log2(P), n / P * blocks)

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one expression."""
        symbols = {"S": one_bits(group.ranks)}
        return ClosedForm(_FORMULAS[operation], partner_link(group), symbols)


def one_bits(P: Real) -> Real:
    """Return the total number of one bits in the binary numbers 0 to P - 1.

    >>> one_bits(8.0), one_bits(6.0)
    (12.0, 7.0)
    """
    total: Real = 0.0
    bit = 1.0
    while any_of((ones := _ones(P, bit)) > 0):
        total = total + ones
        bit = 2 * bit
    return total


def _ones(P: Real, bit: float) -> Real:
    """Return how many of the numbers 0 to P - 1 have *bit* set."""
    cycles = floor(P / (2 * bit))  # of bit zeros, then bit ones
    return cycles * bit + maximum(P - (2 * cycles + 1) * bit, 0.0)


@hookimpl
def collectives() -> list[Bruck]:
    """Return the Bruck algorithms."""
    return [Bruck()]
