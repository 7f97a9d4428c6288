"""Efficiency as a number of devices: equivalent devices, and lost devices."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real, Sheet, block_name
from parcost.numeric import is_array
from parcost_plugins.vocabulary import EquivalentDevices, Targets


def figures(job: EquivalentDevices, targets: Targets) -> Iterator[Figure]:
    """Yield the equivalent devices without overhead, and the devices lost."""
    sheet = Sheet(block_name(job), N=job.devices, e=job.efficiency)
    yield sheet(
        "devices",
        "equivalent devices without overhead",
        "",
        "N e",
        note=rating(job.efficiency, targets),
    )
    yield sheet("lost", "devices lost to overhead", "", "N (1 - e)")


def rating(efficiency: Real, targets: Targets) -> str:
    """Return a rating such as "fair"; "" for arrays of points."""
    if is_array(efficiency, targets.excellent, targets.very_good, targets.fair):
        return ""
    if efficiency >= targets.excellent:
        return "excellent"
    if efficiency >= targets.very_good:
        return "very good"
    return "fair" if efficiency >= targets.fair else "a problem"
