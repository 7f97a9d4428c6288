"""The training framework: what its host issues, and what its code does at a version.

A value of a framework has its source, a file of its code or documentation at a version. What a
run chose otherwise stands in the block that it belongs to, whose attribute is left out where
the framework decides.
"""

from __future__ import annotations

from parcost import BYTES, SECONDS, Real, block, fraction, integer, quantity, string, switch, word
from parcost_plugins.vocabulary.attention import FUSED_KERNELS

#: How layers are dealt to stages that do not divide them.
ASSIGNMENTS = ("even", "front", "fill", "ends")

#: What the cross entropy keeps of its logits.
LOSSES = ("eager", "softmax", "logits", "gradient")

#: How the host issues the operators of a layer.
MODES = ("eager", "compiled")
#: What a CUDA graph replays in place of kernels that are issued one by one.
CUDA_GRAPHS = ("none", "layer", "iteration")


@block("framework", label="required")
class Framework:
    """A training framework, at a version."""

    version: str = string(default="", doc="release or commit that the values were read in")
    mode: str = word(*MODES, default="eager", doc="how layers run where a run does not say it")
    cuda_graphs: str = word(
        *CUDA_GRAPHS,
        default="none",
        doc="what is replayed as a graph where a run does not say it",
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
        doc="of the host for one kernel of a compiled layer; it compiles no layers where this is "
        "left out",
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
    update_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="issued once per step for the update of a layer's parameters, where each tensor has "
        "kernels of its own",
    )
    routing_kernels: Real = integer(
        default=0,
        minimum=0,
        doc="issued for the forward pass of a layer with experts beyond those of a dense one; "
        "twice as many for the backward pass",
    )
    grouped_experts: bool = switch(
        default=True,
        doc="the experts of a rank run as one product where a run does not say otherwise, and not "
        "in a loop",
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
        " a product of complex numbers in fp32 between casts",
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
        doc="what the cross entropy keeps where a run says nothing: `eager`, three tensors in fp32 "
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
        doc="layers of the stages where a run says nothing, as of `schedule.assignment`",
    )
    attention: str = word(
        "auto",
        "unfused",
        *FUSED_KERNELS,
        default="auto",
        doc="attention kernel where a run says nothing and the device has it; `auto`, and where "
        "the device has none of the name: the usual one of the device",
    )
