"""What is held of other ranks' keys and values: for one layer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from parcost import Formula, Memory, Moment, Real
from parcost.numeric import where
from parcost_plugins.parallelism.context.exchange import SIZES, Exchange
from parcost_plugins.parallelism.context.ring import RING
from parcost_plugins.vocabulary.causes import BUFFERS
from parcost_plugins.vocabulary.partition import each

FP32 = 4.0  # bytes of an output that is added up over blocks, and of its statistics

_FORWARD: tuple[Moment, ...] = ("forward",)
_BACKWARD: tuple[Moment, ...] = ("backward",)


def held(found: Exchange) -> Iterator[Memory]:
    """Yield the buffers of the algorithm."""
    if found.context.latent:
        yield from _projected(found)
    if found.kind == "all_gather":
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
    rows = [
        ("KV block", found.block, block, both),
        ("gradients of a KV block", found.block_gradients, gradients, _BACKWARD),
    ]
    if found.context.double_buffer:
        rows += [
            ("KV double buffer", found.block, block, both),
            ("KV gradient double buffer", found.block_gradients, gradients, _BACKWARD),
        ]
    for name, bytes_, text, moments in rows:
        yield _buffer(found, name, bytes_, text, moments, source=RING)
    outputs = found.tokens * found.heads
    yield _buffer(
        found,
        "attention output in fp32",
        FP32 * outputs * (found.model.value_dim + 1.0),
        "4 (s / c) b a (d + 1) / t",
        _FORWARD,
    )


def _projected(found: Exchange) -> Iterator[Memory]:
    """Yield the keys and values that are projected up where they arrive, and their gradients.

    A ring works on a block at a time, a gather on all of them.
    """
    whole = found.kind == "all_gather"
    bytes_ = (found.cp if whole else 1.0) * found.tokens * found.projected * found.element
    text = "s b a (d + v) e / t" if whole else "(s / c) b a (d + v) e / t"
    letters = {
        "a / t": (found.heads, ""),
        "d": (found.model.qk_dim, ""),
        "v": (found.model.value_dim, ""),
        "e": (found.element, "B"),
    }
    both = _FORWARD + _BACKWARD
    yield _buffer(found, "projected keys and values", bytes_, text, both, letters)
    name = "gradients of projected keys and values"
    yield _buffer(found, name, bytes_, text, _BACKWARD, letters)


def _buffer(
    found: Exchange,
    name: str,
    bytes_: Real,
    text: str,
    moments: tuple[Moment, ...],
    letters: Mapping[str, tuple[Real, str]] | None = None,
    source: str = SIZES,
) -> Memory:
    return Memory(
        name=name,
        cause=BUFFERS,
        bytes_=where(found.rounds > 1, bytes_, 0.0),
        count=each(min, found.counts["F"], 1.0) if "F" in found.counts else 1.0,
        once_per_device=True,
        moments=moments,
        formula=Formula(
            text=text,
            inputs={
                **found.inputs,
                "a / t": (found.heads, ""),
                "d": (found.model.value_dim, ""),
                **(letters or {}),
            },
            source=source,
        ),
    )
