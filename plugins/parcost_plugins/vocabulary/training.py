"""The training job: batch, precision, kernels and overlap."""

from __future__ import annotations

from collections.abc import Sequence

from parcost import (
    BYTES,
    ONE,
    SECONDS,
    Real,
    block,
    children,
    fraction,
    integer,
    integers,
    quantity,
    reference,
    switch,
    word,
)
from parcost.numeric import where
from parcost_plugins.vocabulary.accuracy import Accuracy
from parcost_plugins.vocabulary.aliases import ALIASES
from parcost_plugins.vocabulary.attention import FUSED_KERNELS
from parcost_plugins.vocabulary.framework import (
    CUDA_GRAPHS,
    GATHER_STARTS,
    LOSSES,
    MISALIGNED_HEADS,
    MODES,
    TENSOR_OVERLAPS,
    Framework,
)
from parcost_plugins.vocabulary.hardware import Device
from parcost_plugins.vocabulary.link_rates import link_rate
from parcost_plugins.vocabulary.model import Model
from parcost_plugins.vocabulary.tuning import GENERATIONS, Tuning


@block(
    "precision",
    label="required",
    used_with={
        (
            "wide_first",
            "wide_last",
            "wide_weight_gradients",
            "scale_block",
            "narrow_rate",
            "cast_kernels",
            "amax_group",
        ): "a `narrow` type",
        ("weight_column_cast",): "`weight_casts = pass`",
        ("frozen_cast", "frozen_kernels"): "`adapters`, and a `narrow` type",
        ("host_update_traffic",): "an `offload.optimizer` above 0 and `offload.update = host`",
        ("dispatch", "combine"): "a model that has experts",
        ("kept_gate",): "experts: `model.experts`",
        ("tensor_gather",): "`layout.sequence_parallel = on`",
        ("whole_gradients",): "several micro-batches, with `sharding.accumulate = whole`",
    },
)
class Precision:
    """A recipe of mixed precision: the types of compute, and bytes held per parameter.

    With a *narrow* type (fp8 or fp4), the GEMMs of linear layers and experts run in it: forward,
    dgrad and wgrad. All other work uses the *compute* type: attention, embedding, head, router,
    norms, sums over ranks.
    """

    compute: str = word("fp32", "tf32", "fp16", "bf16", doc="type of the matrix products")
    narrow: str = word(
        "none",
        "fp8",
        "fp4",
        default="none",
        doc="type of the matrix products of linear layers and experts",
    )
    narrow_attention: bool = switch(
        default=False, doc="the attention core also runs in the narrow type"
    )
    wide_weight_gradients: bool = switch(
        default=False, doc="weight-gradient products stay in the type of `compute`"
    )
    wide_first: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="number of first layers that stay in the type of `compute`",
    )
    kept_core: Real | None = quantity(
        BYTES,
        default=None,
        doc=(
            "bytes of a saved element of the attention output, if the core and the output "
            "projection share one copy; otherwise the core saves another copy"
        ),
    )
    kept_gate: Real | None = quantity(
        BYTES,
        default=None,
        doc=(
            "bytes of a saved element of the inputs of the expert activation; by default those of "
            "an activation"
        ),
    )
    wide_last: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="number of last layers that stay in the type of `compute`",
    )
    scale: Real = quantity(BYTES, default=0.0, doc="bytes of one scaling factor of the narrow type")
    scale_block: Real = integer(default=1, doc="elements that share one scaling factor")
    microscaled: bool = switch(
        default=False,
        doc=(
            "matrix units apply the block scaling factors, as in MXFP8 and NVFP4: only devices "
            "with `microscaling` support it"
        ),
    )
    narrow_rate: Real = fraction(
        default=1.0,
        positive=True,
        doc=(
            "factor on the best fp8 or fp4 product rate of the device, for the cost of block "
            "scaling"
        ),
    )
    cast: Real = quantity(
        BYTES,
        default=0.0,
        doc=(
            "memory traffic of casting one element to the narrow type, including its maximum and "
            "copies"
        ),
    )
    cast_transpose: Real = quantity(
        BYTES,
        default=0.0,
        doc="additional memory traffic to transpose it, if the device is `in_one_layout`",
    )
    frozen_cast: Real = quantity(
        BYTES,
        default="cast",
        doc="traffic of casting an element beside frozen weights: without a copy along columns, "
        "which only a weight gradient reads",
    )
    frozen_kernels: Real = integer(
        default="cast_kernels", doc="kernels that cast one tensor beside frozen weights"
    )
    cast_steps: Real = quantity(
        ONE,
        default=0.0,
        doc="operations per element of a compiled cast; 0: casts are memory-bound",
    )
    column_cast: Real = quantity(
        BYTES,
        default=0.0,
        doc=(
            "memory traffic per element of each operand of a weight-gradient product, to cast or "
            "copy it along the other dimension"
        ),
    )
    column_steps: Real = quantity(ONE, default=0.0, doc="operations per element of this cast")
    cast_kernels: Real = integer(
        default=1, doc="number of kernels that cast one tensor; per expert for expert weights"
    )
    weight_cast: Real = quantity(
        BYTES,
        default=0.0,
        doc="memory traffic of casting a parameter of a linear layer, once per step",
    )
    weight_column_cast: Real = quantity(
        BYTES,
        default="weight_cast",
        doc=(
            "memory traffic of casting a parameter along columns before backward, with "
            "`column_steps` (`weight_casts = pass`)"
        ),
    )
    weight_casts: str | None = word(
        "step",
        "pass",
        default=None,
        doc=(
            "weights are cast once per step (default) or in each pass of a micro-batch; if ZeRO 3 "
            "gathers them in the narrow type, the shards are cast before the gather, and backward "
            "transposes them"
        ),
    )
    weight_copies: Real = quantity(
        BYTES, default=0.0, doc="bytes of fp8 or fp4 copies held per parameter of a linear layer"
    )
    weight_transpose: Real = quantity(
        BYTES,
        default=0.0,
        doc="bytes of an additional transposed copy, if the device is `in_one_layout`",
    )
    amax_group: str = word(
        "none",
        "tp",
        "dp_cp",
        "stage",
        "job",
        default="none",
        doc="ranks that agree on the greatest values of each forward and backward pass: `stage` "
        "are all that have the same layers",
    )
    weights: Real = quantity(
        BYTES, positive=True, doc="bytes per parameter for forward and backward"
    )
    wide_weights: Real = quantity(
        BYTES,
        positive=True,
        default="weights",
        doc="bytes per parameter outside of linear layers and experts: embedding, head, norms and "
        "router; "
        "layers of `wide_first` and `wide_last` count as narrow",
    )
    gradients: Real = quantity(BYTES, doc="bytes per parameter of the accumulated gradients")
    whole_gradients: Real = quantity(
        BYTES,
        default="gradients",
        doc=(
            "bytes per parameter of unsharded gradients that are kept until the last micro-batch "
            "(`sharding.accumulate = whole`, ZeRO 2 and 3)"
        ),
    )
    gradient_copies: Real = quantity(
        BYTES,
        default=0.0,
        doc=("additional bytes per parameter for gradients of one micro-batch that are not freed"),
    )
    optimizer: Real = quantity(
        BYTES, doc="bytes per parameter of the optimizer: master copy and moments"
    )
    activation: Real = quantity(BYTES, positive=True, doc="bytes per element of an activation")
    kept: Real = quantity(
        BYTES,
        default="activation",
        doc="bytes per element of the saved input of a linear layer",
    )
    reduction: Real = quantity(
        BYTES, positive=True, default="gradients", doc="bytes per gradient element on the wire"
    )
    gather: Real = quantity(
        BYTES, positive=True, default="weights", doc="bytes per parameter on the wire"
    )
    wide_gather: Real = quantity(
        BYTES,
        positive=True,
        default="gather",
        doc="bytes per parameter on the wire outside of linear layers and experts",
    )
    tensor_gather: Real = quantity(
        BYTES,
        default="activation",
        doc=(
            "bytes per element of an activation in tensor-parallel all-gathers; reduce-scatters "
            "use the type of activations"
        ),
    )
    dispatch: Real = quantity(
        BYTES, default="activation", doc="bytes per element of a token in the dispatch to experts"
    )
    combine: Real = quantity(
        BYTES, default="activation", doc="bytes per element of a token in the combine"
    )
    update_traffic: Real = quantity(
        BYTES, doc="memory traffic of the optimizer's update, per parameter that it updates"
    )
    host_update_traffic: Real = quantity(
        BYTES,
        default="update_traffic",
        doc="memory traffic of that update on the host, without fused casts",
    )
    norm_traffic: Real = quantity(
        BYTES,
        default="3 * gradients",
        doc="memory traffic of the gradient norm (a read) and of clipping (a read and a "
        "write), per parameter that is updated; 0 without",
    )

    def cast_traffic(self, device: Device) -> Real:
        """Return the bytes that a cast reads and writes per element."""
        return self.cast + (self.cast_transpose if device.in_one_layout else 0.0)

    @property
    def narrow_weights(self) -> Real:
        """Bytes of a parameter of a linear layer that is stored only in the narrow type."""
        return where(self.weight_copies > 0, self.weight_copies, self.weights)

    def copies(self, device: Device) -> Real:
        """Return the bytes per parameter of low-precision copies of linear layers."""
        return self.weight_copies + self.transposes(device)

    def transposes(self, device: Device) -> Real:
        """Return the bytes per parameter of transposed copies of linear layers."""
        return self.weight_transpose if device.in_one_layout else 0.0

    @property
    def narrow_width(self) -> Real:
        """Bytes of an element of the narrow type, without scaling factors."""
        return {"none": self.activation, "fp8": 1.0, "fp4": 0.5}[self.narrow]

    @property
    def narrow_element(self) -> Real:
        """Bytes of an element of the narrow type, including its share of a scaling factor."""
        return self.narrow_width + self.scale / self.scale_block

    def wide_shares(self, dealt: Sequence[int]) -> list[float]:
        """Return the share of layers in 16 bits on each virtual stage; *dealt* are its layers."""
        total, before, shares = sum(dealt), 0, []
        for here in dealt:
            after = before + here
            wide = min(after, self.wide_first) - min(before, self.wide_first)
            last = total - self.wide_last
            wide += max(after, last) - max(before, last)
            shares.append(min(wide / here, 1.0) if here else 0.0)
            before = after
        return shares

    def is_narrow(self, role: str, pass_: str) -> bool:
        """Return whether a GEMM in this *role* runs in the narrow type."""
        if self.narrow == "none" or (pass_ == "W" and self.wide_weight_gradients):
            return False
        return role in ("linear", "expert")


@block(
    "training",
    example="training { sequence = 4096, micro_batch = 1, global_batch = 256 sequences }",
    label="none",
    aliases=ALIASES["training"],
)
class Training:
    """The job: model, recipe and batch."""

    model: Model = reference("model", default="model", doc="trained model")
    precision: Precision = reference("precision", default="precision", doc="precision recipe")
    framework: Framework = reference(
        "framework", default="framework", doc="framework of the job; by default `generic`"
    )
    accuracy: Accuracy = reference(
        "accuracy",
        default="accuracy",
        doc=(
            "errors of measured runs, from which the intervals of step time and memory are computed"
        ),
    )
    sequence: Real = integer(qualifiers={"tokens": 1.0}, doc="tokens of one sequence (s)")
    micro_batch: Real = integer(
        default=1, qualifiers={"sequences": 1.0}, doc="sequences of one micro-batch (b)"
    )
    global_batch: Real = quantity(
        ONE,
        positive=True,
        qualifiers={"sequences": 1.0, "tokens": "sequence"},
        must_qualify=True,
        doc="batch of one step over all replicas, in sequences or tokens",
    )
    micro_batches: Real = quantity(
        ONE,
        positive=True,
        default="global_batch / (micro_batch * layout.dp)",
        doc="micro-batches per replica and step (m)",
    )
    recompute: str = word(
        "none",
        "selective",
        "full",
        default="none",
        doc="recomputation of activations in backward: none, the attention core, or whole layers",
    )
    flash_attention: bool = switch(
        default=True,
        doc=(
            "fused attention, which does not write scores to memory; off: `kernels.attention = "
            "unfused`"
        ),
    )
    dropout: bool = switch(
        default=False, doc="dropout is used, and its masks are saved for backward"
    )
    loss: str | None = word(
        *LOSSES,
        default=None,
        doc=(
            "tensors that the cross entropy keeps for its logits (see `framework`); by default as "
            "in the framework"
        ),
    )
    loss_chunks: int = integer(
        default=1,
        structural=True,
        doc=(
            "number of chunks of a micro-batch in which a fused head and loss compute their "
            "gradient"
        ),
    )
    documents: tuple[int, ...] = integers(
        default=(),
        minimum=1,
        doc=(
            "tokens of each document packed into a sequence: tokens attend within their "
            "document; by default one document"
        ),
    )
    document: Real | None = integer(
        default=None, doc="tokens of every packed document, in place of a list"
    )


@block("streaming", inside="kernels", label="required")
class Streaming:
    """The rate of a memory-bound operator at one size; interpolated over the logarithm of the
    size.
    """

    size: Real = quantity(BYTES, positive=True, doc="bytes that the operator reads and writes")
    efficiency: Real = fraction(positive=True, doc="share of the memory bandwidth")


@block("tile", inside="kernels", label="required")
class Tile:
    """The part of a GEMM result that one SM computes at a time."""

    m: Real = integer(doc="rows of the result")
    n: Real = integer(doc="columns of the result")
    rate: Real = fraction(positive=True, doc="share of the rate of the best tile")


@block(
    "kernels",
    label="none",
    used_with={
        ("grouped_experts",): "a model that has experts",
        ("fused_down_projection",): "latent attention with compressed queries: `q_lora`",
        ("launch_wait",): "`kernels.launch_blocking = on`",
        ("misaligned_heads",): "an attention core of several kernels: "
        "`kernels.attention = unfused`",
        ("narrow_gemm_efficiency",): "a recipe with a narrow type, such as FP8",
        (
            "static_power",
            "lowest_voltage",
        ): "a device with a `power_cap`, or with `product_energy` and without `sustained`",
        ("narrow_energy",): "a device without `sustained` and with `product_energy`",
    },
    aliases=ALIASES["kernels"],
)
class KernelChoice:
    """The model of kernel time, and its parameters."""

    model: str = word(registry="kernels", doc="model of kernel time")
    gemm_efficiency: Real | None = fraction(
        positive=True, default=None, doc="share of the peak, in place of the value of the device"
    )
    attention: str | None = word(
        "auto",
        "unfused",
        *FUSED_KERNELS,
        default=None,
        doc=(
            "attention kernel; `auto` is the default kernel of the device, `unfused` writes scores "
            "to memory; by default as in the framework"
        ),
    )
    attention_forward_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the peak at any size and length, in place of the rate of the kernel",
    )
    attention_backward_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the peak at any size and length, in place of the rate of the kernel",
    )
    memory_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the memory bandwidth, in place of the value of the device",
    )
    narrow_gemm_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc=(
            "share of the peak of the recipe's narrow type; if only `gemm_efficiency` is set, it "
            "is scaled by the ratio of the values of the device"
        ),
    )
    alignment: Real = quantity(
        BYTES,
        default=1.0,
        positive=True,
        doc="alignment of matrix rows in bytes",
    )
    misaligned_efficiency: Real = fraction(
        positive=True, default=1.0, doc="factor on the rate of a product with unaligned rows"
    )
    odd_efficiency: Real = fraction(
        positive=True,
        default=1.0,
        doc="factor on the rate of a product whose rows are aligned to at most 2 bytes",
    )
    misaligned_heads: str | None = word(
        *MISALIGNED_HEADS,
        default=None,
        doc=(
            "execution of unfused attention products with heads that are not a multiple of 16 "
            "bytes: on tensor cores with the factors above, or on vector units in fp32, as in "
            "cuBLAS 11; by default as in the framework"
        ),
    )
    head_sizes: tuple[int, ...] = integers(
        default=(),
        doc=(
            "head sizes with a fused kernel, in ascending order; a head in between is padded to "
            "the larger size"
        ),
    )
    streaming: tuple[Streaming, ...] = children(
        "streaming",
        doc=(
            "share of the memory bandwidth by size of the operator, in ascending order, in place "
            "of one efficiency"
        ),
    )
    start: Real = quantity(
        SECONDS,
        doc=(
            "start-up time of a streaming kernel on the device, beyond the time of its bytes at "
            "full rate: first and last blocks"
        ),
    )
    norm_gradient_efficiency: Real = fraction(
        positive=True, doc="factor on the streaming rate for a fused norm in backward"
    )
    eager_norm_efficiency: Real = fraction(
        positive=True, doc="factor on the streaming rate for the PyTorch norm in forward"
    )
    eager_norm_gradient_efficiency: Real = fraction(
        positive=True, doc="factor on the streaming rate for the PyTorch norm in backward"
    )
    compiled_norm_gradient_efficiency: Real = fraction(
        positive=True, doc="factor on the streaming rate for a compiled norm in backward"
    )
    composite_efficiency: Real = fraction(
        positive=True,
        doc="factor on the streaming rate for a norm that runs as separate operators",
    )
    complex_efficiency: Real = fraction(
        positive=True,
        doc="factor on the streaming rate for a rotary embedding with complex numbers",
    )
    halves_efficiency: Real = fraction(
        positive=True, doc="factor on the streaming rate for eager kernels on halves of a tensor"
    )
    eager_rotary_efficiency: Real = fraction(
        positive=True,
        doc="factor on the streaming rate for an eager rotary embedding on halves",
    )
    eager_softmax_efficiency: Real = fraction(
        positive=True,
        doc="factor on the streaming rate for eager scale, mask and softmax of scores",
    )
    parallel_loss_efficiency: Real = fraction(
        positive=True,
        doc="factor on the streaming rate for an eager vocabulary-parallel loss",
    )
    permuted_efficiency: Real = fraction(
        positive=True, doc="factor on the streaming rate for a kernel that permutes rows"
    )
    traced_time: Real = quantity(
        SECONDS,
        doc=(
            "time per element on one multiprocessor for an activation that is compiled with "
            "dynamic shapes, whose kernel computes indices with divisions"
        ),
    )
    traced_gradient_time: Real = quantity(
        SECONDS,
        doc="time per element for the gradient of that activation, which concatenates two halves",
    )
    strided_time: Real = quantity(
        SECONDS,
        doc="time per element for an eager kernel on a slice of a tensor or with broadcasting",
    )
    scattered_time: Real = quantity(SECONDS, doc="time per element for an eager scatter-add kernel")
    indexed_time: Real = quantity(
        SECONDS, doc="time per element for the gradient of eager indexing"
    )
    cast_time: Real = quantity(
        SECONDS,
        doc="time per operation of a compiled cast to a narrow type; see `precision.cast_steps`",
    )
    delta_time: Real = quantity(
        SECONDS, doc="time per FLOP of the chunked rule of a gated delta net"
    )
    delta_gradient_time: Real = quantity(
        SECONDS, doc="time per forward FLOP for the gradient of a gated delta net"
    )
    shape_efficiency: Real = fraction(
        positive=True,
        doc=(
            "rate of a real matrix shape / rate of the best shape, with which the device was "
            "measured"
        ),
    )
    static_power: Real = fraction(
        doc="static power of a device as a share of its design power; see `device.power_cap`"
    )
    narrow_energy: Real = fraction(
        positive=True,
        doc="energy of a FLOP in half the bits / energy in all bits; see `device.product_energy`",
    )
    lowest_voltage: Real = fraction(
        positive=True,
        doc=("lowest voltage, as a share of the voltage at full clock"),
    )
    wave_weight: Real = fraction(doc="weight of a partly filled last wave")
    tiles: tuple[Tile, ...] = children("tile", doc="tile sizes from which a GEMM library chooses")
    tile_depth: Real = integer(
        default=1, doc="elements of the inner dimension that a tile multiplies at a time"
    )
    tile_fill: Real = integer(
        default=0,
        minimum=0,
        doc="prologue and epilogue of a tile, in elements of the inner dimension",
    )
    mode: str | None = word(
        *MODES,
        default=None,
        doc=(
            "execution of the operators of a layer: eager or compiled; by default as in the "
            "framework"
        ),
    )
    cuda_graphs: str | None = word(
        *CUDA_GRAPHS,
        default=None,
        doc=(
            "CUDA graphs: none, one per layer and pass, or one for all forward and backward "
            "passes; by default as in the framework"
        ),
    )
    launch_blocking: bool = switch(
        default=False,
        doc="the host waits for each kernel before it issues the next, as with "
        "CUDA_LAUNCH_BLOCKING=1: its time adds to that of the device, and no collective overlaps",
    )
    launch_wait: Real = quantity(
        SECONDS,
        doc="latency of a kernel that the host waits for, before its start and after its end",
    )
    grouped_experts: bool | None = switch(
        default=None,
        doc=(
            "grouped experts: one product for all experts of a rank instead of a loop; by default "
            "as in the framework"
        ),
    )
    memory_bound: bool = switch(
        default=True,
        doc="the time of norms, activations and other memory-bound operators is included",
    )
    fused_accumulation: bool | None = switch(
        default=None,
        doc=(
            "weight-gradient GEMMs accumulate into the gradients of earlier micro-batches; by "
            "default as in the framework"
        ),
    )
    fused_down_projection: bool = switch(
        default=False,
        doc="latent attention projects queries, keys and values down in one product; otherwise two "
        "products each cast the input, keep their own narrow copy, and their gradients are added",
    )


@block(
    "overlap",
    label="none",
    used_with={
        ("bucket",): "`overlap.gradients` or `overlap.parameters`: a single collective and the "
        "layers of ZeRO 3 have no buckets",
        ("least_bucket", "bucket_growth"): "a framework without a `bucket`, and no "
        "`overlap.bucket`",
        ("first_bucket",): "`overlap.gradients = on`, and gradients that ZeRO does not shard",
        ("multiprocessors",): "overlapped collectives, such as `overlap.gradients = on`",
        ("gather_start",): "`layout.pp` above 1",
        ("chunks", "chunk_overhead"): "`overlap.tensor = pipelined`",
    },
)
class Overlap:
    """Communication that can overlap with compute."""

    gradients: bool | None = switch(
        default=None,
        doc=(
            "gradient reduction overlaps with the last backward pass, in buckets; by default as in "
            "the framework"
        ),
    )
    parameters: bool | None = switch(
        default=None,
        doc="parameter gather overlaps with the forward passes; by default as in the framework",
    )
    gather_start: str | None = word(
        *GATHER_STARTS,
        default=None,
        doc=(
            "start of the overlapped parameter gather of a pipeline stage: the start of the step, "
            "or the arrival of its first micro-batch; by default as in the framework"
        ),
    )
    tensor: str | None = word(
        *TENSOR_OVERLAPS,
        default=None,
        doc=(
            "compute that hides tensor-parallel collectives: the weight-gradient products of the "
            "same layer (`on` for short), also chunks of the products before or after them "
            "(`pipelined`), or the other half of the micro-batch (`split_batch`)"
        ),
    )
    chunks: Real = integer(default="layout.tp", doc="number of chunks of a pipelined product")
    chunk_overhead: Real = quantity(SECONDS, default=0.0, doc="overhead of one chunk")
    bucket: Real | None = quantity(
        BYTES,
        default=None,
        minimum=1.0,
        doc=(
            "size of one gradient bucket; by default that of the framework, or up to ZeRO 1 the "
            "larger of `least_bucket` and `bucket_growth` x ranks"
        ),
    )
    least_bucket: Real = quantity(
        BYTES, minimum=1.0, doc="smallest gradient bucket, if neither `bucket` nor framework set it"
    )
    bucket_growth: Real = quantity(BYTES, doc="growth of such a bucket per rank of the reduction")
    first_bucket: Real | None = quantity(
        BYTES,
        positive=True,
        default=None,
        doc=(
            "size of the first gradient bucket; by default that of the others; PyTorch uses a "
            "small one"
        ),
    )
    multiprocessors: Real | None = integer(
        default=None,
        minimum=0,
        doc=(
            "multiprocessors that a collective takes from compute while it is hidden; by default "
            "those of the device"
        ),
    )


@block(
    "collectives",
    label="none",
    used_with={
        ("tensor",): "`layout.tp` above 1",
        ("context",): "`layout.cp` above 1",
        ("pipeline",): "`layout.pp` above 1",
        ("expert",): "a model that has experts and `layout.ep` above 1",
        ("generation", "host"): "a table of the library: `collectives.tuning`, or that of the "
        "device",
        (
            "channels",
            "links",
            "channel_bandwidth",
            "network_channel_bandwidth",
            "card_latency",
            "collnet",
        ): "the algorithm `nccl`, such as `collectives.data = nccl`",
        ("launch",): "`transfer.launched = on`; in a step, queued work hides the launch",
    },
)
class CollectiveChoice:
    """The algorithm of each group; ``auto`` is the fastest algorithm of the library for each
    message.
    """

    library: str = word(
        "device",
        "any",
        registry="libraries",
        default="device",
        doc=(
            "communication library for `auto`: `device` is the library of the device, `any` allows "
            "all algorithms"
        ),
    )
    tensor: str = word(
        "auto", registry="collectives", default="auto", doc="algorithm of tensor parallelism"
    )
    data: str = word(
        "auto", registry="collectives", default="auto", doc="algorithm of data parallelism"
    )
    pipeline: str = word(
        "auto", registry="collectives", default="auto", doc="algorithm between pipeline stages"
    )
    context: str = word(
        "auto", registry="collectives", default="auto", doc="algorithm of context parallelism"
    )
    tuning: Tuning | None = reference(
        "tuning", default=None, doc="tuning table of the library; by default that of the device"
    )
    generation: str = word(
        *GENERATIONS,
        default="unknown",
        doc="row of the tuning table; `unknown` is that of the device",
    )
    channels: Real | None = integer(
        default=None, doc="channels of the library inside a node, for the algorithm `nccl`"
    )
    links: Real | None = integer(default=None, doc="NVLinks of one GPU")
    channel_bandwidth: Real | None = link_rate(
        default=None,
        doc=("bandwidth of one channel inside a node; by default that of the tuning table"),
    )
    network_channel_bandwidth: Real | None = link_rate(
        default=None,
        doc="bandwidth of one channel over more than two nodes; by default as inside a node",
    )
    host: str = word("intel", "amd", "arm", default="intel", doc="processor of the nodes")
    card_latency: Real = quantity(
        SECONDS, default=0.0, doc="additional latency of the network card"
    )
    collnet: bool = switch(default=False, doc="the library uses in-network reduction of switches")
    launch: Real | None = quantity(
        SECONDS, default=None, doc="host time to launch one collective; a busy stream hides it"
    )
    expert: str = word(
        "auto",
        registry="collectives",
        default="auto",
        doc="algorithm of the all-to-all of expert parallelism",
    )


@block(
    "memory",
    label="none",
    used_with={
        (
            "channels",
            "peers",
            "connection",
        ): "computed buffers: `memory.communicator` sets them",
        ("expandable_fragmentation",): "expandable segments: `memory.expandable_segments = on`",
        ("error", "coverage"): "a framework of the catalogue: `use catalog.frameworks.NAME`",
    },
)
class MemoryBudget:
    """Memory of overheads, and the usable share of a device."""

    usable: Real = fraction(doc="usable share of the memory capacity")
    tight: Real = fraction(
        doc="share of the usable memory above which a step is marked as tight in memory"
    )
    margin: Real = fraction(
        doc=(
            "share of the usable memory by which a prediction may exceed it before it counts as "
            "not fitting"
        )
    )
    error: Real = fraction(
        doc="half-width of the interval, as a share of the prediction, if the framework is known"
    )
    coverage: Real = fraction(doc="share of measured runs within that interval")
    context: Real = quantity(BYTES, doc="driver context and library workspaces")
    channels: Real = integer(doc="channels of a communicator")
    peers: Real = integer(doc="connections of a channel: 2 in a ring, up to 3 in a tree")
    connection: Real = quantity(BYTES, doc="buffers of one connection of a channel")
    communicator: Real = quantity(
        BYTES, default="channels * peers * connection", doc="buffers of one communicator"
    )
    fragmentation: Real | None = fraction(
        default=None,
        doc=(
            "share of the activation memory that is lost to fragmentation; by default as in "
            "the framework"
        ),
    )
    expandable_segments: bool = switch(
        default=False,
        doc=(
            "expandable segments of the allocator (PYTORCH_CUDA_ALLOC_CONF), which reduce "
            "fragmentation"
        ),
    )
    expandable_fragmentation: Real = fraction(
        doc="share of the activation memory that is lost to fragmentation with expandable segments"
    )
