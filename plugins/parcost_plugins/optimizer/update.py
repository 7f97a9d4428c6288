"""Kernels at the end of a step: copy, scale, check, clip, apply and zero the gradients.

Under ZeRO a rank processes only its shard. These kernels read and write large buffers, so they run
at the memory bandwidth of large streams. Each device computes the norm of its own gradients, and an
all-reduce adds up these numbers. Optimizer state in host memory is updated by the CPU, or copied to
the device and back. The memory plugins estimate these copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from parcost import Cause, Once, Real, Study, attribute, formula
from parcost.numeric import any_of, is_array, where
from parcost_plugins.physics.run_choices import (
    checks_gradients,
    copies_buckets,
    gradient_average,
    shards_gradients,
    shards_states,
    shards_weights,
    sums_of_host,
    zero_stage,
)
from parcost_plugins.physics.stage_parameters import StageKind, trained_kinds
from parcost_plugins.physics.sums import reduction_algorithm
from parcost_plugins.vocabulary import (
    Cluster,
    CollectiveChoice,
    Device,
    KernelChoice,
    Layout,
    Offload,
    Training,
)
from parcost_plugins.vocabulary.causes import DATA, OPTIMIZER
from parcost_plugins.vocabulary.sharding import trains_apart

NUMBER = 4.0  # bytes of the norm, in fp32


def zeroing(study: Study) -> Iterator[Once]:
    """Estimate the time to zero the buffer in which gradients accumulate, once per step.

    A rank has all gradients of its parameters there, unless ZeRO 2 shards them.
    """
    if study[Training].framework.zeroes_gradients or _sums_apart(study):
        size, sharded = study[Training].precision.gradients, shards_gradients(study)
        source = "the buffer of gradients is zeroed before they accumulate"
        yield from _streams(study, "zeroing of the gradient buffer", size, source, sharded=sharded)


def bucket_copies(study: Study) -> Iterator[Once]:
    """Estimate the copies of gradients into DDP buckets, and of the reduced gradients back."""
    if copies_buckets(study):
        layout, precision = study[Layout], study[Training].precision
        several = where(layout.dp * layout.cp > 1, 1.0, 0.0)
        traffic = several * 2.0 * (precision.gradients + precision.reduction)
        name, source = "copies into and out of gradient buckets", "PyTorch, reducer.cpp: each way"
        yield from _streams(study, name, traffic, source, sharded=False, cause=DATA)


def scaling(study: Study) -> Iterator[Once]:
    """Estimate the kernels that scale gradients before their reduction over the ranks.

    A factor of 1 needs no kernel: one rank, or experts that every rank holds.
    """
    if zero_stage(study) >= 2 or copies_buckets(study):
        return
    average, layout = gradient_average(study), study[Layout]
    precision, ranks = study[Training].precision, layout.dp * layout.cp
    scaled, source = 2.0 * precision.gradients, "each is read, and written over the number of ranks"
    if _sums_apart(study):
        sent, source = precision.reduction, "DeepSpeed, runtime/engine.py: allreduce_bucket"
        casts = where(sent != precision.gradients, 2.0 * (sent + precision.gradients), 0.0)
        scaled = 2.0 * sent + casts
    for kind in trained_kinds(study):
        if average == "scaled" or (average == "scaled_experts" and kind.expert):
            is_scaled = ranks != (1 if average == "scaled" else kind.replicas)
            traffic = where(is_scaled, scaled, 0.0)
            yield _stream(study, kind, "scaling of gradients", traffic, source, cause=DATA)


def _sums_apart(study: Study) -> bool:
    """Return whether gradients of a micro-batch are accumulated in one buffer of a wider type.

    This is true for DeepSpeed's BF16_Optimizer. It casts the buffer to the type of the message and
    back. Then it computes the norm of the whole buffer, and zeroes it.
    """
    return any_of(study[Training].precision.gradient_copies != 0)


def check(study: Study) -> Iterator[Once]:
    """Estimate the norm of a rank's own gradients, which its framework checks for NaN."""
    if zero_stage(study) < 2 and checks_gradients(study):
        size, name = study[Training].precision.gradients, "check of gradients for NaN"
        source = "the norm of the local gradients reads each gradient once, before the reduction"
        yield from _streams(study, name, size, source, sharded=False)


def clipping(study: Study) -> Iterator[Once]:
    """Estimate the norm, which reads every gradient, and clipping, which rewrites them."""
    precision, offload = study[Training].precision, study[Offload]
    traffic, stays = precision.norm_traffic, precision.norm_traffic
    source = "the norm reads each gradient once, clipping reads and writes it"
    if (sums := sums_of_host(study)) != "none":
        sent = where(traffic > 0, _sent_traffic(study), 0.0) if sums == "fetch" else 0.0
        stays = traffic - offload.optimizer * (traffic - sent)
    sharded = shards_states(study) and not _sums_apart(study)
    yield from _streams(study, "gradient norm and clipping", stays, source, sharded=sharded)
    if is_array(traffic) or traffic:
        algorithm = reduction_algorithm(study, study[CollectiveChoice].data)
        ranks = "worker" if trains_apart(study) else "job"
        call = study.collective("all_reduce", NUMBER, ranks, algorithm)
        yield Once(
            name="all-reduce of the gradient norm",
            cause=OPTIMIZER,
            seconds=formula("u > 0 ? t : 0", u=(traffic, "B"), t=(call.formula, "s")),
            when="end",
            resource=study.group(ranks).flat.resource,
            bytes_=NUMBER,
        )


def _sent_traffic(study: Study) -> Real:
    """Return the bytes that a device moves for a gradient that it sends to the host.

    DeepSpeed computes the norm on the device, from a copy in float64. It checks for overflow, and
    casts to the type of the master copy. It scales on the host.
    """
    framework, size = study[Training].framework, study[Training].precision.gradients
    norm = size + 2.0 * framework.norm_copy
    cast = where(size < framework.update_gradients, size + framework.update_gradients, 0.0)
    return norm + cast + (0.0 if shards_weights(study) else framework.sent_check)


def update(study: Study) -> Iterator[Once]:
    """Estimate the optimizer update."""
    traffic = study[Training].precision.update_traffic
    source = "Adam with an fp32 master copy reads and writes its whole state once"
    offload = study[Offload]
    away = any_of(offload.optimizer != 0.0) and offload.update == "host"
    stays = 1.0 - offload.optimizer if away else 1.0
    sharded = shards_states(study)
    yield from _streams(study, "optimizer update", traffic * stays, source, sharded=sharded)


def _memory_origins(device: Device, decides: object) -> dict[str, Any]:
    return {
        "B": (attribute(device, "memory_bandwidth"), "B/s"),
        "eta": attribute(decides, "memory_efficiency"),
    }


def _streams(
    study: Study,
    name: str,
    traffic: Real,
    source: str,
    *,
    sharded: bool,
    cause: Cause = OPTIMIZER,
) -> Iterator[Once]:
    """Yield the streaming of *traffic* bytes for each parameter, of a rank's shard if *sharded*."""
    for kind in trained_kinds(study):
        yield _stream(study, kind, name, traffic, source, sharded=sharded, cause=cause)


def _stream(
    study: Study,
    kind: StageKind,
    name: str,
    traffic: Real,
    source: str,
    *,
    sharded: bool = False,
    cause: Cause = OPTIMIZER,
) -> Once:
    """Return the streaming of *traffic* bytes for each parameter of one *kind* of stages."""
    device = study[Cluster].device
    choice = study[KernelChoice]
    decides = device if choice.memory_efficiency is None else choice
    shards = kind.shards(sharded)
    return Once(
        name=kind.label(name),
        cause=cause,
        seconds=formula(
            "u psi / (N B eta)",
            u=(traffic, "B"),
            psi=kind.elements,
            N=shards,
            B=(device.memory_bandwidth, "B/s"),
            eta=decides.memory_efficiency,
            source=source,
            origins=partial(_memory_origins, device, decides),
        ),
        when="end",
        count=kind.count,
        resource="hbm",
        bytes_=traffic * kind.elements / shards,
    )
