"""NCCL's own cost model: the fastest pair of algorithm and protocol, as it would choose.

The library predicts ``latency + n / bandwidth`` for each pair from a table of its release
and from what its topology search found: channels, and the bandwidth of each. The table is a
block, ``collectives { tuning = nccl_2_30 }``; generation and channels stand beside it.
Only a name asks for it, for its times hold for that library alone. It knows nothing of the
host's launch, nor of ranks that arrive late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

from parcost import Collective, Group, Mask, Real, Study, hookimpl
from parcost.numeric import INFINITY, minimum
from parcost_plugins.vocabulary import CollectiveChoice

if TYPE_CHECKING:
    from parcost_plugins.collectives.nccl.machine import Machine


@frozen(eq=False)
class Nccl(Collective):
    """The library on a *machine*; without one, it cannot run."""

    machine: Machine | None = None

    name = "nccl"
    operations = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
    by_name_only = operations
    source = "NCCL, src/graph/tuning.cc, by the table of its release"

    def for_study(self, study: Study) -> Nccl:
        """Return the library with the table and the machine of *study*."""
        choice = study.get(CollectiveChoice)
        if choice is None or choice.tuning is None:
            return self
        from parcost_plugins.collectives.nccl.machine import machine

        return Nccl(machine(choice))

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return whether the study has what the library needs."""
        return self.machine is not None

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return what the library needs."""
        return (
            "`tuning` with all of its rows, `generation`, `channels`, and `channel_bandwidth` or "
            "`links`, in `collectives`"
        )

    def choices(self, operation: str, n: Real, group: Group) -> dict[str, Real]:
        """Return the time of each pair, infinite where it is not offered."""
        if self.machine is None:
            return {}
        from parcost_plugins.collectives.nccl.pairs import pairs

        return pairs(self.machine, operation, n, group)

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of the fastest pair."""
        best: Real = INFINITY
        for seconds in self.choices(operation, n, group).values():
            best = minimum(best, seconds)
        return best


@hookimpl
def collectives() -> list[Nccl]:
    """Offer the library."""
    return [Nccl()]
