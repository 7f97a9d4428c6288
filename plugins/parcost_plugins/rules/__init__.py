"""Rules that join several blocks: the layout multiplies up, and the batch divides.

Rules that concern one subject stand with it (layers with the pipeline, heads with
tensor parallelism).
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study, hookimpl
from parcost_plugins.rules import batch, layout, peaks


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of the layout, of the batch and of the peaks."""
    yield from layout.rules(study)
    yield from batch.rules(study)
    yield from peaks.rules(study)
