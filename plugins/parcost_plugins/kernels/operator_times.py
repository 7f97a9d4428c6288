"""The time of a rank's operators, by the kernel model of the study."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from attrs import evolve

from parcost import FLOPS, Check, Study, Work, block_name, block_type, hookimpl
from parcost_plugins.kernels.rates import attention_kernel, kernel_name, runs_narrow
from parcost_plugins.kernels.rulebook import RULES
from parcost_plugins.physics import layers
from parcost_plugins.physics.attention_mask import writes_scores
from parcost_plugins.physics.kernel_times import kernel_work
from parcost_plugins.vocabulary import (
    AttentionKernel,
    Cluster,
    Device,
    FusedAttention,
    Gemm,
    KernelChoice,
    Stream,
    Training,
)


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Estimate the time of every operator.

    Raises:
        TypeError: The kernel model does not know an operator: a cost is never dropped.
    """
    streams = study[KernelChoice].memory_bound
    for operator in operators_by_type(study):
        if streams or not isinstance(operator, Stream):
            yield kernel_work(operator, study)


def operators_by_type(study: Study) -> Iterator[Any]:
    """Yield the operators; operators of outer layers in 16 bits are separate.

    The layers of a stage are assumed to share its operators evenly.
    """
    precision = study[Training].precision
    if precision.narrow == "none" or not (precision.wide_first or precision.wide_last):
        yield from study.operators
        return
    shares = precision.wide_shares(layers(study))
    for operator in study.operators:
        if isinstance(operator, (Gemm, FusedAttention)) and runs_narrow(operator, precision):
            counts = list(zip(operator.count, shares, strict=True))
            yield evolve(operator, count=tuple(count * (1.0 - share) for count, share in counts))
            yield evolve(
                operator,
                name=f"{operator.name} in {precision.compute}",
                count=tuple(count * share for count, share in counts),
                wide=True,
            )
        else:
            yield operator


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the device supports the types of the precision, and valid measured points."""
    device, precision = study[Cluster].device, study[Training].precision
    has = [name for name in _types() if getattr(device, name) is not None]
    for attribute in ("compute", "narrow"):
        type_ = getattr(precision, attribute)
        yield RULES.check(
            "no-peak",
            type_ == "none" or type_ in has,
            f"{block_name(precision)}.{attribute}",
            help=f"choose a type that it has: {', '.join(has)}"
            if has
            else "write its peak in the device: `{type} = 100 TFLOPS dense`",
            device=block_name(device),
            type=type_,
        )
    choice = study[KernelChoice]
    yield from _attention_checks(study)
    points = choice.streaming
    for below, above in pairwise(points):
        yield RULES.check(
            "streaming-ascends",
            below.size < above.size,
            f"{block_name(above)}.size",
            above=block_name(above),
            below=block_name(below),
            size=above.size,
            before=below.size,
        )


#: Types of tensors in 32 bits, and attention kernels that have none.
_WIDE_TYPES = ("fp32", "tf32")
_NARROW_KERNELS = ("flash_1", "flash_2", "flash_3", "flash_4", "cudnn")


def _attention_checks(study: Study) -> Iterator[Check]:
    """Require that the device has the chosen attention kernel, in its data type."""
    choice, device = study[KernelChoice], study[Cluster].device
    yield RULES.check(
        "contradictory-attention",
        study[Training].flash_attention or choice.attention in (None, "auto", "unfused"),
        "kernels.attention",
        kernel=choice.attention or "auto",
    )
    given = (choice.attention_forward_efficiency, choice.attention_backward_efficiency)
    if writes_scores(study) or all(share is not None for share in given):
        return
    precision, table = study[Training].precision, device.attention
    yield RULES.check(
        "attention-type",
        precision.compute not in _WIDE_TYPES or kernel_name(study) not in _NARROW_KERNELS,
        "kernels.attention",
        kernel=kernel_name(study),
        type=precision.compute,
    )
    narrow_too = precision.narrow != "none" and precision.narrow_attention
    types = ("wide", "fp8") if narrow_too else ("wide",)
    name = kernel_name(study)
    known = () if table is None else table.kernels
    for type_ in types:
        kernel = attention_kernel(study, type_)
        has = [kernel.kernel for kernel in known if kernel.type == type_]
        yield RULES.check(
            "no-attention-kernel",
            kernel is not None,
            "kernels.attention" if table is not None else f"{block_name(device)}.attention",
            help=f"choose a kernel that it has: {', '.join(has)}"
            if has
            else "write the efficiency: `kernels.attention_forward_efficiency` and "
            "`attention_backward_efficiency`",
            device=block_name(device),
            kernel="an attention kernel" if name == "auto" else f"the attention kernel `{name}`",
            type=" in fp8" if type_ == "fp8" else "",
        )
        if kernel is not None:
            yield from _head_checks(kernel)


def _head_checks(kernel: AttentionKernel) -> Iterator[Check]:
    """Require that the rate increases with the head size, because smaller heads can be padded."""
    subject = block_name(kernel)
    yield RULES.check("no-head-rate", bool(kernel.heads), subject, kernel=subject)
    for below, above in pairwise(kernel.heads):
        inputs = {"above": above.size, "below": below.size}
        yield RULES.check(
            "head-sizes-ascend", below.size < above.size, f"{block_name(above)}.size", inputs=inputs
        )
        for pass_ in ("forward", "backward"):
            low, high = getattr(below, pass_), getattr(above, pass_)
            yield RULES.check(
                "head-efficiency",
                (low * above.size >= high * below.size) | (below.size >= above.size),
                f"{block_name(below)}.{pass_}",
                inputs={**inputs, "share": low},
            )


@cache
def _types() -> tuple[str, ...]:
    """Return the data types for which devices may have a peak."""
    fields = block_type(Device).fields.items()
    return tuple(name for name, field in fields if field.dimension == FLOPS)
