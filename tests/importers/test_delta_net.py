"""Gated delta nets in files: which layers have one, and what is wrong with a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from parcost_formats.tools.huggingface import HuggingFace

from ..rows import try_each
from .megatron_files import problems, small
from .megatron_files import read as read_flags
from .translations import settings

Run = Callable[..., Any]

QWEN3_5 = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 8,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
FLAGS = (
    "--linear-attention-freq 4 --linear-conv-kernel-dim 4 --linear-key-head-dim 32 "
    "--linear-value-head-dim 32 --linear-num-key-heads 4 --linear-num-value-heads 8 "
)
VARIANT = "--experimental-attention-variant gated_delta_net"


def read(**changes: Any) -> dict[str, str]:
    found = HuggingFace().translate("config.json", json.dumps(QWEN3_5 | changes))
    assert not found.problems, [one.message for one in found.problems]
    return dict(settings(found))


def test_sizes_are_those_of_the_file() -> None:
    found = read()
    assert {name: found[f"model.{name}"] for name in ("delta_heads", "delta_key_heads")} == {
        "delta_heads": "8",
        "delta_key_heads": "4",
    }
    assert found["model.delta_key_dim"] == found["model.delta_value_dim"] == "32"
    assert found["model.output_gate"] == found["model.qk_norm"] == "on"
    assert "model.window" not in found


@try_each(
    "changes, attribute, value",
    [
        ({}, "full_every", "4"),  # the rule of the model type
        ({"full_attention_interval": 2}, "full_every", "2"),
        ({"use_sliding_window": False}, "full_every", "4"),  # which is of windows alone
        (
            {"layer_types": ["full_attention", *["linear_attention"] * 6, "full_attention"]},
            "full_layers",
            "[0, 7]",
        ),
    ],
)
def test_layers_with_full_attention(changes: dict[str, Any], attribute: str, value: str) -> None:
    assert read(**changes)[f"model.{attribute}"] == value


@try_each(
    "changes, message",
    [
        ({"layer_types": ["sliding_attention"] * 8}, "`sliding_attention` are not modeled"),
        ({"layer_types": ["linear_attention"] * 7}, "it lists 7 layers, but the model has 8"),
        ({"attn_output_gate": False}, "only with the value true"),
        ({"full_attention_interval": 0}, "at least 1"),
        ({"linear_num_value_heads": 9}, "9 value heads / 4 key heads is 2.25, a fraction"),
        ({"linear_num_key_heads": 0}, "8 value heads need key heads"),
        ({"model_type": "qwen3"}, "gated delta net layers are not modeled yet"),
    ],
)
def test_what_contradicts_the_model_type_is_named(changes: dict[str, Any], message: str) -> None:
    found = HuggingFace().translate("config.json", json.dumps(QWEN3_5 | changes))
    assert any(message in one.message for one in found.problems), found.problems


def test_flags_of_megatron_are_read() -> None:
    found = settings(read_flags(small(f"{FLAGS}{VARIANT} --attention-output-gate")))
    assert {k: v for k, v in found.items() if "delta" in k or "full" in k} == {
        "model.delta_heads": "8",
        "model.delta_key_heads": "4",
        "model.delta_key_dim": "32",
        "model.delta_value_dim": "32",
        "model.delta_convolution": "4",
        "model.full_every": "4",
    }
    assert found["model.output_gate"] == "on"


@try_each(
    "layers, attribute, value",
    [
        ("[1,0]*4", "full_every", "2"),
        ("[0]+[1]*7", "full_layers", "[0]"),
        ("[1]*8", "full_every", None),  # a gated delta net in every layer
    ],
)
def test_a_list_of_layers_with_full_attention(
    layers: str, attribute: str, value: str | None
) -> None:
    text = small(f"{FLAGS}{VARIANT}").replace("--linear-attention-freq 4", "")
    found = settings(read_flags(f"{text} --num-layers 8 --linear-attention-freq '{layers}'"))
    assert found.get(f"model.{attribute}") == value


def test_a_list_of_another_length_is_named() -> None:
    text = small(f"{FLAGS}{VARIANT}").replace("--linear-attention-freq 4", "")
    (problem,) = problems(f"{text} --num-layers 8 --linear-attention-freq [1]*9")
    assert "the list has 9 layers, but --num-layers is 8" in problem


@try_each("value, answer", [(16, "add --set model.delta_heads=16"), (32, "")])
def test_a_misspelled_key_is_a_question_or_a_remark(
    run_command: Run, value: int, answer: str
) -> None:
    """The configuration class has 32 value heads by default."""
    config = {k: v for k, v in QWEN3_5.items() if k != "linear_num_value_heads"}
    text = json.dumps(config | {"linear_num_value_head": value})
    done = run_command("import", "config.json", files={"config.json": text})
    said = " ".join(done.err.split())
    assert (done.code, answer in said) == (2 if answer else 0, True)
    meant = " was" if answer else ", which was"
    assert f"`linear_num_value_heads`{meant} probably meant" in said
    assert answer or "assumed: delta_heads = 32" in said


def test_flags_without_the_variant_have_no_effect() -> None:
    found = read_flags(small(FLAGS))
    assert "model.delta_heads" not in settings(found)
    reasons = {one.name: one.reason for one in found.ignored}
    assert "without --experimental-attention-variant" in reasons["--linear-num-value-heads"]


def test_another_variant_and_a_missing_size_are_named() -> None:
    text = small(f"{FLAGS}{VARIANT}")
    (problem,) = problems(text.replace("gated_delta_net", "dsa"))
    assert "`dsa` is not modeled" in problem
    found = read_flags(text.replace("--linear-num-key-heads 4", ""))
    assert "model.delta_key_heads" in [one.attribute for one in found.questions]


@pytest.mark.slow
@pytest.mark.parametrize(
    "layers", ["", "full_every = 0", "full_every = 0, full_layers = [0, 1, 63]"]
)
def test_flags_that_are_written_are_read_as_the_same_model(run_command: Run, layers: str) -> None:
    spec = """
    use catalog.devices.h100_sxm
    use catalog.fabrics.hgx_h100
    use catalog.precisions.bf16
    use catalog.frameworks.megatron_core
    use catalog.models.qwen35_27b
    cluster { devices = 64 }
    layout { tp = 8, pp = 2, sequence_parallel = on, zero = 1 }
    training { sequence = 4096, global_batch = 64 sequences, framework = megatron_core }
    """
    if layers:
        spec += f"model other extends qwen35_27b {{ {layers} }}"
        spec = spec.replace("training {", "training { model = other,")
    assert run_command("export", "megatron", "job.par", "--out", "run.sh", job=spec).code == 0
    machine = ["--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"]
    again = run_command("eval", "--from", "megatron", "run.sh", *machine, "--format", "json")
    here = run_command("eval", "job.par", "--format", "json")
    found = [json.loads(done.out)["reports"][0]["results"][0] for done in (here, again)]
    assert found[1]["step_seconds"] == pytest.approx(found[0]["step_seconds"], rel=1e-12)
    assert found[1]["memory"]["total_bytes"] == found[0]["memory"]["total_bytes"]
