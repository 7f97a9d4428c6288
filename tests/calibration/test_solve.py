"""The fit of constants to grids, against truths that are known by construction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from parcost_measured.calibration.constants import Constant, ConstantKind
from parcost_measured.calibration.grids import Measurement, TimeGrid, axes_of, bracket
from parcost_measured.calibration.solve import Fit, fit, leave_out, parts_of, problem

pytest.importorskip("scipy")


def constant(name: str, start: float, low: float, high: float, **more: Any) -> Constant:
    kind = ConstantKind(
        block="device", attribute=name, unit="", low=low, high=high, why="a test", reads=["runs"],
        **more,
    )  # fmt: skip
    return Constant(kind=kind, label="x", start=start, low=low, high=high)


RATE = constant("rate", 0.9, 0.5, 1.0)
FIXED = constant("fixed", 0.02, 0.001, 1.0)


def row(i: int, seconds: float, **more: Any) -> Measurement:
    fields = {
        "id": f"r{i}", "place": f"f:{i}", "configuration": f"r{i}", "model": f"m{i % 5}",
        "source": f"s{i % 3}", "device": "x", "layout": (i % 4,),
    }  # fmt: skip
    return Measurement(seconds=seconds, **{**fields, **more})


def grid(
    constants: Sequence[Constant], work: Sequence[float], seconds: Sequence[float], **more: Any
) -> TimeGrid:
    """Return rows that take work / rate + fixed, at all values of the two constants."""
    points = axes_of(constants)
    rate, fixed = points if len(points) == 2 else (points[0], np.zeros(1))
    logs = [np.log(w / rate[:, None] + fixed[None, :]) for w in work]
    return TimeGrid(
        rows=[row(i, s, **more) for i, s in enumerate(seconds)],
        axes=list(range(len(constants))),
        points=[np.log(p) for p in points],
        logs=np.array(logs if len(points) == 2 else [one[:, 0] for one in logs]),
    )


def solve_grids(constants: Sequence[Constant], *grids: TimeGrid, folds: int = 5) -> Fit:
    return fit(problem(constants, grids), lambda one: one.model, folds)


WORK = [float(w) for w in np.geomspace(0.01, 10.0, 20)]


@pytest.mark.slow
def test_two_constants_come_back_from_exact_rows() -> None:
    truth = [w / 0.77 + 0.05 for w in WORK]
    found = solve_grids([RATE, FIXED], grid([RATE, FIXED], WORK, truth))
    values = {v.constant.name: v for v in found.values}
    assert values["x.rate"].value == pytest.approx(0.77, rel=0.01)
    assert values["x.fixed"].value == pytest.approx(0.05, rel=0.02)
    assert max(map(abs, found.after)) < 0.01
    before = [(w / 0.9 + 0.02) / t - 1.0 for w, t in zip(WORK, truth, strict=True)]
    assert found.before == pytest.approx(before, abs=0.01)


@pytest.mark.slow
def test_an_outlier_does_not_move_the_fit() -> None:
    """Plain least squares of logarithms would move it by log(5) / 20, 8 %."""
    truth = [w / 0.77 for w in WORK]
    truth[3] *= 5.0
    found = solve_grids([RATE], grid([RATE], WORK, truth))
    assert found.values[0].value == pytest.approx(0.77, rel=0.01)
    assert [one.id for one, _ in found.outliers] == ["r3"]
    assert found.outliers[0][1] == pytest.approx(-0.8, abs=0.01)


@pytest.mark.slow
def test_a_configuration_that_was_measured_often_counts_once() -> None:
    """Nine repeats at 0.6 and nine rows at 0.9: the weights are one to nine."""
    often = [row(i, w / 0.6, configuration="same") for i, w in enumerate(WORK[:9])]
    others = [row(i + 9, w / 0.88) for i, w in enumerate(WORK[:9])]
    (points,) = axes_of([RATE])
    logs = np.array([np.log(w / points) for w in [*WORK[:9], *WORK[:9]]])
    both = TimeGrid(rows=[*often, *others], axes=[0], points=[np.log(points)], logs=logs)
    assert solve_grids([RATE], both).values[0].value == pytest.approx(0.88, rel=0.03)


@pytest.mark.slow
def test_the_fit_is_the_least_of_all_values() -> None:
    """Brute force over the sum that `soft_l1` means, on rows with noise."""
    rng = np.random.default_rng(1)
    truth = [w / 0.8 * float(np.exp(0.1 * rng.normal())) for w in WORK]
    value = solve_grids([RATE], grid([RATE], WORK, truth)).values[0].value

    def cost(rate: float) -> float:
        z = (np.log(np.array(WORK) / rate) - np.log(truth)) / 0.06
        return float((2 * (np.sqrt(1 + z**2) - 1)).sum())

    every = np.linspace(0.5, 1.0, 20_001)
    assert value == pytest.approx(every[np.argmin([cost(r) for r in every])], rel=2e-3)


@pytest.mark.slow
def test_the_interval_is_that_of_a_mean() -> None:
    """One rate and rows that are off by s: its logarithm has a standard error of s / sqrt(n)."""
    rng = np.random.default_rng(2)
    work = [float(w) for w in np.geomspace(0.01, 10.0, 400)]
    truth = [w / 0.75 * float(np.exp(0.02 * rng.normal())) for w in work]
    rows = grid([RATE], work, truth)
    found = fit(problem([RATE], [rows]), lambda one: one.id, 20).values[0]
    half = np.log(found.high / found.low) / 2
    assert half == pytest.approx(1.645 * 0.02 / 20, rel=0.4)
    assert found.low < 0.75 < found.high


def test_a_fit_that_ends_on_its_bound_says_so() -> None:
    found = solve_grids([RATE], grid([RATE], WORK, [w / 0.3 for w in WORK]))
    assert found.values[0].value == pytest.approx(0.5, rel=1e-3)
    assert found.values[0].bound == "lower"


@pytest.mark.parametrize(
    ("rows", "more", "reason"),
    [
        (3, {}, "depend on it: 3 of the 6"),
        (20, {"layout": (1,)}, "all rows have one layout"),
        (20, {"configuration": "same"}, "depend on it: 1 of the 6"),
    ],
)
def test_constants_not_determined_by_rows_are_refused(
    rows: int, more: dict[str, Any], reason: str
) -> None:
    truth = [w / 0.7 for w in WORK[:rows]]
    found = solve_grids([RATE], grid([RATE], WORK[:rows], truth, **more))
    assert not found.values
    assert reason in found.rejected[0].reason
    assert found.after == found.before


def test_a_constant_that_no_row_feels_is_refused_with_its_sensitivity() -> None:
    """Of a step of 10 s a fixed part of at most 1 ms is 0.01 %."""
    tiny = constant("fixed", 1e-4, 1e-5, 1e-3)
    work = [float(w) for w in np.linspace(10.0, 20.0, 20)]
    found = solve_grids([RATE, tiny], grid([RATE, tiny], work, [w / 0.7 for w in work]))
    assert [v.constant.name for v in found.values] == ["x.rate"]
    assert (
        "no row depends on it: a change of 1 % changes the step time by at most 0.0"
        in found.rejected[0].reason
    )


def test_two_constants_that_are_one_are_not_both_fitted() -> None:
    """Only the product of the two is in the rows."""
    other = constant("share", 0.9, 0.5, 1.0)
    points = axes_of([RATE, other])
    logs = np.array([np.log(w / (points[0][:, None] * points[1][None, :])) for w in WORK])
    rows = [row(i, w / 0.6) for i, w in enumerate(WORK)]
    both = TimeGrid(rows=rows, axes=[0, 1], points=[np.log(p) for p in points], logs=logs)
    found = solve_grids([RATE, other], both)
    assert len(found.values) == 1
    assert "cannot tell it from" in found.rejected[0].reason
    product = found.values[0].value * 0.9
    assert product == pytest.approx(0.6, rel=0.01)


def test_constants_that_share_no_row_are_fitted_as_if_each_were_the_only_one() -> None:
    other = constant("other", 0.9, 0.5, 1.0)
    (points,) = axes_of([other])
    logs = np.array([np.log(w / points) for w in WORK])
    rows = [row(i + 50, w / 0.65) for i, w in enumerate(WORK)]
    second = TimeGrid(rows=rows, axes=[1], points=[np.log(points)], logs=logs)
    found = solve_grids([RATE, other], grid([RATE], WORK, [w / 0.8 for w in WORK]), second)
    assert [v.value for v in found.values] == pytest.approx([0.8, 0.65], rel=0.01)


def test_rows_left_out_are_predicted_by_the_others() -> None:
    """Model `m0` ran at 0.6, the others at 0.8: without it, it is predicted 25 % too fast."""
    truth = [w / (0.6 if i % 5 == 0 else 0.8) for i, w in enumerate(WORK)]
    task = problem([RATE], [grid([RATE], WORK, truth)])
    found = leave_out(task, ["x.rate"], lambda one: one.model, "models", 5)
    assert found.folds == 5
    for i, error in enumerate(found.errors):
        if i % 5 == 0:
            assert error == pytest.approx(0.6 / 0.8 - 1.0, abs=0.01)


def test_a_fold_without_data_for_a_constant_uses_no_value_that_its_rows_were_fitted_to() -> None:
    """All rows are of one source: without it the middle of the bounds is what is left."""
    task = problem([RATE], [grid([RATE], WORK, [w / 0.9 for w in WORK], source="one")])
    found = leave_out(task, ["x.rate"], lambda one: one.source, "sources", 1)
    assert found.substituted == {"x.rate": 1}
    assert found.errors == pytest.approx([0.9 / 0.5**0.5 - 1.0] * len(WORK), abs=0.01)


def test_parts_hold_groups_whole_and_are_of_like_size() -> None:
    groups = [str(i % 10) for i in range(97)]
    parts = parts_of(groups, 4)
    assert all(len({p for p, g in zip(parts, groups, strict=True) if g == x}) == 1 for x in groups)
    sizes = [parts.count(p) for p in range(4)]
    assert max(sizes) - min(sizes) <= 20


def test_between_the_points_of_an_axis_logarithms_are_linear() -> None:
    """A power of a constant is exact, however few the points are."""
    points = axes_of([RATE])
    one = TimeGrid(
        rows=[row(0, 1.0)], axes=[0], points=[np.log(points[0])],
        logs=np.array([-1.0 * np.log(points[0])]),
    )  # fmt: skip
    for value in (0.5, 0.6123, 0.99, 1.0):
        assert one.predict(np.log([value]))[0] == pytest.approx(-np.log(value))
    assert bracket(np.log(points[0]), np.log(0.5))[0] == 0
    assert one.slopes(np.log([0.7]), 1)[0, 0] == pytest.approx(-1.0)


def test_a_constant_that_folds_disagree_on_all_over_is_refused() -> None:
    """Each of two models says another end of the bounds: an interval that holds all is none."""
    truth = [w / (0.52 if i < 10 else 0.98) for i, w in enumerate(WORK)]
    rows = grid([RATE], WORK, truth)
    halves = {f"r{i}": i < 10 for i in range(20)}
    found = fit(problem([RATE], [rows]), lambda one: halves[one.id], 2)
    assert not found.values
    assert "its interval" in found.rejected[0].reason
    assert found.after == found.before
