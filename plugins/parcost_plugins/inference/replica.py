"""One replica of a model as a separate study, described by the same plugins as in training.

The study does not train. It yields the parameters of a rank, the FLOPs of a token, and the groups
of ranks. It is placed like a job with these degrees.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from attrs import evolve

from parcost import Formula, Real, Study, attribute, formula, plain_of, record
from parcost.numeric import maximum, where
from parcost_plugins.physics.attention_mask import attended_tokens
from parcost_plugins.physics.clocks import clock, explain_held_share, held_share
from parcost_plugins.physics.partition import (
    Counts,
    LayerKind,
    ends_share_device,
    kinds,
    select_counts,
)
from parcost_plugins.vocabulary import (
    Cluster,
    Framework,
    KernelChoice,
    Layout,
    Precision,
    ScheduleChoice,
    Serving,
    Training,
)


@record(kw_only=True, eq=False)
class Replica:
    """A *serving* block, with a *study* of a job with the same degrees."""

    serving: Serving
    study: Study

    @classmethod
    def from_serving(cls, study: Study, serving: Serving) -> Replica:
        """Return the replica of *serving*."""
        return cls(serving=serving, study=_replica_study(study, serving))

    @property
    def ranks(self) -> Real:
        """Devices of one stage."""
        return self.serving.tp * self.serving.attention_replicas

    @property
    def devices(self) -> Real:
        """The number of devices of a replica: ranks of a stage x pipeline stages."""
        return self.ranks * self.serving.pp

    @property
    def peak(self) -> Real:
        """The FLOP/s that GEMMs reach on a device."""
        peak: Real = getattr(self.serving.device, self.serving.compute)
        return peak * self.matmul_efficiency

    @property
    def matmul_efficiency(self) -> Real:
        """The fraction of peak FLOP/s: from this block, the kernels, or the device."""
        serving, kernels = self.serving, self.study[KernelChoice]
        if serving.matmul_efficiency is not None:
            return serving.matmul_efficiency
        if kernels.gemm_efficiency is not None:
            return kernels.gemm_efficiency
        narrow = serving.compute in ("fp8", "fp4")
        name = f"{serving.compute}_matmul_efficiency" if narrow else "matmul_efficiency"
        best: Real = getattr(serving.device, name)
        held = held_share(serving.device, kernels, serving.compute)
        return best * kernels.shape_efficiency * held * clock(serving.device, kernels)

    @property
    def bandwidth(self) -> Real:
        """The memory bandwidth that a device reaches, in B/s."""
        return self.serving.device.memory_bandwidth * self.memory_efficiency

    @property
    def attention_rate(self) -> Real:
        """The FLOP/s that the attention core of a prompt reaches on a device, in 16 bits."""
        return plain_of(self.explain_attention_rate())

    def explain_attention_rate(self) -> Formula:
        """Return :attr:`attention_rate` with its formula.

        It comes from the device's attention kernel. If the spec states an efficiency of GEMMs, it
        also applies to attention. So does the efficiency of a device without attention kernels.
        """
        serving, kernels, training = self.serving, self.study[KernelChoice], self.study[Training]
        device, model, table = serving.device, serving.model, serving.device.attention
        kernel = None if table is None else table.find(kernels.attention or table.auto, "wide")
        if kernel is None and table is not None:
            kernel = table.find(table.auto, "wide")
        if serving.matmul_efficiency is not None or kernel is None or model.is_nominal:
            return self.explain_peak()
        wide = "bf16" if serving.compute in ("fp8", "fp4") else serving.compute
        rate = (attribute(device, wide), "FLOP/s")
        if kernels.attention_forward_efficiency is not None:
            own = attribute(kernels, "attention_forward_efficiency")
            return formula("P eta, eta of the peak in attention", P=rate, eta=own)
        return formula(
            "P e a c / (1 + f / n), e of the kernel for its heads, c of the clock without a power "
            "cap, f keys that cost as much as the fixed part",
            P=rate,
            e=kernel.efficiency((model.qk_dim + model.value_dim) / 2, backward=False),
            a=attribute(device, "attention_efficiency"),
            c=clock(device, kernels),
            f=kernel.fill(backward=False),
            n=maximum(attended_tokens(training, windowed=False), 1.0),
        )

    def explain_peak(self) -> Formula:
        """Return :attr:`peak` with its formula."""
        rate = attribute(self.serving.device, self.serving.compute)
        return formula(
            "P eta, eta of the peak in matrix products",
            P=(rate, "FLOP/s"),
            eta=self._explain_efficiency("matmul"),
        )

    def explain_bandwidth(self) -> Formula:
        """Return :attr:`bandwidth` with its formula."""
        rate = attribute(self.serving.device, "memory_bandwidth")
        return formula(
            "W eta, eta of the bandwidth of the memory",
            W=(rate, "B/s"),
            eta=self._explain_efficiency("memory"),
        )

    def _explain_efficiency(self, kind: str) -> Real | Formula:
        serving, kernels = self.serving, self.study[KernelChoice]
        name = f"{kind}_efficiency"
        if getattr(serving, name) is not None:
            return attribute(serving, name)
        chosen = "gemm_efficiency" if kind == "matmul" else name
        if getattr(kernels, chosen) is not None:
            return attribute(kernels, chosen)
        if kind == "memory":
            return attribute(serving.device, name)
        best = f"{serving.compute}_{name}" if serving.compute in ("fp8", "fp4") else name
        return formula(
            "e p s c, c of the clock without a power cap",
            e=attribute(serving.device, best),
            p=attribute(kernels, "shape_efficiency"),
            s=explain_held_share(serving.device, kernels, serving.compute),
            c=clock(serving.device, kernels),
        )

    @property
    def memory_efficiency(self) -> Real:
        """The fraction of memory bandwidth: from this block, the kernels, or the device."""
        for chosen in (self.serving.memory_efficiency, self.study[KernelChoice].memory_efficiency):
            if chosen is not None:
                return chosen
        return self.serving.device.memory_efficiency

    # --- the model --------------------------------------------------------------------

    @cached_property
    def dense(self) -> Real:
        """Parameters that every token uses."""
        return self._total(expert=False)

    @cached_property
    def expert(self) -> Real:
        """Parameters of all routed experts."""
        return self._total(expert=True)

    def _total(self, *, expert: bool) -> Real:
        found: Real = 0.0
        for held in self.study.parameters:
            if held.expert == expert:
                found = found + held.total * sum(held.count)
        return found

    @property
    def read_dense(self) -> Real:
        """Dense parameters that a rank reads in one pass through all stages, including replicated
        ones.

        It reads one row per token of the embedding; a tied head reads the whole table.
        """
        model, tables = self.serving.model, self._parameters(expert=False, place="before")
        if model.tied and self.study.query(ends_share_device):
            tables = model.positions * model.hidden
        return self._parameters(expert=False) - tables

    @property
    def read_expert(self) -> Real:
        """Parameters of all routed experts that a rank has in all stages."""
        return self._parameters(expert=True)

    def _parameters(self, *, expert: bool, place: str = "") -> Real:
        return sum(
            (
                held.elements * sum(held.count)
                for held in self.study.parameters
                if held.expert == expert and place in ("", held.place)
            ),
            0.0,
        )

    @cached_property
    def device_parameters(self) -> Real:
        """The maximum of parameters on a device, including copies that ranks share."""
        stages = range(self.serving.pp)
        found = self.study.parameters
        sums = [sum((held.elements * held.count[s] for held in found), 0.0) for s in stages]
        most = sums[0]
        for other in sums[1:]:
            most = maximum(most, other)
        return most

    def visited_share(self, tokens: Real) -> Real:
        """Return the expected fraction of experts that *tokens* per group use, with uniform
        routing.
        """
        model = self.serving.model
        if not model.experts:
            return 1.0
        missed = maximum(1.0 - model.top_k / model.experts, 0.0)
        return 1.0 - missed ** (tokens * self.serving.attention_replicas)

    @cached_property
    def flops(self) -> Real:
        """FLOPs of the GEMMs of one token, including the head (2 G)."""
        return self._flops("matmul")

    @property
    def head_flops(self) -> Real:
        """FLOPs of the logits of one token; 0 for a model of stated size, whose head is unknown."""
        model = self.serving.model
        return 0.0 if model.is_nominal else 2.0 * model.hidden * model.vocabulary

    @cached_property
    def attention_flops(self) -> Real:
        """FLOPs of one token of the prompt in the attention core, causal, on average (A)."""
        return self._flops("attention")

    def _flops(self, kind: str) -> Real:
        return sum((f.per_token for f in self.study.flops if f.kind == kind), 0.0)

    @cached_property
    def all_reduces(self) -> Real:
        """The number of all-reduces over the tensor-parallel ranks for a token in all layers.

        There is one after attention and one after a dense MLP, or one for both with a parallel
        residual. Shared experts need one more if the routed experts are on other ranks.
        """
        model = self.serving.model
        if model.parallel_residual:
            return float(model.layers)
        shared = self.expert_layers if model.shared_experts else 0.0
        apart = where(self.serving.ep > 1, shared, 0.0)
        return 2.0 * model.layers - self.expert_layers + apart

    @cached_property
    def expert_layers(self) -> float:
        """Layers with experts."""
        return (
            float(sum(select_counts(self._kinds, moe=True))) if self.serving.model.experts else 0.0
        )

    @cached_property
    def windowed_layers(self) -> float:
        """Layers with windowed attention."""
        return (
            float(sum(select_counts(self._kinds, windowed=True)))
            if self.serving.model.window
            else 0.0
        )

    @cached_property
    def _kinds(self) -> Mapping[LayerKind, Counts]:
        return kinds(self.study)


def _replica_study(study: Study, serving: Serving) -> Study:
    """Return a study of one replica: one sequence of the prompt's length, without training."""
    model: Any = serving.model
    dealt: Any = study[ScheduleChoice]
    ranks = serving.tp * serving.attention_replicas
    if model.prediction_layers:  # they serve to train
        model = evolve(model, prediction_layers=0)
    precision = Precision(
        compute=serving.compute,
        weights=serving.weights,
        gradients=0.0,
        optimizer=0.0,
        activation=serving.activation,
        update_traffic=0.0,
    )
    blocks: dict[type, tuple[object, ...]] = {
        Layout: (
            Layout(
                tp=serving.tp,
                pp=serving.pp,
                dp=serving.attention_replicas,
                ep=serving.ep,
                etp=ranks / serving.ep if model.experts else 1.0,
            ),
        ),
        ScheduleChoice: (
            evolve(
                dealt,
                chunks=1,
                stages=(),
                assignment="even",
                count_embedding=False,
                count_head=False,
            ),
        ),
        Training: (
            Training(
                model=model,
                precision=precision,
                framework=Framework(offers=(), cuda_graphs="iteration"),
                sequence=serving.prompt,
                global_batch=serving.attention_replicas,
                micro_batches=1.0,
            ),
        ),
    }
    if serving.fabric is not None:
        devices = ranks * serving.pp
        blocks[Cluster] = (Cluster(device=serving.device, devices=devices, fabric=serving.fabric),)
    return study.with_blocks(blocks)
