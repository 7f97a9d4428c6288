"""What is held of other ranks' keys and values: for one layer at a time."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Formula, Memory, Moment, Real
from parcost.numeric import where
from parcost_plugins.parallelism.context.exchange import SIZES, Exchange
from parcost_plugins.parallelism.context.ring import RING

FP32 = 4.0  # bytes of an output that is added up over blocks, and of its statistics

_FORWARD: tuple[Moment, ...] = ("forward",)
_BACKWARD: tuple[Moment, ...] = ("backward",)


def held(found: Exchange) -> Iterator[Memory]:
    """Yield the buffers of the algorithm."""
    if found.context.algorithm == "all_gather":
        yield _buffer(
            found,
            "gathered keys and values",
            found.cp * found.block,
            "s b w e",
            _FORWARD + _BACKWARD,
        )
        yield _buffer(
            found,
            "gathered gradients of keys and values",
            found.cp * found.block_gradients,
            "s b w g",
            _BACKWARD,
        )
        return
    if isinstance(found.rounds, float) and found.rounds == 1.0:
        return
    both = _FORWARD + _BACKWARD
    block, gradients = "(s / c) b w e", "(s / c) b w g"
    yield _buffer(found, "KV block", found.block, block, both)
    yield _buffer(found, "gradients of a KV block", found.block_gradients, gradients, _BACKWARD)
    if found.context.double_buffer:
        yield _buffer(found, "KV double buffer", found.block, block, both)
        yield _buffer(
            found, "KV gradient double buffer", found.block_gradients, gradients, _BACKWARD
        )
    rows = found.tokens * found.heads
    yield _buffer(
        found,
        "attention output in fp32",
        FP32 * rows * (found.model.value_dim + 1.0),
        "4 (s / c) b a (d + 1) / t",
        _FORWARD,
    )


def _buffer(
    found: Exchange, name: str, bytes_: Real, text: str, moments: tuple[Moment, ...]
) -> Memory:
    return Memory(
        name=name,
        bytes_=where(found.rounds > 1, bytes_, 0.0),
        count=[min(n, 1.0) for n in found.counts.get("F", ())] or 1.0,
        once_per_device=True,
        moments=moments,
        formula=Formula(
            text=text,
            inputs={
                **found.inputs,
                "a / t": (found.heads, ""),
                "d": (found.model.value_dim, ""),
            },
            source=RING if "KV" in name else SIZES,
        ),
    )
