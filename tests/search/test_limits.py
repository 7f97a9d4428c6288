"""What a search demands of a layout, from what the block `search` says."""

from __future__ import annotations

import pytest

import parcost
from parcost_plugins.search_space.goal import limits

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
training { sequence = 4096, global_batch = 64 sequences }
search { deadline = 10 day, tokens = 262.144 G, least_tokens_per_second = 131072 }
"""


def test_a_deadline_leaves_each_step_its_share() -> None:
    """A step has 64 x 4096 of the 262.144 G tokens: a millionth, which is 0.864 s of ten days."""
    (scenario,) = parcost.load_text(TEXT)
    (study,) = scenario.studies()
    found = {limit.name: limit for limit in limits(study)}
    for name, longest in (("deadline", 0.864), ("least_tokens_per_second", 2.0)):
        assert found[name].holds(longest * (1 - 1e-9), 0.0)
        assert not found[name].holds(longest * (1 + 1e-9), 0.0)
    assert found["deadline"].says == "2.621e+11 tokens within 10 days"


def test_a_limit_of_memory_is_stated_in_gib() -> None:
    (scenario,) = parcost.load_text(TEXT.replace("search {", "search { most_memory = 40 GiB, "))
    (study,) = scenario.studies()
    limit = next(iter(limits(study)))
    assert limit.says == "memory <= 40 GiB"
    assert limit.holds(0.0, 40 * 2.0**30)
    assert not limit.holds(0.0, 40 * 2.0**30 + 1)


@pytest.mark.parametrize("written", ["deadline = 10 day, ", "tokens = 262.144 G, "])
def test_a_deadline_without_tokens_is_none(written: str) -> None:
    (scenario,) = parcost.load_text(TEXT.replace(written, ""))
    (study,) = scenario.studies()
    assert [limit.name for limit in limits(study)] == ["least_tokens_per_second"]
