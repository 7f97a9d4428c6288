"""The YAML of OLMo."""

from __future__ import annotations

import pytest

from parcost_formats.tools.olmo import Olmo
from parcost_formats.tools.unread_tools import UnreadTools

from ..rows import try_each
from .translations import assumptions, settings, uses

JOB = """\
run_name: mine
model:
  d_model: 1024
  n_heads: 16
  n_kv_heads: 4
  n_layers: 8
  mlp_hidden_size: 8192
  weight_tying: false
  rope: true
  flash_attention: true
  attention_dropout: 0.0
  include_bias: false
  bias_for_layer_norm: false
  layer_norm_type: rms
  residual_dropout: 0.0
  embedding_dropout: 0.0
  max_sequence_length: 2048
  vocab_size: 50280
  embedding_size: 50304
compile: null
optimizer: {name: adamw, learning_rate: 3.0e-4}
sharded_checkpointer: olmo_core
global_train_batch_size: 512
device_train_microbatch_size: 2
precision: amp_bf16
fsdp: {wrapping_strategy: by_block, precision: mixed}
activation_checkpointing: whole_layer
device_eval_batch_size: ${device_train_microbatch_size}
evaluators:
  - {label: piqa, type: downstream}
"""


def test_a_model_of_olmo_under_fsdp_is_read() -> None:
    """The 8,192 outputs of the first product are gate and value of an MLP of 4,096."""
    found = Olmo().translate("run.yaml", JOB)
    expected = {
        "model.hidden": "1024",
        "model.kv_heads": "4",
        "model.ffn": "4096",
        "model.gated": "on",
        "model.biases": "off",
        "model.norm": "rms",
        "model.vocabulary": "50_304",
        "training.sequence": "2048",
        "training.global_batch": "512 sequences",
        "training.micro_batch": "2",
        "training.recompute": "full",
        "training.dropout": "off",
        "layout.zero": "3",
        "precision.reduction": "4 B",
    }
    assert Olmo().recognizes("run.yaml", JOB)
    assert not UnreadTools().recognizes("run.yaml", JOB)
    assert expected.items() <= settings(found).items()
    assert "model.positions" not in settings(found)
    assert uses(found) == ["frameworks.pytorch_fsdp_flash", "precisions.bf16_fsdp"]
    assert "model.gated" in assumptions(found)
    assert not found.questions
    assert not found.unknown


def test_attention_of_pytorch_copies_keys_and_values() -> None:
    found = Olmo().translate(
        "run.yaml", JOB.replace("flash_attention: true", "flash_attention: false")
    )
    assert "frameworks.pytorch_fsdp" in uses(found)


@try_each(
    "old, new, path, value",
    [
        ("  rope: true\n", "", "model.positions", "2048"),
        ("rope: true", "alibi: true", "model.alibi", "on"),
        ("mlp_hidden_size: 8192", "mlp_ratio: 8", "model.ffn", "4096"),
        ("mlp_hidden_size: 8192", "activation_type: gelu", "model.ffn", "4096"),
        ("layer_norm_type: rms", "layer_norm_with_affine: false", "model.norm_weights", "0"),
        ("  layer_norm_type: rms\n", "", "model.norm_weights", "1"),
        ("flash_attention: true", "attention_layer_norm: true", "model.qk_norm_whole", "on"),
        ("n_kv_heads: 4", "multi_query_attention: true", "model.kv_heads", "1"),
        ("rope: true", "block_type: parallel", "model.parallel_residual", "on"),
        ("embedding_size: 50304", "embedding_size: null", "model.vocabulary", "50_280"),
        ("residual_dropout: 0.0", "rope_theta: 1", "training.dropout", "on"),
        ("precision: mixed", "use_orig_params: true", "precision.reduction", "2 B"),
        ("by_block,", "by_block, sharding_strategy: SHARD_GRAD_OP,", "sharding.reshard", "off"),
        ("whole_layer", "one_in_four", "recompute.every", "4"),
        ("activation_checkpointing: whole_layer", "seed: 1", "training.recompute", "none"),
        ("compile: null", "compile: {fullgraph: false}", "kernels.mode", "compiled"),
        ("device_train_microbatch_size: 2", "seed: 1", "training.micro_batch", "16"),
    ],
)
def test_other_values_set_attributes(old: str, new: str, path: str, value: str) -> None:
    assert old in JOB
    assert settings(Olmo().translate("run.yaml", JOB.replace(old, new)))[path] == value


@try_each(
    "old, new, attribute",
    [
        ("name: adamw", "name: lionw", "precision"),
        ("precision: amp_bf16", "dry_run: true", "precision"),
        ("whole_layer", "two_in_three", "training.recompute"),
        ("by_block,", "by_block, sharding_strategy: HYBRID_SHARD,", "sharding.shard"),
        ("wrapping_strategy: by_block, ", "", "layout.zero"),
        ("seed: 1", "distributed_strategy: ddp", "precision"),
        ("rope: true", "rope: true\n  n_experts: 8", "model"),
    ],
)
def test_a_value_that_is_not_read_raises_a_question(old: str, new: str, attribute: str) -> None:
    text = f"{JOB}seed: 1\n".replace(old, new)
    found = Olmo().translate("run.yaml", text)
    assert attribute in {one.attribute for one in found.questions}


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("{mode: default, backend: inductor}", []),
        ("{mode: max-autotune}", ["compile.mode"]),
        ("{fullgraph: false, backend: eager}", ["compile.backend"]),
    ],
)
def test_another_mode_of_the_compiler_is_listed(line: str, missing: list[str]) -> None:
    found = Olmo().translate("run.yaml", JOB.replace("compile: null", f"compile: {line}"))
    assert settings(found)["kernels.mode"] == "compiled"
    assert [one.name for one in found.missing] == missing


def test_a_key_of_fsdp_of_another_release_raises_a_question() -> None:
    found = Olmo().translate("run.yaml", JOB.replace("fsdp: {", "fsdp: {cpu_offload: true, "))
    assert [one.attribute for one in found.questions] == ["layout.zero"]


@pytest.mark.parametrize(
    ("line", "kept"), [("fused_loss: true", "logits"), ("fused_loss: null", None)]
)
def test_a_fused_loss_keeps_its_logits(line: str, kept: str | None) -> None:
    values = settings(Olmo().translate("run.yaml", f"{JOB}{line}\n"))
    assert values.get("training.loss") == kept


def test_a_rate_of_dropout_that_is_no_number_is_an_error() -> None:
    found = Olmo().translate(
        "run.yaml", JOB.replace("attention_dropout: 0.0", "attention_dropout: zorp")
    )
    assert [one.message for one in found.problems] == [
        "`model.attention_dropout`: a number from 0 to 1 is expected, but zorp is given"
    ]


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ("d_state: 16", "a model with Mamba layers"),
        ("vision_config: {patch_size: 14}", "a vision tower"),
        ("vision_config: {patch_size: false}", ""),
    ],
)
def test_a_model_of_a_fork_that_the_language_lacks_is_rejected_by_name(
    keys: str, what: str
) -> None:
    """The import asked for the model, and offered one of attention layers."""
    found = Olmo().translate("run.yaml", JOB.replace("model:\n", f"model:\n  {keys}\n"))
    assert [what in one.message for one in found.problems] == [True] * bool(what)
