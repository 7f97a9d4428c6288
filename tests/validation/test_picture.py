"""Bars of errors and places of dots, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from parcost_measured.validation.picture import histogram, scatter


def test_bars_of_a_tenth_each() -> None:
    """The longest has 40 characters, and one of three is 13.3 of them, counted up."""
    errors = [-0.2, 0.05, 0.0, 0.09, 0.3, 1.0, 2.5]
    bars = {bar.title: (bar.rows, bar.length) for bar in histogram(errors)}
    assert [*bars][:4] == ["-20 to -10 %", "-10 to 0 %", "0 to +10 %", "+10 to +20 %"]
    assert [*bars][-2:] == ["+90 to +100 %", "over +100 %"]
    assert len(bars) == 13
    assert {title: found for title, found in bars.items() if found != (0, 0)} == {
        "-20 to -10 %": (1, 14),
        "0 to +10 %": (3, 40),
        "+30 to +40 %": (1, 14),
        "over +100 %": (2, 27),
    }
    assert [bar.title for bar in histogram([0.99])] == ["+90 to +100 %"]
    assert histogram([]) == []


def run(id: str, source: str, measured: float, predicted: float) -> Any:
    return SimpleNamespace(
        row=SimpleNamespace(
            id=id, source_key=source, measured=SimpleNamespace(step_time_s=measured)
        ),
        prediction=SimpleNamespace(step_time=predicted),
        error=predicted / measured - 1,
    )


def test_a_dot_for_each_run_beside_the_line_of_exact_predictions() -> None:
    chart = scatter([run("a", "one", 100.0, 50.0), run("b", "two", 40.0, 60.0)])
    assert chart.problem() == ""
    dots = [row for row in chart.rows if row["kind"] == "run"]
    assert [(row["id"], row["source"], row["error"]) for row in dots] == [
        ("a", "one", "-50.0 %"),
        ("b", "two", "+50.0 %"),
    ]
    assert [(row["measured"][0], row["predicted"][0]) for row in dots] == [(100, 50), (40, 60)]
    assert [row["formula"].value for row in dots] == [-0.5, 0.5]
    exact = [(row["measured"], row["predicted"]) for row in chart.rows if row["kind"] == "exact"]
    assert exact == [((40.0, "s"), (40.0, "s")), ((100.0, "s"), (100.0, "s"))]
    assert scatter([]).rows == []
