"""Rules that join several blocks: the layout multiplies up, the batch divides, and so on.

Rules that concern one subject stand with it (layers with the pipeline, heads with
tensor parallelism).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parcost import Check, Outcome, Rulebook, Study, hookimpl
from parcost_plugins.rules import batch, layout, overlap, peaks, plausibility, unread_attributes


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of the layout, the batch, the overlap, the peaks and what is plausible."""
    yield from layout.rules(study)
    yield from batch.rules(study)
    yield from overlap.rules(study)
    yield from peaks.rules(study)
    yield from plausibility.rules(study)
    yield from unread_attributes.rules(study)


@hookimpl
def outcome_checks(study: Study, outcome: Outcome) -> Iterator[Check]:  # noqa: ARG001
    """Return warnings of a step that runs: attributes without which it takes as long."""
    yield from unread_attributes.priced_rules(study)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="batch_and_layout", file=Path(__file__).with_name("rules.toml"))]
