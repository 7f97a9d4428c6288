"""Traffic that hides under compute leaves compute something to run on."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost_plugins.vocabulary import Cluster, Overlap


def rules(study: Study) -> Iterator[Check]:
    """Return the rule that joins the overlap and the device."""
    taken, of = study[Overlap].multiprocessors, study[Cluster].device.multiprocessors
    yield Check(
        id="multiprocessors-taken",
        holds=taken < of,
        subject="overlap.multiprocessors",
        message="collectives take {taken} multiprocessors, and the device has {of}",
        inputs={"taken": taken, "of": of},
    )
