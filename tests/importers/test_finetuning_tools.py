"""Files of tools for fine-tuning: recognised by their keys, and rejected by what is lacking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]

LLAMAFACTORY = """model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
do_train: true
finetuning_type: full
cutoff_len: 4096
packing: true
per_device_train_batch_size: 1
gradient_accumulation_steps: 4
bf16: true
"""
AXOLOTL = """base_model: meta-llama/Llama-3.1-8B
sequence_len: 4096
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 4
optimizer: adamw_torch_fused
bf16: true
gradient_checkpointing: true
"""
TORCHTUNE = """model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 4096
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  packed: True
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
batch_size: 2
gradient_accumulation_steps: 4
dtype: bf16
enable_activation_checkpointing: True
"""
TRL = """accelerate launch --num_processes 8 trl/scripts/sft.py \\
  --model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --packing \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --bf16 \\
  --gradient_checkpointing True
"""
SWIFT = """NPROC_PER_NODE=8 swift sft --model Qwen/Qwen3-8B --train_type full --torch_dtype bfloat16 \\
  --max_length 4096 --packing true --per_device_train_batch_size 1 \\
  --gradient_accumulation_steps 4 --deepspeed zero3
"""
VERL = """set -x
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 \\
  actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=8 $@
"""
OPENRLHF = """ray job submit --address="http://127.0.0.1:8265" -- python3 -m openrlhf.cli.train_ppo_ray \\
  --actor_num_nodes 1 --vllm_num_engines 4 --pretrain meta-llama/Llama-3.1-8B
"""
AREAL = """experiment_name: gsm
trial_name: one
rollout: {backend: "sglang:d4"}
gconfig: {n_samples: 8}
actor: {backend: "fsdp:d4", path: Qwen/Qwen3-8B}
train_dataset: {batch_size: 64}
"""
NEMO_RL = """grpo: {num_prompts_per_step: 64, num_generations_per_prompt: 16}
policy: {model_name: Qwen/Qwen3-8B, train_global_batch_size: 1024}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
FILES = {
    "llamafactory": ("run.yaml", LLAMAFACTORY),
    "axolotl": ("run.yml", AXOLOTL),
    "torchtune": ("run.yaml", TORCHTUNE),
    "trl": ("run.sh", TRL),
    "ms_swift": ("run.sh", SWIFT),
    "verl": ("run.sh", VERL),
    "openrlhf": ("run.sh", OPENRLHF),
    "areal": ("run.yaml", AREAL),
    "nemo_rl": ("run.yaml", NEMO_RL),
}


@pytest.mark.parametrize("tool", FILES)
def test_a_file_belongs_to_one_tool(run_command: Run, tool: str) -> None:
    name, text = FILES[tool]
    done = run_command("check", name, files={name: text})
    assert "not-a-spec" not in done.err + done.out
    assert "ambiguous-format" not in done.err + done.out
    chosen = run_command("check", "--from", tool, name)
    assert chosen.err == done.err


@pytest.mark.parametrize(
    ("tool", "old", "new", "message"),
    [
        ("llamafactory", "full", "lora", "`finetuning_type` is lora: LoRA adapters are not"),
        ("llamafactory", "finetuning_type: full\n", "", "is left out, and LLaMA-Factory 0.9 takes"),
        ("llamafactory", "full", "full\nuse_muon: true", "`use_muon`: the optimizer Muon is not"),
        ("llamafactory", "stage: sft", "stage: ppo", "`stage` is ppo: a rollout engine"),
        ("llamafactory", "Llama-3.1-8B", "Llama-3.2-11B-Vision", "a vision tower is not"),
        ("axolotl", "bf16: true", "adapter: lora", "`adapter` is lora: LoRA adapters are not"),
        ("axolotl", "bf16: true", "adapter: qlora", "`adapter` is qlora: a frozen model in 4 or"),
        ("axolotl", "bf16: true", "rl: grpo", "`rl` is grpo: a rollout engine"),
        ("axolotl", "adamw_torch_fused", "muon", "the optimizer Muon is not in the language yet"),
        ("torchtune", ".llama3_1_8b", ".lora_llama3_1_8b", "LoRA adapters are not in the language"),
        ("torchtune", "modules.loss.Linear", "rlhf.loss.DPO", "a reference model beside"),
        ("trl", "--bf16", "--bf16 --use_peft", "`use_peft`: LoRA adapters are not"),
        ("trl", "scripts/sft.py", "scripts/grpo.py", "`trl/scripts/grpo.py`: a rollout engine"),
        ("trl", "scripts/sft.py", "scripts/dpo.py", "a reference model beside the trained one"),
        ("trl", "--bf16", "--bf16 --optim adafactor", "`optim` is adafactor: the state of an"),
        (
            "ms_swift",
            "--train_type full",
            "",
            "`tuner_type` is left out, and ms-swift 4 takes lora",
        ),
        ("ms_swift", "swift sft", "swift rlhf --rlhf_type grpo", "`rlhf_type` is grpo: a rollout"),
        ("verl", "", "", "`verl.trainer.main_ppo`: a rollout engine"),
        ("openrlhf", "", "", "`openrlhf.cli.train_ppo_ray`: a rollout engine"),
        ("areal", "", "", "`rollout.backend` is sglang:d4: a rollout engine"),
        ("nemo_rl", "", "", "`grpo.num_prompts_per_step` is 64: a rollout engine"),
    ],
)
def test_what_the_language_lacks_is_an_error_at_its_key(
    run_command: Run, tool: str, old: str, new: str, message: str
) -> None:
    name, text = FILES[tool]
    assert old in text
    done = run_command("eval", name, files={name: text.replace(old, new)})
    assert done.code == 2
    assert message in done.err
    assert f"--> {name}:" in done.err
    assert "step time" not in done.out


def test_a_variable_that_decides_adapters_raises_an_error(run_command: Run) -> None:
    files = {"run.sh": TRL.replace("--bf16", "--bf16 --use_peft $PEFT")}
    done = run_command("eval", "run.sh", files=files)
    assert done.code == 2
    assert "`use_peft` decides what is trained" in done.err
    done = run_command("eval", "--set-env", "PEFT=true", "run.sh")
    assert "`use_peft`: LoRA adapters are not in the language yet" in done.err
