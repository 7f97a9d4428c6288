"""The wait for training data."""

from __future__ import annotations

import pytest

from ..evaluation import result

JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster {{ devices = 16 }}
layout {{ pp = {pp}, zero = 1 }}
training {{ sequence = 2048, micro_batch = 1, global_batch = 64 sequences }}
"""
TOKENS = 2048 * 64


@pytest.mark.parametrize("pp", [1, 2])
def test_a_measured_stall_makes_every_step_longer_by_itself(pp: int) -> None:
    without, job = result(JOB.format(pp=pp)), JOB.format(pp=pp)
    stalled = result(job + "data { stall = 50 ms }")
    assert stalled.figure("step_time") == pytest.approx(without.figure("step_time") + 0.05)


def test_without_prefetching_a_step_waits_for_its_batch() -> None:
    job = JOB.format(pp=1)
    plain = result(job).figure("step_time")
    waits = result(job + "data { rate = 10 M tokens, prefetch = off }").figure("step_time")
    assert waits == pytest.approx(plain + TOKENS / 10e6)


def test_loaders_that_keep_up_cost_nothing() -> None:
    job = JOB.format(pp=1)
    found = result(job + "data { rate = 1 G tokens }")
    assert found.figure("step_time") == result(job).figure("step_time")
    assert not [d for d in found.diagnostics if d.id == "data-starved"]


def test_slow_loaders_are_a_warning_with_the_needed_rate() -> None:
    job = JOB.format(pp=1)
    step = result(job).figure("step_time")
    found = result(job + "data { rate = 100 k tokens }")
    (reported,) = [d for d in found.diagnostics if d.id == "data-starved"]
    assert f"waits {TOKENS / 1e5 - step:.4g} s" in reported.message
    assert reported.help is not None
    assert f"deliver {TOKENS / step:.4g} tokens/s" in reported.help
