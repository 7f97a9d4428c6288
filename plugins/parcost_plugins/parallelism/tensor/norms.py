"""Gradients of replicated parameters that depend only on a shard of the tokens.

Under sequence parallelism a rank normalises its shard of the tokens. So the gradients of norms, and
of biases added after a reduce-scatter, are partial sums. They are added up once per step, and so
are gradients of an adapter's replicated matrix. Gradients of learned positions are complete on
every rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost import Once, Real, Study, formula
from parcost_plugins.parallelism.tensor.group import TensorGroup
from parcost_plugins.physics.adapters import is_trained, trains_model
from parcost_plugins.physics.stage_parameters import slots
from parcost_plugins.physics.sums import reduction_algorithm
from parcost_plugins.vocabulary import Layout, Parameters, Training
from parcost_plugins.vocabulary.causes import TENSOR


def gradients(study: Study, on_wire: TensorGroup) -> Iterator[Once]:
    """Yield the all-reduce over the tensor-parallel ranks, one for each kind of stage."""
    if not study[Layout].sequence_parallel:
        return
    name = (
        "layer norm gradient all-reduce" if trains_model(study) else "adapter gradient all-reduce"
    )
    e = study[Training].precision.reduction
    copied = [p for p in study.parameters if _is_partial(study, p)]
    for i, slot in enumerate(slots(study, copied, dense=False)):
        algorithm = reduction_algorithm(study, on_wire.algorithm)
        n = formula("psi e", psi=_elements(copied, slot.counts), e=(e, "B"))
        call = study.collective("all_reduce", n, "tp", algorithm)
        yield Once(
            name=name + (f" ({i + 1})" if i else ""),
            cause=TENSOR,
            seconds=call.formula,
            when="end",
            count=slot.row,
            **on_wire.on,
            bytes_=n.value,
        )


def _is_partial(study: Study, held: Parameters) -> bool:
    """Return whether the gradient of a rank covers only its shard of the tokens."""
    return held.replicated and held.place != "before" and is_trained(study, held)


def _elements(copied: Sequence[Parameters], counts: Sequence[Real]) -> Real:
    elements: Real = 0.0
    for held, count in zip(copied, counts, strict=True):
        elements = elements + held.elements * count
    return elements
