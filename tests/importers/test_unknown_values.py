"""A text value that decides the cost, replaced by a word that no release of a tool has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from parcost import Importer, Translation
from parcost.language.errors import SpecError
from parcost.language.text import Source
from parcost.plugins.discovery import load
from parcost_apps.testing.renaming import STRANGE
from parcost_formats.imports.translation import translate

from .test_gpt_neox import JOB as NEOX
from .test_renamed_keys import FILES

#: Keys whose words decide the cost, with a value that the tool has.
WORDS: Mapping[str, Mapping[str, Any]] = {
    "accelerate": {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "dynamo_config.dynamo_backend": "INDUCTOR",
        "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    },
    "automodel": {
        "model.attn_implementation": "sdpa",
        "loss_fn._target_": "nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy",
        "distributed.offload_policy._target_": "torch.distributed.fsdp.CPUOffloadPolicy",
        "recipe": "TrainFinetuneRecipeForNextTokenPrediction",
        "distributed.strategy": "fsdp2",
    },
    "axolotl": {"attn_implementation": "sdpa", "optimizer": "adamw_torch", "adapter": "lora"},
    "gpt_neox": {
        "norm": "rmsnorm",
        "activation": "gelu",
        "mlp_type": "regular",
        "attention_config": [[["flash"], "all"]],
        "expansion_factor": 4,
        "optimizer.type": "Adam",
    },
    "levanter": {
        "model.attn_backend": "vanilla",
        "model.mlp_scale": 4,
        "model.activation_function": "gelu",
        "trainer.tensor_parallel_axes": ["mlp"],
        "trainer.fsdp_axis": "embed",
        "trainer.mp": "f32",
    },
    "lingua": {
        "model.ffn_dim_multiplier": 1.5,
        "distributed.fsdp_type": "full_shard",
        "distributed.model_dtype": "bf16",
        "distributed.compile": True,
    },
    "litgpt": {"precision": "bf16-mixed"},
    "llamafactory": {"stage": "sft", "flash_attn": "fa2", "finetuning_type": "full"},
    "llamafactory_v1": {"model_class": "llm", "dist_config.name": "fsdp2"},
    "llm_foundry": {
        "fsdp_config.sharding_strategy": "FULL_SHARD",
        "fsdp_config.mixed_precision": "PURE",
        "fsdp_config.backward_prefetch": "BACKWARD_PRE",
        "model.attn_config.attn_impl": "flash",
    },
    "maxtext": {
        "attention": "flash",
        "attention_type": "global",
        "hardware": "gpu",
        "compile_topology": "v5e-256",
        "capacity_factor": 1.25,
        "remat_policy": "full",
        "dtype": "bfloat16",
    },
    "nanotron": {
        "model.model_config.hidden_act": "silu",
        "model.model_config._attn_implementation": "sdpa",
        "parallelism.pp_engine": "1f1b",
        "parallelism.tp_mode": "ALL_REDUCE",
    },
    "nemo": {
        "model.activations_checkpoint_method": "uniform",
        "model.activations_checkpoint_granularity": "full",
        "model.optim.name": "distributed_fused_adam",
        "trainer.precision": "bf16",
    },
    "olmo": {
        "compile": {},
        "fsdp.wrapping_strategy": "by_block",
        "fsdp.sharding_strategy": "FULL_SHARD",
        "activation_checkpointing": "whole_layer",
    },
    "torchtune": {"dtype": "bf16", "loss._component_": "torch.nn.CrossEntropyLoss"},
}
ROWS = [(tool, key) for tool, keys in WORDS.items() for key in keys]
_IMPORTERS: dict[str, Importer] = {
    name: found[1] for name, found in load().offers("importers").items()
}


def read_with(tool: str, key: str, value: Any) -> Translation:
    """Return the job of a tool in which *key* has *value*."""
    job = yaml.safe_load(NEOX if tool == "gpt_neox" else FILES[tool][1])
    at = job
    *sections, last = key.split(".")
    for section in sections:
        if not isinstance(at.get(section), dict):
            at[section] = {}
        at = at[section]
    at.pop(last.replace("_", "-"), None)  # GPT-NeoX has either form
    at[last] = value
    return translate(_IMPORTERS[tool], Source("run.yaml", yaml.safe_dump(job)))


def reports(found: Translation) -> set[str]:
    """Return what a translation asks for, and the keys that it could not use."""
    asked = {f"{one.attribute}: {one.reason}" for one in found.questions}
    return asked | {one.name for one in (*found.unknown, *found.missing)}


@pytest.mark.parametrize(("tool", "key"), ROWS)
def test_an_unknown_word_is_an_error_or_a_question(tool: str, key: str) -> None:
    known = reports(read_with(tool, key, WORDS[tool][key]))
    try:
        found = reports(read_with(tool, key, STRANGE))
    except SpecError:
        return
    assert found - known
