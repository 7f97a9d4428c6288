"""The split of a sequence over context-parallel ranks, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import Real
from parcost.numeric import all_of, any_of, minimum, where
from parcost_plugins.physics.attention_mask import blocks_met
from parcost_plugins.vocabulary.context import Context
from parcost_plugins.vocabulary.layout import Layout
from parcost_plugins.vocabulary.training import Training

if TYPE_CHECKING:
    from parcost import Study


def algorithm(study: Study) -> str:
    """Return the algorithm of context parallelism, from the spec or from the framework."""
    chosen = study[Context].algorithm or sink_algorithm(study) or window_algorithm(study)
    return chosen or study[Training].framework.context


def sink_algorithm(study: Study) -> str | None:
    """Return the algorithm that the framework requires for attention with sinks; None if it
    requires none.
    """
    training = study[Training]
    return training.framework.sink_context if training.model.sinks else None


def window_algorithm(study: Study) -> str | None:
    """Return the default algorithm for windows, if the framework does not use a ring for them, else
    None.
    """
    training = study[Training]
    windows = any_of(training.model.window > 0) and not training.model.chunked
    return training.framework.window_context if windows else None


def sequence_parts(study: Study, cp: Real) -> Real:
    """Return the parts of a sequence for *cp* ranks: two per rank with zigzag, else one."""
    zigzag = study[Context].balance == "zigzag" and study[Training].model.causal
    return where(cp > 1, cp * (2.0 if zigzag and algorithm(study) != "ulysses" else 1.0), 1.0)


def sequence_step(study: Study, tp: Real, cp: Real) -> Real:
    """Return the number of tokens that a sequence must be a multiple of.

    Sequence parallelism needs equal shards for ``tp * cp`` ranks, context parallelism equal parts.
    """
    parts = sequence_parts(study, cp)
    if not study[Layout].sequence_parallel:
        return parts
    shares = tp * cp
    return where(shares % parts == 0, shares, 2.0 * shares)


def all_to_all_degree(study: Study) -> Real:
    """Return the number of context-parallel ranks in a Ulysses group."""
    cp = study[Layout].cp
    if all_of(cp == 1):
        return 1.0
    kind = algorithm(study)
    if kind == "ulysses":
        return cp
    return minimum(study[Context].ulysses, cp) if kind == "hybrid" else 1.0


def blocks_of_keys(study: Study, *, windowed: bool) -> Real:
    """Return the number of key blocks per query in ring attention, without fully masked blocks."""
    cp = study[Layout].cp
    if all_of(cp == 1) or algorithm(study) in ("all_gather", "ulysses"):
        return 1.0
    blocks = cp / all_to_all_degree(study)
    parts = sequence_parts(study, blocks)
    return minimum(blocks, blocks_met(study[Training], parts, windowed=windowed))


def latent_blocks(study: Study) -> Real:
    """Return the number of ranks whose compressed keys and values a rank projects up."""
    return study[Layout].cp / all_to_all_degree(study) if study[Context].latent else 1.0
