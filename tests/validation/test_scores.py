"""Scores of tiny sets, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost_measured.validation.scores import (
    count_pairs,
    quantile,
    rates,
    regret,
    score,
    weights_of,
)


def test_a_score_of_five_errors() -> None:
    """Sizes 5, 10, 20, 30, 60 %: the p90 lies 0.6 of the way from the fourth to the fifth."""
    found = score([-0.1, 0.2, -0.3, 0.05, -0.6])
    assert found is not None
    assert found.n == 5
    assert found.mape == pytest.approx((0.1 + 0.2 + 0.3 + 0.05 + 0.6) / 5)
    assert found.median == pytest.approx(0.2)
    assert found.mean == pytest.approx(-0.75 / 5)
    assert found.p90 == pytest.approx(0.3 + 0.6 * 0.3)


def test_an_even_number_has_the_median_between_two() -> None:
    found = score([0.1, -0.3, 0.2, 0.4])
    assert found is not None
    assert found.median == pytest.approx(0.25)


def test_no_errors_have_no_score() -> None:
    assert score([]) is None


def test_a_configuration_that_was_measured_twice_counts_once() -> None:
    """Errors of 40 % twice and 10 % once: with a half each, (0.4 + 0.1) / 2."""
    weights = weights_of(["a", "a", "b"])
    assert weights == [0.5, 0.5, 1.0]
    found = score([0.4, 0.4, 0.1], weights)
    assert found is not None
    assert found.mape == pytest.approx(0.25)
    assert found.n == 3


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.floats(0, 1))
def test_a_quantile_without_weights_is_numpys(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), abs=1e-9)


def test_a_weight_of_nothing_but_two_is_two_of_one() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5, [2.0, 2.0, 2.0]) == quantile([1.0, 2.0, 3.0], 0.5)


def test_the_regret_is_what_the_chosen_layout_takes_longer() -> None:
    """The second is predicted to be best, takes 5.5 s, and the best takes 5 s."""
    assert regret([4.0, 3.0, 6.0], [5.0, 5.5, 9.0]) == pytest.approx(0.1)
    assert regret([4.0, 5.0, 6.0], [5.0, 5.5, 9.0]) == 0.0


def test_pairs_that_differ_by_more_than_the_margin_count() -> None:
    """10.0 and 10.2 s are one; of the other five pairs, 10.2 before 12 s is predicted wrong."""
    assert count_pairs([1.0, 4.0, 3.0, 5.0], [10.0, 10.2, 12.0, 15.0], 0.03) == (4, 5)
    assert count_pairs([1.0, 1.0], [1.0, 2.0], 0.03) == (0, 1)  # equal is no order


def test_the_baseline_is_the_median_of_each_class() -> None:
    found = rates([1.0, 9.0, 3.0, 10.0, 20.0], ["a", "a", "a", "b", "b"])
    assert found == {"a": 3.0, "b": 15.0}
