"""Advice: the bottleneck of the step, changes that help, and the inputs that matter.

All sections evaluate the study again with changes. This takes much longer than one evaluation, so
it is done only when the sections are printed.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Section, Study, hookimpl


@hookimpl
def sections(study: Study, outcome: Outcome, brief: bool) -> Iterator[Section]:
    """Yield the levels, changes that reach targets, the best changes, and the least certain inputs.

    With *brief*, yield only the best changes.
    """
    from parcost_plugins.analysis.advice import evidence, levers, placement, settings
    from parcost_plugins.analysis.advice.changes import effects

    if not brief:
        from parcost_plugins.analysis.advice import levels, reach, recomputation

        yield from levels.section(study, outcome)
        yield from reach.section(study, outcome)
        yield from recomputation.section(study, outcome)
    tried = levers.improvements(study)
    values = [] if brief else evidence.values_with_provenance(study)
    orders = placement.orders(study)
    changes = [*(change for _, change in tried), *(value.less for value in values), *orders]
    found = effects(study, outcome, changes)  # all at once: one evaluation for many numbers
    first, last = len(tried), len(tried) + len(values)
    gains = [
        *levers.gains(tried, found[:first]),
        *levers.gains_of_settings(settings.best(study, outcome), outcome),
    ]
    yield levers.section(gains, orders, found[last:])
    if not brief:
        yield evidence.section(values, found[first:last])


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Return the details of each level: ridge, ratio, and sufficient bandwidth."""
    if brief:
        return
    from parcost_plugins.analysis.advice import levels

    yield from levels.figures(study, outcome)
