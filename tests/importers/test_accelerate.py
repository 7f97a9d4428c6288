"""Configurations of Accelerate: FSDP 1 and 2, DeepSpeed, plain replicas."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from parcost import Translation
from parcost_formats.tools.accelerate import Accelerate

from ..rows import try_each
from .translations import assumptions, names, problems, settings, uses

IMPORTER = Accelerate()

FSDP_1 = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer
  fsdp_use_orig_params: true
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
rdzv_backend: c10d
"""
FSDP_2 = """\
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_version: 2
  fsdp_reshard_after_forward: false
mixed_precision: 'no'
num_machines: 1
num_processes: 16
parallelism_config:
  parallelism_config_cp_size: 2
  parallelism_config_cp_comm_strategy: alltoall
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
"""
DEEPSPEED = """\
distributed_type: DEEPSPEED
deepspeed_config:
  gradient_accumulation_steps: 4
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero_stage: 3
mixed_precision: bf16
num_processes: 8
"""


def translate(text: str) -> Translation:
    return IMPORTER.translate("accelerate.yaml", text)


def test_fsdp_1_is_read() -> None:
    found = translate(FSDP_1)
    assert settings(found) == {
        "layout.zero": "3",
        "training.recompute": "full",
        "training.precision": "accelerate",
        "precision.reduction": "2 B",
        "precision.whole_gradients": "2 B",
        "sharding.accumulate": "whole",
        "cluster.devices": "16",
    }
    assert uses(found) == ["frameworks.transformers", "precisions.bf16_fsdp"]
    assert not found.unknown
    assert not found.missing
    assert len(found.ignored) == 18 - 5  # all keys but those that set something


@try_each(
    "lines, prefetch, gradients",
    [
        ("fsdp_sharding_strategy: FULL_SHARD", "0", "off"),  # FSDP 1 of Accelerate
        ("fsdp_backward_prefetch: NO_PREFETCH", "0", "off"),
        ("fsdp_backward_prefetch: BACKWARD_PRE", None, None),
        ("fsdp_sharding_strategy: SHARD_GRAD_OP", None, None),  # gathers nothing in backward
        ("fsdp_version: 2", None, None),
        ("fsdp_version: 2\n  fsdp_backward_prefetch: NO_PREFETCH", None, None),
    ],
)
def test_fsdp_1_gathers_ahead_in_backward_if_a_file_says_so(
    lines: str, prefetch: str | None, gradients: str | None
) -> None:
    found = settings(translate(f"distributed_type: FSDP\nfsdp_config:\n  {lines}\n"))
    assert found.get("sharding.prefetch") == prefetch
    assert found.get("overlap.gradients") == gradients


@pytest.mark.parametrize(
    ("lines", "is_listed"),
    [
        ("fsdp_version: 2", True),
        ("fsdp_auto_wrap_policy: no_wrap", True),
        ("fsdp_auto_wrap_policy: SIZE_BASED_WRAP", False),
    ],
)
def test_a_model_that_fsdp_does_not_wrap_is_listed(lines: str, is_listed: bool) -> None:
    found = translate(f"distributed_type: FSDP\nfsdp_config:\n  {lines}\n")
    assert ("fsdp_config.fsdp_auto_wrap_policy" in names(found.missing)) == is_listed


def test_fsdp_2_with_a_mesh_is_read() -> None:
    """2 replicas of shards over 2 x 2 ranks, which split sequences in 2, and layers in 2."""
    found = translate(FSDP_2)
    assert settings(found) == {
        "layout.zero": "3",
        "sharding.reshard": "off",
        "sharding.accumulate": "whole",
        "layout.dp": "4",
        "layout.cp": "2",
        "layout.tp": "2",
        "sharding.shard": "4",
        "context.algorithm": "ring",
        "cluster.devices": "16",
        "training.recompute": "none",
        "layout.sequence_parallel": "off",
    }
    assert uses(found) == ["frameworks.transformers", "precisions.fp32"]
    wrap = "fsdp_config.fsdp_auto_wrap_policy"
    assert names(found.ignored) == {"fsdp_config.fsdp_version", wrap, "num_machines"}


@try_each(
    "strategy, stage, reshard, shard",
    [
        ("FULL_SHARD", "3", None, None),
        ("1", "3", None, None),
        ("SHARD_GRAD_OP", "3", "off", None),
        ("NO_SHARD", "0", None, None),
        ("HYBRID_SHARD", "3", None, "8"),
        ("HYBRID_SHARD_ZERO2", "3", "off", "8"),
        ("5", "3", "off", "8"),
    ],
)
def test_a_strategy_shards_weights_and_may_keep_what_it_gathers(
    strategy: str, stage: str, reshard: str | None, shard: str | None
) -> None:
    """A rank of SHARD_GRAD_OP holds a shard in float32, and gathers the type of the matrix
    products.
    """
    found = translate(FSDP_1.replace("FULL_SHARD", strategy))
    assert settings(found)["layout.zero"] == stage
    assert settings(found).get("sharding.reshard") == reshard
    assert settings(found).get("sharding.shard") == shard
    if shard:
        assert "num_processes / num_machines" in assumptions(found)["sharding.shard"]


def test_a_strategy_and_resharding_have_to_agree() -> None:
    text = FSDP_1.replace("  fsdp_use", "  fsdp_reshard_after_forward: false\n  fsdp_use")
    found = problems(IMPORTER, text, "a.yaml")
    assert [part for _, part in found] == [
        "fsdp_sharding_strategy: FULL_SHARD",
        "fsdp_reshard_after_forward: false",
    ]


def test_sharding_without_a_strategy_is_an_assumption() -> None:
    found = translate("distributed_type: FSDP\nnum_processes: 8\n")
    assert settings(found)["layout.zero"] == "3"
    assert "reshards" in assumptions(found)["layout.zero"]
    assert found.uses[1].assumption == "Accelerate 1.12: mixed_precision is no"


def test_deepspeed_in_this_file_is_read() -> None:
    found = translate(DEEPSPEED)
    assert settings(found) == {
        "layout.zero": "3",
        "overlap.gradients": "on",
        "overlap.bucket": "500_000_000 * training.precision.reduction",
        "offload.optimizer": "1",
        "training.micro_batches": "4",
        "cluster.devices": "8",
    }
    assert uses(found) == ["frameworks.deepspeed", "precisions.bf16_zero"]
    key = next(one.key for block in found.blocks for one in block.settings if one.name == "zero")
    assert key == "deepspeed_config.zero_stage"


def test_without_a_stage_deepspeed_has_that_of_accelerate() -> None:
    found = translate("distributed_type: DEEPSPEED\nnum_processes: 8\n")
    assert settings(found)["layout.zero"] == "2"
    assert "Accelerate" in assumptions(found)["layout.zero"]


def test_a_file_of_deepspeed_is_named_and_not_opened() -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 2\n"
        "deepspeed_config:\n  deepspeed_config_file: ../zero1.json\n"
    )
    found = translate(text + "mixed_precision: bf16\n")
    assert uses(found) == ["frameworks.deepspeed", "precisions.bf16_zero"]
    assert not found.unknown
    (one,) = translate(text).missing
    assert one.name == "deepspeed_config.deepspeed_config_file"
    assert "parcost import ... ../zero1.json" in one.reason


def test_sections_of_another_type_are_listed() -> None:
    found = translate(FSDP_1.replace("FSDP\n", "MULTI_GPU\n", 1))
    assert settings(found)["layout.zero"] == "0"
    assert "fsdp_config.fsdp_sharding_strategy" in names(found.ignored)
    assert not found.unknown


def test_replicas_are_those_of_pytorch() -> None:
    found = translate("distributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_processes: 8\n")
    assert settings(found) == {
        "layout.zero": "0",
        "overlap.bucket": "25 MiB",
        "overlap.first_bucket": "1 MiB",
        "sharding.bucket_copy": "on",
        "precision.compute": "fp16",
        "training.precision": "accelerate",
        "cluster.devices": "8",
    }
    assert set(assumptions(found)) >= {"overlap.bucket", "overlap.first_bucket"}


def test_replicas_leave_the_type_of_weights_to_the_script() -> None:
    found = translate("distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_processes: 8\n")
    (asked,) = found.questions
    assert asked.attribute == "precision"
    assert "--use catalog.precisions.bf16_pure" in asked.answers


def test_layers_that_are_compiled_are_read() -> None:
    for key in ("dynamo_config: {dynamo_backend: INDUCTOR}", "dynamo_backend: inductor"):
        found = translate(f"distributed_type: MULTI_GPU\nnum_processes: 2\n{key}\n")
        assert settings(found)["kernels.mode"] == "compiled"


@try_each(
    "section, key, deciding, harmless",
    [
        ("fsdp_config", "fsdp_limit_all_gathers", "false", "true"),
        ("fsdp_config", "fsdp_ignored_modules", "lm_head", "null"),
        ("dynamo_config", "dynamo_mode", "reduce-overhead", "default"),
        ("", "use_cpu", "true", "false"),
    ],
)
def test_a_value_that_changes_the_cost_is_listed(
    section: str, key: str, deciding: str, harmless: str
) -> None:
    for value, is_listed in ((deciding, True), (harmless, False)):
        line = f"{section}: {{{key}: {value}}}" if section else f"{key}: {value}"
        found = translate(f"distributed_type: FSDP\nnum_processes: 8\n{line}\n")
        assert (f"{section}.{key}".lstrip(".") in names(found.missing)) == is_listed


def test_what_cannot_be_written_is_listed() -> None:
    text = FSDP_1.replace("BACKWARD_PRE", "BACKWARD_POST").replace("TRANSFORMER_BASED", "NO")
    found = translate(text.replace("bf16\nnum", "fp8\nnum"))
    assert names(found.missing) == {
        "fsdp_config.fsdp_backward_prefetch",
        "fsdp_config.fsdp_auto_wrap_policy",
    }
    assert [one.attribute for one in found.questions] == ["precision"]


@try_each(
    "text, message, part",
    [
        ("distributed_type: XLA\n", "`XLA` is not known", "distributed_type: XLA"),
        ("num_processes: 8\n", "a `distributed_type` is expected", "n"),
        (
            "distributed_type: FSDP\nnum_processes: $NPROC\n",
            "a whole number",
            "num_processes: $NPROC",
        ),
        (
            "distributed_type: FSDP\nmixed_precision: int8\n",
            "`int8` is not known",
            "mixed_precision: int8",
        ),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config: {offload_optimizer_device: nvme}\n",
            "to NVMe",
            "offload_optimizer_device: nvme",
        ),
    ],
)
def test_an_error_stands_at_its_value(text: str, message: str, part: str) -> None:
    (found,) = problems(IMPORTER, text, "a.yaml")
    assert message in found[0]
    assert found[1] == part


@pytest.mark.parametrize("text", [FSDP_1, FSDP_2], ids=["FSDP 1", "FSDP 2"])
def test_a_study_with_a_configuration_is_checked(
    text: str, run_command: Callable[..., Any]
) -> None:
    done = run_command(
        "check", "accelerate.yaml", "--from", "accelerate",
        *("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"),
        *("--use", "catalog.models.llama3_8b", "--set", "training.sequence=1024"),
        *("--set", "training.global_batch=64 sequences", "--set", "sharding.accumulate=whole"),
        files={"accelerate.yaml": text},
    )  # fmt: skip
    assert done.code == 0, done.out
    ids = set(re.findall(r"warning\[(.*?)\]", done.out))
    assert ids <= {"attention-type"}  # a file without mixed precision is a job in fp32


def test_the_stage_of_a_file_that_is_not_there_raises_a_question(
    run_command: Callable[..., Any],
) -> None:
    text = (
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
        "deepspeed_config: {deepspeed_config_file: ../zero.json}\n"
    )
    done = run_command("eval", "acc.yaml", "--from", "accelerate", files={"acc.yaml": text})
    assert done.code == 2
    assert "error[import-question]: `layout.zero` is not known" in done.err


@pytest.mark.parametrize(("reshards", "again"), [("false", "off"), ("true", None), ("", None)])
def test_fsdp_2_has_no_sharding_strategy(reshards: str, again: str | None) -> None:
    """The key of FSDP 1 is left over: FSDP 2 gathers again in backward unless told otherwise."""
    new = f"  fsdp_reshard_after_forward: {reshards}\n" if reshards else ""
    found = translate(
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
        f"  fsdp_version: 2\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n{new}"
    )
    assert settings(found)["layout.zero"] == "3"
    assert settings(found).get("sharding.reshard") == again
    assert "fsdp_config.fsdp_sharding_strategy" in names(found.ignored)


def test_keys_of_deepspeed_that_accelerate_does_not_read_are_listed() -> None:
    found = translate(
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
        "deepspeed_config:\n  zero_stage: 3\n  zero_optimization: {stage: 2}\n"
        "  reduce_bucket_size: 5e7\n  stage3_prefetch_bucket_size: auto\n  overlap_comm: false\n"
    )
    assert not found.questions
    assert not found.unknown
    assert settings(found)["layout.zero"] == "3"
    assert settings(found)["overlap.gradients"] == "on"  # as DeepSpeed has it
    keys = {"zero_optimization.stage", "reduce_bucket_size", "stage3_prefetch_bucket_size"}
    listed = {one.removeprefix("deepspeed_config.") for one in names(found.missing)}
    assert listed == keys


@pytest.mark.parametrize("command", ["show", "eval", "search"])
def test_a_file_without_a_job_names_what_it_lacks(
    run_command: Callable[..., Any], command: str
) -> None:
    """The bucket of the file is a number of gradients, whose size is of a block that it lacks."""
    text = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
    text += "deepspeed_config: {zero_stage: 3}\n"
    done = run_command(command, "zero3.yaml", files={"zero3.yaml": text})
    assert done.code == 2
    assert "unknown-name" not in done.out + done.err
    assert "missing: `cluster.device`, `cluster.fabric`, `training.model`" in done.out + done.err
