"""Configurations of DeepSpeed: batches, ZeRO, precision, and what cannot be written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import Translation
from parcost_formats.tools.deepspeed import DeepSpeed

from ..rows import try_each
from .translations import assumptions, names, problems, settings, uses

IMPORTER = DeepSpeed()

# Stage 3 as a trainer of 64 devices has it: 64 x 2 x 4 = 512 sequences.
STAGE_3: dict[str, Any] = {
    "train_batch_size": 512,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "reduce_bucket_size": 2e8,
        "stage3_prefetch_bucket_size": 5e7,
        "sub_group_size": 1e9,
    },
    "gradient_clipping": 1.0,
    "wall_clock_breakdown": False,
}
# Stage 1 as the integration of a trainer has it, which fills in what is `auto`.
STAGE_1: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale": 0},
    "tensor_parallel": {"autotp_size": 4},
    "zero_optimization": {"stage": 1, "allgather_bucket_size": 5e8},
}


def translate(*parts: dict[str, Any]) -> Translation:
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part
    return IMPORTER.translate("ds.json", json.dumps(merged))


def test_a_configuration_of_stage_3_is_read() -> None:
    found = translate(STAGE_3)
    assert settings(found) == {
        "training.global_batch": "512 sequences",
        "training.micro_batch": "2",
        "training.micro_batches": "4",
        "training.framework": "deepspeed_file",
        "training.recompute": "none",
        "layout.zero": "3",
        "overlap.gradients": "on",
        "overlap.bucket": "200_000_000 * training.precision.reduction",
        "framework.gradient_staging": "200_000_000",
        "framework.update_group": "1_000_000_000",
    }
    assert uses(found) == ["frameworks.deepspeed", "precisions.bf16_zero"]
    assert not found.unknown
    assert not found.missing
    assert names(found.ignored) == {
        "gradient_clipping",
        "wall_clock_breakdown",
        "zero_optimization.stage3_prefetch_bucket_size",
    }


def test_gradients_that_are_not_contiguous_have_no_bucket_of_their_own() -> None:
    for stage, updated in ((2, {}), (3, {"framework.update_group": "400_000_000"})):
        zero = {"stage": stage, "contiguous_gradients": False, "sub_group_size": 4e8}
        found = settings(translate({"zero_optimization": zero}))
        own = {key: value for key, value in found.items() if key.startswith("framework.")}
        assert own == {"framework.contiguous_gradients": "off", **updated}


def test_a_group_of_no_elements_updates_a_tensor_at_a_time() -> None:
    """DeepSpeed closes a group after each tensor; axolotl ships a file with this value."""
    found = settings(translate({"zero_optimization": {"stage": 3, "sub_group_size": 0}}))
    size = "training.model.vocabulary * training.model.hidden / layout.dp"
    assert found["framework.update_group"] == size
    found = settings(translate({"zero_optimization": {"stage": 2, "sub_group_size": 0}}))
    assert "framework.update_group" not in found


def test_values_of_the_trainer_are_left_open() -> None:
    found = translate(STAGE_1)
    assert settings(found) == {
        "layout.zero": "1",
        "layout.tp": "4",
        "overlap.gradients": "off",
        "training.recompute": "none",
    }
    assert uses(found) == ["frameworks.deepspeed"]
    assert names(found.missing) == {
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "bf16.enabled",
        "fp16.enabled",
    }
    assert "global_batch = N sequences" in found.missing[0].reason


@pytest.mark.parametrize(
    ("batch", "micro", "accumulation", "devices"),
    [(128, 2, 4, 16), (None, 2, 4, 16), ("auto", 2, 4, 16), (128, None, 4, 16), (128, 2, None, 16)],
)
def test_two_of_three_sizes_of_a_batch_give_the_third(
    batch: int | str | None,
    micro: int | None,
    accumulation: int | None,
    devices: int,
    tmp_path: Any,
) -> None:
    """128 sequences are 2 of each micro-batch, 4 micro-batches and 16 replicas."""
    sizes = {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
    }
    text = json.dumps({key: size for key, size in sizes.items() if size is not None})
    (tmp_path / "ds.json").write_text(text, encoding="utf-8")
    (scenario,) = parcost.load_text(
        'use "ds.json"\nuse catalog.devices.h100_sxm\nuse catalog.fabrics.hgx_h100\n'
        "use catalog.models.gpt2_small\n"
        f"cluster {{ devices = {devices} }}\ntraining {{ sequence = 1024 }}\n",
        str(tmp_path / "job.par"),
    )
    from parcost_plugins.vocabulary import Training

    training = scenario.studies()[0][Training]
    assert (training.global_batch, training.micro_batch, training.micro_batches) == (128, 2, 4)


def test_one_size_of_a_batch_is_completed_by_defaults() -> None:
    found = translate({"train_batch_size": 64})
    assert settings(found)["training.micro_batches"] == "1"
    assert settings(found)["training.micro_batch"] == "global_batch / (1 * layout.dp)"
    found = translate({"train_micro_batch_size_per_gpu": 4})
    assert settings(found)["training.global_batch"] == "(4 * 1 * layout.dp) sequences"
    assert assumptions(found)["training.global_batch"].startswith("DeepSpeed 0.19: ")


def test_a_batch_that_is_no_product_is_an_error_at_the_key(run_command: Callable[..., Any]) -> None:
    """With 8 replicas, 512 sequences are not 4 micro-batches of 2."""
    done = run_command(
        "check", "ds.json", "--from", "deepspeed",
        *("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"),
        *("--use", "catalog.models.llama3_8b", "--set", "cluster.devices=8"),
        *("--set", "training.sequence=1024"),
        files={"ds.json": json.dumps(STAGE_3, indent=1)},
    )  # fmt: skip
    assert done.code != 0
    assert (
        "micro_batches 4 x micro_batch 2 x dp 8 = 64 sequences, but the global batch is 512"
        in done.out
    )
    assert "`gradient_accumulation_steps` is `training.micro_batches` here" in done.out


@pytest.mark.slow
def test_an_evaluation_warns_of_what_a_file_does_not_set(run_command: Callable[..., Any]) -> None:
    done = run_command(
        "check", "ds.json", "--from", "deepspeed",
        *("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"),
        *("--use", "catalog.models.llama3_8b", "--use", "catalog.precisions.bf16_zero"),
        *("--set", "cluster.devices=8", "--set", "training.sequence=1024"),
        *("--set", "training.global_batch=8 sequences"),
        files={"ds.json": json.dumps(STAGE_1, indent=1)},
    )  # fmt: skip
    assert done.code == 2
    assert "error[import-question]: `training.micro_batch` is not known" in done.out
    assert "--set training.micro_batch=1" in done.out
    done = run_command(
        "check", "ds.json", "--from", "deepspeed",
        *("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100"),
        *("--use", "catalog.models.llama3_8b", "--use", "catalog.precisions.bf16_zero"),
        *("--set", "cluster.devices=8", "--set", "training.sequence=1024"),
        *("--set", "training.global_batch=8 sequences", "--set", "training.micro_batch=1"),
    )  # fmt: skip
    assert done.code == 0, done.out
    assert "warning[import-missing]" in done.out
    assert "`gradient_accumulation_steps`" in done.out
    assert "`train_batch_size`" not in done.out  # the command line has it
    assert "`train_micro_batch_size_per_gpu`" not in done.out
    done = run_command("import", "ds.json", "--set", "training.micro_batch=1")
    assert "2 keys read, 2 without effect, 0 unknown, 5 not set" in " ".join(done.err.split())
    assert "# --set training.micro_batch=1" in done.out


@try_each(
    "stage, stated, hides",
    [(1, None, "off"), (2, None, "off"), (3, None, "on"), (2, True, "on"), (3, False, "off")],
)
def test_communication_hides_by_default_in_stage_3_alone(
    stage: int, stated: bool | None, hides: str
) -> None:
    zero = {"stage": stage} if stated is None else {"stage": stage, "overlap_comm": stated}
    found = translate({"zero_optimization": zero})
    assert settings(found)["overlap.gradients"] == hides
    assert ("overlap.gradients" in assumptions(found)) == (stated is None)


def test_two_names_of_one_key_have_to_agree() -> None:
    zero = {"stage": 3, "prefetch_bucket_size": 1, "stage3_prefetch_bucket_size": 2}
    text = json.dumps({"zero_optimization": zero})
    found = problems(IMPORTER, text)
    assert [part for _, part in found] == [
        '"prefetch_bucket_size": 1',
        '"stage3_prefetch_bucket_size": 2',
    ]
    zero["prefetch_bucket_size"] = 2
    assert not problems(IMPORTER, json.dumps({"zero_optimization": zero}))


def test_a_secondary_copy_of_the_parameters_is_listed() -> None:
    """hpZ moves the second gather into a node, which no attribute has."""
    found = translate({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}})
    (one,) = found.missing
    assert one.name == "zero_optimization.zero_hpz_partition_size"
    assert "for the gathers of backward within 8 ranks" in one.reason
    assert "sharding.shard" not in settings(found)
    assert not translate({"zero_optimization": {"zero_hpz_partition_size": 1}}).missing


def test_shards_of_some_ranks_are_those_of_mics() -> None:
    found = translate({"zero_optimization": {"stage": 3, "mics_shard_size": 8}})
    assert settings(found)["sharding.shard"] == "8"
    assert "sharding.shard" not in settings(
        translate({"zero_optimization": {"mics_shard_size": -1}})
    )


def test_state_on_the_host_is_read() -> None:
    zero = {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5, "pin_memory": True},
        "offload_param": {"device": "cpu"},
    }
    found = settings(translate({"zero_optimization": zero}))
    assert found["offload.optimizer"] == "0.5"
    assert found["offload.parameters"] == "1"
    other = translate({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})
    assert "offload.parameters" not in settings(other)  # only stage 3 reads it
    (why,) = [one.reason for one in other.ignored if one.name.endswith("offload_param.device")]
    assert why == "DeepSpeed 0.19: only ZeRO stage 3 offloads parameters"
    old = translate({"zero_optimization": {"stage": 2, "cpu_offload": True}})
    assert settings(old)["offload.optimizer"] == "1"


@try_each(
    "zero, message, part",
    [
        (
            {"offload_optimizer": {"device": "nvme"}},
            "offloading to NVMe cannot be expressed in a spec",
            '"device": "nvme"',
        ),
        ({"stage": 4}, "stages of ZeRO are 0 to 3", '"stage": 4'),
        ({"stage": "two"}, "a whole number", '"stage": "two"'),
        ({"overlap_comm": 3}, "true or false", '"overlap_comm": 3'),
        ({"offload_optimizer": {"device": "tape"}}, "`tape` is not known", '"device": "tape"'),
        (
            {"offload_optimizer": {"device": "cpu", "ratio": 7}},
            "a number from 0 to 1",
            '"ratio": 7',
        ),
        (
            {"stage": 2, "cpu_offload": True, "offload_optimizer": {"device": "none"}},
            "to different values: ",
            '"cpu_offload": true',
        ),
    ],
)
def test_an_error_stands_at_its_value(zero: dict[str, Any], message: str, part: str) -> None:
    (first, *_) = problems(IMPORTER, json.dumps({"zero_optimization": zero}))
    assert message in first[0]
    assert first[1] == part


def test_both_types_of_16_bits_are_an_error() -> None:
    found = problems(IMPORTER, json.dumps({"bf16": {"enabled": True}, "fp16": {"enabled": True}}))
    assert [part for _, part in found] == ['"enabled": true', '"enabled": true']


@try_each(
    "configuration, recipe",
    [
        ({"bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}, "bf16_zero"),
        ({"bf16": {"enabled": True}}, "bf16_deepspeed"),
        ({"bfloat16": {"enabled": True}}, "bf16_deepspeed"),
        ({"fp16": {"enabled": True}}, "fp16"),
        ({}, "fp32"),
        (
            {
                "bf16": {
                    "enabled": True,
                    "bf16_master_weights_and_grads": True,
                    "bf16_optimizer_states": True,
                }
            },
            "bf16_pure",
        ),
        ({"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}, "bf16_deepspeed"),
        (
            {
                "bf16": {"enabled": True},
                "data_types": {"grad_accum_dtype": "fp32"},
                "zero_optimization": {"stage": 2},
            },
            "bf16",
        ),
    ],
)
def test_a_type_is_a_recipe_of_the_catalogue(configuration: dict[str, Any], recipe: str) -> None:
    assert f"precisions.{recipe}" in uses(translate(configuration))


@try_each(
    "zero, sums, stage, recipe",
    [
        ({}, {}, "1", "bf16_deepspeed"),
        ({"stage": 0}, {}, "1", "bf16_deepspeed"),
        ({"stage": 0}, {"grad_accum_dtype": "bf16"}, "0", "bf16_zero"),
        ({"stage": 1}, {"grad_accum_dtype": "fp32"}, "1", "bf16_deepspeed"),
        (
            {"stage": 1, "offload_optimizer": {"device": "cpu"}},
            {"grad_accum_dtype": "fp32"},
            "1",
            "bf16",
        ),
    ],
)
def test_bf16_without_zero_shards_its_states(
    zero: dict[str, Any], sums: dict[str, Any], stage: str, recipe: str
) -> None:
    """BF16_Optimizer runs in ZeRO 0, and in ZeRO 1 on the device if sums are in fp32."""
    found = translate({"bf16": {"enabled": True}, "zero_optimization": zero, "data_types": sums})
    assert settings(found)["layout.zero"] == stage
    assert f"precisions.{recipe}" in uses(found)


def test_messages_have_the_type_of_the_model_unless_another_is_stated() -> None:
    wide = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}
    found = settings(translate(wide))
    assert found["precision.gradients"] == "4 B"
    assert found["precision.reduction"] == "2 B"
    found = settings(translate({**wide, "communication_data_type": "fp32"}))
    assert found["precision.reduction"] == "4 B"
    narrow = {"bf16": {"enabled": True}, "zero_optimization": {"zero_quantized_weights": True}}
    assert settings(translate(narrow))["precision.gather"] == "1 B"


def test_types_beside_a_precision_of_the_trainer_are_listed_and_ask_for_nothing_else() -> None:
    auto = {"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": 1}
    zero = {"stage": 3, "zero_quantized_weights": False, "zero_quantized_gradients": False}
    found = translate({**auto, "zero_optimization": zero})
    assert not found.questions
    assert "zero_optimization.zero_quantized_weights" not in names(found.missing)
    zero = {"stage": 3, "zero_quantized_weights": True}
    found = translate({**auto, "zero_optimization": zero, "communication_data_type": "fp32"})
    assert not found.questions
    reasons = {one.name: one.reason for one in found.missing}
    assert reasons["zero_optimization.zero_quantized_weights"].endswith("{ gather = 1 B }`")
    assert reasons["communication_data_type"].endswith("{ reduction = 4 B }`")


def test_checkpoints_and_pipelines_are_read() -> None:
    found = settings(
        translate(
            {
                "activation_checkpointing": {"number_checkpoints": 32, "cpu_checkpointing": True},
                "pipeline": {"stages": 4},
                "sequence_parallel_size": 2,
                "expert_parallel": {"enabled": True, "autoep_size": 8},
            }
        )
    )
    assert found["training.recompute"] == "full"
    assert found["offload.activations"] == "100 %"
    assert (found["layout.pp"], found["layout.cp"], found["layout.ep"]) == ("4", "2", "8")
    found = settings(translate({"pipeline": {"stages": 2, "activation_checkpoint_interval": 1}}))
    assert found["training.recompute"] == "full"


def test_what_changes_the_cost_and_cannot_be_written_is_listed() -> None:
    found = translate(
        {
            "zero_optimization": {"stage": 3, "zero_quantized_gradients": True},
            "compile": {"deepcompile": True},
            "optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-4}},
            "sparse_gradients": False,
        }
    )
    assert names(found.missing) == {
        "zero_optimization.zero_quantized_gradients",
        "compile.deepcompile",
    }
    (asked,) = found.questions
    assert asked.attribute == "precision"
    assert "the optimizer is OneBitAdam" in asked.reason
    assert names(found.ignored) == {"optimizer.params.lr", "sparse_gradients"}


@try_each(
    "key, deciding, harmless",
    [
        ("autotuning.enabled", True, False),
        ("weight_quantization.post_init_quant", {"mlp": {"num_bits": 4}}, {}),
        ("use_data_before_expert_parallelism", True, False),
        ("zero_optimization.memory_efficient_linear", False, True),
        ("zero_optimization.mics_hierarchical_params_gather", True, False),
        ("pipeline.pipe_partitioned", False, True),
        ("expert_parallel.use_grouped_mm", False, True),
        ("expert_parallel.grouped_mm_backend", "sequential", "auto"),
        ("expert_parallel.expert_tensor_parallel_size", 2, 1),
        ("pipeline.grad_partitioned", False, True),
    ],
)
def test_a_value_that_changes_the_cost_is_listed(key: str, deciding: Any, harmless: Any) -> None:
    section, _, name = key.rpartition(".")
    for value, is_listed in ((deciding, True), (harmless, False)):
        found = translate({section: {name: value}} if section else {name: value})
        assert any(one.startswith(key) for one in names(found.missing)) == is_listed


def test_experts_are_not_sharded_unless_that_is_turned_on() -> None:
    for section in ({"autoep_size": 8}, {"autoep_size": 8, "enabled": False}):
        assert "layout.ep" not in settings(translate({"expert_parallel": section}))


def test_sections_without_entries_set_nothing() -> None:
    found = translate({"train_batch_size": 8, "fp16": {}, "zero_optimization": {}})
    assert settings(found)["layout.zero"] == "0"
    assert not found.unknown
    assert settings(translate({"zero_optimization": True}))["layout.zero"] == "1"


def test_keys_of_no_table_are_listed_with_their_place() -> None:
    text = '{"train_batch_size": 8, "trian_steps": 3}'
    (one,) = IMPORTER.translate("ds.json", text).unknown
    assert text[one.start : one.end] == '"trian_steps": 3'


@try_each(
    "text, message",
    [
        ("{", "Expecting"),
        ("[1]", "an object is expected"),
        ('{"train_batch_size": 1, "train_batch_size": 2}', "defined twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"train_batch_size": 1' + "0" * 5000 + "}", "too many digits"),
    ],
)
def test_a_text_that_is_no_configuration_is_an_error(text: str, message: str) -> None:
    (found,) = problems(IMPORTER, text)
    assert message in found[0]


def test_a_file_is_recognized_by_its_keys() -> None:
    assert IMPORTER.recognizes("ds.json", json.dumps(STAGE_1))
    assert not IMPORTER.recognizes("config.json", '{"model_type": "llama"}')


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((10, 3, 2), "10 is not a multiple of 3 x 2"),
        ((8, None, 3), "8 is not a multiple of 1 x 3"),
        ((9, 2, None), "9 is not a multiple of 2 x 1"),
    ],
)
def test_sizes_of_a_batch_that_no_replicas_join_are_an_error(
    sizes: tuple[int | None, ...], message: str
) -> None:
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    found = {key: size for key, size in zip(names, sizes, strict=True) if size is not None}
    (problem,) = IMPORTER.translate("ds.json", json.dumps(found)).problems
    assert message in problem.message
    assert "one of the three sizes" in problem.help
