"""Changes that make a step fit: each evaluated, with what it saves and what it costs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import Section, Study
from parcost.report.verdict import verdict

Run = Callable[..., Any]

ROOT = Path(__file__).parents[2]
GIB = 2.0**30
JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 8, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences }
"""
TITLE = "Changes that fit in memory"


def sections(text: str, overrides: Mapping[str, Any]) -> list[Section]:
    (scenario,) = parcost.load_text(text, overrides=overrides)
    result = scenario.evaluate().result
    assert not result.faults
    return [section for _, section in result.sections if section.title == TITLE]


def fixes(text: str = JOB, **overrides: Any) -> dict[str, tuple[Any, ...]]:
    """Return the rows of the table of fixes by their change, in order."""
    values = {name.replace("__", "."): value for name, value in overrides.items()}
    (section,) = sections(text, values)
    return {row[0]: row[1:] for row in section.rows}


def outcome(text: str, overrides: Mapping[str, Any]) -> tuple[float, float]:
    (scenario,) = parcost.load_text(text, overrides=overrides)
    result = scenario.evaluate().result
    assert result.outcome is not None
    return float(result.outcome.memory_bytes), float(result.outcome.step_seconds)


def usable(change: Mapping[str, Any], text: str = JOB) -> float:
    """Return the usable share with which a *change* fits by a hair, and nothing less does."""
    (scenario,) = parcost.load_text(text, overrides=change)
    (study,) = scenario.studies()
    (whole,) = [size for _, size in study.contributions("usable_memory")]
    return (1 + 1e-9) * outcome(text, change)[0] / 0.95 / float(whole)


@pytest.mark.slow
def test_a_step_that_fits_needs_no_cure() -> None:
    assert sections(JOB, {}) == []


def test_a_sweep_has_no_single_way_out() -> None:
    assert sections(JOB, {"training.micro_batch": [1, 8]}) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"memory.expandable_segments": "on"},
        {"recompute.norms": "on"},
        {"recompute.activation": "on"},
        {"recompute.mlp": "on"},
        {"training.recompute": "full"},
        {"offload.activations": 0.25},
        {"offload.optimizer": 1.0, "offload.update": "device"},
        {"layout.zero": 2},
        {"layout.cp": 2},
        {"layout.pp": 8},
        {"cluster.devices": 128},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_that_alone_is_enough_is_listed(change: dict[str, Any]) -> None:
    share = usable(change)
    now, seconds = outcome(JOB, {"memory.usable": share})
    held, after = outcome(JOB, {**change, "memory.usable": share})
    assert held < now
    name = ", ".join(f"{path} = {value if isinstance(value, str) else f'{value:g}'}" for path, value in change.items())  # fmt: skip
    memory, saved, step, slower, host, tight = fixes(memory__usable=share)[name]
    assert memory == (pytest.approx(held), "GiB")
    assert saved == (pytest.approx(now - held), "GiB")
    assert step == (pytest.approx(after), "s")
    assert float(slower.removesuffix(" %")) == pytest.approx(100 * (after / seconds - 1), abs=0.051)
    assert (host[0] > 0) == ("offload" in name)
    assert tight == ""


ENDS = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16_fsdp
cluster { devices = 8 }
layout { zero = 3 }
training { sequence = 16_384, global_batch = 8 sequences, recompute = full }
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{"training.loss_chunks": 8}, {"training.loss": "gradient"}], ids=["chunked", "fused"]
)
def test_a_loss_that_keeps_less_is_a_cure(change: dict[str, Any]) -> None:
    # 16,384 tokens of 128,256 words: 4.2 GB of logits in bf16, and twice that of a softmax in fp32.
    share = usable(change, ENDS)
    found = fixes(ENDS, memory__usable=share)
    (path, value), *_ = change.items()
    memory, *_ = found[f"{path} = {value}"]
    assert memory[0] == pytest.approx(outcome(ENDS, change)[0])


@pytest.mark.slow
def test_what_costs_the_least_is_first_and_more_devices_are_last() -> None:
    found = list(fixes(training__micro_batch=4).items())
    slower = [float(row[3].removesuffix(" %")) for name, row in found if not row[5]]
    assert slower == sorted(slower)
    last = [name.startswith("cluster.devices") for name, _ in found]
    assert last == sorted(last)
    assert len({name.partition(" = ")[0] for name, _ in found if "," not in name}) == sum("," not in name for name, _ in found)  # fmt: skip


@pytest.mark.slow
def test_a_tight_step_is_offered_what_fits_alone() -> None:
    tight = {"memory.usable": 0.65}  # 50.4 GiB of 51.8
    (scenario,) = parcost.load_text(JOB, overrides=tight)
    assert verdict(scenario.evaluate().result) == "tight in memory"
    assert all(row[5] == "" for row in fixes(memory__usable=0.65).values())


@pytest.mark.slow
def test_pairs_are_tried_where_no_single_change_is_enough() -> None:
    # Activations of 84 GiB are more than the 28 GiB that there are.
    found = fixes(training__micro_batch=4, memory__usable=0.35)
    assert found
    assert all(name.count(" = ") >= 2 for name in found)
    (section,) = sections(JOB, {"training.micro_batch": 4, "memory.usable": 0.35})
    assert section.notes[0].startswith("no single change is enough")


@pytest.mark.slow
def test_where_nothing_fits_more_devices_are_the_answer() -> None:
    (scenario,) = parcost.load_text(JOB, overrides={"memory.usable": 0.01})
    titles = {s.title: s for _, s in scenario.evaluate().result.sections}
    section = titles["No change fits in memory"]
    assert len(section.rows) == 1
    assert section.command == ""
    assert "use more devices" in section.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "more"),
    [
        ("job.par", ["--set", "training.micro_batch=4"]),
        pytest.param("job.par", ["--set", "training.micro_batch=4", "--set", "memory.usable=35 %"], marks=pytest.mark.slow),
        (
            "train.sh",
            ["--from", "megatron", "--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"],
        ),
    ],
)  # fmt: skip
def test_the_command_fits_and_prints_the_same_numbers(
    run_command: Run, tmp_path: Path, file: str, more: list[str]
) -> None:
    script = ROOT / "docs/how-to/files/train.sh"
    (tmp_path / file).write_text(script.read_text() if file == "train.sh" else JOB)
    done = run_command("eval", file, *more, "--format", "json")
    assert done.code == 1
    (result,) = json.loads(done.out)["reports"][0]["results"]
    assert result["verdict"] == "does not fit in memory"
    (section,) = [s for s in result["sections"] if s["title"] == TITLE]
    program, *arguments = shlex.split(section["command"])
    assert program == "parcost"
    again = run_command(*arguments, "--format", "json")
    assert again.code == 0, again.err
    (fitting,) = json.loads(again.out)["reports"][0]["results"]
    assert fitting["verdict"] == "fits in memory"
    first = section["rows"][0]
    assert first[1][0] == pytest.approx(fitting["memory"]["total_bytes"], rel=1e-12)
    assert first[3][0] == pytest.approx(fitting["step_seconds"], rel=1e-12)


@pytest.mark.slow
def test_the_screen_has_the_cheapest_cures_and_the_command(run_command: Run) -> None:
    done = run_command("eval", "job.par", "--set", "training.micro_batch=4", job=JOB)
    lines = done.out.splitlines()
    assert len(lines) <= 44
    at = lines.index(TITLE)
    assert lines[at + 1].split() == ["change", "memory", "saved", "step", "vs", "now", "host"]
    assert lines[at + 3].startswith("  training.micro_batch = 1")
    assert "Reproduce the first row: parcost eval job.par --set training.micro_batch=1" in done.out
    # The split by cause stays.
    assert any(line.startswith("  TP communication") for line in lines)


@pytest.mark.slow
def test_two_cheap_changes_come_before_one_that_fills_the_host() -> None:
    """Offloading alone fits with 415 GiB on the host of each device; two free changes fit too."""
    text = JOB.replace(
        "tp = 8, pp = 4, zero = 1, sequence_parallel = on", "tp = 2, pp = 8, zero = 1"
    )
    rows = fixes(text, training__micro_batch=4, training__global_batch="256 sequences")
    changes = [*rows]
    assert rows["offload.activations = 1"][4][0] > 400 * GIB
    both = "training.recompute = full, training.micro_batch = 1"
    assert changes.index(both) < changes.index("offload.activations = 1")
    assert not any(", offload.activations = 1" in change for change in changes)  # it fits alone
    values = {"training.micro_batch": 1, "training.recompute": "full"}
    values["training.global_batch"] = "256 sequences"
    memory, seconds = outcome(text, values)
    assert memory <= 0.95 * 79.65 * GIB
    assert rows[both][0][0] == pytest.approx(memory)
    assert rows[both][2][0] == pytest.approx(seconds)


@pytest.mark.slow
def test_a_long_command_can_be_copied(run_command: Run) -> None:
    """A command that is cut without a backslash is several commands for a shell."""
    given = ["layout.zero=1", "layout.tp=8", "layout.pp=4", "training.sequence=8192"]
    options = [word for value in given for word in ("--set", value)]
    done = run_command("eval", "job.par", "--set", "training.micro_batch=4", *options, job=JOB)
    lines = done.out.splitlines()
    at = lines.index("  Reproduce the first row:") + 1
    assert lines[at].endswith(" \\")
    assert max(map(len, lines)) <= 80
    command = "\n".join(lines[at : lines.index("", at)])
    assert set(shlex.split(command)) >= {"parcost", "eval", *options, "training.micro_batch=1"}
    assert len(shlex.split(command.replace("\\\n", ""))) == 3 + 2 * (1 + len(given))


def test_replaced_studies_know_their_command() -> None:
    (scenario,) = parcost.load_text(JOB)
    (study,) = scenario.studies()
    changed: Study = study.replace({"layout.tp": 4, "training.recompute": "full"})
    assert changed.command.endswith("--set layout.tp=4 --set training.recompute=full")


@pytest.mark.slow
def test_a_batch_that_follows_from_the_layout_is_kept() -> None:
    """More context parallelism leaves fewer replicas; both steps have the sequences of today."""
    text = JOB.replace("global_batch = 128 sequences", "global_batch = 64 * layout.dp sequences")
    found = [change for change in fixes(text, layout__pp=2, layout__tp=4) if "layout.cp" in change]
    assert found == ["layout.cp = 4, training.global_batch = 512 sequences"]
