"""The ranks of a transfer: described by it, on a level, or in a group of the layout."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from parcost import Group, Link, Rate, Real, Study, block_name
from parcost.numeric import maximum, minimum
from parcost_plugins.calculators.transfers.links import TransferLinks, link
from parcost_plugins.vocabulary import Cluster, Fabric, Level, Transfer


def ranks(transfer: Transfer) -> Real | None:
    """Return the number of ranks; None if a transfer that describes its ranks does not state it."""
    if transfer.ranks_per_node is not None:
        return transfer.ranks_per_node * transfer.nodes
    if transfer.ranks is None and transfer.operation == "point_to_point":
        return transfer.nodes if transfer.network_bandwidth is not None else 2.0
    return transfer.ranks


def place(study: Study, transfer: Transfer) -> Group:
    """Return the group of *transfer*, after its rules were checked."""
    if transfer.group != "own":
        placed = study.group(transfer.group)
        return evolve(placed, reduction=transfer.gamma) if transfer.gamma is not None else placed
    P = ranks(transfer)
    assert P is not None
    gamma = 0.0 if transfer.gamma is None else transfer.gamma
    if transfer.level:
        near = _level_link(study, level(study, transfer), transfer.congestion)
        return Group(name="own", ranks=P, shape=(P,), links=(near,), reduction=gamma)
    assert transfer.bandwidth is not None
    described = Level(
        label="node",  # type: ignore[call-arg]
        bandwidth=transfer.bandwidth,
        latency=transfer.latency,
        kind=transfer.kind,
        dimensions=transfer.dimensions,
        wrap=transfer.wrap,
        in_network=transfer.in_network,
    )
    near = link(
        "node",
        latency=transfer.latency,
        rate=transfer.bandwidth,
        share=transfer.efficiency / transfer.congestion,
        level=described,
    )
    if transfer.network_bandwidth is None:
        return Group(name="own", ranks=P, shape=(P,), links=(near,), reduction=gamma)
    return _two_level_group(transfer, transfer.network_bandwidth, P, near, gamma)


def level(study: Study, transfer: Transfer) -> Level | None:
    """Return the level that *transfer* names: in the fabric of the cluster, or without a cluster in
    any fabric.
    """
    found = [one for f in _fabrics(study) for one in f.levels if block_name(one) == transfer.level]
    return found[0] if len(found) == 1 else None


def _fabrics(study: Study) -> Sequence[Fabric]:
    """Return the fabric of the cluster, or all fabrics without a cluster."""
    cluster = study.get(Cluster)
    return [cluster.fabric] if cluster is not None else study.all(Fabric)


def level_names(study: Study) -> list[str]:
    """Return the names of the levels available to a transfer."""
    return [block_name(one) for f in _fabrics(study) for one in f.levels]


def _level_link(study: Study, found: Level | None, congestion: Real) -> Link:
    assert found is not None
    outermost = any(fabric.levels[-1] is found for fabric in _fabrics(study))
    own = found.oversubscription if outermost and found.kind != "rail" else 1.0
    hops = 1.0 if found.hops is None else found.hops
    return link(
        block_name(found),
        latency=found.latency + found.cable_latency + found.hop_latency * hops,
        rate=found.bandwidth,
        share=found.efficiency / found.collisions / own / congestion,
        level=found,
    )


def _two_level_group(transfer: Transfer, rate: Rate, P: Real, near: Link, gamma: Real) -> Group:
    """Return a group of ranks on several nodes, each with its network ports.

    A ring uses every port of a node; a leader uses one port alone.
    """
    nodes = transfer.nodes
    local = P / nodes
    described = Level(
        label="network",  # type: ignore[call-arg]
        bandwidth=rate,
        latency=transfer.network_latency,
        in_network=transfer.network_reduces,
    )
    ports = local if transfer.ports is None else transfer.ports

    def far_link(share: Real) -> Link:
        return link(
            "network",
            latency=transfer.network_latency,
            rate=rate,
            share=share * transfer.network_efficiency / transfer.congestion,
            level=described,
        )

    crossed = ((local > 1) | (nodes <= 1), nodes > 1)
    own = far_link(ports / local)

    def join_link(outer: Link) -> Link:
        return TransferLinks(name="network", links=(near, outer), crossed=crossed, level=described)

    return Group(
        name="own",
        ranks=P,
        shape=(local, nodes),
        links=(near, own),
        flat=join_link(far_link(ports)),
        pair=join_link(own),
        hop=join_link(far_link(minimum(maximum(ports / local, 1.0), ports))),
        reduction=gamma,
    )
