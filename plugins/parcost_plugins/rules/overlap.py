"""Hidden communication must leave multiprocessors for compute."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost_plugins.vocabulary import Cluster, Overlap, multiprocessors_taken
from parcost_plugins.vocabulary.run_choices import gradient_bucket


def rules(study: Study) -> Iterator[Check]:
    """Return the rules of overlap: remaining multiprocessors, and buckets."""
    taken, of = multiprocessors_taken(study), study[Cluster].device.multiprocessors
    overlap = study[Overlap]
    yield Check(
        id="multiprocessors-taken",
        holds=taken < of,
        subject="device.collective_multiprocessors"
        if overlap.multiprocessors is None
        else "overlap.multiprocessors",
        message="collectives take {taken} multiprocessors, and the device has {of}",
        inputs={"taken": taken, "of": of},
        help="take fewer than {of}; 0 if the device has separate engines for collectives",
    )
    first, bucket = overlap.first_bucket, gradient_bucket(study)
    if first is None:
        return
    yield Check(
        id="first-bucket-large",
        holds=first <= bucket,
        subject="overlap.first_bucket",
        message="the first gradient bucket has {first:.4g} MB and the others {bucket:.4g} MB: its "
        "reduction starts early only if it is smaller",
        inputs={"first": first / 1e6, "bucket": bucket / 1e6},
        help="take {bucket:.4g} MB or less, or leave it out",
    )
