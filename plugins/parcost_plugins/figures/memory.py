"""How full the fullest device gets."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Study
from parcost_plugins.vocabulary import Cluster, MemoryBudget


def room(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the memory of the fullest device, and what is left of it."""
    capacity, usable = study[Cluster].device.memory, study[MemoryBudget].usable
    used = outcome.memory_bytes
    yield Figure(
        name="memory",
        title="memory",
        value=used,
        unit="GiB",
        formula=Formula(text="the memory terms of the fullest device, added up"),
        note="on the fullest device at its fullest moment",
    )
    yield Figure(
        name="headroom",
        title="memory left",
        value=usable * capacity - used,
        unit="GiB",
        formula=Formula(
            text="usable capacity - memory",
            inputs={
                "usable": (usable, ""),
                "capacity": (capacity, "B"),
                "memory": (used, "B"),
            },
        ),
        note="of the usable share of the capacity",
    )
