"""The time of one operator by the kernel model of the study.

The plugin ``kernels`` times the operators of the hook ``operators``. Other plugins estimate work
that depends on the sharding of gradients and weights. So the time of layers does not depend on
ZeRO, and a search evaluates it only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from parcost import Formula, Operator, Study, Work
from parcost_plugins.vocabulary import KernelChoice, Stream
from parcost_plugins.vocabulary.causes import COMPUTE


def kernel_seconds(operator: Operator, study: Study) -> Formula:
    """Return the seconds of one occurrence of *operator*.

    Raises:
        TypeError: The kernel model does not know the operator, so its cost would be lost.
    """
    chosen = study[KernelChoice].model
    _, model = study.plugins.offers("kernels")[chosen]
    timed: Formula | None = model.price(operator, study)
    if timed is None:
        kind = type(operator).__name__
        raise TypeError(f"kernel model `{chosen}` cannot estimate the {kind} `{operator.name}`")
    return timed


def kernel_work(operator: Any, study: Study) -> Work:
    """Return the work of *operator*; its resource is the memory for a stream, and the compute units
    otherwise.
    """
    streams = isinstance(operator, Stream)
    return Work(
        name=operator.name,
        cause=COMPUTE,
        seconds=kernel_seconds(operator, study),
        pass_=operator.pass_,
        count=operator.count,
        resource="hbm" if streams else "compute",
        host=operator.host,
        flops=operator.mean_flops,
        bytes_=operator.bytes_ if isinstance(operator, Stream) else 0.0,
    )


def stream_work(streams: Iterable[Stream], study: Study) -> Iterator[Work]:
    """Yield the work of *streams*; none if the study omits memory-bound operators."""
    if study[KernelChoice].memory_bound:
        for stream in streams:
            yield kernel_work(stream, study)
