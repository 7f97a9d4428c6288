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
#: Where products of heads run that are no multiple of 16 bytes.
MISALIGNED_HEADS = ("tensor", "vector")
#: What a tensor-parallel rank sends to the next stage, where all have the whole residual stream.
MESSAGES = ("whole", "scattered", "partitioned")
#: Algorithms of context parallelism.
CONTEXTS = ("ring", "all_gather", "ulysses", "hybrid")
#: When gradients are reduced under ZeRO 2 and 3.
ACCUMULATIONS = ("shard", "whole")


@block("offers", inside="framework", label="required")
class Offer:
    """The values of one attribute that a framework supports; rules reject other values.

    A framework without an offer for an attribute supports all its values.
    """

    attribute: str = string(doc="which one, by block and name, as in `schedule.kind`")
    values: str = string(
        default="",
        doc="that the framework has, with commas between them, as in `one_f_one_b, interleaved`; "
        "left empty, the statement of an extended framework is withdrawn",
    )
    beyond: str = word(
        "any",
        "tp",
        "cp",
        "pp",
        "dp",
        "ep",
        default="any",
        doc="it is about layouts in which this degree is above 1; about all with `any`",
    )
    since: str = string(default="", doc="what changed at which version, for runs of another one")


@block("framework", label="required")
class Framework:
    """A training framework, at a version."""

    version: str = string(default="", doc="release or commit that the values were read in")
    first_year: int | None = integer(
        default=None, structural=True, doc="of the releases that the values describe"
    )
    last_year: int | None = integer(
        default=None, structural=True, doc="of them; `validate` warns of younger runs"
    )
    checked: str = string(default="", doc="a measured run of that time that was compared with it")
    mode: str = word(*MODES, default="eager", doc="how layers run unless the run sets it")
    cuda_graphs: str = word(
        *CUDA_GRAPHS,
        default="none",
        doc="what is replayed as a graph unless the run sets it",
    )
    issue: Real = quantity(
        SECONDS,
        default=0.0,
        doc="of the host for one kernel, with what Python, autograd and the framework do around it",
    )
    graph_issue: Real | None = quantity(
        SECONDS,
        default=None,
        doc="of the host for one replayed graph; it captures none where this is left out",
    )
    compiled_issue: Real | None = quantity(
        SECONDS,
        default=None,
        doc="of the host for one kernel of a compiled layer; without it the framework compiles no "
        "layers",
    )
    compiled_call: Real = quantity(
        SECONDS, default=0.0, doc="of the host for one call of a compiled layer: its guards"
    )
    compiled_kernels: Real = fraction(
        default=1.0, doc="of the kernels of an eager layer, left in a compiled one"
    )
    forward_kernels: Real = integer(
        default=0, minimum=0, doc="issued for the forward pass of a dense layer"
    )
    backward_kernels: Real = integer(
        default=0, minimum=0, doc="issued for the backward pass of a dense layer"
    )
    weight_kernels: Real = integer(
        default=0, minimum=0, doc="of these, those that make gradients of weights"
    )
    core_kernels: Real = integer(
        default=1,
        minimum=0,
        doc="of those of the forward pass, the attention core's where it is not fused",
    )
    outer_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="issued for the forward pass of a micro-batch at either end of the model: the "
        "embedding, or head and loss; twice as many for the backward pass",
    )
    sharded_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="issued to gather or reduce the sharded parameters of a layer once (ZeRO-3)",
    )
    list_issue: Real = quantity(
        SECONDS,
        default=0.0,
        doc="of the host for each rank in a collective over one sharded tensor (ZeRO-3), which "
        "takes a list with a tensor for each rank; the device waits, and no gather overlaps",
    )
    whole_below: Real = integer(
        default=0,
        minimum=0,
        doc="elements of a tensor that ZeRO-3 shards: smaller ones stay whole on every rank, and "
        "have no part in `list_issue`",
    )
    update_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="issued once per step for the update of a layer's parameters, where each tensor has "
        "kernels of its own",
    )
    routing_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="issued for the forward pass of a layer with experts beyond those of a dense one",
    )
    routing_backward_kernels: Real = integer(
        default="2 * routing_kernels", minimum=0, doc="the same, for the backward pass"
    )
    grouped_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="issued for the forward pass of one expert where the experts of a rank run as one "
        "product, but that product's own; twice as many for the backward pass",
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
        doc="issued for the forward pass of one expert of a loop; twice as many for the backward "
        "pass",
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
        doc="of gated MLPs: gate, activation and product in one kernel, or activation and product "
        "apart, of tensors of their own or of halves of one",
    )
    rotary: str = word(
        "fused",
        "compiled",
        "eager",
        "complex",
        default="fused",
        doc="rotary embeddings: a kernel for queries and one for keys, an operator for each step, "
        "or a product of complex numbers in fp32 between casts",
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
        doc="of tokens to their experts unless the run sets it, as of `routing.dispatcher`",
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
    gather_copy: Real = quantity(
        BYTES,
        default=0.0,
        doc="under ZeRO 3: memory traffic of copying a gathered parameter out of its buffer",
    )
    reduction_copy: Real = quantity(
        BYTES,
        default=0.0,
        doc="under ZeRO 3: memory traffic of copying a gradient into the buffer that is reduced, "
        "and of dividing it there",
    )
    loss: str = word(
        *LOSSES,
        default="softmax",
        doc="what the cross entropy keeps unless the run sets it: `eager`, three tensors in fp32 "
        "at once, op by op; an fp32 `softmax`; `logits` as they are, whose gradient a fused kernel "
        "makes in backward; or that `gradient`, in their place",
    )
    router_weights: str = word(
        "input",
        "activation",
        "output",
        default="activation",
        doc="which tensor of an expert a token's routing weight is multiplied with; that tensor "
        "is kept for backward, but for the activation, which is made again from what is kept",
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
        doc="of a compiled layer: outputs of norms and activations are not kept, as backward's "
        "own kernels make them again",
    )
    keeps_gathers: bool = switch(
        default=False,
        doc="under sequence parallelism: inputs of linear layers are kept as they were gathered, "
        "and not gathered again in backward",
    )
    keeps_stage_outputs: bool = switch(
        default=False,
        doc="of a pipeline: what a stage has sent on is kept until its backward pass, which reads "
        "its graph alone",
    )
    reduces_by_matrix: bool = switch(
        default=False,
        doc="under ZeRO 3: gradients are reduced as each product makes them, so that those of one "
        "matrix are whole at a time; otherwise those of a layer, and their copy for the wire",
    )
    gradient_staging: Real = integer(
        default=0,
        minimum=0,
        doc="elements of a buffer that gradients are copied into to be reduced, without ZeRO 3",
    )
    fragmentation: Real = fraction(
        default=0.0, doc="of the activations, lost between blocks of its allocator"
    )
    assignment: str = word(
        *ASSIGNMENTS,
        default="even",
        doc="layers of the stages unless the run sets it, as of `schedule.assignment`",
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
    tensor_overlap: str = word(
        *TENSOR_OVERLAPS,
        default="off",
        doc="what tensor-parallel collectives hide under unless the run sets it, as of "
        "`overlap.tensor`",
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
        doc="what a tensor-parallel rank sends to the next stage unless the run sets it, as of "
        "`schedule.messages`",
    )
    accumulate: str = word(
        *ACCUMULATIONS,
        default="shard",
        doc="when gradients are reduced under ZeRO 2 and 3 unless the run sets it, as of "
        "`sharding.accumulate`: in every micro-batch (`shard`), or once per step (`whole`)",
    )
    pipelined_accumulate: str | None = word(
        *ACCUMULATIONS,
        default=None,
        doc="the same with several stages; as without where it is left out",
    )
    reshard: bool = switch(
        default=True,
        doc="under ZeRO 3: parameters are dropped after forward unless the run sets it",
    )
    pipelined_reshard: bool | None = switch(
        default=None, doc="the same with several stages; as without where it is left out"
    )
    reduce_scatter: bool = switch(
        default=True,
        doc="under ZeRO 1 and 2 a rank is sent the gradients of its share alone; off, all "
        "gradients are all-reduced, and it keeps its share of them",
    )
    context: str = word(
        *CONTEXTS,
        default="ring",
        doc="how context-parallel ranks get to all keys unless the run sets it, as of "
        "`context.algorithm`",
    )
    misaligned_heads: str = word(
        *MISALIGNED_HEADS,
        default="tensor",
        doc="products of a core that is not fused whose heads are no multiple of 16 bytes, unless "
        "the run sets it, as of `kernels.misaligned_heads`",
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
        doc="what it does not have is rejected; off where a run took place and its version is a "
        "guess",
    )
    offers: tuple[Offer, ...] = children("offers", doc="features that it has or lacks")
