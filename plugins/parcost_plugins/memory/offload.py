"""Offload: state in host memory, and the cost of its transfers.

The link to the host works in both directions at once. With a CPU optimizer, gradients are sent to
the host, and parameters come back unless they are offloaded. If the device updates offloaded state,
the state is transferred in both directions at the same time. If it updates offloaded parameters,
they are sent to the host. Activations are sent in forward and fetched in backward; parameters are
fetched for each gather. These two overlap with compute. The optimizer runs at the end of the step,
without overlap.

A framework may keep sums of sharded gradients on the host (`framework.host_sums`). For example, a
shard has 1e9 parameters, and sums have 2 B. DeepSpeed's ZeRO 3 fetches and sends 2 GB in each
micro-batch. In the last one it also sends the total in fp32, 4 GB.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import (
    Check,
    Figure,
    Formula,
    Memory,
    Once,
    Outcome,
    Real,
    Study,
    Work,
    formula,
    hookimpl,
)
from parcost.numeric import all_of, any_of, is_array, maximum, minimum, where
from parcost_plugins.memory.rulebook import RULES
from parcost_plugins.physics import virtual_stages
from parcost_plugins.physics.adapters import Holding, holdings, weight_bytes
from parcost_plugins.physics.partition import stages_of_devices
from parcost_plugins.physics.run_choices import (
    gathers_per_micro_batch,
    hides_gradients,
    host_sums,
    open_window,
    reshards,
    shards_states,
    shards_weights,
    sums_of_host,
)
from parcost_plugins.physics.stage_parameters import (
    StageKind,
    stage_kinds,
    stage_range,
    trained_kinds,
)
from parcost_plugins.vocabulary import Cluster, Layout, LocalUpdates, Offload, Training
from parcost_plugins.vocabulary.causes import ACTIVATIONS, BUFFERS, OFFLOAD
from parcost_plugins.vocabulary.sharding import outer_state_bytes

LINK = "host"


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Yield the offloaded activations as negative memory, and a buffer for accumulated
    gradients.
    """
    offload = study[Offload]
    if _copies_shards(study):
        for kind in trained_kinds(study):
            yield _fetch_buffer(kind, study)
    if _is_offloaded(offload.activations):
        yield Memory(
            name="activations on the host",
            cause=ACTIVATIONS,
            bytes_=0.0,
            of_activations=-offload.activations,
            formula=Formula(
                text="a share of the activations alive", inputs={"share": -offload.activations}
            ),
        )


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate the transfers between device and host."""
    offload, bandwidth = study[Offload], study[Cluster].device.host_bandwidth
    if bandwidth is None:
        return  # a rule has said so where it matters
    if _is_offloaded(offload.optimizer):
        for kind in trained_kinds(study):
            yield from _optimizer(study, kind, bandwidth)
    if _is_offloaded(offload.optimizer) or _is_offloaded(offload.parameters):
        for kind in trained_kinds(study):
            yield from _transfer_updates(study, kind, bandwidth)
    if _is_offloaded(offload.parameters) and shards_weights(study):
        for holding in holdings(study):
            for kind in stage_kinds(study, holding):
                yield from _parameters(study, kind, bandwidth, holding)
    if _is_offloaded(offload.activations):
        yield from _activations(study, bandwidth)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require a host link, sharded parameters, and a host that can run the update, if these are
    used.
    """
    offload, device = study[Offload], study[Cluster].device
    for name in ("optimizer", "parameters", "activations"):
        away = getattr(offload, name)
        if _is_offloaded(away):
            yield Check(
                id="offload-needs-host-bandwidth",
                holds=(away == 0) | (device.host_bandwidth is not None),
                subject=f"offload.{name}",
                message=f"{{share:.4g}} % of {_OFFLOADED[name]} is offloaded, but the device has "
                "no `host_bandwidth`",
                inputs={"share": 100.0 * away},
                help="write `host_bandwidth` in the device, such as 64 GB/s per_direction",
            )
    if _is_offloaded(offload.parameters):
        yield RULES.check(
            "offload-needs-sharding",
            (offload.parameters == 0) | shards_weights(study),
            "offload.parameters",
            zero=study[Layout].zero,
        )
    if _is_offloaded(offload.optimizer) and offload.update == "host":
        yield RULES.check(
            "offload-needs-host-memory-bandwidth",
            (offload.optimizer == 0) | (offload.host_memory_bandwidth is not None),
            "offload.update",
            share=100.0 * offload.optimizer,
        )
    if study[LocalUpdates].offload:
        yield Check(
            id="offload-needs-host-bandwidth",
            holds=device.host_bandwidth is not None,
            subject="local_updates.offload",
            message=(
                "the outer optimizer state is on the host, but the device has no `host_bandwidth`"
            ),
            help="write `host_bandwidth` in the device, such as 64 GB/s per_direction",
        )


@hookimpl
def outcome_checks(study: Study, outcome: Outcome) -> Iterator[Check]:
    """Require that the offloaded state fits in host memory."""
    offload, local = study[Offload], study[LocalUpdates]
    shares = (offload.optimizer, offload.parameters, offload.activations)
    outer = any_of(outer_state_bytes(local) != 0) and local.offload
    away = any(map(_is_offloaded, shares)) or outer
    room = offload.host_memory if away else None
    if room is None:
        return
    needs = host_bytes(study, outcome)
    yield RULES.check(
        "host-does-not-fit",
        needs <= room,
        "offload.host_memory",
        needs=needs / 2.0**30,
        room=room / 2.0**30,
    )


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Yield the host memory per device."""
    if brief:
        return
    yield Figure(
        name="host_memory",
        title="memory on the host, per device",
        value=formula("max(M), of each device", M=(_host_bytes_by_device(study, outcome), "B")),
        unit="GiB",
    )


def host_bytes(study: Study, outcome: Outcome) -> Real:
    """Return the largest host memory of any device, in bytes."""
    found: Real = 0.0
    for held in _host_bytes_by_device(study, outcome):
        found = maximum(found, held)
    return found


def _host_bytes_by_device(study: Study, outcome: Outcome) -> list[Real]:
    """Return the host memory of each device, in bytes.

    For several virtual stages on a device, the peaks of their activations are added, as if they
    occurred at once.
    """
    offload = study[Offload]
    kept: list[Real] = [0.0] * virtual_stages(study)
    if _is_offloaded(offload.activations):
        kept = [
            offload.activations * bytes_ * alive
            for bytes_, alive in zip(_activation_bytes(study), outcome.alive, strict=True)
        ]
    states = [(kind, _state(study, kind)) for kind in trained_kinds(study)]
    frozen = [holding for holding in holdings(study) if holding != "trained"]
    states += [
        (kind, _weights(study, kind, holding))
        for holding in frozen
        for kind in stage_kinds(study, holding)
    ]
    found: list[Real] = []
    for stages in stages_of_devices(study):
        held: Real = 0.0
        for stage in stages:
            held = held + kept[stage]
            for kind, state in states:
                held = held + kind.count[stage] * state
        found.append(held)
    return found


def _state(study: Study, kind: StageKind) -> Real:
    """Return the bytes of state that a host keeps for a stage of *kind*."""
    offload, local, precision = study[Offload], study[LocalUpdates], study[Training].precision
    shared = offload.optimizer * precision.optimizer
    if _is_offloaded(offload.optimizer) and offload.update == "host":
        shared = shared + offload.optimizer * (_update_gradients(study) + _sum_bytes(study))
    outer = outer_state_bytes(local)
    if any_of(outer != 0) and local.offload:
        shared = shared + outer
    shards = kind.shards(shards_states(study))
    state = shared / shards * kind.elements + _weights(study, kind, "trained")
    if _copies_shards(study):
        whole = kind.total_bytes(*weight_bytes(study, "trained"))
        state = state + offload.optimizer * whole / shards
    return state


def _copies_shards(study: Study) -> bool:
    """Return whether updated weights pass through a copy of the shard in their own type.

    This is true for ZeRO 1 and 2 of DeepSpeed, which also fetch accumulated gradients into a
    buffer.
    """
    fetches = sums_of_host(study) == "fetch" and shards_states(study)
    return fetches and not shards_weights(study)


def _fetch_buffer(kind: StageKind, study: Study) -> Memory:
    """Return the buffer on the device for the accumulated gradient of the largest tensor."""
    return Memory(
        name=kind.label("buffer for a sum of gradients"),
        cause=BUFFERS,
        bytes_=formula(
            "o > 0 ? max(a, b, k m) e : 0, embedding b, head a, or the largest matrix m of k "
            "layers",
            o=study[Offload].optimizer,
            a=kind.after,
            b=kind.before,
            k=minimum(kind.layers, 1),
            m=kind.matrix,
            e=(study[Training].precision.gradients, "B"),
            source="DeepSpeed, runtime/zero/stage_1_and_2.py: temp_grad_buffer_for_gpu_offload",
        ),
        count=kind.count,
        once_per_device=True,
    )


def _update_gradients(study: Study) -> Real:
    """Return the bytes of a gradient that the host reads for its update."""
    training, held = study[Training], study[Training].precision.gradients
    if host_sums(study) == "add":
        return 0.0  # the sum is read
    return maximum(held, training.framework.update_gradients)


def _sum_bytes(study: Study) -> Real:
    """Return the bytes of an accumulated gradient on the host, without the gradient of the update.

    For a single micro-batch DeepSpeed has none, except with ZeRO 3.
    """
    training, sums = study[Training], sums_of_host(study)
    if sums == "none" or not shards_states(study):
        return 0.0
    held = training.precision.gradients
    if sums == "fetch" and not shards_weights(study):
        return where(training.micro_batches > 1, held, 0.0)
    return held if sums == "fetch" or host_sums(study) == "add" else 0.0


def _clip_traffic(study: Study) -> Real:
    """Return the bytes per gradient that the host moves to scale gradients, or for their norm."""
    precision, sums = study[Training].precision, sums_of_host(study)
    if sums == "fetch":
        return 2.0 * _update_gradients(study)
    return precision.norm_traffic if sums == "add" else 0.0


def _weights(study: Study, kind: StageKind, holding: Holding) -> Real:
    """Return the bytes of weights that a host keeps for a stage of *kind*."""
    away = study[Offload].parameters / kind.shards(shards_weights(study))
    return away * kind.total_bytes(*weight_bytes(study, holding))


def _optimizer(study: Study, kind: StageKind, bandwidth: Real) -> Iterator[Work | Once]:
    offload, precision = study[Offload], study[Training].precision
    share = offload.optimizer / kind.shards(shards_states(study))
    away = share * kind.elements
    if offload.update == "device":
        yield _transfer_term(
            kind.label("optimizer state from and to the host"),
            away * precision.optimizer,
            kind,
            bandwidth,
            "each way at once",
        )
        return
    yield from _gradients(study, kind, away, bandwidth)
    if offload.host_memory_bandwidth is not None:
        yield _transfer_term(
            kind.label("optimizer update on the host"),
            away * (precision.host_update_traffic + _clip_traffic(study)),
            kind,
            offload.host_memory_bandwidth,
            "memory traffic of the update",
            resource="host memory",
        )


def _gradients(study: Study, kind: StageKind, away: Real, bandwidth: Real) -> Iterator[Work | Once]:
    """Yield the transfers of gradients to the host, and of the gradients that accumulate there.

    They overlap with the reductions. The first micro-batch needs no addition, but DeepSpeed's ZeRO
    3 sends its gradients to the accumulation buffer, and fetches them. The total is sent to the
    host in fp32.
    """
    offload, sums = study[Offload], host_sums(study)
    if sums == "none":
        yield _transfer_term(
            kind.label("gradients to the host"),
            away * _update_gradients(study),
            kind,
            bandwidth,
            "",
        )
        return
    hides = offload.overlap and hides_gradients(study)
    window = open_window(study, "" if hides else None)
    for name, bytes_, alone, resource, source in _sum_passes(study, sums, away):
        is_link = resource == LINK
        rate = bandwidth if is_link else offload.host_memory_bandwidth
        if rate is not None:
            yield Work(
                name=kind.label(name),
                cause=OFFLOAD,
                seconds=_travel(bytes_, rate, source),
                pass_="W",
                count=kind.count,
                resource=resource,
                window=window if is_link else None,
                alone=alone,
                bytes_=bytes_,
            )
    if sums == "fetch":
        bytes_ = away * _update_gradients(study)
        yield Once(
            name=kind.label("gradients to the host"),
            cause=OFFLOAD,
            seconds=_travel(bytes_, bandwidth, ""),
            when="drain",
            beside=0.0 if window is None else 1.0,
            count=kind.count,
            resource=LINK,
            bytes_=bytes_,
        )


def _sum_passes(study: Study, sums: str, away: Real) -> Iterator[tuple[str, Real, Real, str, str]]:
    """Yield name, bytes, share without overlap, resource and source of each transfer of accumulated
    gradients.
    """
    moved, m = away * study[Training].precision.gradients, study[Training].micro_batches
    later = 1.0 - 1.0 / maximum(m, 1.0)
    if sums == "fetch":
        fetched = sent = 1.0 if shards_weights(study) else later
        if not (shards_weights(study) or study[Training].framework.returns_host_sums):
            sent = where(m > 1, 1.0 / m, 0.0)
        source = "DeepSpeed, runtime/zero: a sum is fetched, added to, and sent back; mean"
        for way, often in (("from", fetched), ("to", sent)):
            name = f"sums of gradients {way} the host"
            yield name, often * moved, 0.0, LINK, source
    if sums == "add":
        source = "PyTorch FSDP2, foreach_reduce: a copy waits if the host adds to it"
        yield "gradients to the host", moved, later, LINK, source
        source = "reads gradient and sum, writes the sum; mean of the micro-batches"
        yield "sums of gradients", later * 3.0 * moved, 0.0, "host memory", source


def _transfer_updates(study: Study, kind: StageKind, bandwidth: Real) -> Iterator[Once]:
    """Yield the transfers of updated weights that are stored on the other side of the link.

    The host updates its share of the optimizer state, starting with the weights that it holds.
    """
    offload = study[Offload]
    host = offload.optimizer if offload.update == "host" else 0.0
    away = offload.parameters if shards_weights(study) else 0.0
    weights = kind.total_bytes(*weight_bytes(study, "trained")) / kind.shards(shards_states(study))
    for way, share in (("from", host - away), ("to", away - host)):
        if any_of(share > 0):
            bytes_ = maximum(share, 0.0) * weights
            yield _transfer_term(
                kind.label(f"updated parameters {way} the host"), bytes_, kind, bandwidth, ""
            )


def _transfer_term(
    name: str, bytes_: Real, kind: StageKind, bandwidth: Real, source: str, resource: str = LINK
) -> Once:
    return Once(
        name=name,
        cause=OFFLOAD,
        seconds=_travel(bytes_, bandwidth, source),
        when="end",
        count=kind.count,
        resource=resource,
        bytes_=bytes_,
    )


def _parameters(study: Study, kind: StageKind, bandwidth: Real, holding: Holding) -> Iterator[Work]:
    """Yield the transfers of a rank's shards before each gather: in forward, and again in
    backward.
    """
    offload = study[Offload]
    whole = kind.total_bytes(*weight_bytes(study, holding))
    bytes_ = gathers_per_micro_batch(study) * offload.parameters / kind.shard * whole
    name = "parameters" if holding == "trained" else f"{holding} parameters"
    for pass_ in ("F", "B") if reshards(study) else ("F",):
        yield Work(
            name=kind.label(f"{name} from the host"),
            cause=OFFLOAD,
            seconds=_travel(bytes_, bandwidth, ""),
            pass_="F" if pass_ == "F" else "B",
            count=kind.count,
            resource=LINK,
            window=open_window(study, "" if offload.overlap else None),
            bytes_=bytes_,
        )


def _activations(study: Study, bandwidth: Real) -> Iterator[Work]:
    offload = study[Offload]
    by_size: dict[int, list[int]] = {}
    saved = _activation_bytes(study)
    for stage, bytes_ in enumerate(saved):
        same = next(
            (s for s in by_size if saved[s] is bytes_ or _is_equal(saved[s], bytes_)), stage
        )
        by_size.setdefault(same, []).append(stage)
    for first, stages in by_size.items():
        moved = offload.activations * saved[first]
        where_ = "" if len(by_size) == 1 else f", {stage_range(tuple(stages))}"
        for name, forward in (("activations to the host", True), ("activations back", False)):
            yield Work(
                name=name + where_,
                cause=OFFLOAD,
                seconds=_travel(moved, bandwidth, "the saved activations of a micro-batch"),
                pass_="F" if forward else "B",
                count=[float(stage in stages) for stage in range(len(saved))],
                resource=LINK,
                window=open_window(study, "" if offload.overlap else None),
                bytes_=moved,
            )


def _activation_bytes(study: Study) -> list[Real]:
    """Return the activation bytes of one micro-batch that may leave each virtual stage."""
    found: list[Real] = [0.0] * virtual_stages(study)
    for _, held in study.contributions("memory"):
        if held.per_micro_batch and not held.resident and "forward" in held.moments:
            for stage in range(len(found)):
                often = held.count if isinstance(held.count, (float, int)) else held.count[stage]
                found[stage] = found[stage] + held.bytes_ * often
    return found


def _travel(bytes_: Real, bandwidth: Real, source: str) -> Formula:
    return formula("n / B", n=(bytes_, "B"), B=(bandwidth, "B/s"), source=source)


_OFFLOADED = {
    "optimizer": "the optimizer state",
    "parameters": "the parameters",
    "activations": "the saved activations",
}


def _is_offloaded(share: Real) -> bool:
    """Return whether anything is offloaded; true for a swept share."""
    return is_array(share) or bool(share > 0)


def _is_equal(a: Real, b: Real) -> bool:
    """Return whether two sizes are equal, at every point of a sweep."""
    return bool(all_of(a == b))
