"""Fine-tuning of NeMo RL, on FSDP and on Megatron."""

from __future__ import annotations

import pytest

from parcost import ImportFile
from parcost.contract.importers import PLAIN
from parcost.language.text import Source
from parcost_formats.imports.translation import translate

from ..rows import try_each
from .finetuning_files import importer_of
from .translations import assumptions, settings, uses

RL_SFT = """sft: {max_num_steps: 60}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 64
  train_micro_batch_size: 2
  max_total_sequence_length: 4096
  precision: bfloat16
  make_sequence_length_divisible_by: ${mul:2, ${policy.dtensor_cfg.tensor_parallel_size}}
  dtensor_cfg: {enabled: true, cpu_offload: false, sequence_parallel: true, activation_checkpointing: true,
    tensor_parallel_size: 2, context_parallel_size: 1, lora_cfg: {enabled: false, dim: 8}}
  sequence_packing: {enabled: false}
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 1.0e-6}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""

RL_MEGATRON = """defaults: ../../sft.yaml
policy:
  model_name: Qwen/Qwen3-30B-A3B
  dtensor_cfg: {enabled: false}
  sequence_packing: {enabled: true}
  megatron_cfg:
    enabled: true
    tensor_model_parallel_size: 2
    sequence_parallel: true
    expert_model_parallel_size: 8
    activation_checkpointing: true
    freeze_moe_router: true
    distributed_data_parallel_config: {grad_reduce_in_fp32: true}
    optimizer: {use_precision_aware_optimizer: false}
cluster: {gpus_per_node: 8, num_nodes: 4}
"""


@pytest.mark.parametrize(
    ("old", "new", "accumulate"),
    [
        ("batch_size: 64", "batch_size: 64", "whole"),
        ("tensor_parallel_size: 2", "defer_fsdp_grad_sync: false", "shard"),
    ],
)
def test_gradients_of_nemo_rl_wait_for_the_last_micro_batch(
    old: str, new: str, accumulate: str
) -> None:
    importer = importer_of("nemo_rl")
    found = importer.read(ImportFile("sft.yaml", RL_SFT.replace(old, new, 1)))
    assert settings(found).get("sharding.accumulate") == accumulate


def test_fine_tuning_of_nemo_rl_on_fsdp_is_read() -> None:
    """FSDP2 keeps fp32 weights, gathers and multiplies in bf16, and reduces in fp32."""
    one = importer_of("nemo_rl")
    found = one.read(ImportFile("run.yaml", RL_SFT))
    assert not found.problems
    assert not found.questions
    assert {
        "cluster.devices": "2 * 8",
        "layout.zero": "3",
        "layout.tp": "2",
        "layout.sequence_parallel": "on",
        "training.micro_batch": "2",
        "training.global_batch": "64 sequences",
        "training.recompute": "full",
    }.items() <= settings(found).items()
    assert uses(found)[-1] == "precisions.bf16_fsdp"
    assert [key.name for key in found.missing] == ["policy.sequence_packing.enabled"]
    adapters = RL_SFT.replace("lora_cfg: {enabled: false", "lora_cfg: {enabled: true")
    values = settings(one.read(ImportFile("run.yaml", adapters)))
    assert [values[f"adapters.{of}"] for of in ("rank", "head", "weights")] == ["8", "on", "4 B"]
    both = f"{RL_SFT.replace('  optimizer', '  megatron_cfg: {enabled: true}' + chr(10) + '  optimizer')}"
    (problem,) = one.read(ImportFile("run.yaml", both)).problems
    assert "both backends are enabled" in problem.message


def test_fine_tuning_of_nemo_rl_on_megatron_starts_from_its_configuration() -> None:
    """What the file leaves out is that of sft.yaml: 32 sequences of 1,024 tokens."""
    one = importer_of("nemo_rl")
    found = one.read(ImportFile("run.yaml", RL_MEGATRON))
    assert not found.problems
    assert not found.questions
    values, assumed = settings(found), assumptions(found)
    assert {
        "cluster.devices": "4 * 8",
        "layout.tp": "2",
        "layout.ep": "8",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
        "training.global_batch": "32 sequences",
        "training.recompute": "full",
    }.items() <= values.items()
    assert "precision.gradients" not in values
    assert assumed["training.sequence"].endswith("examples/configs/sft.yaml")
    assert "layout.tp" not in assumed
    own = RL_SFT.replace("max_total_sequence_length: 4096", "max_total_sequence_length: 512")
    found = one.read(ImportFile("run.yaml", RL_MEGATRON, PLAIN, {"sft.yaml": own}.get))
    assert settings(found)["training.sequence"] == "512"
    other = RL_MEGATRON.replace("../../sft.yaml", "mine.yaml")
    (problem,) = one.read(ImportFile("run.yaml", other)).problems
    assert "`defaults` names `mine.yaml`, which is not beside the file" in problem.message
    other = RL_MEGATRON.replace("../../sft.yaml", "my/sft.yaml")
    (problem,) = one.read(ImportFile("run.yaml", other)).problems
    assert "`defaults` names `my/sft.yaml`, which is not beside the file" in problem.message


@try_each(
    "name, is_read",
    [
        *(("examples/configs/sft.yaml", True), ("/opt/nemo-rl/examples/configs/sft.yaml", True)),
        *(("my/sft.yaml", False), ("sft.yaml", False), ("my_examples/configs/sft.yaml", False)),
    ],
)
def test_only_its_own_folder_has_the_configuration_that_nemo_rl_ships(
    name: str, is_read: bool
) -> None:
    one = importer_of("nemo_rl")
    found = one.read(ImportFile("run.sh", f"uv run examples/run_sft.py --config {name}\n"))
    if is_read:
        assert assumptions(found)["training.sequence"] == "NeMo RL 0.5: examples/configs/sft.yaml"
    else:
        (problem,) = found.problems
        assert f"`{name}` has the keys of the job, but is not beside" in problem.message


def test_keys_of_the_megatron_backend_are_read_or_listed() -> None:
    """Gradients of a separate kernel cost time; a frozen router does not."""
    one = importer_of("nemo_rl")
    lines = """gradient_accumulation_fusion: false
    bias_activation_fusion: true
    layernorm_epsilon: 1.0e-6
    moe_router_dtype: fp64
    moe_router_load_balancing_type: none
    moe_router_bias_update_rate: 0.0
    moe_per_layer_logging: true
    empty_unused_memory_level: 1
    train_iters: 100
    scheduler: {lr_decay_style: constant}
    optimizer: {lr: 5.0e-6, min_lr: 5.0e-7, weight_decay: 0.1, adam_eps: 1.0e-8, clip_grad: 1.0,
      sgd_momentum: 0.9, params_dtype: float32, """
    found = one.read(ImportFile("run.yaml", RL_MEGATRON.replace("optimizer: {", lines)))
    assert not [*found.problems, *found.questions]
    assert settings(found)["kernels.fused_accumulation"] == "off"
    ignored = {key.name.removeprefix("policy.megatron_cfg.") for key in found.ignored}
    assert {"freeze_moe_router", "scheduler.lr_decay_style", "optimizer.lr"} <= ignored
    assert not found.unknown


@pytest.mark.parametrize(("files", "is_read"), [(6, True), (7, False)])
def test_a_long_chain_of_configurations_is_an_error(files: int, is_read: bool) -> None:
    """Each of the files extends the next, and the last has the length of the sequences."""
    one = importer_of("nemo_rl")
    own = RL_MEGATRON.replace("../../sft.yaml", "1.yaml")
    chain = {f"{at}.yaml": f"defaults: {at + 1}.yaml\n" for at in range(1, files)}
    chain[f"{files}.yaml"] = RL_SFT.replace("length: 4096", "length: 512")
    found = one.read(ImportFile("run.yaml", own, PLAIN, chain.get))
    if is_read:
        assert settings(found)["training.sequence"] == "512"
        return
    (problem,) = found.problems
    assert "more than 6 files; the next is `7.yaml`" in problem.message
    assert own[problem.start : problem.end].endswith("1.yaml")


def test_a_command_of_nemo_rl_replaces_values_of_its_configuration() -> None:
    one = importer_of("nemo_rl")
    words = "policy.model_name=Qwen/Qwen3-8B cluster.gpus_per_node=8 cluster.num_nodes=2"
    found = one.read(ImportFile("run.sh", f"uv run examples/run_sft.py {words}\n"))
    assert not found.questions
    assert settings(found)["cluster.devices"] == "2 * 8"
    assert settings(found)["training.sequence"] == "1024"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("sft: {seed: 1}", ""),
        ("asft: {kl_weight: 0.1}", "a separate reference model"),
        ("opd: {seed: 1}", "has no `sft`"),
    ],
)
def test_an_algorithm_of_nemo_rl_that_is_not_fine_tuning_is_rejected(
    section: str, message: str
) -> None:
    """A file of any algorithm has a policy and a cluster, which were read as fine-tuning."""
    text = f"""{section}
policy:
  model_name: Qwen/Qwen3-8B
  train_global_batch_size: 64
  train_micro_batch_size: 1
  max_total_sequence_length: 4096
  precision: bfloat16
  dtensor_cfg: {{enabled: true, tensor_parallel_size: 1}}
cluster: {{gpus_per_node: 8, num_nodes: 1}}
"""
    one = importer_of("nemo_rl")
    found = one.read(ImportFile("job.yaml", text, PLAIN, lambda _: None))
    assert [message in one.message for one in found.problems] == [True] * bool(message)


@try_each(
    "old, new, answer",
    [
        ("num_nodes", "num_ondes", "--set 'cluster.devices=4 * 8'"),
        ("policy:", "policy:\n  train_micro_batch_sze: 4", "--set training.micro_batch=4"),
        ("policy:", "policy:\n  max_total_sequence_lenght: 8192", "--set training.sequence=8192"),
        ("  model_name", "  model_anme", "--use catalog.models.qwen3_30b_a3b"),
    ],
)
def test_a_misspelled_key_of_the_megatron_backend_asks(old: str, new: str, answer: str) -> None:
    """What sft.yaml has in its place is no answer."""
    text = RL_MEGATRON.replace(old, new, 1)
    found = translate(importer_of("nemo_rl"), Source("run.yaml", text))
    assert answer in [one for question in found.questions for one in question.answers]


@try_each(
    "old, new, message",
    [
        ("checkpointing: true", "checkpointing: zorp", "checkpointing`: true or false is expected"),
        ("num_nodes: 4", "num_nodes: zorp", "`cluster.num_nodes`: a whole number of at least 1"),
        ("{enabled: false}", "{enabled: zorp}", "dtensor_cfg.enabled`: true or false is expected"),
        ("policy:", "policy:\n  precision: zorp", "`policy.precision`: `zorp` is not known"),
    ],
)
def test_a_value_that_the_megatron_backend_does_not_know_is_an_error(
    old: str, new: str, message: str
) -> None:
    found = importer_of("nemo_rl").read(ImportFile("run.yaml", RL_MEGATRON.replace(old, new, 1)))
    assert [message in one.message for one in found.problems] == [True]


def test_keys_that_the_megatron_backend_does_not_get_are_listed() -> None:
    text = RL_MEGATRON.replace("dtensor_cfg: {", "dtensor_cfg: {cpu_offload: true, ")
    text = text.replace("policy:", "policy:\n  hf_config_overrides: {rope_theta: 5}\n  frob: 1", 1)
    found = importer_of("nemo_rl").read(ImportFile("run.yaml", text))
    assert [one.name for one in found.unknown] == ["policy.frob"]
    assert "policy.hf_config_overrides.rope_theta" in {one.name for one in found.missing}
    reasons = {one.name: one.reason for one in found.ignored}
    assert reasons["policy.dtensor_cfg.cpu_offload"] == "policy.dtensor_cfg is not enabled"
