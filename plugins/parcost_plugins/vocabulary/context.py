"""How the sequence is split over context-parallel ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import BYTES, Real, block, integer, quantity, switch, word
from parcost.numeric import minimum
from parcost_plugins.vocabulary.layout import Layout

if TYPE_CHECKING:
    from parcost import Study


@block("context", label="none")
class Context:
    """Context parallelism: how ranks with a share of the sequence get to all keys and values.

    ``ring`` passes blocks of keys and values round, ``all_gather`` collects them all at
    once, ``ulysses`` trades the sequence for heads and back, ``hybrid`` does that within
    groups of ``ulysses`` ranks and passes blocks between them.
    """

    algorithm: str = word(
        "ring", "all_gather", "ulysses", "hybrid", default="ring", doc="how they do it"
    )
    balance: str = word(
        "zigzag",
        "contiguous",
        default="zigzag",
        doc="a rank has a share from either end, which evens causal attention out, or one share",
    )
    double_buffer: bool = switch(
        default=True, doc="the next block arrives while attention works on this one"
    )
    ulysses: Real = integer(
        default=1, doc="ranks of a hybrid that trade the sequence for heads: they stand together"
    )
    key_value: Real = quantity(
        BYTES,
        default="training.precision.activation",
        positive=True,
        doc="per element of keys and values on the wire, and of what is traded for heads",
    )
    gradients: Real = quantity(
        BYTES,
        default="training.precision.activation",
        positive=True,
        doc="per element of their gradients on the wire",
    )
    latent: bool = switch(
        default=False,
        doc="of latent attention the compressed keys and values travel, and are projected up "
        "where they arrive",
    )

    def trading(self, cp: Real) -> Real:
        """Return how many of *cp* ranks trade the sequence for heads."""
        if self.algorithm == "ulysses":
            return cp
        return minimum(self.ulysses, cp) if self.algorithm == "hybrid" else 1.0


def blocks_of_keys(study: Study) -> Real:
    """Return in how many blocks, one a kernel, the keys of a query arrive."""
    cp, context = study[Layout].cp, study[Context]
    if context.algorithm in ("all_gather", "ulysses"):
        return 1.0
    return cp / context.trading(cp)


def latent_blocks(study: Study) -> Real:
    """Return of how many ranks' tokens, its own included, one projects keys and values up."""
    context, cp = study[Context], study[Layout].cp
    return cp / context.trading(cp) if context.latent else 1.0
