"""When to save, and what failures leave: Young, Daly and the exact share."""

from __future__ import annotations

import random

import numpy as np
import pytest

import parcost
from parcost_plugins.operations.failures import (
    daly,
    useful_fraction,
    useful_fraction_without_failures,
    young,
)

from ..evaluation import result

M = 54 * 24 * 3600 / 419  # Llama 3: 419 unexpected interruptions in 54 days
JOB = """
reliability {{ mtbf = 54 day / 419, devices = 16_384, restart = 600 s }}
checkpoint {{ blocking = 30 s {more} }}
"""


def test_llama_3_failed_every_three_hours() -> None:
    found = result(JOB.format(more=""))
    assert found.figure("mtbf") / 3600 == pytest.approx(3.093, abs=5e-4)
    assert found.figure("device_mtbf") / 3600 == pytest.approx(50_677, abs=0.5)
    assert found.figure("device_mtbf") / 3600 / 24 / 365.25 == pytest.approx(5.8, abs=0.05)


def test_young_and_daly_on_the_fleet_of_llama_3() -> None:
    found = result(JOB.format(more=""))
    assert found.figure("checkpoint.young") == pytest.approx(817.4, abs=0.05)
    assert found.figure("checkpoint.daly") == pytest.approx(797.5, abs=0.05)
    assert found.figure("checkpoint.interval") == found.figure("checkpoint.daly")
    assert found.figure("goodput") == pytest.approx(0.8797, abs=5e-5)


def test_the_exact_share_at_a_given_interval() -> None:
    assert useful_fraction(798.0, 30.0, 11135.08, 600.0) == pytest.approx(0.87968, abs=5e-6)
    found = result(JOB.format(more=", interval = 798 s"))
    assert found.figure("goodput") == pytest.approx(0.8797, abs=5e-5)


def test_the_chosen_optimum_is_used() -> None:
    found = result(JOB.format(more=", optimum = young"))
    assert found.figure("checkpoint.interval") == found.figure("checkpoint.young")


def test_daly_is_the_best_interval_within_a_second() -> None:
    intervals = np.arange(600.0, 1000.0, 0.1)
    best = intervals[np.argmax(useful_fraction(intervals, 30.0, M, 600.0))]
    assert abs(best - daly(30.0, M)) < 1.0


def test_a_checkpoint_that_takes_twice_the_time_between_failures_is_taken_every_mtbf() -> None:
    assert daly(250.0, 100.0) == 100.0
    assert daly(np.array([1.0, 250.0]), 100.0) == pytest.approx([daly(1.0, 100.0), 100.0])


def test_the_exact_share_is_that_of_a_simulated_job() -> None:
    tau, C, mtbf, R = 800.0, 60.0, 7200.0, 300.0
    dice = random.Random(7)
    clock = worked = 0.0
    for _ in range(40_000):
        while (fails := dice.expovariate(1 / mtbf)) < tau + C:
            clock += fails
            while (again := dice.expovariate(1 / mtbf)) < R:  # the restart fails too
                clock += again
            clock += R
        clock, worked = clock + tau + C, worked + tau
    assert worked / clock == pytest.approx(useful_fraction(tau, C, mtbf, R), rel=0.01)


def test_the_first_order_holds_where_everything_is_short() -> None:
    first_order = 1 - 5 / 1000 - 1000 / (2 * 1e6) - 20 / 1e6
    assert useful_fraction(1000.0, 5.0, 1e6, 20.0) == pytest.approx(first_order, abs=5e-5)
    found = result(JOB.format(more=", interval = 800 s"))
    by_hand = 1 - 30 / 800 - 800 / (2 * M) - 600 / M
    assert found.figure("goodput_first_order") == pytest.approx(by_hand, rel=1e-12)


def test_a_job_that_hardly_ever_fails_pays_for_its_checkpoints_only() -> None:
    assert useful_fraction(1000.0, 10.0, 1e15, 600.0) == pytest.approx(
        useful_fraction_without_failures(1000.0, 10.0)
    )
    assert useful_fraction_without_failures(990.0, 10.0) == 0.99
    found = result("checkpoint { blocking = 10 s, interval = 990 s }")
    assert found.figure("goodput") == pytest.approx(0.99)


def test_a_job_that_fails_all_the_time_gets_nowhere() -> None:
    assert useful_fraction(1e6, 30.0, 10.0, 600.0) == pytest.approx(0.0, abs=1e-300)


def test_arrays_and_plain_numbers_agree() -> None:
    blocking = np.array([1.0, 30.0, 300.0])
    swept = useful_fraction(daly(blocking, M), blocking, M, 600.0)
    alone = [useful_fraction(daly(c, M), c, M, 600.0) for c in blocking.tolist()]
    assert swept == pytest.approx(alone, rel=1e-14)
    assert young(blocking, M) == pytest.approx([young(c, M) for c in blocking.tolist()])


def test_a_sweep_of_the_restart_gives_what_each_point_gives_alone() -> None:
    text = JOB.format(more="").replace("restart = 600 s", "restart = [60 s, 600 s]")
    rows = parcost.load_text(text)[0].evaluate().rows()
    by_hand = [useful_fraction(daly(30.0, M), 30.0, M, r) for r in (60.0, 600.0)]
    assert [row["goodput"] for row in rows] == pytest.approx(by_hand)


def test_devices_of_customary_reliability_make_a_job_fail_as_often_as_they_are_many() -> None:
    found = result("reliability { restart = 10 min, devices = 1000 }")
    assert found.figure("mtbf") == pytest.approx(50 * 3600.0)


def test_slow_nodes_take_their_share_of_the_goodput() -> None:
    whole = result(JOB.format(more="")).figure("goodput")
    less = result(JOB.format(more="").replace("restart", "lost = 3 %, restart")).figure("goodput")
    assert less == pytest.approx(0.97 * whole)


def test_checkpoints_that_cost_nothing_leave_only_restarts_to_pay_for() -> None:
    text = "reliability { mtbf = 1 h, restart = 360 s }\ncheckpoint { blocking = 0 s }"
    assert result(text).figure("goodput") == pytest.approx(np.exp(-0.1))
