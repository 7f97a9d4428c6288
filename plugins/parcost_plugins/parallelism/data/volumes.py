"""Volumes of data parallelism per step: bytes and calls, compared with plain replicas.

Volumes assume algorithms that send every byte once. They are sums over the estimated collectives,
including repetitions per micro-batch. So full sharding has 1.5 times the volume of plain replicas
with one micro-batch, and 1.5 m times with m.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost import Figure, Once, Outcome, Real, Sheet, Study, Work
from parcost.numeric import any_of, maximum
from parcost_plugins.parallelism.data.compression import low_rank, quantised_bytes, top_k_bytes
from parcost_plugins.parallelism.data.shard_groups import (
    COMPRESSION,
    GRADIENTS,
    OUTER_STEP,
    ShardGroup,
    keeps_ends,
    shard_groups,
    trained_groups,
)
from parcost_plugins.physics.partition import stages_of_devices
from parcost_plugins.physics.run_choices import (
    gathers_once,
    keeps_last_layer,
    replicates_each_micro_batch,
    reshards,
    scatters,
    shards_gradients,
    shards_states,
    shards_weights,
)
from parcost_plugins.physics.stage_parameters import StageKind
from parcost_plugins.vocabulary import (
    Compression,
    Layout,
    LocalUpdates,
    Training,
)
from parcost_plugins.vocabulary.compression import EXCHANGED, SUMMED

#: Tags of terms that follow the end of backward.
_REDUCED = (GRADIENTS, COMPRESSION, OUTER_STEP)


def figures(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the volumes of a step, and the compute time needed to hide its reduction."""
    sheet = _sheet(study, outcome)
    yield sheet(
        "dp_volume",
        "sent by a rank for data parallelism in a step",
        "GB",
        "max(sent), reductions and gathers of a rank of each stage",
    )
    yield sheet(
        "dp_volume_replicas",
        "bytes a rank would send with replicated parameters",
        "GB",
        "max(plain), 2 (N - 1) / N psi g of a rank of each stage",
    )
    yield sheet(
        "dp_volume_against_replicas",
        "data-parallel traffic / traffic of plain replicas",
        "",
        "ratio(dp_volume, dp_volume_replicas)",
    )
    yield sheet(
        "dp_volume_total",
        "sent by all ranks for data parallelism in a step",
        "TB",
        "sum(sent) tp cp dp",
    )
    yield sheet(
        "gradient_bytes",
        "gradients of a rank",
        "GB",
        "psi g, tensor and pipeline parallelism also divide gradients",
    )
    yield sheet(
        "gradient_chunk",
        "gradients per ring step",
        "MB",
        "psi c / (dp cp), cut by tensor and pipeline parallelism, then by the ring"
        if study[Compression].method != "top_k"
        else "psi c, a whole part per step of an all-gather ring",
    )
    if study[Compression].method != "none":
        yield sheet(
            "equivalent_step_time",
            "step time x steps for the same progress",
            "s",
            "T steps",
        )
    yield from _overlap(study, outcome)


def _sheet(study: Study, outcome: Outcome) -> Sheet:
    """Return a sheet with the bytes that a rank of each stage sends, and the parallel degrees."""
    stages = stages_of_devices(study)
    sent = [_device_volumes(study, held) for held in stages]
    held: Real = 0.0
    for _, _, elements in sent:
        held = maximum(held, elements)
    each: Real = 0.0
    for wire in trained_groups(study):
        each = maximum(each, _bytes_per_gradient(study, wire.kind))
    layout = study[Layout]
    return Sheet(
        sent=([bytes_ for bytes_, _, _ in sent], "B"),
        plain=([bytes_ for _, bytes_, _ in sent], "B"),
        psi=held,
        g=(study[Training].precision.reduction, "B"),
        c=(each, "B"),
        tp=layout.tp,
        cp=layout.cp,
        dp=layout.dp,
        T=(outcome.step_seconds, "s"),
        steps=1.0 if study[Compression].method == "none" else study[Compression].steps,
    )


def sent_by_stage(study: Study) -> tuple[Real, Real]:
    """Return the most bytes that a rank sends per step, and the same for plain replicas."""
    most: Real = 0.0
    plain: Real = 0.0
    for held in stages_of_devices(study):
        sent, replicas, _ = _device_volumes(study, held)
        most, plain = maximum(most, sent), maximum(plain, replicas)
    return most, plain


def _device_volumes(study: Study, held: Sequence[int]) -> tuple[Real, Real, Real]:
    """Return the bytes that a device sends, the same for plain replicas, and its parameters."""
    sent: Real = 0.0
    replicas: Real = 0.0
    elements: Real = 0.0
    for wire in shard_groups(study) if shards_weights(study) else ():
        sent = sent + sum(wire.kind.count[stage] for stage in held) * gathers(study, wire)
    for wire in trained_groups(study):
        often = sum(wire.kind.count[stage] for stage in held)
        if often:
            sent = sent + often * volume(study, wire)
            replicas = replicas + often * _replicas(study, wire)
            elements = elements + often * wire.kind.elements
    return sent, replicas, elements


def gathers(study: Study, wire: ShardGroup) -> Real:
    """Return the bytes of sharded weights that a rank sends per step."""
    inside = study.group(wire.inside).ranks
    m = 1.0 if gathers_once(study) else study.pipeline.micro_batches
    return (inside - 1.0) / inside * m * _gathered_bytes(study, wire)


def volume(study: Study, wire: ShardGroup) -> Real:
    """Return the bytes that a rank sends per step to reduce and gather the parameters; *wire* has
    bytes per parameter.
    """
    precision, kind, m = study[Training].precision, wire.kind, study.pipeline.micro_batches
    inside = study.group(wire.inside).ranks
    around = (inside - 1.0) / inside
    every = shards_gradients(study)
    reduced = m if every else 1.0
    found = reduced * _reduction(study, wire) * (1.0 if scatters(study) else 2.0)
    if wire.across:
        groups = study.group(wire.across).ranks
        often = m if every and replicates_each_micro_batch(study) else 1.0
        share = 2.0 * (groups - 1.0) / groups * kind.elements * precision.reduction / kind.shard
        found = found + often * share
    if shards_states(study) and not shards_weights(study):
        found = found + around * kind.total_bytes(precision.gather, precision.wide_gather)
    local = study[LocalUpdates]
    if not kind.expert and any_of(local.workers > 1):
        workers, shards = local.workers, kind.shards(shards_states(study))
        outer = 2.0 * (workers - 1.0) / workers * kind.elements / shards * local.wire
        found = found + outer / local.period
    return found


def _reduction(study: Study, wire: ShardGroup) -> Real:
    """Return the bytes that a rank sends in a reduce-scatter; an all-reduce sends twice as much."""
    elements, P = wire.kind.elements, study.group(wire.inside).ranks
    each = _bytes_per_gradient(study, wire.kind)
    if study[Compression].method == "top_k":
        return (P - 1.0) * elements * each / 2.0  # an all-gather in all
    return (P - 1.0) / P * elements * each


def _bytes_per_gradient(study: Study, kind: StageKind) -> Real:
    chosen = study[Compression]
    if chosen.method in SUMMED:
        return SUMMED[chosen.method] / 8.0
    if chosen.method in EXCHANGED:
        return quantised_bytes(chosen)
    if chosen.method == "top_k":
        return top_k_bytes(chosen)
    if chosen.method == "power_sgd":
        return sum(low_rank(study, kind), 0.0)
    return study[Training].precision.reduction


def _gathered_bytes(study: Study, wire: ShardGroup) -> Real:
    """Return the bytes gathered per micro-batch, added over both passes."""
    kind = wire.kind
    layer, first = kind.layer * kind.wire["layer"], kind.before * kind.wire["before"]
    forward = first + kind.layers * layer + kind.after * kind.wire["after"]
    if not reshards(study):
        return forward
    layers = max(kind.layers - int(keeps_last_layer(study)), 0)
    before = 0.0 if keeps_ends(study) else first
    return forward + layers * layer + before


def _replicas(study: Study, wire: ShardGroup) -> Real:
    n = wire.kind.elements * study[Training].precision.reduction
    return 2.0 * (wire.kind.replicas - 1.0) / wire.kind.replicas * n


def _overlap(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the hidden share of the last reduction, and the compute that would hide all of it."""
    shown: dict[str, Real] = {}
    hidden: dict[str, Real] = {}
    backward: dict[str, Real] = {}
    for line in outcome.ledger:
        term = line.term
        if isinstance(term, Once) and term.when == "drain" and term.tag in _REDUCED:
            shown[line.name] = shown.get(line.name, 0.0) + line.exposed
            hidden[line.name] = hidden.get(line.name, 0.0) + line.hidden
        if isinstance(term, Work) and line.pass_ in ("B", "W", "R"):
            name = f"{line.name}, {line.pass_}"
            backward[name] = backward.get(name, 0.0) + line.exposed
    sheet = Sheet(
        exposed=(shown, "s"),
        hidden=(hidden, "s"),
        backward=(backward, "s"),
        m=outcome.pipeline.micro_batches,
        b=study[Training].micro_batch,
    )
    yield sheet(
        "reduction_time",
        "gradient reduction once per step, hidden or not",
        "s",
        "sum(exposed) + sum(hidden), on the busiest device",
    )
    wire = sheet.symbols["reduction_time"][0].value
    if any_of(wire > 0):  # fully hidden if nothing is reduced
        yield sheet(
            "overlap_efficiency",
            "hidden share of the gradient reduction",
            "%",
            "ratio(sum(hidden), reduction_time)",
        )
    yield sheet(
        "micro_batch_for_overlap",
        "micro-batch size at which the backward time equals the reduction time",
        "",
        "max(ceil(b reduction_time / max(sum(backward) / m, 1e-300)), 1)",
    )
