"""How the sequence is split over context-parallel ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import BYTES, Real, block, integer, quantity, switch, word
from parcost_plugins.vocabulary.framework import CONTEXTS

if TYPE_CHECKING:
    pass


@block(
    "context",
    label="none",
    used_with={
        (): "`layout.cp` above 1",
        ("balance",): "an algorithm in which each rank keeps a share of the sequence: ring, "
        "all_gather, hybrid",
    },
)
class Context:
    """Context parallelism: how ranks with a share of the sequence get all keys and values.

    ``ring`` sends blocks of keys and values around a ring. ``all_gather`` gathers them all at once.
    ``ulysses`` runs an all-to-all from sequence shards to heads, and back. ``hybrid`` does so
    within groups of ``ulysses`` ranks, with a ring between the groups.
    """

    algorithm: str | None = word(
        *CONTEXTS,
        default=None,
        doc="algorithm of context parallelism; by default that of the framework",
    )
    balance: str = word(
        "zigzag",
        "contiguous",
        default="zigzag",
        doc=(
            "each rank has one share from either end of the sequence, which balances causal "
            "attention; off: one contiguous share"
        ),
    )
    double_buffer: bool = switch(
        default=True, doc="the next block is received while attention computes with the current one"
    )
    ulysses: Real = integer(
        default=1,
        doc="size of the all-to-all groups (Ulysses) of a hybrid, made of neighbouring ranks",
    )
    key_value: Real = quantity(
        BYTES,
        default="training.precision.activation",
        positive=True,
        doc=(
            "bytes per element of keys and values on the wire, and of the tensors of an all-to-all"
        ),
    )
    gradients: Real = quantity(
        BYTES,
        default="training.precision.activation",
        positive=True,
        doc="bytes per element of the gradients of keys and values on the wire",
    )
    latent: bool = switch(
        default=False,
        doc=(
            "send the compressed keys and values of latent attention (MLA), and project them up "
            "on arrival"
        ),
    )
