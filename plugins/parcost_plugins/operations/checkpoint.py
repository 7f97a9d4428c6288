"""One checkpoint: its size, its write time, and the time that training is blocked.

Every device with unique state writes it; replicas write nothing. The slowest of three determines
the time: the storage, the busiest node's link to it, and serialisation on the host.
"""

from __future__ import annotations

from parcost import Formula, Real, Study, formula, record, sum_counts
from parcost.numeric import maximum, minimum
from parcost_plugins.physics.run_choices import shards_states
from parcost_plugins.physics.stage_parameters import mean_weight, trained_parameters
from parcost_plugins.vocabulary import Checkpoint, Cluster, Training


@record(kw_only=True, eq=False)
class CheckpointCost:
    """The cost of one checkpoint. Unknown values are None; rules report the needed ones."""

    size: Formula | None
    shard: Formula | None
    writing: Formula | None
    blocking: Formula | None


def checkpoint_cost(study: Study, checkpoint: Checkpoint) -> CheckpointCost:
    """Return the cost of a checkpoint of *study*."""
    size = _size(study, checkpoint)
    shards = _shards(study, checkpoint)
    shard = None
    if size is not None and shards is not None:
        shard = formula("size / N, of devices that differ", size=(size, "B"), N=shards)
    writing = None if size is None else _write_time(study, checkpoint, size, shard)
    if checkpoint.blocking is not None:
        blocking: Formula | None = formula("C", C=(checkpoint.blocking, "s"))
    else:
        blocking = _copy_time(study, checkpoint, shard) if checkpoint.asynchronous else writing
    return CheckpointCost(size=size, shard=shard, writing=writing, blocking=blocking)


def _size(study: Study, checkpoint: Checkpoint) -> Formula | None:
    if checkpoint.size is not None:
        return formula("size", size=(checkpoint.size, "B"))
    if not study.all(Training):
        return None
    each = checkpoint.bytes_per_parameter
    if each is None:
        each = mean_weight(study) + study[Training].precision.optimizer
    elements: Real = 0.0
    for held in trained_parameters(study):
        elements = elements + held.total * sum_counts(held.count)
    return formula("e psi, psi parameters", e=(each, "B"), psi=elements)


def _shards(study: Study, checkpoint: Checkpoint) -> Real | None:
    """Return the number of devices with distinct state: all if ZeRO shards it over all replicas."""
    if checkpoint.shards is not None:
        return checkpoint.shards
    if not study.all(Training):
        return None
    alike = study.group("replicate" if shards_states(study) else "dp_cp")
    return study[Cluster].devices / alike.ranks


def _write_time(
    study: Study, checkpoint: Checkpoint, size: Formula, shard: Formula | None
) -> Formula | None:
    """Return the write time in seconds, the slowest of storage, node link and serialisation."""
    ends: dict[str, Formula] = {}
    if checkpoint.storage is not None:
        ends["storage"] = formula("n / B", n=(size, "B"), B=(checkpoint.storage, "B/s"))
    nodes = None if checkpoint.node_bandwidth is None else _nodes(study, checkpoint)
    if nodes is not None:
        ends["node"] = formula(
            "n / k / B", n=(size, "B"), k=nodes, B=(checkpoint.node_bandwidth, "B/s")
        )
    if checkpoint.serialisation is not None and shard is not None:
        ends["serialisation"] = formula(
            "n / B", n=(shard, "B"), B=(checkpoint.serialisation, "B/s")
        )
    return formula("max(t)", t=(ends, "s")) if ends else None


def _nodes(study: Study, checkpoint: Checkpoint) -> Real | None:
    """Return the number of nodes that write: units of the first level, at most the shards."""
    if checkpoint.nodes is not None:
        return checkpoint.nodes
    cluster = study.get(Cluster)
    if cluster is None or not cluster.fabric.levels or cluster.fabric.levels[0].size is None:
        return None
    nodes = maximum(cluster.devices / cluster.fabric.levels[0].size, 1.0)
    shards = _shards(study, checkpoint)
    return nodes if shards is None else minimum(nodes, shards)


def _copy_time(study: Study, checkpoint: Checkpoint, shard: Formula | None) -> Formula | None:
    """Return the seconds to copy one shard to its host."""
    rate = checkpoint.host_bandwidth
    cluster = study.get(Cluster)
    if rate is None and cluster is not None:
        rate = cluster.device.host_bandwidth
    if rate is None or shard is None:
        return None
    return formula("n / B, to the host", n=(shard, "B"), B=(rate, "B/s"))
