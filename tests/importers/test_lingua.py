"""The YAML of Meta Lingua."""

from __future__ import annotations

import pytest
from attrs import evolve

from parcost import ImportFile, Translation
from parcost.contract.importers import PLAIN
from parcost_formats.tools.lingua import Lingua
from parcost_formats.tools.unread_tools import UnreadTools

from ..rows import try_each
from .translations import assumptions, problems, settings, uses

JOB = """\
name: small
steps: 1000
grad_acc_steps: 4
optim: {lr: 3e-3, clip: 1.0}
distributed:
  fsdp_type: full_shard
  compile: true
  model_dtype: bf16
  tp_size: 1
model: {dim: 1024, n_layers: 8, n_heads: 8, n_kv_heads: 2, vocab_size: 32000}
data: {batch_size: 2, seq_len: 4096, n_views: 2, tokenizer: {name: sp, path: t.model}}
"""


def test_a_model_of_lingua_under_fsdp_is_read() -> None:
    """Two thirds of 4 x 1,024 are 2,730, and 2,816 as a multiple of 256."""
    found = Lingua().translate("run.yaml", JOB)
    expected = {
        "model.hidden": "1024",
        "model.ffn": "2816",
        "model.gated": "on",
        "model.kv_heads": "2",
        "model.tied": "off",
        "model.vocabulary": "32_000",
        "training.sequence": "4096",
        "training.micro_batch": "2",
        "training.global_batch": "(8 * layout.dp) sequences",
        "training.recompute": "none",
        "layout.zero": "3",
        "layout.tp": "1",
        "kernels.mode": "compiled",
    }
    assert Lingua().recognizes("run.yaml", JOB)
    assert not UnreadTools().recognizes("run.yaml", JOB)
    assert expected.items() <= settings(found).items()
    assert uses(found) == ["frameworks.pytorch_fsdp", "precisions.bf16_fsdp"]
    assert not found.questions
    assert not found.unknown


def read_in(environment: dict[str, str], text: str) -> Translation:
    """Return a job whose *text* refers to variables of the environment."""
    options = evolve(PLAIN, environment=tuple(environment.items()))
    return Lingua().read(ImportFile("run.yaml", text, options=options))


ENVIRONMENT = JOB.replace("grad_acc_steps: 4", "grad_acc_steps: '${oc.env:PARTS}'").replace(
    "tp_size: 1", "tp_size: ${oc.decode:${oc.env:TP, 2}}"
)


def test_variables_of_the_environment_have_the_values_of_the_user() -> None:
    found = read_in({"PARTS": "16", "TP": "8"}, ENVIRONMENT)
    assert settings(found)["training.global_batch"] == "(32 * layout.dp) sequences"
    assert settings(found)["layout.tp"] == "8"
    assert "layout.tp" not in assumptions(found)
    assert assumptions(read_in({"PARTS": "16"}, ENVIRONMENT))["layout.tp"].startswith("`TP` is not")


def test_an_error_about_a_variable_without_a_value_names_its_option() -> None:
    (problem,) = read_in({"TP": "8"}, ENVIRONMENT).problems
    assert "`PARTS` of the environment is not known" in problem.message
    assert problem.help == "add --set-env PARTS=VALUE"
    assert ENVIRONMENT[problem.start : problem.end] == "grad_acc_steps: '${oc.env:PARTS}'"
    (after,) = read_in({"PARTS": "1" * 40, "TP": "x"}, ENVIRONMENT).problems[1:]
    assert ENVIRONMENT[after.start : after.end] == "tp_size: ${oc.decode:${oc.env:TP, 2}}"


@try_each(
    "degrees, devices, shard",
    [
        ("dp_replicate: 4, dp_shard: 8, tp_size: 2", "64", "8"),
        ("dp_replicate: 16, dp_shard: 1, tp_size: 1", "16", None),  # sharded over all of them
        ("dp_shard: 8", "8", "8"),
        ("tp_size: 1", None, None),
    ],
)
def test_the_degrees_of_lingua_make_the_device_count(
    degrees: str, devices: str | None, shard: str | None
) -> None:
    text = JOB.replace("  tp_size: 1\n", "".join(f"  {one}\n" for one in degrees.split(", ")))
    found = settings(Lingua().translate("run.yaml", text))
    assert found.get("cluster.devices") == devices
    assert found.get("sharding.shard") == shard


@try_each(
    "old, new, path, value",
    [
        ("fsdp_type: full_shard", "fsdp_type: no_shard", "layout.zero", "0"),
        ("tp_size: 1", "dp_shard: 8", "sharding.shard", "8"),
        ("tp_size: 1", "tp_size: 2", "layout.sequence_parallel", "on"),
        ("dim: 1024", "dim: 1024, ffn_dim_multiplier: 1.5", "model.ffn", "4096"),
        ("n_heads: 8", "head_dim: 64", "model.heads", "16"),
        ("grad_acc_steps: 4\n", "", "training.global_batch", "(2 * layout.dp) sequences"),
    ],
)
def test_other_values_set_attributes(old: str, new: str, path: str, value: str) -> None:
    assert old in JOB
    assert settings(Lingua().translate("run.yaml", JOB.replace(old, new)))[path] == value


@try_each(
    "old, new, attribute",
    [
        ("compile: true", "selective_activation_checkpointing: true", "training.recompute"),
        ("compile: true", "float8_recipe: rowwise", "precision"),
        ("model_dtype: bf16", "model_dtype: fp16", "precision"),
        (", vocab_size: 32000", ", vocab_size: -1", "model.vocabulary"),
        ("batch_size: 2, ", "", "training.micro_batch"),
        ("dim: 1024", "dim: 1024, n_future_head: 4", "model"),
    ],
)
def test_a_value_that_is_not_read_raises_a_question(old: str, new: str, attribute: str) -> None:
    found = Lingua().translate("run.yaml", JOB.replace(old, new))
    assert attribute in {one.attribute for one in found.questions}


def test_layers_that_the_language_lacks_are_an_error() -> None:
    found = problems(Lingua(), JOB.replace("dim: 1024", "dim: 1024, state_dim: 64"), "run.yaml")
    assert any("Mamba layers" in message for message, _ in found)


@pytest.mark.parametrize(("kind", "recipe"), [("bf16", "bf16_fsdp"), ("fp32", "tf32")])
def test_products_of_wide_weights_in_tf32_are_read(kind: str, recipe: str) -> None:
    text = JOB.replace("model_dtype: bf16", f"model_dtype: {kind}\n  matmul_allow_tf32: true")
    assert f"precisions.{recipe}" in uses(Lingua().translate("run.yaml", text))
