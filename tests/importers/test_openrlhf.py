"""Fine-tuning of OpenRLHF."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile
from parcost.contract.importers import PLAIN

from .finetuning_files import OPENRLHF, OPENRLHF_SFT, importer_of, read
from .translations import settings, uses


@pytest.mark.parametrize("search", ["command -v deepspeed", "which deepspeed"])
def test_a_program_that_a_script_looks_for_starts_the_job(search: str) -> None:
    """The search printed nothing, so that the script ended at its own error."""
    script = f"""DEEPSPEED=${{DEEPSPEED:-$({search})}}
if [[ -z "$DEEPSPEED" ]]; then echo "not found" >&2; exit 1; fi
cmd=("$DEEPSPEED" --num_gpus 4 --module openrlhf.cli.train_sft --bf16
  --pretrain meta-llama/Llama-2-7b-hf --micro_train_batch_size 2)
"${{cmd[@]}}"
"""
    assert settings(read("openrlhf", OPENRLHF, script))["cluster.devices"] == "4"


def test_a_command_that_is_not_read_is_rejected_by_the_program_that_it_names() -> None:
    script = """read -r -d '' commands <<END
openrlhf.cli.train_ppo_ray --actor_num_nodes 1
END
if [[ ${1} != slurm ]]; then deepspeed --module $commands; fi
"""
    (problem,) = read("openrlhf", OPENRLHF, script).problems
    assert problem.message.startswith("`openrlhf.cli.train_ppo_ray`: a rollout engine")
    (problem,) = read("openrlhf", OPENRLHF, script.replace("_ppo_ray", "_of_tomorrow")).problems
    assert problem.message.startswith("`openrlhf.cli.train_of_tomorrow`: trainers of OpenRLHF")


def test_fine_tuning_of_openrlhf_is_read() -> None:
    """128 sequences of a step over 8 devices; states of Adam on the host."""
    script = """read -r -d '' commands <<END
openrlhf.cli.train_sft --pretrain /data/Qwen2.5-14B-Instruct --max_len 4096 --packing_samples \\
  --train_batch_size 128 --micro_train_batch_size 2 --zero_stage 3 --bf16 --adam_offload \\
  --gradient_checkpointing --learning_rate 1e-5
END
if [[ ${1} != slurm ]]; then deepspeed --include localhost:0-3@b:0,2,4,6 --module $commands; fi
"""
    found = read("openrlhf", OPENRLHF, script)
    assert not found.questions
    assert not found.unknown
    values = settings(found)
    assert values["training.model"] == "qwen25_14b"
    assert values["training.global_batch"] == "128 sequences"
    assert values["training.micro_batch"] == "2"
    assert values["training.recompute"] == "full"
    assert values["layout.zero"] == "3"
    assert values["offload.optimizer"] == "1"
    assert values["cluster.devices"] == "8"
    assert "precisions.bf16_zero" in uses(found)
    ring = read("openrlhf", OPENRLHF, script.replace("--bf16", "--bf16 --ring_attn_size 2"))
    assert settings(ring)["context.algorithm"] == "all_gather"  # llama3_flash_attn_varlen
    (asked,) = read("openrlhf", OPENRLHF, script.replace("--bf16", "")).questions
    assert asked.attribute == "precision"
    fsdp = script.replace("--zero_stage 3", "--backend fsdp2")
    (problem,) = read("openrlhf", OPENRLHF, fsdp).problems
    assert problem.message == "`backend`: only jobs on DeepSpeed are supported"


def test_first_releases_of_openrlhf_start_files() -> None:
    script = """read -r -d '' commands <<END
../train_sft.py --pretrain meta-llama/Llama-2-7b-hf --max_len 2048 --train_batch_size 64 \\
  --micro_train_batch_size 4 --zero_stage 2 --bf16 --gradient_checkpointing
END
deepspeed --num_gpus 4 $commands
"""
    values = settings(read("openrlhf", OPENRLHF, script))
    assert values["training.model"] == "llama2_7b"
    assert values["training.micro_batch"] == "4"
    assert values["cluster.devices"] == "4"
    preferences = script.replace("train_sft.py", "train_dpo.py")
    (problem,) = read("openrlhf", OPENRLHF, preferences).problems
    assert problem.message == "`../train_dpo.py`: a separate reference model is not modeled yet"


@pytest.mark.parametrize(
    ("stage", "more", "hides"), [(2, "", "off"), (2, "--overlap_comm", "on"), (3, "", "on")]
)
def test_overlap_of_openrlhf_is_read(stage: int, more: str, hides: str) -> None:
    script = OPENRLHF_SFT.replace("--zero_stage 2", f"--zero_stage {stage} {more}")
    assert settings(read("openrlhf", OPENRLHF, script))["overlap.gradients"] == hides


@pytest.mark.parametrize("word", ["--train.dynamic_batch_enable", "--train.enable_ema"])
def test_options_of_openrlhf_that_no_attribute_has_are_listed(word: str) -> None:
    plain = {one.name for one in read("openrlhf", OPENRLHF, OPENRLHF_SFT).missing}
    found = read("openrlhf", OPENRLHF, OPENRLHF_SFT.replace("--bf16", f"--bf16 {word}"))
    assert {one.name for one in found.missing} == {*plain, word.removeprefix("--")}


def test_packing_of_openrlhf_fills_no_sequence() -> None:
    """It joins the sequences of a micro-batch, each of which may be shorter than the longest."""
    text = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen3-8B --bf16 \\\n"
    text += "  --max_len 4096 --micro_train_batch_size 2 --packing_samples\n"
    one = importer_of("openrlhf")
    found = one.read(ImportFile("run.sh", text, PLAIN, lambda _: None))
    assert settings(found)["training.sequence"] == "4096"
    assert [one.name for one in found.missing] == ["packing_samples"]


def test_a_hostfile_that_is_not_there_leaves_the_devices_open(
    run_command: Callable[..., Any],
) -> None:
    """The devices of one system were taken for those of all hosts."""
    script = OPENRLHF_SFT.replace("--num_gpus 4", "--hostfile hosts.txt")
    found = read("openrlhf", OPENRLHF, script)
    assert "cluster.devices" in {one.attribute for one in found.missing}
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", "run.sh", *machine, files={"run.sh": script})
    assert done.code == 2
    assert "--set cluster.devices=" in done.err


def test_a_part_of_the_path_from_the_environment_has_the_place_of_the_key() -> None:
    """The error stood at the first character of the file."""
    script = OPENRLHF_SFT.replace("meta-llama/Llama-2-7b-hf", "$HOME/models/$1")
    (problem,) = read("openrlhf", OPENRLHF, script).problems
    assert script[problem.start : problem.end] == "$HOME/models/$1"
