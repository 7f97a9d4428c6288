"""Efficiency as a number of devices: what the job does, and what it loses."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real
from parcost.numeric import is_array
from parcost_plugins.scaling.saying import figure, plain
from parcost_plugins.vocabulary import Equivalent, Targets


def figures(job: Equivalent, targets: Targets) -> Iterator[Figure]:
    """Yield the devices' worth of work, and of idling."""
    yield figure(
        job,
        "devices",
        "devices' worth of work",
        job.devices * job.efficiency,
        "",
        plain("N e", N=job.devices, e=job.efficiency),
        rating(job.efficiency, targets),
    )
    yield figure(
        job,
        "lost",
        "devices' worth lost",
        job.devices * (1.0 - job.efficiency),
        "",
        plain("N (1 - e)", N=job.devices, e=job.efficiency),
    )


def rating(efficiency: Real, targets: Targets) -> str:
    """Return what practitioners call it; nothing for many points at once."""
    if is_array(efficiency, targets.excellent, targets.very_good, targets.fair):
        return ""
    if efficiency >= targets.excellent:
        return "excellent"
    if efficiency >= targets.very_good:
        return "very good"
    return "fair" if efficiency >= targets.fair else "a problem"
