"""Sharding of model state over replicas, offload to the host, and local updates."""

from __future__ import annotations

from parcost import (
    BYTES,
    ONE,
    RATE,
    SECONDS,
    Real,
    Study,
    block,
    fraction,
    integer,
    quantity,
    reference,
    switch,
    word,
)
from parcost.numeric import any_of, where
from parcost_plugins.vocabulary.framework import ACCUMULATIONS, AVERAGES, REPLICATIONS
from parcost_plugins.vocabulary.training import Precision


@block(
    "sharding",
    label="none",
    used_with={
        ("prefetch",): "`layout.zero = 3`",
        (
            "replicate",
        ): "hybrid sharding (a `sharding.shard` smaller than the number of ranks), and ZeRO 2 or 3",
        ("bucket_copy",): "`layout.zero = 0`",
        (
            "gradient_average",
        ): "a `layout.zero` of 0 or 1, and buckets that are views of the gradients",
        ("gradient_check",): "a `layout.zero` of 0 or 1",
    },
)
class Sharding:
    """The tensors that ZeRO shards, the number of ranks of a shard, and the start of the gather."""

    shard: Real = quantity(
        ONE,
        minimum=1.0,
        default="max(1, layout.dp * layout.cp / local_updates.workers)",
        doc=(
            "number of ranks, out of dp x cp, over which state is sharded; hybrid sharding if "
            "fewer than all, with an all-reduce between the groups"
        ),
    )
    accumulate: str | None = word(
        *ACCUMULATIONS,
        default=None,
        doc=(
            "reduction of gradients under ZeRO 2 and 3: in every micro-batch (`shard`), or only in "
            "the last, until which gradients are unsharded (`whole`); by default as in the "
            "framework"
        ),
    )
    replicate: str | None = word(
        *REPLICATIONS,
        default=None,
        doc=(
            "frequency of the all-reduce of shards between the groups of hybrid sharding; by "
            "default as in the framework"
        ),
    )
    reshard: bool | None = switch(
        default=None,
        doc=(
            "parameters are resharded after forward and gathered again for backward (ZeRO 3); if "
            "off, with several pipeline stages and `accumulate = whole`, they are gathered once "
            "per step; by default as in the framework"
        ),
    )
    keep_last: bool | None = switch(
        default=None,
        doc=(
            "the last layer stays gathered from forward to backward (ZeRO 3); by default as in the "
            "framework"
        ),
    )
    prefetch: int = integer(
        default=1,
        minimum=0,
        structural=True,
        doc="number of layers that are prefetched in backward (ZeRO 3)",
    )
    bucket_copy: bool = switch(
        default=False,
        doc="gradient buckets are copies of the gradients instead of views (without ZeRO)",
    )
    gradient_average: str | None = word(
        *AVERAGES,
        default=None,
        doc=(
            "average of gradients over the ranks, up to ZeRO 1: made by the reduction "
            "(`collective`), or by a kernel that scales all gradients ahead of it (`scaled`), or "
            "those of experts that fewer ranks hold (`scaled_experts`); by default as in the "
            "framework"
        ),
    )
    gradient_check: bool | None = switch(
        default=None,
        doc=(
            "the gradient norm is computed before the reduction, to detect NaN, up to ZeRO 1; by "
            "default as in the framework"
        ),
    )


@block(
    "offload",
    label="none",
    used_with={
        ("update",): "an `offload.optimizer` above 0",
        ("host_memory_bandwidth",): "an `offload.optimizer` above 0 and `offload.update = host`",
        ("overlap",): "`offload.activations` or `offload.parameters` above 0",
        ("host_memory",): "offloaded state, such as `offload.optimizer`",
    },
)
class Offload:
    """State of a rank in host memory, transferred over ``host_bandwidth``."""

    optimizer: Real = fraction(default=0.0, doc="share of the optimizer state on the host")
    parameters: Real = fraction(
        default=0.0,
        doc="share of the sharded weights on the host, fetched before each gather (ZeRO 3)",
    )
    layers: Real = integer(
        default=0,
        minimum=0,
        doc="number of layers whose saved activations are offloaded to the host",
    )
    activations: Real = fraction(
        default="layers / training.model.layers",
        doc=(
            "share of the saved activations of layers that is sent to the host in forward and "
            "fetched in backward; those of embedding and head stay"
        ),
    )
    update: str = word(
        "host",
        "device",
        default="host",
        doc=(
            "place of the update of offloaded optimizer state: the host, which receives "
            "gradients and returns parameters, or the device, which fetches and returns the "
            "state"
        ),
    )
    host_memory_bandwidth: Real | None = quantity(
        RATE, default=None, positive=True, doc="memory bandwidth of the host, per device"
    )
    host_memory: Real | None = quantity(
        BYTES, default=None, positive=True, doc="memory of the host, per device"
    )
    overlap: bool = switch(
        default=True, doc="transfers of activations and parameters hide under compute"
    )


@block(
    "local_updates",
    label="none",
    used_with={
        ("outer_state",): "`local_updates.method = outer`",
        ("method", "wire", "fragments", "overlap_steps", "offload"): "`local_updates.workers` "
        "above 1",
    },
)
class LocalUpdates:
    """Workers that train separately and synchronise at intervals: local SGD, DiLoCo."""

    workers: Real = integer(
        default=1,
        doc="number of workers: groups of replicas that reduce gradients only within the group",
    )
    period: Real = integer(default=1, doc="steps between two synchronisations (H)")
    method: str = word(
        "average",
        "outer",
        default="average",
        doc="workers average their parameters (local SGD), or an outer optimizer follows the "
        "mean of their changes (DiLoCo)",
    )
    wire: Real = quantity(BYTES, doc="bytes per parameter on the wire at a synchronisation")
    outer_state: Real = quantity(
        BYTES,
        doc=(
            "bytes per parameter held by the outer optimizer: momentum and the last synchronised "
            "parameters"
        ),
    )
    fragments: Real = integer(
        default=1,
        doc=(
            "number of fragments of the model that are synchronised one after the other during a "
            "period (streaming)"
        ),
    )
    overlap_steps: Real = integer(
        default=0, minimum=0, doc="number of steps that overlap with the exchange of a fragment"
    )
    offload: bool = switch(default=False, doc="the outer state is kept on the host")


def trains_apart(study: Study) -> bool:
    """Return whether training is local SGD: several workers, synchronised once per period."""
    local = study.get(LocalUpdates)
    return local is not None and any_of(local.workers != 1)


def outer_state_bytes(local: LocalUpdates) -> Real:
    """Return the bytes per parameter of the outer optimizer; 0 for a single worker."""
    if not any_of(local.workers > 1) or local.method != "outer":
        return 0.0
    return where(local.workers > 1, local.outer_state, 0.0)


@block("zero", label="required")
class ZeroSketch:
    """Comparison of the ZeRO stages: memory and traffic per step of a rank."""

    parameters: Real = quantity(ONE, positive=True, doc="parameters of one rank")
    precision: Precision = reference("precision", default="precision", doc="precision recipe")
    ranks: Real = integer(doc="replicas")
    micro_batches: Real = integer(default=1, doc="micro-batches per replica and step (m)")
    accumulate: str = word(
        "shard",
        "whole",
        default="shard",
        doc="reduction of gradients from stage 2 on: in every micro-batch, or in the last",
    )
    reshard: bool = switch(default=True, doc="ZeRO 3 gathers parameters again for backward")


@block("fsdp", label="required")
class FsdpSketch:
    """Equal layers with a prefetch of one layer (FSDP), without a model."""

    layers: int = integer(structural=True, doc="number of layers that are gathered one by one (L)")
    forward: Real = quantity(SECONDS, doc="forward time of one layer")
    backward: Real = quantity(SECONDS, doc="backward time of one layer")
    gather: Real = quantity(SECONDS, doc="parameters of one layer")
    reduce: Real = quantity(SECONDS, default="gather", doc="gradients of one layer")
    reshard: bool = switch(default=True, doc="layers are gathered again for backward")
    keep_last: bool = switch(
        default=False, doc="the last layer stays gathered from forward to backward"
    )
