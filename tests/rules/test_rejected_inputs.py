"""A rule says nothing of points at which another rejects what it reads."""

from __future__ import annotations

import pytest

import parcost
from parcost.language.diagnostics import Severity

JOB = """
use catalog.devices.h100_sxm
use catalog.models.llama3_70b
use catalog.precisions.bf16
use catalog.fabrics.hgx_h100
cluster {{ devices = {devices} }}
layout {{ tp = 8, pp = 8 {dp} }}
training {{ sequence = 8192, micro_batch = 1, global_batch = {batch} sequences }}
"""


def rejections(devices: str, batch: int, dp: str = "") -> dict[str, tuple[str, ...]]:
    """Return the notes of each error, by rule."""
    (scenario,) = parcost.load_text(JOB.format(devices=devices, batch=batch, dp=dp))
    found = scenario.evaluate().result.diagnostics
    return {one.id: one.notes for one in found if one.severity is Severity.ERROR}


def test_a_schedule_has_no_length_where_there_are_too_few_devices() -> None:
    """4 devices of 64: dp would be 1/16, and a share of 4096 sequences 65,536 micro-batches."""
    found = rejections("4", 4096)
    assert list(found) == ["devices-few"]
    assert found["devices-few"] == ("not checked until this is fixed: schedule-length",)


def test_a_schedule_that_is_too_long_for_its_own_batch_is_rejected() -> None:
    assert list(rejections("64", 131_072)) == ["schedule-length"]


def test_a_written_degree_follows_from_no_rejected_one() -> None:
    """Of dp = 1, 131,072 sequences are as many micro-batches, however many devices there are."""
    assert list(rejections("4", 131_072, ", dp = 1")) == ["devices-few", "schedule-length"]


@pytest.mark.slow
def test_each_point_of_a_sweep_has_its_own_reason() -> None:
    (scenario,) = parcost.load_text(JOB.format(devices="[4, 64, 1024]", batch=131_072, dp=""))
    (result,) = scenario.evaluate().results
    reasons = [point.reasons for point in result.infeasible]
    assert ["schedule" in str(reason) for reason in reasons] == [False, True]


def test_a_batch_that_does_not_divide_has_no_passes() -> None:
    """Two replicas share 262,144 sequences, and not one fewer."""
    assert list(rejections("128", 262_144)) == ["schedule-length"]
    assert list(rejections("128", 262_143)) == ["batch-divides"]
