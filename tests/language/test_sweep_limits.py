"""How many points a sweep may have."""

from __future__ import annotations

import pytest

import parcost
from parcost import SpecError

PIPELINE = "pipeline q { stages = 2, micro_batches = 4, backward = 2 s, forward = %s }\n"


def test_a_sweep_has_as_many_points_as_fit_into_memory() -> None:
    (scenario,) = parcost.load_text(PIPELINE % "range(1 s, 100001 s)")
    with pytest.raises(SpecError) as error:
        _ = scenario.axes
    (found,) = error.value.diagnostics
    assert found.id == "too-many-points"
    assert found.message == "the sweeps have 100,001 points; the limit is 100,000"
    assert found.help == "shorten a list, sweep in parts, or use `parcost search`"


def test_a_sweep_may_have_a_hundred_thousand_points() -> None:
    (scenario,) = parcost.load_text(PIPELINE % "range(1 s, 100000 s)")
    ((_, values),) = scenario.axes
    assert len(values) == 100_000
