"""What a study's figures say of its row, with a batch that answers by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost_measured.validation.evaluation import (
    Prediction,
    RowResult,
    _prediction,
    evaluate_cases,
    file_name,
    write_studies,
)
from parcost_measured.validation.rows import PlacedRow, RunRow

from ..rows import try_each

Make = Callable[..., RunRow]

POINT: dict[str, Any] = {
    "step_time_seconds": 4.0,
    "memory_bytes": 3e9,
    "mfu_fraction": 0.5,
    "flops_per_device_flop_per_second": 2e14,
}
ENDS = {"step_time_low_seconds": 3.0, "step_time_high_seconds": 6, "memory_low_bytes": 1.0}


def test_a_point_as_a_prediction() -> None:
    """200 TFLOP/s for 4 s are 800 TFLOP, and half of a peak of 400."""
    expected: dict[str, Any] = {"step_time": 4.0, "memory": 3e9, "model_flops": 8e14, "peak": 4e14}
    assert _prediction([POINT]) == Prediction(**expected, fits=True)
    assert _prediction([{**POINT, "feasible": False, **ENDS}]) == Prediction(
        **expected, fits=False, step_interval=(3.0, 6.0)
    )
    counters = {"reserved_memory_bytes": 2e9, "allocated_memory_bytes": None}
    counters["used_memory_bytes"] = 2.5e9
    assert _prediction([{**POINT, **counters}]) == Prediction(
        **expected, fits=True, counters={"reserved": 2e9, "device": 2.5e9}
    )
    bare = {**POINT, "memory_bytes": 0, "mfu_fraction": 0}
    assert _prediction([bare]) == Prediction(
        step_time=4.0, memory=0.0, fits=True, model_flops=8e14, peak=0.0
    )


def test_a_run_that_lost_time_is_predicted_slower() -> None:
    """1 to 5 % of 4 s: 4.12 s in the middle; from 3 s and 1 % to 6 s and 5 %."""
    found = _prediction([{**POINT, **ENDS}])
    assert isinstance(found, Prediction)
    slower = found.add_slowdown((0.01, 0.05))
    assert slower.step_time == pytest.approx(4.12)
    assert slower.step_interval == pytest.approx((3.03, 6.3))
    assert found.add_slowdown((0.0, 0.0)) == found


@try_each(
    "points, reason",
    [
        ([], ""),
        ([{}], ""),
        ([{"reason": "heads"}], "heads"),
        ([{**POINT, "mfu_fraction": None, "reason": "no peak"}], "no peak"),
        ([{**POINT, "memory_bytes": "x"}], ""),
    ],
)
def test_a_point_without_figures_has_a_reason(points: list[Any], reason: str) -> None:
    assert _prediction(points) == reason


def entry(
    points: Any = (), reasons: Any = (), faults: Any = (), exit_code: int = 0
) -> SimpleNamespace:
    return SimpleNamespace(
        data=lambda: list(points), reasons=list(reasons), faults=list(faults), exit_code=exit_code
    )


def test_each_row_has_its_prediction_or_its_reason(
    row: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost_formats.rendering.rejection import FAULT

    entries = [
        entry([POINT]),
        entry([{"reason": "heads"}], ["other"]),
        entry([], ["first", "second"]),
        entry(),
        entry([], ["broke"], exit_code=FAULT),
        entry([POINT], ["broke"], faults=["a plugin"], exit_code=1),
        entry([], ["rejected"], exit_code=1),
    ]
    batch = SimpleNamespace(entries=lambda specs: iter(entries[: len(specs)]))
    monkeypatch.setattr("parcost_apps.batch.run.BatchRun", lambda *_, **__: batch)
    monkeypatch.setattr("parcost_apps.batch.fingerprints.Environment", lambda picked: picked)
    case = RowResult(placed=PlacedRow(row=row(), file="f", line=1), reason="before")
    cases: list[Any] = [(case, None), *((case, Path(f"{n}.par")) for n in range(len(entries)))]
    done: list[int] = []
    found = [*evaluate_cases(cases, None, None, {}, done.append)]  # type: ignore[arg-type]
    assert done == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [(one.reason, [*one.faults], one.prediction is not None) for one in found] == [
        ("before", [], False),
        ("before", [], True),
        ("heads", [], False),
        ("first; second", [], False),
        ("the study has no step", [], False),
        ("broke", ["broke"], False),
        ("before", ["a plugin"], True),
        ("rejected", [], False),
    ]


def test_rows_whose_names_are_alike_have_files_of_their_own(row: Make, tmp_path: Path) -> None:
    ids = ["a/b", "A b", "a_b", ".."]
    placed = [PlacedRow(row=row(id=id), file="f", line=n) for n, id in enumerate(ids)]
    placed.insert(1, PlacedRow(row=row(id="x", hardware__gpu="Abacus"), file="f", line=9))
    found = [*write_studies(placed, tmp_path)]
    names = [path.name if path else "" for _, path in found]
    assert names == ["a_b.par", "", "A_b_.par", "a_b__.par", "_.par"]
    assert "`Abacus` is not one of" in found[1][0].reason
    assert (tmp_path / "_.par").read_text(encoding="utf-8").startswith("# ..\n")
    assert file_name("x" * 300) == "x" * 200 + ".par"
