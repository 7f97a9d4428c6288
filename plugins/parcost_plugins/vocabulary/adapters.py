"""Adapters on frozen weights: LoRA and QLoRA.

Without the block, all parameters are trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import BYTES, Real, block, integer, quantity, reference, switch, word

if TYPE_CHECKING:
    pass

#: The matrices of a layer that may have an adapter; the head is beside them.
LAYER_TARGETS = ("query", "key", "value", "output", "gate", "up", "down")


@block("quantization", label="required")
class Quantization:
    """The storage of frozen matrices: blocks of elements that share a scale."""

    element: Real = quantity(BYTES, positive=True, doc="bytes of one element, without scales")
    scale: Real = quantity(BYTES, doc="bytes of the scale of a block")
    scale_block: Real = integer(doc="elements that share a scale")
    outer_scale: Real = quantity(
        BYTES, default=0.0, doc="bytes of the scale of a group of scales (double quantization)"
    )
    outer_block: Real = integer(default=1, doc="scales that share an outer scale")
    kernels: Real = integer(
        default=1, doc="number of kernels that dequantize one matrix for a matrix product"
    )
    shards_scales: bool = switch(
        default=True,
        doc=(
            "ZeRO 3 shards and gathers scales with the elements; otherwise every rank holds all "
            "scales"
        ),
    )

    @property
    def scales(self) -> Real:
        """Bytes per element of the scales."""
        return (self.scale + self.outer_scale / self.outer_block) / self.scale_block

    @property
    def bytes_(self) -> Real:
        """Bytes per element, including its share of the scales."""
        return self.element + self.scales

    @property
    def shard_bytes(self) -> Real:
        """Bytes of an element that ZeRO 3 shards."""
        return self.bytes_ if self.shards_scales else self.element


@block(
    "adapters",
    label="none",
    used_with={
        ("split",): "`layout.tp` above 1",
        ("all_to_all", "regather"): "`split = both`, `layout.tp` above 1 and sequence parallelism",
        ("experts", "expert_rank"): "a mixture of experts, and `gate`, `up` or `down`",
        ("shared_sum",): "`experts = shared`, and `layout.ep` above 1",
    },
)
class Adapters:
    """LoRA: two low-rank matrices per target are trained, and the model is frozen.

    The recipe of the job (`precision`) applies to the adapters. In an MoE model, `gate`, `up` and
    `down` also apply to routed and shared experts.
    """

    rank: Real = integer(doc="rank of an adapter (r)")
    query: bool = switch(default=True, doc="the query projection has an adapter")
    key: bool = switch(default=True, doc="the key projection has an adapter")
    value: bool = switch(default=True, doc="the value projection has an adapter")
    output: bool = switch(default=True, doc="the output projection of attention has an adapter")
    gate: bool = switch(default=True, doc="the gate projection of a gated MLP has an adapter")
    up: bool = switch(default=True, doc="the up projection of an MLP has an adapter")
    down: bool = switch(default=True, doc="the down projection of an MLP has an adapter")
    head: bool = switch(default=False, doc="the output head has an adapter")
    fused: bool = switch(
        default=False,
        doc="query, key and value share one adapter, and so do gate and up, as in frameworks that "
        "fuse these projections",
    )
    dropout: bool = switch(default=False, doc="dropout on the input of every adapter")
    weights: Real = quantity(
        BYTES,
        positive=True,
        default="training.precision.activation",
        doc="bytes of a frozen parameter that is not quantized",
    )
    narrow: bool = switch(
        default=False,
        doc="frozen matrices of linear layers are parameters in the narrow type of the recipe, "
        "as Transformer Engine's `fp8_model_init` makes them: no step casts or transposes them",
    )
    split: str | None = word(
        "both",
        "one",
        default=None,
        doc="split of an adapter by tensor parallelism: both matrices, as Megatron-Bridge and NeMo "
        "do, which gather the inner activation and the outputs of row-parallel layers; or only the "
        "one next to the split side of the frozen matrix, as PEFT and ms-swift do, with the other "
        "on every rank",
    )
    all_to_all: bool = switch(
        default=False,
        doc=(
            "an all-to-all in place of the all-gather of outputs next to row-parallel matrices "
            "(sequence parallelism)"
        ),
    )
    regather: bool = switch(
        default=False,
        doc="inputs of adapters next to column-parallel matrices are saved as shards, and gathered "
        "again in backward; tools do not do so with full recomputation or CUDA graphs",
    )
    experts: str | None = word(
        "shared",
        "each",
        default=None,
        doc=(
            "adapters of routed experts: one for all experts (`shared`), whose gradient is summed "
            "over the expert-parallel ranks, as in Megatron-Bridge; or one for each expert (`each`)"
        ),
    )
    shared_sum: str = word(
        "step",
        "micro_batch",
        default="step",
        doc="moments at which the gradient of a shared adapter is summed over the expert-parallel "
        "ranks: once per step, or in each backward pass, one matrix after another, as "
        "Megatron-Bridge 0.6 does",
    )
    expert_rank: Real = integer(
        default="adapters.rank", doc="rank of the adapters of routed experts"
    )
    cast_inputs: bool = switch(
        default=True,
        doc=(
            "inputs are cast to the wider type of the adapters' matrices, and outputs back, as "
            "PEFT does if the base is not quantized"
        ),
    )
    base: Quantization | None = reference(
        "quantization",
        default=None,
        doc="storage of the frozen matrices of layers, dequantized for each product (QLoRA)",
    )

    def has(self, *targets: str) -> bool:
        """Return whether one of the *targets* has an adapter."""
        return any(getattr(self, target) for target in targets)

    def groups(self, *, gated: bool) -> tuple[tuple[str, ...], ...]:
        """Return the targets in a layer, grouped by adapter, attention first.

        An adapter has one target, or several if it is *fused*.
        """
        found: list[tuple[str, ...]] = []
        for alike in (("query", "key", "value"), ("output",), ("gate", "up"), ("down",)):
            here = tuple(t for t in alike if self.has(t) and (gated or t != "gate"))
            found += [here] if self.fused and here else [(target,) for target in here]
        return tuple(found)
