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

    With a *narrow* type the products of linear layers and experts run in it: in forward, for the
    input gradient and for the weight gradient. All other work stays in *compute*: attention,
    embedding, head, router, norms, sums over ranks.
    """

    compute: str = word("fp32", "tf32", "fp16", "bf16", doc="type of the matrix products")
    narrow: str = word(
        "none",
        "fp8",
        "fp4",
        default="none",
        doc="type of the products of linear layers and experts",
    )
    narrow_attention: bool = switch(default=False, doc="the attention core runs in it too")
    wide_weight_gradients: bool = switch(
        default=False, doc="products for weight gradients stay in the type of `compute`"
    )
    wide_first: int = integer(
        default=0, minimum=0, structural=True, doc="first layers that stay in the type of `compute`"
    )
    kept_core: Real | None = quantity(
        BYTES,
        default=None,
        doc="an element of the attention output while it waits for backward, where the core and "
        "the projection behind it read one copy; else the core keeps its own beside a narrow one",
    )
    kept_gate: Real | None = quantity(
        BYTES,
        default=None,
        doc="an element of the inputs of the activation of experts while they wait for backward; "
        "the default is that of an activation",
    )
    wide_last: int = integer(
        default=0, minimum=0, structural=True, doc="last layers that stay in the type of `compute`"
    )
    scale: Real = quantity(BYTES, default=0.0, doc="bytes of one scaling factor of the narrow type")
    scale_block: Real = integer(default=1, doc="elements that share one scaling factor")
    microscaled: bool = switch(
        default=False,
        doc="matrix units apply the factors of blocks themselves, as of MXFP8 and NVFP4: only "
        "devices with `microscaling` multiply it",
    )
    narrow_rate: Real = fraction(
        default=1.0,
        positive=True,
        doc=(
            "share of the device's best narrow product rate, if scaling by blocks costs some of it"
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
        doc="traffic more to transpose it, where the device multiplies the type `in_one_layout`",
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
        doc="elements that a compiled cast makes one by one, for one element or weight; 0: casts "
        "are bound by memory alone",
    )
    column_cast: Real = quantity(
        BYTES,
        default=0.0,
        doc="traffic per element of either operand of a weight gradient to cast or copy it along "
        "the other dimension",
    )
    column_steps: Real = quantity(
        ONE, default=0.0, doc="elements that this makes one by one, for one element"
    )
    cast_kernels: Real = integer(
        default=1, doc="kernels that cast one tensor, one after another; for each expert separately"
    )
    weight_cast: Real = quantity(
        BYTES, default=0.0, doc="the same for a parameter of a linear layer, once per step"
    )
    weight_column_cast: Real = quantity(
        BYTES,
        default="weight_cast",
        doc="the same ahead of backward, along columns, with their `column_steps` "
        "(`weight_casts = pass`)",
    )
    weight_casts: str | None = word(
        "step",
        "pass",
        default=None,
        doc="weights are cast once per step, the default, or in each pass of a micro-batch that "
        "reads them: if ZeRO 3 gathers them narrow, as shards ahead of that, and backward "
        "transposes them",
    )
    weight_copies: Real = quantity(
        BYTES, default=0.0, doc="narrow copies held beside a parameter of a linear layer"
    )
    weight_transpose: Real = quantity(
        BYTES,
        default=0.0,
        doc="a narrow copy more, transposed, where the device multiplies the type `in_one_layout`",
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
        doc="bytes per parameter of gradients that are whole up to the last of several "
        "micro-batches, where `sharding.accumulate` is `whole` under ZeRO 2 and 3",
    )
    gradient_copies: Real = quantity(
        BYTES,
        default=0.0,
        doc=(
            "bytes per parameter held beside them: gradients of one micro-batch that are not freed"
        ),
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
            "bytes per element of an activation that tensor-parallel ranks gather; sums stay as "
            "wide as activations"
        ),
    )
    dispatch: Real = quantity(
        BYTES, default="activation", doc="bytes per element of a token on its way to an expert"
    )
    combine: Real = quantity(
        BYTES, default="activation", doc="bytes per element of a token on its way back"
    )
    update_traffic: Real = quantity(
        BYTES, doc="memory traffic of the optimizer's update, per parameter that it updates"
    )
    host_update_traffic: Real = quantity(
        BYTES,
        default="update_traffic",
        doc="memory traffic of that update on the host, which no kernel joins or casts ahead of it",
    )
    norm_traffic: Real = quantity(
        BYTES,
        default="3 * gradients",
        doc="memory traffic of the gradient norm (a read) and of clipping (a read and a "
        "write), per parameter that is updated; 0 without",
    )

    def cast_traffic(self, device: Device) -> Real:
        """Return the bytes that a cast moves for one element."""
        return self.cast + (self.cast_transpose if device.in_one_layout else 0.0)

    @property
    def narrow_weights(self) -> Real:
        """Bytes of a parameter of a linear layer that is held in the narrow type alone."""
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
        """Bytes of an element of the narrow type, with its share of a scaling factor."""
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
        """Return whether a product in this *role* runs in the narrow type."""
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

    model: Model = reference("model", default="model", doc="model that is trained")
    precision: Precision = reference("precision", default="precision", doc="precision recipe")
    framework: Framework = reference(
        "framework", default="framework", doc="framework that runs it; by default `generic`"
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
        doc="attention never writes its scores to memory; off is `kernels.attention = unfused`",
    )
    dropout: bool = switch(default=False, doc="dropout masks are kept for backward")
    loss: str | None = word(
        *LOSSES,
        default=None,
        doc=(
            "tensors that the cross entropy keeps for its logits (see `framework`); by default "
            "as the framework does"
        ),
    )
    loss_chunks: int = integer(
        default=1,
        structural=True,
        doc="parts of a micro-batch in which a fused head and loss make their gradient at once",
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
    """The rate of a streaming operator at one size; interpolated over the logarithm of the size."""

    size: Real = quantity(BYTES, positive=True, doc="bytes that the operator reads and writes")
    efficiency: Real = fraction(positive=True, doc="share of the memory bandwidth")


@block("tile", inside="kernels", label="required")
class Tile:
    """A part of a product's result that one multiprocessor computes at a time."""

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
        ("static_power", "lowest_voltage"): "a device with a `power_cap`, or without `sustained` "
        "and with `product_energy`",
        ("narrow_energy",): "a device without `sustained` and with `product_energy`",
    },
    aliases=ALIASES["kernels"],
)
class KernelChoice:
    """The model of kernel time, and its parameters."""

    model: str = word(registry="kernels", doc="model of kernel time")
    gemm_efficiency: Real | None = fraction(
        positive=True, default=None, doc="share of the peak, in place of the device's own figure"
    )
    attention: str | None = word(
        "auto",
        "unfused",
        *FUSED_KERNELS,
        default=None,
        doc=(
            "attention kernel; `auto` is the usual one of the device, `unfused` writes its "
            "scores to memory; by default as the framework does"
        ),
    )
    attention_forward_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the peak at any size and length, in place of the kernel's own rate",
    )
    attention_backward_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the peak at any size and length, in place of the kernel's own rate",
    )
    memory_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the memory bandwidth, in place of the device's own figure",
    )
    narrow_gemm_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc=(
            "share of the peak of the recipe's narrow type; if only `gemm_efficiency` is set, "
            "that scaled by the ratio of the device's own figures"
        ),
    )
    alignment: Real = quantity(
        BYTES,
        default=1.0,
        positive=True,
        doc="bytes of which matrix rows should be a multiple",
    )
    misaligned_efficiency: Real = fraction(
        positive=True, default=1.0, doc="share of a product's rate if they are not"
    )
    odd_efficiency: Real = fraction(
        positive=True,
        default=1.0,
        doc="share of a product's rate if rows are a multiple of at most 2 bytes",
    )
    misaligned_heads: str | None = word(
        *MISALIGNED_HEADS,
        default=None,
        doc="products of a core that is not fused whose heads are not a multiple of 16 bytes: on "
        "tensor cores, at the shares above, or on vector units in fp32, as cuBLAS 11 has them; "
        "the default is that of the framework",
    )
    head_sizes: tuple[int, ...] = integers(
        default=(),
        doc="sizes of heads that the fused core has kernels for, from the smallest upwards; a "
        "head between two is padded to the larger",
    )
    streaming: tuple[Streaming, ...] = children(
        "streaming",
        doc=(
            "shares of the memory bandwidth that operators of some size reach, from the smallest "
            "upwards; in place of one efficiency for all"
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
        positive=True, doc="share of the rate of streaming, by a fused norm backward"
    )
    eager_norm_efficiency: Real = fraction(
        positive=True, doc="share of the rate of streaming, by PyTorch's own norm forward"
    )
    eager_norm_gradient_efficiency: Real = fraction(
        positive=True, doc="share of the rate of streaming, by PyTorch's own norm backward"
    )
    compiled_norm_gradient_efficiency: Real = fraction(
        positive=True, doc="share of the rate of streaming, by a compiled norm backward"
    )
    composite_efficiency: Real = fraction(
        positive=True,
        doc="share of the rate of streaming, by a norm that runs operator by operator",
    )
    complex_efficiency: Real = fraction(
        positive=True, doc="share of the rate of streaming, by a rotation of complex numbers"
    )
    halves_efficiency: Real = fraction(
        positive=True, doc="share of the rate of streaming, by eager kernels on halves of a tensor"
    )
    eager_rotary_efficiency: Real = fraction(
        positive=True,
        doc="share of the rate of streaming, by a rotation of halves in eager kernels",
    )
    eager_softmax_efficiency: Real = fraction(
        positive=True,
        doc="share of the rate of streaming, by eager scale, mask and softmax of scores",
    )
    parallel_loss_efficiency: Real = fraction(
        positive=True,
        doc="share of the rate of streaming, by an eager loss on a share of the vocabulary",
    )
    permuted_efficiency: Real = fraction(
        positive=True, doc="share of the rate of streaming, by a kernel that permutes rows"
    )
    traced_time: Real = quantity(
        SECONDS,
        doc=(
            "time of an element on one multiprocessor, by an activation that is compiled for any "
            "number of tokens: its kernel divides to find where an element lies"
        ),
    )
    traced_gradient_time: Real = quantity(
        SECONDS, doc="the same for its gradient, which joins two halves"
    )
    strided_time: Real = quantity(
        SECONDS,
        doc="the same for an eager kernel on a part of a tensor or on tensors of several shapes",
    )
    scattered_time: Real = quantity(
        SECONDS, doc="the same for an eager kernel that scatters and adds"
    )
    indexed_time: Real = quantity(
        SECONDS, doc="the same for the gradient of eager indexing, which adds to rows by index"
    )
    cast_time: Real = quantity(
        SECONDS, doc="the same for a compiled cast to a narrow type; see `precision.cast_steps`"
    )
    delta_time: Real = quantity(
        SECONDS, doc="the same for a FLOP of the chunked rule of a gated delta net"
    )
    delta_gradient_time: Real = quantity(
        SECONDS, doc="the same for its gradient, by FLOPs of the forward pass"
    )
    shape_efficiency: Real = fraction(
        positive=True,
        doc="a real shape against the best shape that the device's figure was measured on",
    )
    static_power: Real = fraction(
        doc="share of a device's design power that is drawn at any clock; see `device.power_cap`"
    )
    narrow_energy: Real = fraction(
        positive=True,
        doc="energy of a FLOP in half the width, over that in the whole; see "
        "`device.product_energy`",
    )
    lowest_voltage: Real = fraction(
        positive=True,
        doc=(
            "lowest voltage, as a share of that at full clock; it falls with the clock down to here"
        ),
    )
    wave_weight: Real = fraction(doc="share of a partly filled last wave that is counted")
    tiles: tuple[Tile, ...] = children(
        "tile", doc="tiles that a library of products chooses from, shape by shape"
    )
    tile_depth: Real = integer(default=1, doc="inner elements that a tile multiplies at a time")
    tile_fill: Real = integer(
        default=0,
        minimum=0,
        doc="inner elements that a tile could multiply while its operands first arrive and its "
        "result is written",
    )
    mode: str | None = word(
        *MODES,
        default=None,
        doc=(
            "execution of the operators of a layer: one by one (eager), or compiled; by default "
            "as the framework does"
        ),
    )
    cuda_graphs: str | None = word(
        *CUDA_GRAPHS,
        default=None,
        doc=(
            "CUDA graphs that replay kernels: none, one per layer and pass, or one of all "
            "forward and backward passes; by default as the framework does"
        ),
    )
    launch_blocking: bool = switch(
        default=False,
        doc="the host waits for each kernel before it issues the next, as with "
        "CUDA_LAUNCH_BLOCKING=1: its time adds to that of the device, and no collective overlaps",
    )
    launch_wait: Real = quantity(
        SECONDS,
        doc="time from the launch of a kernel that the host waits for to its start, and from its "
        "end to the host's next step",
    )
    grouped_experts: bool | None = switch(
        default=None,
        doc="the experts of a rank run as one product, not in a loop; the default is that of "
        "the framework",
    )
    memory_bound: bool = switch(
        default=True, doc="time of norms, activations and other streaming operators is counted"
    )
    fused_accumulation: bool | None = switch(
        default=None,
        doc="weight-gradient products add to the gradients of earlier micro-batches themselves; "
        "by default as the framework does",
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
        ("bucket",): "`overlap.gradients` or `overlap.parameters`: one collective has no buckets, "
        "nor have the layers of ZeRO 3",
        ("least_bucket", "bucket_growth"): "a framework without a `bucket`, and no "
        "`overlap.bucket`",
        ("first_bucket",): "`overlap.gradients = on`, and gradients that ZeRO does not shard",
        ("multiprocessors",): "collectives that hide under compute, such as "
        "`overlap.gradients = on`",
        ("gather_start",): "`layout.pp` above 1",
        ("chunks", "chunk_overhead"): "`overlap.tensor = pipelined`",
    },
)
class Overlap:
    """Which communication may hide under compute."""

    gradients: bool | None = switch(
        default=None,
        doc=(
            "reduce gradients under the last backward pass, in buckets; by default as the "
            "framework does"
        ),
    )
    parameters: bool | None = switch(
        default=None,
        doc="gather parameters under the forward passes; by default as the framework does",
    )
    gather_start: str | None = word(
        *GATHER_STARTS,
        default=None,
        doc=(
            "start of a pipeline stage's gathers of parameters that hide: that of the step, or "
            "the arrival of its first micro-batch, with which the line of a stage includes the "
            "waits for earlier stages; by default as the framework does"
        ),
    )
    tensor: str | None = word(
        *TENSOR_OVERLAPS,
        default=None,
        doc=(
            "compute that hides tensor-parallel collectives: the weight-gradient products of the "
            "same layer (`on` for short), chunks of the products that need or make them too, or "
            "the other half of the micro-batch"
        ),
    )
    chunks: Real = integer(default="layout.tp", doc="chunks of a pipelined product")
    chunk_overhead: Real = quantity(SECONDS, default=0.0, doc="overhead of one chunk")
    bucket: Real | None = quantity(
        BYTES,
        default=None,
        minimum=1.0,
        doc=(
            "gradients of one bucket; by default that of the framework, or `least_bucket`, or "
            "with more ranks `bucket_growth` for each, up to ZeRO 1"
        ),
    )
    least_bucket: Real = quantity(
        BYTES, minimum=1.0, doc="smallest gradient bucket, if neither `bucket` nor framework set it"
    )
    bucket_growth: Real = quantity(
        BYTES, doc="growth of such a bucket for each rank that gradients are reduced over"
    )
    first_bucket: Real | None = quantity(
        BYTES,
        positive=True,
        default=None,
        doc="gradients of the first bucket, by default as the others; PyTorch makes it small",
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
        ("launch",): "`transfer.launched = on`: in a step the stream has work queued, which "
        "hides it",
    },
)
class CollectiveChoice:
    """The algorithm of each group; ``auto`` is the library's fastest for each message."""

    library: str = word(
        "device",
        "any",
        registry="libraries",
        default="device",
        doc=(
            "communication library for `auto`: `device` is the one that the device names, `any` "
            "allows all algorithms"
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
        doc=(
            "bandwidth of one channel inside a node; by default what the table gives for the links"
        ),
    )
    network_channel_bandwidth: Real | None = link_rate(
        default=None,
        doc="bandwidth of one channel over more than two nodes; by default as inside a node",
    )
    host: str = word("intel", "amd", "arm", default="intel", doc="processor of the nodes")
    card_latency: Real = quantity(
        SECONDS, default=0.0, doc="latency of the network card, beyond that of the table"
    )
    collnet: bool = switch(default=False, doc="the library reduces in the network's switches")
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
        ("expandable_fragmentation",): "segments that grow: `memory.expandable_segments = on`",
        ("error", "coverage"): "a framework that is known: `use catalog.frameworks.NAME`",
    },
)
class MemoryBudget:
    """Memory besides the model, and the usable share of a device."""

    usable: Real = fraction(doc="usable share of the capacity, for a job")
    tight: Real = fraction(doc="share of the usable memory from which on a step is tight in memory")
    margin: Real = fraction(
        doc=(
            "share of the usable memory by which a prediction may exceed it before the step does "
            "not fit"
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
            "share of the activation memory lost between blocks of the allocator; by default as "
            "the framework does"
        ),
    )
    expandable_segments: bool = switch(
        default=False,
        doc="segments of the allocator grow in place (PYTORCH_CUDA_ALLOC_CONF), so that less is "
        "lost between blocks",
    )
    expandable_fragmentation: Real = fraction(
        doc="share of the activation memory lost between blocks in segments that grow"
    )
