"""Warnings come in the order of what they change, and the screen keeps to its 44 lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import parcost
from parcost import Check
from parcost.contract.validation import problem
from parcost_apps.cli import main

Run = Callable[[str], str]
NARROW = 80
SPEC = """\
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric own {
  level node {
    size = 8
    bandwidth = 90 TB/s per_direction
    latency = 2 us
  }
  level network {
    bandwidth = 50 TB/s per_direction
    latency = 3 s
  }
}
cluster  { devices = 16 }
layout   { tp = 2, pp = 2, zero = 1 }
training { sequence = 8k, global_batch = 32 sequences }
overlap  { gradients = off, bucket = 25 MB }
routing  { dispatcher = deepep }
"""


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str], own_folder: Path) -> Run:
    """Return what the screen of a spec says."""

    def do(text: str) -> str:
        (own_folder / "a.par").write_text(text, encoding="utf-8")
        main(["eval", "a.par"])
        return capsys.readouterr().out

    return do


def warnings(folder: Path) -> list[str]:
    """Return the ids of what was warned of, in order."""
    (report,) = parcost.evaluate(str(folder / "a.par"))
    return [d.id for d in report.diagnostics if d.severity.value == "warning"]


@pytest.mark.slow
def test_the_largest_loss_comes_first(screen: Run, tmp_path: Path) -> None:
    # 3 s over the 0.1 s of light lose time, 8,000 for 8,192 tokens little; then what is too fast:
    # 50 TB/s over 100 GB/s more than 90 TB/s over 1.8 TB/s; what has no effect is last
    out = screen(SPEC)
    assert out.count("warning: ") == 3
    assert "warning: a message on level `network` takes 3 s to start" in out
    assert warnings(tmp_path) == [
        "implausible-latency",
        "decimal-sequence",
        "implausible-bandwidth",
        "implausible-bandwidth",
        "no-effect",
    ]
    assert "2 more warnings: --warnings" in out


@pytest.mark.slow
def test_what_may_not_fit_comes_before_what_is_slow(screen: Run, tmp_path: Path) -> None:
    screen(f"{SPEC}memory {{ tight = 40 % }}\n")  # it takes half of the device
    assert warnings(tmp_path)[:2] == ["memory-tight", "implausible-latency"]


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("micro", [1, 16])
def test_a_screen_has_few_lines_whatever_there_is_to_warn_of(
    screen: Run, recompute: str, micro: int
) -> None:
    more = f"recompute = {recompute}, micro_batch = {micro}, global_batch"
    lines = screen(SPEC.replace("global_batch", more)).splitlines()
    assert len(lines) <= 44
    assert max(map(len, lines)) <= NARROW
    assert lines[-1].strip().startswith("More:")


def test_a_factor_is_a_number() -> None:
    good = Check(id="a", holds=True, subject="", message="m", factor=2.0)
    assert problem(good) == ""
    for wrong in ("much", True, float("nan"), -1.0):
        bad = Check(id="a", holds=True, subject="", message="m", factor=wrong)  # type: ignore[arg-type]
        assert "factor" in problem(bad)


@pytest.mark.slow
def test_the_interval_of_memory_stands_alone_in_brackets(screen: Run) -> None:
    plain = re.sub(r"latency = 3 s", "latency = 3 us", SPEC)
    lines = screen(plain).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  memory  "))
    assert re.fullmatch(r"  memory +[\d.]+ GiB  \([\d.]+ to [\d.]+ GiB, 90 %\)", lines[at])
    assert re.fullmatch(r" +[\d.]+ %  of 79.65 GiB usable", lines[at + 1])
