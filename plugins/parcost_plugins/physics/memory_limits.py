"""The limits of memory: a step fits, is tight, or does not fit."""

from __future__ import annotations

from parcost import Real, Study, record
from parcost_plugins.vocabulary.hardware import Cluster
from parcost_plugins.vocabulary.training import MemoryBudget


@record(kw_only=True, eq=False)
class MemoryLimits:
    """Limits of the memory of one device, in bytes.

    A job has *usable* bytes. A step with a prediction up to *fitting* bytes fits. Up to *most*
    bytes it is tight, because predictions have errors. Above *most* bytes it does not fit.
    """

    usable: Real
    fitting: Real
    most: Real


def memory_limits(study: Study) -> MemoryLimits:
    """Return the limits of a device of *study*."""
    budget = study[MemoryBudget]
    usable = budget.usable * study[Cluster].device.memory
    return MemoryLimits(
        usable=usable, fitting=budget.tight * usable, most=(1.0 + budget.margin) * usable
    )
