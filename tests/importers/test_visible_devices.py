"""The devices of launchers that start a process on each device that they see."""

from __future__ import annotations

import pytest

from parcost import ImportFile

from .finetuning_files import AXOLOTL, LLAMAFACTORY, TRL, importer_of
from .translations import assumptions, settings

FACTORY = "llamafactory-cli train job.yaml"
ONE_NODE, TWO_NODES = (
    "#SBATCH -N 1\n#SBATCH --gres=gpu:a100:4\n",
    "#SBATCH -N 2\n#SBATCH --gres=gpu:4\n",
)
PLAIN_TRL = TRL.replace(" --num_processes 8", "")


def read_devices(tool: str, script: str, configuration: str = "") -> tuple[str, str]:
    """Return the number of devices and why it is assumed, each "" if there is none."""
    files = {"job.yaml": configuration}
    found = importer_of(tool).read(ImportFile("run.sh", script, neighbor=files.get))
    reason = assumptions(found).get("cluster.devices", "")
    return settings(found).get("cluster.devices", ""), reason


@pytest.mark.parametrize(
    ("before", "devices"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 ", "4"),
        ("export CUDA_VISIBLE_DEVICES=0,1\n", "2"),
        ("export ASCEND_RT_VISIBLE_DEVICES=0-7\n", "8"),
        ("FORCE_TORCHRUN=1 NNODES=2 CUDA_VISIBLE_DEVICES=0,1,2,3 ", "8"),
        (ONE_NODE, "4"),
        ("#SBATCH --gpus-per-node=8\n", "8"),
        (f"{ONE_NODE}export CUDA_VISIBLE_DEVICES=0,1\n", "2"),
        ("CUDA_VISIBLE_DEVICES=$DEVICES ", ""),
        (f"{ONE_NODE}CUDA_VISIBLE_DEVICES=$DEVICES ", ""),
        (TWO_NODES, ""),
        (f"{ONE_NODE}srun ", ""),
        ("CUDA_VISIBLE_DEVICES=GPU-8932f937 ", ""),
        ("", ""),
    ],
)
def test_a_launcher_takes_the_devices_that_it_sees(before: str, devices: str) -> None:
    found = read_devices("llamafactory", f"{before}{FACTORY}\n", LLAMAFACTORY)
    reason = "`llamafactory-cli train` starts one process per device"
    assert found == (devices, reason if devices else "")


def test_other_launchers_take_the_devices_of_a_node() -> None:
    visible = "CUDA_VISIBLE_DEVICES=0,1,2 "
    assert read_devices("axolotl", f"{visible}axolotl train job.yaml\n", AXOLOTL)[0] == "3"
    assert read_devices("trl", f"{visible}{PLAIN_TRL}")[0] == "3"
    assert read_devices("trl", f"{ONE_NODE}{PLAIN_TRL}")[0] == "4"
    stated = read_devices("trl", f"{visible}{TRL}")
    assert stated == ("8", "")


def test_a_program_alone_is_one_process() -> None:
    """``python`` and ``torchrun`` without a count take no more devices because they see them."""
    program = PLAIN_TRL.replace("accelerate launch", "python")
    assert read_devices("trl", f"{ONE_NODE}{program}")[0] == ""
