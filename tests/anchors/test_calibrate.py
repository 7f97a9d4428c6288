"""``parcost calibrate --anchor``: both numbers, each run, and a file for other specs of the job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost_plugins.physics.anchoring import find_anchoring

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 2048, global_batch = 16 sequences, recompute = full }
"""
LOG = "\n".join(
    f" iteration {i:8d}/     100 | elapsed time per iteration (ms): {900 if i < 5 else 340}.0 | "
    f"global batch size: 16 | lm loss: {'nan' if i == 25 else '9.1'} |"
    for i in range(1, 31)
)


@pytest.fixture
def calibrate(tmp_path: Path, run_command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calibrates the job by anchors."""
    (tmp_path / "job.par").write_text(SPEC, encoding="utf-8")
    (tmp_path / "train.log").write_text(LOG, encoding="utf-8")

    def run(*words: str) -> Any:
        named = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in words]
        return run_command("calibrate", *named)

    return run


@pytest.mark.slow
def test_both_numbers_are_shown_and_the_line_that_is_not_used(
    calibrate: Callable[..., Any],
) -> None:
    done = calibrate("job.par", "--anchor", "train.log")
    assert done.code == 1  # a line was left out
    assert "from the catalogue" in done.out
    assert "anchored on 1 run, w = 0." in done.out
    assert re.search(r"train +340 ms", done.out)
    assert "`line 25`" in done.err
    assert "anchor train {" in done.out


@pytest.mark.slow
def test_the_file_that_is_written_anchors_other_specs(
    calibrate: Callable[..., Any], tmp_path: Path
) -> None:
    out = tmp_path / "anchors.par"
    text = 'step_time = 0.45 s, settings = "layout.tp = 4"'
    done = calibrate(
        "job.par", "--anchor", "train.log", "--anchor", text, "--format", "json", "--out", str(out)
    )
    document = json.loads(done.out)
    assert [one["name"] for one in document["anchors"]] == ["train", "given_2"]
    assert document["layouts"] == 2
    assert document["catalogue"] == ""
    other = SPEC.replace("tp = 2", "tp = 8") + '\nuse "anchors.par"\n'
    (scenario,) = parcost.load_text(other, str(tmp_path / "other.par"))
    found = find_anchoring(scenario.evaluate().result.study)
    assert found is not None
    assert found.count == 2
    assert found.step.weight == pytest.approx(document["weight"])
    predicted = sorted(one["predicted_seconds"] for one in document["anchors"])
    assert sorted(one.predicted for one in found.compared) == pytest.approx(predicted)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--anchor", "train.log"), "give the spec of the job"),
        (("job.par", "--anchor", "train.log", "--ranks", "4"), "`--ranks` has no effect with"),
        (("job.par", "--anchor", "nothing.log"), "there is no file `nothing.log`"),
        (("job.par", "--anchor", "job.par"), "the spec has no `anchor` block"),
        pytest.param(
            ("job.par", "--anchor", "step_time = 0.001 s"),
            "every anchor was excluded",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_an_anchor_is_an_error(
    calibrate: Callable[..., Any], words: tuple[str, ...], message: str
) -> None:
    done = calibrate(*words)
    assert done.code in (1, 2)
    assert message in done.err
