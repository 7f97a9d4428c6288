"""Groups of ranks on the nested levels of a fabric.

``layout.order`` says which degree varies fastest over neighbouring devices. The dense
part of a model is cut by tp, cp, dp and pp; its experts are cut by etp, ep, edp and pp
over the same ranks. Placement depends on the product of the degrees before a group, its
*stride*, alone, so that equal axes are placed once.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from parcost import Group, Study, hookimpl
from parcost.numeric import all_of
from parcost_plugins.topology.decomposition import Decomposition, joined
from parcost_plugins.topology.occupancy import Axes
from parcost_plugins.topology.placement import place
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster


@hookimpl
def groups(study: Study) -> Iterator[Group]:
    """Place every group of the job, and those of experts where there are any."""
    cluster = study[Cluster]
    levels = tiers(cluster)
    cut = Decomposition.of(study)
    placed: list[tuple[Axes, Group]] = []
    for name, axes in {**cut.axes, "job": [(1.0, cluster.devices)]}.items():
        extent = joined(axes)
        group = next((there for other, there in placed if _same(extent, other)), None)
        if group is None:
            group = place(name, extent, levels, cluster.devices)
            placed.append((extent, group))
            yield group
        else:
            yield evolve(group, name=name)


def _same(these: Axes, those: Axes) -> bool:
    if len(these) != len(those):
        return False
    return all(
        all_of(a == b) and all_of(n == m) for (a, n), (b, m) in zip(these, those, strict=True)
    )
