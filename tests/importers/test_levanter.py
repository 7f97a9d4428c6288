"""The YAML of levanter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import ImportFile
from parcost_formats.tools.levanter import Levanter
from parcost_plugins.vocabulary import Training

from ..rows import try_each
from .translations import assumptions, problems, settings, uses

Run = Callable[..., Any]
MACHINE = (
    *("--from", "levanter", "--use", "catalog.devices.h100_sxm"),
    *("--use", "catalog.fabrics.hgx_h100", "--set", "cluster.devices=8"),
)
NEOX = "EleutherAI/gpt-neox-20b"
JOB = """\
data: {tokenizer: meta-llama/Meta-Llama-3-8B}
model:
  type: llama
  hidden_dim: 768
  intermediate_dim: 2048
  num_heads: 12
  num_layers: 6
  seq_len: 1024
trainer:
  mp: p=f32,c=bfloat16
  model_axis_size: 2
  tensor_parallel_axes: [mlp, heads]
  train_batch_size: 256
  num_train_steps: 20000
optimizer: {learning_rate: 1E-3}
"""


@pytest.mark.parametrize("beside", [True, False])
def test_a_section_in_a_file_of_its_own_is_included(beside: bool) -> None:
    """The tokenizer is in the included file; without that file the vocabulary is asked for."""
    files = {"data/pile.yaml": "tokenizer: gpt2\n"} if beside else {}
    text = JOB.replace("{tokenizer: meta-llama/Meta-Llama-3-8B}", "!include data/pile.yaml")
    found = Levanter().read(ImportFile("run.yaml", text, neighbor=files.get))
    assert settings(found).get("model.vocabulary") == ("50_257" if beside else None)
    assert bool(found.questions) is not beside


def test_the_tokenizer_of_gpt_neox_has_its_vocabulary() -> None:
    found = Levanter().translate("a.yaml", JOB.replace("meta-llama/Meta-Llama-3-8B", NEOX))
    assert settings(found)["model.vocabulary"] == "50_277"


@pytest.mark.parametrize("key", ["quantization: {fp8: true}", "quantization: {int8: true}"])
def test_products_in_8_bits_are_listed(key: str) -> None:
    text = JOB.replace("trainer:\n", f"trainer:\n  {key}\n")
    found = Levanter().translate("run.yaml", text)
    assert any(one.name.startswith("trainer.quantization") for one in found.missing)
    off = Levanter().translate("run.yaml", text.replace("true", "false"))
    assert not any(one.name.startswith("trainer.quantization") for one in off.missing)
    assert not off.unknown


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "the file `models/small.yaml` is not beside this one"),
        ({"models/small.yaml": "type: [a\n"}, "line 2 of `models/small.yaml` is not read"),
        ({"models/small.yaml": "rope: !include rope.yaml\n"}, "tag `!include` asks for an object"),
    ],
    ids=["absent", "no YAML", "includes another"],
)
def test_a_model_file_that_is_not_read_is_an_error(files: dict[str, str], why: str) -> None:
    """Defaults, GPT-2 of 12 layers, do not replace the model that the file describes."""
    text = f"model: !include models/small.yaml\n{JOB[JOB.index('trainer:') :]}"
    (problem,) = Levanter().read(ImportFile("run.yaml", text, neighbor=files.get)).problems
    assert problem.message.startswith("`model`: ")
    assert why in problem.message
    assert text[problem.start : problem.end] == "!include models/small.yaml"


def test_a_job_has_the_defaults_of_its_classes() -> None:
    found = Levanter().translate("run.yaml", JOB)
    expected = {
        "model.layers": "6",
        "model.kv_heads": "12",
        "model.vocabulary": "128_256",
        "model.tied": "off",
        "layout.tp": "2",
        "layout.zero": "3",
        "training.global_batch": "256 sequences",
        "training.micro_batch": "256 / layout.dp",
        "training.sequence": "1024",
        "training.recompute": "full",
    }
    assert expected.items() <= settings(found).items()
    assert uses(found) == ["frameworks.maxtext", "precisions.bf16_fsdp"]
    assert {"layout.zero", "training.recompute", "model.kv_heads"} <= set(assumptions(found))
    assert not found.unknown


def test_the_batch_is_shared_out_over_the_devices(tmp_path: Path) -> None:
    """Two ranks compute a layer: 4 replicas of 8 devices, and 64 of 256 sequences each."""
    text = JOB.replace("  num_heads: 12", "  num_heads: 12\n  num_kv_heads: 12")
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    (scenario,) = parcost.load_text(
        'use "run.yaml"\nuse catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n'
        "cluster { devices = 8 }\n",
        str(tmp_path / "job.par"),
    )
    assert scenario.studies()[0][Training].micro_batch == 64
    assert scenario.studies()[0][Training].micro_batches == 1


@try_each(
    "old, new, name, value",
    [
        ("p=f32,c=bfloat16", "bfloat16", "uses", "bf16_pure"),
        ("p=f32,c=bfloat16", "f32", "uses", "fp32"),
        ("p=f32,c=bfloat16", "p=f32", "uses", "fp32"),
        ("p=f32,c=bfloat16", "c=bfloat16", "uses", "bf16_fsdp"),
        ("  mp: p=f32,c=bfloat16\n", "", "uses", "fp32"),
        ("  train_batch", "  fsdp_axis: null\n  train_batch", "layout.zero", "0"),
        (
            "  train_batch",
            "  per_device_parallelism: 4\n  train_batch",
            "training.micro_batch",
            "4",
        ),
        ("  seq_len", "  gradient_checkpointing: false\n  seq_len", "training.recompute", "none"),
        ("llama\n", "gpt2\n", "model.ffn", "3072"),
        ("llama\n", "gpt2\n", "model.positions", "1024"),
        ("llama\n", "gpt2\n  use_bias: false\n", "model.norm_weights", "1"),
        (
            "  train_batch",
            "  replica_dcn_axis_size: 2\n  train_batch",
            "sharding.shard",
            "layout.dp / 2",
        ),
    ],
)
def test_keys_set_attributes(old: str, new: str, name: str, value: str) -> None:
    assert old in JOB
    text = JOB.replace(old, new)
    if "gpt2" in new:
        text = text.replace("  intermediate_dim: 2048\n", "")
    found = Levanter().translate("run.yaml", text)
    if name == "uses":
        assert f"precisions.{value}" in uses(found)
    else:
        assert settings(found)[name] == value


@try_each(
    "old, new, attribute",
    [
        ("p=f32,c=bfloat16", "p=int8,c=bfloat16", "precision"),
        ("learning_rate: 1E-3", "type: sophia-h", "precision"),
        (
            "train_batch_size: 256",
            "train_batch_size: [[0, 32], [100, 64]]",
            "training.global_batch",
        ),
        ("  seq_len", "  gradient_checkpointing: offload\n  seq_len", "training.recompute"),
        ("Meta-Llama-3-8B", "own", "model.vocabulary"),
        ("  train_batch", "  axis_resources: {mlp: model}\n  train_batch", "layout.tp"),
        ("model_axis_size: 2", "model_axis_of_tomorrow: 2", "layout.tp"),
    ],
)
def test_a_value_that_is_not_known_raises_a_question(old: str, new: str, attribute: str) -> None:
    found = Levanter().translate("run.yaml", JOB.replace(old, new))
    assert attribute in {one.attribute for one in found.questions}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  tensor_parallel_axes: [mlp, heads]\n", "", "all ranks of this axis compute the same"),
        ("type: llama", "type: backpack", "`backpack` is not supported"),
        ("data:", "lora: {r: 8}\ndata:", "adapters of this tool are not supported"),
    ],
)
def test_what_the_language_lacks_is_an_error(old: str, new: str, message: str) -> None:
    found = problems(Levanter(), JOB.replace(old, new), "run.yaml")
    assert any(message in one for one, _ in found)


def test_a_trainer_without_a_batch_of_all_devices_is_one() -> None:
    assert Levanter().recognizes("run.yaml", "trainer:\n  mp: f32\n  per_device_parallelism: 1\n")


def test_a_model_of_the_hub_is_the_reference_of_its_class() -> None:
    text = JOB.replace("data:", "initialize_from_hf: true\nuse_hf_model_config: true\ndata:")
    found = Levanter().translate("run.yaml", text)
    assert settings(found)["training.model"] == "llama2_7b"
    assert "reference_checkpoint of llama" in assumptions(found)["training.model"]
    assert "training.sequence" not in settings(found)
    assert [one.attribute for one in found.questions] == ["training.sequence"]
    stated = Levanter().translate("run.yaml", f"train_seq_len: 2048\n{text}")
    assert settings(stated)["training.sequence"] == "2048"
    assert not stated.questions


def test_a_checkpoint_without_a_length_in_the_file_asks_for_the_length() -> None:
    text = JOB.replace("  seq_len: 1024\n", "")
    found = Levanter().translate("run.yaml", f"{text}initialize_from_hf: true\n{HUB}")
    assert [one.attribute for one in found.questions] == ["training.sequence"]
    assert uses(found)[1] == "models.llama2_7b"


def test_heads_that_no_default_of_kv_heads_divides_have_their_own() -> None:
    text = JOB.replace("num_heads: 12", "num_heads: 4")
    assert settings(Levanter().translate("run.yaml", text))["model.kv_heads"] == "4"
    text = JOB.replace("num_heads: 12", "num_heads: 64")
    assert settings(Levanter().translate("run.yaml", text))["model.kv_heads"] == "32"


def test_batches_of_an_evaluation_do_not_decide(run_command: Run) -> None:
    text = f"{JOB}pz_eval: {{mode: first, eval_batch_size: 64}}\npz_eval_steps: 2\n"
    done = run_command("check", *MACHINE, "run.yaml", files={"run.yaml": text})
    assert done.code == 0
    assert "pz_eval" not in done.out


HUB = "use_hf_model_config: true\n"


@pytest.mark.parametrize(
    ("section", "line", "key"),
    [
        ("model", "upcast_attn: true", "model.upcast_attn"),
        ("trainer", "model_averaging: {type: ema, beta: 0.99}", "trainer.model_averaging.type"),
        (
            "trainer",
            "jax_config: {jax_default_matmul_precision: highest}",
            "trainer.jax_config.jax_default_matmul_precision",
        ),
    ],
)
def test_keys_that_no_attribute_has_are_listed(section: str, line: str, key: str) -> None:
    found = Levanter().translate(
        "run.yaml", JOB.replace(f"{section}:\n", f"{section}:\n  {line}\n")
    )
    assert key in {one.name for one in found.missing}
    assert not found.unknown


def test_attention_without_a_kernel_writes_its_scores() -> None:
    text = JOB.replace("model:\n", "model:\n  attn_backend: vanilla\n")
    assert settings(Levanter().translate("run.yaml", text))["training.flash_attention"] == "off"


def test_weights_of_norms_are_known() -> None:
    text = JOB.replace("  type: llama", "  type: llama\n  use_layer_norm_weight: true")
    assert not Levanter().translate("run.yaml", text).questions
