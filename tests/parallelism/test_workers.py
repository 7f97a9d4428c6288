"""Workers that train apart, against times by hand."""

from __future__ import annotations

import pytest

import parcost


def test_workers_far_apart_wait_for_the_network_only_when_they_meet() -> None:
    """Clipping of a worker is its own: 50 ms between sites count once a period, not each step."""
    job = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric sites {{
  level node {{ size = 8, bandwidth = 450 GB/s per_direction, latency = 2 us }}
  level wan {{ ports = 8, bandwidth = 10 GB/s per_direction, latency = {latency} }}
}}
cluster {{ devices = 16, fabric = sites }}
layout {{ zero = 1 }}
training {{ sequence = 4096, micro_batch = 1, global_batch = 16 sequences, recompute = full }}
local_updates {{ workers = 2, period = 1000 }}
collectives {{ data = ring }}
"""

    def seconds(latency: str) -> float:
        (scenario,) = parcost.load_text(job.format(latency=latency))
        return scenario.evaluate().result.figure("step_time")

    # a meeting of two workers by a ring is two messages
    assert seconds("50 ms") - seconds("10 us") == pytest.approx(2 * (50e-3 - 10e-6) / 1000)
