"""What the operators of a rank cost, by the kernel model that the study chooses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

from attrs import evolve

from parcost import FLOPS, Check, Study, Work, block_type, called, hookimpl
from parcost_plugins.kernels.rates import narrow
from parcost_plugins.vocabulary import (
    Cluster,
    Device,
    FusedAttention,
    Gemm,
    KernelChoice,
    Stream,
    Training,
    layers,
)
from parcost_plugins.vocabulary.causes import COMPUTE


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Price every operator.

    Raises:
        TypeError: The kernel model does not know an operator: a cost is never dropped.
    """
    choice = study[KernelChoice]
    _, model = study.plugins.named("kernels")[choice.model]
    for operator in _by_type(study):
        streams = isinstance(operator, Stream)
        if streams and not choice.memory_bound:
            continue
        priced = model.price(operator, study)
        if priced is None:
            kind = type(operator).__name__
            message = f"kernel model `{choice.model}` cannot price the {kind} `{operator.name}`"
            raise TypeError(message)
        seconds, formula = priced
        yield Work(
            name=operator.name,
            cause=COMPUTE,
            seconds=seconds,
            pass_=operator.pass_,
            formula=formula,
            count=operator.count,
            resource="hbm" if streams else "compute",
            host=operator.host,
            flops=operator.flops,
            bytes_=operator.bytes_ if streams else 0.0,
        )


def _by_type(study: Study) -> Iterator[Any]:
    """Yield the operators, and apart from them what the outer layers run in the wide type.

    The layers of a stage are taken to share its operators evenly.
    """
    precision = study[Training].precision
    if precision.narrow == "none" or not (precision.wide_first or precision.wide_last):
        yield from study.operators
        return
    shares = precision.wide_shares(layers(study))
    for operator in study.operators:
        if isinstance(operator, (Gemm, FusedAttention)) and narrow(operator, precision):
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
    """Require that the device computes in the types of the recipe, and what points need."""
    device, precision = study[Cluster].device, study[Training].precision
    has = [name for name in _types() if getattr(device, name) is not None]
    for attribute in ("compute", "narrow"):
        type_ = getattr(precision, attribute)
        yield Check(
            id="no-peak",
            holds=type_ == "none" or type_ in has,
            subject=f"{called(precision)}.{attribute}",
            message="{device} has no {type} peak",
            inputs={"device": called(device), "type": type_},
            help=f"the types that it has: {', '.join(has)}",
        )
    choice = study[KernelChoice]
    yield from _interpolation_checks("head", "small", "large", choice)
    yield from _interpolation_checks("sequence", "short", "long", choice)
    points = choice.streaming
    for below, above in pairwise(points):
        yield Check(
            id="streaming-ascends",
            holds=below.size < above.size,
            subject=f"{called(above)}.size",
            message="`{above}` has {size} B and stands behind `{below}` with {before} B",
            inputs={
                "above": called(above),
                "below": called(below),
                "size": above.size,
                "before": below.size,
            },
            help="write the sizes from the smallest upwards",
        )


def _interpolation_checks(what: str, less: str, more: str, choice: KernelChoice) -> Iterator[Check]:
    """Yield the rules of an efficiency that is given up to one size and whole from another on.

    What is smaller can be padded, and so never takes longer than what is larger.
    """
    low, high = getattr(choice, f"{less}_{what}"), getattr(choice, f"{more}_{what}")
    share = getattr(choice, f"{less}_{what}_efficiency")
    inputs = {"low": low, "high": high, "share": share, "least": low / high}
    yield Check(
        id=f"{what}-sizes-ascend",
        holds=low < high,
        subject=f"kernels.{less}_{what}",
        message=f"a {less} {what} has {{low}}, and a {more} one {{high}}",
        inputs=inputs,
        help=f"`{less}_{what}` is to be below `{more}_{what}`",
    )
    yield Check(
        id=f"{what}-efficiency",
        holds=(share * high >= low) | (low >= high),
        subject=f"kernels.{less}_{what}_efficiency",
        message=f"at {{share:.4g}} of the rate a {what} of {{low}} takes longer than one of "
        "{high}",
        inputs=inputs,
        help="at least {least:.4g}: it could be padded",
    )


@cache
def _types() -> tuple[str, ...]:
    """Return the types that devices may have a peak of."""
    fields = block_type(Device).fields.items()
    return tuple(name for name, field in fields if field.dimension == FLOPS)
