"""The training framework: what its host issues, and what its code does at a version.

A value of a framework has its source, a file of its code or documentation at a version. What a
run chose otherwise stands in the block that it belongs to, whose attribute is left out where
the framework decides.
"""

from __future__ import annotations

from parcost import SECONDS, Real, block, integer, quantity, string, word
from parcost_plugins.vocabulary.attention import FUSED_KERNELS

#: What a CUDA graph replays in place of kernels issued one by one.
CUDA_GRAPHS = ("none", "layer", "iteration")


@block("framework", label="required")
class Framework:
    """A training framework, at a version."""

    version: str = string(default="", doc="release or commit that the values were read in")
    issue: Real = quantity(
        SECONDS,
        default=0.0,
        doc="of the host for one kernel, with what Python, autograd and the framework do around it",
    )
    forward_kernels: Real = integer(
        default=0, minimum=0, doc="issued for the forward pass of a dense layer"
    )
    backward_kernels: Real = integer(
        default=0, minimum=0, doc="issued for the backward pass of a dense layer"
    )
    cuda_graphs: str = word(
        *CUDA_GRAPHS,
        default="none",
        doc="what is captured where a run says nothing: no kernels, those of a layer and pass, or "
        "those of all forward and backward passes of a step",
    )
    attention: str = word(
        "auto",
        "unfused",
        *FUSED_KERNELS,
        default="auto",
        doc="attention kernel where a run says nothing and the device has it; `auto`, and where "
        "the device has none of the name: the usual one of the device",
    )
