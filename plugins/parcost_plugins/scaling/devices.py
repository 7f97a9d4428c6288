"""Efficiency as a number of devices: what the job does, and what it loses."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real
from parcost_plugins.scaling.saying import figure, plain
from parcost_plugins.vocabulary import Equivalent

#: Where practitioners draw the lines, from the best on.
RATINGS = ((0.8, "excellent"), (0.7, "very good"), (0.5, "fair"), (0.0, "a problem"))


def figures(job: Equivalent) -> Iterator[Figure]:
    """Yield the devices' worth of work, and of idling."""
    yield figure(
        job,
        "devices",
        "devices' worth of work",
        job.devices * job.efficiency,
        "",
        plain("N e", N=job.devices, e=job.efficiency),
        rating(job.efficiency),
    )
    yield figure(
        job,
        "lost",
        "devices' worth lost",
        job.devices * (1.0 - job.efficiency),
        "",
        plain("N (1 - e)", N=job.devices, e=job.efficiency),
    )


def rating(efficiency: Real) -> str:
    """Return what practitioners call it; nothing for many points at once.

    >>> rating(0.75), rating(0.42)
    ('very good', 'a problem')
    """
    if not isinstance(efficiency, (float, int)):
        return ""
    return next(name for least, name in RATINGS if efficiency >= least)
