"""Legal values next to one that is not, by brute force, and columns of stages."""

from __future__ import annotations

import numpy as np

from parcost_plugins.schedules.stage_times import (
    is_uniform,
    maximum_of,
    minimum_of,
    multiples,
    one_chunk,
    two_chunks,
)


def test_multiples_by_brute_force() -> None:
    """The nearest multiples on both sides of a value, which is none, and at least so many."""
    for unit in range(1, 7):
        for value in range(30):
            for least in (0, 1, 5, 12):
                legal = [n for n in range(unit, 100, unit) if n >= least]
                below = [n for n in legal if n <= value][-1:] or legal[:1]
                above = [n for n in legal if n >= value][:1]
                expected = " or ".join(map(str, sorted({*below, *above})))
                assert multiples(value, unit, least) == expected, (value, unit, least)


def test_how_many_chunks_a_schedule_takes() -> None:
    assert [one_chunk(n) is None for n in (1, 2, 3)] == [True, False, False]
    assert [two_chunks(n) is None for n in (1, 2, 3)] == [False, True, False]


def test_columns_that_are_the_same_on_every_stage() -> None:
    assert is_uniform()
    assert is_uniform([1.0], [2.0, 2.0])
    assert not is_uniform([1.0, 1.0], [2.0, 2.0, 3.0])
    some = np.array([1.0, 2.0])
    assert is_uniform([some, some])
    assert [*np.atleast_1d(is_uniform([some, np.array([1.0, 3.0])]))] == [True, False]


def test_the_largest_and_the_smallest_elementwise() -> None:
    a, b = np.array([1.0, 5.0, 3.0]), np.array([2.0, 4.0, 3.0])
    assert np.array_equal(maximum_of([a, b, 1.5]), [2.0, 5.0, 3.0])
    assert np.array_equal(minimum_of([a, b, 3.5]), [1.0, 3.5, 3.0])
    assert (maximum_of([3.0]), minimum_of(iter([3.0, 2.0, 4.0]))) == (3.0, 2.0)
