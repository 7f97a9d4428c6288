"""Base classes of algorithms that consist of phases; this module is not a plugin.

Time, rounds and bytes of an algorithm all follow from its phases. If it cannot run, its time is
infinite, and it states its requirements.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from parcost import Collective, Group, Link, Mask, Phase, Real
from parcost.numeric import INFINITY, where
from parcost_plugins.collectives.powers import largest_power


class PhasedAlgorithm(Collective):
    """An algorithm whose phases follow one another."""

    @abstractmethod
    def phases(self, operation: str, n: Real, group: Group) -> Sequence[Phase]:
        """Return the phases of *operation*."""

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the seconds of *operation*; infinity if it cannot run."""
        able = self.able(operation, group)
        if able is False:
            return INFINITY
        return where(able, phase_seconds(self.phases(operation, n, group), group), INFINITY)


class PowersOfTwo(PhasedAlgorithm):
    """An algorithm that needs a power-of-two number of ranks for some operations."""

    def able(self, operation: str, group: Group) -> Mask:
        """Return whether the rank count is a power of two, if *operation* needs one."""
        if operation not in self.powers_of_two:
            return True
        return largest_power(group.ranks) == group.ranks

    def needs(self, operation: str) -> str:
        """Return the requirements of *operation*."""
        return "a power of two of ranks" if operation in self.powers_of_two else ""


def phase_seconds(phases: Sequence[Phase], group: Group) -> Real:
    """Return the seconds of *phases* in sequence."""
    total: Real = 0.0
    reduced: Real = 0.0
    for link, rounds, bytes_, added in phases:
        total = total + link.seconds(rounds, bytes_)
        reduced = reduced + added
    return total + group.reduction * reduced


def single_phase(link: Link, rounds: Real, bytes_: Real, reduced: Real = 0.0) -> list[Phase]:
    """Return a list of one phase."""
    return [Phase(link, rounds, bytes_, reduced)]
