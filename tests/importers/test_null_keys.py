"""A null where a tool expects a number that decides the cost is a question, in every YAML."""

from __future__ import annotations

import re
from time import perf_counter

import pytest

from parcost import ImportFile
from parcost.engine.session import Session
from parcost_formats.imports.reader import importers_of

from .finetuning_files import AXOLOTL, LLAMAFACTORY
from .test_bridge_commands import SECTIONS
from .test_gpt_neox import JOB as NEOX
from .test_levanter import JOB as LEVANTER
from .test_lingua import JOB as LINGUA
from .test_litgpt import PRETRAIN as LITGPT
from .test_maxtext import RUN as MAXTEXT
from .test_nemo import NEMO_1
from .test_olmo import JOB as OLMO
from .test_yaml_configs import LLAMA as NANOTRON

ACCELERATE = """distributed_type: DEEPSPEED
deepspeed_config:
  gradient_accumulation_steps: 4
  zero_stage: 2
mixed_precision: bf16
num_processes: 8
"""
DEEPSPEED = """{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
 "zero_optimization": {"stage": 2}}"""
JOBS = {
    "nanotron": (
        NANOTRON,
        {
            "tp": "layout.tp",
            "pp": "layout.pp",
            "dp": "layout.dp",
            "zero_stage": "layout.zero",
            "num_hidden_layers": "model.layers",
            "hidden_size": "model.hidden",
            "num_attention_heads": "model.heads",
            "intermediate_size": "model.ffn",
            "vocab_size": "model.vocabulary",
        },
    ),
    "gpt_neox": (NEOX, {"model_parallel_size": "layout.tp"}),
    "levanter": (LEVANTER, {"model_axis_size": "layout.tp"}),
    "lingua": (LINGUA, {"tp_size": "layout.tp", "grad_acc_steps": "training.global_batch"}),
    "litgpt": (
        LITGPT,
        {"micro_batch_size": "training.micro_batch", "num_nodes": "cluster.devices"},
    ),
    "llamafactory": (LLAMAFACTORY, {"per_device_train_batch_size": "training.micro_batch"}),
    "axolotl": (AXOLOTL, {"micro_batch_size": "training.micro_batch"}),
    "maxtext": (
        MAXTEXT + "dcn_fsdp_parallelism: 1\ngradient_accumulation_steps: 2\n",
        {
            "ici_tensor_parallelism": "layout.tp",
            "dcn_data_parallelism": "cluster.devices",
            "dcn_fsdp_parallelism": "cluster.devices",
            "gradient_accumulation_steps": "training.global_batch",
        },
    ),
    "accelerate": (ACCELERATE, {"gradient_accumulation_steps": "training.micro_batches"}),
    "deepspeed": (DEEPSPEED, {"stage": "layout.zero"}),
    "nemo": (NEMO_1, {"tensor_model_parallel_size": "layout.tp"}),
    "olmo": (OLMO, {"max_sequence_length": "training.sequence"}),
    "megatron": (SECTIONS, {"tensor_model_parallel_size": "layout.tp"}),
}


@pytest.mark.parametrize("tool", JOBS)
@pytest.mark.parametrize("null", ["null", "~"])
def test_a_null_of_a_deciding_key_is_a_question(tool: str, null: str) -> None:
    text, keys = JOBS[tool]
    importer = importers_of(Session())[tool]
    null, ending = ("null", "json") if tool == "deepspeed" else (null, "yaml")
    for key, attribute in keys.items():
        changed = re.sub(rf"\b({key}\"?: )[\d_]+", rf"\g<1>{null}", text, count=1)
        found = importer.read(ImportFile(f"run.{ending}", changed))
        (asked,) = [one for one in found.questions if one.attribute == attribute]
        assert changed[asked.start : asked.end].replace('"', "") == f"{key}: {null}"
        assert "is null, but a number is expected" in asked.reason


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("litgpt", LITGPT.replace("max_seq_length: 2048", "max_seq_length: null")),
        ("nanotron", NANOTRON.replace("key_value_heads: 4", "key_value_heads: null")),
        (
            "gpt_neox",
            NEOX.replace('"num-layers": 8,', '"num-layers": 8, "intermediate-size": null,'),
        ),
        ("olmo", OLMO.replace("mlp_hidden_size: 8192", "mlp_hidden_size: null")),
        ("megatron", SECTIONS.replace("global_batch_size: 128", "global_batch_size: null")),
    ],
)
def test_a_null_that_the_tool_has_itself_is_no_question(tool: str, text: str) -> None:
    found = importers_of(Session())[tool].read(ImportFile("run.yaml", text))
    assert not [one for one in found.questions if "is null" in one.reason]


def test_many_nulls_end_quickly() -> None:
    importer = importers_of(Session())["nanotron"]
    for more in ("".join(f"  tp_{i}: ~\n" for i in range(4900)), f"  k: [{'~,' * 120_000}]"):
        start = perf_counter()
        importer.read(ImportFile("run.yaml", f"{NANOTRON}x:\n{more}"))
        assert perf_counter() - start < 10  # 45 s and 7 s with one reading for each null
