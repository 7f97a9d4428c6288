"""Numbers are printed as the user wrote them: a claim in GB has its value in GB."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost_apps.cli import main

JOB = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences }
"""


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "stated"), [("GB", "this is 55.26 GB (51.46 GiB)"), ("GiB", "")])
def test_a_claim_has_its_value_in_its_own_kind_of_bytes(
    unit: str, stated: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "job.par"
    spec.write_text(JOB + f"expect {{ memory <= 50 {unit} }}\n")
    assert main(["eval", str(spec), "--no-cache"]) == 1
    assert (stated or "this is 51.46 GiB\n") in capsys.readouterr().err  # 51.46 x 2^30 = 55.26e9


@pytest.mark.parametrize(
    ("claim", "code"), [("mfu <= 42", 2), ("mfu <= 0.9", 0), ("mfu <= 90 %", 0)]
)
def test_a_share_above_one_needs_its_percent_sign(
    claim: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "job.par"
    spec.write_text(JOB + f"expect {{ {claim} }}\n")
    assert main(["check", str(spec)]) == code
    assert ("write `42 %`" in capsys.readouterr().out) == bool(code)


def test_the_heading_of_a_timeline_has_whole_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "job.par"
    spec.write_text(JOB)
    assert main(["timeline", str(spec), "--set", "layout.pp=[1,2]"]) == 0
    out = capsys.readouterr().out
    headings = [line.split("  ")[0] for line in out.splitlines() if line.startswith("job,")]
    assert headings == ["job, layout.pp = 1", "job, layout.pp = 2"]
