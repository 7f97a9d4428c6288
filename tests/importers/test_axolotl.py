"""Jobs of axolotl: plugins, meshes and ring attention."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ..rows import mark_most, try_each
from .finetuning_files import CHUNKS, CUT, FILES, read
from .translations import names, settings, uses

Run = Callable[..., Any]


def test_a_file_without_a_model_asks_for_it(run_command: Run) -> None:
    text = "sequence_len: 4096\nmicro_batch_size: 2\nnum_epochs: 1\nbf16: true\n"
    done = run_command("check", "job.yml", files={"job.yml": text})
    assert "`model` is not known: the file has no `base_model`" in done.out


FUSED = "liger_fused_linear_cross_entropy"


@try_each(
    "line, key",
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


@try_each(
    "plugins, more, chunks, named",
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


@pytest.mark.parametrize(
    ("packing", "more", "algorithm"),
    mark_most(
        [
            ("true", "", "all_gather"),  # varlen_llama3 of ring-flash-attention
            ("false", "", "ring"),
            ("true", "ring_attn_func: batch_ring\n", "ring"),
            ("false", "ring_attn_func: varlen_llama3\n", "all_gather"),
        ],
        4,
    ),
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


def test_types_of_fsdp_in_axolotl_are_those_of_the_trainer() -> None:
    lines = (
        "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true, mixed_precision_policy: bf16}"
    )
    found = read("axolotl", "bf16: true", f"bf16: true\n{lines}")
    assert not found.questions
    assert settings(found)["layout.zero"] == "3"


@try_each(
    "lines, recipe",
    [
        ("bf16: true\nfsdp_version: 2", "precisions.bf16_pure"),
        ("bf16: true\nfsdp_version: 1", "precisions.bf16_fsdp"),
        ("fp16: true\nfsdp_version: 2", "precisions.bf16_fsdp"),
        ("bf16: true\nfsdp_version: 2\nadapter: lora\nlora_r: 8", "precisions.bf16_fsdp"),
    ],
)
def test_shards_of_axolotl_under_fsdp_2_stay_in_bf16(lines: str, recipe: str) -> None:
    """Its function replaces that of Accelerate, which casts what is trained to float32."""
    more = "lora_target_linear: true\nfsdp_config: {reshard_after_forward: true}"
    found = read("axolotl", "bf16: true", f"{lines}\n{more}")
    assert [one for one in uses(found) if "precisions" in one] == [recipe]


@pytest.mark.slow
def test_the_state_of_axolotl_under_fsdp_2_is_half_of_a_master_in_fp32(run_command: Run) -> None:
    """8,030,261,248 parameters on 8 ranks, each 2 B and two moments of 2 B: 1.870, 3.739 GiB."""
    name, text = FILES["axolotl"]
    text += "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
    machine = "--use=catalog.systems.dgx_h100"
    done = run_command("eval", machine, "--format=json", name, files={name: text})
    (result,) = json.loads(done.out)["reports"][0]["results"]
    held = {one["name"]: one["bytes"] / 2**30 for one in result["memory"]["lines"]}
    assert held["weights"] == pytest.approx(1.870, abs=1e-3)
    assert held["optimizer state"] == pytest.approx(3.739, abs=1e-3)


def test_the_mesh_of_axolotl_has_the_devices() -> None:
    """4 shards x 2 copies x tp 2 are 16 devices."""
    mesh = "dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\nfsdp_version: 2\n"
    mesh += "fsdp_config: {reshard_after_forward: true}\n"
    found = read("axolotl", "bf16: true\n", f"bf16: true\n{mesh}")
    assert settings(found)["cluster.devices"] == "4 * 2 * layout.tp * layout.cp"
    assert settings(found)["sharding.shard"] == "4 * layout.cp"


@pytest.mark.parametrize("line", ["adapter:\n", "adapter: {}\n", "load_in_4bit: false\n"])
def test_a_key_without_a_value_requests_nothing(line: str) -> None:
    assert "layout.zero" in settings(read("axolotl", "bf16: true\n", f"bf16: true\n{line}"))


@pytest.mark.parametrize("key", ["sequence_length", "context_length", "field_length"])
def test_a_key_of_datasets_does_not_set_the_length_of_a_job(run_command: Run, key: str) -> None:
    """Below `datasets` they are known; as keys of the file they were ignored without a word."""
    text = f"base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 2\nbf16: true\n{key}: 4096\n"
    done = run_command("check", "job.yml", files={"job.yml": text})
    assert f"`{key}`" in done.out + done.err
    inside = text.replace(f"{key}: 4096", f"datasets:\n  - path: a/b\n    {key}: 4096")
    inside += "sequence_len: 4096\n"
    done = run_command("check", "job.yml", files={"job.yml": inside})
    assert key not in done.out + done.err
