"""The waiting time for the slowest of many ranks with random step times.

Times of ranks are assumed normal and independent. So the slowest of N is above the mean by the
expected maximum of N normal deviates.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import pi

from parcost import Check, Figure, Formula, Once, Real, Study, formula
from parcost_plugins.physics.routing import EULER
from parcost_plugins.scaling.rulebook import RULES
from parcost_plugins.vocabulary import Cluster, Jitter
from parcost_plugins.vocabulary.causes import STRAGGLERS

SOURCE = "Gumbel 1958, extremes of the normal distribution"


def rules(study: Study) -> Iterator[Check]:
    """Yield the rule that the number of ranks is known."""
    jitter = study[Jitter]
    yield RULES.check("jitter-ranks-unknown", _ranks(study, jitter) is not None, "jitter")


def wait(study: Study) -> Iterator[Once]:
    """Yield the wait, once every stage has drained."""
    jitter = study.get(Jitter)
    if jitter is None:
        return
    ranks = _ranks(study, jitter)
    if ranks is not None:
        yield Once(
            name="wait for the slowest rank",
            cause=STRAGGLERS,
            seconds=_wait(jitter, ranks),
            when="end",
            resource="idle",
        )


def figures(study: Study) -> Iterator[Figure]:
    """Yield the wait, and its number of standard deviations."""
    jitter = study[Jitter]
    ranks = _ranks(study, jitter)
    if ranks is None:
        return
    yield Figure(
        name="jitter.deviations",
        title="slowest rank, in standard deviations above the mean",
        value=_deviations(ranks),
        unit="",
        note="mean of the maximum, by the Gumbel limit: 1 % above the exact at 1,000 ranks",
    )
    yield Figure(
        name="jitter.seconds",
        title="wait for the slowest rank",
        value=_wait(jitter, ranks),
        unit="s",
        note="in every step",
    )


def _wait(jitter: Jitter, ranks: Real) -> Formula:
    return formula(
        "sigma z_N", sigma=(jitter.deviation, "s"), z_N=_deviations(ranks), source=SOURCE
    )


def _deviations(ranks: Real) -> Formula:
    """Return the expected maximum of N standard normal deviates; 0 for one."""
    root = formula("sqrt(2 ln(max(N, 2)))", N=ranks)
    return formula(
        "N > 1 ? r - (ln(ln(N)) + ln(4 pi)) / (2 r) + gamma / r : 0, gamma of Euler",
        N=ranks,
        r=root,
        pi=pi,
        gamma=EULER,
        source=SOURCE,
    )


def _ranks(study: Study, jitter: Jitter) -> Real | None:
    if jitter.ranks is not None:
        return jitter.ranks
    cluster = study.get(Cluster)
    return None if cluster is None else cluster.devices
