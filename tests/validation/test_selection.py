"""Which rows are taken, when the command fails, and what it says on the way: nothing is modeled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from parcost_measured.validation import command
from parcost_measured.validation.command import _label, _select
from parcost_measured.validation.rows import PlacedRow, RunRow
from parcost_measured.validation.selection import (
    MISSING,
    MalformedError,
    condition,
    limit,
    paths,
    value_of,
)

from ..rows import try_each

Make = Callable[..., RunRow]
Write = Callable[[Iterable[Any]], Path]
Validate = Callable[..., Any]


@try_each(
    "text, value, holds",
    [
        ("x>=2", 2, True),
        ("x>=2", 1.9, False),
        ("x<=2", 2, True),
        ("x<=2", 2.1, False),
        ("x>2", 2, False),
        ("x>2", 3, True),
        ("x<2", 2, False),
        ("x<2", 1, True),
        ("x<2", True, False),
        ("x<2", "1", False),
        ("x<2", None, False),
        ("x=a*, b", "B", True),
        ("x=a*,b", "abc", True),
        ("x=a", "abc", False),
        ("x!=a*", "abc", False),
        ("x!=a*", "b", True),
        ("x=none", None, False),
        ("x!=none", None, True),
        ("x=<*", MISSING, False),
        ("x=true", True, True),
        ("x=2", 2, True),
    ],
)
def test_a_condition(text: str, value: Any, holds: bool) -> None:
    assert condition(text).holds(value) is holds


@try_each(
    "path, value",
    [
        ("batch.global", 16),
        ("batch.micro", 2),
        ("model.name", "GPT 3.6B"),
        ("extra.release", "26.06"),
        ("extra.none", MISSING),
        ("model", MISSING),
        ("model.none", MISSING),
        ("model.name.upper", MISSING),
        ("batch.global.real", MISSING),
        ("id", "megatron-1"),
        ("nodes", 7),
    ],
)
def test_the_value_at_a_path(path: str, value: Any, row: Make) -> None:
    assert value_of(row(extra={"release": "26.06"}), path, {"nodes": 7}) == value


def test_the_paths_of_the_schema() -> None:
    found = paths()
    assert {"id", "batch.global", "model.kv_heads", "parallel.hsdp", "extra"} <= set(found)
    assert not {"batch", "model", "measured", "batch.global_"} & set(found)


@try_each(
    "text, quantity, metric, group, bound",
    [
        ("mape > 10 %", "step", "mape", "all", 0.1),
        ("memory p90 of two words >= 5%", "memory", "p90", "two words", 0.05),
        ("pairs < 95 %", "step", "pairs", "all", 0.95),
        ("mean < -2.5 %", "step", "mean", "all", -0.025),
    ],
)
def test_a_limit(text: str, quantity: str, metric: str, group: str, bound: float) -> None:
    found = limit(text)
    assert (found.quantity, found.metric, found.group) == (quantity, metric, group)
    assert found.bound == pytest.approx(bound)
    for value, relation in (
        (found.bound - 1e-9, "<"),
        (found.bound, "="),
        (found.bound + 1e-9, ">"),
    ):
        assert found.is_broken(value) is (relation in found.relation)


@try_each("text", ["mape", "pairs", "mape > 10", "speed > 1 %", "", "mape of > 1 %"])
def test_invalid_limits(text: str) -> None:
    with pytest.raises(MalformedError):
        limit(text)


def test_rows_are_selected_by_any_field(row: Make) -> None:
    placed = [
        PlacedRow(row=row(id="a", source_key="one", core=True), file="f", line=1),
        PlacedRow(row=row(id="b", source_key="one", hardware__gpus=64), file="f", line=2),
        PlacedRow(row=row(id="c", source_key="two", year=2025), file="f", line=3),
    ]

    def ids(text: str) -> str:
        return "".join(one.row.id for one in _select(placed, condition(text)))

    for text, expected in {
        "source_key=one": "ab",
        "id=a,C": "ac",
        "source_key!=o*": "c",
        "core=true": "a",
        "core!=true": "bc",
        "batch.global>=16": "abc",
        "batch.global>16": "",
        "framework=megatron_lm_2021": "ab",
        "framework=megatron_core": "c",
        "nodes>2": "b",
        "nodes=2": "ac",
    }.items():
        assert ids(text) == expected, text
    assert _select([], condition("nobody=x")) == []
    with pytest.raises(click.UsageError, match="did you mean `nodes`"):
        ids("node=2")
    with pytest.raises(click.UsageError, match="such as source_key"):
        ids("zzzzzz=2")


def test_the_name_of_a_file_of_intervals(tmp_path: Path) -> None:
    assert _label(str(tmp_path / "our_runs.par")) == "our_runs"
    for name in ("our_runs.json", "2runs.par", "our-runs.par", "none/our_runs.par"):
        with pytest.raises(click.UsageError):
            _label(str(tmp_path / name))


def test_how_far_and_how_fast_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock starts at 100 s: four rows after half a second are eight a second."""
    times = iter([100.0, 100.5, 108.0, 110.0])
    shown: list[str] = []
    progress = SimpleNamespace(show=shown.append, clear=lambda: shown.append("clear"))

    def evaluate_cases(cases: Any, *more: Any) -> Any:
        for done in (4, 8):
            more[-1](done)
        return cases

    monkeypatch.setattr(command, "monotonic", lambda: next(times))
    monkeypatch.setattr(command, "Progress", lambda **_: progress)
    monkeypatch.setattr("parcost_measured.validation.evaluation.evaluate_cases", evaluate_cases)
    cases: Any = [(None, None)] * 1200
    assert command._evaluate_cases(cases, None, None, {}, elsewhere=True) == cases  # type: ignore[arg-type]
    assert shown == ["4 of 1,200 rows, 8.0 a second", "8 of 1,200 rows, 1.0 a second", "clear"]
    assert "1,200 rows in 10.0 s, 120.0 a second" in capsys.readouterr().err


@pytest.mark.parametrize("count", [50, 51, 52])
def test_the_first_flaws_are_listed_and_the_others_counted(
    count: int, file: Write, validate: Validate
) -> None:
    found = validate(file(["{"] * count), "--format", "json")
    assert found.exit_code == 1
    lines = found.stderr.splitlines()
    assert sum("error[unreadable-row]" in line for line in lines) == 50
    more = [line for line in lines if "more rows have the same error" in line]
    assert more == ([f"error: {count - 50} more rows have the same error"] if count > 50 else [])
    assert "error[no-row-scored]" in found.stderr


def test_a_file_without_a_row_is_no_selection(file: Write, validate: Validate) -> None:
    assert "has no row" in validate(file([""]), "--select", "id=a").stderr
    found = validate(file(["{"]), "--select", "id=a")
    assert (found.exit_code, "none of 0 rows matches" in found.stderr) == (2, True)


@pytest.mark.slow
def test_a_folder_of_studies_that_is_there_is_taken(
    file: Write, validate: Validate, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        assert validate(file(["{"]), "--write-specs", folder).exit_code == 1
        assert folder.is_dir()
