"""What a search calls exact is what a single evaluation says, whatever hides under what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcost import Formula, Memory
from parcost.plugins import Plugin
from parcost.search.stack import Windows, merged

Compare = Callable[..., tuple[list[str], int]]

MACHINE = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
cluster { devices = 16 }
fabric f {
  level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us }
  level net { bandwidth = 400 Gbps per_direction, latency = 14 us }
}
training { sequence = 512, global_batch = 32 sequences }
"""
DENSE = "model m { layers = 12, hidden = 3072, heads = 24, vocabulary = 49_152 }\n"
EXPERTS = """
model m {
  layers = 8, hidden = 1536, heads = 16, ffn = 6144, vocabulary = 32_000
  experts = 32, top_k = 4, expert_ffn = 768, shared_experts = 1, dense_first = 1
}
"""
#: Parts of a spec with which terms of different ZeRO stages hide in one window.
MIXED = [
    DENSE + "sharding { shard = 4, replicate = micro_batch }\noverlap { tensor = on }",
    EXPERTS + "routing { hide = shared_experts }",
]


@pytest.mark.parametrize("part", MIXED)
def test_zero_stages_side_by_side_are_what_they_are_by_themselves(
    part: str, compare: Compare
) -> None:
    """Guests of a window take what room there is by name, which stages do not share."""
    axes = {
        "layout.zero": [1, 2, 3],
        "overlap.gradients": ["on"],
        "overlap.parameters": ["off", "on"],
    }
    said, legal = compare(MACHINE + part + "\n", axes)
    assert (said, legal) == ([], 6)


def test_memory_that_is_a_share_of_activations_is_not_added_up() -> None:
    """Two shares of a half leave a quarter, and one of the same bytes leaves a half."""
    formula = Formula(text="a half", inputs={})
    half = Memory(name="kept", bytes_=1.0, formula=formula, of_activations=-0.5)
    plain = Memory(name="plain", bytes_=1.0, formula=formula)
    plugin = Plugin("any")
    found = merged([(plugin, term) for term in (half, half, plain, plain)], Windows())
    assert [(m.of_activations, m.bytes_) for _, m in found] == [(-0.5, 1.0), (-0.5, 1.0), (0.0, 2.0)]
