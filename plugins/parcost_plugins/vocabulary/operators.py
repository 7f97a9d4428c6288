"""What model plugins offer and cost plugins price: operators, parameters, FLOPs.

All sizes are of one rank and one micro-batch; ``count`` is the occurrences per
micro-batch on each virtual stage, as in ``parcost.Work``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from parcost import Pass, Real


@frozen(kw_only=True, eq=False)
class Gemm:
    """A matrix product: *m* x *k* times *k* x *n*, 2 m n k FLOPs."""

    name: str
    m: Real
    n: Real
    k: Real
    pass_: Pass
    count: Sequence[float]
    host: str = ""
    source: str = ""


@frozen(kw_only=True, eq=False)
class FusedAttention:
    """The attention core in one kernel; *flops* are those that it executes."""

    name: str
    flops: Real
    pass_: Pass
    count: Sequence[float]
    source: str = ""


@frozen(kw_only=True, eq=False)
class Stream:
    """A memory-bound operator that reads and writes *bytes_* in all."""

    name: str
    bytes_: Real
    pass_: Pass
    count: Sequence[float]
    source: str = ""


@frozen(kw_only=True, eq=False)
class Parameters:
    """Parameters held on a virtual stage.

    *elements* on one rank, *total* over the tensor-parallel group without copies.
    Both times *count*. *replicated* says that every tensor-parallel rank holds all.
    """

    name: str
    elements: Real
    total: Real
    count: Sequence[float]
    replicated: bool = False
    source: str = ""


@frozen(kw_only=True, eq=False)
class ModelFlops:
    """FLOPs of the forward pass per token by definition, for the whole model.

    *kind* ``matmul`` is 2 FLOPs per matrix parameter; ``attention`` is the core,
    causal. Training counts three times the forward pass.
    """

    name: str
    per_token: Real
    kind: Literal["matmul", "attention"]
    source: str = ""
