"""The training framework: its host constants, and the behaviour of its code at a version.

A value of a framework has its source: a file of its code or documentation at a version. Other
choices of a run are attributes of their own blocks; if left out, they take the framework's value.
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
MESSAGES = ("whole", "scattered", "partitioned")
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
    """The values of one attribute that a framework supports; rules reject other values.

    A framework without an offer for an attribute supports all its values.
    """

    attribute: str = string(doc="attribute, as block and name: `schedule.kind`")
    values: str = string(
        default="",
        doc=(
            "values that the framework has, with commas between them, as in `one_f_one_b, "
            "interleaved`; left empty, the statement of an extended framework is withdrawn"
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
    note: str = string(default="", doc="needs of values, or what stands for one that is absent")


@block("framework", label="required")
class Framework:
    """A training framework, at a version."""

    version: str = string(default="", doc="release or commit that the values were read in")
    first_year: int | None = integer(
        default=None, structural=True, doc="first year of the releases that the values describe"
    )
    last_year: int | None = integer(
        default=None,
        structural=True,
        doc="last year of these releases; `validate` warns of newer runs",
    )
    checked: str = string(default="", doc="a measured run of that time that was compared with it")
    mode: str = word(*MODES, default="eager", doc="default of `kernels.mode`: how layers run")
    cuda_graphs: str = word(
        *CUDA_GRAPHS,
        default="none",
        doc="default of `kernels.cuda_graphs`",
    )
    issue: Real = quantity(
        SECONDS,
        default=0.0,
        doc=(
            "time of the host for one kernel, with what Python, autograd and the framework do "
            "around it"
        ),
    )
    graph_issue: Real | None = quantity(
        SECONDS,
        default=None,
        doc="host time of one replayed graph; by default none is captured",
    )
    compiled_issue: Real | None = quantity(
        SECONDS,
        default=None,
        doc=(
            "time of the host for one kernel of a compiled layer; without it the framework "
            "compiles no layers"
        ),
    )
    compiled_call: Real = quantity(
        SECONDS, default=0.0, doc="time of the host for one call of a compiled layer: its guards"
    )
    compiled_kernels: Real = fraction(
        default=1.0, doc="share of the kernels of an eager layer, left in a compiled one"
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
        doc="a gather of a sharded tensor waits for the device, and does not overlap (ZeRO 3)",
    )
    whole_below: Real = integer(
        default=0,
        minimum=0,
        doc="elements of a tensor that ZeRO-3 shards: smaller ones stay whole on every rank, and "
        "have no part in `list_issue`",
    )
    keeps_gradients: str = word(
        *GRADIENT_MEMORY,
        default="always",
        doc=(
            "memory of gradients that stays allocated between steps: `always`, in one buffer; "
            "`replicas`, without ZeRO, in the buckets of several ranks, and from ZeRO 2 on "
            "reserved for the stream of reductions, as by PyTorch's FSDP; `zero_3`, in a buffer "
            "of shards; "
            "or `never`. Elsewhere backward allocates those of a step's only micro-batch layer by "
            "layer, as it frees activations"
        ),
    )
    adds_gradients: str = word(
        *ADDITIONS,
        default="layer",
        doc="moment at which the gradients of a micro-batch are added to sums in a type wider than "
        "the weights': as backward makes those of a `layer`; or behind the `pass`, up to which all "
        "of them are held, in the type of the weights",
    )
    zeroes_gradients: bool = switch(
        default=False,
        doc="gradients accumulate in one buffer, which is zeroed once per step",
    )
    fused_accumulation: bool = switch(
        default=False,
        doc="default of `kernels.fused_accumulation`: weight-gradient products add to gradients",
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
            "kernels issued once per step for the update of a layer's parameters, where each "
            "tensor has kernels of its own"
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
            "kernels issued for the forward pass of one expert where the experts of a rank run "
            "as one product, but that product's own; twice as many for the backward pass"
        ),
    )
    grouped_casts: Real = integer(
        default=0,
        minimum=0,
        doc="tensors that are made narrow for either pass of one expert, where its products run in "
        "a narrow type: each with the kernels of `precision.cast_kernels`",
    )
    grouped_experts: bool = switch(
        default=True,
        doc="the experts of a rank run as one product, not in a loop, unless the run sets it",
    )
    expert_kernels: Real = integer(
        default=0,
        minimum=0,
        doc=(
            "kernels issued for the forward pass of one expert of a loop; twice as many for the "
            "backward pass"
        ),
    )
    # Which kernels element-wise operators run as; see `parcost_plugins.model.elementwise`.
    norm: str = word(
        "fused",
        "compiled",
        "eager",
        "composite",
        default="fused",
        doc="norms: kernels of a library such as Transformer Engine or Apex, of a compiler, "
        "PyTorch's own kernel for a norm, or an operator for each step of it",
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
        doc="dropout of a branch: in the kernel that adds it to the stream, or ahead of that",
    )
    softmax: str = word(
        "fused",
        "eager",
        default="fused",
        doc="softmax over stored scores: with scale and mask in one kernel, or a kernel for each",
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
        doc="tokens copied for their experts, and added up behind them: each read or written once, "
        "or copy by copy",
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
        doc="gated activation of routed experts: as that of dense MLPs; with the routing weight in "
        "a kernel that is compiled for any number of tokens, where their number is not fixed; or "
        "in the kernel of the product ahead of it",
    )
    expert_biases: str = word(
        "fused",
        "eager",
        default="fused",
        doc="biases behind routed experts: in the kernel of the product, or expert by expert",
    )
    separate_projections: bool = switch(
        default=False,
        doc="queries, keys and values, gate and up are made by layers of their own, and the "
        "gradients of their common input are added up",
    )
    repeats_keys: bool = switch(
        default=False,
        doc="keys and values are copied for every query head of their group, ahead of attention, "
        "and exchanged and kept as the copies",
    )
    updates_weights: bool = switch(
        default=False,
        doc="the optimizer updates the weights themselves: no master copy is beside them",
    )
    gather_copies: Real = integer(
        default=0,
        minimum=0,
        doc="kernels that copy what is gathered out of its buffer, in the type of the message "
        "(ZeRO 3)",
    )
    reduction_copy: str = word(
        "none",
        "joined",
        "divided",
        default="none",
        doc="way of gradients to the buffer that is reduced (ZeRO 3): made in it; joined there, in "
        "the type of the message; or joined and then divided, in the type of the products",
    )
    loop_copies: bool = switch(
        default=False,
        doc="layers are iterations of a loop, in which a collective runs while what the one before "
        "brought is in use: what is gathered, and the gradient to be reduced, is copied for the "
        "next iteration (ZeRO 3)",
    )
    embedding: str = word(
        "lookup",
        "product",
        default="lookup",
        doc="the row of a token is copied out of the table, or is the product of a row of zeros "
        "and a one with the whole table, as is its gradient",
    )
    loss: str = word(
        *LOSSES,
        default="softmax",
        doc=(
            "default of `training.loss`: tensors that the cross entropy keeps: `eager`, three "
            "tensors in fp32 at once, op by op; an fp32 `softmax`; `logits` as they are, whose "
            "gradient a fused kernel makes in backward; or that `gradient`, in their place"
        ),
    )
    softmax_in_place: bool = switch(
        default=True, doc="the `softmax` of that loss overwrites the logits in fp32"
    )
    kept_logits: Real = integer(
        default=0,
        minimum=0,
        doc="micro-batches whose fp32 logits the pipeline engine keeps on the last stage between "
        "steps; none under ZeRO 2 and 3, with which DeepSpeed has no pipelines",
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
        doc="selective recomputation runs a fused attention core again as well, which keeps no "
        "scores in any case",
    )
    stops_early: bool = switch(
        default=False,
        doc="recomputation of a dense layer ends with the last tensor that backward reads: the "
        "down projection and the addition behind it do not run again, unless dropout or a norm "
        "follows",
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
            "inputs of linear layers are kept as they were gathered, and not gathered again in "
            "backward (sequence parallelism)"
        ),
    )
    keeps_norm_outputs: bool = switch(
        default=False,
        doc=(
            "outputs of norms are kept before frozen matrices too, as kernels of a norm and a "
            "linear layer do (adapters)"
        ),
    )
    keeps_stage_outputs: bool = switch(
        default=False,
        doc=(
            "a pipeline stage keeps the tensor that it has sent on until its backward pass, "
            "which reads only its graph"
        ),
    )
    reduces_by_matrix: bool = switch(
        default=False,
        doc=(
            "gradients are reduced as each product makes them, so that those of one matrix are "
            "whole at a time; otherwise those of a layer, and their copy for the wire (ZeRO 3)"
        ),
    )
    ends_together: bool = switch(
        default=False,
        doc="embedding and head are one unit, which is whole from the first layer to the last and "
        "whose gradients are reduced behind them (ZeRO 3)",
    )
    gradient_staging: Real = integer(
        default=0,
        minimum=0,
        doc="elements of a buffer that gradients are copied into to be reduced; without "
        "`contiguous_gradients` no larger than all of them, and none under ZeRO 3",
    )
    contiguous_gradients: bool = switch(
        default=False,
        doc="this buffer is allocated whole on any number of ranks, twice if reductions overlap, "
        "and a rank copies its shard out of it (ZeRO 1 to 3)",
    )
    norm_copy: Real = quantity(
        BYTES,
        default=0.0,
        doc="bytes per element of the copy of a tensor of gradients whose norm is taken, one after "
        "another (ZeRO 1 to 3)",
    )
    update_group: Real = integer(
        default=0,
        minimum=0,
        doc="elements of a shard whose gradients are copied for the update at a time (ZeRO 3); by "
        "default none",
    )
    bucket_copies: bool = switch(
        default=False,
        doc="gradients under ZeRO are copied into a bucket that has room for them, joined and "
        "divided before they are reduced",
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
        default=0.0, doc="share of the activation memory lost between blocks of the allocator"
    )
    assignment: str = word(
        *ASSIGNMENTS,
        default="even",
        doc="default of `schedule.assignment`: layers of the stages",
    )
    gradient_overlap: bool = switch(
        default=True,
        doc="gradients are reduced under the backward pass unless the run sets it; under ZeRO 3 "
        "they always are",
    )
    parameter_overlap: bool = switch(
        default=True,
        doc="parameters are gathered under the forward pass unless the run sets it; under ZeRO 3 "
        "they always are",
    )
    gathers_in_turn: bool = switch(
        default=False,
        doc="one bucket of parameters is gathered ahead of the module that reads it, which then "
        "waits for each of its other buckets in turn, as grouped experts have (ZeRO 1 and 2)",
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
        doc="messages between stages with one chunk each, unless the run sets it",
    )
    interleaved_transfers: str = word(
        *TRANSFERS,
        default="overlapped",
        doc="messages between stages with several chunks, unless the run sets it",
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
            "a rank receives only the gradients of its share (ZeRO 1 and 2); off, all gradients "
            "are all-reduced, and it keeps its share of them"
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
        doc="elements of such a bucket for each rank that gradients are reduced over, if more",
    )
    context: str = word(
        *CONTEXTS,
        default="ring",
        doc="default of `context.algorithm`",
    )
    context_sums: Real = quantity(
        BYTES,
        default=0.0,
        doc="bytes per element in which the framework adds up what attention makes of one block of "
        "keys after another (`ring`, `all_gather`), and in which gradients of keys and values go "
        "round; 0 if attention is one kernel, or adds up by itself",
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
        doc="the algorithm of models with `sinks`, if it has one alone for them",
    )
    window_context: str | None = word(
        *CONTEXTS,
        default=None,
        doc=(
            "default of `context.algorithm` for models with a `window`, if their keys and values "
            "are not passed round in blocks"
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
        doc="attention kernel, if the device has it and the run sets none; `auto`, and where "
        "the device has none of the name: the usual one of the device",
    )
    enforced: bool = switch(
        default=True,
        doc=(
            "features that are not listed are rejected; off for measured runs whose version is a "
            "guess"
        ),
    )
    offers: tuple[Offer, ...] = children("offers", doc="features that it has or lacks")
