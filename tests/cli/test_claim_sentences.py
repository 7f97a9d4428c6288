"""How the value of a claim compares with what is predicted, in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from parcost_apps.cli import main

Run = Callable[[str], str]
SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 64 sequences }
"""


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str], own_folder: Path) -> Run:
    """Return the screen of SPEC with some claims, in one line."""

    def do(claims: str) -> str:
        (own_folder / "a.par").write_text(f"{SPEC}expect {{ {claims} }}\n", encoding="utf-8")
        main(["eval", "a.par"])
        return " ".join(capsys.readouterr().out.split())

    return do


def step(out: str) -> float:
    """Return the step time of a screen."""
    return float(re.search(r"step time ([\d.]+) s", out)[1])  # type: ignore[index]


@pytest.mark.slow
def test_a_claim_that_fails_says_by_how_much_and_what_is_allowed(screen: Run) -> None:
    out = screen("step_time = 2 s +- 5 %")
    found = re.search(
        r"FAIL: step_time = 2 s \+- 5 %: 2 s was expected and ([\d.]+) s is predicted: "
        r"([\d.]+) % too high, and 5 % is allowed",
        out,
    )
    assert found is not None
    assert float(found[1]) == step(out)
    assert float(found[2]) == pytest.approx(100 * (step(out) / 2 - 1), rel=0.01)


@pytest.mark.parametrize("command", ["check", "eval"])
@pytest.mark.parametrize("tolerance", ["-1 %", "-2 s"])
def test_a_tolerance_below_zero_is_refused_where_it_stands(
    command: str, tolerance: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, claim = tmp_path / "a.par", f"expect {{ step_time = 139.3 s +- {tolerance} }}"
    path.write_text(f"{SPEC}{claim}\n", encoding="utf-8")
    assert main([command, str(path)]) != 0
    printed = capsys.readouterr()
    said = printed.out + printed.err
    assert "error[out-of-range]: a tolerance must be at least 0" in said
    assert f":8:{claim.index(tolerance) + 1}\n" in said


@pytest.mark.slow
def test_shares_differ_by_points(screen: Run) -> None:
    out = screen("mfu = 90 % +- 2 %")
    mfu = float(re.search(r"MFU \(model FLOPs\) ([\d.]+) %", out)[1])  # type: ignore[index]
    assert f"{90 - mfu:.3g} points too low, and 2 % is allowed" in out


@pytest.mark.slow
def test_a_measured_value_outside_the_interval_is_named_though_the_claim_holds(
    screen: Run,
) -> None:
    out = screen("step_time = 2 s +- 90 %")
    assert "1 of 1 expectations met" in out
    assert "within the 90 % allowed, but 2 s is outside the interval (" in out
    inside = screen(f"step_time = {step(out)} s +- 1 %")
    assert "was expected" not in inside


@pytest.mark.slow
def test_a_claim_to_lie_within_the_interval_says_so(screen: Run) -> None:
    out = screen("step_time = 2 s within interval")
    assert re.search(r"FAIL: .*% too high, and 2 s is outside the interval \(", out)


@pytest.mark.slow
def test_many_claims_leave_room_for_the_rest(screen: Run) -> None:
    out = screen("\n".join(f"step_time = {n / 100} s +- 1 %" for n in range(1, 31)))
    assert out.count("FAIL") == 4
    assert "and 26 more: --full" in out
