"""The gradients of an adapter that all routed experts share.

Every expert-parallel rank has a copy, and its gradient for the tokens of its own experts. Replicas
of the experts reduce it as that of an expert. The expert-parallel ranks then sum it once per step.

Source: Megatron-Bridge, peft/utils.py: allreduce_expert_parallel_replicated_grads.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Study, formula, hookimpl, link_resources
from parcost_plugins.vocabulary import Adapters, CollectiveChoice, Layout, Training
from parcost_plugins.vocabulary.causes import EXPERT
from parcost_plugins.vocabulary.stage_parameters import trained_kinds
from parcost_plugins.vocabulary.sums import reduction_algorithm


@hookimpl
def terms(study: Study) -> Iterator[Once]:
    """Estimate the sum over the expert-parallel ranks, one for each kind of stage."""
    adapters, ep = study.get(Adapters), study[Layout].ep
    if adapters is None or adapters.experts != "shared" or (isinstance(ep, float) and ep == 1.0):
        return
    group, size = study.group("ep"), study[Training].precision.reduction
    algorithm = reduction_algorithm(study, study[CollectiveChoice].data)
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
