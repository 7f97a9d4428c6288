"""Files of tools for fine-tuning: recognised by their keys, and rejected by what is lacking."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve

from parcost import ImportFile, Translation
from parcost.contract.importers import PLAIN
from parcost_formats.tools.finetuning import importers

from ..rows import mark_most
from .translations import assumptions, names, settings, uses

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
RECOMPUTE = "training.recompute"
SHARDED = "bf16: true\nfsdp_config: {offload_params: false}\ndp_shard_size: 4"
CUT = "cut_cross_entropy.CutCrossEntropyPlugin"
FUSED = "liger_fused_linear_cross_entropy"
CHECKPOINTS = "gradient_checkpointing: true"
CHUNKS = "ceil(training.model.vocabulary / training.model.hidden)"
KEPT = "sharding.reshard"
LOSS = ("training.loss_chunks", CHUNKS)
WHOLE = ("training.global_batch", "64 sequences")
COPIES = ("sharding.shard", "layout.dp * layout.cp / 2")
ENGINE = "name: deepspeed, config_file: examples/deepspeed/ds_z2_config.json"
EXPERTS = "bf16: true\nplugins: [axolotl.integrations.expert_parallel.ExpertParallelPlugin]"
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


@pytest.mark.parametrize("tool", mark_most(FILES, 4))
def test_a_file_belongs_to_one_tool(run_command: Run, tool: str) -> None:
    name, text = FILES[tool]
    done = run_command("check", name, files={name: text})
    assert "not-a-spec" not in done.err + done.out
    assert "ambiguous-format" not in done.err + done.out
    chosen = run_command("check", "--from", tool, name)
    assert chosen.err == done.err


@pytest.mark.parametrize(
    ("tool", "old", "new", "message"),
    mark_most(
        [
            ("llamafactory", "full", "oft", "`finetuning_type` is oft: adapters other than LoRA"),
            ("llamafactory", "full", "lorra", "`finetuning_type`: it is none of full, lora"),
            ("axolotl", "bf16: true", "adapter: qlora", "qlora needs `load_in_4bit: true`"),
            ("llamafactory", "full", "full\nquantization_bit: 4", "a frozen model in 4 or 8 bits"),
            (
                "llamafactory",
                "full",
                "full\nuse_muon: true",
                "`use_muon`: the optimizer Muon is not",
            ),
            ("llamafactory", "stage: sft", "stage: ppo", "`stage` is ppo: a rollout engine"),
            ("llamafactory", "Llama-3.1-8B", "Llama-3.2-11B-Vision", "a vision tower is not"),
            (
                "axolotl",
                "bf16: true",
                "adapter: dora",
                "`adapter` is dora: adapters other than LoRA",
            ),
            ("axolotl", "bf16: true", "load_in_4bit: true", "a frozen model in 4 or 8 bits is not"),
            ("axolotl", "bf16: true", "rl: grpo", "`rl` is grpo: a rollout engine"),
            (
                "axolotl",
                "adamw_torch_fused",
                "muon",
                "the optimizer Muon is not in the language yet",
            ),
            (
                "torchtune",
                ".llama3_1_8b",
                ".dora_llama3_1_8b",
                "adapters other than LoRA and QLoRA are not in the language",
            ),
            ("torchtune", "modules.loss.Linear", "rlhf.loss.DPO", "a reference model beside"),
            ("trl", "--bf16", "--bf16 --load_in_8bit", "a frozen model in 4 or 8 bits is not"),
            ("trl", "scripts/sft.py", "scripts/grpo.py", "`trl/scripts/grpo.py`: a rollout engine"),
            ("trl", "scripts/sft.py", "scripts/dpo.py", "a reference model beside the trained one"),
            (
                "trl",
                "--bf16",
                "--bf16 --rank 64",
                "`rank` is 64: LoRA of this kind of job is not read",
            ),
            ("trl", "--bf16", "--bf16 --beta 0.1", "`beta` is 0.1: a reference model beside"),
            ("trl", "--bf16", "--bf16 --optim adafactor", "`optim` is adafactor: the state of an"),
            (
                "ms_swift",
                "--train_type full",
                "--train_type vera",
                "is vera: adapters other than LoRA",
            ),
            (
                "ms_swift",
                "swift sft",
                "swift rlhf --rlhf_type grpo",
                "`rlhf_type` is grpo: a rollout",
            ),
            ("verl", "", "", "`verl.trainer.main_ppo`: a rollout engine"),
            ("openrlhf", "", "", "`openrlhf.cli.train_ppo_ray`: a rollout engine"),
            ("areal", "", "", "`rollout.backend` is sglang:d4: a rollout engine"),
            ("nemo_rl", "", "", "`grpo.num_prompts_per_step` is 64: a rollout engine"),
        ]
    ),
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


@pytest.mark.slow
def test_a_variable_that_decides_adapters_raises_an_error(run_command: Run) -> None:
    files = {"run.sh": TRL.replace("--bf16", "--bf16 --use_peft $PEFT")}
    done = run_command("eval", "run.sh", files=files)
    assert done.code == 2
    assert "`use_peft` decides what is trained" in done.err
    done = run_command("import", "--set-env", "PEFT=true", "run.sh")
    assert "adapters {" in done.out
    assert "rank    = 16 @assumed" in done.out


def read(tool: str, old: str = "", new: str = "", **neighbors: str) -> Translation:
    """Return the translation of the file of a tool, with one text replaced by another."""
    name, text = FILES[tool]
    assert old in text
    one = next(one for one in importers() if one.name == tool)
    beside = {f"{key}.json": value for key, value in neighbors.items()}
    return one.read(ImportFile(name, text.replace(old, new) if old else text, PLAIN, beside.get))


@pytest.mark.parametrize(
    ("tool", "recipe", "expected"),
    [
        (
            "llamafactory",
            "bf16_fsdp",
            {"micro_batch": "1", "micro_batches": "4", "sequence": "4096", "recompute": "full"},
        ),
        ("axolotl", "bf16_pure", {"micro_batch": "1", "sequence": "4096", "recompute": "full"}),
        ("torchtune", "bf16_pure", {"micro_batch": "2", "micro_batches": "4", "recompute": "full"}),
        ("trl", "bf16_fsdp", {"micro_batch": "1", "micro_batches": "4", "recompute": "full"}),
        ("ms_swift", "bf16_zero_paper", {"micro_batch": "1", "sequence": "4096"}),
    ],
)
def test_full_fine_tuning_is_read(tool: str, recipe: str, expected: dict[str, str]) -> None:
    found = read(tool)
    assert not found.questions
    assert not found.unknown
    values = settings(found)
    assert {f"training.{name}": value for name, value in expected.items()}.items() <= values.items()
    assert f"precisions.{recipe}" in uses(found)
    size = f"{expected['micro_batch']} * {values['training.micro_batches']}"
    assert values["training.global_batch"] == f"({size} * layout.dp) sequences"


@pytest.mark.parametrize(("tool", "devices"), [("trl", "8"), ("ms_swift", "8")])
def test_a_launcher_states_devices(tool: str, devices: str) -> None:
    assert settings(read(tool))["cluster.devices"] == devices


@pytest.mark.parametrize(
    ("tool", "old", "new", "path", "value"),
    [
        ("llamafactory", "bf16: true", "bf16: true\npure_bf16: true", "uses", "bf16_pure"),
        ("llamafactory", "bf16: true\n", "", "uses", "fp32"),
        ("llamafactory", "per_device_train_batch_size: 1\n", "", "training.micro_batch", "8"),
        ("axolotl", "gradient_checkpointing: true", "", "training.recompute", "none"),
        ("axolotl", "sequence_len: 4096\n", "", "training.sequence", "512"),
        ("axolotl", "bf16: true", "bf16: true\nfsdp: [full_shard, auto_wrap]", "layout.zero", "3"),
        ("axolotl", "bf16: true", "fsdp_config: {offload_params: true}", "offload.optimizer", "1"),
        ("axolotl", "bf16: true", "tensor_parallel_size: 4", "layout.tp", "4"),
        ("torchtune", "dtype: bf16", "dtype: fp32", "uses", "fp32"),
        ("torchtune", "dtype: bf16", "dtype: bf16\ntensor_parallel_dim: 2", "layout.tp", "2"),
        ("trl", "--bf16", "--bf16 --dtype bfloat16", "uses", "bf16_pure"),
        ("trl", "--max_length 4096", "", "training.sequence", "1024"),
        ("trl", "--num_processes 8", "--num_processes 16 --use_fsdp", "layout.zero", "3"),
        ("ms_swift", "zero3", "zero2_offload", "offload.optimizer", "1"),
        ("llamafactory", "packing", "gradient_checkpointing: on\npacking", RECOMPUTE, "full"),
        ("llamafactory", "packing", "sequence_parallel_size: 4\npacking", "layout.cp", "4"),
        ("trl", "trl/scripts/sft.py", "trl/examples/scripts/sft.py", "uses", "bf16_fsdp"),
        ("axolotl", "bf16: true", SHARDED, "sharding.shard", "4 * layout.cp"),
        ("trl", "--model_name_or_path", "--model_name", "training.model", "llama31_8b"),
        ("axolotl", "bf16: true", f"plugins: [x.{CUT}]", "training.loss_chunks", CHUNKS),
        ("ms_swift", "--packing", "--use_liger_kernel true --packing", *LOSS),
        ("llamafactory_v1", "", "", "uses", "bf16_pure"),
        ("llamafactory_v1", "", "", "precision.reduction", "4 B"),
        ("llamafactory_v1", "", "", "training.sequence", "2048"),
        ("llamafactory_v1", "", "", RECOMPUTE, "full"),
        ("llamafactory_v1", "", "", "training.global_batch", "(micro_batch * layout.dp) sequences"),
        ("llamafactory_v1", "max_steps", "global_batch_size: 64\nmax_steps", *WHOLE),
        ("llamafactory_v1", "dcp_path: null", "cp_size: 2", "context.algorithm", "ulysses"),
        ("llamafactory_v1", "dcp_path: null", "reshard_after_forward: false", KEPT, "off"),
        ("llamafactory_v1", "dcp_path: null", "mp_replicate_size: 2", *COPIES),
        ("llamafactory_v1", "dist_config", "unused", "layout.zero", "0"),
        ("llamafactory_v1", "name: fsdp2, dcp_path: null", ENGINE, "layout.zero", "2"),
        ("axolotl", "bf16: true", f"{EXPERTS}\nexpert_parallel_size: 8", "layout.ep", "8"),
    ],
)
def test_a_key_sets_what_it_decides(tool: str, old: str, new: str, path: str, value: str) -> None:
    found = read(tool, old, new)
    assert not found.questions
    if path == "uses":
        assert f"precisions.{value}" in uses(found)
    else:
        assert settings(found)[path] == value


@pytest.mark.parametrize(
    ("tool", "old", "new", "message"),
    [
        ("llamafactory_v1", "fsdp2", "fsdpturbo", "`fsdpturbo` is not read"),
        (
            "llamafactory_v1",
            "out\n",
            "out\npeft_config: {name: lora, r: 8}\n",
            "LoRA of this kind of job",
        ),
        ("llamafactory_v1", "out\n", "out\noptim_config: {name: muon}\n", "Muon"),
        ("axolotl", "bf16: true", "bf16: true\nexpert_parallel_size: 2", "its plugin alone"),
        (
            "axolotl",
            "bf16: true",
            f"{EXPERTS}\nexpert_parallel_size: 2\nfsdp: [full_shard]",
            "left out of the sharding",
        ),
    ],
)
def test_a_way_to_run_that_is_not_in_the_language_is_rejected(
    tool: str, old: str, new: str, message: str
) -> None:
    assert any(message in problem.message for problem in read(tool, old, new).problems)


@pytest.mark.parametrize(
    ("tool", "key", "deciding", "harmless"),
    [
        ("llamafactory", "label_smoothing_factor", "0.1", "0.0"),
        ("llamafactory", "full_determinism", "true", "false"),
        ("llamafactory", "torch_compile_mode", "reduce-overhead", "default"),
        ("llamafactory", "torch_compile_backend", "cudagraphs", "inductor"),
        ("llamafactory", "half_precision_backend", "apex", "auto"),
        ("ms_swift", "use_logits_to_keep", "true", "false"),
        ("axolotl", "sage_attention", "true", "false"),
        ("axolotl", "s2_attention", "true", "false"),
        ("axolotl", "experts_implementation", "eager", "grouped_mm"),
        ("axolotl", "peft_autocast_adapter_dtype", "false", "true"),
        ("axolotl", "use_onebitllms", "true", "false"),
        ("axolotl", "lora_mlp_kernel", "true", "false"),
        ("axolotl", "trainer_cls", "mine.Trainer", "null"),
    ],
)
def test_a_key_that_decides_is_listed_unless_its_value_is_harmless(
    tool: str, key: str, deciding: str, harmless: str
) -> None:
    old = "--packing true" if tool == "ms_swift" else "bf16: true"
    form = f"{old} --{key} " if tool == "ms_swift" else f"{old}\n{key}: "
    found = read(tool, old, f"{form}{deciding}")
    assert key in names(found.missing)
    assert not found.questions
    assert names(read(tool, old, f"{form}{harmless}").missing).isdisjoint([key])


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("accelerator_config: {split_batches: true}", "accelerator_config.split_batches"),
        ("overrides_of_model_config: {num_hidden_layers: 8}", "overrides_of_model_config"),
        ("fsdp_config: {limit_all_gathers: false}", "limit_all_gathers"),
        ("fsdp_config: {activation_cpu_offload: true}", "activation_cpu_offload"),
    ],
)
def test_a_key_of_a_section_that_decides_is_listed(line: str, key: str) -> None:
    found = read("axolotl", "bf16: true", f"bf16: true\n{line}")
    assert any(key in name for name in names(found.missing))


@pytest.mark.parametrize("key", ["torch_compile_backend: inductor", "torchdynamo: inductor"])
def test_a_compiler_that_is_named_turns_compilation_on(key: str) -> None:
    assert settings(read("llamafactory", "bf16: true", f"bf16: true\n{key}"))["kernels.mode"]
    plain = read("axolotl", "bf16: true", "bf16: true\ntorch_compile_backend: inductor")
    assert "kernels.mode" not in settings(plain)  # where `torch_compile` alone decides


def test_experts_that_deepspeed_shards_are_read_in_a_job_of_the_trainer() -> None:
    experts = {"enabled": True, "autoep_size": 4}
    engine = json.dumps({"zero_optimization": {"stage": 2}, "expert_parallel": experts})
    found = read("llamafactory", "bf16: true", "bf16: true\ndeepspeed: ds.json", ds=engine)
    assert settings(found)["layout.ep"] == "4"


def test_liger_without_its_loss_leaves_the_logits_whole() -> None:
    off = "use_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: false}"
    for new, is_chunked in ((off.partition("\n")[0], True), (off, False)):
        found = settings(read("llamafactory", "bf16: true", f"bf16: true\n{new}"))
        assert ("training.loss_chunks" in found) == is_chunked


@pytest.mark.parametrize(
    ("plugins", "more", "chunks", "named"),
    [
        ("[x.liger.LigerPlugin]", f"{FUSED}: true", CHUNKS, ""),
        ("[x.liger.LigerPlugin]", "liger_rms_norm: true", "1", "liger_rms_norm"),
        ("[]", f"{FUSED}: true", "1", ""),
        ("[]", "liger_rms_norm: true", "1", ""),
        (f"[x.{CUT}]", "cut_cross_entropy: false", "1", ""),
        (f"[x.{CUT}, own.Plugin]", "seed: 1", CHUNKS, "plugins"),
    ],
)
def test_axolotl_has_what_a_plugin_and_its_key_turn_on(
    plugins: str, more: str, chunks: str, named: str
) -> None:
    """The plugin of Liger has all its kernels off, and that of cut cross entropy its loss on."""
    found = read("axolotl", "bf16: true", f"bf16: true\nplugins: {plugins}\n{more}")
    assert settings(found).get("training.loss_chunks", "1") == chunks
    open_keys = [one.name for one in found.missing]
    assert not named or named in open_keys
    assert named == "plugins" or "plugins" not in open_keys
    assert named == "liger_rms_norm" or "liger_rms_norm" not in open_keys


def test_a_plugin_that_freezes_layers_is_rejected() -> None:
    frozen = "plugins: [axolotl.integrations.spectrum.SpectrumPlugin]"
    (problem,) = read("axolotl", "bf16: true", f"bf16: true\n{frozen}").problems
    assert "plugins" in problem.message
    assert "frozen" in problem.message


def test_fsdp_recomputes_though_the_trainer_does_not() -> None:
    """The key of FSDP decides, and the one of the trainer beside it has no effect."""
    sharded = "fsdp: [full_shard]\nfsdp_config: {fsdp_activation_checkpointing: true}"
    found = read("axolotl", CHECKPOINTS, f"{CHECKPOINTS.replace('true', 'false')}\n{sharded}")
    assert not found.problems
    assert settings(found)["training.recompute"] == "full"


@pytest.mark.parametrize("program", ["/opt/venv/bin/swift", "$VENV/bin/swift"])
def test_a_command_with_a_folder_is_read_by_its_own_name(program: str) -> None:
    found = read("ms_swift", "swift sft", f"{program} sft")
    assert settings(found) == settings(read("ms_swift"))


@pytest.mark.parametrize(
    ("tool", "liger", "own", "harmless"),
    [
        ("llamafactory", "enable_liger_kernel: true", "use_dft_loss: true", "use_dft_loss: false"),
        ("llamafactory", "enable_liger_kernel: true", "use_eaft_loss: true", "eaft_alpha: 1.0"),
        ("llamafactory", "enable_liger_kernel: true", "label_smoothing_factor: 0.1", "seed: 1"),
        ("axolotl", f"plugins: [x.{CUT}]", "use_eaft: true", "use_eaft: false"),
        ("ms_swift", "--use_liger_kernel true", "--enable_dft_loss true", "--seed 1"),
        ("ms_swift", "--use_liger_kernel true", "--sequence_parallel_size 16", "--seed 1"),
        ("ms_swift", "--use_liger_kernel true", "--loss_scale hermes", "--loss_scale last_round"),
    ],
)
def test_a_loss_of_the_trainer_itself_has_whole_logits(
    tool: str, liger: str, own: str, harmless: str
) -> None:
    """Trainer takes the labels from the model, so that the fused loss in it has none."""
    old, join = ("--max_length", " ") if tool == "ms_swift" else ("bf16: true", "\n")
    for more, chunks in ((own, "1"), (harmless, CHUNKS)):
        words = join.join((liger, more, old) if join == " " else (old, liger, more))
        assert settings(read(tool, old, words))["training.loss_chunks"] == chunks


def test_ms_swift_accumulates_to_sixteen_sequences(run_command: Run) -> None:
    """3 sequences on each of 2 devices: ceil(16 / 6) is 3 micro-batches, and 18 sequences."""
    text = SWIFT.replace("--gradient_accumulation_steps 4", "").replace("=8", "=2")
    text = text.replace("batch_size 1", "batch_size 3").replace("Qwen3-8B", "Qwen3-0.6B")
    done = run_command(
        "eval", "run.sh", "--use", "catalog.systems.dgx_h100", files={"run.sh": text}
    )
    assert done.code == 0, done.err
    shown = " ".join(done.out.split())
    assert "training.global_batch = 18 sequences" in shown
    assert "training.micro_batches = 3 " in shown


@pytest.mark.parametrize("name", ["adam", "adamw", "AdamW", "adamw_torch", "adamw_torch_fused"])
def test_adam_by_any_of_its_names_has_the_recipe_of_the_catalogue(name: str) -> None:
    """Moments of 8 bits are another recipe, which this trainer does not have."""
    found = read("llamafactory_v1", "out\n", f"out\noptim_config: {{name: {name}}}\n")
    assert not found.questions
    assert not found.problems
    assert "precisions.bf16_pure" in uses(found)
    narrow = read("llamafactory_v1", "out\n", "out\noptim_config: {name: adamw_8bit}\n")
    assert any("other than Adam" in problem.message for problem in narrow.problems)


@pytest.mark.parametrize(
    ("packing", "more", "algorithm"),
    [
        ("true", "", "all_gather"),  # varlen_llama3 of ring-flash-attention
        ("false", "", "ring"),
        ("true", "ring_attn_func: batch_ring\n", "ring"),
        ("false", "ring_attn_func: varlen_llama3\n", "all_gather"),
    ],
)
def test_ring_attention_of_axolotl_runs_in_deepspeed(
    run_command: Run, packing: str, more: str, algorithm: str
) -> None:
    """The engine itself has Ulysses alone, and the trainer brings the ring."""
    name, text = FILES["axolotl"]
    text = text.replace("packing: true", f"packing: {packing}") + more
    text = f"{text}\ncontext_parallel_size: 4\ndeepspeed: deepspeed_configs/zero3_bf16.json\n"
    found = read("axolotl", FILES["axolotl"][1], text)
    assert settings(found)["context.algorithm"] == algorithm
    machine = ("--use=catalog.devices.h100_sxm", "--use=catalog.fabrics.hgx_h100")
    done = run_command("check", *machine, "--set=cluster.devices=8", name, files={name: text})
    assert done.code == 0, done.err


def test_a_key_beside_the_one_that_decides_raises_no_question() -> None:
    """A name made of the batch size is no batch size; without that key it might be."""
    more = "run_batch_size_name: bs=2\n"
    found = read("torchtune", "dtype: bf16\n", f"dtype: bf16\n{more}")
    assert not found.questions
    assert "run_batch_size_name" in [one.name for one in found.unknown]
    alone = read("torchtune", "batch_size: 2\n", more)
    assert "training.micro_batch" in [one.attribute for one in alone.questions]


def test_torchtune_names_the_optimizer_that_it_does_not_know() -> None:
    (asked,) = read("torchtune", "torch.optim.AdamW", "own.Frugal").questions
    assert asked.reason.endswith("and the optimizer is frugal")


def test_torchtune_has_no_sliding_window() -> None:
    found = read("torchtune", "llama3_1.llama3_1_8b", "mistral.mistral_7b")
    assert settings(found)["model.window"] == "0"
    assert "models.mistral_7b" in uses(found)


def test_a_file_of_deepspeed_beside_the_job_is_read() -> None:
    """ZeRO 3 in bf16 as the trainer says: 16 bytes per parameter."""
    auto = '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}'
    old, new = "bf16: true", "bf16: true\ndeepspeed: conf/z3.json"
    found = read("llamafactory", old, new, **{"conf/z3": auto})
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert uses(found)[-1] == "precisions.bf16_zero_paper"
    wide = auto.replace('"stage": 3', '"stage": 3, "reduce_bucket_size": "auto"')
    found = read("llamafactory", old, new, **{"conf/z3": wide})
    size = "training.model.hidden * training.model.hidden"
    assert settings(found)["overlap.bucket"] == f"{size} * training.precision.reduction"
    (asked,) = read("llamafactory", old, new).questions
    assert asked.attribute == "layout.zero"
    assert "`conf/z3.json`, which is not beside the file" in asked.reason


def test_pure_bf16_in_an_engine_of_another_type_raises_a_question() -> None:
    """DeepSpeed fills `auto` with `bf16` of the trainer, which `pure_bf16` leaves off."""
    engine = '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3}}'
    found = read("llamafactory", "bf16: true", "pure_bf16: true\ndeepspeed: z3.json", z3=engine)
    assert [one.attribute for one in found.questions] == ["precision"]


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ("--deepspeed ds.json", {"layout.zero", "precision"}),
        ("--deepspeed", {"layout.zero", "precision"}),
        ("--deepspeed --zero_stage 2", {"precision"}),
        ("--deepspeed ds.json --bf16", {"layout.zero"}),
    ],
)
def test_types_of_a_configuration_of_deepspeed_that_is_not_there_raise_questions(
    more: str, asked: set[str]
) -> None:
    """Scripts of DeepSpeed-Chat have fp16 in their own configuration; fp32 was taken."""
    script = f"deepspeed --num_gpus 8 main.py --model_name_or_path meta-llama/Llama-2-7b-hf {more} "
    script += "--max_seq_len 512 --per_device_train_batch_size 4 --gradient_accumulation_steps 1\n"
    one = next(one for one in importers() if one.name == "trl")
    found = one.read(ImportFile("run.sh", script))
    assert {one.attribute for one in found.questions} == asked
    assert settings(found)["training.sequence"] == "512"
    if "zero_stage" in more:
        assert settings(found)["layout.zero"] == "2"


def test_what_a_file_that_is_not_there_decides_stays_a_warning(run_command: Run) -> None:
    """--set layout.zero answers the question; offload and buckets of the file stay unknown."""
    script = TRL.replace("--bf16", "--bf16 --deepspeed ds.json")
    hardware = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    answer = ("--set", "layout.zero=3", "--warnings")
    done = run_command("eval", "run.sh", *hardware, *answer, files={"run.sh": script})
    assert "affects step time but could not be used: `deepspeed`" in " ".join(done.out.split())
    (lacking,) = (one for one in read("trl", "--bf16", "--bf16 --deepspeed ds.json").missing)
    assert "offload, buckets and recomputation" in lacking.reason


def test_a_launcher_whose_file_is_not_there_raises_questions() -> None:
    """DeepSpeed and FSDP keep weights in fp32 beside those of the script; replicas do not."""
    found = read("trl", "--num_processes", "--config_file zero2.yaml --num_processes")
    assert {one.attribute for one in found.questions} == {"layout.zero", "precision"}


def test_states_of_eight_bits_take_two_bytes_and_their_scales() -> None:
    """Two moments of 1 B, and 4 B per 256 elements of each: 2.03125 B; a master of 4 B more."""
    values = settings(read("axolotl", "adamw_torch_fused", "adamw_bnb_8bit"))
    assert values["precision.optimizer"] == "2.03125 B"
    text = "adamw_bnb_8bit\ndeepspeed: z3.json"
    bf16 = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    values = settings(read("axolotl", "adamw_torch_fused", text, z3=bf16))
    assert values["precision.optimizer"] == "6.03125 B"


@pytest.mark.parametrize(
    ("tool", "old", "new", "attribute"),
    [
        ("llamafactory", "meta-llama/Llama-3.1-8B", "own/model", "model"),
        ("axolotl", "adamw_torch_fused", "adamw_of_tomorrow", "precision"),
        ("torchtune", "llama3_1_8b", "llama9_1b", "model"),
        ("torchtune", "dtype: bf16", "", "precision"),
        ("torchtune", "batch_size: 2", "batch_size_of_tomorrow: 2", "training.micro_batch"),
        ("trl", "trl/scripts/sft.py", "train.py", "precision"),
        ("llamafactory", "bf16: true", "bf16: true\nfp8: true\nfp8_backend: te", "precision"),
    ],
)
def test_a_value_that_is_unknown_raises_a_question(
    tool: str, old: str, new: str, attribute: str
) -> None:
    assert {one.attribute for one in read(tool, old, new).questions} == {attribute}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "key", "attribute"),
    [
        ("llamafactory", "bf16", "precision"),
        ("llamafactory", "cutoff_len", "training.sequence"),
        ("llamafactory", "gradient_accumulation_steps", "training.micro_batches"),
        ("axolotl", "gradient_checkpointing", "training.recompute"),
        ("axolotl", "micro_batch_size", "training.micro_batch"),
        ("torchtune", "enable_activation_checkpointing", "training.recompute"),
        ("trl", "--max_length", "training.sequence"),
        ("trl", "--gradient_checkpointing", "training.recompute"),
        ("ms_swift", "--deepspeed", "layout.zero"),
    ],
)
def test_a_key_of_another_release_raises_a_question(
    run_command: Run, tool: str, key: str, attribute: str
) -> None:
    name, text = FILES[tool]
    assert key in text
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    files = {name: text.replace(key, f"{key}_of_tomorrow", 1)}
    done = run_command("eval", *machine, name, files=files)
    assert done.code == 2
    assert "error[import-question]" in done.err
    assert f"`{attribute}`" in done.err
    assert "of_tomorrow" in done.err


@pytest.mark.slow
def test_a_variable_without_a_value_raises_an_error(run_command: Run) -> None:
    files = {"run.sh": TRL.replace("--max_length 4096", "--max_length $LENGTH")}
    done = run_command("eval", "run.sh", files=files)
    assert "`max_length`: " in done.err
    assert "--set-env LENGTH=" in done.err


def test_two_narrow_types_exclude_one_another() -> None:
    one = next(one for one in importers() if one.name == "trl")
    text = TRL.replace("--bf16", "--fp16 --bf16")
    assert text != TRL
    messages = {problem.message for problem in one.read(ImportFile("run.sh", text)).problems}
    assert messages == {
        "`bf16`: bf16 and fp16 exclude one another",
        "`fp16`: bf16 and fp16 exclude one another",
    }


@pytest.mark.parametrize("tool", mark_most(FILES, 4))
def test_broken_and_hostile_texts_are_problems_at_a_place(tool: str) -> None:
    name, text = FILES[tool]
    one = next(one for one in importers() if one.name == tool)
    cut = [text[:end] for end in range(0, len(text), len(text) // 20)]
    for part in (
        *cut,
        "",
        "\0",
        "{",
        "{}\n",
        "a: &a [*a, *a]\n",
        "x: !!python/name:os\n",
        "--" * 9999,
    ):
        for file in (name, "x.json", "x.yaml", "x.sh"):
            one.recognizes(file, part)
            for problem in one.read(ImportFile(file, part)).problems:
                assert 0 <= problem.start <= len(part)
                assert problem.message


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
    one = next(one for one in importers() if one.name == "trl")
    (problem,) = one.read(ImportFile(name, adapters)).problems
    assert problem.message == ("`lora_r`: LoRA of a script with targets of its own is not read yet")
    switched = adapters.replace("--lora_r", "--use_peft False --lora_r")
    assert not one.read(ImportFile(name, switched)).problems


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
    assert "precisions.bf16_zero_paper" in uses(found)
    ring = read("openrlhf", OPENRLHF, script.replace("--bf16", "--bf16 --ring_attn_size 2"))
    assert settings(ring)["context.algorithm"] == "all_gather"  # llama3_flash_attn_varlen
    (asked,) = read("openrlhf", OPENRLHF, script.replace("--bf16", "")).questions
    assert asked.attribute == "precision"
    fsdp = script.replace("--zero_stage 3", "--backend fsdp2")
    (problem,) = read("openrlhf", OPENRLHF, fsdp).problems
    assert problem.message == "`backend`: only jobs on DeepSpeed are read"


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
    assert (
        problem.message
        == "`../train_dpo.py`: a reference model beside the trained one is not in the language yet"
    )


OPENRLHF_SFT = """deepspeed --num_gpus 4 --module openrlhf.cli.train_sft \\
  --pretrain meta-llama/Llama-2-7b-hf --max_len 2048 --train_batch_size 64 \\
  --micro_train_batch_size 4 --zero_stage 2 --bf16 --gradient_checkpointing
"""
ENGINE_SFT = """torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.sft_trainer \\
  data.train_files=x.parquet data.max_length=4096 data.train_batch_size=64 \\
  model.path=Qwen/Qwen3-4B engine=fsdp engine.ulysses_sequence_parallel_size=2 optim.lr=1e-5
"""


@pytest.mark.parametrize(
    ("old", "new", "path", "value"),
    [
        # 8,192 tokens for each of the two ranks of a group, in sequences of 4,096
        ("", "", "training.micro_batch", "min(4, 64 / layout.dp)"),
        (
            "data.max",
            "data.max_token_len_per_gpu=16384 data.max",
            "training.micro_batch",
            "min(8, 64 / layout.dp)",
        ),
        (
            "data.max",
            "data.use_dynamic_bsz=False data.micro_batch_size_per_gpu=1 data.max",
            "training.micro_batch",
            "1",
        ),
        ("optim", "engine.fsdp_size=4 optim", "sharding.shard", "4"),
        ("optim", "engine.optimizer_offload=True optim", "offload.optimizer", "1"),
        ("", "", "training.recompute", "full"),
        ("", "", "layout.cp", "2"),
        ("", "", "layout.zero", "3"),
    ],
)
def test_the_engine_of_verl_is_read(old: str, new: str, path: str, value: str) -> None:
    found = read("verl", VERL, ENGINE_SFT.replace(old, new, 1) if old else ENGINE_SFT)
    assert not found.questions
    assert settings(found)[path] == value


@pytest.mark.parametrize("kind", ["bf16", "bfloat16"])
def test_weights_of_verl_in_bf16_are_read(kind: str) -> None:
    """FSDP reduces in fp32 and stores gradients in the type of the weights: 2 bytes of each."""
    found = read("verl", VERL, ENGINE_SFT.replace("optim", f"engine.model_dtype={kind} optim"))
    assert not found.questions
    assert "precisions.bf16_pure" in uses(found)
    assert settings(found)["precision.reduction"] == "4 B"


def test_a_base_of_verl_in_bf16_is_frozen_in_bf16() -> None:
    """PEFT casts the adapters to fp32, which is asked for; the base was said to be in fp32."""
    lora = "engine.model_dtype=bf16 model.lora_rank=8 model.target_modules=all-linear optim"
    found = read("verl", VERL, ENGINE_SFT.replace("optim", lora))
    assert [one.attribute for one in found.questions] == ["precision"]
    assert settings(found)["adapters.weights"] == "2 B"


def test_kernels_of_verl_that_decide_nothing_raise_no_question() -> None:
    """Liger is applied without its loss there."""
    more = "+model.override_config._experts_implementation=eager model.use_liger=True optim"
    found = read("verl", VERL, ENGINE_SFT.replace("optim", more))
    assert not found.questions
    (listed,) = found.missing
    assert "loss_chunks" not in listed.reason


def test_another_engine_of_verl_is_rejected_and_tokens_that_do_not_fit_raise_a_question() -> None:
    for key in ("engine", "engine.strategy"):
        said = ENGINE_SFT.replace("engine=fsdp", f"{key}=megatron")
        assert (
            "the engine megatron of verl is not read"
            in read("verl", VERL, said).problems[0].message
        )
    dynamic = read("verl", VERL, ENGINE_SFT.replace("engine=fsdp", "data.use_dynamic_bsz=True"))
    assert "data.use_dynamic_bsz" not in [one.name for one in dynamic.missing]
    asked = read("verl", VERL, ENGINE_SFT.replace("max_length=4096", "max_length=3000")).questions
    assert [one.attribute for one in asked] == ["training.micro_batch"]


def test_a_micro_batch_of_verl_has_the_sequences_of_a_rank_at_most(run_command: Run) -> None:
    """16 devices in pairs: 8 sequences of 64 each, where 16 of 4,096 tokens fit."""
    script = ENGINE_SFT.replace("nnodes=1", "nnodes=2").replace(
        "data.max", "data.max_token_len_per_gpu=32768 data.max"
    )
    machine = ("--use", "catalog.systems.dgx_h100", "--full")
    done = run_command("eval", "run.sh", *machine, files={"run.sh": script})
    assert done.code == 0, done.err
    assert "training.micro_batch 8 verl 0.9" in " ".join(done.out.split())


@pytest.mark.parametrize("words", ["model.lora_rank: 32", "32", "model.lora_rank 32"])
def test_a_word_that_is_no_pair_ends_a_job_of_verl(words: str) -> None:
    """It was dropped, and a job with LoRA was one of full fine-tuning."""
    found = read("verl", VERL, ENGINE_SFT.replace("optim.lr", f"{words} optim.lr"))
    (problem,) = found.problems
    word, _, _ = words.partition(" ")
    assert problem.message.startswith(f"`{word}` is not KEY=VALUE")


@pytest.mark.parametrize(
    ("words", "is_offloaded"),
    [
        ("model.fsdp_config.cpu_offload=True", False),
        ("model.fsdp_config.offload_params=True", False),
        ("model.fsdp_config.cpu_offload=True model.fsdp_config.offload_params=True", True),
    ],
)
def test_offload_of_verl_takes_two_switches(words: str, is_offloaded: bool) -> None:
    """CPUOffload(offload_params=...), which `cpu_offload` alone leaves without effect."""
    script = f"""torchrun --nproc_per_node=8 verl/trainer/fsdp_sft_trainer.py {words} \
  data.micro_batch_size_per_gpu=2 model.partial_pretrain=Qwen/Qwen3-4B \
  data.val_batch_size_per_gpu=2 model.enable_gradient_checkpointing=True
"""
    found = read("verl", VERL, script)
    assert not found.questions
    assert ("offload.parameters" in settings(found)) == is_offloaded


def test_fine_tuning_of_verl_is_read() -> None:
    """64 sequences of a step over 8 ranks; each sequence on two of them."""
    script = """MODEL=$HOME/hub/models--Qwen--Qwen3-4B/snapshots/0123abc
torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer \\
  data.train_files=$HOME/x.parquet data.max_length=4096 data.train_batch_size=64 \\
  data.micro_batch_size_per_gpu=2 model.partial_pretrain=$MODEL optim.lr=1e-5 \\
  model.enable_gradient_checkpointing=True ulysses_sequence_parallel_size=2
"""
    found = read("verl", VERL, script)
    assert not found.questions
    assert not found.unknown
    values = settings(found)
    assert values["training.model"] == "qwen3_4b"
    assert values["training.global_batch"] == "64 sequences"
    assert values["training.micro_batch"] == "2"
    assert values["training.recompute"] == "full"
    assert values["layout.zero"] == "3"
    assert values["layout.cp"] == "2"
    assert values["cluster.devices"] == "8"
    assert {"precisions.bf16_fsdp", "frameworks.pytorch_fsdp"} <= set(uses(found))
    asked = read("verl", VERL, script.replace("=True", "_of_tomorrow=True")).questions
    assert {one.attribute for one in asked} == {"training.recompute"}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("own/Qwen3-8B-tuned", "qwen3_8b"),
        ("own/Mistral-7B-v0.3.1", "llama31_8b"),
        ("Qwen3-80B", "llama31_8b"),
    ],
)
def test_the_question_for_a_model_offers_the_entry_of_its_family(name: str, answer: str) -> None:
    (asked,) = read("llamafactory", "meta-llama/Llama-3.1-8B", name).questions
    assert asked.answers[-1] == f"--use catalog.models.{answer}"


def test_an_answer_replaces_the_recipe_of_a_file_with_products_in_8_bits(run_command: Run) -> None:
    files = {"run.yaml": LLAMAFACTORY.replace("packing", "fp8: true\npacking")}
    use = ("--use", "catalog.precisions.fp8_delayed", "--use", "catalog.systems.dgx_h100")
    done = run_command("check", "run.yaml", *use, files=files)
    assert "import-question" not in done.err
    assert "import-conflict" not in done.err


def test_the_name_of_a_folder_is_an_assumption() -> None:
    found = read("llamafactory", "meta-llama/Llama-3.1-8B", "/data/LLM-Research/Llama-3___2-3B")
    assert "models.llama32_3b" in uses(found)
    assert any("`Llama-3.2-3B` is the name of" in one.assumption for one in found.uses)


def test_batches_of_a_file_of_deepspeed_have_to_agree_with_the_trainer() -> None:
    engine = '{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}'
    old, new = "bf16: true", "bf16: true\ndeepspeed: z2.json"
    first, second = read("llamafactory", old, new, z2=engine).problems
    assert "`per_device_train_batch_size` and `train_micro_batch_size_per_gpu`" in first.message
    assert first.message == second.message
    values = settings(read("llamafactory", old, new, z2=engine.replace("2,", "1,")))
    assert values["layout.zero"] == "2"
    batch = '{"train_batch_size": 64, "zero_optimization": {"stage": 2}}'
    values = settings(read("llamafactory", old, new, z2=batch))
    assert values["training.global_batch"] == "64 sequences"


def test_pretraining_of_llamafactory_packs_sequences() -> None:
    text = "stage: pt"
    found = read("llamafactory", "packing: true\n", "")
    assert [one.name for one in found.missing] == ["packing"]
    plain = LLAMAFACTORY.replace("packing: true\n", "").replace("stage: sft", text)
    one = next(one for one in importers() if one.name == "llamafactory")
    assert not one.read(ImportFile("run.yaml", plain)).missing


def test_a_default_of_the_script_is_assumed() -> None:
    found = read("trl", "--max_length 4096", '--max_length "${LENGTH:-2048}"')
    assert settings(found)["training.sequence"] == "2048"
    assert "LENGTH" in assumptions(found)["training.sequence"]


def test_a_length_by_default_is_read_without_packing(run_command: Run) -> None:
    """The longest sequence is known, and shorter batches are a warning."""
    script = TRL.replace("--max_length 4096 --packing", '--max_length "${LENGTH:-2048}"')
    hardware = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", "run.sh", *hardware, "--warnings", files={"run.sh": script})
    assert "step time" in done.out
    assert "not known" not in done.err
    assert "packing" in done.out


EACH_BATCH = "accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}"


@pytest.mark.parametrize(
    ("lines", "accumulate"),
    [
        ("gradient_accumulation_steps: 8\nfsdp: [full_shard, auto_wrap]", "whole"),
        ("gradient_accumulation_steps: 1\nfsdp: [full_shard, auto_wrap]", "whole"),
        ("gradient_accumulation_steps: 8\nfsdp: [no_shard]", None),
        ("gradient_accumulation_steps: 8", None),
        (
            f"gradient_accumulation_steps: 8\nfsdp: [full_shard, auto_wrap]\n{EACH_BATCH}",
            "shard",
        ),
    ],
)
def test_gradients_under_fsdp_are_whole_up_to_the_last_micro_batch(
    lines: str, accumulate: str | None
) -> None:
    """Trainer reduces them in the last micro-batch alone, unless each is stated.

    Whole gradients have the type of FSDP, and sharded ones that of the fp32 shards. A single
    micro-batch is the last one.
    """
    found = settings(read("axolotl", "gradient_accumulation_steps: 4", lines))
    assert found.get("sharding.accumulate") == accumulate
    assert found.get("precision.whole_gradients") == ("2 B" if "fsdp" in lines else None)
    assert "precision.gradients" not in found


def test_a_script_reads_the_configurations_that_it_names() -> None:
    """FSDP of Accelerate on 16 processes, and the job of LLaMA-Factory beside the script."""
    script = "accelerate launch --config_file conf/fsdp.yaml src/train.py run.yaml\n"
    shards = (  # the precision of the trainer replaces that of its launcher
        "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nnum_processes: 16\n"
        "mixed_precision: bf16\n"
    )
    beside = {"conf/fsdp.yaml": shards, "run.yaml": LLAMAFACTORY}
    one = next(one for one in importers() if one.name == "llamafactory")
    assert one.recognizes("run.sh", script)
    found = one.read(ImportFile("run.sh", script, PLAIN, beside.get))
    assert not found.questions
    values = settings(found)
    assert values["layout.zero"] == "3"
    assert values["cluster.devices"] == "16"
    assert values["training.sequence"] == "4096"
    (problem,) = one.read(ImportFile("run.sh", script)).problems
    assert problem.message.startswith("`run.yaml` has the keys of the job, and is not beside")


RL_SFT = """sft: {max_num_steps: 60}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 64
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
  precision: bfloat16
  make_sequence_length_divisible_by: ${mul:2, ${policy.dtensor_cfg.tensor_parallel_size}}
  dtensor_cfg: {enabled: true, cpu_offload: false, sequence_parallel: true, activation_checkpointing: true,
    tensor_parallel_size: 2, context_parallel_size: 1, lora_cfg: {enabled: false, dim: 8}}
  sequence_packing: {enabled: false}
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 1.0e-6}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""
RL_MEGATRON = """defaults: ../../sft.yaml
policy:
  model_name: Qwen/Qwen3-30B-A3B
  dtensor_cfg: {enabled: false}
  sequence_packing: {enabled: true}
  megatron_cfg:
    enabled: true
    tensor_model_parallel_size: 2
    sequence_parallel: true
    expert_model_parallel_size: 8
    activation_checkpointing: true
    freeze_moe_router: true
    distributed_data_parallel_config: {grad_reduce_in_fp32: true}
    optimizer: {use_precision_aware_optimizer: false}
cluster: {gpus_per_node: 8, num_nodes: 4}
"""


@pytest.mark.parametrize(
    ("old", "new", "accumulate"),
    [
        ("batch_size: 64", "batch_size: 64", "whole"),
        ("tensor_parallel_size: 2", "defer_fsdp_grad_sync: false", None),
    ],
)
def test_gradients_of_nemo_rl_wait_for_the_last_micro_batch(
    old: str, new: str, accumulate: str | None
) -> None:
    importer = next(one for one in importers() if one.name == "nemo_rl")
    found = importer.read(ImportFile("sft.yaml", RL_SFT.replace(old, new, 1)))
    assert settings(found).get("sharding.accumulate") == accumulate


def test_fine_tuning_of_nemo_rl_on_fsdp_is_read() -> None:
    """FSDP2 keeps fp32 weights, gathers and multiplies in bf16, and reduces in fp32."""
    one = next(one for one in importers() if one.name == "nemo_rl")
    found = one.read(ImportFile("run.yaml", RL_SFT))
    assert not found.problems
    assert not found.questions
    assert {
        "cluster.devices": "2 * 8",
        "layout.zero": "3",
        "layout.tp": "2",
        "layout.sequence_parallel": "on",
        "training.micro_batch": "2",
        "training.global_batch": "64 sequences",
        "training.recompute": "full",
    }.items() <= settings(found).items()
    assert uses(found)[-1] == "precisions.bf16_fsdp"
    assert [key.name for key in found.missing] == ["policy.sequence_packing.enabled"]
    adapters = RL_SFT.replace("lora_cfg: {enabled: false", "lora_cfg: {enabled: true")
    values = settings(one.read(ImportFile("run.yaml", adapters)))
    assert [values[f"adapters.{of}"] for of in ("rank", "head", "weights")] == ["8", "on", "4 B"]
    both = f"{RL_SFT.replace('  optimizer', '  megatron_cfg: {enabled: true}' + chr(10) + '  optimizer')}"
    (problem,) = one.read(ImportFile("run.yaml", both)).problems
    assert "both backends are enabled" in problem.message


def test_fine_tuning_of_nemo_rl_on_megatron_starts_from_its_configuration() -> None:
    """What the file leaves out is that of sft.yaml: 32 sequences of 1,024 tokens."""
    one = next(one for one in importers() if one.name == "nemo_rl")
    found = one.read(ImportFile("run.yaml", RL_MEGATRON))
    assert not found.problems
    assert not found.questions
    values, assumed = settings(found), assumptions(found)
    assert {
        "cluster.devices": "32",
        "layout.tp": "2",
        "layout.ep": "8",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
        "training.global_batch": "32 sequences",
        "training.recompute": "full",
    }.items() <= values.items()
    assert "precision.gradients" not in values
    assert assumed["training.sequence"].endswith("examples/configs/sft.yaml")
    assert "layout.tp" not in assumed
    own = RL_SFT.replace("max_total_sequence_length: 4096", "max_total_sequence_length: 512")
    found = one.read(ImportFile("run.yaml", RL_MEGATRON, PLAIN, {"sft.yaml": own}.get))
    assert settings(found)["training.sequence"] == "512"
    other = RL_MEGATRON.replace("../../sft.yaml", "mine.yaml")
    (problem,) = one.read(ImportFile("run.yaml", other)).problems
    assert "`mine.yaml`, which is not beside the file" in problem.message
    other = RL_MEGATRON.replace("../../sft.yaml", "my/sft.yaml")
    (problem,) = one.read(ImportFile("run.yaml", other)).problems
    assert "`my/sft.yaml`, which is not beside the file" in problem.message


@pytest.mark.parametrize(
    ("name", "is_read"),
    [
        *(("examples/configs/sft.yaml", True), ("/opt/nemo-rl/examples/configs/sft.yaml", True)),
        *(("my/sft.yaml", False), ("sft.yaml", False), ("my_examples/configs/sft.yaml", False)),
    ],
)
def test_only_its_own_folder_has_the_configuration_that_nemo_rl_ships(
    name: str, is_read: bool
) -> None:
    one = next(one for one in importers() if one.name == "nemo_rl")
    found = one.read(ImportFile("run.sh", f"uv run examples/run_sft.py --config {name}\n"))
    if is_read:
        assert assumptions(found)["training.sequence"] == "NeMo RL 0.5: examples/configs/sft.yaml"
    else:
        (problem,) = found.problems
        assert f"`{name}` has the keys of the job, and is not beside" in problem.message


def test_keys_of_the_megatron_backend_are_read_or_listed() -> None:
    """Gradients of a separate kernel cost time; a frozen router does not."""
    one = next(one for one in importers() if one.name == "nemo_rl")
    lines = """gradient_accumulation_fusion: false
    bias_activation_fusion: true
    layernorm_epsilon: 1.0e-6
    moe_router_dtype: fp64
    moe_router_load_balancing_type: none
    moe_router_bias_update_rate: 0.0
    moe_per_layer_logging: true
    empty_unused_memory_level: 1
    train_iters: 100
    scheduler: {lr_decay_style: constant}
    optimizer: {lr: 5.0e-6, min_lr: 5.0e-7, weight_decay: 0.1, adam_eps: 1.0e-8, clip_grad: 1.0,
      sgd_momentum: 0.9, params_dtype: float32, """
    found = one.read(ImportFile("run.yaml", RL_MEGATRON.replace("optimizer: {", lines)))
    assert not [*found.problems, *found.questions]
    assert settings(found)["kernels.fused_accumulation"] == "off"
    ignored = {key.name.removeprefix("policy.megatron_cfg.") for key in found.ignored}
    assert {"freeze_moe_router", "scheduler.lr_decay_style", "optimizer.lr"} <= ignored
    assert not found.unknown


@pytest.mark.parametrize(("files", "is_read"), [(6, True), (7, False)])
def test_a_long_chain_of_configurations_is_an_error(files: int, is_read: bool) -> None:
    """Each of the files extends the next, and the last has the length of the sequences."""
    one = next(one for one in importers() if one.name == "nemo_rl")
    own = RL_MEGATRON.replace("../../sft.yaml", "1.yaml")
    chain = {f"{at}.yaml": f"defaults: {at + 1}.yaml\n" for at in range(1, files)}
    chain[f"{files}.yaml"] = RL_SFT.replace("length: 4096", "length: 512")
    found = one.read(ImportFile("run.yaml", own, PLAIN, chain.get))
    if is_read:
        assert settings(found)["training.sequence"] == "512"
        return
    (problem,) = found.problems
    assert "more than 6 files; the next is `7.yaml`" in problem.message
    assert own[problem.start : problem.end].endswith("1.yaml")


def test_a_command_of_nemo_rl_replaces_values_of_its_configuration() -> None:
    one = next(one for one in importers() if one.name == "nemo_rl")
    words = "policy.model_name=Qwen/Qwen3-8B cluster.gpus_per_node=8 cluster.num_nodes=2"
    found = one.read(ImportFile("run.sh", f"uv run examples/run_sft.py {words}\n"))
    assert not found.questions
    assert settings(found)["cluster.devices"] == "2 * 8"
    assert settings(found)["training.sequence"] == "1024"


def test_a_configuration_that_the_tool_finds_itself_is_assumed() -> None:
    """`tune run --config llama3_1/8B_full`: batches of 2 without accumulation, checkpoints, bf16."""
    one = next(one for one in importers() if one.name == "torchtune")
    words = "tokenizer.max_seq_len=4096 gradient_accumulation_steps=4"
    command = "tune run --nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_full"
    found = one.read(ImportFile("run.sh", f"{command} {words}\n"))
    assert not found.questions
    values, assumed = settings(found), assumptions(found)
    assert values["training.micro_batch"] == "2"
    assert assumed["training.micro_batch"] == "torchtune 0.6.1: llama3_1/8B_full"
    assert values["training.micro_batches"] == "4"
    assert "training.micro_batches" not in assumed
    assert values["cluster.devices"] == "8"
    assert "models.llama31_8b" in uses(found)
    beside = {"llama3_1/8B_full": TORCHTUNE, "8B_full": TORCHTUNE}
    found = one.read(ImportFile("run.sh", f"{command} {words}\n", PLAIN, beside.get))
    assert "training.micro_batch" not in assumptions(found)
    other = command.replace("8B_full", "8B_mine")
    (problem,) = one.read(ImportFile("run.sh", f"{other}\n")).problems
    assert "`llama3_1/8B_mine` has the keys of the job" in problem.message


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
    one = next(one for one in importers() if one.name == "trl")
    script = f"accelerate launch {launch}\n"
    found = one.read(ImportFile("run.sh", script, PLAIN, {"run.yaml": TRL_YAML}.get))
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert settings(found).get("cluster.devices") == devices
    assert settings(found)["training.micro_batch"] == "1"
    named = [tool.name for tool in importers() if tool.recognizes("run.sh", script)]
    assert named == ["trl"]
    done = run_command("check", "run.sh", files={"run.sh": script})
    assert "`run.yaml` has the keys of the job, and is not beside the script" in done.out


def test_half_a_folder_name_is_no_shipped_file() -> None:
    """`my_accelerate_configs/zero3.yaml` is the user's own file, whose stage is not known."""
    one = next(one for one in importers() if one.name == "trl")
    launch = TRL.replace("--num_processes 8", "--config_file my_accelerate_configs/zero3.yaml")
    found = one.read(ImportFile("run.sh", launch))
    assert {one.attribute for one in found.questions} == {"layout.zero", "precision"}
    assert "cluster.devices" not in settings(found)


def test_an_unknown_value_of_a_written_file_leaves_the_others_known() -> None:
    """The date in the name of a folder decides nothing, and a variable of the batch does."""
    script = """cat > sft.yaml <<END
model_name_or_path: Qwen/Qwen3-4B
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
max_length: 2048
dtype: bfloat16
bf16: true
use_peft: true
lora_r: 8
lora_target_modules: all-linear
output_dir: out_$(date +%s)
END
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 train_sft.py --config sft.yaml
"""
    found = settings(read("trl", TRL, script))
    assert found["training.micro_batch"] == "2"
    assert found["adapters.rank"] == "8"
    (problem,) = read("trl", TRL, script.replace("size: 2", "size: $BATCH")).problems
    assert problem.message.startswith("`per_device_train_batch_size`: `BATCH` is not set")
    assert "--set-env BATCH=" in problem.help
    engine = """cat > fsdp.yaml <<END
distributed_type: FSDP
num_processes: $RANKS
fsdp_config: {fsdp_sharding_strategy: NO_SHARD}
END
"""
    launch = TRL.replace("--num_processes 8", "--config_file fsdp.yaml")
    known = read("trl", TRL, engine + launch)
    assert not known.questions
    assert settings(known)["layout.zero"] == "0"
    asked = read("trl", TRL, engine.replace("NO_SHARD", "$KIND") + launch).questions
    assert "which the script writes with text" in asked[0].reason


def test_files_that_a_script_writes_are_read() -> None:
    """A here-document names another one: ZeRO 3 on 16 processes; one of two is not guessed."""
    files = """cat <<EOF > conf/run.yaml
distributed_type: DEEPSPEED
deepspeed_config: {deepspeed_config_file: ./ds.json}
num_processes: 16
mixed_precision: bf16
EOF
STAGE=${STAGE:-3}
tee ds.json <<EOF
{"bf16": {"enabled": true}, "zero_optimization": {"stage": $STAGE}}
EOF
"""
    launch = TRL.replace("--num_processes 8", "--config_file conf/run.yaml")
    one = next(one for one in importers() if one.name == "trl")
    found = one.read(ImportFile("run.sh", files + launch))
    assert not found.questions
    values = settings(found)
    assert (values["layout.zero"], values["cluster.devices"]) == ("3", "16")
    other = files.replace('"stage": $STAGE', '"stage": 2').replace("STAGE=${STAGE:-3}\n", "")
    either = f"if [ $BIG = 1 ]; then\n{files}else\n{other}fi\n"
    (asked,) = one.read(ImportFile("run.sh", either + launch)).questions
    assert asked.attribute == "layout.zero"
    assert "`./ds.json`, which the script writes with text that a test" in asked.reason


WRITTEN = """cat > ds.json <<EOF
{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}
EOF
"""
DEEPSPEED = TRL.replace("--bf16", "--bf16 --deepspeed ds.json")


@pytest.mark.parametrize(
    "command",
    [
        *("sed -i s/2/$Q/ ds.json", "python gen.py > ds.json", "cp zero3.json ds.json"),
        *("mv t ds.json", "curl -o ds.json https://a.b/c", "curl -ods.json https://a.b/c"),
        *("wget https://a.b/ds.json", "jq .x ds.json > t && mv t ds.json", "cp conf/ds.json ."),
        *("python gen.py --out=ds.json", "jq .x t | tee ds.json", "(sed -i s/2/$Q/ ./ds.json)"),
        *("printf '{}' > ds.json", "{ cat a; cat b; } > ds.json", "cp t $DIR/ds.json", "> ds.json"),
        *(
            "python - <<E\nopen('ds.json', 'w')\nE",
            "bash -c 'cat t > ds.json'",
            "cp -t . x/ds.json",
        ),
        *(
            "sed -i s/2/3/ $F",
            'sed -i s/2/3/ "$D/$N.json"',
            "patch -p1 < a.diff",
            "git apply a.diff",
        ),
        *("git checkout ds.json", "ed ds.json <<E\n1d\nE", "sd 2 3 ds.json", "git stash"),
        *("git checkout -- .", "git reset --hard", "git restore .", "rm -f ds.json"),
        "python - <<E\np = 'ds.json'\njson.dump(c, open(p, 'w'))\nE",
        *("f() { sed -i s/2/$Q/ $1; }\nf ds.json", "for i in 1 2; do cat $i >> ds.json; done"),
        *("if [ $X = 1 ]; then sed -i s/2/3/ ds.json; fi", "sed -i 's/2/3/' *.json"),
    ],
)
def test_a_written_file_that_a_later_command_may_change_is_not_read(command: str) -> None:
    """The stage that the here-document has may be another one at the launch."""
    one = next(one for one in importers() if one.name == "trl")
    beside = {"ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 0}}'}
    file = ImportFile("run.sh", f"{WRITTEN}{command}\n{DEEPSPEED}", PLAIN, beside.get)
    found = one.read(file)
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert "ds.json`, " in asked.reason
    if "if" not in command:
        assert re.search(r" in line [4-6] may change it$", asked.reason)
    again = one.read(ImportFile("run.sh", f"{command}\n{WRITTEN}{DEEPSPEED}", PLAIN, beside.get))
    assert settings(again)["layout.zero"] == "2"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "cat ds.json",
            "echo ds.json",
            "ls -l ds.json",
            "[ -f ds.json ] || exit 1",
            "jq . ds.json",
        ),
        *("cp ds.json out/", "cp ds.json $OUT/ds.json", "sed -n 1p ds.json", "python gen.py > log"),
        *("git checkout main", "patch src/a.py < a.diff", "sed -i s/2/3/ $DIR/run.py"),
        *(
            "rm -rf out *.pt",
            "timeout 5 cat log",
            "python -c \"print('a.json'.replace('a', 'b'))\"",
        ),
        *("cp t out/ds.json", "chmod 644 ds.json", "python gen.py my_ds.json ds.json.bak"),
        *("for i in 1 2; do cat ds.json; done", "cat ds.json | tee log", "sed s/2/3/ ds.json > t"),
    ],
)
def test_a_command_that_only_reads_a_written_file_leaves_it(command: str) -> None:
    one = next(one for one in importers() if one.name == "trl")
    script = f"{WRITTEN}{command}\n{DEEPSPEED}mv ds.json out\nrm -f ds.json\n"
    assert settings(one.read(ImportFile("run.sh", script)))["layout.zero"] == "2"


@pytest.mark.parametrize(
    ("command", "zero"),
    [
        *(("cd conf", "3"), ("cd other", "2"), ("cd conf\ncd ..", "2")),
        *(("cp conf/ds.json ./", "3"), ("cp -f conf/ds.json new\ncd new", "3")),
        *(("cp conf/ds.json new/", "2"), ("cp conf/ds.json new/\ncd new", "3")),
    ],
)
def test_a_launch_reads_a_file_in_its_folder_before_one_beside_the_script(
    command: str, zero: str
) -> None:
    one = next(one for one in importers() if one.name == "trl")
    text = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": STAGE}}'
    beside = {f"{at}ds.json": text.replace("STAGE", n) for at, n in (("", "2"), ("conf/", "3"))}
    found = one.read(ImportFile("run.sh", f"{command}\n{DEEPSPEED}", PLAIN, beside.get))
    assert settings(found)["layout.zero"] == zero


MCA = """tensor_model_parallel_size: 2
pipeline_model_parallel_size: 2
expert_model_parallel_size: 4
sequence_parallel: true
use_distributed_optimizer: true
recompute_granularity: selective
moe_token_dispatcher_type: alltoall
"""


def test_megatron_keys_of_llamafactory_are_those_of_megatron(run_command: Run) -> None:
    """Micro-batches of 1 x 4 steps x 8 replicas of 2 x 2 ranks are 32 sequences."""
    one = next(one for one in importers() if one.name == "llamafactory")
    model = LLAMAFACTORY.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B")
    text = model + MCA
    found = one.read(ImportFile("run.yaml", text))
    assert not found.questions
    expected = {
        "layout.tp": "2",
        "layout.pp": "2",
        "layout.ep": "4",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
        "training.recompute": "selective",
        "training.micro_batches": "4",
        "training.sequence": "4096",
        "routing.dispatcher": "alltoall",
        "overlap.gradients": "off",
    }
    assert expected.items() <= settings(found).items()
    assert "frameworks.megatron_core" in uses(found)
    assert "precisions.bf16" in uses(found)
    script = "USE_MCA=1 NNODES=4 NPROC_PER_NODE=8 llamafactory-cli train run.yaml\n"
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", "run.sh", *machine, files={"run.sh": script, "run.yaml": text})
    assert done.code == 0, done.err
    (devices,) = [
        line for line in run_command("import", "run.sh").out.splitlines() if "devices" in line
    ]
    assert "4 * 8" in devices or "32" in devices
    off = one.read(ImportFile("run.yaml", model + "tensor_model_parallel_size: 2\n"))
    assert settings(off)["layout.zero"] == "0"


def test_megatron_of_llamafactory_trains_all_weights_as_an_assumption(run_command: Run) -> None:
    asks = "finetuning_type: lora\nlora_rank: 8\nquantization_bit: 4\n"
    text = LLAMAFACTORY.replace("finetuning_type: full\n", asks) + "use_mca: true\n"
    text = text.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-0.6B")
    machine = ("--use", "catalog.systems.dgx_h100", "--set", "cluster.devices=8")
    done = run_command("eval", "run.yaml", *machine, files={"run.yaml": text})
    assert "`finetuning_type`, `lora_rank`, `quantization_bit`" in " ".join(done.out.split())
    shown = run_command("import", "run.yaml").err
    assert "lora_rank: assumed without effect: mcore_adapter trains all weights" in shown
    full = run_command("import", "full.yaml", files={"full.yaml": LLAMAFACTORY + "use_mca: true\n"})
    assert "trains all weights" not in full.err


def test_an_engine_of_deepspeed_beside_keys_of_megatron_is_an_error() -> None:
    one = next(one for one in importers() if one.name == "llamafactory")
    for more in ("deepspeed: ds.json\n", "deepspeed: ds.json\nuse_mca: true\n"):
        found = one.read(
            ImportFile("run.yaml", LLAMAFACTORY + MCA * ("use_mca" not in more) + more)
        )
        (problem,) = found.problems
        assert "keys of Megatron-Core" in problem.message
        assert "remove `deepspeed`" in problem.help


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("", "routing.dispatcher", "allgather"),
        ("moe_token_dispatcher_type: alltoall", "routing.dispatcher", "alltoall"),
        ("", "layout.etp", "2"),
        ("expert_tensor_parallel_size: 1", "layout.etp", "1"),
        ("", "layout.sequence_parallel", "on"),
        ("", "framework.rotary", "eager"),
        ("", "framework.activation", "halves"),
    ],
)
def test_the_adapter_of_llamafactory_has_defaults_of_its_own(
    change: str, path: str, value: str
) -> None:
    """Experts in 2 x 4 ranks: the adapter turns sequence parallelism on by itself."""
    one = next(one for one in importers() if one.name == "llamafactory")
    text = LLAMAFACTORY.replace("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B")
    degrees = "tensor_model_parallel_size: 2\nexpert_model_parallel_size: 4\n"
    found = one.read(ImportFile("run.yaml", f"{text}{degrees}{change}\n"))
    assert settings(found)[path] == value
    assert not any("Megatron-Bridge" in why for why in assumptions(found).values())


def test_two_names_of_a_batch_with_other_values_are_an_error() -> None:
    one = next(one for one in importers() if one.name == "ms_swift")
    both = SWIFT.replace("--packing", "--batch_size 4 --packing")
    found = one.read(ImportFile("run.sh", both))
    assert found.problems
    message = found.problems[0].message
    assert "`per_device_train_batch_size` and `batch_size`" in message
    same = one.read(ImportFile("run.sh", both.replace("size 4", "size 1")))
    assert settings(same)["training.micro_batch"] == "1"
    assert not same.unknown


@pytest.mark.parametrize("tool", ["trl", "axolotl", "llamafactory", "ms_swift"])
def test_a_program_in_python_is_not_read_as_a_script(tool: str) -> None:
    one = next(one for one in importers() if one.name == tool)
    text = "from trl import SFTConfig\nargs = SFTConfig(bf16=True)\n"
    (problem,) = one.read(ImportFile("train.py", text)).problems
    assert problem.message.endswith("the settings of a Python file are not read")
    assert "import the command that starts `train.py`" in problem.help


def test_a_launch_without_a_configuration_asks_for_that_of_the_machine() -> None:
    """`accelerate launch` alone reads a file in the home folder, which may shard."""
    one = next(one for one in importers() if one.name == "trl")
    found = one.read(ImportFile("run.sh", TRL.replace(" --num_processes 8", "")))
    asked = {one.attribute: one for one in found.questions}
    assert asked.keys() == {"layout.zero", "precision"}
    assert "that of the machine decides" in asked["layout.zero"].reason
    assert "--use accelerate.yaml" in asked["layout.zero"].answers
    stated = one.read(ImportFile("run.sh", TRL.replace("--num_processes 8", "--multi_gpu")))
    assert settings(stated)["layout.zero"] == "0"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        *(
            (one, f"`{shown}` in line 1 leads to a folder that is not known")
            for one, shown in (
                ("[ -d conf ] && cd conf", "cd conf"),
                ("if [ $BIG = 1 ]; then cd conf; fi", "cd conf"),
                *((one, one) for one in ("cd con*", "cd $X", "cd", "cd $PWD/$X")),
                ("for i in *; do cd $i; done", "cd $i"),
            )
        ),
        *(
            (f"{one}\n{then}", f"`{one}` in line 1 may change it")
            for one in (
                *("tar xf a.tar -C conf", "unzip a.zip -d conf", "ln -sfn $Z conf", "mv z3 conf"),
                *("cp -r z3/. conf/", "rsync -a z3/ conf", "aws s3 sync s3://a/b conf"),
                *("cp -r $X/conf .", "rm -rf conf", "mv conf old"),
            )
            for then in ("cd conf", ":")
        ),
        *(
            (one, f"`{one}` in line 1 may change it")
            for one in ("tar xzf a.tgz", "unzip a.zip", "curl -LO https://a.b/ds.json")
        ),
    ],
)
def test_a_folder_that_is_not_known_or_changes_has_no_known_file(command: str, why: str) -> None:
    """The file beside the script may be another one, so the stage is asked for."""
    one = next(one for one in importers() if one.name == "trl")
    text = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    beside = {"ds.json": text, "conf/ds.json": text}
    place = "conf/ds.json" if command.endswith(":") else "ds.json"
    launch = DEEPSPEED.replace("ds.json", place)
    found = one.read(ImportFile("run.sh", f"{command}\n{launch}", PLAIN, beside.get))
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert asked.reason == f"`deepspeed` names `{place}`, and {why}"


@pytest.mark.parametrize(
    ("command", "zero"),
    [
        *(("cd $SLURM_SUBMIT_DIR", "2"), ("cd $PWD/conf", "3"), ("(cd $X; make)", "2")),
        *(("pushd $X; popd", "2"), ("tar cf a.tar conf", "2"), ("cd conf; cd ../conf", "3")),
        *(("tar xf a.tar -C data", "2"), ("mv log out/; cd conf", "3"), ("mv conf old", "2")),
        *(("ln -s /data/x data", "2"), ("tar xf a.tar a.txt", "2"), ("rm -rf out", "2")),
    ],
)
def test_a_folder_that_is_known_has_its_file(command: str, zero: str) -> None:
    one = next(one for one in importers() if one.name == "trl")
    text = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": STAGE}}'
    beside = {f"{at}ds.json": text.replace("STAGE", n) for at, n in (("", "2"), ("conf/", "3"))}
    found = one.read(ImportFile("run.sh", f"{command}\n{DEEPSPEED}", PLAIN, beside.get))
    assert settings(found)["layout.zero"] == zero
    assert "layout.zero" not in assumptions(found)


@pytest.mark.parametrize("named", ["cd /opt/x\n", "cd other\n", "cd ~\n", "other/"])
def test_a_file_that_stands_in_for_another_is_an_assumption(named: str) -> None:
    """The named file is in a folder that is not beside the script; one of its name is."""
    one = next(one for one in importers() if one.name == "trl")
    beside = {"ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'}
    launch = DEEPSPEED if "cd" in named else DEEPSPEED.replace("ds.json", f"{named}ds.json")
    script = f"{named if 'cd' in named else ''}{launch}"
    found = one.read(ImportFile("run.sh", script, PLAIN, beside.get))
    assert settings(found)["layout.zero"] == "2"
    assert "beside" in assumptions(found)["layout.zero"]


ON_DISK = {
    "ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    "zero3.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}',
    "form.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": ${STAGE}}}',
}


def read_on_disk(command: str) -> Translation:
    """Return the job of a script that runs *command* on files beside it ahead of the launch."""
    one = next(one for one in importers() if one.name == "trl")
    return one.read(ImportFile("run.sh", f"{command}\n{DEEPSPEED}", PLAIN, ON_DISK.get))


@pytest.mark.parametrize(
    "command",
    [
        'sed -i \'s/"stage": [0-9]/"stage": 3/\' ds.json',
        'S=3\nsed -i.bak -E "s#(x)?2#$S#g; s/true/true/" ./ds.json'.replace("(x)?", ""),
        *("cp zero3.json ds.json", "mv -f zero3.json ./ds.json", "cat zero3.json > ds.json"),
        "export STAGE=3\nenvsubst < form.json > ds.json",
        "STAGE=3 envsubst '$STAGE' < form.json > ds.json",
        "jq '.zero_optimization.stage = 3 | .a.b = \"c\"' ds.json > t && mv t ds.json",
        "jq --argjson s 3 '.zero_optimization.stage=$s' ds.json > t.json; cp t.json ds.json",
        "f() { sed -i s/2/3/ $1; }\nf ds.json",
        "S=3\nsed 's/${STAGE}/STAGE/' form.json |\n  sed \"s/STAGE/$S/\" | cat > ds.json",
        "sed s/2/4/ < ds.json | sed -e s/4/3/ > t.json; cat t.json > ds.json",
        *(
            "sed 's/2/3/' ds.json > t && mv t ds.json",
            "sed s/2/3/ < ds.json > new.json; mv new.json ds.json",
        ),
    ],
)
def test_a_file_beside_a_script_is_read_behind_a_constant_edit(command: str) -> None:
    """The file has stage 2, and the launch gets stage 3."""
    values = settings(read_on_disk(command))
    assert values["layout.zero"] == "3"


@pytest.mark.parametrize(
    "command",
    [
        *("sed -i s/2/$Q/ ds.json", "sed -i 's/\\(2\\)/\\1/' ds.json", "sed -i 's/2/3/' *.json"),
        *("cp $DIR/a.json ds.json", "cp conf/ds.json .", "jq '.a += 1' zero3.json > ds.json"),
        *("envsubst < form.json > ds.json", "python gen.py > ds.json", "yq -i '.a = 2' ds.json"),
        *("curl -o ds.json https://a.b/c", "perl -pi -e s/2/3/ ds.json", "cat t | tee ds.json"),
        *("if [ $X = 1 ]; then cp zero3.json ds.json; fi", "jq -S . ds.json > ds.json"),
        *("cat zero3.json >> ds.json", "cat < zero3.json form.json > ds.json"),
        *("jq --argjson s x '.a=$s' ds.json > ds.json", "jq '.a=$s' ds.json > ds.json"),
        *("sed s/2/3/ ds.json | sed s/3/$Q/ > ds.json", "sort ds.json | sed s/2/3/ > ds.json"),
        *("sed s/2/3/ | sed s/3/2/ > ds.json", "sed s/2/3/ ds.json | sed s/3/1/ ds.json > ds.json"),
        *("python -c \"open('ds.json', 'w')\"", "python <<E\nopen('./ds.json', mode='w')\nE"),
        *("python gen.py --output-file ds.json", "gen --out=ds.json", "gen -o ./ds.json"),
        *('for f in *.json; do\nsed -i s/2/3/ "$f"\ndone', "sed -i 's/x*/3/g' ds.json"),
        *("find . -name '*.json' -exec sed -i s/2/3/ {} +", "ls *.json | xargs sed -i s/2/3/"),
        *("sudo sed -i s/2/3/ ds.json", "srun cp a ds.json", "install -m 644 zero3.json ds.json"),
        *("scp host:a/ds.json .", "docker exec c tee ds.json", "f() { cat t; }\nf > ds.json"),
        *("cp a/ds.json ./", "cp -t . a/ds.json", "cp --target-directory=. a/ds.json"),
        *("cp a/ds.json $PWD/", "cp -r conf/. .", "rm -f ds.json", "dd if=t of=ds.json"),
        *("nice cp t ds.json", "timeout 5 cp t ds.json", "sed -i s/2/3/ [d]s.json"),
        *("python <<E\nshutil.copy('a/ds.json', 'ds.json')\nE", "python -c \"dump(f'{n}.json')\""),
        *("sed -i 1d ds.json", "sed -i -n s/2/3/ ds.json", "sed -i 's/2**/3/' ds.json"),
    ],
)
def test_a_file_beside_that_a_command_may_change_is_a_question(command: str) -> None:
    found = read_on_disk(command)
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert "`ds.json`, " in asked.reason


@pytest.mark.parametrize(
    "command",
    [
        "python - <<E\n" + "open(a," * 30_000 + "\nE",
        "\n".join(f"cp ds.json f{i}.json" for i in range(3000)),
    ],
)
def test_many_words_and_files_are_compared_in_a_moment(command: str) -> None:
    """The first read the rest of a text at each word, the second each file at each command."""
    start = time.process_time()
    found = read_on_disk(command)
    assert time.process_time() - start < 5
    assert found.problems or settings(found)["layout.zero"] == "2"


EDIT = "sed -i s/2/3/ ds.json"
LONG_WORD = "x" * 60_000


@pytest.mark.parametrize(
    "command",
    [
        *("sed s/2/3/ ds.json | sponge ds.json", "mv ds.json old.json", "mv ds.json old/"),
        *("mv -t old ds.json", 'sed -i \'s/"stage": [0-9]\\{1\\}/"stage": 3/\' ds.json'),
        *(
            'sed -i "s/}\\\\\'/}/" ds.json',
            "sed -i 's/$/,/' ds.json",
            "sed -i 's/[9-0]/3/' ds.json",
        ),
        f"sed -i {'-e s/e/ee/g ' * 30}ds.json",
        f"echo '{'a' * 60_000}' > ds.json\nsed -i 's/a*b*Z/3/' ds.json",
        f"sed -i 's/2/{LONG_WORD}/g' ds.json",
        f"sed -i {'-e s/a.*b.*Z/3/ ' * 9000}ds.json",
        f"for i in {{1..900}}; do {EDIT}; done",
        f"export X={LONG_WORD}\necho '{'$X ' * 20_000}' > t.json\nenvsubst < t.json > ds.json",
    ],
)
def test_an_edit_that_is_not_followed_is_a_question_soon(command: str) -> None:
    """Other edits, and edits that take long or make long texts, are asked for in a moment."""
    start = time.process_time()
    found = read_on_disk(command)
    assert time.process_time() - start < 5
    (asked,) = [one for one in found.questions if one.attribute == "layout.zero"]
    assert "`ds.json`, " in asked.reason


@pytest.mark.parametrize(
    ("command", "path", "stage"),
    [
        (f"cd conf; {EDIT}; cd ..", "ds.json", "2"),
        (f"cd conf; {EDIT}; cd ..", "conf/ds.json", "3"),
        (f"cd conf; {EDIT}; cd -", "./conf/ds.json", "3"),
        (f"pushd conf; {EDIT}; popd", "ds.json", "2"),
        (f"(cd conf && {EDIT})", "conf/ds.json", "3"),
        (f"cp ds.json conf/ds.json; cd conf && {EDIT}; cd ..", "conf/ds.json", "3"),
        ("mkdir conf; cp zero3.json conf/ds.json; cd conf", "ds.json", "3"),
        (f"cd conf; {EDIT}", "ds.json", "3"),
        (f"cd conf; {EDIT}", "../ds.json", "2"),
        (f"{EDIT}; cd conf", "ds.json", "2"),
        (f"{EDIT}; cd conf", "../ds.json", "3"),
        ("cd conf; sed -i s/2/3/ ../ds.json; cd ..", "ds.json", "3"),
        (f"cd $DIR; {EDIT}; cd -", "ds.json", ""),
        (f"[ -d $DIR ] && cd conf; {EDIT}", "ds.json", ""),
        (f"if [ $X = 1 ]; then cd conf; {EDIT}; fi; cd ..", "ds.json", ""),
        (f"cd conf; {EDIT}; cd $DIR", "ds.json", ""),
        ("cd conf; sed -i s/2/$Q/ *.json; cd ..", "conf/ds.json", ""),
        ("find . -name '*.json' -exec sed -i s/2/3/ {} +; cd conf", "ds.json", ""),
        ("mv zero3.json t.json; cp zero3.json ds.json", "ds.json", ""),
        ("cat zero3.json > /w/ds.json; cd /w", "ds.json", "3"),
        ("cat zero3.json > /w/ds.json; cd /w", "/w/ds.json", "3"),
        ("cat zero3.json > /w/ds.json; cd /w; gen > /w/ds.json", "ds.json", ""),
        ("cat zero3.json > /w/ds.json; cd /w; cp $DIR/a /w/ds.json", "ds.json", ""),
        ("cat zero3.json > ds.json; cd $DIR", "ds.json", "3"),
        (f"cat zero3.json > ds.json; (cd $DIR; {EDIT})", "ds.json", ""),
        ("cd $DIR; cat > ds.json <<E\n" + ON_DISK["zero3.json"] + "\nE", "ds.json", "3"),
        ("for i in $LIST; do cd conf; done; " + EDIT, "ds.json", ""),
    ],
)
def test_an_edited_file_is_the_one_in_its_folder(command: str, path: str, stage: str) -> None:
    """Both files have stage 2 ahead of the edit; a folder that is not known is a question."""
    one = next(one for one in importers() if one.name == "trl")
    beside = {**ON_DISK, "conf/ds.json": ON_DISK["ds.json"]}
    launch = DEEPSPEED.replace("--deepspeed ds.json", f"--deepspeed {path}")
    found = one.read(ImportFile("run.sh", f"{command}\n{launch}", PLAIN, beside.get))
    asked = [one for one in found.questions if one.attribute == "layout.zero"]
    assert ("" if asked else settings(found)["layout.zero"]) == stage


@pytest.mark.parametrize(
    "command",
    [
        *("cp ds.json out/", "cp ds.json $OUT/ds.json", "sed -n 1p ds.json", "jq . ds.json"),
        *("cat ds.json | tee log", "python show.py ds.json", "sed s/2/3/ ds.json > t.json"),
        *(
            "python -c \"open('ds.json', 'r')\"",
            "python a.py --output_dir ds.json.d",
            "sort ds.json",
        ),
        *("for f in *.json; do cat $f; done", "find . -name '*.json' -exec cat {} +"),
        *(
            "sudo cat ds.json",
            "srun sed s/2/3/ ds.json",
            "find . -name '*.py' -exec sed -i s/2/3/ {} +",
        ),
        *("cp zero3.json $OUT", "mv zero3.json other.json", "envsubst < ds.json"),
    ],
)
def test_a_file_beside_a_script_that_is_only_read_stays(command: str) -> None:
    assert settings(read_on_disk(command))["layout.zero"] == "2"


@pytest.mark.parametrize(
    "command",
    [
        "cat > ds.json <<EOF\n{DS}\nEOF".replace("{DS}", ON_DISK["form.json"]),
        "export STAGE\nenvsubst < form.json > ds.json",
        'sed -i "s/2/$STAGE/" ds.json',
        "jq --argjson s $STAGE '.zero_optimization.stage = $s' ds.json > t && mv t ds.json",
        "cp zero$STAGE.json ds.json",
    ],
)
def test_a_default_in_a_written_file_is_an_assumption(command: str) -> None:
    found = read_on_disk(f"STAGE=${{STAGE:-3}}\n{command}")
    assert settings(found)["layout.zero"] == "3"
    (stage,) = [
        one for block in found.blocks for one in block.settings if one.key.endswith(".stage")
    ]
    assert stage.assumption.startswith("`STAGE` is not set in the file")


def test_a_default_marks_only_its_own_keys_of_a_written_configuration() -> None:
    one = next(one for one in importers() if one.name == "trl")
    text = TRL_YAML.replace("max_length: 4096", "max_length: ${LENGTH:-4096}")
    script = f"cat > run.yaml <<EOF\n{text}EOF\ntrl sft --config run.yaml\n"
    found = one.read(ImportFile("run.sh", script))
    marked = {
        one.name
        for block in found.blocks
        for one in block.settings
        if one.assumption.startswith("`LENGTH`")
    }
    assert marked == {"sequence"}


def test_a_script_beside_that_may_change_is_not_read() -> None:
    one = next(one for one in importers() if one.name == "trl")
    beside = {"run.sh": TRL}
    changed = "sed -i 's/processes 8/processes 16/' run.sh\nbash run.sh\n"
    found = one.read(ImportFile("job.sh", changed, PLAIN, beside.get))
    assert settings(found)["cluster.devices"] == "16"
    unread = f"if [ $X = 1 ]; then\n{changed.splitlines()[0]}\nfi\nbash run.sh\n"
    assert one.read(ImportFile("job.sh", unread, PLAIN, beside.get)).problems
    written = TRL.replace("--learning_rate 1e-5", "").replace("--bf16", "--bf16 --seed $SEED")
    script = f"cat > run.sh <<EOF\n{written}EOF\nbash run.sh\n"
    assert settings(one.read(ImportFile("job.sh", script)))["cluster.devices"] == "8"


def test_a_written_script_or_launcher_that_is_changed_is_not_read() -> None:
    """Neither the file of the same name that TRL ships nor the text of before is read."""
    one = next(one for one in importers() if one.name == "trl")
    written = f"cat > run.sh <<'EOF'\n{TRL}EOF\n"
    assert settings(one.read(ImportFile("job.sh", f"{written}bash run.sh\n")))["cluster.devices"]
    changed = f"{written}sed -i s/8/$Q/ run.sh\nbash run.sh\n"
    assert one.read(ImportFile("job.sh", changed)).problems
    name = "accelerate_configs/zero3.yaml"
    written = f"cat > {name} <<EOF\nnum_processes: 4\nEOF\nsed -i s/4/$Q/ {name}\n"
    launch = TRL.replace("--num_processes 8", f"--config_file {name}")
    found = one.read(ImportFile("run.sh", written + launch))
    assert "layout.zero" in {one.attribute for one in found.questions}
    conf = f"cat > run.yaml <<EOF\n{TRL_YAML}EOF\nsed -i s/2/$Q/ run.yaml\n"
    found = one.read(ImportFile("run.sh", f"{conf}trl sft --config run.yaml\n"))
    (problem,) = found.problems
    assert problem.message.endswith("`sed -i s/2/$Q/ run.yaml` in line 10 may change it")


def test_the_mesh_of_axolotl_has_the_devices() -> None:
    """4 shards x 2 copies x tp 2 are 16 devices."""
    mesh = "dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\nfsdp_version: 2\n"
    mesh += "fsdp_config: {reshard_after_forward: true}\n"
    found = read("axolotl", "bf16: true\n", f"bf16: true\n{mesh}")
    assert settings(found)["cluster.devices"] == "4 * 2 * layout.tp * layout.cp"
    assert settings(found)["sharding.shard"] == "4 * layout.cp"


def test_lion_has_one_moment() -> None:
    """Weights of 4 B: reads gradient, weight and moment, writes weight and moment: 4 x 5 B."""
    found = read("llamafactory", "bf16: true", "bf16: true\noptim: lion_32bit")
    assert not found.problems
    assert settings(found)["precision.optimizer"] == "4 B"
    assert settings(found)["precision.update_traffic"] == "20 B"


@pytest.mark.parametrize("line", ["adapter:\n", "adapter: {}\n", "load_in_4bit: false\n"])
def test_a_key_without_a_value_requests_nothing(line: str) -> None:
    assert "layout.zero" in settings(read("axolotl", "bf16: true\n", f"bf16: true\n{line}"))


@pytest.mark.parametrize(
    ("tool", "name", "zero"),
    [
        ("llamafactory", "examples/deepspeed/ds_z3_config.json", "3"),
        ("llamafactory", "./examples/deepspeed/ds_z2_config.json", "2"),
        ("axolotl", "deepspeed_configs/zero1.json", "1"),
        ("axolotl", "/workspace/axolotl/deepspeed_configs/zero3_bf16.json", "3"),
    ],
)
def test_a_file_of_deepspeed_that_the_tool_brings_is_assumed(
    tool: str, name: str, zero: str
) -> None:
    """16 bytes per parameter, as in every file of DeepSpeed with `auto` and bf16."""
    found = read(tool, "bf16: true\n", f"bf16: true\ndeepspeed: {name}\n")
    assert not found.questions
    assert settings(found)["layout.zero"] == zero
    assert uses(found)[-1] == "precisions.bf16_zero_paper"
    assert name.rpartition("/")[2] in assumptions(found)["layout.zero"]
    own = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 0}}'
    found = read(tool, "bf16: true\n", "bf16: true\ndeepspeed: z.json\n", z=own)
    assert "layout.zero" not in assumptions(found)


TRL_YAML = """model_name_or_path: Qwen/Qwen2.5-7B
torch_dtype: bfloat16
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
max_length: 4096
packing: true
bf16: true
"""
SUBMITTED = """python mason.py --num_nodes 4 --gpus 8 -- accelerate launch --mixed_precision bf16 \\
  --num_processes 8 --use_deepspeed --deepspeed_config_file ds.json open_instruct/finetune.py \\
  --model_name_or_path meta-llama/Llama-3.1-8B --max_seq_length 4096 \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --gradient_checkpointing
"""


def _read(tool: str, file: ImportFile) -> Translation:
    (one,) = [one for one in importers() if one.name == tool]
    return one.read(file)


def test_a_program_of_its_own_is_rejected_at_its_place() -> None:
    text = 'M="deepspeed --num_gpus 8 mine.py --deepspeed_config=ds.json --model_name a"\neval $M\n'
    text = "# Trainer\ncat > z.json <<E\n" + '{"zero_optimization": {"stage": 3}}\nE\n' + text
    (problem,) = _read("trl", ImportFile("run.sh", text)).problems
    assert problem.message.startswith("`mine.py` is not a program of TRL")
    assert text[problem.start : problem.end] == "mine.py"
    assert "config.json" in problem.help


SCRIPT = (
    "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 True "
    "--torch_dtype bfloat16 --per_device_train_batch_size 2 --max_seq_length 4096"
)


@pytest.mark.parametrize(
    ("flags", "attribute"),
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
    found = _read("trl", ImportFile("run.sh", f"{SCRIPT} {flags}\n"))
    assert attribute in {one.attribute for one in found.questions}


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ("--lora True", "LoRA"),
        ("--peft_type lora", "LoRA"),
        ("--adapter prefix", "adapters"),
        ("--bits 4", "a frozen model in 4 or 8 bits"),
        ("--freeze_layers 10", "frozen parameters"),
        ("--trainable_layers 4", "frozen parameters"),
        ("--teacher_model big", "distillation"),
        ("--ref_model base", "a reference model"),
    ],
)
def test_what_a_script_of_its_own_adds_is_rejected_by_name(flags: str, missing: str) -> None:
    found = _read("trl", ImportFile("run.sh", f"{SCRIPT} {flags}\n"))
    assert any(missing in one.message for one in found.problems)


@pytest.mark.parametrize("flags", ["--bits 16", "--peft_type none", "--use_flash_attn True"])
def test_an_argument_that_changes_nothing_leaves_a_script_as_it_is(flags: str) -> None:
    found = _read("trl", ImportFile("run.sh", f"{SCRIPT} {flags}\n"))
    assert not found.problems
    assert not found.questions
    off = _read("trl", ImportFile("run.sh", f"{SCRIPT} --flash_attn False\n"))
    assert settings(off)["training.flash_attention"] == "off"


def test_a_command_of_ms_swift_2_is_read() -> None:
    text = (
        "NPROC_PER_NODE=8 swift sft --model_id_or_path Qwen/Qwen2.5-7B --sft_type full --batch_size 4 "
        "--torch_dtype bfloat16 --max_length 4096 --deepspeed default-zero3\n"
    )
    found = settings(_read("ms_swift", ImportFile("run.sh", text)))
    expected = ("qwen25_7b", "4", "3")
    keys = ("training.model", "training.micro_batch", "layout.zero")
    assert tuple(found[one] for one in keys) == expected


def test_a_trainer_may_name_its_engine_as_deepspeed_does() -> None:
    text = DEEPSPEED.replace("--deepspeed ds.json", "--deepspeed_config ds.json")
    found = _read("trl", ImportFile("run.sh", text, PLAIN, ON_DISK.get))
    assert settings(found)["layout.zero"] == "2"


def test_tensor_parallelism_of_deepspeed_is_read() -> None:
    own = '{"zero_optimization": {"stage": 2}, "tensor_parallel": {"autotp_size": 4}}'
    line = (
        "deepspeed --num_gpus 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 True "
        "--per_device_train_batch_size 2 --max_seq_length 4096 --deepspeed ds.json\n"
    )
    found = _read("trl", ImportFile("run.sh", line, neighbor={"ds.json": own}.get))
    assert settings(found)["layout.tp"] == "4"


@pytest.mark.parametrize(
    ("recipe", "framework", "gradients"),
    [
        ("bf16_fsdp", "frameworks.pytorch_fsdp", "whole"),
        ("bf16_zero_paper", "frameworks.deepspeed", None),
    ],
)
def test_the_answer_on_precision_chooses_the_engine(
    recipe: str, framework: str, gradients: str | None
) -> None:
    """FSDP waits for the last of four micro-batches, and DeepSpeed has types of its own."""
    text = "model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: 1\nbf16: true\n"
    options = evolve(PLAIN, uses=(f"catalog.precisions.{recipe}",), settings=("layout.zero",))
    one = next(one for one in importers() if one.name == "trl")
    found = one.read(ImportFile("a.yaml", text + "gradient_accumulation_steps: 4\n", options))
    assert framework in uses(found)
    assert settings(found).get("sharding.accumulate") == gradients


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--objective dpo", "`objective` is dpo: a reference model"),
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


def test_a_configuration_without_a_launcher_asks_what_it_shards() -> None:
    found = _read("trl", ImportFile("run.yaml", TRL_YAML))
    assert {one.attribute for one in found.questions} == {"layout.zero", "precision"}
    engine = _read("trl", ImportFile("run.yaml", f"{TRL_YAML}distributed_type: MULTI_GPU\n"))
    assert not engine.questions
    assert settings(engine)["layout.zero"] == "0"


@pytest.mark.parametrize(
    "launcher",
    [
        "distributed_type: FSDP\nfsdp_config: {fsdp_reshard_after_forward: true}\n",
        "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n",
    ],
)
def test_a_launcher_in_a_file_of_its_own_decides_on_the_copies_of_weights(
    run_command: Callable[..., Any], launcher: str
) -> None:
    """Weights, gradients and two moments of 4 B in FSDP; 2 + 2 + 12 B in DeepSpeed."""
    more = "mixed_precision: bf16\nnum_processes: 8\n"
    files = {"run.yaml": TRL_YAML, "launch.yaml": f"{launcher}{more}"}
    machine = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    command = ["figures", "run.yaml", "--use", "launch.yaml", *machine, "bytes_per_parameter"]
    done = run_command(*command, files=files)
    assert done.code == 0, done.err
    assert "16 B" in done.out


def test_narrow_states_beside_a_launcher_are_listed() -> None:
    options = evolve(PLAIN, files=("launch.yaml",))
    text = f"{TRL_YAML}optim: adamw_8bit\n"
    found = _read("trl", ImportFile("run.yaml", text, options))
    assert "optim" in {one.name for one in found.missing}


def test_sharding_of_the_command_line_leaves_no_replicas() -> None:
    options = evolve(PLAIN, settings=("layout.zero",))
    found = _read("trl", ImportFile("run.sh", TRL, options))
    assert not {"layout.zero", "overlap.bucket"} & settings(found).keys()
    assert not any("DistributedDataParallel" in one.assumption for one in found.uses)


def test_states_of_8_bits_that_a_recipe_replaces_are_listed() -> None:
    options = evolve(PLAIN, uses=("catalog.precisions.bf16_fsdp",))
    text = f"{TRL_YAML}optim: paged_adamw_8bit\n"
    found = _read("trl", ImportFile("run.yaml", text, options))
    reasons = {one.name: one.reason for one in found.missing}
    assert (
        reasons["optim"] == "--use replaces the recipe, and with it the states of paged_adamw_8bit"
    )


def test_a_job_that_another_program_submits_is_the_command_behind_the_dashes() -> None:
    ds = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}'
    file = ImportFile("run.sh", SUBMITTED, neighbor={"ds.json": ds}.get)
    found = settings(_read("trl", file))
    assert (found["layout.zero"], found["training.sequence"]) == ("3", "4096")
    assert found["cluster.devices"] == "32"  # mason.py multiplies the processes by its nodes


BATCHES = (
    "train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 "
    "--gradient_accumulation_steps 1 --max_seq_length 4096 --packing True"
)


@pytest.mark.parametrize(
    ("launcher", "arguments", "types", "recipe"),
    [
        # Trainer starts DeepSpeed: it fills in `auto`, and its own type is on where it is missing.
        ("torchrun", "--deepspeed ds.json --bf16 True", {"bf16": "auto"}, "bf16_zero_paper"),
        ("torchrun", "--deepspeed ds.json --bf16 True", {"fp16": "auto"}, "bf16_zero_paper"),
        ("torchrun", "--deepspeed ds.json --fp16 True", {"bf16": "auto"}, "fp16"),
        ("torchrun", "--deepspeed ds.json --bf16 True", {"fp16": False}, "bf16_zero_paper"),
        ("torchrun", "--deepspeed ds.json", {"bf16": "auto", "fp16": "auto"}, "fp32"),
        ("torchrun", "--deepspeed ds.json", {"bf16": True}, "bf16_zero_paper"),
        # Accelerate starts it: the type is that of its own mixed precision.
        ("accelerate bf16", "", {"bf16": "auto", "fp16": "auto"}, "bf16_zero_paper"),
        ("accelerate bf16", "", {"fp16": "auto"}, "bf16_zero_paper"),
        ("accelerate fp16", "", {"bf16": "auto"}, "fp16"),
        ("accelerate no", "", {"bf16": "auto"}, "fp32"),
        ("accelerate bf16", "", {"bf16": False}, "fp32"),
    ],
)
def test_deepspeed_has_the_types_that_its_file_leaves_to_trainer_or_accelerate(
    launcher: str, arguments: str, types: dict[str, Any], recipe: str
) -> None:
    program, _, mixed = launcher.partition(" ")
    start = f"{program} --nproc_per_node 8"
    if mixed:
        start = (
            f"accelerate launch --mixed_precision {mixed} --num_processes 8 --use_deepspeed "
            "--deepspeed_config_file ds.json"
        )
    engine: dict[str, Any] = {one: {"enabled": value} for one, value in types.items()}
    beside = {"ds.json": json.dumps({**engine, "zero_optimization": {"stage": 3}})}
    script = f"{start} {BATCHES} {arguments}\n"
    found = _read("trl", ImportFile("run.sh", script, PLAIN, beside.get))
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert [one for one in uses(found) if "precisions" in one] == [f"precisions.{recipe}"]


def test_a_type_that_deepspeed_turns_off_and_trainer_on_is_an_error() -> None:
    beside = {"ds.json": '{"bf16": {"enabled": false}, "zero_optimization": {"stage": 3}}'}
    script = f"torchrun --nproc_per_node 8 {BATCHES} --bf16 True --deepspeed ds.json\n"
    (problem,) = _read("trl", ImportFile("run.sh", script, PLAIN, beside.get)).problems
    assert problem.message.startswith("`bf16.enabled`: it is false")


def test_flags_of_accelerate_launch_decide_as_the_keys_of_its_file_do() -> None:
    """8 devices: 4 shards x 2 ranks of a sequence, compiled, in mixed precision."""
    flags = (
        "--use_fsdp --fsdp_version 2 --mixed_precision bf16 --num_processes 8 "
        "--parallelism_config_dp_shard_size 4 --parallelism_config_cp_size 2 "
        "--dynamo_backend inductor"
    )
    keys = (
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
        "fsdp_config: {fsdp_version: 2}\nparallelism_config:\n"
        "  parallelism_config_dp_shard_size: 4\n  parallelism_config_cp_size: 2\n"
        "dynamo_config: {dynamo_backend: INDUCTOR}\n"
    )
    scripts = (
        f"accelerate launch {flags} {BATCHES}\n",
        f"accelerate launch --config_file fsdp.yaml {BATCHES}\n",
    )
    for script in scripts:
        found = _read("trl", ImportFile("run.sh", script, PLAIN, {"fsdp.yaml": keys}.get))
        assert not found.questions
        values = settings(found)
        assert values["layout.zero"] == "3"
        assert values["layout.dp"] == "4"
        assert values["layout.cp"] == "2"
        assert values["cluster.devices"] == "8"
        assert values["kernels.mode"] == "compiled"
        assert "precisions.bf16_fsdp" in uses(found)


def test_steps_between_checkpoints_of_a_run_are_no_recomputation() -> None:
    script = f"torchrun --nproc_per_node 8 {BATCHES} --dtype float32 --checkpointing_steps 100\n"
    found = _read("trl", ImportFile("run.sh", script, PLAIN))
    assert not found.questions
    assert settings(found)["training.recompute"] == "none"


@pytest.mark.parametrize(
    ("text", "reshard"),
    [
        ('{"fsdp_version": 2}', "off"),
        ('{"version": 2, "reshard_after_forward": true}', None),
        ('{"version": 1, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}', "off"),
    ],
)
def test_a_file_of_fsdp_beside_a_script_of_trainer_is_read(text: str, reshard: str | None) -> None:
    """A strategy of --fsdp stands unless FSDP 2 states what it does after forward."""
    script = (
        f'torchrun --nproc_per_node 8 {BATCHES} --bf16 True --fsdp "shard_grad_op auto_wrap" '
        "--fsdp_config fsdp.json\n"
    )
    found = _read("trl", ImportFile("run.sh", script, PLAIN, {"fsdp.json": text}.get))
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert settings(found).get(KEPT) == reshard
    (question,) = _read("trl", ImportFile("run.sh", script, PLAIN)).questions
    assert "which is not beside the file" in question.reason
    assert question.answers == ("--set layout.zero=0", "--set layout.zero=3")


def test_a_degree_of_experts_that_torchtune_lacks_raises_a_question_of_its_attribute() -> None:
    file = ImportFile("run.yaml", f"{TORCHTUNE}expert_parallel_degree: 8\n")
    (question,) = _read("torchtune", file).questions
    assert (question.attribute, question.answers) == ("layout.ep", ("--set layout.ep=1",))


def test_sizes_that_a_script_overrides_raise_a_question() -> None:
    script = f"torchrun --nproc_per_node 8 {BATCHES} --dtype float32 --config_overrides n_layer=4\n"
    (question,) = _read("trl", ImportFile("run.sh", script, PLAIN)).questions
    assert (question.attribute, question.answers) == ("model", ("--use config.json",))


@pytest.mark.parametrize(
    ("tool", "command", "key"),
    [
        ("verl", ENGINE_SFT, "optim.optimizer="),
        ("openrlhf", OPENRLHF_SFT, "--optim.name "),
    ],
)
def test_an_optimizer_other_than_adamw_is_listed(tool: str, command: str, key: str) -> None:
    name = key.strip("-= ")
    for value, listed in (("AdamW", []), ("AdamW8bit", [name])):
        script = f"{command.rstrip()} {key}{value}\n"
        found = _read(tool, ImportFile("run.sh", script, PLAIN))
        assert not found.unknown
        assert [one.name for one in found.missing if one.name == name] == listed


@pytest.mark.parametrize(
    ("stage", "more", "hides"), [(2, "", "off"), (2, "--overlap_comm", "on"), (3, "", "on")]
)
def test_overlap_of_openrlhf_is_read(stage: int, more: str, hides: str) -> None:
    script = OPENRLHF_SFT.replace("--zero_stage 2", f"--zero_stage {stage} {more}")
    assert settings(read("openrlhf", OPENRLHF, script))["overlap.gradients"] == hides


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ("ac_mode: selective\nac_option: 2\n", {"recompute": "full", "every": "2", "first": "1"}),
        ("ac_mode: selective\nac_option: op\n", {"recompute": "full", "alternate": "on"}),
        ("ac_mode: full\n", {"recompute": "full"}),
        ("ac_mode: none\n", {"recompute": "none"}),
        ("ac_mode: full\nenable_activation_checkpointing: true\n", {"recompute": "none"}),
    ],
)
def test_layers_that_torchtune_recomputes_are_read(lines: str, kept: Mapping[str, str]) -> None:
    """With both keys neither of its two ways is taken."""
    text = TORCHTUNE.replace("enable_activation_checkpointing: True\n", lines)
    values = settings(_read("torchtune", ImportFile("run.yaml", text)))
    found = {key.rpartition(".")[2]: one for key, one in values.items() if "recompute" in key}
    assert found == kept


@pytest.mark.parametrize(
    ("word", "missing"),
    [
        ("optim.optimizer_impl=torch.optim", []),
        ("optim.optimizer_impl=bitsandbytes.optim", ["optim.optimizer_impl"]),
        (
            "optim.override_optimizer_config.block_size=64",
            ["optim.override_optimizer_config.block_size"],
        ),
        ("model.use_fused_kernels=True", ["model.use_fused_kernels"]),
        ("model.lora_adapter_path=own/adapter", ["model.lora_adapter_path"]),
    ],
)
def test_options_of_verl_that_no_attribute_has_are_listed(word: str, missing: list[str]) -> None:
    found = read("verl", VERL, ENGINE_SFT.replace("optim.lr=1e-5", word))
    assert not found.unknown
    assert [one.name for one in found.missing] == missing


@pytest.mark.parametrize(
    ("word", "attribute"),
    [
        ("engine.dtype=float16", "precision"),
        ("+model.override_config.num_hidden_layers=4", "model"),
    ],
)
def test_types_and_sizes_of_verl_raise_a_question(word: str, attribute: str) -> None:
    found = read("verl", VERL, ENGINE_SFT.replace("optim.lr=1e-5", word))
    assert [one.attribute for one in found.questions] == [attribute]


def test_ranks_that_ray_starts_and_eager_attention_of_verl_are_read() -> None:
    _, _, job = ENGINE_SFT.partition("-m ")
    more = "trainer.nnodes=2 trainer.n_gpus_per_node=8 +model.override_config.attn_implementation=eager"
    found = read("verl", VERL, f"python3 -m {job.replace('optim.lr=1e-5', more)}")
    assert not found.questions
    assert settings(found)["cluster.devices"] == "16"
    assert settings(found)["training.flash_attention"] == "off"


@pytest.mark.parametrize("word", ["--train.dynamic_batch_enable", "--train.enable_ema"])
def test_options_of_openrlhf_that_no_attribute_has_are_listed(word: str) -> None:
    plain = {one.name for one in read("openrlhf", OPENRLHF, OPENRLHF_SFT).missing}
    found = read("openrlhf", OPENRLHF, OPENRLHF_SFT.replace("--bf16", f"--bf16 {word}"))
    assert {one.name for one in found.missing} == {*plain, word.removeprefix("--")}


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
        _read("trl", ImportFile("run.yaml", one))
        for one in (text, re.sub("model_init_kwargs.*\n", plain, text))
    )
    assert not inner.unknown
    assert settings(inner)["training.flash_attention"] == "off"
    assert settings(inner) == settings(outer)
    assert uses(inner) == uses(outer)


@pytest.mark.parametrize(
    ("values", "flag", "is_one"),
    [
        ("1e-5 2e-5", "--learning_rate", True),
        ("1 2", "--seed", True),
        ("a b", "--output_dir out/run_", True),
        ("4096 8192", "--max_length", False),
        ("1 2", "--num_machines 1 --gradient_accumulation_steps", False),
    ],
)
def test_runs_of_a_loop_that_have_the_same_step_are_one_job(
    values: str, flag: str, is_one: bool
) -> None:
    """Runs over learning rates are one job; those over lengths are as many as there are."""
    text = SWIFT.replace("--max_length 4096", "").replace("--gradient_accumulation_steps 4", "")
    one = next(one for one in importers() if one.name == "ms_swift")
    loop = f"for X in {values}; do\n{text.rstrip()} {flag} $X\ndone\n"
    found = one.read(ImportFile("run.sh", loop, PLAIN, lambda _: None))
    assert bool(found.problems) != is_one
    if is_one:
        alone = one.read(ImportFile("run.sh", text, PLAIN, lambda _: None))
        assert settings(found) == settings(alone)
    else:
        assert "2 commands" in found.problems[0].message


def test_a_script_that_ends_ahead_of_its_command_says_so(run_command: Run) -> None:
    guard = 'MODEL=${MODEL:-.../model}\nif [[ $MODEL == *"..."* ]]; then\n  exit 1\nfi\n'
    script = guard + SWIFT.replace("Qwen/Qwen3-8B", "$MODEL")
    done = run_command("import", "run.sh", files={"run.sh": script})
    assert done.code == 2
    assert "the script exits here, ahead of the command of ms-swift" in done.err
    assert "--> run.sh:3:3" in done.err
    done = run_command("import", "--set-env", "MODEL=Qwen/Qwen3-8B", "run.sh")
    assert done.code == 0, done.err
    assert "qwen3_8b" in done.out


def test_packing_of_openrlhf_fills_no_sequence() -> None:
    """It joins the sequences of a micro-batch, each of which may be shorter than the longest."""
    text = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen3-8B --bf16 \\\n"
    text += "  --max_len 4096 --micro_train_batch_size 2 --packing_samples\n"
    one = next(one for one in importers() if one.name == "openrlhf")
    found = one.read(ImportFile("run.sh", text, PLAIN, lambda _: None))
    assert settings(found)["training.sequence"] == "4096"
    assert [one.name for one in found.missing] == ["packing_samples"]


def test_options_of_fsdp_in_another_file_leave_the_stated_sharding() -> None:
    """The words of `fsdp` have it, so that only what the file may add is listed."""
    script = "torchrun --nproc_per_node 8 my.py --model_name_or_path Qwen/Qwen3-4B --bf16 \\\n"
    script += "  --dtype float32 --per_device_train_batch_size 1 --fsdp_config own.json"
    found = read("trl", TRL, f'{script} --fsdp "full_shard auto_wrap"\n')
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"
    assert "fsdp_config" in [one.name for one in found.missing]


def test_spectrum_of_a_script_of_its_own_is_rejected() -> None:
    """It trains the layers that a file lists, and freezes the others."""
    text = "model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: 1\n"
    text += "spectrum_config_path: configs/layers.yaml\n"
    one = next(one for one in importers() if one.name == "trl")
    found = one.read(ImportFile("sft.yaml", text, PLAIN, lambda _: None))
    assert ["frozen" in one.message for one in found.problems] == [True]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("sft: {seed: 1}", ""),
        ("asft: {kl_weight: 0.1}", "a reference model beside"),
        ("opd: {seed: 1}", "has no `sft`"),
    ],
)
def test_an_algorithm_of_nemo_rl_that_is_not_fine_tuning_is_rejected(
    section: str, message: str
) -> None:
    """A file of any algorithm has a policy and a cluster, which were read as fine-tuning."""
    text = f"""{section}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 64
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  precision: bfloat16
  dtensor_cfg: {{enabled: true, tensor_parallel_size: 1}}
cluster: {{gpus_per_node: 8, num_nodes: 1}}
"""
    one = next(one for one in importers() if one.name == "nemo_rl")
    found = one.read(ImportFile("job.yaml", text, PLAIN, lambda _: None))
    assert [message in one.message for one in found.problems] == [True] * bool(message)


def test_a_script_that_starts_another_one_names_it(run_command: Run) -> None:
    """A comment with the command of a tool was pointed at."""
    script = "# llamafactory-cli train $1\nbash tools/start.sh conf.yaml\n"
    done = run_command("import", "--from", "llamafactory", "run.sh", files={"run.sh": script})
    assert done.code == 2
    assert "`tools/start.sh`, which the script starts or reads, is not in its folder" in done.err
    assert "--> run.sh:2:6" in done.err


@pytest.mark.parametrize(
    ("word", "recompute"), [("1", "full"), ("0", "none"), ("no", "none"), ("y", "full")]
)
def test_words_of_switches_are_those_of_transformers(word: str, recompute: str) -> None:
    found = read("trl", "--gradient_checkpointing True", f"--gradient_checkpointing {word}")
    assert not found.problems
    assert settings(found)["training.recompute"] == recompute


def test_lisa_is_rejected() -> None:
    """It trains a few layers of the model at a time."""
    for words, is_rejected in (("--use_lisa 1 --lisa_activated_layers 1", True), ("", False)):
        found = read("trl", "--bf16", f"--bf16 {words}")
        assert any("frozen" in one.message for one in found.problems) == is_rejected


def test_a_ring_of_a_trainer_runs_beside_a_bucket_of_deepspeed(run_command: Run) -> None:
    """The framework of the file, with its bucket, was that of DeepSpeed, which has no ring."""
    engine = {"stage": 2, "reduce_bucket_size": 200000000, "overlap_comm": False}
    name, text = FILES["llamafactory"]
    files = {
        name: f"{text}sequence_parallel_size: 4\ndeepspeed: own.json\n",
        "own.json": json.dumps({"bf16": {"enabled": True}, "zero_optimization": engine}),
    }
    done = run_command("check", "--use=catalog.systems.dgx_h100", name, files=files)
    assert done.code == 0, done.err
    done = run_command("import", name)
    assert "framework deepspeed_file extends deepspeed_ring {" in done.out


@pytest.mark.parametrize(
    ("ahead", "options", "code", "algorithm"),
    [
        ("", (), 1, "ulysses"),  # 4 ranks, and 2 heads of keys and values
        ("", ("--set=context.algorithm=hybrid", "--set=context.ulysses=2"), 0, "ulysses"),
        ("SEQUENCE_PARALLEL_IMPL=ring_attention ", (), 0, "all_gather"),
        ("SEQUENCE_PARALLEL_IMPL=ulysses ", (), 1, "ulysses"),
    ],
)
def test_sequence_parallelism_of_ms_swift_may_be_a_ring(
    run_command: Run, ahead: str, options: tuple[str, ...], code: int, algorithm: str
) -> None:
    text = SWIFT.replace("Qwen3-8B", "Qwen2.5-3B").rstrip()
    found = read("ms_swift", SWIFT, f"{ahead}{text} --sequence_parallel_size 4\n")
    assert settings(found)["context.algorithm"] == algorithm
    machine = "--use=catalog.systems.dgx_h100"
    files = {"run.sh": f"{ahead}{text} --sequence_parallel_size 4\n"}
    done = run_command("check", machine, *options, "run.sh", files=files)
    assert done.code == code, done.err


def test_a_program_whose_path_is_printed_by_python_is_read(run_command: Run) -> None:
    path = "import swift, os; print(os.path.join(os.path.dirname(swift.__file__), 'cli', 'sft.py'))"
    text = SWIFT.replace(
        "NPROC_PER_NODE=8 swift sft", f'torchrun --nproc_per_node 8 $(python3 -c "{path}")'
    )
    done = run_command("import", "run.sh", files={"run.sh": text})
    assert done.code == 0, done.err
    assert "qwen3_8b" in done.out
    assert settings(read("ms_swift", SWIFT, text)) == settings(read("ms_swift"))
