"""The verdict on memory: the step fits, is tight, or does not fit."""

from __future__ import annotations

from math import inf

from parcost import Check, Outcome, Real, Study, block_name, hookimpl
from parcost.numeric import ratio
from parcost_plugins.memory.rulebook import RULES
from parcost_plugins.physics import memory_limits
from parcost_plugins.vocabulary import Cluster, MemoryBudget

_GIB = 2.0**30
_MOMENTS = {
    "forward": "in forward",
    "backward": "in backward",
    "loss": "at the loss",
    "end_of_backward": "at the end of backward",
    "optimizer": "in the optimizer update",
    "gather": "while parameters are gathered",
}


@hookimpl
def capacities(study: Study) -> list[Real]:
    """Return the largest accepted memory of a device in bytes, including tight steps."""
    return [memory_limits(study).most]


@hookimpl
def usable_memory(study: Study) -> list[Real]:
    """Return the memory of a device that is usable by a job, in bytes."""
    return [memory_limits(study).usable]


@hookimpl
def outcome_checks(study: Study, outcome: Outcome) -> list[Check]:
    """Return the memory rules: an error if a step does not fit, a warning if it is tight.

    Predictions have errors, and published runs fill their devices. So a step that exceeds the
    usable memory by less than the margin is tight, not an error.
    """
    device, budget, limits = study[Cluster].device, study[MemoryBudget], memory_limits(study)
    needs, moment = outcome.memory_bytes, outcome.memory_moment
    inputs = {
        "stage": outcome.memory_device,
        "needs": needs / _GIB,
        "when": _MOMENTS[moment] if isinstance(moment, str) else "at its peak",
        "room": limits.usable / _GIB,
        "over": (needs - limits.usable) / _GIB,
        "share": 100.0 * ratio(needs, limits.usable),
        "usable": 100.0 * budget.usable,
        "capacity": device.memory / _GIB,
        "device": block_name(device),
        "tight": 100.0 * budget.tight,
        "most": 100.0 * (1.0 + budget.margin),
    }
    return [
        RULES.check(
            "does-not-fit",
            needs <= limits.most,
            "cluster.device",
            notes=("usable: {usable:g} % of the {capacity:.4g} GiB of `{device}`",),
            verdict="does not fit in memory",
            inputs=inputs,
        ),
        RULES.check(
            "memory-tight",
            (needs <= limits.fitting) | (needs > limits.most),
            "cluster.device",
            notes=(
                "may run out of memory: tight means {tight:g} to {most:g} % of the usable memory",
            ),
            factor=inf,
            verdict="tight in memory",
            inputs=inputs,
        ),
    ]
