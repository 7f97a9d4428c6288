"""What stdout says, stderr does not say again; sentences wrap where a person reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
LARGE = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 8 }
training { sequence = 8192, global_batch = 32 sequences }
"""
LINK = """\
transfer a { operation = all_reduce, size = 1 GB, ranks = 8 }
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--full",), ("--compare",)])
def test_a_verdict_is_printed_once(run_command: Run, options: tuple[str, ...]) -> None:
    done = run_command("eval", "a.par", *options, a=LARGE)
    assert (done.code, done.err) == (1, "")
    assert done.out.count(" GiB too much") + done.out.count("GiB too\n") == 1


@pytest.mark.slow
def test_a_verdict_stands_on_stderr_where_the_page_is_elsewhere(run_command: Run) -> None:
    run_command("eval", "a.par", a=LARGE)
    for options in (("--out", "page.txt"), ("--format", "jsonl"), ("--section", "memory")):
        done = run_command("eval", "a.par", *options)
        assert done.code == 1
        assert "error[does-not-fit]" in done.err


@pytest.mark.slow
def test_a_rule_points_at_what_is_wrong(run_command: Run) -> None:
    done = run_command("eval", "a.par", a=LARGE.replace("tp = 8", "tp = 3"))
    assert done.code == 1
    assert "error[heads-divide]" in done.err


def test_an_answer_that_is_not_computed_does_not_run_either(run_command: Run) -> None:
    done = run_command("eval", "a.par", a=LINK)
    assert done.code == 1
    assert "Invalid: not calculated." in done.out
    assert "run" not in done.out.lower().replace("--", "")


@pytest.mark.slow
def test_sentences_wrap_for_a_person_alone(
    run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = LARGE.replace("tp = 8", "tp = 3").replace("16", "7")
    plain = run_command("eval", "a.par", a=text).err
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run_command("eval", "a.par").err
    assert max(map(len, plain.splitlines())) > 60 >= max(map(len, narrow.splitlines()))
    assert narrow.split() == plain.split()  # nothing but the breaks


TWO = "study first { layout { tp = 8 } }\nstudy second { layout { tp = 4 } }\n"


@pytest.mark.slow
def test_a_table_of_several_files_names_the_file_of_each_study(
    run_command: Run, tmp_path: Path
) -> None:
    small = LARGE.replace("70b", "8b").replace("layout   { tp = 8 }\n", "")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.par").write_text(small + TWO, encoding="utf-8")
    out = run_command("eval", ".", a=small + TWO, c=small + "layout { tp = 8 }\n").out
    assert [line.split()[0] for line in out.splitlines()[3:10]] == [
        "a",
        "first",
        "second",
        "c",
        "deep/b",
        "first",
        "second",
    ]
    one = run_command("eval", "a.par").out
    assert one.splitlines()[1].split() == ["first", "second"]  # of one file that goes unsaid
    beside = run_command("eval", ".", "--compare").out
    assert {"a:first", "a:second", "b:first", "b:second", "c"} <= set(beside.split())


DEVICE = """\
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
device mine { memory = 80 GiB }
cluster  { devices = 16 }
layout   { tp = 2, zero = 2 }
training { sequence = 8192, global_batch = 64 sequences }
"""
REST = (
    "memory_bandwidth = 3.3 TB/s, multiprocessors = 132, matmul_efficiency = 70 %, "
    "memory_efficiency = 85 %"
)


@pytest.mark.slow
def test_all_that_a_device_lacks_is_reported_at_once(run_command: Run) -> None:
    first = run_command("eval", "a.par", a=DEVICE)
    assert first.code == 2
    for name in ("memory_bandwidth", "multiprocessors", "matmul_efficiency", "memory_efficiency"):
        assert f"`{name}`: " in first.err
    assert "the peak of the compute type, such as `bf16 = " in first.err
    assert "`kernels.attention_forward_efficiency` and `attention_backward_ef" in first.err
    named = DEVICE.replace("80 GiB", f"80 GiB, {REST}, bf16 = 990 TFLOPS dense")
    named += "kernels { attention_forward_efficiency = 60 %, attention_backward_efficiency = 50 % }"
    assert run_command("eval", "a.par", a=named).code == 0  # nothing else comes up


def test_a_device_with_a_peak_needs_no_other(run_command: Run) -> None:
    found = run_command(
        "eval", "a.par", a=DEVICE.replace("80 GiB", "80 GiB, fp16 = 300 TFLOPS dense")
    )
    assert "also required: the rate of attention" in found.err
    assert "also required: the peak" not in found.err
