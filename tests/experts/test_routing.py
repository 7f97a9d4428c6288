"""How uneven counts of tokens are, and how many places a token goes to."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost import Study
from parcost_plugins.physics.routing import (
    capacity,
    distinct_groups,
    largest_of,
    load_imbalance,
    random_load,
    routing_load,
)

from ..rows import try_each


@pytest.mark.parametrize(
    ("assignments", "bins", "expected"),
    [(4096, 64, 1.2974), (4096, 64, 1.30), (65_536, 64, 1.075)],
)
def test_the_busiest_bin_by_chance_alone(assignments: int, bins: int, expected: float) -> None:
    digits = 5e-5 if expected == 1.2974 else 5e-3
    assert random_load(float(assignments), float(bins)) == pytest.approx(expected, abs=digits)


def test_the_busiest_of_many_bins_is_near_what_was_drawn() -> None:
    assert random_load(32_768.0, 256.0) == pytest.approx(1.26, rel=0.01)


def test_popularity_adds_to_chance() -> None:
    assert random_load(65_536.0, 64.0, 6400.0) == pytest.approx(1.25, abs=0.005)
    assert 1.75 <= random_load(65_536.0, 64.0, 640.0) <= 1.90


@try_each("assignments, bins", [(4096, 64), (65_536, 64), (2048, 8), (512, 16)])
def test_chance_is_within_three_percent_of_counting(assignments: int, bins: int) -> None:
    draws = np.random.default_rng(7).multinomial(assignments, [1 / bins] * bins, size=4000)
    counted = draws.max(axis=1).mean() * bins / assignments
    assert random_load(float(assignments), float(bins)) == pytest.approx(counted, rel=0.03)


def test_a_dirichlet_is_within_twelve_percent_of_drawing() -> None:
    draw = np.random.default_rng(11)
    popular = draw.dirichlet([100.0] * 64, size=2000)
    counted = np.mean([draw.multinomial(65_536, p).max() for p in popular]) * 64 / 65_536
    assert random_load(65_536.0, 64.0, 6400.0) == pytest.approx(counted, rel=0.12)


@given(st.integers(1, 4096), st.integers(1, 512))
def test_the_busiest_has_the_mean_at_least(tokens: int, bins: int) -> None:
    assert random_load(float(tokens * bins), float(bins)) >= 1.0


@given(st.integers(2, 512))
def test_many_tokens_even_out(bins: int) -> None:
    loads = [random_load(float(10**n * bins), float(bins)) for n in range(2, 9)]
    assert loads == sorted(loads, reverse=True)
    assert loads[-1] == pytest.approx(1.0, abs=5e-4)


def test_one_bin_gets_everything() -> None:
    assert random_load(4096.0, 1.0) == 1.0
    assert random_load(4096.0, 1.0, 10.0) == 1.0
    assert largest_of(1.0) == 0.0


def test_measured_loads_are_summed_over_the_experts_of_a_rank() -> None:
    loads = (8, 0, 4, 4, 2, 2, 2, 2)
    assert load_imbalance(loads, 8.0) == 8 / 3
    assert load_imbalance(loads, 4.0) == 8 / 6
    assert load_imbalance(loads, 2.0) == 16 / 12
    assert load_imbalance(loads, 1.0) == 1.0
    ranks = np.array([1.0, 2.0, 4.0, 8.0])
    assert list(load_imbalance(loads, ranks)) == [1.0, 16 / 12, 8 / 6, 8 / 3]


@pytest.mark.parametrize(
    ("experts", "top", "groups", "expected"), [(256, 8, 8, 5.294652), (256, 8, 64, 7.675750)]
)
def test_a_token_visits_some_of_the_groups(
    experts: int, top: int, groups: int, expected: float
) -> None:
    assert distinct_groups(float(experts), float(top), float(groups)) == pytest.approx(
        expected, abs=5e-7
    )


@given(st.sampled_from([2, 4, 8, 16]), st.integers(1, 16), st.sampled_from([1, 2, 4, 8]))
def test_as_many_groups_as_counting_choices_says(groups: int, top: int, each: int) -> None:
    experts = groups * each
    if top > experts:
        return
    found = distinct_groups(float(experts), float(top), float(groups))
    counted = groups * (1 - comb(experts - each, top) / comb(experts, top))
    assert found == pytest.approx(counted, rel=1e-12, abs=1e-12)
    assert found <= min(top, groups) + 1e-12


def test_groups_may_be_many_at_once() -> None:
    found = distinct_groups(256.0, 8.0, np.array([8.0, 64.0]))
    assert list(found) == pytest.approx([5.294652, 7.675750], abs=5e-7)


def test_places_are_rounded_up() -> None:
    assert capacity(1.25, 4096.0, 2.0, 8.0) == 1280
    assert capacity(1.0, 100.0, 1.0, 8.0) == 13


@try_each(
    "routing, expected",
    [
        # 8 of 256 experts on each of 32 ranks: sd = sqrt(31 / (15 * 256 + 1)) = 0.0898 of the mean,
        # and the largest of 32 normal deviates is 2.135 on average: 1 + 2.135 * 0.0898
        ("", 1.192),
        ("balancing = auxiliary_loss", 1.192),
        ("auxiliary_concentration = 60", 1.096),
        # sd = sqrt(31 / (0.11 * 256 + 1)) = 1.031
        ("balancing = none", 3.20),
        ("balancing = none, concentration = 3840", 1.192),
    ],
)
def test_a_router_is_as_uneven_as_its_training_leaves_it(
    mixture: Callable[..., Study], routing: str, expected: float
) -> None:
    said = f"distribution = dirichlet, {routing}".rstrip(", ")
    study = mixture("ep = 32", said, training="micro_batch = 8")
    assert routing_load(study) == pytest.approx(expected, rel=2e-3)
