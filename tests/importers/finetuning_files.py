"""Small files of tools for fine-tuning, and their translations."""

from __future__ import annotations

from parcost import Importer, ImportFile, Translation
from parcost.contract.importers import PLAIN
from parcost_formats.tools.finetuning import importers

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

LLAMAFACTORY_V1 = """model: Qwen/Qwen3-0.6B
model_class: llm
kernel_config: {name: auto, include_kernels: auto}
dist_config: {name: fsdp2, dcp_path: null}
train_dataset: data/mine.yaml
output_dir: out
micro_batch_size: 2
batching_strategy: dynamic_batching
max_steps: 10
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

CUT = "cut_cross_entropy.CutCrossEntropyPlugin"

CHUNKS = "ceil(training.model.vocabulary / training.model.hidden)"

KEPT = "sharding.reshard"

FILES = {
    "llamafactory": ("run.yaml", LLAMAFACTORY),
    "llamafactory_v1": ("run.yaml", LLAMAFACTORY_V1),
    "axolotl": ("run.yml", AXOLOTL),
    "torchtune": ("run.yaml", TORCHTUNE),
    "trl": ("run.sh", TRL),
    "ms_swift": ("run.sh", SWIFT),
    "verl": ("run.sh", VERL),
    "openrlhf": ("run.sh", OPENRLHF),
    "areal": ("run.yaml", AREAL),
    "nemo_rl": ("run.yaml", NEMO_RL),
}


def importer_of(tool: str) -> Importer:
    """Return the importer with a name."""
    (found,) = (one for one in importers() if one.name == tool)
    return found


def read(tool: str, old: str = "", new: str = "", **neighbors: str) -> Translation:
    """Return the translation of the file of a tool, with one text replaced by another."""
    name, text = FILES[tool]
    assert old in text
    beside = {f"{key}.json": value for key, value in neighbors.items()}
    return importer_of(tool).read(
        ImportFile(name, text.replace(old, new) if old else text, PLAIN, beside.get)
    )


OPENRLHF_SFT = """deepspeed --num_gpus 4 --module openrlhf.cli.train_sft \\
  --pretrain meta-llama/Llama-2-7b-hf --max_len 2048 --train_batch_size 64 \\
  --micro_train_batch_size 4 --zero_stage 2 --bf16 --gradient_checkpointing
"""

ENGINE_SFT = """torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.sft_trainer \\
  data.train_files=x.parquet data.max_length=4096 data.train_batch_size=64 \\
  model.path=Qwen/Qwen3-4B engine=fsdp engine.ulysses_sequence_parallel_size=2 optim.lr=1e-5
"""

DEEPSPEED = TRL.replace("--bf16", "--bf16 --deepspeed ds.json")

ON_DISK = {
    "ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    "zero3.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
    "form.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": ${STAGE}}}',
}

TRL_YAML = """model_name_or_path: Qwen/Qwen2.5-7B
torch_dtype: bfloat16
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
max_length: 4096
packing: true
bf16: true
"""


def read_file(tool: str, file: ImportFile) -> Translation:
    """Return the translation of a file by the importer with a name."""
    return importer_of(tool).read(file)


BATCHES = (
    "train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 "
    "--gradient_accumulation_steps 1 --max_seq_length 4096 --packing True"
)
