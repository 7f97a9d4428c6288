"""The gradients of an adapter that all routed experts share.

Every expert-parallel rank has a copy, and computes its gradient for the tokens of its own experts.
Replicas of the experts reduce it like the gradient of an expert. The expert-parallel ranks sum it
once per step, or in each micro-batch without overlap: one message for A, one for B.

Source: Megatron-Bridge, peft/utils.py: allreduce_expert_parallel_replicated_grads; in release 0.6
_register_shared_expert_grad_sync_hooks.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Study, Work, formula, hookimpl, link_resources
from parcost_plugins.physics.stage_parameters import trained_kinds
from parcost_plugins.physics.sums import reduction_algorithm
from parcost_plugins.vocabulary import (
    Adapters,
    CollectiveChoice,
    Layout,
    Parameters,
    Training,
)
from parcost_plugins.vocabulary.causes import EXPERT


@hookimpl
def terms(study: Study) -> Iterator[Once | Work]:
    """Estimate the sum over the expert-parallel ranks, for each kind of stage or each adapter."""
    adapters, ep = study.get(Adapters), study[Layout].ep
    if adapters is None or not study[Training].model.experts or (isinstance(ep, float) and ep == 1):
        return
    if adapters.experts != "shared":
        return
    group, size = study.group("ep"), study[Training].precision.reduction
    algorithm = reduction_algorithm(study, study[CollectiveChoice].data)
    if adapters.shared_sum == "micro_batch":
        yield from _micro_batch_sums(study, algorithm)
        return
    for kind in trained_kinds(study):
        if not kind.expert:
            continue
        n = formula("psi g", psi=kind.elements, g=(size, "B"))
        call = study.collective("all_reduce", n, "ep", algorithm)
        yield Once(
            name=kind.label("shared adapter all-reduce"),
            cause=EXPERT,
            seconds=call.formula,
            when="end",
            count=kind.count,
            bytes_=n.value,
            **link_resources(group.flat),
        )


def _micro_batch_sums(study: Study, algorithm: str) -> Iterator[Work]:
    """Yield the sums of a micro-batch, for each adapter that experts share."""
    size = study[Training].precision.activation
    for held in study.parameters:
        if not (isinstance(held, Parameters) and held.adapter and held.expert):
            continue
        n = formula("psi e / 2, of one of two matrices", psi=held.elements, e=(size, "B"))
        call = study.collective("all_reduce", n, "ep", algorithm)
        yield Work(
            name=f"{held.name}, all-reduce",
            cause=EXPERT,
            seconds=formula("2 t, of both matrices", t=(call.formula, "s")),
            pass_="W",
            count=held.count,
            bytes_=2.0 * n.value,
            latency=2.0 * call.latency,
            **link_resources(study.group("ep").flat),
        )
