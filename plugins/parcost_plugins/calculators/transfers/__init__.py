"""Collectives without a training step: ``transfer`` blocks.

A transfer describes its ranks and their links, or names a level of the fabric or a group. Its
figures are under its label, and tables are on demand. The tables compare algorithms, list the steps
of a ring, and name limits and remedies.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Chart, Check, Figure, Section, Study, hookimpl
from parcost.numeric import any_of
from parcost_plugins.vocabulary import Transfer
from parcost_plugins.vocabulary.answers import mark_details

_HEADLINES = ("seconds", "total_seconds", "bus_bandwidth", "efficiency", "best_chunks")


@hookimpl
def calculations(study: Study) -> Iterator[Check | Figure | Section]:
    """Return the rules, figures and tables of every transfer."""
    for transfer in study.all(Transfer):
        yield from _one(study, transfer)


@hookimpl
def charts(study: Study) -> Iterator[Chart]:
    """Return charts of the time over the message size, by algorithm."""
    if study.all(Transfer):
        from parcost_plugins.calculators.transfers.size_charts import transfer_charts

        yield from transfer_charts(study)


def _one(study: Study, transfer: Transfer) -> Iterator[Check | Figure | Section]:
    from parcost_plugins.calculators.transfers.checks import description_checks, runs, shard
    from parcost_plugins.calculators.transfers.estimate import estimate_transfer
    from parcost_plugins.calculators.transfers.figures import figures
    from parcost_plugins.calculators.transfers.place import place
    from parcost_plugins.calculators.transfers.tables import sections

    rules = list(description_checks(study, transfer))
    yield from rules
    if not _may_run(rules):
        return
    group = place(study, transfer)
    rules = list(runs(study, transfer, group))
    yield from rules
    if not _may_run(rules):
        return
    n = transfer.size * group.ranks if shard(study, transfer) else transfer.size
    estimate = estimate_transfer(study, transfer, group, n)
    yield from mark_details(figures(study, estimate), *_HEADLINES)
    yield from sections(study, estimate)


def _may_run(rules: list[Check]) -> bool:
    """Return whether all *rules* are satisfied at some point of the sweep."""
    return all(any_of(rule.holds) for rule in rules)
