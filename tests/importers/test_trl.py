"""Jobs of TRL, and of other scripts with the arguments of the Hugging Face Trainer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from parcost import ImportFile
from parcost.contract.importers import PLAIN
from parcost_formats.tools.finetuning import importers

from ..rows import try_each
from .finetuning_files import BATCHES, FILES, TRL, TRL_YAML, importer_of, read, read_file
from .translations import assumptions, settings, uses

Run = Callable[..., Any]


def test_a_command_of_trainer_without_a_model_asks_for_it(run_command: Run) -> None:
    script = (
        "torchrun --nproc_per_node 8 run_clm.py --dataset_name d --block_size 4096 --bf16"
        " --per_device_train_batch_size 2 --output_dir out\n"
    )
    done = run_command("check", "run.sh", files={"run.sh": script})
    assert "the file has no `model_name_or_path`" in done.out


@pytest.mark.slow
def test_a_variable_that_decides_adapters_raises_an_error(run_command: Run) -> None:
    files = {"run.sh": TRL.replace("--bf16", "--bf16 --use_peft $PEFT")}
    done = run_command("eval", "run.sh", files=files)
    assert done.code == 2
    assert "`use_peft` decides what is trained" in done.err
    done = run_command("import", "--set-env", "PEFT=true", "run.sh")
    assert "adapters {" in done.out
    assert "rank    = 16 @assumed" in done.out


@pytest.mark.slow
def test_a_variable_without_a_value_raises_an_error(run_command: Run) -> None:
    files = {"run.sh": TRL.replace("--max_length 4096", "--max_length $LENGTH")}
    done = run_command("eval", "run.sh", files=files)
    assert "`max_length`: " in done.err
    assert "--set-env LENGTH=" in done.err


def test_of_two_commands_the_one_that_trains_is_read() -> None:
    script = """torchrun --nproc_per_node 4 run_clm.py --do_train --model_name_or_path Qwen/Qwen3-8B \\
 --dtype float32 --bf16 --block_size 2048 --per_device_train_batch_size 2 --gradient_checkpointing
torchrun --nproc_per_node 4 run_clm.py --do_predict --model_name_or_path out \\
 --per_device_train_batch_size 2
"""
    values = settings(read("trl", TRL, script))
    assert values["training.sequence"] == "2048"
    assert values["cluster.devices"] == "4"
    adapters = script.replace("--bf16", "--bf16 --lora_r 8")
    name = FILES["trl"][0]
    one = importer_of("trl")
    (problem,) = one.read(ImportFile(name, adapters)).problems
    assert problem.message == (
        "`lora_r`: LoRA with targets that are set in a script is not read yet"
    )
    switched = adapters.replace("--lora_r", "--use_peft False --lora_r")
    assert not one.read(ImportFile(name, switched)).problems


def test_a_default_of_the_script_is_assumed() -> None:
    found = read("trl", "--max_length 4096", '--max_length "${LENGTH:-2048}"')
    assert settings(found)["training.sequence"] == "2048"
    assert "LENGTH" in assumptions(found)["training.sequence"]


@pytest.mark.slow
def test_a_length_by_default_is_read_without_packing(run_command: Run) -> None:
    """The longest sequence is known, and shorter batches are a warning."""
    script = TRL.replace("--max_length 4096 --packing", '--max_length "${LENGTH:-2048}"')
    hardware = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", "run.sh", *hardware, "--warnings", files={"run.sh": script})
    assert "step time" in done.out
    assert "not known" not in done.err
    assert "packing" in done.out


@pytest.mark.parametrize(
    ("launch", "devices"),
    [
        (
            "--config_file recipes/accelerate_configs/zero3.yaml scripts/sft.py --config run.yaml",
            None,
        ),
        (
            "--config_file accelerate_configs/zero3.yaml --num_processes 16 scripts/run_sft.py run.yaml",
            "16",
        ),
    ],
)
def test_a_job_whose_keys_are_in_a_recipe_is_one_of_trainer(
    run_command: Run, launch: str, devices: str | None
) -> None:
    """ZeRO 3 of the launcher that TRL brings; `run_sft.py` of NeMo RL has no such launcher."""
    one = importer_of("trl")
    script = f"accelerate launch {launch}\n"
    found = one.read(ImportFile("run.sh", script, PLAIN, {"run.yaml": TRL_YAML}.get))
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert settings(found).get("cluster.devices") == devices
    assert settings(found)["training.micro_batch"] == "1"
    named = [tool.name for tool in importers() if tool.recognizes("run.sh", script)]
    assert named == ["trl"]
    done = run_command("check", "run.sh", files={"run.sh": script})
    assert "`run.yaml` has the keys of the job, but is not beside the script" in done.out
    assert "repeat the overrides of the command with --set" in done.out


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("trl", "accelerate launch scripts/sft.py --config $JOB --bf16"),
        ("nemo_rl", "uv run examples/run_sft.py --config $JOB cluster.num_nodes=2"),
        ("torchtune", "tune run --nproc_per_node 2 full_finetune_distributed --config $JOB"),
    ],
)
def test_a_configuration_in_a_variable_that_is_not_known_is_an_error(
    tool: str, command: str
) -> None:
    """The defaults of the tool would stand for its keys."""
    (problem,) = importer_of(tool).read(ImportFile("run.sh", f"{command}\n")).problems
    assert problem.message == "`config` decides what is trained: `JOB` is not set in the file"
    assert problem.help == "give the variable: --set-env JOB=VALUE"


SUBMITTED = """python mason.py --num_nodes 4 --gpus 8 -- accelerate launch --mixed_precision bf16 \\
  --num_processes 8 --use_deepspeed --deepspeed_config_file ds.json open_instruct/finetune.py \\
  --model_name_or_path meta-llama/Llama-3.1-8B --max_seq_length 4096 \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --gradient_checkpointing
"""


def test_a_program_of_its_own_is_rejected_at_its_place() -> None:
    text = 'M="deepspeed --num_gpus 8 mine.py --deepspeed_config=ds.json --model_name a"\neval $M\n'
    text = "# Trainer\ncat > z.json <<E\n" + '{"zero_optimization": {"stage": 3}}\nE\n' + text
    (problem,) = read_file("trl", ImportFile("run.sh", text)).problems
    assert problem.message.startswith("`mine.py` is not a program of TRL")
    assert text[problem.start : problem.end] == "mine.py"
    assert "config.json" in problem.help


SCRIPT = (
    "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 True "
    "--torch_dtype bfloat16 --per_device_train_batch_size 2 --max_seq_length 4096"
)


@try_each(
    "flags, attribute",
    [
        ("--sequence_parallel_size 4", "layout.cp"),
        ("--tp_size 2", "layout.tp"),
        ("--pipeline_parallel_size 4", "layout.pp"),
        ("--expert_parallel_size 4", "layout.ep"),
        ("--zero_stage 3", "layout.zero"),
        ("--cpu_offload True", "offload.optimizer"),
        ("--num_experts 8", "model"),
    ],
)
def test_an_argument_of_a_script_of_its_own_may_decide(flags: str, attribute: str) -> None:
    found = read_file("trl", ImportFile("run.sh", f"{SCRIPT} {flags}\n"))
    assert attribute in {one.attribute for one in found.questions}


@try_each(
    "flags, missing",
    [
        ("--lora True", "LoRA"),
        ("--peft_type lora", "LoRA"),
        ("--adapter prefix", "adapters"),
        ("--bits 4", "a frozen model in 4 or 8 bits"),
        ("--freeze_layers 10", "frozen parameters"),
        ("--trainable_layers 4", "frozen parameters"),
        ("--trainable_params embed,norm", "frozen parameters"),
        ("--freeze_backbone True", "frozen parameters"),
        ("--unfreeze_layers 2", "frozen parameters"),
        ("--tune_mlp_only True", "frozen parameters"),
        ("--train_head_only True", "frozen parameters"),
        ("--low_rank_training True", "LoRA"),
        ("--use_galore True", "galore"),
        ("--teacher_model big", "distillation"),
        ("--ref_model base", "a separate reference model"),
    ],
)
def test_what_a_script_of_its_own_adds_is_rejected_by_name(flags: str, missing: str) -> None:
    found = read_file("trl", ImportFile("run.sh", f"{SCRIPT} {flags}\n"))
    assert any(missing in one.message for one in found.problems)


@pytest.mark.parametrize(
    "flags",
    [
        *("--bits 16", "--peft_type none", "--use_flash_attn True"),
        *("--train_on_responses_only True", "--train_on_completions_only True"),
    ],
)
def test_an_argument_that_changes_nothing_leaves_a_script_as_it_is(flags: str) -> None:
    found = read_file("trl", ImportFile("run.sh", f"{SCRIPT} {flags}\n"))
    assert not found.problems
    assert not found.questions
    off = read_file("trl", ImportFile("run.sh", f"{SCRIPT} --flash_attn False\n"))
    assert settings(off)["training.flash_attention"] == "off"


@try_each(
    "words, message",
    [
        ("--objective dpo", "`objective` is dpo: a separate reference model"),
        ("--training_type grpo", "`training_type` is grpo: a rollout engine"),
        ("--quant_cfg NVFP4_DEFAULT_CFG", "training with fake quantization (QAT)"),
        ("--objective sft", ""),
        ("--run_name dpo", ""),
    ],
)
def test_a_word_of_a_script_of_its_own_may_name_another_objective(words: str, message: str) -> None:
    script = f"torchrun --nproc_per_node 8 my.py --model_name_or_path Qwen/Qwen3-4B --bf16 {words}"
    found = read("trl", TRL, f"{script} --dtype float32 --per_device_train_batch_size 1\n")
    assert [message in one.message for one in found.problems] == [True] * bool(message)


def test_blocks_of_run_clm_are_full() -> None:
    words = "--model_name_or_path Qwen/Qwen3-4B --per_device_train_batch_size 1 --block_size 1024"
    for program, is_full in (("run_clm.py", True), ("train/sft.py", False)):
        found = read("trl", TRL, f"python {program} --dtype float32 {words}\n")
        assert ("packing" not in [one.name for one in found.missing]) == is_full


def test_a_job_whose_words_stand_apart_is_one_of_trl(run_command: Run) -> None:
    script = """CMD="scripts/run_sft.py sft.yaml"
LAUNCHER="accelerate launch --config_file recipes/accelerate_configs/zero3.yaml --num_processes 16"
srun bash -c "$LAUNCHER $CMD"
"""
    beside = "model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: 1\nbf16: true\n"
    done = run_command("import", "run.sh", files={"run.sh": script, "sft.yaml": beside})
    assert done.code == 0, done.err
    assert "devices = 16" in done.out


def test_a_job_that_another_program_submits_is_the_command_behind_the_dashes() -> None:
    ds = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    file = ImportFile("run.sh", SUBMITTED, neighbor={"ds.json": ds}.get)
    found = settings(read_file("trl", file))
    assert (found["layout.zero"], found["training.sequence"]) == ("3", "4096")
    assert found["cluster.devices"] == "32"  # mason.py multiplies the processes by its nodes


def test_steps_between_checkpoints_of_a_run_are_no_recomputation() -> None:
    script = f"torchrun --nproc_per_node 8 {BATCHES} --dtype float32 --checkpointing_steps 100\n"
    found = read_file("trl", ImportFile("run.sh", script, PLAIN))
    assert not found.questions
    assert settings(found)["training.recompute"] == "none"


def test_sizes_that_a_script_overrides_raise_a_question() -> None:
    script = f"torchrun --nproc_per_node 8 {BATCHES} --dtype float32 --config_overrides n_layer=4\n"
    (question,) = read_file("trl", ImportFile("run.sh", script, PLAIN)).questions
    assert (question.attribute, question.answers) == ("model", ("--use config.json",))


@pytest.mark.parametrize(
    ("word", "attributes"),
    [
        ("--config_name own/changed", ["model"]),
        ("--config_name meta-llama/Llama-3.1-8B", []),
        ("--model_init_kwargs '{\"num_hidden_layers\": 4}'", ["model"]),
    ],
)
def test_the_configuration_of_a_model_of_trl_raises_a_question(
    word: str, attributes: list[str]
) -> None:
    script = TRL.replace("--bf16", f"--bf16 {word}")
    assert [one.attribute for one in read("trl", TRL, script).questions] == attributes


def test_a_model_of_a_configuration_alone_is_read() -> None:
    script = TRL.replace("--model_name_or_path", "--config_name")
    assert settings(read("trl", TRL, script))["training.model"] == "llama31_8b"


def test_arguments_of_a_model_of_trl_are_read() -> None:
    text = """model_name_or_path: meta-llama/Llama-3.1-8B
model_init_kwargs: {dtype: bfloat16, attn_implementation: eager, use_cache: false}
max_length: 4096
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
"""
    plain = "dtype: bfloat16\nattn_implementation: eager\n"
    inner, outer = (
        read_file("trl", ImportFile("run.yaml", one))
        for one in (text, re.sub("model_init_kwargs.*\n", plain, text))
    )
    assert not inner.unknown
    assert settings(inner)["training.flash_attention"] == "off"
    assert settings(inner) == settings(outer)
    assert uses(inner) == uses(outer)


def test_spectrum_of_a_script_of_its_own_is_rejected() -> None:
    """It trains the layers that a file lists, and freezes the others."""
    text = "model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: 1\n"
    text += "spectrum_config_path: configs/layers.yaml\n"
    one = importer_of("trl")
    found = one.read(ImportFile("sft.yaml", text, PLAIN, lambda _: None))
    assert ["frozen" in one.message for one in found.problems] == [True]


@try_each("word, recompute", [("1", "full"), ("0", "none"), ("no", "none"), ("y", "full")])
def test_words_of_switches_are_those_of_transformers(word: str, recompute: str) -> None:
    found = read("trl", "--gradient_checkpointing True", f"--gradient_checkpointing {word}")
    assert not found.problems
    assert settings(found)["training.recompute"] == recompute


def test_lisa_is_rejected() -> None:
    """It trains a few layers of the model at a time."""
    for words, is_rejected in (("--use_lisa 1 --lisa_activated_layers 1", True), ("", False)):
        found = read("trl", "--bf16", f"--bf16 {words}")
        assert any("frozen" in one.message for one in found.problems) == is_rejected
