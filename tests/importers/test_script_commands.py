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
