"""What the operators of a rank cost, by the kernel model that the study chooses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from parcost import FLOPS, Check, Study, Work, block_type, called, hookimpl
from parcost_plugins.vocabulary import Cluster, Device, KernelChoice, Stream, Training


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Price every operator.

    Raises:
        TypeError: The kernel model does not know an operator: a cost is never dropped.
    """
    choice = study[KernelChoice]
    _, model = study.plugins.named("kernels")[choice.model]
    for operator in study.operators:
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
            seconds=seconds,
            pass_=operator.pass_,
            formula=formula,
            count=operator.count,
            resource="hbm" if streams else "compute",
            host=operator.host,
            flops=operator.flops,
            bytes_=operator.bytes_ if streams else 0.0,
        )


@hookimpl
def checks(study: Study) -> list[Check]:
    """Require that the device computes in the type of the recipe."""
    device, precision = study[Cluster].device, study[Training].precision
    has = [name for name in _types() if getattr(device, name) is not None]
    return [
        Check(
            id="no-peak",
            holds=precision.compute in has,
            subject=f"{called(precision)}.compute",
            message="{device} has no {compute} peak",
            inputs={"device": called(device), "compute": precision.compute},
            help=f"the types that it has: {', '.join(has)}",
        )
    ]


@cache
def _types() -> tuple[str, ...]:
    """Return the types that devices may have a peak of."""
    fields = block_type(Device).fields.items()
    return tuple(name for name, field in fields if field.dimension == FLOPS)
