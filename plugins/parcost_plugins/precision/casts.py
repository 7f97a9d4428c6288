"""What is spent on making numbers narrow, and on holding copies of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Formula, Memory, Once, Real, Study, Work, formula
from parcost_plugins.vocabulary import (
    Cluster,
    CollectiveChoice,
    Gemm,
    KernelChoice,
    Parameters,
    Stream,
    Training,
    layers,
    virtual_stages,
)
from parcost_plugins.vocabulary.causes import COMPUTE, OPTIMIZER, PRECISION, WEIGHTS
from parcost_plugins.vocabulary.run_choices import shards_weights
from parcost_plugins.vocabulary.stage_parameters import stage_range
from parcost_plugins.vocabulary.sums import reduction_algorithm

FP32 = 4.0  # bytes of a greatest value
OPERANDS = 3.0  # of a linear layer: its input, its weights, the gradient of its output

SOURCE = "Transformer Engine: operands are read wide and written narrow"
AMAX = "Transformer Engine: one greatest value per tensor, over the amax group, once per step"


def operands(study: Study) -> Iterator[Work]:
    """Yield the casts of activations forward, and of gradients backward.

    A weight gradient takes both as they are by then; a copy laid out for it is part of
    the traffic of the cast.
    """
    precision, choice = study[Training].precision, study[KernelChoice]
    if _nothing(precision.cast) or not choice.memory_bound:
        return
    wide = precision.wide_shares(layers(study))
    for gemm in study.operators:
        if not isinstance(gemm, Gemm) or gemm.pass_ not in ("F", "B", "R"):
            continue
        if gemm.wide or not precision.is_narrow(gemm.role, gemm.pass_):
            continue
        bytes_ = precision.cast * gemm.batch * gemm.m * gemm.k
        cast = Stream(
            name=f"cast for {gemm.name}",
            bytes_=bytes_,
            kernels=precision.cast_kernels * (gemm.batch if gemm.role == "expert" else 1.0),
            pass_=gemm.pass_,
            count=[n * (1.0 - w) for n, w in zip(gemm.count, wide, strict=True)],
            source=SOURCE,
        )
        yield Work(
            name=cast.name,
            cause=COMPUTE,
            seconds=_price(cast, study),
            pass_=cast.pass_,
            count=cast.count,
            resource="hbm",
            bytes_=bytes_,
        )


def weights(study: Study) -> Iterator[Once]:
    """Yield the cast of the updated weights, which every replica makes for itself."""
    traffic = study[Training].precision.weight_cast
    if _nothing(traffic) or not study[KernelChoice].memory_bound:
        return
    for stages, elements in _linear(study):
        bytes_ = traffic * elements
        cast = Stream(name="weight cast", bytes_=bytes_, pass_="F", count=(1.0,), source=SOURCE)
        yield Once(
            name=_cast_name("weight cast", stages, study),
            cause=OPTIMIZER,
            seconds=_price(cast, study),
            when="end",
            count=_stage_counts(stages, study),
            resource="hbm",
            bytes_=bytes_,
        )


def maximum_agreement(study: Study) -> Iterator[Once]:
    """Yield the agreement on greatest values, of the stage with the most tensors."""
    precision = study[Training].precision
    if precision.amax_group == "none":
        return
    tensors = [0.0] * virtual_stages(study)
    for gemm in study.operators:
        if isinstance(gemm, Gemm) and gemm.pass_ == "F" and precision.is_narrow(gemm.role, "F"):
            tensors = [n + OPERANDS * count for n, count in zip(tensors, gemm.count, strict=True)]
    most = max(tensors)
    group = study.group(precision.amax_group)
    algorithm = reduction_algorithm(study, study[CollectiveChoice].data)
    n = formula("fp32 k, k tensors of a stage", fp32=(FP32, "B"), k=most)
    call = study.collective("all_reduce", n, group, algorithm)
    yield Once(
        name="amax all-reduce",
        cause=PRECISION,
        seconds=formula("t", t=(call.formula, "s"), source=AMAX),
        when="end",
        resource=group.flat.resource,
        bytes_=FP32 * most,
    )


def copies(study: Study) -> Iterator[Memory]:
    """Yield what is held beside the weights. Under ZeRO 3 nothing is: layers come and go."""
    each = study[Training].precision.copies(study[Cluster].device)
    if _nothing(each) or shards_weights(study):
        return
    for stages, elements in _linear(study):
        yield Memory(
            name=_cast_name("narrow weights", stages, study),
            cause=WEIGHTS,
            bytes_=formula(
                "psi e, psi parameters of linear layers",
                psi=elements,
                e=(each, "B"),
                source="Transformer Engine caches narrow weights over micro-batches",
            ),
            count=_stage_counts(stages, study),
        )


def _linear(study: Study) -> Iterator[tuple[tuple[int, ...], Real]]:
    """Yield the stages that hold equally many parameters of linear layers, and how many.

    They are those of the layers that tensor parallelism splits. Biases are among them.
    """
    held = [
        p
        for p in study.parameters
        if isinstance(p, Parameters) and p.place == "layer" and not p.replicated
    ]
    kinds: dict[tuple[float, ...], list[int]] = {}
    for stage in range(virtual_stages(study)):
        kinds.setdefault(tuple(p.count[stage] for p in held), []).append(stage)
    for counts, stages in kinds.items():
        elements: Real = 0.0
        for parameters, count in zip(held, counts, strict=True):
            elements = elements + parameters.elements * count
        if any(counts):
            yield tuple(stages), elements


def _cast_name(name: str, stages: tuple[int, ...], study: Study) -> str:
    if len(stages) == virtual_stages(study):
        return name
    return f"{name}, {stage_range(stages)}"


def _stage_counts(stages: tuple[int, ...], study: Study) -> tuple[float, ...]:
    return tuple(float(stage in stages) for stage in range(virtual_stages(study)))


def _price(operator: Stream, study: Study) -> Formula:
    chosen = study[KernelChoice].model
    _, model = study.plugins.offers("kernels")[chosen]
    priced: Formula | None = model.price(operator, study)
    if priced is None:
        raise TypeError(f"kernel model `{chosen}` cannot estimate the Stream `{operator.name}`")
    return priced


def _nothing(bytes_: Any) -> bool:
    """Whether there is none at all; a sweep never decides that."""
    return isinstance(bytes_, float) and bytes_ == 0.0
