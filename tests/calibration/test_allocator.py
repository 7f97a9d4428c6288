"""What allocators reserve, from logs with numbers worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost

LOG = """\
 iteration        2/     100 | elapsed time per iteration (ms): 812.0 | lm loss: 1.0E+01 |
[Rank 0] (after 2 iterations) memory (MB) | allocated: 10000.0 | max allocated: 50000.5 | \
reserved: 52000.5 | max reserved: 54000.5
[Rank 8] (after 2 iterations) memory (MB) | allocated: 10000.0 | max allocated: 30000.0 | \
reserved: 31600.0 | max reserved: 31600.0
[Rank 8] (after 4 iterations) memory (MB) | allocated: 10000.0 | max allocated: 30000.0 | \
reserved: 31200.0 | max reserved: 31200.0
"""
SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.frameworks.megatron_core
use catalog.models.llama3_8b
use catalog.precisions.bf16
use "site.par"
cluster { devices = 16 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, global_batch = 32 sequences, framework = FRAMEWORK }
"""
Calibrate = Callable[..., Any]


@pytest.fixture
def calibrate(tmp_path: Path, run_command: Callable[..., Any]) -> Calibrate:
    """Return a function that calibrates from a log of some text."""

    def run(text: str, *arguments: str) -> Any:
        (tmp_path / "job.log").write_text(text, encoding="utf-8")
        log = str(tmp_path / "job.log")
        return run_command("calibrate", log, "--framework", "megatron_core", *arguments)

    return run


def test_fragmentation_is_what_is_reserved_beyond_the_peak(calibrate: Calibrate) -> None:
    done = calibrate(LOG, "--format", "json")
    (found,) = json.loads(done.out)["allocator"]
    # rank 0: 4,000 of 40,000.5; rank 8, in its last line: 1,200 of 20,000
    assert found["name"] == "megatron_core.fragmentation"
    assert found["rows"] == 2
    assert (found["low"], found["high"]) == (0.06, pytest.approx(4000 / 40000.5))
    assert found["value"] == pytest.approx((0.06 + 4000 / 40000.5) / 2)
    assert done.code == 0


def test_a_spec_takes_the_share_of_the_log(calibrate: Calibrate, tmp_path: Path) -> None:
    assert calibrate(LOG, "--name", "site", "--out", str(tmp_path / "site.par")).code == 0

    def lost(framework: str) -> float:
        (tmp_path / "job.par").write_text(SPEC.replace("FRAMEWORK", framework), encoding="utf-8")
        (scenario,) = parcost.load(tmp_path / "job.par")
        result = scenario.evaluate().result
        return float(result.figure("reserved_memory") - result.figure("allocated_memory"))

    ratio = lost("site_megatron_core") / lost("megatron_core")
    assert ratio == pytest.approx((0.06 + 4000 / 40000.5) / 2 / 0.06, rel=1e-3)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "allocated: 9 | max allocated: 9 | reserved: 9 | max reserved: 9",
            "are not in ascending order",
        ),
        (
            "allocated: 1 | max allocated: 9 | reserved: 8 | max reserved: 8",
            "are not in ascending order",
        ),
        ("allocated: 1 | max allocated: 2 | reserved: 9 | max reserved: 9", "700 %, outside"),
        ("allocated: 1 | max allocated: 2 | reserved: 2 | max reserved: 2", "0 %, outside"),
    ],
)
def test_what_no_allocator_has_is_refused(calibrate: Calibrate, line: str, says: str) -> None:
    done = calibrate(f"[Rank 0] (after 2 iterations) memory (MB) | {line}\n")
    assert done.code == 1
    assert says in " ".join((done.out + done.err).split())
