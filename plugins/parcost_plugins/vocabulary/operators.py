"""Records exchanged between model plugins and cost plugins: operators, parameters, FLOPs.

All sizes are of one rank and one micro-batch; ``count`` is the occurrences per micro-batch on each
virtual stage, as in ``parcost.Work``.

Operators with a ``host`` name can hide communication of that name in the same pass. Tensor and
context parallelism use the names below. A layer has one pair of column-parallel and row-parallel
GEMMs for each of these hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

from parcost import FlopCount, Operator, ParameterGroup, Pass, Real, record

if TYPE_CHECKING:
    pass

#: The products of attention that are split by columns and by rows.
ATTENTION_COLUMNS, ATTENTION_ROWS = "attention, by columns", "attention, by rows"
#: The same of the MLP.
MLP_COLUMNS, MLP_ROWS = "MLP, by columns", "MLP, by rows"
#: The same of the shared experts, where the exchange of routed tokens hides under them.
SHARED_EXPERTS, SHARED_ROWS = "shared experts", "shared experts, by rows"
#: The product of the head, which is split by columns.
HEAD_COLUMNS = "head, by columns"
#: The products with A and with B of adapters beside column-parallel and row-parallel matrices.
ADAPTER_COLUMNS = ("adapter by columns, A", "adapter by columns, B")
SHARED_ADAPTER_COLUMNS = ("adapter of shared experts by columns, A", ADAPTER_COLUMNS[1])
ADAPTER_ROWS = ("adapter by rows, A", "adapter by rows, B")
#: The tag of memory that stands before the first layer or behind the last, and in none.
ENDS = "ends"
#: Where keys and values are needed: layer by layer, and layers with a window have less to do.
ATTENTION_CORE, WINDOWED_CORE = "attention core", "attention core in a window"
#: Products of the fused core in each pass, as deep or as wide as a query head, and as a value head.
#: Backward has two for the gradient of each, and makes the probabilities again, as it kept none.
CORE_PRODUCTS: Mapping[Pass, tuple[int, int]] = {"F": (1, 1), "R": (1, 1), "B": (3, 2)}


@record(kw_only=True, eq=False)
class Gemm(Operator):
    """A GEMM *m* x *k* times *k* x *n*, or *batch* independent ones in one kernel. *role*
    is its place in the model, which determines whether it runs in low precision; a *wide* GEMM
    never does.

    If the sizes are those of the busiest rank, *load* is its work / mean over all ranks.
    """

    name: str
    m: Real
    n: Real
    k: Real
    pass_: Pass
    count: Sequence[float]
    batch: Real = 1.0
    host: str = ""
    role: Literal["linear", "expert", "head", "router", "attention", "adapter"] = "linear"
    wide: bool = False
    load: Real = 1.0
    source: str = ""

    @property
    def flops(self) -> Real:
        """The FLOPs: 2 m n k per product of the batch."""
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def mean_flops(self) -> Real:
        """The FLOPs, as a mean over the ranks."""
        return self.flops / self.load


@record(kw_only=True, eq=False)
class FusedAttention(Operator):
    """Fused attention in one kernel; *flops* are the executed FLOPs.

    *windowed* is true for a sliding window. In low precision *operands* are cast before it: the
    elements of queries, keys and values, or of the gradient of the output.
    """

    name: str
    flops: Real
    pass_: Pass
    count: Sequence[float]
    wide: bool = False
    windowed: bool = False
    operands: Real = 0.0
    host: str = ATTENTION_CORE
    source: str = ""

    @property
    def mean_flops(self) -> Real:
        """The FLOPs, as a mean over the ranks; they equal :attr:`flops`."""
        return self.flops


#: Memory access of streaming operators. Each kind has an efficiency relative to
#: `plain` kernels: `kernels { eager_norm_efficiency = ... }`.
StreamKind = Literal[
    "plain",
    "norm_gradient",
    "eager_norm",
    "eager_norm_gradient",
    "compiled_norm_gradient",
    "composite",
    "complex",
    "halves",
    "eager_rotary",
    "eager_softmax",
    "parallel_loss",
    "permuted",
]
STREAM_KINDS: tuple[StreamKind, ...] = get_args(StreamKind)

#: Kernels limited by work per element rather than by memory traffic: they compute
#: the place of each element, use atomic additions, or multiply small blocks, where an
#: element is a FLOP. Each kind has a time per element on a multiprocessor:
#: `kernels { strided_time = ... }`.
StepKind = Literal[
    "",
    "traced",
    "traced_gradient",
    "strided",
    "scattered",
    "indexed",
    "cast",
    "delta",
    "delta_gradient",
]
STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)


@record(kw_only=True, eq=False)
class Stream(Operator):
    """A memory-bound operator that moves *bytes_* in total, in *kernels* kernels.

    Its kernels compute *steps* elements; each *step_kind* has a time per element. *flops* are those
    of GEMMs inside it: norms, softmax and activations count as zero.
    """

    name: str
    bytes_: Real
    pass_: Pass
    count: Sequence[float]
    kernels: Real = 1.0
    kind: StreamKind = "plain"
    steps: Real = 0.0
    step_kind: StepKind = ""
    flops: Real = 0.0
    host: str = ""
    source: str = ""

    @property
    def mean_flops(self) -> Real:
        """The FLOPs, as a mean over the ranks; they equal :attr:`flops`."""
        return self.flops


@record(kw_only=True, eq=False)
class Parameters(ParameterGroup):
    """Parameters held on a virtual stage.

    *elements* is the number on one rank, padding and copies included; *total* the number over the
    tensor-parallel group, without them. Both are multiplied by *count*. *replicated*: every
    tensor-parallel rank holds all of them. *place* is their place in the model: before the first
    layer, in every layer, or after the last. *expert* parameters are split over expert-parallel
    ranks: their gradients are reduced over the group ``edp``, all others over ``dp_cp``. *linear*
    parameters are matrices of the dense linear layers. The parameters of an *adapter* are trained,
    while others are frozen. *matrices* is the number of weight matrices on one rank, 0 for biases
    and norms.
    """

    name: str
    elements: Real
    total: Real
    count: Sequence[float]
    replicated: bool = False
    place: Literal["before", "layer", "after"] = "layer"
    expert: bool = False
    linear: bool = False
    adapter: bool = False
    matrices: Real = 1.0
    source: str = ""

    @property
    def in_linear_layer(self) -> bool:
        """Whether they belong to a linear layer or an expert, including biases.

        A recipe may keep these in low precision.
        """
        held = self.place == "layer" and not self.adapter
        return held and (self.linear or not self.replicated)


@record(kw_only=True, eq=False)
class ModelFlops(FlopCount):
    """FLOPs of the forward pass per token by definition, for the whole model.

    *kind* ``matmul`` is 2 FLOPs per matrix parameter; ``attention`` is masked attention. Training
    counts as three times the forward pass, or twice for frozen matrices. The matrices of an
    *adapter* are not frozen.
    """

    name: str
    per_token: Real
    kind: Literal["matmul", "attention"]
    adapter: bool = False
    source: str = ""
