"""Traffic that hides under compute leaves compute something to run on."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost_plugins.vocabulary import Cluster, Overlap


def rules(study: Study) -> Iterator[Check]:
    """Return the rules of the overlap: what it leaves of the device, and of the buckets."""
    taken, of = study[Overlap].multiprocessors, study[Cluster].device.multiprocessors
    yield Check(
        id="multiprocessors-taken",
        holds=taken < of,
        subject="overlap.multiprocessors",
        message="collectives take {taken} multiprocessors, and the device has {of}",
        inputs={"taken": taken, "of": of},
    )
    overlap = study[Overlap]
    yield Check(
        id="first-bucket-large",
        holds=overlap.first_bucket <= overlap.bucket,
        subject="overlap.first_bucket",
        message="the first bucket holds {first:.4g} MB and the others {bucket:.4g} MB: it leaves "
        "early only if it is smaller",
        inputs={"first": overlap.first_bucket / 1e6, "bucket": overlap.bucket / 1e6},
        help="take {bucket:.4g} MB or less, or leave it out",
    )
