"""Fine-tuning of verl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..rows import try_each
from .finetuning_files import ENGINE_SFT, VERL, read
from .translations import settings, uses

Run = Callable[..., Any]


@try_each(
    "old, new, path, value",
    [
        # 8,192 tokens for each of the two ranks of a group, in sequences of 4,096
        ("", "", "training.micro_batch", "min(4, 64 / layout.dp)"),
        (
            "data.max",
            "data.max_token_len_per_gpu=16384 data.max",
            "training.micro_batch",
            "min(8, 64 / layout.dp)",
        ),
        (
            "data.max",
            "data.use_dynamic_bsz=False data.micro_batch_size_per_gpu=1 data.max",
            "training.micro_batch",
            "1",
        ),
        ("optim", "engine.fsdp_size=4 optim", "sharding.shard", "4"),
        ("optim", "engine.optimizer_offload=True optim", "offload.optimizer", "1"),
        ("", "", "training.recompute", "full"),
        ("", "", "layout.cp", "2"),
        ("", "", "layout.zero", "3"),
    ],
)
def test_the_engine_of_verl_is_read(old: str, new: str, path: str, value: str) -> None:
    found = read("verl", VERL, ENGINE_SFT.replace(old, new, 1) if old else ENGINE_SFT)
    assert not found.questions
    assert settings(found)[path] == value


@pytest.mark.parametrize("kind", ["bf16", "bfloat16"])
def test_weights_of_verl_in_bf16_are_read(kind: str) -> None:
    """FSDP reduces in fp32 and stores gradients in the type of the weights: 2 bytes of each."""
    found = read("verl", VERL, ENGINE_SFT.replace("optim", f"engine.model_dtype={kind} optim"))
    assert not found.questions
    assert "precisions.bf16_pure" in uses(found)
    assert settings(found)["precision.reduction"] == "4 B"


def test_a_base_of_verl_in_bf16_is_frozen_in_bf16() -> None:
    """PEFT casts the adapters to fp32, which is asked for; the base was said to be in fp32."""
    lora = "engine.model_dtype=bf16 model.lora_rank=8 model.target_modules=all-linear optim"
    found = read("verl", VERL, ENGINE_SFT.replace("optim", lora))
    assert [one.attribute for one in found.questions] == ["precision"]
    assert settings(found)["adapters.weights"] == "2 B"


def test_kernels_of_verl_that_decide_nothing_raise_no_question() -> None:
    """Liger is applied without its loss there."""
    more = "+model.override_config._experts_implementation=eager model.use_liger=True optim"
    found = read("verl", VERL, ENGINE_SFT.replace("optim", more))
    assert not found.questions
    (listed,) = found.missing
    assert "loss_chunks" not in listed.reason


def test_another_engine_of_verl_is_rejected_and_tokens_that_do_not_fit_raise_a_question() -> None:
    for key in ("engine", "engine.strategy"):
        said = ENGINE_SFT.replace("engine=fsdp", f"{key}=megatron")
        assert (
            "parcost does not read the engine megatron of verl"
            in read("verl", VERL, said).problems[0].message
        )
    dynamic = read("verl", VERL, ENGINE_SFT.replace("engine=fsdp", "data.use_dynamic_bsz=True"))
    assert "data.use_dynamic_bsz" not in [one.name for one in dynamic.missing]
    asked = read("verl", VERL, ENGINE_SFT.replace("max_length=4096", "max_length=3000")).questions
    assert [one.attribute for one in asked] == ["training.micro_batch"]


@pytest.mark.slow
def test_a_micro_batch_of_verl_has_the_sequences_of_a_rank_at_most(run_command: Run) -> None:
    """16 devices in pairs: 8 sequences of 64 each, where 16 of 4,096 tokens fit."""
    script = ENGINE_SFT.replace("nnodes=1", "nnodes=2").replace(
        "data.max", "data.max_token_len_per_gpu=32768 data.max"
    )
    machine = ("--use", "catalog.systems.dgx_h100", "--full")
    done = run_command("eval", "run.sh", *machine, files={"run.sh": script})
    assert done.code == 0, done.err
    assert "training.micro_batch 8 verl 0.9" in " ".join(done.out.split())


@pytest.mark.parametrize("words", ["model.lora_rank: 32", "32", "model.lora_rank 32"])
def test_a_word_that_is_no_pair_ends_a_job_of_verl(words: str) -> None:
    """It was dropped, and a job with LoRA was one of full fine-tuning."""
    found = read("verl", VERL, ENGINE_SFT.replace("optim.lr", f"{words} optim.lr"))
    (problem,) = found.problems
    word, _, _ = words.partition(" ")
    assert problem.message.startswith(f"`{word}` is not KEY=VALUE")


@pytest.mark.parametrize(
    ("words", "is_offloaded"),
    [
        ("model.fsdp_config.cpu_offload=True", False),
        ("model.fsdp_config.offload_params=True", False),
        ("model.fsdp_config.cpu_offload=True model.fsdp_config.offload_params=True", True),
    ],
)
def test_offload_of_verl_takes_two_switches(words: str, is_offloaded: bool) -> None:
    """CPUOffload(offload_params=...), which `cpu_offload` alone leaves without effect."""
    script = f"""torchrun --nproc_per_node=8 verl/trainer/fsdp_sft_trainer.py {words} \
  data.micro_batch_size_per_gpu=2 model.partial_pretrain=Qwen/Qwen3-4B \
  data.val_batch_size_per_gpu=2 model.enable_gradient_checkpointing=True
"""
    found = read("verl", VERL, script)
    assert not found.questions
    assert ("offload.parameters" in settings(found)) == is_offloaded


@pytest.mark.parametrize("flag", ["--config_path=conf/sft.yaml", "--config conf/sft.yaml"])
def test_a_configuration_that_a_command_names_is_missing_by_name(flag: str) -> None:
    command = f"torchrun --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer {flag}\n"
    (problem,) = read("verl", VERL, command).problems
    assert (
        problem.message == "`conf/sft.yaml` has the keys of the job, but is not beside the script"
    )


def test_fine_tuning_of_verl_is_read() -> None:
    """64 sequences of a step over 8 ranks; each sequence on two of them."""
    script = """MODEL=$HOME/hub/models--Qwen--Qwen3-4B/snapshots/0123abc
torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer \\
  data.train_files=$HOME/x.parquet data.max_length=4096 data.train_batch_size=64 \\
  data.micro_batch_size_per_gpu=2 model.partial_pretrain=$MODEL optim.lr=1e-5 \\
  model.enable_gradient_checkpointing=True ulysses_sequence_parallel_size=2
"""
    found = read("verl", VERL, script)
    assert not found.questions
    assert not found.unknown
    values = settings(found)
    assert values["training.model"] == "qwen3_4b"
    assert values["training.global_batch"] == "64 sequences"
    assert values["training.micro_batch"] == "2"
    assert values["training.recompute"] == "full"
    assert values["layout.zero"] == "3"
    assert values["layout.cp"] == "2"
    assert values["cluster.devices"] == "8"
    assert {"precisions.bf16_fsdp", "frameworks.transformers"} <= set(uses(found))
    asked = read("verl", VERL, script.replace("=True", "_of_tomorrow=True")).questions
    assert {one.attribute for one in asked} == {"training.recompute"}


@try_each(
    "word, missing",
    [
        ("optim.optimizer_impl=torch.optim", []),
        ("optim.optimizer_impl=bitsandbytes.optim", ["optim.optimizer_impl"]),
        (
            "optim.override_optimizer_config.block_size=64",
            ["optim.override_optimizer_config.block_size"],
        ),
        ("model.use_fused_kernels=True", ["model.use_fused_kernels"]),
        ("model.lora_adapter_path=own/adapter", ["model.lora_adapter_path"]),
    ],
)
def test_options_of_verl_that_no_attribute_has_are_listed(word: str, missing: list[str]) -> None:
    found = read("verl", VERL, ENGINE_SFT.replace("optim.lr=1e-5", word))
    assert not found.unknown
    assert [one.name for one in found.missing] == missing


@pytest.mark.parametrize(
    ("word", "attribute"),
    [
        ("engine.dtype=float16", "precision"),
        ("+model.override_config.num_hidden_layers=4", "model"),
    ],
)
def test_types_and_sizes_of_verl_raise_a_question(word: str, attribute: str) -> None:
    found = read("verl", VERL, ENGINE_SFT.replace("optim.lr=1e-5", word))
    assert [one.attribute for one in found.questions] == [attribute]


def test_ranks_that_ray_starts_and_eager_attention_of_verl_are_read() -> None:
    _, _, job = ENGINE_SFT.partition("-m ")
    more = "trainer.nnodes=2 trainer.n_gpus_per_node=8 +model.override_config.attn_implementation=eager"
    found = read("verl", VERL, f"python3 -m {job.replace('optim.lr=1e-5', more)}")
    assert not found.questions
    assert settings(found)["cluster.devices"] == "16"
    assert settings(found)["training.flash_attention"] == "off"


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ("", ("--set 'training.micro_batch=16 / layout.dp'", "--set training.micro_batch=4")),
        ("data.micro_batch_size_per_gpu=2 ", None),
        ("use_remove_padding=true ", None),
    ],
)
def test_the_micro_batch_of_all_replicas_raises_a_question(
    words: str, answers: tuple[str, ...] | None
) -> None:
    """verl 0.1 divides it by the replicas; later releases, which have more keys, ignore it."""
    script = f"""torchrun --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer {words}\\
  data.micro_batch_size=16 model.partial_pretrain=Qwen/Qwen3-4B data.max_length=4096 \\
  model.enable_gradient_checkpointing=True model.fsdp_config.wrap_policy.min_num_params=0
"""
    found = read("verl", VERL, script)
    assert [one.answers for one in found.questions] == ([answers] if answers else [])
    if answers is None:
        size = "2" if "per_gpu" in words else "4"
        assert settings(found)["training.micro_batch"] == size
