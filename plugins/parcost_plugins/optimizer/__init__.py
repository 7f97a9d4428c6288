"""What happens to gradients on a rank: they accumulate, are clipped, and update parameters.

All of it streams through the device's memory and multiplies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Study, hookimpl
from parcost_plugins.optimizer.accumulation import accumulation
from parcost_plugins.optimizer.update import clipping, update
from parcost_plugins.vocabulary import Stream


@hookimpl
def operators(study: Study) -> Iterator[Stream]:
    """Return what adds the gradients of a micro-batch to those of the ones before."""
    yield from accumulation(study)


@hookimpl
def terms(study: Study) -> Iterator[Once]:
    """Estimate the gradient norm with its clipping, and the update, after all have drained."""
    yield from clipping(study)
    yield from update(study)
