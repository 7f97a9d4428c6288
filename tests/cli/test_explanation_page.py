"""The page of one term: the answer first, values in one column, bytes in one kind of unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost import Formula, Once
from parcost_apps.cli import main
from parcost_apps.explain import explanation

from ..rows import mark_most, try_each

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


@pytest.mark.slow
@pytest.mark.parametrize("term", ["step_time", "memory", "mfu", "tensor all-gather", "dp_volume"])
def test_the_answer_comes_first_and_nothing_is_wider_than_a_screen(explain: Run, term: str) -> None:
    lines = explain(term).splitlines()
    assert max(map(len, lines)) <= 80
    facts = [line for line in lines[4:] if line.strip()]
    assert facts[0].split()[0] in ("value", "exposed")


@pytest.mark.slow
def test_values_stand_in_one_column_below_what_they_are_part_of(explain: Run) -> None:
    table = explain("step_time").partition("where measured")[0].partition("----")[2]
    rows = re.findall(r"^(( +)(\S.*?) +[\d.,]+ m?u?s)(?:  \S.*)?$", table, re.MULTILINE)
    assert len(rows) > 20
    assert len({len(line) for line, _, _ in rows}) == 1
    margins = {name: len(margin) for _, margin, name in rows}
    assert margins["bubble"] == 2
    assert margins["t[bubble]"] == 4


@pytest.mark.slow
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


def words(page: str) -> str:
    return " ".join(page.split())


@pytest.mark.parametrize(
    "term, leaves",
    mark_most(
        [
            (
                "mfu",
                [
                    "peak 989 TFLOP/s bf16 of h100_sxm (catalog/devices/h100_sxm.par:N, @vendor)",
                    "N 32 devices of cluster (a.par:5)",
                    "batch 64 global_batch of training (a.par:7)",
                    "F[MLP] 11.27 GFLOP 2 FLOPs per matrix parameter",  # 6 x 32 x 4096 x 14336
                ],
            ),
            (
                "tensor all-gather",
                [
                    "s 3.4 us latency of node (catalog/fabrics/hgx_h100.par:N, @published)",
                    "b 450 GB/s bandwidth of node (catalog/fabrics/hgx_h100.par:N, @vendor)",
                    "eta 0.82 efficiency of node (catalog/fabrics/hgx_h100.par:N, @measured)",
                ],
            ),
            (
                "QKV projection",
                [
                    "e 0.803 matmul_efficiency of h100_sxm (catalog/devices/h100_sxm.par:N,",
                    "B 3.35 TB/s memory_bandwidth of h100_sxm (catalog/devices/h100_sxm.par:N,",
                    "S 132 multiprocessors of h100_sxm (catalog/devices/h100_sxm.par:N,",
                ],
            ),
            (
                "headroom",
                ["capacity 79.65 GiB memory of h100_sxm (catalog/devices/h100_sxm.par:N,"],
            ),
            ("driver context and libraries", ["context of memory (catalog/defaults.par:"]),
        ]
    ),
)
def test_a_leaf_says_what_it_is_and_where_the_spec_has_it(
    explain: Run, term: str, leaves: list[str]
) -> None:
    page = re.sub(r"(catalog/\w+/\w+\.par):\d+", r"\1:N", words(explain(term)))
    for leaf in leaves:
        assert leaf in page


@pytest.mark.slow
def test_a_figure_of_many_symbols_inside_another_is_one_row_with_its_command(explain: Run) -> None:
    page = explain("mfu")
    assert "`parcost explain a.par step_time`" in words(page)
    assert "t[" not in page
    assert "t[attention core, F]" in explain("step_time")


@pytest.mark.slow
@pytest.mark.parametrize(
    "term, facts",
    [
        (
            "attention core",
            ["per call", "resource compute", "overlap none: the term runs serially"],
        ),
        ("all-reduce of the gradient norm", ["occurs once per step on each virtual stage, after"]),
        ("driver context and libraries", ["memory 1.3", "each 1.3", "occurs once on each virtual"]),
    ],
)
def test_labels_are_nouns_of_what_they_head(explain: Run, term: str, facts: list[str]) -> None:
    page = words(explain(term))
    for fact in facts:
        assert fact in page


@try_each(
    "term, overlap",
    [
        ({"when": "drain"}, "under the idle time of the stage in pipeline drain"),
        (
            {"when": "drain", "beside": 0.99, "tail": 871e-6},
            (
                "under the idle time of the stage in pipeline drain and 99 % of its last micro-batch"
                "; 871 us cannot overlap"
            ),
        ),
        (
            {"when": "fill", "on_arrival": True},
            (
                "none: it starts with the arrival of the first micro-batch, and its exposed time includes that of earlier stages"
            ),
        ),
        ({"when": "end"}, "none: every stage has drained"),
    ],
)
def test_what_a_term_once_per_step_overlaps_with(term: dict[str, Any], overlap: str) -> None:
    once = Once(name="o", seconds=1.0, formula=Formula(text="x"), **term)
    line: Any = SimpleNamespace(term=once, hidden=0.0)
    assert explanation._describe_overlap(line) == overlap
