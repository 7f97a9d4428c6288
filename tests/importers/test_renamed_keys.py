"""Small jobs of every tool with one key that the tool lacks, or one value that it does not know."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from parcost import Importer
from parcost.language.text import Source
from parcost.plugins.discovery import load
from parcost_apps.testing.renaming import renamings, silent_answers, strange_values
from parcost_formats.imports.translation import translate
from parcost_formats.tools.keys import keys_of, releases

from ..rows import try_each
from .finetuning_files import ENGINE_SFT, OPENRLHF_SFT
from .test_lingua import JOB as LINGUA
from .test_nemo_rl import RL_MEGATRON, RL_SFT
from .test_olmo import JOB as OLMO
from .test_olmo_core import JOB as OLMO_CORE

Run = Callable[..., Any]

FILES = {
    "megatron": (
        "train.sh",
        (
            "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
            "--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention "
            "--num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear "
            "--untie-embeddings-and-output-weights --vocab-size 128256 --seq-length 4096 "
            "--micro-batch-size 2 --global-batch-size 64 --tensor-model-parallel-size 2 "
            "--sequence-parallel --pipeline-model-parallel-size 2 --use-distributed-optimizer "
            "--overlap-grad-reduce --bf16 --fp8-format hybrid --recompute-granularity full "
            "--recompute-method uniform --recompute-num-layers 1\n"
        ),
    ),
    "torchtitan": (
        "run.toml",
        (
            '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 2\n'
            'seq_len = 4096\ndtype = "bfloat16"\n[parallelism]\ntensor_parallel_degree = 2\n'
            "pipeline_parallel_degree = 2\ndata_parallel_shard_degree = 4\n[compile]\nenable = true\n"
            '[activation_checkpoint]\nmode = "full"\n'
        ),
    ),
    "deepspeed": (
        "ds.json",
        json.dumps(
            {
                "train_batch_size": 128,
                "train_micro_batch_size_per_gpu": 2,
                "bf16": {"enabled": True},
                "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
            }
        ),
    ),
    "accelerate": (
        "acc.yaml",
        (
            "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\nfsdp_config:\n"
            "  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"
            "  fsdp_activation_checkpointing: true\n  fsdp_offload_params: true\n"
        ),
    ),
    "nanotron": (
        "nano.yaml",
        (
            "model:\n  dtype: bfloat16\n  model_config:\n    is_llama_config: true\n"
            "    hidden_size: 1024\n    intermediate_size: 4096\n    num_hidden_layers: 8\n"
            "    num_attention_heads: 16\n    num_key_value_heads: 4\n    vocab_size: 50000\n"
            "    tie_word_embeddings: true\noptimizer:\n  zero_stage: 1\nparallelism:\n  dp: 4\n"
            "  tp: 2\n  pp: 2\n  pp_engine: 1f1b\n  tp_mode: REDUCE_SCATTER\n"
            "  recompute_layer: true\ntokens:\n  sequence_length: 4096\n  micro_batch_size: 2\n"
            "  batch_accumulation_per_replica: 4\n"
        ),
    ),
    "maxtext": (
        "max.yml",
        (
            "model_name: llama2-7b\nper_device_batch_size: 2\nremat_policy: minimal\nhardware: gpu\n"
            "max_target_length: 4096\nici_tensor_parallelism: 2\nici_fsdp_parallelism: 4\n"
        ),
    ),
    "levanter": (
        "lev.yaml",
        (
            "data: {tokenizer: meta-llama/Meta-Llama-3-8B}\nmodel:\n  type: llama\n"
            "  hidden_dim: 768\n  num_layers: 6\n  seq_len: 1024\n  gradient_checkpointing: false\n"
            "trainer:\n  mp: p=f32,c=bfloat16\n  model_axis_size: 2\n  per_device_parallelism: 2\n"
            "  tensor_parallel_axes: [mlp, heads]\n  fsdp_axis: embed\n  train_batch_size: 256\n"
        ),
    ),
    "nemo": (
        "nemo.yaml",
        (
            "trainer:\n  devices: 8\n  num_nodes: 2\n  precision: bf16\nmodel:\n"
            "  micro_batch_size: 2\n  global_batch_size: 64\n  tensor_model_parallel_size: 2\n"
            "  pipeline_model_parallel_size: 2\n  encoder_seq_length: 4096\n  num_layers: 32\n"
            "  hidden_size: 4096\n  ffn_hidden_size: 11008\n  num_attention_heads: 32\n"
            "  activations_checkpoint_granularity: full\n  activations_checkpoint_method: uniform\n"
            "  activations_checkpoint_num_layers: 1\n  optim:\n    name: distributed_fused_adam\n"
        ),
    ),
    "huggingface": (
        "config.json",
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_hidden_layers": 16,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 128256,
                "tie_word_embeddings": True,
            },
            indent=1,
        ),
    ),
    "llamafactory": (
        "run.yaml",
        (
            "stage: sft\nfinetuning_type: full\nmodel_name_or_path: meta-llama/Llama-3.1-8B\n"
            "cutoff_len: 4096\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
            "bf16: true\noptim: adamw_8bit\n"
        ),
    ),
    "axolotl": (
        "run.yml",
        (
            "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\nsequence_len: 4096\n"
            "gradient_accumulation_steps: 4\nbf16: true\ngradient_checkpointing: true\n"
            "activation_offloading: true\noptimizer: adamw_bnb_8bit\n"
        ),
    ),
    "torchtune": (
        "run.yaml",
        (
            "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n"
            "tokenizer:\n  max_seq_len: 4096\nbatch_size: 2\ngradient_accumulation_steps: 4\n"
            "dtype: bf16\nenable_activation_checkpointing: true\n"
            "optimizer:\n  _component_: torch.optim.AdamW\n"
            "loss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n"
        ),
    ),
    "trl": (
        "run.sh",
        (
            "accelerate launch --num_processes 8 trl/scripts/sft.py "
            "--model_name_or_path meta-llama/Llama-3.1-8B --max_length 4096 --packing true "
            "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --bf16 true\n"
        ),
    ),
    "ms_swift": (
        "run.sh",
        (
            "NPROC_PER_NODE=8 swift sft --model meta-llama/Llama-3.1-8B --train_type full "
            "--torch_dtype bfloat16 --max_length 4096 --packing true --deepspeed zero3 "
            "--per_device_train_batch_size 2 --gradient_accumulation_steps 4\n"
        ),
    ),
    "llm_foundry": (
        "mpt.yaml",
        (
            "max_seq_len: 1024\nmodel:\n  name: mpt_causal_lm\n  d_model: 768\n  n_heads: 12\n"
            "  n_layers: 8\n  expansion_ratio: 4\n  vocab_size: 50368\n"
            "train_loader:\n  name: text\nglobal_train_batch_size: 256\n"
            "device_train_microbatch_size: 8\nprecision: amp_bf16\nfsdp_config:\n"
            "  sharding_strategy: FULL_SHARD\n  mixed_precision: PURE\n"
            "  activation_checkpointing: true\n"
        ),
    ),
    "litgpt": (
        "lit.yaml",
        (
            "model_name: Llama-3.2-1B\nout_dir: out\nprecision: bf16-mixed\ntrain:\n"
            "  global_batch_size: 256\n  micro_batch_size: 2\n  max_seq_length: 2048\n"
            "devices: 8\ntokenizer_dir: t\n"
        ),
    ),
    "mlperf": (
        "config_x.sh",
        (
            "source config_common_8b.sh\nexport MINIBS=16\nexport TENSOR_MODEL_PARALLEL=2\n"
            "export PIPELINE_MODEL_PARALLEL=2\nexport CONTEXT_PARALLEL=2\n"
            "export MICRO_BATCH_SIZE=1\nexport DGXNNODES=4\nexport DGXNGPU=8\n"
            "export FP8=True\nexport USE_DIST_OPTIMIZER=True\n"
        ),
    ),
    "gpt_neox": (
        "neox.yml",
        (
            '{"pipe_parallel_size": 2, "model_parallel_size": 2, "num_layers": 8,\n'
            '"hidden_size": 768, "num_attention_heads": 12, "seq_length": 1024,\n'
            '"vocab_file": "20B_tokenizer.json", "norm": "rmsnorm", "no_weight_tying": true,\n'
            '"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4,\n'
            '"gradient_accumulation_steps": 2, "checkpoint_activations": true,\n'
            '"bf16": {"enabled": true}, "optimizer": {"type": "Adam"}}\n'
        ),
    ),
    "automodel": (
        "auto.yaml",
        (
            "recipe: TrainFinetuneRecipeForNextTokenPrediction\nstep_scheduler:\n"
            "  global_batch_size: 64\n  local_batch_size: 2\nmodel:\n"
            "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
            "  pretrained_model_name_or_path: Qwen/Qwen2.5-7B\n  torch_dtype: bfloat16\n"
            "distributed:\n  strategy: fsdp2\n  tp_size: 2\n  activation_checkpointing: true\n"
        ),
    ),
    "automodel with stages": (
        "auto.yaml",
        (
            "recipe: TrainFinetuneRecipeForNextTokenPrediction\nstep_scheduler:\n"
            "  global_batch_size: 64\n  local_batch_size: 4\nmodel:\n"
            "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
            "  pretrained_model_name_or_path: Qwen/Qwen2.5-7B\n  torch_dtype: bfloat16\n"
            "distributed:\n  strategy: fsdp2\n  pp_size: 2\n  pipeline:\n"
            "    pp_schedule: interleaved1f1b\n    pp_microbatch_size: 2\n"
        ),
    ),
    "megatron with DeepSpeed": (
        "train.sh",
        (
            "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 "
            "--num-attention-heads 32 --num-key-value-heads 8 --vocab-size 32000 --bf16 "
            "--seq-length 4096 --micro-batch-size 2 --global-batch-size 64 --zero-stage 1 "
            "--tensor-model-parallel-size 2 --no-pipeline-parallel --deepspeed\n"
        ),
    ),
    "lingua": ("lingua.yaml", LINGUA),
    "llamafactory_v1": (
        "v1.yaml",
        (
            "model: Qwen/Qwen3-4B\nmodel_class: llm\ntrain_dataset: data.yaml\nbf16: true\n"
            "micro_batch_size: 1\nglobal_batch_size: 16\ncutoff_len: 2048\n"
            "dist_config:\n  name: fsdp2\nlearning_rate: 1e-4\nkernel_config: {name: auto}\n"
        ),
    ),
    "nemo_rl": ("sft.yaml", RL_SFT),
    "nemo_rl with defaults": ("sft.yaml", f"defaults: ../../sft.yaml\n{RL_SFT}"),
    "nemo_rl on Megatron": ("sft.yaml", RL_MEGATRON),
    "olmo": ("olmo.yaml", OLMO),
    "olmo_core": ("train.py", OLMO_CORE),
    "openrlhf": ("run.sh", OPENRLHF_SFT),
    "verl": (
        "run.sh",
        (
            "torchrun --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer "
            "data.train_batch_size=256 data.micro_batch_size_per_gpu=4 data.max_length=2048 "
            "model.partial_pretrain=Qwen/Qwen2.5-7B model.enable_gradient_checkpointing=True "
            "ulysses_sequence_parallel_size=2 use_remove_padding=true model.strategy=fsdp2\n"
        ),
    ),
    "verl with its engine": ("run.sh", ENGINE_SFT),
}
_IMPORTERS: dict[str, Importer] = {
    name: found[1] for name, found in load().offers("importers").items()
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", FILES)
@pytest.mark.parametrize("spoil", [renamings, strange_values])
def test_no_spoiled_file_is_answered_in_silence(tool: str, spoil: Callable[..., Any]) -> None:
    name, text = FILES[tool]
    importer = _IMPORTERS[tool.partition(" ")[0]]
    before = translate(importer, Source(name, text))
    assert before.blocks
    found = silent_answers(importer, Source(name, text), spoil)
    assert [(one.path, one.written) for one in found] == []


@try_each(
    "tool, old, new, answer",
    [
        ("megatron", "--use-distributed-opt", "--use-distribuetd-opt", "--set layout.zero=1"),
        ("torchtitan", "tensor_parallel_degree", "tensor_parallel_dgree", "--set layout.tp=2"),
        ("nanotron", "recompute_layer", "recomptue_layer", "--set training.recompute=full"),
        ("nemo", "    name:", "    naem:", "--set layout.zero=1"),
        ("automodel with stages", "pp_schedule", "pp_scehdule", "--set schedule.kind=interleaved"),
        ("automodel with stages", "pp_micro", "pp_mcirob", "--set training.micro_batch=2"),
        ("megatron with DeepSpeed", "key-value", "key-vlaue", "--set model.kv_heads=8"),
    ],
)
def test_a_misspelled_key_asks_with_the_value_that_it_has(
    tool: str, old: str, new: str, answer: str
) -> None:
    name, text = FILES[tool]
    assert old in text
    importer = _IMPORTERS[tool.partition(" ")[0]]
    found = translate(importer, Source(name, text.replace(old, new, 1)))
    assert answer in [one for question in found.questions for one in question.answers]


def test_a_misspelled_key_of_a_file_that_a_command_names_asks(run_command: Run) -> None:
    """The `auto` of bf16 in that file stays an argument of the trainer."""
    zero = (
        '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stge": 3, "overlap_comm": true},\n'
        ' "train_micro_batch_size_per_gpu": "auto"}\n'
    )
    job = (
        "torchrun --nnodes 1 --nproc_per_node 8 run_clm.py --model_name_or_path Qwen/Qwen3-8B"
        " --block_size 4096 --per_device_train_batch_size 1 --bf16 True --deepspeed zero.json\n"
    )
    machine = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    done = run_command("check", *machine, "run.sh", files={"run.sh": job, "zero.json": zero})
    assert "not known: `training.precision`, `layout.zero`, `overlap.gradients`" in done.out
    assert done.out.count("`zero_optimization.stage` was probably meant") == 1
    answers = ["--use", "catalog.precisions.bf16_zero", "--set", "layout.zero=3"]
    answers += ["--set", "overlap.gradients=on"]
    assert " ".join(answers) in done.out
    done = run_command(
        "check", *machine, *answers, "run.sh", files={"run.sh": job, "zero.json": zero}
    )
    assert done.code == 0, done.out
    files = {"run.sh": job, "zero.json": zero.replace("stge", "stage")}
    assert run_command("check", *machine, "run.sh", files=files).code == 0


def test_a_misspelled_key_with_the_usual_value_asks_nothing(run_command: Run) -> None:
    """Without `overlap_comm` ZeRO 3 overlaps, so only the other value is a question."""
    text = (
        '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},\n'
        ' "zero_optimization": {"stage": 3, "overlap_com": true}}\n'
    )
    files = {"zero.json": text}
    job = "--set training.sequence=4096 --set cluster.devices=8"
    parts = "devices.h100_sxm fabrics.hgx_h100 models.llama31_8b"
    given = [*job.split(), *(w for one in parts.split() for w in ("--use", f"catalog.{one}"))]
    done = run_command("check", "zero.json", *given, files=files)
    assert done.code == 0
    assert "`zero_optimization.overlap_comm`, which was probably meant" in " ".join(
        done.out.split()
    )
    files["zero.json"] = text.replace("true}}", "false}}")
    done = run_command("check", "zero.json", *given, files=files)
    assert "`overlap.gradients` is not known" in done.out


def test_a_misspelled_key_of_a_changed_recipe_asks_for_its_entry(run_command: Run) -> None:
    """`fp16` changes the recipe of autocast; misspelled, the job was in float32 with a warning."""
    text = (
        "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: sft\nfinetuning_type: full\npf16: true\n"
        "cutoff_len: 1024\nper_device_train_batch_size: 1\npacking: true\n"
    )
    given = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    given += ["--set", "cluster.devices=8"]
    done = run_command("check", "sft.yaml", *given, files={"sft.yaml": text})
    answer = ["--use", "catalog.precisions.bf16_autocast"]
    assert "`fp16` was probably meant" in done.out
    assert f"add {' '.join(answer)}\n" in done.out
    done = run_command("check", "sft.yaml", *given, *answer, files={"sft.yaml": text})
    assert done.code == 0, done.out


def test_a_misspelled_key_that_changes_a_part_of_a_recipe_asks(run_command: Run) -> None:
    """The states of Adam in 8 bits, and softmax in kernels of its own, were left out with a warning."""
    given = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    job = (
        "torchrun --nnodes 1 --nproc_per_node 8 run_clm.py --model_name_or_path Qwen/Qwen3-8B"
        " --torch_dtype float32 --block_size 4096 --per_device_train_batch_size 1 --bf16 True"
        " --optim adamw_8bit\n"
    )
    done = run_command("check", "run.sh", *given, files={"run.sh": job})
    assert done.code == 0, done.out
    done = run_command(
        "check", "run.sh", *given, files={"run.sh": job.replace("--optim", "--opitm")}
    )
    assert "`optim` was probably meant" in done.out
    answer = ["--use", "catalog.precisions.bf16_autocast"]
    assert f"add {' '.join(answer)}\n" in done.out
    name, text = FILES["megatron"]
    text = text.replace("--swiglu", "--swiglu --no-masked-softmx-fusion")
    found = translate(_IMPORTERS["megatron"], Source(name, text))
    assert "training.framework" in [one.attribute for one in found.questions]


def test_a_misspelled_key_that_takes_a_value_away_asks(run_command: Run) -> None:
    """Without rotary embeddings the model has learned positions; another size is no answer."""
    job = (
        "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --bf16"
        " --num-attention-heads 8 --seq-length 512 --max-position-embeddings 512"
        " --micro-batch-size 1 --global-batch-size 8 --use-rotary-posiiton-embeddings\n"
    )
    given = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    given += ["--set", "model.vocabulary=512"]
    done = run_command("check", "run.sh", *given, files={"run.sh": job})
    assert "`model.positions` is not known" in done.out
    assert "add --set model.positions=512\n" in done.out
    given += ["--set", "model.positions=512"]
    assert run_command("check", "run.sh", *given, files={"run.sh": job}).code == 0


def test_a_misspelled_section_asks_for_its_values() -> None:
    """`model` of LLM Foundry may have any key; LoRA was full fine-tuning, with a warning."""
    text = (
        "max_seq_len: 2048\nglobal_train_batch_size: 16\ndevice_train_microbatch_size: 2\n"
        "precision: amp_bf16\nmodel:\n  name: hf_causal_lm\n"
        "  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n"
        "  peft_config:\n    r: 8\n    peft_type: LORA\n    target_modules: [q_proj]\n"
        "fsdp_config:\n  sharding_strategy: FULL_SHARD\n"
    )
    importer = _IMPORTERS["llm_foundry"]
    found = translate(importer, Source("job.yaml", text))
    assert "adapters.rank" not in [one.attribute for one in found.questions]
    found = translate(importer, Source("job.yaml", text.replace("peft_config", "peft_confg")))
    (question,) = [one for one in found.questions if one.attribute == "adapters.rank"]
    assert question.answers == ("--set adapters.rank=8",)
    assert "`model.peft_config.r` was probably meant" in question.reason


def test_an_abbreviation_is_a_misspelled_key() -> None:
    """The rank that is missing is asked for where it stands, once."""
    text = (
        "base_model: Qwen/Qwen3-4B\nadapter: lora\nlora_rank: 32\nlora_target_linear: true\n"
        "sequence_len: 4096\nsample_packing: true\nmicro_batch_size: 2\n"
        "gradient_accumulation_steps: 4\nbf16: true\n"
    )
    found = translate(_IMPORTERS["axolotl"], Source("job.yml", text))
    (question,) = [one for one in found.questions if one.attribute == "adapters.rank"]
    assert question.answers == ("--set adapters.rank=32",)
    assert "`lora_r` was probably meant" in question.reason
    assert text[question.start :].startswith("lora_rank")


@try_each(
    "tool, count, names",
    [
        ("torchtitan", 2, ["parallelism.tensor_parallel_degree", "training.batch_size"]),
        ("trainer", 2, ["gradient_checkpointing", "per_device_train_batch_size"]),
        ("megatron", 4, ["tensor_model_parallel_size", "recompute_granularity"]),
        ("verl", 2, ["actor_rollout_ref.actor.strategy", "data.balance_dp_token"]),
        ("openrlhf", 2, ["ring_head_stride", "ds.zero_stage"]),
        ("accelerate", 3, ["ipex"]),
    ],
)
def test_the_names_of_each_release_are_listed(tool: str, count: int, names: list[str]) -> None:
    found = list(releases(tool))
    assert len(found) == count
    assert keys_of(tool).issuperset(names)


#: Tools whose importer claims releases, and their lists of names.
RELEASES = {
    **{one: (one,) for one in sorted(_IMPORTERS) if list(releases(one))},
    "megatron": ("megatron", "megatron_bridge"),
}


@pytest.mark.parametrize("tool", RELEASES)
def test_a_release_that_is_claimed_has_a_list_of_names(tool: str) -> None:
    """``import --list`` claimed ranges of which one release alone had a list.

    Each version of a title begins the version of a list; dates and branches are left out.
    """
    title = _IMPORTERS[tool].title
    listed = [one.title for name in RELEASES[tool] for one in releases(name)]
    for version in re.findall(
        r"(?<![\d.-])\d+(?:\.\d+)*(?![\d-])", re.sub(r"(?:main|of 20).*| v1$", "", title)
    ):
        assert any(re.search(rf" {re.escape(version)}(?![\d])", one) for one in listed), version


def test_a_misspelled_key_that_adds_adapters_asks(run_command: Run) -> None:
    """Without `finetuning_type` the job has LoRA of rank 8, which no setting takes away."""
    text = (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetunning_type: full\n"
        "cutoff_len: 4096\nper_device_train_batch_size: 1\nbf16: true\n"
    )
    given = ("--use", "catalog.devices.h100_sxm", "--set", "cluster.devices=8")
    done = run_command("check", "sft.yaml", *given, files={"sft.yaml": text})
    assert done.code == 2
    assert "`finetuning_type` was probably meant" in done.out
    right = text.replace("nning", "ning")
    done = run_command("import", "sft.yaml", files={"sft.yaml": right})
    assert "adapters {" not in done.out
