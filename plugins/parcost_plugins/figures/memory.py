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
        column=3,
        title="memory",
        value=used,
        unit="GiB",
        formula=Formula(text="the memory terms of the fullest device, added up"),
        note="on the fullest device at its fullest moment",
        brief="usable",
        whole=usable * capacity,
    )
    yield Figure(
        name="headroom",
        column=5,
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
