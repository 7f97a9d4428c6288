"""Queries: what an answer depends on is what was read, and nothing is computed twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from parcost import Real, Study, block, integer, pure_function, word
from parcost.contract.schema import quantity
from parcost.engine.study import SpecStudy
from parcost.language.units import ONE
from parcost.plugins.discovery import load
from parcost.search.variants import Choice, Variants

CALLS: list[str] = []


@block("shape")
class Shape:
    """A block whose attributes are on axes."""

    tp: int = integer(doc="ranks", structural=True)
    zero: int = integer(doc="stage", structural=True, minimum=0)
    kind: str = word("a", "b", "c", doc="kind")
    weight: Real = quantity(ONE, doc="a number that is on no axis")


def study() -> Study:
    """Return a study of one block without any plugin."""
    shape = Shape(tp=1, zero=0, kind="a", weight=2.0)
    return SpecStudy("s", {Shape: (shape,)}, load(installed=False))


def variants() -> Variants:
    """Return the study under 2 x 3 x 3 values."""
    values: dict[str, list[Any]] = {"tp": [1, 2], "zero": [0, 1, 2], "kind": ["a", "b", "c"]}
    choices = [
        Choice(name=f"shape.{name}", schema=Shape, label="", attribute=name, values=some)
        for name, some in values.items()
    ]
    return Variants(study(), choices)


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


def ranks(study: Study) -> Real:
    """Return a number that depends on `tp` alone."""
    CALLS.append("ranks")
    return 2.0 * study[Shape].tp * study[Shape].weight


def shards(study: Study) -> Real:
    """Return a number that reads `zero` only where there are several ranks."""
    CALLS.append("shards")
    return study.query(ranks) if study[Shape].tp == 1 else 10.0 * study[Shape].zero


def splits(study: Study) -> bool:
    """Return a truth value that is one of two for three words."""
    CALLS.append("splits")
    return study[Shape].kind == "c"


def passes(study: Study) -> tuple[int, ...]:
    """Return what depends on that truth value."""
    CALLS.append("passes")
    return (1, 2, 3) if study.query(splits) else (1, 2)


def values_over(several: Variants, function: Callable[..., Any]) -> dict[tuple[int, ...], Any]:
    """Return the answer of a query under all combinations."""
    every = product(*map(range, several.shape))
    return {at: several.study_of(at).query(function) for at in every}


def test_an_answer_is_computed_once_for_each_value_that_it_reads() -> None:
    found = values_over(variants(), ranks)
    assert CALLS == ["ranks", "ranks"]
    assert all(value == 4.0 * (1, 2)[at[0]] for at, value in found.items())


def test_what_is_read_may_depend_on_what_was_read_before() -> None:
    found = values_over(variants(), shards)
    assert CALLS.count("shards") == 1 + 3  # tp = 1, and tp = 2 under three stages
    assert all(value == (4.0 if at[0] == 0 else 10.0 * at[1]) for at, value in found.items())


def test_a_query_reads_what_the_queries_that_it_asks_have_read_whether_known_or_not() -> None:
    several = variants()
    several.study_of((0, 0, 0)).query(ranks)
    found = values_over(several, shards)
    assert found[0, 2, 2] == 4.0
    assert found[1, 2, 2] == 20.0


def test_a_query_depends_on_a_plain_answer_and_not_on_what_it_was_made_from() -> None:
    found = values_over(variants(), passes)
    assert CALLS.count("splits") == 3
    assert CALLS.count("passes") == 2
    assert {at: len(value) for at, value in found.items()} == {
        at: 3 if at[2] == 2 else 2 for at in found
    }


def test_an_answer_that_holds_the_study_is_refused_where_it_would_be_another() -> None:
    def identity(study: Study) -> Study:
        assert study[Shape].kind
        return study

    def outer(study: Study) -> int:
        return study.query(identity)[Shape].zero + study[Shape].zero

    several = variants()
    assert several.study_of((0, 1, 0)).query(outer) == 2
    with pytest.raises(ValueError, match=r"`shape\.zero` was read at two points"):
        several.study_of((0, 2, 0)).query(outer)


def test_a_failed_query_is_evaluated_again_and_its_reads_count() -> None:
    def failure(study: Study) -> float:
        CALLS.append("failing")
        if study[Shape].zero == 1:
            raise ZeroDivisionError
        return 1.0

    def recovery(study: Study) -> tuple[float]:
        try:
            return (study.query(failure),)
        except ZeroDivisionError:
            return (0.0,)

    found = values_over(variants(), recovery)
    assert all(value == (0.0 if at[1] == 1 else 1.0,) for at, value in found.items())


def test_arrays_are_known_by_what_they_hold() -> None:
    def double(_: Study, numbers: Any) -> Any:
        CALLS.append("doubled")
        return 2 * numbers

    one = study()
    first = one.query(double, np.array([1.0, 2.0]))
    assert one.query(double, np.array([1.0, 2.0])) is first
    assert one.query(double, np.array([1.0, 3.0])).tolist() == [2.0, 6.0]
    assert len(CALLS) == 2


def test_a_pure_function_is_called_once_for_all_studies_with_the_same_plugins() -> None:
    @pure_function
    def area(width: Any, height: Any) -> Any:
        CALLS.append("area")
        return width * height

    one = study()
    assert one.query(area, 2.0, 3.0) == 6.0
    assert one.fresh().query(area, 2.0, 3.0) == 6.0
    assert len(CALLS) == 1
    assert isinstance(one.query(area, 2, 3), int)  # 6 and 6.0 are spelled apart
    assert one.query(area, np.array([2.0]), 3.0).tolist() == [6.0]


def test_reading_an_axis_outside_of_a_query_is_plain() -> None:
    shape = variants().study_of((1, 2, 1))[Shape]
    assert (shape.tp, shape.zero, shape.kind, shape.weight) == (2, 2, "b", 2.0)
    with pytest.raises(AttributeError, match="`Shape` has no attribute `pp`"):
        _ = shape.pp  # type: ignore[attr-defined]
