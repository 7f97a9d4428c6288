"""Recomputed parts, besides ``training.recompute``."""

from __future__ import annotations

from parcost import block, integer, switch

#: What ``alternate`` keeps: products are q, k, v, output, gate, up, down, or up, down alone.
_ALTERNATE = {
    True: frozenset({"queries", "values", "core", "gate", "down"}),
    False: frozenset({"queries", "values", "core", "up"}),
}


@block(
    "recompute",
    label="none",
    used_with={
        ("norms", "activation", "up_projection"): "layers that are not fully recomputed",
        ("mlp",): "layers with a dense MLP that are not fully recomputed",
        ("moe",): "MoE layers that are not fully recomputed",
        (
            "keep_qkv",
            "keep_core",
            "keep_output",
            "alternate",
            "stops_early",
        ): "`training.recompute = full`",
        ("keep_up", "keep_down"): "`training.recompute = full`, and layers with a dense MLP",
    },
)
class Recompute:
    """Parts of a layer that are recomputed in backward, and the selection of whole layers.

    The switches add to ``training { recompute = ... }``; ``every``, ``first`` and ``layers`` select
    the layers of ``recompute = full``, and ``keep_*`` excludes parts.
    """

    norms: bool = switch(default=False, doc="outputs of the layer norms")
    activation: bool = switch(default=False, doc="outputs of SwiGLU, GeGLU or GELU")
    up_projection: bool = switch(
        default=False, doc="MLA: queries, keys and values, from their compressed form"
    )
    mlp: bool = switch(default=False, doc="whole dense MLPs, from their input")
    moe: bool = switch(
        default=False, doc="whole MoE layers, from their input, including the exchange"
    )
    keep_qkv: bool = switch(
        default=False,
        doc=(
            "fully recomputed layers save queries, keys and values, and do not recompute their "
            "product"
        ),
    )
    keep_core: bool = switch(
        default=False,
        doc="fully recomputed layers save the output of the fused attention core",
    )
    keep_output: bool = switch(
        default=False,
        doc=(
            "fully recomputed layers save the output of attention that is added to "
            "the residual stream"
        ),
    )
    keep_up: bool = switch(
        default=False,
        doc="fully recomputed layers save the input of the activation of a dense MLP",
    )
    keep_down: bool = switch(
        default=False,
        doc=(
            "fully recomputed layers save the output of the dense MLP that is "
            "added to the residual stream"
        ),
    )
    alternate: bool = switch(
        default=False,
        doc=(
            "fully recomputed layers save the fused core and every second matrix product in the "
            "order of their calls: queries, values, gate and down, as the per-operator policy of "
            "torchtitan"
        ),
    )
    stops_early: bool | None = switch(
        default=None,
        doc=(
            "recomputation of a dense layer ends with the last tensor that backward reads, as "
            "non-reentrant checkpoints of PyTorch do; by default as in the framework"
        ),
    )
    every: int = integer(
        default=1,
        structural=True,
        doc="interval of recomputed layers: every n-th layer is recomputed as a whole",
    )
    first: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc=(
            "number of layers before the first one that `every` selects; 0 in OLMo, n - 1 in "
            "torchtitan"
        ),
    )
    layers: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="number of fully recomputed layers at the start of each virtual stage; 0: all layers",
    )

    def keeps(self, part: str, *, gated: bool) -> bool:
        """Return whether fully recomputed layers keep this *part*."""
        of = {"queries": "qkv", "keys": "qkv", "values": "qkv", "gate": "up"}.get(part, part)
        chosen: bool = getattr(self, f"keep_{of}")
        return chosen or (self.alternate and part in _ALTERNATE[gated])
