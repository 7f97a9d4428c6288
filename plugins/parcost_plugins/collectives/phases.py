"""Algorithms as lists of phases. Shared by algorithms; no plugin of its own.

What an algorithm moves is said once, as phases; its time, its rounds and its bytes all
follow from them. Where it cannot run it takes for ever, and says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from parcost import Group, Link, Mask, Real
from parcost.numeric import INFINITY, where
from parcost_plugins.collectives.powers import largest_power
from parcost_plugins.vocabulary import Phase


class PhasedAlgorithm:
    """An algorithm whose phases follow one another."""

    def phases(self, operation: str, n: Real, group: Group) -> Sequence[Phase]:
        """Return the parts of *operation*."""
        raise NotImplementedError

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return where it can run."""
        return True

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Say, in words, what it needs in order to run."""
        return ""

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation*; infinity where it cannot run."""
        able = self.able(operation, group)
        if able is False:
            return INFINITY
        return where(able, phase_seconds(self.phases(operation, n, group), group), INFINITY)


class PowersOfTwo(PhasedAlgorithm):
    """An algorithm of which some operations want a power of two of ranks."""

    of_powers: frozenset[str] = frozenset()

    def able(self, operation: str, group: Group) -> Mask:
        """Return where the ranks are a power of two, if *operation* wants one."""
        if operation not in self.of_powers:
            return True
        return largest_power(group.ranks) == group.ranks

    def needs(self, operation: str) -> str:
        """Return what *operation* needs."""
        return "a power of two of ranks" if operation in self.of_powers else ""


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
