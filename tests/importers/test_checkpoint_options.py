"""Options of activation checkpoints: reentrant or not, of every how many layers, on the host.

Non-reentrant checkpoints of PyTorch stop as soon as backward has what it reads; reentrant ones run
all of a layer again. The defaults are those of the tools' wheels: transformers 5.24
modeling_utils.py, llamafactory 0.9.5 checkpointing.py, axolotl 0.19 utils/config, ms-swift 4.6
trainers/mixin.py, trl 1.16 grpo_trainer.py, openrlhf 0.11 cli/train_sft.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parcost import ImportFile, Translation

from ..rows import try_each
from .finetuning_files import FILES, importer_of
from .translations import assumptions, names, settings

Run = Callable[..., Any]

EARLY, EVERY = "recompute.stops_early", "recompute.every"
KWARGS = "gradient_checkpointing_kwargs"
OPENRLHF = """deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B \\
  --max_len 4096 --packing_samples --train_batch_size 64 --micro_train_batch_size 1 \\
  --zero_stage 3 --bf16 --gradient_checkpointing
"""
LORA = "--use_peft --lora_r 16 --lora_target_modules all-linear --dtype bfloat16"
ZERO_3 = '--deepspeed \'{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}\''


def read(tool: str, old: str = "", new: str = "") -> Translation:
    name, text = {**FILES, "openrlhf": ("run.sh", OPENRLHF)}[tool]
    assert old in text
    one = importer_of(tool)
    return one.read(ImportFile(name, text.replace(old, new, 1)))


@try_each(
    "tool, old, new, early",
    [
        ("trl", "", "", "on"),
        ("trl", "--bf16", f"--bf16 --{KWARGS} '{{\"use_reentrant\": true}}'", "off"),
        ("trl", "--bf16", f"--bf16 {LORA}", "on"),
        ("trl", "--bf16", f"--bf16 {LORA} {ZERO_3}", "off"),
        ("trl", "--bf16", f"--bf16 {ZERO_3}", "on"),
        ("llamafactory", "", "", "off"),
        ("llamafactory", "bf16: true", "bf16: true\nuse_reentrant_gc: false", "on"),
        ("llamafactory_v1", "", "", "on"),
        ("axolotl", "", "", "off"),
        ("axolotl", "bf16: true", f"bf16: true\n{KWARGS}: {{use_reentrant: false}}", "on"),
        ("ms_swift", "", "", "off"),
        ("ms_swift", "--deepspeed zero3", "", "on"),  # replicas
        ("openrlhf", "", "", "on"),
        ("openrlhf", "--bf16", "--bf16 --gradient_checkpointing_use_reentrant", "off"),
    ],
)
def test_reentrant_checkpoints_run_all_of_a_layer(
    tool: str, old: str, new: str, early: str
) -> None:
    found = settings(read(tool, old, new))
    assert found["training.recompute"] == "full"
    assert found[EARLY] == early


def test_the_default_is_listed_with_the_tool_that_has_it() -> None:
    listed = assumptions(read("llamafactory"))
    assert listed[EARLY] == "LLaMA-Factory 0.9: use_reentrant_gc is true"


def test_without_checkpoints_their_options_say_nothing() -> None:
    found = settings(read("axolotl", "gradient_checkpointing: true", f"{KWARGS}: {{x: 1}}"))
    assert found["training.recompute"] == "none"
    assert EARLY not in found


def test_transformers_can_recompute_every_n_th_layer_and_keep_checkpoints_on_the_host() -> None:
    found = settings(read("trl", "--bf16", f"--bf16 --{KWARGS} '{{\"every_n_layers\": 4}}'"))
    assert found[EVERY] == "4"
    found = settings(read("trl", "--bf16", f"--bf16 --{KWARGS} '{{\"offload\": true}}'"))
    assert (found["offload.activations"], found["offload.overlap"]) == ("100 %", "off")


def test_unsloths_checkpoints_are_on_the_host() -> None:
    found = settings(read("llamafactory", "bf16: true", "bf16: true\nuse_unsloth_gc: true"))
    assert (found["offload.activations"], found[EARLY]) == ("100 %", "off")


def test_checkpoints_on_the_host_beside_layers_that_keep_all_are_a_gap() -> None:
    options = f'--{KWARGS} \'{{"every_n_layers": 4, "offload": true}}\''
    found = read("trl", "--bf16", f"--bf16 {options}")
    assert settings(found)[EVERY] == "4"
    assert "offload.activations" not in settings(found)
    assert f"{KWARGS}.offload" in names(found.missing)


@try_each("value", ["'{use_reentrant'", "[1, 2]", "true", "no table"])
def test_options_that_are_no_table_are_an_error(value: str) -> None:
    found = read("axolotl", "bf16: true", f"bf16: true\n{KWARGS}: {value}")
    (problem,) = found.problems
    assert problem.message.startswith(f"`{KWARGS}`: ")
    assert problem.help == "such as '{\"use_reentrant\": false}'"
