"""The training framework: what its host issues, and what its code does at a version.

A value of a framework has its source, a file of its code or documentation at a version. What a
run chose otherwise stands in the block that it belongs to, whose attribute is left out where
the framework decides.
"""

from __future__ import annotations

from parcost import SECONDS, Real, block, fraction, integer, quantity, string, switch, word

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
    graph_issue: Real = quantity(SECONDS, default=0.0, doc="of the host for one replayed graph")
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
