"""The weight of measured layouts, against the formulas worked out by hand and as properties."""

from __future__ import annotations

from math import exp, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost_plugins.physics.shrinkage import (
    Spread,
    disagree,
    leave_one_out,
    outliers,
    shrink,
    spread_of,
)

SPREAD = Spread(between=0.3, within=0.1)
residual = st.floats(-1.5, 1.5)
spreads = st.builds(Spread, between=st.floats(0.01, 1), within=st.floats(0.01, 1))


def test_weight_and_deviation_are_those_of_the_normal_model() -> None:
    # n = 2: w = 2 x 0.09 / (2 x 0.09 + 0.01) = 0.947; the variance is 0.01 + 0.01 x 0.09 / 0.19.
    found = shrink([0.1, 0.3], SPREAD)
    assert found.weight == pytest.approx(0.18 / 0.19)
    assert found.shift == pytest.approx(0.18 / 0.19 * 0.2)
    assert found.deviation == pytest.approx(sqrt(0.01 + 0.01 * 0.09 / 0.19))


def test_without_an_anchor_the_prediction_stays() -> None:
    found = shrink([], SPREAD)
    assert (found.weight, found.shift) == (0.0, 0.0)
    assert found.deviation == pytest.approx(sqrt(0.09 + 0.01))


def test_with_many_anchors_their_mean_is_the_answer() -> None:
    found = shrink([0.4] * 2_000, SPREAD)
    assert found.shift == pytest.approx(0.4, rel=1e-4)
    assert found.deviation == pytest.approx(0.1, rel=1e-3)


@pytest.mark.slow
@given(residual, spreads)
def test_one_anchor_is_never_believed_whole(one: float, spread: Spread) -> None:
    assert 0.0 < shrink([one], spread).weight < 1.0


@given(st.lists(residual, min_size=1, max_size=6), spreads, st.floats(0.5, 3))
def test_the_interval_holds_every_anchor_and_the_estimate(
    residuals: list[float], spread: Spread, margin: float
) -> None:
    found = shrink(residuals, spread)
    low, high = found.ends(margin)
    assert all(low * (1 - 1e-9) <= exp(one) <= high * (1 + 1e-9) for one in residuals)
    assert low <= exp(found.shift) <= high
    assert found.deviation >= spread.within * (1 - 1e-12)


@given(st.lists(residual, min_size=2, max_size=6), spreads, st.randoms())
def test_the_order_of_anchors_changes_no_bit(
    residuals: list[float], spread: Spread, random: object
) -> None:
    before = shrink(residuals, spread)
    again = [*residuals]
    random.shuffle(again)  # type: ignore[attr-defined]
    assert shrink(again, spread) == before
    assert disagree(again, spread) == disagree(residuals, spread)


def test_an_outlier_among_three_is_found_and_two_that_contradict_disagree() -> None:
    assert outliers([0.02, 0.05, 0.9], SPREAD) == [2]
    assert outliers([0.02, 0.9], SPREAD) == []
    assert disagree([-0.4, 0.4], SPREAD)
    assert not disagree([0.3, 0.45], SPREAD)


def test_leaving_one_out_predicts_it_by_the_others() -> None:
    # One other of 0.2: w = 0.9, so 0.3 is 0.3 - 0.18 away and 0.2 is 0.2 - 0.27.
    assert leave_one_out([0.3, 0.2], SPREAD) == pytest.approx([0.12, -0.07])


def test_the_spread_of_jobs_is_that_about_their_means_and_of_these() -> None:
    # Means 0.2 and -0.2, each layout 0.1 off: within^2 = 4 x 0.01 / 2, between^2 = 0.04 - 0.01.
    found = spread_of([[0.1, 0.3], [-0.1, -0.3], [0.7]])
    assert found.within == pytest.approx(sqrt(0.02))
    assert found.between == pytest.approx(sqrt(0.03))
