"""Local updates and model copies, and the rules of data parallelism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parcost.engine.rules import diagnose
from parcost.plugins.discovery import load
from parcost_plugins.vocabulary import Parameters

from ..rows import try_each
from .data_terms import FOUR, Bind, once_terms, parameters_record


def test_a_meeting_is_an_average_over_the_steps_between(bind: Bind) -> None:
    """Four workers in three parts every 12 steps: 2 x 3/4 of a third of 3 B, a quarter as often.

    Two replicas of a worker share the parameters out from ZeRO 1 on.
    """
    values = {
        "local_updates.workers": 4,
        "local_updates.period": 12,
        "local_updates.fragments": 3,
        "local_updates.wire": 3,
        "local_updates.overlap_steps": 2,
        "training.global_batch": 40,
        "layout.zero": 1,
    }
    study = bind(values, parameters=[parameters_record(4e9)])
    # of 2 GB in each part half a step's five micro-batches are beside it
    seconds, bytes_, beside, _ = once_terms(study)["outer all-reduce"]
    assert (seconds, bytes_, beside) == pytest.approx((1.5 * 2 / 4, 2 / 4, 2 * 5 / 4))


@pytest.mark.parametrize(("zero", "shards"), [(0, 1), (1, 2)])
def test_two_stages_that_run_both_ways_add_their_copies_up(
    bind: Bind, zero: int, shards: int
) -> None:
    (dualpipe,) = (s for _, s in load().offers("schedules").values() if s.name == "dualpipe")
    values = {"layout.pp": 2, "schedule.kind": "dualpipe", "layout.zero": zero}
    values |= {"cluster.devices": 4, "training.global_batch": 16}
    study = bind(values, schedules=[dualpipe], parameters=[parameters_record(1e9, (1.0, 1.0))])
    seconds, bytes_, _, _ = once_terms(study)["all-reduce between copies of a stage"]
    assert (seconds, bytes_) == pytest.approx((4 / shards, 4 / shards))
    usual = bind(
        {"layout.pp": 2, "layout.zero": zero}, parameters=[parameters_record(1e9, (1.0, 1.0))]
    )
    assert "all-reduce between copies of a stage" not in once_terms(usual)


def test_what_the_last_stage_holds_twice_is_added_up_twice(bind: Bind) -> None:
    twice = Parameters(name="tied", elements=1e9, total=0.0, count=(0.0, 2.0), place="after")
    values = {**FOUR, "layout.pp": 2, "small.layers": 8}
    study = bind(values, parameters=[parameters_record(1e6, (4.0, 4.0)), twice])
    assert once_terms(study)["shared embedding all-reduce"][:2] == pytest.approx((8.0, 8.0))


SHARDS = {"layout.zero": 1}
IDS = (
    "shard-divides",
    "shard-without-zero",
    "shard-of-experts",
    "sharding-unused",
    "workers-one",
    "workers-divide",
    "workers-experts",
    "fragments-many",
    "overlap-long",
    "compression-needs-whole-gradients",
    "compression-hybrid",
)


def workers(
    workers: int = 2, period: int = 100, fragments: int = 1, steps: int = 0
) -> dict[str, int]:
    return {
        "local_updates.workers": workers,
        "local_updates.period": period,
        "local_updates.fragments": fragments,
        "local_updates.overlap_steps": steps,
    }


def complaints(bind: Bind, values: dict[str, Any]) -> dict[str, Any]:
    """Return what the rules of data parallelism say, on eight devices."""
    study = bind(values, parameters=[parameters_record(1e9, [1.0] * values.get("layout.pp", 1))])
    checks = [c for _, c in study.contributions("checks") if c.id in IDS and not np.all(c.holds)]
    assert study.faults == []
    return {check.id: diagnose(check, study) for check in checks}


@try_each(
    "values, failed",
    [
        ({}, set()),
        # shares of the ranks that hold the same: 4 x 2, less the other workers
        ({**SHARDS, "layout.cp": 2, "sharding.shard": 8}, set()),
        ({**SHARDS, "layout.cp": 2, "sharding.shard": 4}, set()),
        ({**SHARDS, "layout.cp": 2, "sharding.shard": 4, **workers()}, set()),
        ({**SHARDS, "sharding.shard": 3}, {"shard-divides"}),
        ({**SHARDS, "sharding.shard": 2.5}, {"shard-divides"}),
        ({**SHARDS, "cluster.devices": 9, "sharding.shard": 3}, set()),
        ({**SHARDS, "cluster.devices": 9, "sharding.shard": 4}, {"shard-divides"}),
        ({**SHARDS, "cluster.devices": 5, "layout.tp": 2}, set()),  # others say it
        ({"sharding.shard": 4}, {"shard-without-zero"}),
        ({"sharding.shard": 8}, set()),
        ({"sharding.shard": [4, 8]}, {"shard-without-zero"}),
        ({**SHARDS, "sharding.shard": 4, "layout.ep": 2}, {"shard-of-experts"}),
        ({**SHARDS, "sharding.shard": 8, "layout.ep": 2}, set()),
        # choices that change nothing
        ({"layout.zero": 2, "sharding.reshard": "off"}, {"sharding-unused"}),
        ({"layout.zero": 2, "sharding.reshard": "on"}, set()),
        ({"layout.zero": 3, "sharding.reshard": "off"}, set()),
        ({"layout.zero": 3, "sharding.keep_last": "on"}, set()),
        ({"layout.zero": 1, "sharding.keep_last": "on"}, {"sharding-unused"}),
        ({"layout.zero": 1, "sharding.accumulate": "whole"}, {"sharding-unused"}),
        ({"layout.zero": 1, "sharding.accumulate": "shard"}, set()),
        ({"layout.zero": 2, "sharding.accumulate": "whole"}, set()),
        # workers
        (workers(1, period=1), set()),
        (workers(1, period=2), {"workers-one"}),
        (workers(1, period=2, fragments=3), {"workers-one"}),
        (workers(3), {"workers-divide"}),
        ({**workers(2), "cluster.devices": 7}, {"workers-divide"}),
        ({**workers(2), "cluster.devices": 5, "layout.tp": 2}, set()),
        (workers(16), {"workers-divide"}),
        ({**workers(2), "layout.ep": 2}, {"workers-experts"}),
        ({**workers(1), "layout.ep": 2}, {"workers-one"}),
        ({"local_updates.workers": [1, 2], "layout.ep": 2}, {"workers-experts"}),
        (workers(period=10, fragments=10), set()),
        (workers(period=10, fragments=11), {"fragments-many"}),
        (workers(period=10, fragments=11, steps=5), {"fragments-many"}),
        (workers(period=10, fragments=10, steps=1), set()),
        (workers(period=10, fragments=10, steps=2), {"overlap-long"}),
        (workers(period=10, fragments=2, steps=5), set()),
        (workers(period=10, fragments=2, steps=6), {"overlap-long"}),
        # compression
        ({"compression.method": "top_k"}, set()),
        ({"compression.method": "top_k", "layout.zero": 1}, {IDS[9]}),
        ({"compression.method": "int8", "layout.zero": 1}, set()),
        ({"compression.method": "int8", "layout.zero": 1, "layout.cp": 2}, set()),
        ({"compression.method": "int8", "layout.zero": 1, "layout.cp": 2, **workers()}, set()),
        (
            {"compression.method": "int8", "layout.zero": 1, "sharding.shard": 2},
            {"compression-hybrid"},
        ),
    ],
)
def test_incompatible_settings_are_refused(
    bind: Bind, values: dict[str, Any], failed: set[str]
) -> None:
    assert set(complaints(bind, values)) == failed


def test_a_shard_among_workers_says_how_many_ranks_there_are(bind: Bind) -> None:
    found = complaints(bind, {**SHARDS, **workers(), "layout.cp": 2, "sharding.shard": 3})
    assert found["shard-divides"].message == (
        "shards of 3 ranks do not divide the 4 ranks (dp 4 x cp 2 / 2 workers) that hold the same parameters"
    )
    assert found["shard-divides"].help == "shard over 2 or 4 ranks"


def test_what_would_do_in_place_of_a_meeting_that_is_too_long(bind: Bind) -> None:
    found = complaints(bind, workers(period=10, fragments=3, steps=4))
    assert found["overlap-long"].help == "write `overlap_steps` of at most 3"
    assert found["overlap-long"].message == (
        "an exchange of 4 steps overlaps with the next one: 3 fragments are exchanged in 10 steps"
    )
    assert complaints(bind, workers(3))["workers-divide"].help == "write 2 or 4 workers"
