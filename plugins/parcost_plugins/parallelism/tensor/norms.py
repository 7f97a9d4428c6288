"""Gradients of what every rank holds but only a share of the tokens passes.

Under sequence parallelism a rank normalises its share of the tokens. So the gradients of
norms, and of biases added behind a reduce-scatter, are partial sums. They are added up once
per step.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Real, Study, formula
from parcost_plugins.parallelism.tensor.group import TensorGroup
from parcost_plugins.vocabulary import Layout, Parameters, Training, virtual_stages
from parcost_plugins.vocabulary.causes import TENSOR
from parcost_plugins.vocabulary.sums import reduction_algorithm


def gradients(study: Study, on_wire: TensorGroup) -> Iterator[Once]:
    """Yield the sum over the tensor-parallel ranks, one for each size that a stage has."""
    if not study[Layout].sequence_parallel:
        return
    e = study[Training].precision.reduction
    copied = [p for p in study.parameters if isinstance(p, Parameters) and p.replicated]
    kinds: dict[tuple[float, ...], list[int]] = {}
    for stage in range(virtual_stages(study)):
        kinds.setdefault(tuple(p.count[stage] for p in copied), []).append(stage)
    for i, (counts, stages) in enumerate(kinds.items()):
        elements: Real = 0.0
        for held, count in zip(copied, counts, strict=True):
            elements = elements + held.elements * count
        if not any(counts):
            continue
        algorithm = reduction_algorithm(study, on_wire.algorithm)
        n = formula("psi e", psi=elements, e=(e, "B"))
        call = study.collective("all_reduce", n, "tp", algorithm)
        yield Once(
            name="norm gradient all-reduce" + (f" ({i + 1})" if i else ""),
            cause=TENSOR,
            seconds=call.formula,
            when="end",
            count=[float(s in stages) for s in range(virtual_stages(study))],
            **on_wire.on,
            bytes_=n.value,
        )
