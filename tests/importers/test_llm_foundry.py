"""The YAML of LLM Foundry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost_formats.tools.llm_foundry import LlmFoundry

from ..rows import try_each
from .translations import assumptions, problems, settings, uses

Run = Callable[..., Any]

JOB = """\
max_seq_len: 1024
model:
  name: mpt_causal_lm
  d_model: 768
  n_heads: 12
  n_layers: 8
  expansion_ratio: 4
  max_seq_len: ${max_seq_len}
  vocab_size: 50368
  no_bias: true
  attn_config: {attn_impl: flash, attn_type: grouped_query_attention, kv_n_heads: 4}
tokenizer: {name: t, kwargs: {model_max_length: 1024}}
train_loader: {name: text, num_workers: 8}
optimizer: {name: decoupled_adamw, lr: 1.0e-4, betas: [0.9, 0.95]}
global_train_batch_size: 256
device_train_microbatch_size: 8
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
"""


@try_each(
    "lines, stops",
    [
        ("activation_checkpointing: true", "off"),  # Composer's checkpoints enter autograd again
        ("activation_checkpointing: true\n  activation_checkpointing_reentrant: true", "off"),
        ("activation_checkpointing: true\n  activation_checkpointing_reentrant: false", "on"),
        ("activation_checkpointing: false\n  activation_checkpointing_reentrant: true", None),
    ],
)
def test_reentrant_checkpoints_do_not_stop_early(lines: str, stops: str | None) -> None:
    found = LlmFoundry().translate("run.yaml", JOB.replace("activation_checkpointing: true", lines))
    assert settings(found).get("recompute.stops_early") == stops
    assert not found.unknown


def test_the_model_of_early_2023_has_names_of_its_own() -> None:
    """mosaic_gpt has the parts of MPT: an MLP of 3 x 768, ALiBi, and LayerNorm of full precision."""
    early = """\
  name: mosaic_gpt
  tokenizer_name: gpt2
  mlp_ratio: 3
  attn_impl: torch
  alibi: true
  attn_pdrop: 0.0
  low_precision_layernorm: false
"""
    body = JOB.replace("  name: mpt_causal_lm\n", early).replace("  expansion_ratio: 4\n", "")
    start, end = body.index("  attn_config"), body.index("tokenizer: {")
    found = LlmFoundry().translate("run.yaml", body[:start] + body[end:])
    expected = {
        "model.ffn": "2304",
        "model.alibi": "on",
        "model.positions": "0",
        "model.norm": "layer",
        "model.tied": "on",
        "training.flash_attention": "off",
    }
    got = settings(found)
    assert {name: got.get(name) for name in expected} == expected
    assert not found.unknown
    assert not found.questions
    assert not found.problems


def test_a_model_of_mpt_under_fsdp_is_read() -> None:
    found = LlmFoundry().translate("run.yaml", JOB)
    expected = {
        "model.hidden": "768",
        "model.kv_heads": "4",
        "model.ffn": "3072",
        "model.biases": "off",
        "model.norm_weights": "1",
        "model.positions": "1024",
        "training.sequence": "1024",
        "training.global_batch": "256 sequences",
        "training.micro_batch": "8",
        "training.recompute": "full",
        "training.flash_attention": "on",
        "layout.zero": "3",
        "precision.reduction": "2 B",
    }
    assert expected.items() <= settings(found).items()
    assert uses(found) == ["frameworks.fsdp_composer", "precisions.bf16_fsdp"]
    assert assumptions(found)["model.tied"] == "LLM Foundry 0.22: tie_word_embeddings is true"
    assert not found.questions


@try_each(
    "old, new, path, value",
    [
        ("SHARD\n", "SHARD\n", "layout.zero", "3"),
        ("FULL_SHARD", "SHARD_GRAD_OP", "sharding.reshard", "off"),
        ("PURE", "DEFAULT", "precision.reduction", "4 B"),
        ("PURE", "FULL", "precision.gather", "4 B"),
        ("amp_bf16", "amp_fp16", "precision.compute", "fp16"),
        ("attn_impl: flash", "attn_impl: torch", "training.flash_attention", "off"),
        ("no_bias: true", "no_bias: false", "model.biases", "on"),
        ("no_bias: true", "ffn_config: {ffn_type: mptglu}", "model.gated", "on"),
        ("attn_impl: flash", "rope: true", "model.positions", "0"),
        ("  activation_checkpointing: true\n", "", "training.recompute", "none"),
    ],
)
def test_keys_set_attributes(old: str, new: str, path: str, value: str) -> None:
    assert old in JOB
    assert settings(LlmFoundry().translate("run.yaml", JOB.replace(old, new)))[path] == value


MOE = """  ffn_config:
    ffn_type: mb_dmoe
    mlp_type: glu
    moe_num_experts: 16
    moe_top_k: 4
    moe_world_size: 8
    ffn_hidden_size: 1024
    moe_loss_weight: 0.05
"""


@pytest.mark.slow
def test_the_kernel_of_triton_is_one_of_an_early_release() -> None:
    found = LlmFoundry().translate("run.yaml", JOB.replace("attn_impl: flash", "attn_impl: triton"))
    assert "frameworks.fsdp_composer_2023" in uses(found)
    assert settings(found)["training.flash_attention"] == "on"


def test_experts_of_megablocks_are_read(run_command: Run) -> None:
    """Attention of 2 x 768^2 + 2 x 768 x 256, and 16 experts of 3 x 768 x 1024 with a router and
    two norms, 8 times; the table of 50,368 rows and of 1024 positions, and the last norm.
    """
    text = JOB.replace("  expansion_ratio: 4\n", MOE)
    found = LlmFoundry().translate("run.yaml", text)
    expected = {"model.experts": "16", "model.top_k": "4", "model.gated": "on", "layout.ep": "8"}
    assert expected.items() <= settings(found).items()
    assert "routing.capacity_factor" not in settings(found)
    assert not found.unknown
    layer = 2 * 768**2 + 2 * 768 * 256 + 16 * 3 * 768 * 1024 + 16 * 768 + 2 * 768
    whole = 8 * layer + 768 * (50_368 + 1024 + 1)
    machine = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
    options = (*machine, "--set", "cluster.devices=16")
    done = run_command("figures", "run.yaml", "parameters", *options, files={"run.yaml": text})
    assert f"{whole:,}" in done.out
    dropping = LlmFoundry().translate("run.yaml", text.replace("mb_dmoe", "mb_moe"))
    assert settings(dropping)["routing.capacity_factor"] == "1"


def test_a_model_of_the_hub_is_an_entry_of_the_catalogue() -> None:
    model = "  name: hf_causal_lm\n  pretrained_model_name_or_path: meta-llama/Meta-Llama-3-8B\n"
    start, end = JOB.index("  name: mpt"), JOB.index("tokenizer:")
    found = LlmFoundry().translate("run.yaml", JOB[:start] + model + JOB[end:])
    assert "models.llama3_8b" in uses(found)
    assert settings(found)["training.model"] == "llama3_8b"


@try_each(
    "old, new, attribute",
    [
        ("microbatch_size: 8", "microbatch_size: auto", "training.micro_batch"),
        ("amp_bf16", "amp_fp8", "precision"),
        ("decoupled_adamw", "no_op", "precision"),
        ("precision: amp_bf16\n", "", "precision"),
        ("FULL_SHARD", "HYBRID_SHARD", "sharding.shard"),
    ],
)
def test_what_a_file_leaves_open_raises_a_question(old: str, new: str, attribute: str) -> None:
    found = LlmFoundry().translate("run.yaml", JOB.replace(old, new))
    assert [one.attribute for one in found.questions] == [attribute]


def test_keys_of_transformer_engine_raise_no_question() -> None:
    wrapped = "  te_checkpoint_wrapper: true\n  te_shard_fp8_weight: true\n"
    found = LlmFoundry().translate("run.yaml", JOB + wrapped)
    assert not found.questions
    assert "fsdp_config.te_shard_fp8_weight" in {one.name for one in found.missing}


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("name: fm_model", "`fm_model` is not supported"),
        (
            "name: mpt_causal_lm\n  peft_config: {r: 16}",
            "adapters of `mpt_causal_lm` are not supported",
        ),
    ],
)
def test_what_the_language_lacks_is_an_error(new: str, message: str) -> None:
    text = JOB.replace("name: mpt_causal_lm", new)
    assert any(message in found for found, _ in problems(LlmFoundry(), text, "run.yaml"))


def test_lion_has_one_moment_of_fp32() -> None:
    """Weights of 4 B in shards: reads gradient, weight and moment, writes weight and moment."""
    found = LlmFoundry().translate("run.yaml", JOB.replace("decoupled_adamw", "decoupled_lionw"))
    assert not found.questions
    assert settings(found)["precision.optimizer"] == "4 B"
    assert settings(found)["precision.update_traffic"] == "20 B"


CHECKPOINT = """\
max_seq_len: 2048
model:
  name: hf_causal_lm
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
  pretrained: false
  config_overrides: {overrides}
tokenizer: {{name: t, kwargs: {{model_max_length: 2048}}}}
train_loader: {{name: text, num_workers: 8}}
optimizer: {{name: decoupled_adamw, lr: 1.0e-4}}
global_train_batch_size: 8
device_train_microbatch_size: 1
precision: amp_bf16
fsdp_config: {{sharding_strategy: FULL_SHARD, mixed_precision: PURE}}
"""


@pytest.mark.parametrize(
    ("overrides", "attribute", "answer"),
    [
        ("{torch_dtype: bfloat16}", "precision", "--use catalog.precisions.bf16_pure"),
        ("{num_hidden_layers: 2}", "model", "--use config.json"),
        ("{rope_scaling: {factor: 8.0}, use_cache: false, torch_dtype: float32}", "", ""),
    ],
)
def test_changes_of_a_checkpoint_that_decide_raise_a_question(
    overrides: str, attribute: str, answer: str
) -> None:
    found = LlmFoundry().translate("run.yaml", CHECKPOINT.format(overrides=overrides))
    assert [(one.attribute, one.answers[0]) for one in found.questions] == (
        [(attribute, answer)] if attribute else []
    )


@pytest.mark.slow
def test_a_configuration_replaces_a_checkpoint_that_is_changed(run_command: Run) -> None:
    """Two layers of 4 x 64^2 + 3 x 64 x 128 + 2 x 64, two embeddings of 100 x 64, and a norm."""
    sizes = (
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, '
        '"num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}'
    )
    text = CHECKPOINT.format(overrides="{num_hidden_layers: 2}")
    files = {"run.yaml": text, "config.json": sizes}
    machine = ("--use", "catalog.systems.dgx_h100", "--set", "dgx_h100.devices=8")
    words = ("figures", "run.yaml", "parameters", *machine, "--use", "config.json")
    assert "95,040" in run_command(*words, files=files).out


def test_a_type_of_attention_that_is_not_known_is_an_error() -> None:
    text = JOB.replace("grouped_query_attention", "native_sparse_attention")
    ((message, _),) = problems(LlmFoundry(), text, "run.yaml")
    assert "`native_sparse_attention` is not known" in message


def test_algorithms_that_may_change_batches_are_listed() -> None:
    text = f"{JOB}algorithms:\n  gradient_clipping: {{clipping_threshold: 1.0}}\n"
    assert not LlmFoundry().translate("run.yaml", text).missing
    found = LlmFoundry().translate("run.yaml", f"{text}  seq_length_warmup: {{duration: 0.3}}\n")
    assert [one.name for one in found.missing] == ["algorithms.seq_length_warmup.duration"]


@try_each(
    "old, new, missing",
    [
        ("", "algorithms: {low_precision_layernorm: {}, label_smoothing: {smoothing: 0.1}}\n", []),
        ("", "algorithms: {swa: {swa_start: 0.7dur}}\n", ["algorithms.swa.swa_start"]),
        (
            "",
            "callbacks: {layer_freezing: {layer_names: [a]}}\n",
            ["callbacks.layer_freezing.layer_names"],
        ),
        (
            "",
            "callbacks: {curriculum_learning: {schedule: [a]}}\n",
            ["callbacks.curriculum_learning.schedule"],
        ),
        ("fsdp_config:\n", "fsdp_config:\n  limit_all_gathers: true\n", []),
        (
            "fsdp_config:\n",
            "fsdp_config:\n  limit_all_gathers: false\n",
            ["fsdp_config.limit_all_gathers"],
        ),
        (
            "  no_bias",
            "  ffn_config: {ffn_type: mb_dmoe, quantize_inputs_num_bits: 8}\n  no_bias",
            ["model.ffn_config.quantize_inputs_num_bits"],
        ),
        (
            "  no_bias",
            "  ffn_config: {ffn_type: mb_dmoe, memory_optimized_mlp: true}\n  no_bias",
            ["model.ffn_config.memory_optimized_mlp"],
        ),
    ],
)
def test_keys_that_no_attribute_has_are_listed(old: str, new: str, missing: list[str]) -> None:
    text = JOB.replace(old, new, 1) if old else JOB + new
    found = LlmFoundry().translate("run.yaml", text)
    assert [one.name for one in found.missing] == missing


@pytest.mark.parametrize("line", ["compute: {gpus: 64, cluster: a}", "gpu_num: 64"])
def test_devices_of_a_run_file_are_read(line: str) -> None:
    found = LlmFoundry().translate("run.yaml", f"{JOB}{line}\n")
    assert settings(found)["cluster.devices"] == "64"
    assert not found.unknown


@pytest.mark.parametrize(
    ("kind", "kept"), [("fused_crossentropy", "logits"), ("torch_crossentropy", "eager")]
)
def test_the_loss_of_a_model_is_read(kind: str, kept: str) -> None:
    text = JOB.replace("  no_bias", f"  loss_fn: {kind}\n  no_bias")
    assert settings(LlmFoundry().translate("run.yaml", text))["training.loss"] == kept


@try_each("said, metrics", [("false", "0"), ("true", None)])
def test_metrics_of_training_can_be_turned_off(said: str, metrics: str | None) -> None:
    text = JOB.replace("  no_bias", f"  use_train_metrics: {said}\n  no_bias")
    found = LlmFoundry().translate("run.yaml", text)
    assert settings(found).get("framework.loss_metrics") == metrics
    assert not found.unknown


@try_each(
    "device, micro, read, near",
    [
        (24, 20, None, ("12", "24")),  # a last one of 4
        (24, 8, "8", ()),
        (24, 36, "24", ()),  # LLM Foundry reduces it to the batch of the device
        (7, 3, None, ("1", "7")),
    ],
)
def test_a_smaller_last_micro_batch_raises_a_question(
    device: int, micro: int, read: str | None, near: tuple[str, ...]
) -> None:
    text = JOB.replace("microbatch_size: 8", f"microbatch_size: {micro}")
    whole = text.replace("batch_size: 256", f"batch_size: {64 * device}\ncompute: {{gpus: 64}}", 1)
    alone = text.replace("global_train_batch_size: 256", f"device_train_batch_size: {device}")
    for one in (whole, alone):
        found = LlmFoundry().translate("run.yaml", one)
        asked = [way for question in found.questions for way in question.answers]
        assert asked == [f"--set training.micro_batch={n}" for n in near]
        assert read is None or settings(found)["training.micro_batch"] == read


@pytest.mark.slow
def test_the_rule_of_a_batch_says_what_composer_does(run_command: Run) -> None:
    """256 sequences on 8 devices are 32 each: micro-batches of 24, and a last one of 8."""
    text = JOB.replace("microbatch_size: 8", "microbatch_size: 24")
    system = ("--use", "catalog.systems.dgx_h100", "--set", "cluster.devices=8")
    done = run_command("eval", "run.yaml", *system, files={"run.yaml": text})
    assert "smaller last micro-batch" in done.err
    assert "micro_batch = 16 or 32" in done.err


def test_adapters_of_peft_beside_a_checkpoint_in_float32(run_command: Run) -> None:
    """Rank 8 on q, k, v and o of 32 layers, 4096 wide with 1024 of k and v: 6,815,744."""
    peft = "peft_config: {r: 8, peft_type: LORA, lora_dropout: 0.05, target_modules: "
    text = CHECKPOINT.format(overrides="{}").replace(
        "pretrained: false", peft + "[q_proj, k_proj, v_proj, o_proj]}\n  pretrained: true"
    )
    found = LlmFoundry().translate("run.yaml", text)
    expected = {"adapters.rank": "8", "adapters.value": "on", "adapters.gate": "off"}
    assert expected.items() <= settings(found).items()
    assert assumptions(found)["adapters.weights"].endswith("a checkpoint is loaded in float32")
    assert not found.questions
    assert not found.unknown
    machine = ("--use", "catalog.systems.dgx_h100", "--set", "dgx_h100.devices=8")
    done = run_command("eval", "run.yaml", *machine, files={"run.yaml": text})
    assert "6,815,744  adapters" in done.out
