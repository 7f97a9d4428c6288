"""Counts of ``#SBATCH`` lines that contradict the launch of their script are errors."""

from __future__ import annotations

import pytest

from parcost_formats.tools.megatron import Megatron

from .megatron_files import small
from .translations import problems, settings

TASKS, GRES = "#SBATCH --ntasks-per-node=8", "#SBATCH --gres=gpu:h100:4"


def read(lines: str) -> list[tuple[str, str]]:
    return problems(Megatron(), f"#!/bin/bash\n{lines} a.py {small()}\n", "run.sh")


@pytest.mark.parametrize(
    ("lines", "reason", "places"),
    [
        (
            "#SBATCH --nodes=4\nsrun torchrun --nnodes=2 --nproc_per_node 8",
            "`--nnodes=2` expects 2 launchers, and the job has 4 nodes",
            ["--nodes=4", "--nnodes=2"],
        ),
        (
            "#SBATCH -N 2\nNNODES=3\ntorchrun --nnodes $NNODES --nproc_per_node 8",
            "`--nnodes=3` expects 3 launchers, and the job has 2 nodes",
            ["-N 2", "$NNODES"],
        ),
        (
            f"#SBATCH -N 2\n{TASKS}\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8",
            "`--nnodes=2` expects 2 launchers, and srun starts 2 * 8 = 16 of them",
            ["--ntasks-per-node=8", "$SLURM_NNODES"],
        ),
        (
            "#SBATCH --nodes=2\nsrun -N 4 --ntasks-per-node=8 python",
            "srun asks for 4 nodes, but the job has 2",
            ["--nodes=2", "4"],
        ),
        (
            f"#SBATCH --nodes=2\n{GRES}\nsrun torchrun --nnodes 2 --nproc-per-node=8",
            "8 ranks do not fit on the 4 devices of a node",
            ["--gres=gpu:h100:4", "--nproc-per-node=8"],
        ),
        (
            "#SBATCH --nodes=5-8\ntorchrun --nnodes=4 --nproc_per_node 8",
            "`--nnodes=4` expects 4 launchers, and the job has 5-8 nodes",
            ["--nodes=5-8", "--nnodes=4"],
        ),
        (
            "#SBATCH --nodes=1000000000\ntorchrun --nnodes=4 --nproc_per_node 8",
            "and the job has 1000000000 nodes",
            ["--nodes=1000000000", "--nnodes=4"],
        ),
        (
            "#SBATCH --nodes=2,8\ntorchrun --nnodes=4 --nproc_per_node 8",
            "and the job has 2,8 nodes",
            ["--nodes=2,8", "--nnodes=4"],
        ),
        (
            f"#SBATCH -N 2-3\n{TASKS}\nsrun torchrun --nnodes 2 --nproc_per_node 8",
            "`--nnodes=2` expects 2 launchers, and srun starts 2-3 * 8 of them",
            ["--ntasks-per-node=8", "2"],
        ),
    ],
)
def test_a_launch_that_contradicts_the_scheduler(
    lines: str, reason: str, places: list[str]
) -> None:
    found = read(lines)
    assert [place for _, place in found] == places
    assert all(message.endswith(reason) for message, _ in found), found


@pytest.mark.parametrize(
    "lines",
    [
        "#SBATCH --nodes=4\nsrun torchrun --nnodes=4 --nproc_per_node 8",
        "#SBATCH --nodes=4\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8",
        "#SBATCH --nodes=4\nsrun torchrun --nnodes ${NNODES:-2} --nproc_per_node 8",
        "#SBATCH --nodes=4\nsrun torchrun --nnodes=2:4 --nproc_per_node 8",
        "#SBATCH --nodes=4\nsrun -N 2 torchrun --nnodes=2 --nproc_per_node 8",
        "#SBATCH --nodes=4\nsrun -N 1 torchrun --nnodes=4 --nproc_per_node 8",
        "#SBATCH -n 4\n#SBATCH --nodes=4\nsrun torchrun --nnodes=4 --nproc_per_node 8",
        f"#SBATCH -N 4\n{TASKS}\nsrun --ntasks-per-node=1 torchrun --nnodes=4 --nproc_per_node 8",
        f"#SBATCH --nodes=4\n{TASKS}\ntorchrun --nnodes=4 --nproc_per_node 8",
        "#SBATCH --nodes=2-8\ntorchrun --nnodes=4 --nproc_per_node 8",
        "#SBATCH --nodes=2-8:2\ntorchrun --nnodes=4 --nproc_per_node 8",
        "#SBATCH --nodes=4,8\ntorchrun --nnodes=4 --nproc_per_node 8",
        '#SBATCH --nodes="4"\ntorchrun --nnodes=4 --nproc_per_node 8',
        f"#SBATCH -N 2-3\n{TASKS}\nsrun torchrun --nnodes 16 --nproc_per_node 8",
        "#SBATCH -N 2\n#SBATCH hetjob\n#SBATCH -N 4\ntorchrun --nnodes 6 --nproc_per_node 8",
    ],
)
def test_launches_that_slurm_allows(lines: str) -> None:
    assert read(lines) == []


def test_idle_devices_of_a_node_are_listed() -> None:
    lines = "#SBATCH --gpus-per-node=8\ntorchrun --nnodes 1 --nproc_per_node 4"
    found = Megatron().translate("run.sh", f"#!/bin/bash\n{lines} a.py {small()}\n")
    reasons = {one.name: one.reason for one in found.missing}
    assert reasons["#SBATCH --gpus-per-node=8"] == (
        "--nproc_per_node=4 leaves 4 of them idle on each node"
    )


@pytest.mark.parametrize("text", ["1e9", "abc", "-4", "٤", "4:8", "0", "8-5", "4,", "9" * 5000])
@pytest.mark.parametrize("launch", ["torchrun --nnodes=4 --nproc_per_node 8", "accelerate launch"])
def test_a_text_that_is_no_number_of_nodes(text: str, launch: str) -> None:
    message = f"`#SBATCH --nodes={text}` cannot be read as a number of nodes"
    assert read(f"#SBATCH --nodes={text}\n{launch}") == [(message, f"--nodes={text}")]


def test_a_range_of_tasks_is_no_number() -> None:
    (found,) = read("#SBATCH --ntasks-per-node=4-8\nsrun torchrun --nnodes=4 --nproc_per_node 8")
    assert found[0] == "`#SBATCH --ntasks-per-node=4-8` cannot be read as a number of tasks"


@pytest.mark.parametrize("text", ["$N", "${NODES}"])
def test_nodes_of_a_variable_are_listed(text: str) -> None:
    lines = f"#SBATCH --nodes={text}\ntorchrun --nnodes 4 --nproc_per_node 8"
    found = Megatron().translate("run.sh", f"#!/bin/bash\n{lines} a.py {small()}\n")
    reasons = {one.name: one.reason for one in found.missing}
    assert "not read" in reasons[f"#SBATCH --nodes={text}"]


def test_a_short_option_of_srun_holds_its_value() -> None:
    text = f"srun -N4 --ntasks-per-node=8 python a.py {small()}\n"
    assert settings(Megatron().translate("run.sh", text))["cluster.devices"] == "32"
    (first, _) = problems(Megatron(), f"#SBATCH --nodes=2\n{text}", "run.sh")
    assert "srun asks for 4 nodes, but the job has 2" in first[0]


def test_the_last_of_two_counts_of_the_scheduler() -> None:
    lines = "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n#SBATCH --nodes=4\nsrun python a.py "
    found = Megatron().translate("run.sh", f"#!/bin/bash\n{lines}{small()}\n")
    assert settings(found)["cluster.devices"] == "32"
    (note,) = [one for one in found.missing if one.name == "#SBATCH --nodes=2"]
    assert note.reason == "a later line has 4, and the last line counts"


@pytest.mark.parametrize("flag", ["--nnodes=2:4", "--nnodes 2:4"])
def test_an_elastic_job_asks_for_its_devices(flag: str) -> None:
    text = f"torchrun {flag} --nproc_per_node=8 a.py {small()}\n"
    found = Megatron().translate("run.sh", text)
    (asked,) = [one for one in found.questions if one.attribute == "cluster.devices"]
    assert "the job is elastic, from 2 to 4 nodes" in asked.reason
    fixed = Megatron().translate("run.sh", text.replace("2:4", "2:2"))
    assert settings(fixed)["cluster.devices"] == "16"
