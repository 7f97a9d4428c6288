"""Configurations of MaxText: meshes, batches, models by hand, and what is rejected."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.maxtext import MaxText

from ..rows import try_each
from .translations import problems, settings, uses

Run = Callable[..., Any]

IMPORTER = MaxText()
RUN = """\
base_config: "base.yml"
run_name: "test"
hardware: "gpu"
model_name: "llama3.1-70b"
per_device_batch_size: 2
max_target_length: 8192
remat_policy: "save_qkv_proj"
ici_fsdp_parallelism: 8
ici_tensor_parallelism: 4
dcn_data_parallelism: 4
"""
#: The sizes of Llama 3 8B.
MODEL = """\
decoder_block: "llama2"
base_emb_dim: 4096
base_num_query_heads: 32
base_num_kv_heads: 8
base_mlp_dim: 14336
base_num_decoder_layers: 32
head_dim: 128
vocab_size: 128256
mlp_activations: ["silu","linear"]
logits_via_embedding: false
"""
MACHINE = "use catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n"


def read(text: str, **neighbors: str) -> Translation:
    def neighbor(name: str) -> str | None:
        return neighbors.get(name.replace("/", "_").replace(".", "_").replace("-", "_"))

    return IMPORTER.read(ImportFile("run.yml", text, ImportOptions(), neighbor))


def questions(found: Translation) -> dict[str, str]:
    return {one.attribute: one.reason for one in found.questions}


def test_a_mesh_is_a_layout() -> None:
    """32 devices of a slice, 4 slices; 2 x 4 sequences of a replica, 2 x 128 of a step."""
    found = read(RUN)
    assert IMPORTER.recognizes("run.yml", RUN)
    assert not found.questions
    assert not found.unknown
    assert uses(found) == ["frameworks.maxtext", "models.llama31_70b", "precisions.bf16_fsdp"]
    assert {
        "cluster.devices": "128",
        "layout.tp": "4",
        "layout.pp": "1",
        "layout.zero": "3",
        "sharding.shard": "8",
        "layout.sequence_parallel": "on",
        "training.micro_batch": "8",
        "training.global_batch": "(2 * 1 * cluster.devices) sequences",
        "training.sequence": "8192",
        "training.recompute": "full",
        "recompute.keep_qkv": "on",
    }.items() <= settings(found).items()


def test_a_study_has_the_batch_and_the_parameters(tmp_path: Path) -> None:
    (tmp_path / "run.yml").write_text(RUN)
    (study,) = parcost.load_text(f'use "run.yml"\n{MACHINE}', str(tmp_path / "job.par"))
    result = study.evaluate().result
    assert result.figure("parameters") == 70_553_706_496
    tokens = result.figure("tokens_per_second") * result.figure("step_time")
    assert tokens == pytest.approx(256 * 8192)


def test_what_a_file_leaves_out_is_that_of_base_yml() -> None:
    found = read("model_name: gemma-7b\nrun_name: x\n")
    values = settings(found)
    assert values["training.sequence"] == "2048"
    assert values["training.global_batch"] == "(12 * 1 * cluster.devices) sequences"
    assert values["training.recompute"] == "full"
    assert "cluster.devices" not in values
    (zero,) = [one for b in found.blocks for one in b.settings if one.name == "zero"]
    assert zero.assumption == "MaxText e591f30: ici_fsdp_parallelism is -1"


def test_sizes_of_a_model_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.yml").write_text(MODEL)
    job = f'use "m.yml" as model\n{MACHINE}use catalog.precisions.bf16\n'
    job += "cluster { devices = 8 }\ntraining { sequence = 4096, global_batch = 8 sequences }\n"
    (study,) = parcost.load_text(job, str(tmp_path / "job.par"))
    assert study.evaluate().result.figure("parameters") == 8_030_261_248
    assert {block.kind for block in read(MODEL).blocks} == {"model"}


def test_windows_of_a_decoder_that_alternates_are_read() -> None:
    """Three of four layers of OLMo 3 have a window; its norms span all heads."""
    text = """\
decoder_block: "olmo3"
base_emb_dim: 512
base_num_query_heads: 8
base_num_kv_heads: 8
base_mlp_dim: 1024
base_num_decoder_layers: 8
head_dim: 64
sliding_window_size: 256
use_qk_norm: true
vocab_size: 1000
"""
    values = settings(MaxText().translate("a.yml", text))
    assert {
        "model.window": "256",
        "model.full_every": "4",
        "model.qk_norm": "on",
        "model.qk_norm_whole": "on",
    }.items() <= values.items()
    plain = settings(MaxText().translate("a.yml", text.replace("olmo3", "hy3")))
    assert "model.window" not in plain
    assert plain["model.qk_norm"] == "on"


def test_a_scale_multiplies_the_sizes_of_base_yml() -> None:
    """64 = 2^6: two thirds of the power for each size, 64 layers of 8192 with 64 heads."""
    values = settings(read("run_name: x\nglobal_parameter_scale: 64\nper_device_batch_size: 4\n"))
    assert values["model.layers"] == "64"
    assert values["model.hidden"] == "8192"
    assert values["model.heads"] == values["model.kv_heads"] == "64"
    assert values["model.ffn"] == "28_672"
    assert values["model.vocabulary"] == "32_000"


def test_the_file_of_a_model_beside_the_run_is_read() -> None:
    text = RUN.replace("llama3.1-70b", "my-own")
    assert "`my-own` is not in parcost's table" in questions(read(text))["model"]
    values = settings(read(text, models_my_own_yml=MODEL))
    assert values["model.layers"] == "32"
    assert values["model.ffn"] == "14_336"


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [True, False])
def test_sizes_beside_the_name_of_a_model_are_those_of_the_job(
    run_command: Run, overrides: bool
) -> None:
    """Llama 3.1 405B of 4 layers; without override_model_config both answers can be pasted.

    A layer has 2 x (16384^2 + 16384 x 1024) weights in attention, 3 x 16384 x 53248, and two norms.
    """
    h = 16_384
    each = 2 * (h * h + h * 1024) + 3 * h * 53_248 + 2 * h
    totals = [layers * each + 2 * 128_256 * h + h for layers in (4, 126)]
    text = RUN.replace("llama3.1-70b", "llama3.1-405b") + "base_num_decoder_layers: 4\n"
    files = {"run.yml": f"{text}override_model_config: {overrides}\n"}
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    answers: list[list[str]] = [[]]
    if not overrides:
        asked = run_command("eval", "run.yml", *machine, files=files).err
        (help,) = re.findall("choose one: (.*)", asked)
        answers = [one.split() for one in help.split(" | ")]
    for answer, total in zip(answers, totals, strict=False):
        done = run_command("figures", "run.yml", "parameters", *machine, *answer, files=files)
        assert f"{total:,}" in done.out


def test_experts_and_latent_attention_are_read() -> None:
    text = MODEL.replace('"llama2"', '"deepseek"') + (
        "attention_type: mla\nq_lora_rank: 1536\nkv_lora_rank: 512\nnum_experts: 256\n"
        "num_experts_per_tok: 8\nbase_moe_mlp_dim: 2048\nshared_experts: 1\n"
        "first_num_dense_layers: 3\nrouted_bias: true\n"
    )
    values = settings(read(text))
    assert {
        "model.q_lora": "1536",
        "model.kv_lora": "512",
        "model.nope_dim": "128",
        "model.experts": "256",
        "model.top_k": "8",
        "model.expert_ffn": "2048",
        "model.dense_first": "3",
        "model.router_bias": "on",
    }.items() <= values.items()
    assert "model.kv_heads" not in values


def test_a_pipeline_is_circular() -> None:
    """32 layers on 4 stages, one layer of a stage: 8 repeats; 16 sequences in 4 micro-batches."""
    text = MODEL + "run_name: x\nper_device_batch_size: 4\nici_pipeline_parallelism: 4\n"
    values = settings(read(text))
    assert values["layout.pp"] == "4"
    assert values["schedule.kind"] == "breadth_first"
    assert values["schedule.chunks"] == "8"
    assert values["training.micro_batch"] == "4"


@try_each(
    "lines, attribute, reason",
    [
        ("quantization: fp8\n", "precision", "there is no precision recipe for `fp8`"),
        ("opt_type: muon\n", "precision", "the optimizer is muon"),
        ("remat_policy: minimal_offloaded\n", "training.recompute", "in host memory"),
        ("remat_policy: strange\n", "training.recompute", "`strange` is unknown"),
        ("ici_tensor_parallelism: -1\n", "layout.tp", "the rest of the devices"),
        ("base_num_decoder_layers: 4\n", "model", "is set beside `model_name`"),
        (
            "ici_context_parallelism: 2\ncontext_parallel_strategy: usp\n",
            "context.algorithm",
            "`usp` is not modeled",
        ),
    ],
)
def test_a_setting_of_the_cost_raises_a_question(lines: str, attribute: str, reason: str) -> None:
    keys = {line.partition(":")[0] for line in lines.splitlines()}
    text = "".join(
        line for line in RUN.splitlines(keepends=True) if line.partition(":")[0] not in keys
    )
    assert reason in questions(read(text + lines))[attribute]


@try_each(
    "lines, message",
    [
        ("use_dpo: true\n", "preference optimisation (DPO) is not modeled"),
        ("use_multimodal: true\n", "vision towers are not modeled"),
        ("use_indexer: true\n", "sparse attention with an indexer"),
        ("lora_input_adapters_path: gs://x\n", "adapters of this tool are not supported yet"),
        ("trainable_parameters_mask: ['.*x.*']\n", "frozen parameters"),
        ("training_objective: block_diffusion\n", "the objective of this training"),
        ("distill_alpha: 0.9\n", "distillation from a teacher model"),
        ("teacher_overrides: llama3.1-70b\n", "distillation from a teacher model"),
        ("moe_expert_input_dim: 512\n", "another input size"),
    ],
)
def test_what_the_language_lacks_is_refused_by_name(lines: str, message: str) -> None:
    (found,) = problems(IMPORTER, RUN + lines, "run.yml")
    assert message in found[0]
    assert found[1] == lines.strip()


HARMLESS = """\
training_objective: causal_lm
distill_alpha: 0.5
distill_temperature: 1.0
distill_layer_indices: None
weight_sparsity_n: null
weight_sparsity_update_step: 10
cast_logits_to_fp32: true
float32_logits: true
ragged_buffer_factor: -1.0
set_remat_policy_on_pipeline_iterations: true
context_sharding: "context"
context_parallel_load_balance: true
custom_mesh: ""
sparse_matmul: true
compile_xla_flags: ""
"""


@try_each(
    "line",
    [
        "weight_sparsity_n: 2",
        "use_iota_embed: true",
        "activations_in_float32: true",
        "logits_dot_in_fp32: true",
        "cast_logits_to_fp32: false",
        "mla_qk_head_chunk_size: 16",
        "experimental_sa_quant_q_fp8: true",
        "ragged_buffer_factor: 1.5",
        "num_moe_emb_chunks: 4",
        "moe_dispatch_no_expert_sharding: true",
        "dense_fsdp_use_two_stage_all_gather: true",
        "use_2d_fsdp_sharding: true",
        "pipeline_fsdp_ag_once: true",
        "set_remat_policy_on_pipeline_iterations: false",
        "set_remat_policy_on_layers_per_stage: true",
        "context_sharding: expert",
        "custom_mesh: hybrid_ring_64x4",
        "custom_mesh_and_rule: ep-as-cp",
        "override_logical_axis_rules: true",
        "dcn_bandwidth_limit: 10gbit",
        "compile_xla_flags: --xla_tpu_scoped_vmem_limit_kib=65536",
        "max_checkify: true",
    ],
)
def test_a_key_of_the_cost_that_no_attribute_has_is_listed(line: str) -> None:
    plain = {one.name for one in read(RUN + HARMLESS).missing}
    key = line.partition(":")[0]
    text = "".join(one for one in HARMLESS.splitlines(keepends=True) if not one.startswith(key))
    assert {one.name for one in read(f"{RUN}{text}{line}\n").missing} == {*plain, key}
    assert key not in plain


def test_scores_of_fp32_and_shares_without_balance_are_read() -> None:
    text = f"{RUN}attention: dot_product\nfloat32_logits: true\n"
    assert "float32_logits" in {one.name for one in read(text).missing}
    text = f"{RUN}ici_context_parallelism: 2\ncontext_parallel_load_balance: false\n"
    assert settings(read(text))["context.balance"] == "contiguous"


@try_each(
    "old, new, message",
    [
        ("llama3.1-70b", "qwen3-next-80b-a3b", "a spec cannot describe layers of Gated DeltaNet"),
        ("per_device_batch_size: 2", "per_device_batch_size: 0.3", "not whole sequences"),
        ("per_device_batch_size: 2", "per_device_batch_size: x", "a number is expected"),
        ("ici_tensor_parallelism: 4", "ici_tensor_parallelism: 0", "at least 1, or -1"),
    ],
)
def test_an_error_stands_at_its_value(old: str, new: str, message: str) -> None:
    assert old in RUN
    (found,) = problems(IMPORTER, RUN.replace(old, new), "run.yml")
    assert message in found[0]


def test_types_of_weights_change_the_recipe() -> None:
    values = settings(read(RUN + "weight_dtype: bfloat16\n"))
    assert values["precision.gradients"] == "4 B"
    assert values["training.precision"] == "maxtext"


@pytest.mark.slow
def test_a_key_that_is_renamed_raises_a_question(run_command: Callable[..., Any]) -> None:
    text = RUN.replace("ici_tensor_parallelism", "ici_tensor_parallel_size")
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    done = run_command("eval", *machine, "run.yml", files={"run.yml": text})
    assert done.code == 2
    assert "error[import-question]: not known: `layout.tp`, `training.micro_batch`" in done.err
    assert "--set layout.tp=4 --set training.micro_batch=8" in done.err
    done = run_command("eval", *machine, "run.yml", files={"run.yml": RUN})
    assert "import-question" not in done.err + done.out


SCRIPT = """\
export OUT=gs://bucket
STEP_BATCH=4
python3 -m maxtext.trainers.pre_train.train "${CONFIGS:-$PWD/configs}"/base.yml run_name=$RUN \\
  per_device_batch_size=$STEP_BATCH remat_policy=minimal global_parameter_scale=64 \\
  ici_fsdp_parallelism=-1 ici_tensor_parallelism=4 max_target_length=2048 \\
  base_output_directory=$OUT attention='flash' quantization=""
"""


def script(text: str, name: str = "", other: str = "", **environment: str) -> Translation:
    options = ImportOptions(environment=tuple(environment.items()))
    file = ImportFile("run.sh", text, options, lambda path: other if path == name else None)
    return IMPORTER.read(file)


def test_the_command_of_a_script_is_read(tmp_path: Path) -> None:
    """64 layers of 8192: attention 4 h^2, feed-forward 3 h x 28672, two norms; two embeddings."""
    found = script(SCRIPT)
    assert IMPORTER.recognizes("run.sh", SCRIPT)
    assert IMPORTER.recognizes(
        "run.sh", 'EXECUTABLE="train.py"\npython MaxText/$EXECUTABLE a.yml\n'
    )
    values = settings(found)
    assert {
        "model.layers": "64",
        "layout.tp": "4",
        "layout.zero": "3",
        "training.micro_batch": "16",
        "training.sequence": "2048",
        "recompute.keep_qkv": "on",
        "recompute.keep_up": "on",
    }.items() <= values.items()
    assert "recompute.keep_core" not in values
    (tmp_path / "run.sh").write_text(SCRIPT)
    machine = "use catalog.devices.tpu_v5p\nuse catalog.fabrics.tpu_v5p_pod\n"
    job = f'use "run.sh"\n{machine}cluster {{ devices = 256 }}\n'
    (study,) = parcost.load_text(job, str(tmp_path / "job.par"))
    layer = 4 * 8192**2 + 3 * 8192 * 28_672 + 2 * 8192
    total = 64 * layer + 2 * 32_000 * 8192 + 8192
    assert total == 62_802_370_560
    assert study.evaluate().result.figure("parameters") == total


@pytest.mark.parametrize(
    "submits",
    [
        'xpk workload create --num-slices=1 --command "{}"',
        "gcloud compute tpus tpu-vm ssh one --worker=all --command='{}'",
        '"${{GCLUSTER:-gcluster}}" job submit --command="set +e; export A=\'x\' && {} | tee a.log"',
    ],
)
def test_a_command_that_is_submitted_in_one_word_is_read(submits: str) -> None:
    command = "cd maxtext && python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3-8b"
    found = script(submits.format(f"{command} per_device_batch_size=4 max_target_length=8192"))
    assert settings(found)["training.micro_batch"] == "4"
    assert "models.llama3_8b" in uses(found)


def test_two_commands_are_an_error_at_the_second() -> None:
    text = SCRIPT + "python -m MaxText.train MaxText/configs/base.yml\n"
    (problem,) = script(text).problems
    assert text[problem.start :].startswith("python -m MaxText.train")


def test_what_a_script_does_not_set_is_an_error_at_its_word() -> None:
    text = SCRIPT.replace("STEP_BATCH=4\n", "")
    (problem,) = script(text).problems
    assert "per_device_batch_size" in problem.message
    assert "--set-env" in problem.help
    assert settings(script(text, STEP_BATCH="2"))["training.micro_batch"] == "8"


def test_heads_of_an_early_release_have_keys_and_values_each() -> None:
    """Of 2023: other defaults of base.yml are asked for."""
    text = "base_emb_dim: 512\nbase_num_heads: 6\nper_device_batch_size: 1\n"
    found = IMPORTER.translate("run.yml", text)
    assert settings(found)["model.heads"] == settings(found)["model.kv_heads"] == "6"
    asked = [one.attribute for one in found.questions]
    assert asked == ["model.gated", "model.tied", "model.vocabulary", "training.sequence"]
    stated = (
        "mlp_activations: ['silu', 'linear']\nlogits_via_embedding: false\nvocab_size: 32768\n"
        "max_target_length: 512\n"
    )
    assert not IMPORTER.translate("run.yml", text + stated).questions


def test_integers_of_an_early_release_raise_a_question(run_command: Callable[..., Any]) -> None:
    text = RUN + "int8_training: true\n"
    done = run_command(
        "eval", "--use", "catalog.devices.h100_sxm", "run.yml", files={"run.yml": text}
    )
    assert done.code == 2
    assert "int8_training" in done.err
    assert "catalog.precisions" in done.err


def test_the_file_that_a_command_names_is_read() -> None:
    text = SCRIPT.replace("base.yml", "mine.yml").replace("remat_policy=minimal ", "")
    (problem,) = script(text).problems
    assert "/mine.yml` has the other keys" in problem.message
    values = settings(script(text, "mine.yml", "remat_policy: save_out_proj\nsteps: 3\n"))
    assert values["recompute.keep_output"] == "on"
    assert values["layout.tp"] == "4"


def test_experts_that_compute_every_token_are_rejected() -> None:
    dense = f"{RUN}sparse_matmul: false\n"
    (problem,) = read(dense).problems
    assert "every expert computes all tokens" in problem.message
    found = read(f"{dense}capacity_factor: 1.25\n")
    assert settings(found)["routing.capacity_factor"] == "1.25"
    assert not [one for one in found.unknown if one.name == "sparse_matmul"]


def test_a_command_in_a_string_is_read() -> None:
    """Another script starts it. A fork has a schedule of its own, which no default decides."""
    words = "model_name=llama2-7b per_device_batch_size=2 max_target_length=2048"
    text = f'command="python MaxText/train.py base.yml {words}"\nsbatch -N 2 ray.sh "$command"\n'
    found = MaxText().read(ImportFile("run.sh", text))
    assert settings(found)["training.sequence"] == "2048"
    forked = MaxText().read(ImportFile("run.sh", text.replace("max_t", "schedule=gpipe max_t")))
    assert "schedule.kind" in [one.attribute for one in forked.questions]
