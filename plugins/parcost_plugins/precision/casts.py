"""The cost of casts to low precision, and of copies of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

from attrs import evolve

from parcost import (
    Memory,
    Once,
    Pass,
    Real,
    Study,
    Work,
    formula,
    link_resources,
    stage_counts,
    stage_number,
)
from parcost.numeric import where
from parcost_plugins.physics import layers, virtual_stages
from parcost_plugins.physics.adapters import casts_frozen, trains_model
from parcost_plugins.physics.kernel_times import kernel_seconds, kernel_work
from parcost_plugins.physics.run_choices import (
    gathers_per_micro_batch,
    reshards,
    shards_weights,
)
from parcost_plugins.physics.stage_parameters import slots, spread
from parcost_plugins.physics.sums import reduction_algorithm
from parcost_plugins.vocabulary import (
    Cluster,
    CollectiveChoice,
    FusedAttention,
    Gemm,
    KernelChoice,
    Parameters,
    Stream,
    Training,
)
from parcost_plugins.vocabulary.causes import OPTIMIZER, PRECISION, WEIGHTS
from parcost_plugins.vocabulary.operators import StepKind

FP32 = 4.0  # bytes of an amax value
OPERANDS = 3.0  # of a linear layer: its input, its weights, the gradient of its output

SOURCE = "Transformer Engine: operands are read wide and written narrow"
FROZEN = (
    "Transformer Engine, pytorch/module/linear.py: columns of inputs (backward_needs_input) and of "
    "gradients are made where the weight requires a gradient"
)
TORCHAO = (
    "torchao, float8/float8_linear.py: hp_tensor_to_float8_dynamic in forward and backward; "
    "fsdp_utils.py: fsdp_pre_all_gather of a shard; float8_ops.py transposes a weight for backward"
)
AMAX = (
    "Transformer Engine 2.2, pytorch/fp8.py: fp8_autocast_exit and the end of backward call "
    "reduce_and_update_fp8_tensors; Megatron-LM, core/transformer/transformer_block.py: one "
    "fp8_autocast around the layers of a virtual stage"
)


def operands(study: Study) -> Iterator[Work]:
    """Yield the casts of activations in forward, and of gradients in backward.

    The weight-gradient GEMM uses both casts. Its transposed copy is part of the traffic of the
    cast, or a column-wise cast (`columns`). Frozen weights need no such copy. An attention core in
    low precision casts its inputs and the gradient of its output itself.
    """
    precision, choice = study[Training].precision, study[KernelChoice]
    whole = precision.cast_traffic(study[Cluster].device)
    if _is_zero(whole) or not choice.memory_bound:
        return
    frozen = not trains_model(study)
    for operator in _narrow_operators(study):
        traffic, kernels = whole, precision.cast_kernels
        if isinstance(operator, Gemm):
            elements = operator.batch * operator.m * operator.k
            tensors = operator.batch if operator.role == "expert" else 1.0
            if frozen:
                traffic, kernels = precision.frozen_cast, precision.frozen_kernels
        else:
            elements, tensors = operator.operands, 1.0
        bytes_ = traffic * elements
        cast = Stream(
            name=f"cast for {operator.name}",
            bytes_=bytes_,
            kernels=kernels * tensors,
            pass_=operator.pass_,
            count=operator.count,
            source=FROZEN if frozen else SOURCE,
            **_steps(precision.cast_steps * elements),
        )
        yield kernel_work(cast, study)


def columns(study: Study) -> Iterator[Work]:
    """Yield the casts of both operands of a weight gradient, scaled along the token dimension.

    They include the kernel that multiplies the result by scales, if there is one.
    """
    precision = study[Training].precision
    if _is_zero(precision.column_cast) or not study[KernelChoice].memory_bound:
        return
    for operator in _narrow_operators(study, ("W",)):
        if isinstance(operator, Gemm):
            elements = operator.batch * operator.k * (operator.m + operator.n)
            tensors = operator.batch if operator.role == "expert" else 1.0
            cast = Stream(
                name=f"cast of columns for {operator.name}",
                bytes_=precision.column_cast * elements,
                kernels=2.0 * precision.cast_kernels * tensors,
                pass_=operator.pass_,
                count=operator.count,
                source=TORCHAO,
                **_steps(precision.column_steps * elements),
            )
            yield kernel_work(cast, study)


class _Steps(TypedDict):
    steps: Real
    step_kind: StepKind


def _steps(elements: Real) -> _Steps:
    """Return the arguments of a stream that computes *elements* one after another, or none."""
    return {"steps": elements, "step_kind": "" if _is_zero(elements) else "cast"}


def _narrow_operators(
    study: Study, passes: tuple[Pass, ...] = ("F", "B", "R")
) -> Iterator[Gemm | FusedAttention]:
    """Yield the operators with cast operands, counted where they run in low precision."""
    precision = study[Training].precision
    every_layer = not (precision.wide_first or precision.wide_last)
    operators = (operator for operator in study.operators) if every_layer else study.operators
    for one in operators:
        if isinstance(one, FusedAttention) and "F" in passes:
            narrow = precision.narrow != "none" and precision.narrow_attention
        elif isinstance(one, Gemm) and one.pass_ in passes:
            narrow = precision.is_narrow(one.role, one.pass_)
        else:
            continue
        if one.wide or not narrow:
            continue
        if every_layer:
            yield one
        else:
            wide = precision.wide_shares(layers(study))
            counts = [n * (1.0 - w) for n, w in zip(one.count, wide, strict=True)]
            yield evolve(one, count=counts)


def weights(study: Study) -> Iterator[Work | Once]:
    """Yield the casts of weights: after their update, or before each pass that reads them."""
    precision = study[Training].precision
    if _is_zero(precision.weight_cast) or not study[KernelChoice].memory_bound:
        return
    if not casts_frozen(study):
        return
    cast = _read_weights if precision.weight_casts == "pass" else _updated_weights
    yield from cast(study)


def _read_weights(study: Study) -> Iterator[Work]:
    """Yield the casts of weights before the GEMMs that read them.

    If weights are gathered in low precision, a rank casts its shard before each gather: an amax
    kernel, then the cast. Backward needs a column-wise copy: from another cast, or as a transposed
    copy of the gathered weights.
    """
    precision = study[Training].precision
    gathered = precision.gather < precision.wide_gather if shards_weights(study) else False
    shard = (2.0 * precision.weights + precision.gather) / spread(study)[2]
    again = shard if reshards(study) else 0.0
    narrow = {
        "F": gathers_per_micro_batch(study) * shard,
        "R": 0.0,
        "B": again + 2.0 * precision.gather,
    }
    for operator in _narrow_operators(study):
        if isinstance(operator, Gemm):
            along = operator.pass_ == "B"
            whole = precision.weight_column_cast if along else precision.weight_cast
            steps = where(precision.column_steps > 0, precision.column_steps, precision.cast_steps)
            traffic = where(gathered, narrow[operator.pass_], whole)
            elements = operator.batch * operator.k * operator.n
            alone = where(gathered, 0.0, steps if along else precision.cast_steps)
            cast = Stream(
                name=f"weight cast for {operator.name}",
                bytes_=traffic * elements,
                kernels=where(traffic > 0, precision.cast_kernels, 0.0),
                pass_=operator.pass_,
                count=operator.count,
                source=TORCHAO,
                **_steps(alone * elements),
            )
            yield kernel_work(cast, study)


def _updated_weights(study: Study) -> Iterator[Once]:
    """Yield the cast of updated weights; every replica casts all of them.

    Frozen 16-bit weights are cast in each step, too. Transformer Engine casts every weight that is
    not an fp8 parameter again (`is_first_microbatch`).
    """
    traffic = study[Training].precision.weight_cast
    each = study[Training].precision.cast_kernels
    for stages, elements, matrices, on in _linear(study):
        bytes_ = traffic * elements
        cast = Stream(
            name="weight cast",
            bytes_=bytes_,
            kernels=each * matrices,
            pass_="F",
            count=(1.0,),
            source=SOURCE,
        )
        yield Once(
            name=f"weight cast{stages}",
            cause=OPTIMIZER,
            seconds=kernel_seconds(cast, study),
            when="end",
            count=on,
            resource="hbm",
            bytes_=bytes_,
        )


def maximum_agreement(study: Study) -> Iterator[Work]:
    """Yield the amax all-reduces, for the virtual stage with the most scaled tensors.

    Transformer Engine reduces amax of inputs and weights after forward, and of gradients after
    backward. Each micro-batch and virtual stage has both.
    """
    precision = study[Training].precision
    if precision.amax_group == "none":
        return
    group = study.group(precision.amax_group)
    algorithm = reduction_algorithm(study, study[CollectiveChoice].data)
    passes: tuple[tuple[Pass, float], ...] = (("F", OPERANDS - 1.0), ("B", 1.0))
    for pass_, each in passes:
        most = study.query(_most_tensors, each)
        n = formula("fp32 k, k tensors of a stage", fp32=(FP32, "B"), k=most)
        call = study.collective("all_reduce", n, group, algorithm)
        yield Work(
            name="amax all-reduce",
            cause=PRECISION,
            seconds=formula("t", t=(call.formula, "s"), source=AMAX),
            pass_=pass_,
            count=study.query(_scaled_stages),
            bytes_=n.value,
            latency=call.latency,
            **link_resources(group.flat),
        )


def copies(study: Study) -> Iterator[Memory]:
    """Yield low-precision copies of weights; under ZeRO 3 none, as layers are freed after use.

    Frozen low-precision weights have at most a transposed copy.
    """
    precision, device = study[Training].precision, study[Cluster].device
    each = precision.copies(device) if casts_frozen(study) else precision.transposes(device)
    if _is_zero(each) or shards_weights(study):
        return
    for stages, elements, _, on in _linear(study):
        yield Memory(
            name=f"narrow weights{stages}",
            cause=WEIGHTS,
            bytes_=formula(
                "psi e, psi parameters of linear layers",
                psi=elements,
                e=(each, "B"),
                source="Transformer Engine caches narrow weights over micro-batches",
            ),
            count=on,
        )


@stage_number
def _most_tensors(study: Study, each: float) -> float:
    """Return the largest number of scaled tensors on any stage; *each* is the number per GEMM."""
    return max(each * count for count in _scaled_products(study))


@stage_counts
def _scaled_stages(study: Study) -> tuple[float, ...]:
    """Return 1 for virtual stages with GEMMs in low precision."""
    return tuple(float(count > 0) for count in _scaled_products(study))


def _scaled_products(study: Study) -> Sequence[float]:
    """Return the number of forward GEMMs in low precision on each virtual stage."""
    precision = study[Training].precision
    products = [0.0] * virtual_stages(study)
    for gemm in study.operators:
        if isinstance(gemm, Gemm) and gemm.pass_ == "F" and precision.is_narrow(gemm.role, "F"):
            products = [n + count for n, count in zip(products, gemm.count, strict=True)]
    return products


def _linear(study: Study) -> Iterator[tuple[str, Real, Real, Sequence[float]]]:
    """Yield kinds of stages: label, linear parameters and matrices on a rank, and counts.

    Counts are per virtual stage.
    """
    held = [p for p in study.parameters if p.in_linear_layer]
    for slot in slots(study, held, dense=False):
        label = f", {slot.stages}" if slot.stages else ""
        yield label, *_sizes(held, slot.counts), slot.row


def _sizes(held: Sequence[Parameters], counts: Sequence[Real]) -> tuple[Real, Real]:
    """Return the parameters of a stage, and the number of matrices that they form."""
    elements: Real = 0.0
    matrices: Real = 0.0
    for parameters, count in zip(held, counts, strict=True):
        elements = elements + parameters.elements * count
        matrices = matrices + parameters.matrices * count
    return elements, matrices


def _is_zero(bytes_: Any) -> bool:
    """Return whether the size is zero; never true for a sweep."""
    return isinstance(bytes_, float) and bytes_ == 0.0
