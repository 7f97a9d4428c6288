"""Hidden communication must leave multiprocessors for compute."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost_plugins.physics import multiprocessors_taken
from parcost_plugins.physics.run_choices import gradient_bucket
from parcost_plugins.rules.rulebook import RULES
from parcost_plugins.vocabulary import Cluster, Overlap


def rules(study: Study) -> Iterator[Check]:
    """Return the rules of overlap: remaining multiprocessors, and buckets."""
    taken, of = multiprocessors_taken(study), study[Cluster].device.multiprocessors
    overlap = study[Overlap]
    yield RULES.check(
        "multiprocessors-taken",
        taken < of,
        "device.collective_multiprocessors"
        if overlap.multiprocessors is None
        else "overlap.multiprocessors",
        taken=taken,
        of=of,
    )
    first, bucket = overlap.first_bucket, gradient_bucket(study)
    if first is None:
        return
    yield RULES.check(
        "first-bucket-large",
        first <= bucket,
        "overlap.first_bucket",
        first=first / 1e6,
        bucket=bucket / 1e6,
    )
