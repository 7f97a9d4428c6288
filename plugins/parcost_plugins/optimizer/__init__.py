"""Work on gradients, from their accumulation to the optimizer update.

It only moves data through device memory, without GEMMs.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Study, Work, hookimpl
from parcost_plugins.optimizer.accumulation import accumulation
from parcost_plugins.optimizer.update import (
    bucket_copies,
    check,
    clipping,
    scaling,
    update,
    zeroing,
)
from parcost_plugins.physics.kernel_times import stream_work


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate the work on gradients over micro-batches, and when all stages have drained."""
    yield from stream_work(accumulation(study), study)
    yield from check(study)
    yield from scaling(study)
    yield from bucket_copies(study)
    yield from zeroing(study)
    yield from clipping(study)
    yield from update(study)
