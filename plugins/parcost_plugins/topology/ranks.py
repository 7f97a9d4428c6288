"""The ranks of a job, enumerated: their coordinates, groups and units.

The results are counted without closed forms, and serve as a reference in tests of the placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parcost import Study, record
from parcost_plugins.topology.decomposition import Decomposition, join
from parcost_plugins.topology.occupancy import lattices
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster

#: Groups whose members tell the coordinates of a rank.
DEGREES = ("tp", "cp", "dp", "pp", "etp", "ep", "edp")


@record(kw_only=True, eq=False)
class Ranks:
    """All ranks: *groups* by name, as an array with one row of members per group.

    *places* maps names to the row and the column of each rank in such an array. *units* maps levels
    to the unit of each rank.
    """

    count: int
    groups: Mapping[str, Any]
    places: Mapping[str, tuple[Any, Any]]
    units: Mapping[str, Any]

    @classmethod
    def from_study(cls, study: Study) -> Ranks:
        """Return the ranks of *study*, which is a single point."""
        import numpy as np

        cluster = study[Cluster]
        count = int(cluster.devices)
        everyone = np.arange(count)
        groups: dict[str, Any] = {}
        places: dict[str, tuple[Any, Any]] = {}
        for name, axes in Decomposition.from_study(study).axes.items():
            whole = [(int(stride), int(extent)) for stride, extent in join(axes)]
            members = lattices(whole, count) if whole else everyone[:, None]
            row, column = np.empty(count, dtype=int), np.empty(count, dtype=int)
            row[members] = np.arange(len(members))[:, None]
            column[members] = np.arange(members.shape[1])
            groups[name], places[name] = members, (row, column)
        units = {tier.name: everyone // int(tier.capacity) for tier in tiers(cluster)[:-1]}
        return cls(count=count, groups=groups, places=places, units=units)

    def coordinate(self, name: str, rank: int) -> int:
        """Return the index of *rank* in its group called *name*."""
        return int(self.places[name][1][rank])

    def select(self, **coordinates: int) -> list[int]:
        """Return the ranks with *coordinates* such as ``pp=1, dp=0``."""
        import numpy as np

        holds = [self.places[name][1] == here for name, here in coordinates.items()]
        found: list[int] = np.flatnonzero(np.logical_and.reduce(holds)).tolist()
        return found

    def members(self, name: str, rank: int) -> list[int]:
        """Return the ranks of the group called *name* that contains *rank*."""
        found: list[int] = self.groups[name][self.places[name][0][rank]].tolist()
        return found

    def unit(self, level: str, ranks: Sequence[int]) -> list[int]:
        """Return the units of *level* that contain *ranks*."""
        return sorted({int(self.units[level][rank]) for rank in ranks})
