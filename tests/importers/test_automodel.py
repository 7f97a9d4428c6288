"""Recipes of NeMo Automodel: meshes, batches, types of weights, and what is rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Translation
from parcost_formats.tools.automodel import Automodel

from ..rows import try_each
from .translations import assumptions, problems, settings, uses

IMPORTER = Automodel()
#: 4 stages of 4 ranks, and the rest of the devices as replicas.
RECIPE = """\
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  global_batch_size: 128
  local_batch_size: 4
  max_steps: 60
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-70B
  torch_dtype: float32
optimizer:
  _target_: torch.optim.AdamW
  lr: 2.0e-5
distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 4
  pp_size: 4
  sequence_parallel: false
  activation_checkpointing: true
  pipeline:
    pp_schedule: 1f1b
    pp_microbatch_size: 1
packed_sequence:
  packed_sequence_size: 4096
"""


def read(text: str) -> Translation:
    return IMPORTER.translate("run.yaml", text)


def questions(text: str) -> dict[str, str]:
    return {one.attribute: one.reason for one in read(text).questions}


def test_a_recipe_is_read() -> None:
    found = read(RECIPE)
    assert IMPORTER.recognizes("run.yaml", RECIPE)
    assert not found.unknown
    assert not found.questions
    assert uses(found) == [
        "models.llama31_70b",
        "frameworks.pytorch_fsdp_flash",
        "precisions.bf16_fsdp",
    ]
    assert {
        "layout.tp": "4",
        "layout.pp": "4",
        "layout.cp": "1",
        "layout.zero": "3",
        "layout.sequence_parallel": "off",
        "framework.accumulate": "whole",
        "schedule.kind": "one_f_one_b",
        "training.global_batch": "128 sequences",
        "training.micro_batch": "1",
        "training.sequence": "4096",
        "training.recompute": "full",
    }.items() <= settings(found).items()
    assert "cluster.devices" not in settings(found)
    assert assumptions(found)["layout.cp"] == "NeMo Automodel 013d113: cp_size is 1"


def test_weights_of_two_bytes_have_gradients_reduced_in_four() -> None:
    values = settings(read(RECIPE.replace("torch_dtype: float32", "torch_dtype: bf16")))
    assert values["precision.reduction"] == values["precision.whole_gradients"] == "4 B"
    assert values["training.precision"] == "automodel"
    text = RECIPE.replace("torch_dtype: float32", "torch_dtype: torch.bfloat16").replace(
        "  pipeline:", "  mp_policy: {param_dtype: bfloat16, reduce_dtype: bfloat16}\n  pipeline:"
    )
    assert uses(read(text))[-1] == "precisions.bf16_pure"


def test_replicas_shard_within_their_group() -> None:
    """16 ranks in 2 groups: shards of 8; 16 x 4 x 4 devices."""
    text = RECIPE.replace("dp_size: none", "dp_size: 16\n  dp_replicate_size: 2")
    values = settings(read(text))
    assert values["sharding.shard"] == "8"
    assert values["cluster.devices"] == "256"


def test_keys_of_2025_are_read() -> None:
    text = """\
step_scheduler:
  grad_acc_steps: 16
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen3-8B
  torch_dtype: float32
dataset:
  seq_len: 1024
dataloader:
  batch_size: 8
distributed:
  _target_: nemo_automodel.components.distributed.fsdp2.FSDP2Manager
  dp_size: none
"""
    values = settings(read(text))
    assert values["training.micro_batches"] == "16"
    assert values["training.global_batch"] == "(8 * 16 * layout.dp) sequences"
    assert values["training.micro_batch"] == "8"
    assert values["training.sequence"] == "1024"
    assert values["layout.zero"] == "3"


@try_each(
    "old, new, attribute, reason",
    [
        ("  torch_dtype: float32\n", "", "precision", "weights have the type of the checkpoint"),
        ("torch_dtype: float32", "torch_dtype: auto", "precision", "model.torch_dtype is auto"),
        (
            "pretrained_model_name_or_path: meta-llama/Llama-3.1-70B",
            "n_layer: 12\n  n_embd: 768",
            "model",
            "the model class sets the sizes",
        ),
        ("torch.optim.AdamW", "dion.Muon", "precision", "but the optimizer is dion.Muon"),
        ("meta-llama/Llama-3.1-70B", "a/b", "model", "`a/b` is not in parcost's table"),
        ("checkpointing: true", "checkpointing: selective", "training.recompute", "are unknown"),
        ("schedule: 1f1b", "schedule: interleaved1f1b", "schedule.chunks", "splits the layers"),
        ("  local_batch_size: 4\n", "", "training.micro_batch", "no step_scheduler"),
    ],
)
def test_a_setting_of_the_cost_raises_a_question(
    old: str, new: str, attribute: str, reason: str
) -> None:
    assert old in RECIPE
    assert reason in questions(RECIPE.replace(old, new))[attribute]


@try_each(
    "old, new, message",
    [
        (
            "packed_sequence:",
            "peft: {_target_: a.Prefix, dim: 8}\npacked_sequence:",
            "adapters other than LoRA and QLoRA are not modeled",
        ),
        ("CausalLM", "ImageTextToText", "a vision tower is not modeled"),
        ("packed_sequence:", "flow_matching: {shift: 3}\npacked_sequence:", "diffusion"),
        ("TrainFinetuneRecipeFor", "KnowledgeDistillationRecipeFor", "distillation"),
        (
            "dp_size: none",
            "dp_size: 64",
            "128 is not a multiple of local_batch_size 4 x dp_size 64",
        ),
        ("strategy: fsdp2", "strategy: magic", "`magic` is not known"),
        ("pp_microbatch_size: 1", "pp_microbatch_size: 3", "is not a multiple of 3"),
    ],
)
def test_what_cannot_run_or_be_written_is_an_error(old: str, new: str, message: str) -> None:
    assert old in RECIPE
    assert message in problems(IMPORTER, RECIPE.replace(old, new), "run.yaml")[0][0]


@pytest.mark.slow
def test_a_key_that_is_renamed_raises_a_question(run_command: Callable[..., Any]) -> None:
    text = RECIPE.replace("  tp_size: 4", "  tensor_width: 4")
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    more = ("--set", "cluster.devices=128")
    done = run_command("eval", *machine, *more, "run.yaml", files={"run.yaml": text})
    assert done.code == 2
    assert "error[import-question]: `layout.tp` is not known" in done.err
    done = run_command("eval", *machine, *more, "run.yaml", files={"run.yaml": RECIPE})
    assert "import-question" not in done.err + done.out
    assert "step time" in done.out


def test_the_state_of_fused_adam_is_that_of_its_options() -> None:
    """Moments of fp32 beside bf16 weights: 8 B; a master copy adds 4 B. See the reads and writes.

    An update reads the gradient, the weight and the state, and writes the weight and the state.
    """
    text = RECIPE.replace("float32", "bfloat16").replace(
        "torch.optim.AdamW", "transformer_engine.pytorch.optimizers.FusedAdam"
    )
    values = settings(read(text))
    assert values["precision.optimizer"] == "8 B"
    assert values["precision.update_traffic"] == f"{2 + 2 + 8 + 2 + 8} B"
    copied = settings(read(text.replace("  lr:", "  master_weights: true\n  lr:")))
    assert copied["precision.optimizer"] == "12 B"
    assert not questions(text)
    assert "precision.optimizer" not in settings(read(text.replace("bfloat16", "float32")))


def test_classes_of_optimizers_are_those_that_they_build() -> None:
    """The class of FusedAdam has a master copy unless it states otherwise."""
    classes = "nemo_automodel.components.optim.optimizer."
    text = RECIPE.replace("float32", "bfloat16")
    fused = text.replace("torch.optim.AdamW", f"{classes}FusedAdamConfig")
    assert settings(read(fused))["precision.optimizer"] == "12 B"
    bare = fused.replace("  lr:", "  master_weights: false\n  lr:")
    assert settings(read(bare))["precision.optimizer"] == "8 B"
    plain = text.replace("torch.optim.AdamW", f"{classes}AdamWConfig")
    assert not questions(plain)
    assert settings(read(plain)) == settings(read(text))


def test_the_pipeline_of_releases_of_2025_is_a_section_of_its_own() -> None:
    """Its micro-batch was left at 1, and its schedule at 1F1B, with a question for each."""
    start = RECIPE.index("  pipeline:\n")
    lines = RECIPE[start:].splitlines(keepends=True)
    inner = [line for line in lines[1:] if line.startswith("    ")]
    own = (
        "autopipeline:\n  _target_: nemo_automodel.components.distributed.pipelining.AutoPipeline\n"
    )
    moved = own + "".join(line[2:] for line in inner).replace("size: 1", "size: 2")
    text = RECIPE.replace(lines[0] + "".join(inner), "") + moved
    values = settings(read(text))
    assert values["training.micro_batch"] == "2"
    assert values["schedule.kind"] == "one_f_one_b"
    assert not questions(text)
    assert "schedule.chunks" in questions(text.replace("1f1b", "interleaved1f1b"))


def test_keys_of_the_mesh_in_other_sections_are_read() -> None:
    """Releases of 2025 have the class of the mesh, recomputation and DeepEP elsewhere."""
    text = (
        RECIPE.replace("  strategy: fsdp2\n", "")
        .replace("  sequence_parallel: false\n  activation_checkpointing: true\n", "")
        .replace("  torch_dtype", "  is_meta_device: true\n  torch_dtype")
        .replace("  tp_size: 4\n", "  tp_size: 4\n  ep_size: 4\n")
        .replace("  _target_: nemo", "  backend: {enable_deepep: true}\n  _target_: nemo")
    )
    more = """\
distributed_config:
  _target_: nemo_automodel.components.distributed.config.DDPConfig
  sequence_parallel: true
parallelizer:
  _target_: nemo_automodel.components.moe.parallelizer.parallelize_model
  activation_checkpointing: true
"""
    found = read(text + more)
    assert not found.unknown
    assert not found.questions
    assert {
        "layout.zero": "0",
        "layout.sequence_parallel": "on",
        "training.recompute": "full",
        "routing.dispatcher": "deepep",
    }.items() <= settings(found).items()


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("activation_checkpointing_scope: mlp", "distributed.activation_checkpointing_scope"),
        ("moe: {reshard_after_forward: true}", "distributed.moe.reshard_after_forward"),
    ],
)
def test_parts_of_recomputation_and_experts_are_listed(line: str, key: str) -> None:
    found = read(RECIPE.replace("  tp_size: 4\n", f"  tp_size: 4\n  {line}\n"))
    assert [one.name for one in found.missing] == [key]


@try_each(
    "lines, missing",
    [
        ("compile: {mode: reduce-overhead}", ["compile.mode"]),
        ("compile: {mode: default}", []),
        ("compile: {backend: aot_eager}", ["compile.backend"]),
        ("compile: {backend: inductor}", []),
        ("distributed: {use_hf_tp_plan: true}", ["distributed.use_hf_tp_plan"]),
        ("distributed: {disable_bucketing: true}", ["distributed.disable_bucketing"]),
        ("distributed: {keep_fp8_transpose_cache: true}", ["distributed.keep_fp8_transpose_cache"]),
        ("distributed: {fsdp_double_buffer: true}", ["distributed.fsdp_double_buffer"]),
        ("distributed: {moe: {lm_head_precision: float32}}", ["distributed.moe.lm_head_precision"]),
        ("model: {backend: {experts: torch}}", ["model.backend.experts"]),
        ("model: {backend: {experts: gmm, attn: te, rms_norm: te}}", []),
        (
            "model: {backend: {enable_fsdp_optimizations: true}}",
            ["model.backend.enable_fsdp_optimizations"],
        ),
        ("loss_fn: {_target_: nemo_automodel.ChunkedCrossEntropy}", ["loss_fn._target_"]),
    ],
)
def test_keys_that_no_attribute_has_are_listed(lines: str, missing: list[str]) -> None:
    found = read(_join(lines))
    assert not found.questions
    assert not found.unknown
    assert [one.name for one in found.missing] == missing


@try_each(
    "lines, attribute",
    [
        ("model: {text_config: {num_hidden_layers: 4}}", "model"),
        ("model: {text_config: {torch_dtype: bfloat16}}", "precision"),
        ("model: {backend: {te_fp8: {recipe: block}}}", "precision"),
        ("distributed: {moe: {mp_policy: {param_dtype: float32}}}", "precision"),
    ],
)
def test_sizes_and_types_in_other_sections_raise_a_question(lines: str, attribute: str) -> None:
    assert attribute in questions(_join(lines))


def test_the_exchange_of_pytorch_gathers_and_eager_attention_writes_scores() -> None:
    changed = _join("model: {backend: {dispatcher: torch}}")
    changed = changed.replace("model:\n", "model:\n  attn_implementation: eager\n")
    values = settings(read(changed.replace("tp_size: 4", "tp_size: 4\n  ep_size: 8")))
    assert values["routing.dispatcher"] == "allgather"
    assert values["training.flash_attention"] == "off"


def test_automodel_reads_a_newer_attention_kernel() -> None:
    changed = RECIPE.replace("model:\n", "model:\n  attn_implementation: flash_attention_3\n")
    assert settings(read(changed))["kernels.attention"] == "flash_3"


def _join(line: str) -> str:
    """Return the recipe with a line ``section: {keys}`` added to its section."""
    section, _, keys = line.partition(": {")
    head, inner = f"{section}:\n", f"  {keys[:-1]}\n"
    return RECIPE.replace(head, head + inner) if head in RECIPE else f"{RECIPE}{head}{inner}"


def test_ranks_of_slurm_are_the_devices() -> None:
    found = read(f"{RECIPE}slurm: {{job_name: a, nodes: 4, ntasks_per_node: 8}}\n")
    assert settings(found)["cluster.devices"] == "32"
    assert not found.unknown


def test_a_pipeline_of_one_stage_has_no_schedule() -> None:
    text = RECIPE.replace("pp_size: 4", "pp_size: 1").replace("1f1b", "interleaved1f1b")
    found = read(text)
    assert not found.questions
    assert not [key for key in settings(found) if key.startswith("schedule")]


@pytest.mark.parametrize(
    ("more", "is_listed"),
    [("", True), ("  padding: do_not_pad\n", True), ("  padding: max_length\n", False)],
)
def test_sequences_that_are_not_packed_may_be_shorter(more: str, is_listed: bool) -> None:
    packed = "packed_sequence:\n  packed_sequence_size: 4096\n"
    found = read(RECIPE.replace(packed, f"dataset:\n  seq_length: 2048\n{more}"))
    assert settings(found)["training.sequence"] == "2048"
    listed = [one.name for one in found.missing]
    assert ("packed_sequence.packed_sequence_size" in listed) == is_listed
    assert not read(RECIPE).missing


def test_a_benchmark_has_full_sequences_and_asks_for_the_devices_of_a_node() -> None:
    """Its class repeats steps of the training recipe; it was rejected as an unknown recipe."""
    text = RECIPE.replace("TrainFinetuneRecipe", "BenchmarkingRecipe").replace(
        "packed_sequence:\n  packed_sequence_size: 4096\n",
        "dataset:\n  seq_len: 2048\nbenchmark:\n  num_nodes: 4\n  warmup_steps: 5\n",
    )
    found = read(text)
    assert settings(found)["training.sequence"] == "2048"
    assert not any("without packing" in one.reason for one in found.missing)
    (question,) = [one for one in found.questions if one.attribute == "cluster.devices"]
    assert "there are 4 nodes" in question.reason
    assert question.answers == ("--set cluster.devices=32",)
    plain = read(text.replace("BenchmarkingRecipe", "TrainFinetuneRecipe"))
    assert any("without packing" in one.reason for one in plain.missing)


def test_a_gate_of_a_benchmark_routes_evenly() -> None:
    backend = "model:\n  backend: {dispatcher: deepep, fake_balanced_gate: true}\n"
    text = RECIPE.replace("model:\n", backend).replace("pp_size: 4", "ep_size: 4")
    assert settings(read(text))["routing.distribution"] == "uniform"
