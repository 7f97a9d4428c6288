"""What compression and local updates hold beside the state."""

from __future__ import annotations

import pytest

import parcost
from parcost import Memory

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
model own {{ layers = 4, hidden = 1024, parameters = 1 G }}
cluster {{ devices = {devices} }}
layout {{ {layout} }}
training {{ sequence = 2048, global_batch = 64 sequences }}
{extra}
"""


def memory_terms(devices: int, extra: str, layout: str = "") -> dict[str, Memory]:
    (scenario,) = parcost.load_text(SPEC.format(devices=devices, layout=layout, extra=extra))
    (study,) = scenario.studies()
    return {term.name: term for _, term in study.contributions("memory")}


@pytest.mark.parametrize(("devices", "bytes_"), [(1, 0.0), (2, 4e9), (8, 4e9)])
def test_unsent_gradients_are_kept_with_more_than_one_rank(devices: int, bytes_: float) -> None:
    found = memory_terms(devices, "compression { method = top_k }")
    assert found["compression residual"].bytes_ == bytes_


@pytest.mark.parametrize(("zero", "ranks"), [(0, 1), (1, 4), (2, 4)])
def test_outer_state_is_sharded_from_zero_1_on(zero: int, ranks: int) -> None:
    # 8 B for each of 1e9 parameters; 2 workers of 4 ranks
    extra = "local_updates { workers = 2, period = 10, method = outer }"
    found = memory_terms(8, extra, f"zero = {zero}")
    assert found["outer optimizer state"].bytes_ == 8e9 / ranks


@try_each(
    "layout, groups", [("", 1), ("tp = 2", 3), ("cp = 2", 2), ("pp = 2", 3), ("tp = 2, pp = 2", 5)]
)
def test_every_group_of_more_than_one_rank_has_a_communicator(layout: str, groups: int) -> None:
    # Besides that over dp and cp, which holds the same parameters.
    found = memory_terms(8, "memory { communicator = 1 GB }", layout)
    assert found["communicators"].bytes_ == groups * 1e9
