"""Figures of the highest peak memory of a device."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Real, Study, attribute, formula
from parcost_plugins.vocabulary import Cluster, MemoryBudget


def peak_memory(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the highest peak memory of a device, and its free memory."""
    device, budget = study[Cluster].device, study[MemoryBudget]
    held: dict[str, Real] = {}
    for line in outcome.memory_lines:
        held[line.name] = held.get(line.name, 0.0) + line.bytes_
    used = formula(
        "sum(M)",
        M=(held, "B"),
        source="sum of the memory terms at the peak, on the device with the highest peak",
    )
    yield Figure(
        name="memory",
        column=3,
        title="memory",
        value=outcome.memory_bytes,
        unit="GiB",
        formula=used,
        note="peak, on the device with the highest peak",
        brief="usable",
        whole=budget.usable * device.memory,
    )
    yield Figure(
        name="headroom",
        column=5,
        title="headroom",
        value=formula(
            "usable capacity - memory",
            usable=attribute(budget, "usable"),
            capacity=(attribute(device, "memory"), "B"),
            memory=(used, "B"),
        ),
        unit="GiB",
        note="usable memory - memory",
    )
