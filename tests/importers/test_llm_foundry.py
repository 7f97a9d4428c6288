"""The YAML of LLM Foundry."""

from __future__ import annotations

import pytest

from parcost_formats.tools.llm_foundry import LlmFoundry

from .translations import assumptions, problems, settings, uses

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


@pytest.mark.parametrize(
    ("old", "new", "path", "value"),
    [
        ("SHARD\n", "SHARD\n", "layout.zero", "3"),
        ("FULL_SHARD", "SHARD_GRAD_OP", "layout.zero", "2"),
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


def test_a_model_of_the_hub_is_an_entry_of_the_catalogue() -> None:
    model = "  name: hf_causal_lm\n  pretrained_model_name_or_path: meta-llama/Meta-Llama-3-8B\n"
    start, end = JOB.index("  name: mpt"), JOB.index("tokenizer:")
    found = LlmFoundry().translate("run.yaml", JOB[:start] + model + JOB[end:])
    assert "models.llama3_8b" in uses(found)
    assert settings(found)["training.model"] == "llama3_8b"


@pytest.mark.parametrize(
    ("old", "new", "attribute"),
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
        ("name: hf_causal_lm\n  peft_config: {r: 16}", "adapters are not in the language yet"),
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
