"""Groups of ranks on the nested levels of a fabric.

``layout.order`` says which degree varies fastest over neighbouring devices. The dense part of a
model is split by tp, cp, dp and pp; its experts are split by etp, ep, edp and pp over the same
ranks. The placement of a group depends only on its axes: each has a degree and a *stride*, the
product of the degrees before it. So groups with equal axes are placed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from attrs import evolve

from parcost import Group, Real, Rulebook, Study, hookimpl, record
from parcost.numeric import all_of
from parcost_plugins.topology.decomposition import Decomposition, join
from parcost_plugins.topology.occupancy import Axes, lattices
from parcost_plugins.topology.placement import place
from parcost_plugins.topology.rulebook import RULES
from parcost_plugins.topology.tiers import Tier, tiers
from parcost_plugins.vocabulary import Cluster

PARTS = ("checks", "details", "views")


@hookimpl
def groups(study: Study) -> Iterator[Group]:
    """Place every group of the job, and the groups of experts if there are any."""
    cluster = study[Cluster]
    ground = study.query(_cluster_part)
    placed: list[tuple[Axes, Group]] = []
    for name, axes in Decomposition.from_study(study).axes.items():
        extent = join(axes)
        if not extent:
            members = partial(_members, (), cluster.devices)
            yield evolve(ground.alone, name=name, members=members)
            continue
        same = next((group for other, group in placed if _are_equal(extent, other)), None)
        if same is None:
            placed_group = place(
                name, extent, ground.levels, cluster.devices, reduction=ground.reduction
            )
            group = evolve(placed_group, members=partial(_members, extent, cluster.devices))
            placed.append((extent, group))
            yield group
        else:
            yield evolve(same, name=name)
    yield ground.job


@record(kw_only=True, eq=False)
class _ClusterPart:
    """The part of placement that depends only on the cluster."""

    levels: Sequence[Tier]
    reduction: Real
    alone: Group
    job: Group


def _cluster_part(study: Study) -> _ClusterPart:
    cluster = study[Cluster]
    levels, devices = tiers(cluster), cluster.devices
    rate = getattr(cluster.device, "reduction_bandwidth", None)
    reduction = 0.0 if rate is None else 1 / rate
    job = place("job", [(1.0, devices)], levels, devices, reduction=reduction)
    return _ClusterPart(
        levels=levels,
        reduction=reduction,
        alone=place("alone", [], levels, devices),
        job=evolve(job, members=partial(_members, [(1.0, devices)], devices)),
    )


def _members(axes: Axes, devices: Real) -> Sequence[Sequence[int]]:
    """Return the ranks of every group on *axes* of a single point; single ranks without axes."""
    count = int(devices)
    if not axes:
        return [[rank] for rank in range(count)]
    found: Sequence[Sequence[int]] = lattices(
        [(int(stride), int(extent)) for stride, extent in axes], count
    ).tolist()
    return found


def _are_equal(these: Axes, those: Axes) -> bool:
    if len(these) != len(those):
        return False
    for (a, n), (b, m) in zip(these, those, strict=True):
        if not (all_of(a == b) and all_of(n == m)):
            return False
    return True


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
