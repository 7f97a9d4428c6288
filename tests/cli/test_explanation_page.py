"""The page of one term: the answer first, values in one column, bytes in one kind of unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from parcost.cli import main

Run = Callable[..., str]
SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 32 }
layout   { tp = 2, pp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 64 sequences }
"""


@pytest.fixture
def explain(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Return what `explain` prints of a term."""
    (tmp_path / "a.par").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def do(term: str) -> str:
        assert main(["explain", "a.par", term]) == 0
        return capsys.readouterr().out

    return do


@pytest.mark.parametrize("term", ["step_time", "memory", "mfu", "tensor all-gather", "dp_volume"])
def test_the_answer_comes_first_and_nothing_is_wider_than_a_screen(explain: Run, term: str) -> None:
    lines = explain(term).splitlines()
    assert max(map(len, lines)) <= 80
    facts = [line for line in lines[4:] if line.strip()]
    assert facts[0].split()[0] in ("value", "exposed")


def test_values_stand_in_one_column_below_what_they_are_part_of(explain: Run) -> None:
    table = explain("step_time").partition("where measured")[0].partition("----")[2]
    rows = re.findall(r"^(( +)(\S.*?) +[\d.,]+ m?u?s)(?:  \S.*)?$", table, re.MULTILINE)
    assert len(rows) > 20
    assert len({len(line) for line, _, _ in rows}) == 1
    margins = {name: len(margin) for _, margin, name in rows}
    assert margins["bubble"] == 2
    assert margins["t[bubble]"] == 4


@pytest.mark.parametrize(
    "term, other", [("memory", "[KMGT]B"), ("tensor all-gather", "[KMGT]iB"), ("weights", "MB|GB")]
)
def test_bytes_are_in_units_of_one_kind(explain: Run, term: str, other: str) -> None:
    out = explain(term)
    assert re.search(r"\d [KMG]i?B\b", out)
    assert not re.search(rf"\d ({other})\b(?!/s)", out)


def test_a_ratio_is_a_fraction(explain: Run) -> None:
    out = explain("dp_volume_against_replicas")
    assert "dp_volume / dp_volume_replicas" in out
    assert "ratio(" not in out
