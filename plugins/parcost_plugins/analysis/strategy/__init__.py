"""Parallelism strategies in use, their traffic, and alternatives that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Outcome, Section, Study, hookimpl
from parcost_plugins.vocabulary import Plan


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Return the strategies in use and their traffic; with a ``plan`` block, also alternatives."""
    from parcost_plugins.analysis.strategy import dimensions, traffic

    yield from dimensions.section(study)
    yield from traffic.section(study, outcome)
    if study.get(Plan) is not None:
        from parcost_plugins.analysis.strategy import plan

        yield from plan.section(study)
