"""The training framework: its host constants, and the behaviour of its code at a version.

Every value of a framework has a source: a file of its code or documentation at a version. Other
choices of a run are attributes of other blocks; their defaults are the values of the framework.
"""

from __future__ import annotations

from parcost import (
    BYTES,
    SECONDS,
    Real,
    block,
    children,
    fraction,
    integer,
    quantity,
    string,
    switch,
    word,
)
from parcost_plugins.vocabulary.attention import FUSED_KERNELS

#: Rules for layers that do not divide by the stages.
ASSIGNMENTS = ("even", "short_ends", "front", "fill", "ends")

#: Tensors that the cross entropy saves for backward.
LOSSES = ("eager", "softmax", "logits", "gradient")

#: Token dispatchers.
DISPATCHERS = ("alltoall", "allgather", "deepep", "hybridep")
#: Dispatchers whose own kernels send a token once to each rank of a unit.
KERNEL_DISPATCHERS = ("deepep", "hybridep")

#: How the host issues the operators of a layer.
MODES = ("eager", "compiled")
#: Scopes of CUDA graphs.
CUDA_GRAPHS = ("none", "layer", "iteration")


#: Overlap modes of tensor-parallel collectives; see the block ``overlap``.
TENSOR_OVERLAPS = ("off", "on", "weight_gradients", "pipelined", "split_batch")
#: Whether pipeline send/recv overlaps with compute.
TRANSFERS = ("overlapped", "blocking")
#: Moments at which a pipeline stage starts to gather its parameters.
GATHER_STARTS = ("step", "arrival")
#: Where products of heads run that are not a multiple of 16 bytes.
MISALIGNED_HEADS = ("tensor", "vector")
#: What a tensor-parallel rank sends to the next stage, where all have the whole residual stream.
MESSAGES = ("whole", "scattered", "partitioned", "partitioned_forward")
#: Algorithms of context parallelism.
CONTEXTS = ("ring", "all_gather", "ulysses", "hybrid")
#: When gradients are reduced under ZeRO 2 and 3.
ACCUMULATIONS = ("shard", "whole")
REPLICATIONS = ("step", "micro_batch")
#: How gradients accumulate under an optimizer that updates on the host.
HOST_SUMS = ("none", "fetch", "add")
#: Where gradients stay allocated between steps.
GRADIENT_MEMORY = ("always", "replicas", "zero_3", "never")
#: When the gradients of a micro-batch are added to sums in a wider type.
ADDITIONS = ("layer", "pass")
#: How gradients of the ranks are averaged.
AVERAGES = ("collective", "scaled", "scaled_experts")


@block("offers", inside="framework", label="required")
class Offer:
    """The values of one attribute that a framework supports; rules reject others.

    A framework without an offer for an attribute supports all values of the attribute.
    """

    attribute: str = string(doc="attribute, as block and name: `schedule.kind`")
    values: str = string(
        default="",
        doc=(
            "values that the framework supports, separated by commas, as in `one_f_one_b, "
            "interleaved`; empty: the statement of the extended framework is removed"
        ),
    )
    beyond: str = word(
        "any",
        "tp",
        "cp",
        "pp",
        "dp",
        "ep",
        default="any",
        doc="degree that must be above 1 for this statement to apply; `any` for all layouts",
    )
    since: str = string(default="", doc="change and its version, for runs of other versions")
    note: str = string(
        default="", doc="requirements of the values, or a replacement for a missing value"
    )


@block("framework", label="required")
class Framework:
    """A training framework, at a version."""

    version: str = string(default="", doc="release or commit from which the values were taken")
    first_year: int | None = integer(
        default=None, structural=True, doc="first year of the releases that the values describe"
    )
    last_year: int | None = integer(
        default=None,
        structural=True,
        doc="last year of these releases; `validate` warns of newer runs",
    )
    checked: str = string(
        default="",
        doc="the `id` of a measured run of that time that was compared with the values, or "
        "`no open row`",
    )
    mode: str = word(*MODES, default="eager", doc="default of `kernels.mode`: how layers run")
    cuda_graphs: str = word(
        *CUDA_GRAPHS,
        default="none",
        doc="default of `kernels.cuda_graphs`",
    )
    issue: Real = quantity(
        SECONDS,
        default=0.0,
        doc=("host time per kernel, including Python, autograd and the framework"),
    )
    graph_issue: Real | None = quantity(
        SECONDS,
        default=None,
        doc="host time of one graph replay; by default no graphs are captured",
    )
    compiled_issue: Real | None = quantity(
        SECONDS,
        default=None,
        doc=(
            "host time per kernel of a compiled layer; without it the framework has no compiled "
            "mode"
        ),
    )
    compiled_call: Real = quantity(
        SECONDS, default=0.0, doc="host time for the guards of one call of a compiled layer"
    )
    compiled_kernels: Real = fraction(
        default=1.0, doc="share of the kernels of an eager layer that remain in a compiled layer"
    )
    forward_kernels: Real = integer(
        default=0, minimum=0, doc="kernels issued for the forward pass of a dense layer"
    )
    backward_kernels: Real = integer(
        default=0, minimum=0, doc="kernels issued for the backward pass of a dense layer"
    )
    weight_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="kernels of the backward pass of a dense layer that compute weight gradients",
    )
    norm_kernels: Real = integer(
        default=1,
        minimum=0,
        doc="kernels of the forward pass of a norm beyond those of a dense layer: of queries, of "
        "keys, or in latent attention",
    )
    norm_backward_kernels: Real = integer(
        default=2, minimum=0, doc="kernels of the backward pass of such a norm"
    )
    core_kernels: Real = integer(
        default=1,
        minimum=0,
        doc="kernels of the forward pass of an attention core that is not fused",
    )
    outer_kernels: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "kernels issued for the forward pass of a micro-batch at either end of the model: "
            "the embedding, or head and loss; twice as many for the backward pass"
        ),
    )
    sharded_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="kernels issued to gather or reduce the sharded parameters of a layer once (ZeRO-3)",
    )
    list_issue: Real = quantity(
        SECONDS,
        default=0.0,
        doc=(
            "host time for each rank in a collective over one sharded tensor, which takes a list "
            "with a tensor for each rank; the device waits (ZeRO 3)"
        ),
    )
    gathers_wait: bool = switch(
        default=False,
        doc=(
            "a gather of a sharded tensor waits for the device, so that it does not overlap (ZeRO "
            "3)"
        ),
    )
    whole_below: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "smallest number of elements of a sharded tensor (ZeRO 3): smaller tensors stay whole "
            "on every rank, and do not count in `list_issue`"
        ),
    )
    keeps_gradients: str = word(
        *GRADIENT_MEMORY,
        default="always",
        doc=(
            "memory of gradients that stays allocated between steps: `always`, in one buffer; "
            "`replicas`, without ZeRO, in the buckets of several ranks, and from ZeRO 2 on "
            "reserved for the stream of reductions, as by PyTorch's FSDP; `zero_3`, in a buffer "
            "of shards; "
            "or `never`. In other cases backward allocates the gradients of a single micro-batch "
            "layer by layer, while it frees activations"
        ),
    )
    adds_gradients: str = word(
        *ADDITIONS,
        default="layer",
        doc=(
            "moment at which the gradients of a micro-batch are accumulated in a wider type than "
            "the weights: after each `layer`; or after the whole `pass`, until which all of them "
            "are held in the type of the weights"
        ),
    )
    zeroes_gradients: bool = switch(
        default=False,
        doc="gradients accumulate in one buffer, which is zeroed once per step",
    )
    fused_accumulation: bool = switch(
        default=False,
        doc=(
            "default of `kernels.fused_accumulation`: weight-gradient GEMMs accumulate into the "
            "gradients"
        ),
    )
    gradient_average: str = word(
        *AVERAGES,
        default="collective",
        doc="default of `sharding.gradient_average`: how gradients of the ranks are averaged",
    )
    gradient_check: bool = switch(
        default=False,
        doc="default of `sharding.gradient_check`: gradients are checked for NaN",
    )
    update_kernels: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "kernels issued once per step to update the parameters of a layer, if each tensor has "
            "separate kernels"
        ),
    )
    routing_kernels: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "kernels issued for the forward pass of a layer with experts beyond those of a dense "
            "one"
        ),
    )
    routing_backward_kernels: Real = integer(
        default="2 * routing_kernels", minimum=0, doc="the same for the backward pass"
    )
    grouped_kernels: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "kernels issued for the forward pass of one expert besides the grouped product; twice "
            "as many for the backward pass"
        ),
    )
    grouped_casts: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "tensors that are cast to fp8 or fp4 per expert in the forward and in the backward "
            "pass: each with the kernels of `precision.cast_kernels`"
        ),
    )
    grouped_experts: bool = switch(
        default=True,
        doc=(
            "grouped experts: one product for all experts of a rank instead of a loop; default of "
            "`kernels.grouped_experts`"
        ),
    )
    expert_kernels: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "kernels issued for the forward pass of one expert of a loop; twice as many for the "
            "backward pass"
        ),
    )
    # Which kernels element-wise operators run as; see `parcost_plugins.physics.elementwise`.
    norm: str = word(
        "fused",
        "compiled",
        "eager",
        "composite",
        default="fused",
        doc="norms: kernels of a library such as Transformer Engine or Apex, of a compiler, "
        "PyTorch's own kernel for a norm, or one operator per step",
    )
    activation: str = word(
        "fused",
        "compiled",
        "eager",
        "halves",
        default="fused",
        doc=(
            "kernels of gated MLPs: gate, activation and product in one kernel, or activation "
            "and product apart, of tensors of their own or of halves of one"
        ),
    )
    squared_relu: str = word(
        "fused",
        "eager",
        default="fused",
        doc="squared ReLU of a dense MLP without a gate: one kernel, or one for each operator",
    )
    rotary: str = word(
        "fused",
        "compiled",
        "eager",
        "sliced",
        "complex",
        default="fused",
        doc="rotary embeddings: a kernel for queries and one for keys, an operator for each step "
        "on chunks or on slices, or a product of complex numbers in fp32 between casts",
    )
    dropout: str = word(
        "fused",
        "eager",
        default="fused",
        doc=(
            "dropout of a branch: in the kernel of the residual addition, or in a separate kernel "
            "before it"
        ),
    )
    softmax: str = word(
        "fused",
        "eager",
        default="fused",
        doc="softmax over stored scores: with scale and mask in one kernel, or in separate kernels",
    )
    router: str = word(
        "fused",
        "eager",
        default="eager",
        doc="scores and top-k of a mixture of experts: one kernel, or an operator for each step",
    )
    permutation: str = word(
        "fused",
        "eager",
        default="eager",
        doc=(
            "permutation and unpermutation of tokens: each token is read or written once, or once "
            "per copy"
        ),
    )
    dispatcher: str = word(
        *DISPATCHERS,
        default="alltoall",
        doc="default of `routing.dispatcher`: how tokens are sent to their experts",
    )
    expert_activation: str = word(
        "dense",
        "traced",
        "in_product",
        default="dense",
        doc=(
            "gated activation of routed experts: as that of dense MLPs; with the routing weight in "
            "a compiled kernel of dynamic shape; or in the kernel of the product before it"
        ),
    )
    expert_biases: str = word(
        "fused",
        "eager",
        default="fused",
        doc="biases after routed experts: in the kernel of the product, or expert by expert",
    )
    separate_projections: bool = switch(
        default=False,
        doc=(
            "separate layers compute queries, keys and values, and gate and up; the gradients of "
            "their common input are added up"
        ),
    )
    repeats_keys: bool = switch(
        default=False,
        doc=(
            "keys and values are replicated for every query head of their group before attention, "
            "and exchanged and saved as replicas"
        ),
    )
    updates_weights: bool = switch(
        default=False,
        doc="the optimizer updates the weights themselves: no master copy is beside them",
    )
    gather_copies: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "kernels that copy gathered parameters out of their buffer, in the type of the message "
            "(ZeRO 3)"
        ),
    )
    reduction_copy: str = word(
        "none",
        "joined",
        "divided",
        default="none",
        doc=(
            "path of gradients to the reduction buffer (ZeRO 3): computed in it; concatenated "
            "there, in the type of the message; or concatenated and then divided, in the type of "
            "the matrix products"
        ),
    )
    loop_copies: bool = switch(
        default=False,
        doc=(
            "layers are iterations of a loop in which collectives overlap with the compute of "
            "another iteration: gathered parameters, and gradients to reduce, are copied for the "
            "next iteration (ZeRO 3)"
        ),
    )
    embedding: str = word(
        "lookup",
        "product",
        default="lookup",
        doc=(
            "embedding lookup: the row of a token is copied out of the table, or computed as a "
            "one-hot product with the whole table, as is its gradient"
        ),
    )
    loss: str = word(
        *LOSSES,
        default="softmax",
        doc=(
            "default of `training.loss`: tensors that the cross entropy keeps: `eager`, three "
            "tensors in fp32 at once, op by op; an fp32 `softmax`; `logits` as they are, whose "
            "gradient a fused kernel computes in backward; or that `gradient`, in their place"
        ),
    )
    softmax_in_place: bool = switch(
        default=True, doc="the `softmax` of that loss overwrites the logits in fp32"
    )
    loss_metrics: Real = integer(
        default=0,
        minimum=0,
        doc="further cross entropies of each micro-batch, which the trainer computes as metrics "
        "from the logits behind the backward pass",
    )
    kept_logits: Real = integer(
        default=0,
        minimum=0,
        doc="micro-batches whose fp32 logits the pipeline engine keeps on the last stage between "
        "steps; none with ZeRO 2 and 3, for which DeepSpeed has no pipelines",
    )
    router_weights: str = word(
        "input",
        "activation",
        "output",
        default="activation",
        doc=(
            "tensor of an expert that is multiplied with the routing weight of a token; it is "
            "kept for backward, except the activation, which is recomputed"
        ),
    )
    reruns_core: bool = switch(
        default=False,
        doc=(
            "selective recomputation also recomputes a fused attention core, although it stores no "
            "scores"
        ),
    )
    stops_early: bool = switch(
        default=False,
        doc=(
            "recomputation of a dense layer ends with the last tensor that backward reads: the "
            "down projection and the residual addition are not recomputed, unless dropout or a "
            "norm follows"
        ),
    )
    remakes_elementwise: bool = switch(
        default=False,
        doc=(
            "compiled layers do not keep outputs of norms and activations, as the backward "
            "kernels recompute them, and under recomputation, which stops early, no MLP output, "
            "unless backward reads it"
        ),
    )
    keeps_gathers: bool = switch(
        default=False,
        doc=(
            "gathered inputs of linear layers are saved, and not gathered again in backward "
            "(sequence parallelism)"
        ),
    )
    keeps_norm_outputs: bool = switch(
        default=False,
        doc=(
            "outputs of norms before frozen matrices are also saved, as fused norm and linear "
            "kernels do (adapters)"
        ),
    )
    keeps_stage_outputs: bool = switch(
        default=False,
        doc=(
            "a pipeline stage keeps the tensor that it has sent until its backward pass, although "
            "backward needs only its graph"
        ),
    )
    reduces_by_matrix: bool = switch(
        default=False,
        doc=(
            "gradients are reduced per matrix, so that only one matrix has unsharded gradients; "
            "otherwise per layer, with a copy for the message (ZeRO 3)"
        ),
    )
    ends_together: bool = switch(
        default=False,
        doc=(
            "embedding and head are one FSDP unit, gathered from the first layer to the last, with "
            "its gradients reduced after them (ZeRO 3)"
        ),
    )
    gradient_staging: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "elements of the buffer into which gradients are copied for the reduction; without "
            "`contiguous_gradients` at most all gradients, and none with ZeRO 3"
        ),
    )
    contiguous_gradients: bool = switch(
        default=False,
        doc=(
            "this buffer has full size on any number of ranks, twice if reductions overlap; a rank "
            "copies its shard out of it (ZeRO 1 to 3)"
        ),
    )
    norm_copy: Real = quantity(
        BYTES,
        default=0.0,
        doc=(
            "bytes per element of the copy of a gradient tensor for its norm, one tensor after "
            "another (ZeRO 1 to 3)"
        ),
    )
    update_group: Real = integer(
        default=0,
        minimum=0,
        doc="elements of a shard whose gradients are copied for the update at a time (ZeRO 3); by "
        "default none",
    )
    bucket_copies: bool = switch(
        default=False,
        doc=(
            "with ZeRO, gradients are copied into a bucket, concatenated and divided before they "
            "are reduced"
        ),
    )
    update_gradients: Real = quantity(
        BYTES,
        default=0.0,
        doc=(
            "bytes per parameter of the copy of a shard's gradients that the optimizer reads, if "
            "gradients are narrower (ZeRO 1 and 2, and 3 with an `update_group`)"
        ),
    )
    sent_check: Real = quantity(
        BYTES,
        default=0.0,
        doc="memory traffic of the check for overflow, per gradient that goes to a host that "
        "updates (ZeRO 1 and 2)",
    )
    host_sums: str = word(
        *HOST_SUMS,
        default="none",
        doc="sums of gradients on the host, if it updates (ZeRO 2 and 3): `none`, gradients go "
        "there once a step; `fetch`, each addition fetches the sum and sends it back; `add`, each "
        "micro-batch sends its gradients, which the host adds, and clips",
    )
    returns_host_sums: bool = switch(
        default=True,
        doc="ZeRO 2 sends a fetched sum back after each addition; off: the host holds the first "
        "micro-batch's gradients, which each later one fetches and adds to",
    )
    fragmentation: Real = fraction(
        default=0.0, doc="share of the activation memory that is lost to fragmentation"
    )
    assignment: str = word(
        *ASSIGNMENTS,
        default="even",
        doc="default of `schedule.assignment`: layers of the stages",
    )
    gradient_overlap: bool = switch(
        default=True,
        doc=(
            "default of `overlap.gradients`: gradient reduction overlaps with the backward pass; "
            "always with ZeRO 3"
        ),
    )
    parameter_overlap: bool = switch(
        default=True,
        doc=(
            "default of `overlap.parameters`: the parameter gather overlaps with the forward pass; "
            "always with ZeRO 3"
        ),
    )
    gathers_in_turn: bool = switch(
        default=False,
        doc=(
            "only one bucket of parameters is prefetched for a module, which waits for its other "
            "buckets, as of grouped experts (ZeRO 1 and 2)"
        ),
    )
    gather_start: str = word(
        *GATHER_STARTS,
        default="step",
        doc="default of `overlap.gather_start` of stages with one chunk each",
    )
    interleaved_gather_start: str = word(
        *GATHER_STARTS,
        default="step",
        doc="default of `overlap.gather_start` of stages with several chunks",
    )
    tensor_overlap: str = word(
        *TENSOR_OVERLAPS,
        default="off",
        doc="default of `overlap.tensor`",
    )
    transfers: str = word(
        *TRANSFERS,
        default="overlapped",
        doc="default of `schedule.transfers` for stages with one chunk",
    )
    interleaved_transfers: str = word(
        *TRANSFERS,
        default="overlapped",
        doc="default of `schedule.transfers` for stages with several chunks",
    )
    messages: str = word(
        *MESSAGES,
        default="whole",
        doc="default of `schedule.messages`: what a tensor-parallel rank sends to the next stage",
    )
    accumulate: str = word(
        *ACCUMULATIONS,
        default="shard",
        doc=(
            "default of `sharding.accumulate`: gradients are reduced under ZeRO 2 and 3 in every "
            "micro-batch (`shard`), or once per step (`whole`)"
        ),
    )
    pipelined_accumulate: str | None = word(
        *ACCUMULATIONS,
        default=None,
        doc="the same with several pipeline stages; by default as with one",
    )
    replicate: str = word(
        *REPLICATIONS,
        default="step",
        doc="default of `sharding.replicate`: the all-reduce between groups of hybrid sharding",
    )
    reshard: bool = switch(
        default=True,
        doc="default of `sharding.reshard` under ZeRO 3: parameters are dropped after forward",
    )
    keep_last: bool = switch(
        default=False,
        doc="default of `sharding.keep_last`: the last layer stays gathered from forward to "
        "backward",
    )
    pipelined_reshard: bool | None = switch(
        default=None, doc="the same with several pipeline stages; by default as with one"
    )
    reduce_scatter: bool = switch(
        default=True,
        doc=(
            "reduce-scatter of gradients (ZeRO 1 and 2); off: all gradients are all-reduced, and a "
            "rank keeps its share"
        ),
    )
    bucket: Real | None = integer(
        default=None,
        doc="elements of a gradient bucket, where `overlap.bucket` is not set; by default "
        "`overlap.least_bucket` bytes",
    )
    bucket_growth: Real = integer(
        default=0,
        minimum=0,
        doc="elements of such a bucket per rank of the reduction, if that is more",
    )
    context: str = word(
        *CONTEXTS,
        default="ring",
        doc="default of `context.algorithm`",
    )
    context_sums: Real = quantity(
        BYTES,
        default=0.0,
        doc=(
            "bytes per element of the accumulated attention output of blocks of keys (`ring`, "
            "`all_gather`), and of circulating gradients of keys and values; 0 if attention is one "
            "kernel or accumulates itself"
        ),
    )
    context_merges: str = word(
        "operators",
        "kernels",
        default="operators",
        doc="kernels that add them up: operators of PyTorch, which join keys and values ahead of "
        "each exchange and send gradients once more than keys; or one for each tensor, as in "
        "Transformer Engine, whose all-gather adds nothing up",
    )
    sink_context: str | None = word(
        *CONTEXTS,
        default=None,
        doc="the only algorithm that supports models with `sinks`, if there is one",
    )
    window_context: str | None = word(
        *CONTEXTS,
        default=None,
        doc=(
            "default of `context.algorithm` for models with a `window`, if a ring does not support "
            "them"
        ),
    )
    misaligned_heads: str = word(
        *MISALIGNED_HEADS,
        default="tensor",
        doc=(
            "default of `kernels.misaligned_heads`: products of a core that is not fused with "
            "heads that are not a multiple of 16 bytes"
        ),
    )
    attention: str = word(
        "auto",
        "unfused",
        *FUSED_KERNELS,
        default="auto",
        doc=(
            "default attention kernel, if the device has it; `auto`, or a kernel that the device "
            "does not have: the default kernel of the device"
        ),
    )
    enforced: bool = switch(
        default=True,
        doc=("features that are not listed are rejected; off for measured runs of unknown version"),
    )
    offers: tuple[Offer, ...] = children(
        "offers", doc="features that it supports or does not support"
    )
