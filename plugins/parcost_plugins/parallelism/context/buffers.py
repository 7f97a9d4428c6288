"""Buffers for keys and values of other ranks, for one layer at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parcost import Memory, Moment, formula, map_counts
from parcost_plugins.parallelism.context.blocks import RING_KERNELS
from parcost_plugins.parallelism.context.exchange import FP32, SIZES, ContextExchange
from parcost_plugins.parallelism.context.ring import RING
from parcost_plugins.vocabulary.causes import BUFFERS

_FORWARD: tuple[Moment, ...] = ("forward",)
_BACKWARD: tuple[Moment, ...] = ("backward", "end_of_backward")


def exchange_buffers(found: ContextExchange) -> Iterator[Memory]:
    """Yield the buffers of the algorithm."""
    if found.context.latent:
        yield from _projection_buffers(found)
    if found.kind == "all_gather":
        yield _buffer(
            found,
            "gathered keys and values",
            "s b w e",
            _FORWARD + _BACKWARD,
        )
        # where gradients go round block by block: a block, and the one that arrives
        gradients = "2 s / c b w g" if found.runs_blocks else "s b w g"
        yield _buffer(found, "gathered gradients of keys and values", gradients, _BACKWARD)
        return
    if isinstance(found.rounds, float) and found.rounds == 1.0:
        return
    both = _FORWARD + _BACKWARD
    block, gradients = "s / c b w e", "s / c b w g"
    rows = [
        ("KV block", block, both),
        ("gradients of a KV block", gradients, _BACKWARD),
    ]
    if found.context.double_buffer:
        rows += [
            ("KV double buffer", block, both),
            ("KV gradient double buffer", gradients, _BACKWARD),
        ]
    for name, text, moments in rows:
        yield _buffer(found, name, text, moments, source=RING)
    if found.has_merge_kernels and found.runs_blocks:  # all blocks stay until the last
        r = {"r": found.rounds}
        other = "max(r - 2, 0) s / c b w e"
        yield _buffer(found, "KV blocks of other steps", other, _FORWARD, r, RING_KERNELS)
        yield _buffer(
            found,
            "attention outputs of all steps",
            "(r + 1) s / c b a v o, a heads of this rank",
            _FORWARD,
            {**r, "a": found.heads, "v": found.model.value_dim, "o": (found.element, "B")},
            source=RING_KERNELS,
        )
        return
    yield _buffer(
        found,
        "attention output in fp32",
        "fp32 s / c b a (v + 1), a heads of this rank",
        _FORWARD,
        {"fp32": (FP32, "B"), "a": found.heads, "v": found.model.value_dim},
    )


def _projection_buffers(found: ContextExchange) -> Iterator[Memory]:
    """Yield received keys and values after the up projection, and their gradients, for latent
    attention.

    A ring holds one block at a time, an all-gather all of them.
    """
    whole = found.kind == "all_gather"
    block = "s b" if whole else "s / c b"
    text = f"{block} a (d + v) e, a heads of this rank"
    if not found.model.is_latent:
        text = f"{block} k (d + v) e, k heads of this rank"
    symbols = {
        "a": found.heads,
        "k": found.kv_heads,
        "d": found.model.qk_dim,
        "v": found.model.value_dim,
        "e": (found.element, "B"),
    }
    both = _FORWARD + _BACKWARD
    yield _buffer(found, "projected keys and values", text, both, symbols)
    name = "gradients of projected keys and values"
    yield _buffer(found, name, text, _BACKWARD, symbols)


def _buffer(
    found: ContextExchange,
    name: str,
    text: str,
    moments: tuple[Moment, ...],
    symbols: Mapping[str, Any] | None = None,
    source: str = SIZES,
) -> Memory:
    size = found.size(text, **(symbols or {}))
    return Memory(
        name=name,
        cause=BUFFERS,
        bytes_=formula("r > 1 ? n : 0", r=found.rounds, n=(size, "B"), source=source),
        count=map_counts(min, found.counts["F"], 1.0) if "F" in found.counts else 1.0,
        once_per_device=True,
        moments=moments,
    )
