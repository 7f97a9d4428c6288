"""Scripts with several commands: chores are left out, and a training is chosen by its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from .finetuning_files import LLAMAFACTORY
from .megatron_files import small

Run = Callable[..., Any]

ARGUMENTS = f"{small()} --vocab-size 32000 --micro-batch-size 1"
FILES = {"a.yaml": LLAMAFACTORY, "b.yaml": LLAMAFACTORY.replace("4096", "2048")}
TWICE = "llamafactory-cli train a.yaml\nllamafactory-cli train b.yaml\n"
CHORES = """pip install -r requirements.txt
huggingface-cli download meta-llama/Llama-3.1-8B
python tools/checkpoint/convert.py --model-type GPT --num-layers 7
torchrun --nproc_per_node 8 pretrain_gpt.py {}
python tools/checkpoint/util.py --tensor-model-parallel-size 3 --load-dir a
torchrun tasks/main.py --task LAMBADA --num-layers 9 --micro-batch-size 8
python eval_harness.py --num-layers 11 --seq-length 7
"""


def test_programs_that_train_nothing_are_left_out(run_command: Run) -> None:
    done = run_command("import", "run.sh", files={"run.sh": CHORES.format(ARGUMENTS)})
    alone = f"torchrun --nproc_per_node 8 pretrain_gpt.py {ARGUMENTS}\n"
    expected = run_command("import", "run.sh", files={"run.sh": alone})
    assert done.code == expected.code == 0
    assert done.out == expected.out


@pytest.mark.parametrize(("line", "sequence"), [("1", "4096"), ("2", "2048")])
def test_a_command_is_chosen_by_its_line(run_command: Run, line: str, sequence: str) -> None:
    done = run_command("import", f"run.sh:{line}", files={"run.sh": TWICE, **FILES})
    assert done.code == 0
    assert f"sequence      = {sequence}" in done.out


def test_several_trainings_list_their_lines(run_command: Run) -> None:
    done = run_command("check", "run.sh", files={"run.sh": TWICE, **FILES})
    assert "the script has 2 commands of LLaMA-Factory 0.9, but exactly one is expected" in done.out
    assert "choose one by its line: run.sh:1 | run.sh:2" in done.out
    other = run_command("check", "run.sh:7", files={"run.sh": TWICE, **FILES})
    assert "`run.sh:7`: the script starts no program on this line" in other.out


def test_trainings_of_megatron_list_their_lines(run_command: Run) -> None:
    first = f"torchrun pretrain_gpt.py {ARGUMENTS}\n"
    text = first + first.replace("--num-layers", "--x 1 \\\n  --num-layers") + first
    done = run_command("check", "run.sh", files={"run.sh": text})
    assert "choose one by its line: run.sh:1 | run.sh:2" in done.out
    assert run_command("import", "run.sh:3", files={"run.sh": text}).code == 0


def test_commands_of_one_variable_are_chosen_by_their_own_lines(run_command: Run) -> None:
    """The words of a variable stand in another line than the commands that have it."""
    start = "$LAUNCH pretrain_gpt.py $M --tensor-model-parallel-size"
    launch = f'LAUNCH="torchrun --nproc-per-node 8"\nM="{ARGUMENTS}"\n'
    text = f"{launch}{start} 1\n{start} 2\n{start} 4\n"
    done = run_command("check", "run.sh", files={"run.sh": text})
    assert "choose one by its line: run.sh:3 | run.sh:4 | run.sh:5" in done.out
    for line, degree in (("3", "1"), ("4", "2"), ("5", "4")):
        found = run_command("import", f"run.sh:{line}", files={"run.sh": text})
        assert found.code == 0
        assert re.search(rf"tp += {degree}\b", found.out)
    assert run_command("check", "run.sh:2", files={"run.sh": text}).code == 2


@pytest.mark.parametrize(
    "launcher",
    ["bcprun -p 8 --env 'A=1' -c '{}'", "script -q -c '{}' log.txt", "su user -c '{}'"],
)
def test_an_option_of_a_launcher_may_have_the_command(run_command: Run, launcher: str) -> None:
    """The file was rejected as one without arguments of Megatron-LM."""
    command = f"python pretrain_gpt.py {ARGUMENTS}"
    done = run_command("import", "run.sh", files={"run.sh": f"{launcher.format(command)}\n"})
    expected = run_command("import", "run.sh", files={"run.sh": f"{command}\n"})
    assert done.code == expected.code == 0
    assert done.out == expected.out


@pytest.mark.parametrize("binding", ["-N 0 -m 0", "-N1 -l", "--cpunodebind=0 --membind 0"])
def test_a_binding_of_numactl_states_no_nodes(run_command: Run, binding: str) -> None:
    """``-N 0`` was read as no nodes: `devices` must be at least 1."""
    command = f"torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py {ARGUMENTS}\n"
    done = run_command("import", "run.sh", files={"run.sh": f"numactl {binding} {command}"})
    assert done.code == 0, done.out + done.err
    assert "devices = 16" in done.out


def test_a_job_without_a_model_names_the_file_that_may_set_it(run_command: Run) -> None:
    """The unset array was called a misspelled key, and stood in the value of the flag before it."""
    script = (
        'source "models/one.sh"\ntorchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py '
        "${MODEL_ARGS[@]} --seq-length 512 --micro-batch-size 1 --global-batch-size 8 --bf16 "
        "--tensor-model-parallel-size 2 ${MORE[@]}\n"
    )
    options = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    done = run_command("eval", "run.sh", *options, files={"run.sh": script})
    assert "missing: `training.model`" in done.err
    assert "`${MODEL_ARGS[@]}` may have arguments: `MODEL_ARGS` is not set" in done.err
    assert "`source models/one.sh` in line 1 may set it, but is not available" in done.err
    assert "misspelled" not in done.err
    assert "`layout.tp`" not in done.err
