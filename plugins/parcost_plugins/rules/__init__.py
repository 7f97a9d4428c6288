"""Rules across blocks: degrees multiply to the devices, the batch divides, and so on.

Rules about one subject are with that subject (layers with the pipeline, heads with tensor
parallelism).
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Outcome, Rulebook, Study, hookimpl
from parcost_plugins.rules import batch, layout, overlap, peaks, plausibility, unread_attributes
from parcost_plugins.rules.rulebook import RULES


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of layout, batch, overlap, peaks and plausibility."""
    yield from layout.rules(study)
    yield from batch.rules(study)
    yield from overlap.rules(study)
    yield from peaks.rules(study)
    yield from plausibility.rules(study)
    yield from unread_attributes.rules(study)


@hookimpl
def outcome_checks(study: Study, outcome: Outcome) -> Iterator[Check]:  # noqa: ARG001
    """Return warnings for a valid step: attributes without effect on its time."""
    yield from unread_attributes.term_rules(study)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
