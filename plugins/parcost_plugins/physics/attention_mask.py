"""The number of keys per query, by causal mask, sliding window and packed documents."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from parcost import Real, Study
from parcost.numeric import floor, max_of, maximum, minimum, where
from parcost_plugins.vocabulary.training import KernelChoice, Training


def writes_scores(study: Study) -> bool:
    """Return whether attention is not fused, so that scores are written to memory."""
    chosen = study[KernelChoice].attention or study[Training].framework.attention
    return not study[Training].flash_attention or chosen == "unfused"


def attended_tokens(training: Training, *, windowed: bool) -> Real:
    """Return the average number of keys per query."""
    lengths = list(_documents(training))
    if len(lengths) == 1:
        return _mean(training, lengths[0], windowed=windowed)
    total = sum(length * _mean(training, length, windowed=windowed) for length in lengths)
    return total / sum(lengths)


def attended_tokens_of_busiest(training: Training, ranks: Real, *, windowed: bool) -> Real:
    """Return the average number of keys per query on the context-parallel rank with the most work.

    Each of *ranks* has one contiguous shard of the sequence. In one causal document the last rank
    has the most keys before its queries.
    """
    sequence = training.sequence
    share = sequence / ranks
    whole = _attended_sum(training, sequence, windowed=windowed)
    if not training.documents and training.document is None:
        return (whole - _attended_sum(training, sequence - share, windowed=windowed)) / share
    most: Real = 0.0
    before: Real = 0.0
    for rank in range(1, int(max_of(ranks)) + 1):
        met = _attended_sum(training, minimum(rank * share, sequence), windowed=windowed)
        most, before = maximum(most, met - before), met
    return most / share


def attended_tokens_of_busiest_pair(training: Training, ranks: Real, *, windowed: bool) -> Real:
    """Return the average number of keys per query on the busiest rank with zigzag sharding.

    Each of *ranks* has two parts of a document, one from each end. All ranks then have equal work,
    except with windows: the first tokens have fewer keys.
    """
    lengths = list(_documents(training))
    most: Real = 0.0
    for rank in range(int(max_of(ranks))):
        met: Real = 0.0
        for length, at in product(lengths, (rank, maximum(2.0 * ranks - 1.0 - rank, 0.0))):
            part = length / (2.0 * ranks)
            upto = _causal_sum(training, (at + 1) * part, windowed=windowed)
            met = met + (upto - _causal_sum(training, at * part, windowed=windowed))
        most = maximum(most, where(rank < ranks, met, 0.0))
    return most * ranks / sum(lengths)


def blocks_met(training: Training, parts: Real, *, windowed: bool) -> Real:
    """Return the number of *parts* (equal parts of the sequence) that contain keys of a query.

    A window that starts in one part extends into the next.
    """
    if not windowed:
        return parts
    model = training.model
    reach = attended_tokens(training, windowed=True) * parts / training.sequence
    return maximum(1.0, reach + 0.5) if model.chunked else 1.0 + reach


def _attended_sum(training: Training, tokens: Real, *, windowed: bool) -> Real:
    """Return the total number of keys over the first *tokens* queries of a sequence."""
    if training.documents:
        found: Real = 0.0
        start: Real = 0.0
        for length in _documents(training):
            inside = maximum(minimum(tokens - start, length), 0.0)
            found = found + _causal_sum(training, inside, windowed=windowed)
            start = start + length
        return found
    (length,) = _documents(training)
    full = floor(tokens / length)
    whole = full * _causal_sum(training, length, windowed=windowed)
    return whole + _causal_sum(training, tokens - full * length, windowed=windowed)


def _causal_sum(training: Training, tokens: Real, *, windowed: bool) -> Real:
    """Return the total number of keys over the first *tokens* queries of a causal document."""
    if windowed and training.model.chunked:
        return _pairs_in_chunks(tokens, float(training.model.window)) / 2.0
    width = minimum(float(training.model.window), tokens) if windowed else tokens
    return width * tokens - width * width / 2.0


def _mean(training: Training, length: Real, *, windowed: bool) -> Real:
    width = minimum(float(training.model.window), length) if windowed else length
    if windowed and training.model.chunked:
        pairs = _pairs_in_chunks(length, width) / length
        return pairs / 2.0 if training.model.causal else pairs
    return width - width * width / (2 * length) if training.model.causal else width


def _pairs_in_chunks(tokens: Real, width: Real) -> Real:
    """Return the number of token pairs within chunks of *width* tokens.

    >>> _pairs_in_chunks(20.0, 8.0)
    144.0
    """
    whole = floor(tokens / width)
    rest = tokens - whole * width
    return whole * width * width + rest * rest


def _documents(training: Training) -> Iterator[Real]:
    """Yield the tokens of each document of a sequence; one number if all are equal."""
    if training.documents:
        yield from map(float, training.documents)
    else:
        yield training.sequence if training.document is None else training.document
