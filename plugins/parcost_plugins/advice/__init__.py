"""What limits the step, what would change that, and what the answer rests on.

All of it is found by evaluating the study again with something changed. That is slow next
to the evaluation itself, and only done when somebody reads the sections.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Section, Study, hookimpl
from parcost_plugins.advice import evidence, levels, reach, sensitivity


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Return the levels, what reaches the targets, what helps most, and what it rests on."""
    yield from levels.section(study, outcome)
    yield from reach.section(study, outcome)
    yield sensitivity.section(study, outcome)
    yield evidence.section(study, outcome)


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Return ridge, ratio and needed bandwidth of every level."""
    yield from levels.figures(study, outcome)
