"""Files that a command writes: none of those that it reads, and none over a loop of links."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

JOB = """use catalog.systems.dgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences }
"""


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "job.par", "--format", "csv"),
        ("export", "megatron", "job.par"),
        ("timeline", "job.par", "--format", "perfetto"),
    ],
)
def test_a_file_that_is_read_is_not_written(
    run_command: Run, own_folder: Path, command: tuple[str, ...]
) -> None:
    done = run_command(*command, "--out", "./job.par", job=JOB)
    assert done.code == 2
    assert "`--out ./job.par` is an input of this command: choose another file" in done.err
    assert (own_folder / "job.par").read_text() == JOB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name", "start"),
    [
        (["eval"], "a.json", "{\n"),
        (["eval"], "a.csv", "path,name,"),
        (["eval", "--format", "csv"], "a.json", "path,name,"),  # what is written wins
        (["eval"], "a.txt", "job "),
        (["eval", "--shard", "1/1"], "a.json", '{"path":'),  # parts are joined by `merge`
        (["timeline"], "a.svg", "<svg"),
        (["timeline"], "a.json", "{"),
        (["diff", "--set", "layout.tp=4"], "a.md", "# job"),
        (["diff", "--set", "layout.tp=4"], "a.txt", "job.par -> "),
    ],
)
def test_the_name_of_a_file_gives_its_format(
    run_command: Run, own_folder: Path, command: list[str], name: str, start: str
) -> None:
    """A table in a file that is called JSON is a wrong result without a word."""
    done = run_command(command[0], "job.par", *command[1:], "--out", name, job=JOB)
    assert done.code == 0
    assert (own_folder / name).read_text().startswith(start)


def test_a_loop_of_links_cannot_be_written(run_command: Run, own_folder: Path) -> None:
    (own_folder / "loop.csv").symlink_to("loop.csv")
    done = run_command("eval", "job.par", "--format", "csv", "--out", "loop.csv", job=JOB)
    assert done.code == 2
    assert "`loop.csv` cannot be written" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["megatron", "megatron_bridge"])
def test_a_job_on_a_system_is_exported(run_command: Run, tool: str) -> None:
    """The system has a cluster with a name; the settings have one without."""
    done = run_command("export", tool, "job.par", job=JOB)
    assert done.code == 0
    assert "8192" in done.out


@pytest.mark.slow
def test_two_clusters_say_what_to_keep(run_command: Run) -> None:
    done = run_command("eval", "job.par", "--use", "catalog.systems.dgx_b200", job=JOB)
    assert done.code == 2
    assert "keep one of them" in done.err


@pytest.mark.slow
def test_values_of_an_axis_choose_among_devices(run_command: Run) -> None:
    job = JOB.replace("systems.dgx_h100", "devices.h100_sxm") + (
        "use catalog.fabrics.hgx_h100\ncluster { devices = 8 }\n"
    )
    found = run_command(
        *("search", "job.par", "--use", "catalog.devices.b200"),
        *("--over", "cluster.device=h100_sxm,b200", "--axes", "cluster.device"),
        job=job,
    )
    assert found.code == 0, found.err
    assert "device b200" in found.out


@pytest.mark.slow
def test_a_change_that_is_far_too_large_does_not_fit(run_command: Run) -> None:
    job = JOB.replace("llama3_8b", "llama3_70b").replace("tp = 2, zero = 1", "tp = 1")
    job = job.replace(", sequence_parallel = on", "")
    job += "use catalog.fabrics.hgx_h100\n"
    done = run_command("eval", "job.par", "--set", "dgx_h100.devices=1", job=job)
    (rows,) = done.out.split("No change fits in memory")[1:]
    assert "does not fit" in rows
    assert "tight" not in rows
