"""Spread of prediction errors between jobs and within a job, the basis of anchors.

A job is one model on one device in one precision, run by one source. Repeats of a configuration
count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log

from attrs import frozen

from parcost_measured.validation.intervals import COVERAGE
from parcost_measured.validation.scores import group_by, quantile
from parcost_measured.validation.summary import ScoredRow, device_of
from parcost_plugins.physics.shrinkage import Spread, shrink, spread_of

FEWEST_JOBS = 5  # of a kind that has a spread of its own


@frozen(kw_only=True)
class MeasuredJobs:
    """The jobs of one kind of *model*: ln(measured / predicted) for the layouts of each job."""

    model: str
    jobs: Sequence[Sequence[float]]

    @property
    def spread(self) -> Spread:
        """The standard deviations between jobs and within a job."""
        return spread_of(self.jobs)

    @property
    def margin(self) -> float:
        """The number of standard deviations that covers other layouts of a job with one anchor."""
        spread = self.spread
        pairs = [
            (abs(one - (found := shrink([other], spread)).shift) / found.deviation, 1 / count)
            for job in self.jobs
            for count in [len(job) * (len(job) - 1)]
            for i, one in enumerate(job)
            for j, other in enumerate(job)
            if i != j
        ]
        pairs.sort()
        held, wanted = 0.0, COVERAGE * sum(weight for _, weight in pairs)
        for distance, weight in pairs:
            held += weight
            if held >= wanted:
                return distance
        return pairs[-1][0]


def jobs_of(rows: Sequence[ScoredRow]) -> Mapping[tuple[str, ...], Sequence[float]]:
    """Return ln(measured / predicted) of the layouts of each job, the median for repeats."""
    found = {}
    for key, members in group_by(rows, _job).items():
        repeats = group_by(members, lambda one: one.row.configuration)
        found[key] = [quantile([log(one.ratio) for one in same], 0.5) for same in repeats.values()]
    return found


def job_spreads(rows: Sequence[ScoredRow]) -> Iterator[MeasuredJobs]:
    """Yield the jobs with several layouts, for all models together and for each kind."""
    found = {key: job for key, job in jobs_of(rows).items() if len(job) > 1}
    for model in ("any", "dense", "experts"):
        jobs = [job for key, job in found.items() if model in ("any", key[0])]
        if len(jobs) >= FEWEST_JOBS and spread_of(jobs).between > 0:
            yield MeasuredJobs(model=model, jobs=jobs)


def _job(one: ScoredRow) -> tuple[str, ...]:
    row = one.row
    kind = "experts" if row.is_sparse else "dense"
    return kind, row.source_key, row.model.name, device_of(row), row.numbers or ""
