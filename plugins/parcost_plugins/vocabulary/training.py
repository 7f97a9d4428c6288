"""What is trained and how: batch, precision, and what the software does."""

from __future__ import annotations

from parcost import (
    BYTES,
    ONE,
    SECONDS,
    Real,
    block,
    fraction,
    integer,
    quantity,
    reference,
    switch,
    word,
)
from parcost_plugins.vocabulary.model import Model


@block("precision", label="required")
class Precision:
    """A recipe of mixed precision: which type computes, and bytes held per parameter."""

    compute: str = word("fp32", "tf32", "fp16", "bf16", doc="type of the matrix products")
    weights: Real = quantity(BYTES, doc="held per parameter for forward and backward")
    gradients: Real = quantity(BYTES, doc="held per parameter while gradients accumulate")
    optimizer: Real = quantity(BYTES, doc="held per parameter: master copy and moments")
    activation: Real = quantity(BYTES, doc="per element of an activation")
    kept: Real = quantity(
        BYTES,
        default="activation",
        doc="per element of the input of a linear layer while it waits for backward",
    )
    reduction: Real = quantity(BYTES, default="gradients", doc="per gradient element on the wire")
    gather: Real = quantity(BYTES, default="weights", doc="per parameter on the wire")
    update_traffic: Real = quantity(
        BYTES, doc="memory traffic of the optimizer's update, per parameter that it updates"
    )
    norm_traffic: Real = quantity(
        BYTES,
        default="3 * gradients",
        doc="memory traffic of the gradient norm (a read) and of clipping (a read and a "
        "write), per parameter that is updated; 0 without",
    )


@block("training", label="none")
class Training:
    """The job: model, recipe and batch."""

    model: Model = reference("model", default="model", doc="which model")
    precision: Precision = reference("precision", default="precision", doc="which recipe")
    sequence: Real = integer(qualifiers={"tokens": 1.0}, doc="tokens of one sequence (s)")
    micro_batch: Real = integer(
        default=1, qualifiers={"sequences": 1.0}, doc="sequences of one micro-batch (b)"
    )
    global_batch: Real = quantity(
        ONE,
        positive=True,
        qualifiers={"sequences": 1.0, "tokens": "sequence"},
        must_qualify=True,
        doc="of one step, over all replicas",
    )
    micro_batches: Real = quantity(
        ONE,
        positive=True,
        default="global_batch / (micro_batch * layout.dp)",
        doc="per replica and step (m)",
    )
    recompute: str = word(
        "none",
        "selective",
        "full",
        default="none",
        doc="activations made again in backward: none, the attention core, or whole layers",
    )
    flash_attention: bool = switch(default=True, doc="attention never writes its scores to memory")
    dropout: bool = switch(default=False, doc="dropout masks are kept for backward")


@block("kernels", label="none")
class KernelChoice:
    """How long operators take on the device."""

    model: str = word(registry="kernels", doc="which model of kernel time")
    gemm_efficiency: Real | None = fraction(
        positive=True, default=None, doc="of the peak, in place of the device's own figure"
    )
    attention_forward_efficiency: Real | None = fraction(
        positive=True, default=None, doc="of the peak, in place of the device's own figure"
    )
    attention_backward_efficiency: Real | None = fraction(
        positive=True, default=None, doc="of the peak, in place of the device's own figure"
    )
    memory_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="of the memory bandwidth, in place of the device's own figure",
    )
    shape_efficiency: Real = fraction(
        positive=True,
        doc="a real shape against the best shape that the device's figure was measured on",
    )
    wave_weight: Real = fraction(doc="how much of a partly filled last wave is paid for")
    launch: Real = quantity(SECONDS, doc="exposed per kernel")
    memory_bound: bool = switch(
        default=True, doc="price norms, activations and other streaming operators"
    )
    fused_accumulation: bool = switch(
        doc="weight-gradient products add to the gradients of earlier micro-batches themselves"
    )


@block("overlap", label="none")
class Overlap:
    """Which communication may hide under compute."""

    gradients: bool = switch(doc="gradient reduction under the last backward, in buckets")
    parameters: bool = switch(doc="parameter gathers under the forward passes")
    tensor: bool = switch(doc="tensor-parallel collectives under the weight-gradient products")
    bucket: Real = quantity(BYTES, positive=True, doc="gradients of one bucket")
    multiprocessors: Real = integer(
        minimum=0, doc="multiprocessors that a collective takes from compute while it hides"
    )


@block("collectives", label="none")
class CollectiveChoice:
    """Which algorithm each group uses; ``auto`` is the fastest for each message."""

    tensor: str = word("auto", registry="collectives", default="auto", doc="tensor parallel")
    data: str = word("auto", registry="collectives", default="auto", doc="data parallel")
    pipeline: str = word("auto", registry="collectives", default="auto", doc="between stages")


@block("memory", label="none")
class MemoryBudget:
    """What besides the model takes memory, and how much of a device may be used."""

    usable: Real = fraction(doc="of the capacity, before it counts as not fitting")
    context: Real = quantity(BYTES, doc="driver context and library workspaces")
    communicator: Real = quantity(BYTES, doc="buffers of one communicator")
    fragmentation: Real = fraction(doc="of the activations, lost between blocks")
