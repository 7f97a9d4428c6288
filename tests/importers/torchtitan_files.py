"""A configuration of torchtitan in TOML, and its translation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.torchtitan import Torchtitan

from .megatron_files import translate

TOML = """\
# 256 devices: 32 x 8
[job]
description = "a # in a text"

[model]
name = "llama3"
flavor = "70B"

[training]
local_batch_size = 8
global_batch_size = 256   # of a step
seq_len = 8_192
steps = 1000

[parallelism]
data_parallel_shard_degree = 32
tensor_parallel_degree = 8

[activation_checkpoint]
mode = "full"
"""


def read(text: str, name: str = "run.toml") -> Translation:
    return translate(Torchtitan(), name, text)


Run = Callable[..., Any]


MACHINE = (
    *("--from", "torchtitan", "--use", "catalog.devices.h100_sxm"),
    *("--use", "catalog.fabrics.hgx_h100"),
)


PYTHON = '''\
"""Ä configuration."""
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

LENGTH = 8192


def llama3_70b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("70B"),
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=8 * LENGTH,
            num_tokens_per_train_step=256 * LENGTH,
            max_context_length=LENGTH,
            steps=1000,
        ),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=32,
            tensor_parallel_degree=8,
        ),
        activation_checkpoint=FullAC.Config(),
    )
'''


def problems(text: str, name: str = "run.toml") -> list[str]:
    return [problem.message for problem in Torchtitan().translate(name, text).problems]


def questions(found: Translation) -> dict[str, str]:
    return {one.attribute: one.reason for one in found.questions}


REGISTRY = """\
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer
from . import model_registry


def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=2, seq_len=8192),
    )


def llama3_8b_narrow() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry(
        "8B", converters=[NVFP4LinearConverter.Config(fqns=["layers"])]
    )
    return config


def llama3_8b_float8() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry("8B", converters=[Float8LinearConverter.Config()])
    return config


def llama3_8b_float8_by_tensor() -> Trainer.Config:
    config = llama3_8b()
    config.model_spec = model_registry(
        "8B",
        converters=[
            Float8LinearConverter.Config(
                recipe_name="tensorwise", enable_fsdp_float8_all_gather=True
            )
        ],
    )
    return config


def llama3_8b_muon() -> Trainer.Config:
    config = llama3_8b()
    config.optimizer = Muon.Config(lr=1e-3)
    return config


def llama3_8b_pp() -> Trainer.Config:
    config = llama3_8b()
    config.parallelism = ParallelismConfig(pipeline_parallel_degree=stages())
    return config
"""


def of_recipe(
    recipe: str, name: str = "models/llama3/config_registry.py", family: str = ""
) -> Translation:
    options = ImportOptions(recipe=recipe, family=family)
    text = REGISTRY.replace("llama3_", "m_") if name.endswith("mine.py") else REGISTRY
    return Torchtitan().read(ImportFile(name, text, options))
