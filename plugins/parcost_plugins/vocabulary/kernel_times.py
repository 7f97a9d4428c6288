"""The time of one operator by the kernel model of the study.

The plugin ``kernels`` prices what the hook ``operators`` yields. Work that depends on how gradients
and weights are sharded is priced by its own plugin, in ``terms``. So the time of layers does not
depend on ZeRO, and a search asks for it once.
"""

from __future__ import annotations

from parcost import Formula, Operator, Study, Work
from parcost_plugins.vocabulary import KernelChoice, Stream
from parcost_plugins.vocabulary.causes import COMPUTE


def kernel_seconds(operator: Operator, study: Study) -> Formula:
    """Return the seconds of one occurrence of *operator*.

    Raises:
        TypeError: The kernel model does not know the operator: a cost is never dropped.
    """
    chosen = study[KernelChoice].model
    _, model = study.plugins.offers("kernels")[chosen]
    priced: Formula | None = model.price(operator, study)
    if priced is None:
        kind = type(operator).__name__
        raise TypeError(f"kernel model `{chosen}` cannot estimate the {kind} `{operator.name}`")
    return priced


def stream_work(stream: Stream, study: Study) -> Work:
    """Return the work of an operator that is bound by memory."""
    return Work(
        name=stream.name,
        cause=COMPUTE,
        seconds=kernel_seconds(stream, study),
        pass_=stream.pass_,
        count=stream.count,
        resource="hbm",
        host=stream.host,
        bytes_=stream.bytes_,
    )
