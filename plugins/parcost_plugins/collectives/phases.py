"""Algorithms as lists of phases. Shared by algorithms; no plugin of its own.

What an algorithm moves is said once, as phases; its time, its rounds and its bytes all
follow from them. Where it cannot run it takes for ever, and says why.
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
        """Return the parts of *operation*."""

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation*; infinity where it cannot run."""
        able = self.able(operation, group)
        if able is False:
            return INFINITY
        return where(able, phase_seconds(self.phases(operation, n, group), group), INFINITY)


class PowersOfTwo(PhasedAlgorithm):
    """An algorithm of which some operations want a power of two of ranks."""

    def able(self, operation: str, group: Group) -> Mask:
        """Return where the ranks are a power of two, if *operation* wants one."""
        if operation not in self.powers_of_two:
            return True
        return largest_power(group.ranks) == group.ranks

    def needs(self, operation: str) -> str:
        """Return what *operation* needs."""
        return "a power of two of ranks" if operation in self.powers_of_two else ""


def phase_seconds(phases: Sequence[Phase], group: Group) -> Real:
    """Return the time of *phases* one after another."""
    total: Real = 0.0
    reduced: Real = 0.0
    for link, rounds, bytes_, added in phases:
        total = total + link.seconds(rounds, bytes_)
        reduced = reduced + added
    return total + group.reduction * reduced


def single_phase(link: Link, rounds: Real, bytes_: Real, reduced: Real = 0.0) -> list[Phase]:
    """Return an algorithm of one phase."""
    return [Phase(link, rounds, bytes_, reduced)]
