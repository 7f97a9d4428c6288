"""Recipes of Megatron-Bridge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from parcost import ImportFile, ImportOptions, Translation
from parcost_formats.tools.megatron import Megatron

from ..rows import mark_most, try_each
from .megatron_files import (
    DEEPSEEK,
    LLAMA,
    MACHINE,
    MIXTRAL,
    Run,
    figures,
    file_values,
    problems,
    reasons,
    settings,
    translate,
    values,
)

RECIPE = '''\
"""A recipe."""
import torch
import torch.nn.functional as F
from megatron.bridge.recipes.common import _pretrain_common

LENGTH = 8 * 1024


def llama_64gpu_config():
    """Ä."""
    cfg = _pretrain_common()
    cfg.model = GPTModelProvider(
        num_layers=80,
        hidden_size=8192,
        ffn_hidden_size=28672,
        num_attention_heads=64,
        num_query_groups=8,
        vocab_size=128256,
        seq_length=LENGTH,
        activation_func=F.silu,
        normalization="RMSNorm",
        gated_linear_unit=True,
        position_embedding_type="rope",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        add_bias_linear=False,
        share_embeddings_and_output_weights=False,
    )
    cfg.model.tensor_model_parallel_size = 4
    cfg.model.pipeline_model_parallel_size = 2 + 2
    cfg.model.virtual_pipeline_model_parallel_size = 5
    cfg.model.sequence_parallel = bool(cfg.model.tensor_model_parallel_size > 1)
    cfg.model.pipeline_dtype = torch.bfloat16
    cfg.model.recompute_granularity = None
    cfg.train.global_batch_size = 128
    cfg.train.micro_batch_size = 1
    cfg.ddp.overlap_grad_reduce = False
    cfg.mixed_precision = bf16_mixed()
    cfg.mixed_precision.grad_reduce_in_fp32 = False
    cfg.checkpoint.save = "x"
    return cfg
'''


@pytest.mark.slow
def test_a_recipe_is_read(tmp_path: Path) -> None:
    found = translate(Megatron(), "recipe.py", RECIPE)
    expected = {
        "layout.tp": "4",
        "layout.pp": "4",
        "layout.sequence_parallel": "on",
        "schedule.chunks": "5",
        "training.sequence": "8192",
        "training.global_batch": "128 sequences",
        "precision.gradients": "2 B",
        "overlap.gradients": "off",
        "model.biases": "off",
        "model.tied": "off",
    }
    assert expected.items() <= file_values(found).items()
    # The function that recipes start from sets the rest.
    assumed = settings(found)["layout.zero"]
    assert (assumed.value, "_pretrain_common" in assumed.assumption) == ("1", True)
    assert not found.unknown
    assert figures(tmp_path, RECIPE, 64, "recipe.py").figure("parameters") == 70_553_706_496


def test_an_attribute_of_a_recipe_has_its_place() -> None:
    found = translate(Megatron(), "recipe.py", RECIPE)
    places = {setting.key: setting for setting in settings(found).values()}
    for key in ("cfg.model.tensor_model_parallel_size", "cfg.train.global_batch_size"):
        assert RECIPE[places[key].start : places[key].end].startswith(f"{key} = ")
    one = places["cfg.model.num_layers"]
    assert RECIPE[one.start : one.end] == "num_layers=80"


def test_a_recipe_of_a_model_of_hugging_face() -> None:
    text = (
        "def small_config():\n"
        "    cfg = _pretrain_common()\n"
        '    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_provider()\n'
        '    cfg.mixed_precision = "bf16_with_fp8_current_scaling_mixed"\n'
        "    cfg.model.seq_length = 4096\n"
        "    return cfg\n"
    )
    found = translate(Megatron(), "recipe.py", text)
    assert "catalog.models.llama3_8b" in [use.value for use in found.uses]
    assert "catalog.precisions.fp8_current" in [use.value for use in found.uses]
    # Megatron-Bridge 067f987df, recipes/common.py: two sequences of a micro-batch, 32 of a step.
    assert values(found)["training.micro_batch"] == "2"
    assert values(found)["training.global_batch"] == "32 sequences"


def test_code_of_a_recipe_is_listed_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = (
        "import os\n"
        "def my_config(n):\n"
        f"    os.system('touch {mark}')\n"
        f"    open({str(mark)!r}, 'w')\n"
        "    cfg = base_config()\n"
        "    cfg.model.tensor_model_parallel_size = int(os.environ['TP'])\n"
        "    cfg.model.context_parallel_size = n\n"
        "    if n > 1:\n"
        "        cfg.model.pipeline_model_parallel_size = 2\n"
        "    cfg.model.warp_factor = 9\n"
        "    return cfg\n"
    )
    found = translate(Megatron(), "recipe.py", text)
    assert not mark.exists()
    why = reasons(found)
    asked = {one.attribute: one.reason for one in found.questions}
    assert "it is code, which parcost does not run" in asked["layout.tp"]
    assert "`n` has no value in this file" in asked["layout.cp"]
    assert "condition" in asked["layout.pp"]
    # What another file sets is asked for, and no default is assumed.
    assert "`base_config`: it is set in another file" in asked["precision"]
    assert {"layout.zero", "training.recompute", "training.dropout"} <= asked.keys()
    assert why["base_config"] == "it is set in another file"
    assert "cfg.model.warp_factor" in why


@try_each(
    "text, message",
    [
        ("def a(:\n", "not Python"),
        ("", "the file has no recipe"),
        ("print('hello')\n", "the file has no recipe"),
        (
            "def a():\n    cfg.model.seq_length = 1\ndef b():\n    cfg.model.seq_length = 2\n",
            "the file has 2 configurations: a, b",
        ),
        ("(" * 100_000, "not Python"),
        ("x = " + "-" * 100_000 + "1", "no"),
        ("def a():\n    cfg.model.seq_length = 9**9**9\n", ""),
        ("\x00", "not Python"),
        ("def a():\n    cfg.model.seq_length = 1if x else 2\n", ""),
    ],
)
def test_python_that_is_no_recipe_has_an_answer(text: str, message: str) -> None:
    found = Megatron().translate("recipe.py", text)
    if message:
        assert message in found.problems[0].message
    else:
        assert "training.sequence" in [one.attribute for one in found.questions]


@pytest.mark.parametrize(
    ("name", "text"),
    mark_most([("run.args", DEEPSEEK), ("train.sh", MIXTRAL), ("recipe.py", RECIPE)], 3),
)
def test_a_part_of_a_file_is_a_job_or_an_error(name: str, text: str) -> None:
    for end in range(0, len(text), 17):
        found = Megatron().translate(name, text[:end])
        assert bool(found.blocks) != bool(found.problems)


def test_the_file_is_recognized() -> None:
    importer = Megatron()
    assert importer.recognizes("run.args", LLAMA)
    assert importer.recognizes("run.sh", MIXTRAL)
    assert importer.recognizes("recipe.py", RECIPE)
    assert not importer.recognizes("notes.txt", "buy milk")


@pytest.mark.slow
def test_a_translation_is_what_is_evaluated(run_command: Run) -> None:
    options = ["--set", "cluster.devices=64", "--format", "jsonl"]
    direct = run_command("eval", *MACHINE, *options, "run.args", files={"run.args": LLAMA})
    uses = MACHINE[2:]
    spec = run_command("import", "run.args", *uses).out
    again = run_command(
        "eval",
        "job.par",
        "--format",
        "jsonl",
        files={"job.par": f"{spec}\ncluster {{ devices = 64 }}\n"},
    )
    first, second = (json.loads(done.out)["results"][0]["figures"] for done in (direct, again))
    assert {n: f["value"] for n, f in first.items()} == {n: f["value"] for n, f in second.items()}


# Precision, several recipes, and what other files set

HEAD = "from megatron.bridge.perf_recipes.llama.common import *\n"


def recipe(body: str, name: str = "job_pretrain_64gpu_h100_config") -> str:
    lines = "".join(f"    {line}\n" for line in body.split("; "))
    return f"{HEAD}def {name}() -> ConfigContainer:\n{lines}    return cfg\n"


@try_each(
    "value, entry, changes",
    [
        ('_perf_precision("bf16")', "bf16", {"precision.reduction": "2 B"}),
        ('_perf_precision("fp8_cs")', "fp8_current", {"precision.weights": "1 B"}),
        ('_perf_precision("fp8_mx")', "mxfp8", {"precision.weights": "2.0625 B"}),
        ('_perf_precision("nvfp4")', "nvfp4", {}),
        ("bf16_mixed()", "bf16", {}),
        ('"bf16-mixed"', "bf16", {}),
        ('get_mixed_precision_config("bf16_with_mxfp8_mixed")', "mxfp8", {}),
        # One layer at each end stays in bf16, as the recipe of current scaling has it.
        ("bf16_with_fp8_current_scaling_mixed()", "fp8_current", {"precision.wide_last": "1"}),
        (
            "MixedPrecisionConfig(bf16=True, fp8='hybrid', fp8_recipe='blockwise')",
            "fp8_blockwise",
            {},
        ),
        ("narrow() if WIDE else bf16_mixed()", "fp8_blockwise", {}),
    ],
)
def test_every_form_of_mixed_precision_is_read(
    value: str, entry: str, changes: dict[str, str]
) -> None:
    text = recipe(f"cfg = llama31_405b_pretrain_config(); cfg.mixed_precision = {value}")
    helper = "def narrow():\n    return bf16_with_fp8_subchannel_scaling_mixed()\nWIDE = 8 > 4\n"
    found = translate(Megatron(), "recipe.py", text + helper)
    assert f"catalog.precisions.{entry}" in [use.value for use in found.uses]
    assert changes.items() <= values(found).items()
    assert "precision" not in [one.attribute for one in found.questions]


@pytest.mark.parametrize(
    "line",
    ["cfg.mixed_precision = mine()", "cfg.mixed_precision = NAMES[0]", "cfg = theirs()"],
)
def test_an_unknown_precision_raises_a_question(line: str) -> None:
    text = recipe(f"cfg = _pretrain_common(); {line}; cfg.model.seq_length = 4096")
    found = translate(Megatron(), "recipe.py", text)
    asked = {one.attribute: one for one in found.questions}
    assert "--use catalog.precisions.bf16" in asked["precision"].answers
    assert "training.precision" not in values(found)


@try_each(
    "line, path, value",
    [
        ("cfg.model.bias_activation_fusion = False", "framework.activation", "halves"),
        ("cfg.model.persist_layer_norm = False", "persist_layer_norm", ""),
        ("cfg.model.deallocate_pipeline_outputs = False", "deallocate_pipeline_outputs", ""),
        ("cfg.model.cp_comm_type_per_layer = ['p2p', 'a2a']", "cp_comm_type_per_layer", ""),
        ("cfg.ddp.average_in_collective = False", "sharding.gradient_average", "scaled"),
        ("cfg.train.micro_batch_size = 1", "sharding.gradient_average", "scaled_experts"),
        ("cfg.train.micro_batch_size = 1", "sharding.gradient_check", "on"),
        ("_benchmark_common(cfg)", "sharding.gradient_check", "off"),
        ("cfg.rerun_state_machine.rerun_mode = 'report_determinism_stats'", "rerun_mode", ""),
    ],
)
def test_an_attribute_of_bridge_that_decides_is_read_or_listed(
    line: str, path: str, value: str
) -> None:
    body = f"cfg = llama31_405b_pretrain_config(); {line}"
    found = translate(Megatron(), "recipe.py", recipe(body))
    if value:
        assert values(found)[path] == value
    else:
        assert any(path in one.name for one in found.unknown)
        on = translate(Megatron(), "recipe.py", recipe(body.replace("False", "True")))
        assert "False" not in line or not any(path in one.name for one in on.unknown)


def test_a_recipe_starts_from_one_of_the_library() -> None:
    # 405B: the recipe of the library has tp 8, pp 8 x 2, cp 4 and 512 sequences of a step.
    text = recipe(
        'cfg = llama31_405b_pretrain_config(); cfg.mixed_precision = _perf_precision("bf16"); '
        "cfg.model.context_parallel_size = 2; _benchmark_common(cfg); "
        "_with_global_batch_size(cfg, 768)"
    )
    found = translate(Megatron(), "recipe.py", text)
    expected = {
        "cluster.devices": "64",
        "layout.tp": "8",
        "layout.pp": "8",
        "schedule.chunks": "2",
        "layout.cp": "2",
        "layout.zero": "1",
        "layout.sequence_parallel": "on",
        "training.dropout": "off",
        "training.global_batch": "768 sequences",
        "training.model": "llama31_405b",
        "precision.gradients": "2 B",
    }
    assert expected.items() <= values(found).items()
    assert "Megatron-Bridge 0.6: llama31_405b_pretrain_config" in (
        settings(found)["layout.tp"].assumption
    )
    assert not found.questions


@pytest.mark.slow
def test_one_of_several_recipes_is_chosen(run_command: Run) -> None:
    text = recipe("cfg = llama3_8b_pretrain_config()", "small_config") + recipe(
        "cfg = llama31_405b_pretrain_config()", "large_config"
    )
    options = ["--set", "cluster.devices=2048", "--recipe"]
    files = {"recipe.py": text}
    done = run_command("import", "recipe.py", "--recipe", "large_config", *MACHINE[2:], files=files)
    assert "catalog.models.llama31_405b" in done.out
    done = run_command("eval", *MACHINE, "recipe.py", *options, "larg_config")
    assert done.code == 2
    assert "did you mean `large_config`?" in done.err
    done = run_command("eval", *MACHINE, "recipe.py")
    assert "choose one: --recipe small_config | --recipe large_config" in done.err


def test_only_conditions_of_constants_are_followed() -> None:
    body = (
        "cfg = llama3_8b_pretrain_config(); "
        "big = 8 > 4; cfg.model.tensor_model_parallel_size = 4 if big else 1"
    )
    text = recipe(body).replace(
        "    return cfg",
        "    if unknown:\n        cfg.model.context_parallel_size = 4\n"
        "        cfg.model.sequence_parallel = True\n"
        "    else:\n        cfg.model.sequence_parallel = True\n    return cfg",
    )
    found = translate(Megatron(), "recipe.py", text)
    assert values(found)["layout.tp"] == "4"
    assert values(found)["layout.sequence_parallel"] == "on"  # alike in both branches
    assert [one.attribute for one in found.questions] == ["layout.cp"]


@try_each(
    "body, missing",
    [
        ("cfg = own_9b_peft_config()", "the adapters of this recipe are not in parcost's table"),
        ("cfg = _sft_common(); cfg.peft = DoRA(dim=8)", "adapters of the class `DoRA`"),
        ("cfg = qwen3_next_80b_a3b_pretrain_config()", "recipes of Qwen3-Next are not supported"),
        ("cfg = wan_14b_pretrain_config()", "diffusion models are not modeled"),
        (
            'cfg = _pretrain_common(); cfg.model = AutoBridge.from_hf_pretrained("Q/Qwen3-VL-8B")',
            "vision towers are not modeled",
        ),
        (
            "cfg = _pretrain_common(); cfg.model.hybrid_layer_pattern = 'M*M*'",
            "Mamba layers are not modeled",
        ),
        ("cfg = _pretrain_common(); cfg.mixed_precision = 'bf16_mixd'", "is not a recipe of mixed"),
    ],
)
def test_what_the_language_lacks_is_named(body: str, missing: str) -> None:
    found = Megatron().translate("recipe.py", recipe(body))
    assert missing in found.problems[0].message


def test_an_unknown_function_leaves_what_is_set_ahead_of_it_in_doubt() -> None:
    text = """\
from megatron.bridge.recipes.llama import llama3_8b_pretrain_config

def job_config() -> ConfigContainer:
    cfg = llama3_8b_pretrain_config()
    cfg.train.micro_batch_size = 2
    set_workload(cfg)
    cfg.train.global_batch_size = 64
    return cfg
"""
    found = Megatron().translate("job.py", text)
    asked = {one.attribute: one for one in found.questions}
    assert {"layout.tp", "layout.zero", "training.micro_batch"} <= set(asked)
    assert "training.global_batch" not in asked
    assert "--set training.micro_batch=2" in asked["training.micro_batch"].answers
    assert next(iter(asked["layout.zero"].answers)) == "--set layout.zero=1"  # of the recipe
    assert (
        "`set_workload`, a function of another file, may change it"
        in asked["training.micro_batch"].reason
    )


STARTED = """\
import argparse
from megatron.bridge.recipes.llama import llama3_8b_pretrain_config
from megatron.bridge.training.pretrain import pretrain

def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--wide", action="store_true")
    args = parser.parse_args()
    config = llama3_8b_pretrain_config()
    config.train.micro_batch_size = args.micro_batch_size
    config.train.global_batch_size = 64
    if args.wide:
        config.model.tensor_model_parallel_size = 8
    pretrain(config=config, forward_step_func=forward_step)

if __name__ == "__main__":
    main()
"""


def test_a_script_that_starts_its_configuration_is_read() -> None:
    """Options have their defaults, which are listed as assumed; no --wide leaves tp at 1."""
    found = settings(translate(Megatron(), "train.py", STARTED))
    micro = found["training.micro_batch"]
    assert (micro.value, micro.assumption) == (
        "4",
        "`micro_batch_size` has this default in the file",
    )
    assert found["training.global_batch"].value == "64 sequences"
    assert found["layout.tp"].value == "1"
    # Two configurations are two jobs.
    second = "    pretrain(config=llama3_8b_pretrain_config())\n\nif __name__"
    other = Megatron().translate("train.py", STARTED.replace("\nif __name__", second))
    assert "the file has no recipe" in other.problems[0].message


WORKLOAD = """\
from utils.utils import get_workload_base_config
from utils.overrides import set_workload_base_configs
from megatron.bridge.recipes.llama import llama3_70b_pretrain_config

def llama3_70b_pretrain_config_h100(precision: str = "bf16", config_variant: str = "v1"):
    base = get_workload_base_config(
        model_family_name="llama", model_recipe_name="llama3_70b", gpu="h100",
        compute_dtype=precision.upper(), task="pretrain", config_variant=config_variant,
    )
    cfg = llama3_70b_pretrain_config()
    cfg.mixed_precision = get_precision_config(precision)
    set_workload_base_configs(cfg, base)
    return cfg
"""
WORKLOADS = """\
from dataclasses import replace
from utils.utils import WorkloadBaseConfig

BASE = WorkloadBaseConfig(num_gpus=64, global_batch_size=128)
LLAMA3_70B_PRETRAIN_CONFIG_H100_BF16_V1 = replace(
    BASE, tensor_model_parallel_size=2, pipeline_model_parallel_size=8, recompute_num_layers=3,
)
"""


def workload(files: dict[str, str]) -> Translation:
    return Megatron().read(ImportFile("run.py", WORKLOAD, ImportOptions(), files.get))


def test_a_workload_beside_a_performance_recipe_is_read() -> None:
    """What it leaves out is 1, whatever the recipe of the library has: no interleaving, CP 1."""
    found = workload({"llama3_workload_base_configs.py": WORKLOADS})
    values = {path: one.value for path, one in settings(found).items()}
    expected = {
        "cluster.devices": "64",
        "layout.tp": "2",
        "layout.pp": "8",
        "layout.cp": "1",
        "layout.sequence_parallel": "on",
        "layout.zero": "1",
        "training.micro_batch": "1",
        "training.global_batch": "128 sequences",
        "training.recompute": "full",
        "recompute.layers": "3",
    }
    assert expected.items() <= values.items()
    assert "schedule.chunks" not in values
    assert not found.questions


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("other.py", "", ""),
        ("llama3_workload_base_configs.py", "_BF16_V1", "_FP8_V1"),
        ("llama3_workload_base_configs.py", "recompute_num_layers", "recompute_of_tomorrow"),
    ],
)
def test_a_workload_that_is_not_there_raises_questions(file: str, old: str, new: str) -> None:
    found = workload({file: WORKLOADS.replace(old, new) if old else WORKLOADS})
    assert {"layout.tp", "training.global_batch"} <= {one.attribute for one in found.questions}


PERFORMANCE = """\
from megatron.bridge.recipes.qwen.qwen3_moe import qwen3_30b_a3b_pretrain_config
from megatron.bridge.training.config import ConfigContainer
from utils.helpers import get_user_parallelism_and_batch_size_configs, set_basic_perf_overrides

def common(cfg: ConfigContainer) -> ConfigContainer:
    cfg.model.recompute_granularity = None

def qwen3_16gpus_config(**kwargs) -> ConfigContainer:
    tp, pp, cp, vp, ep, etp, mbs, gbs = get_user_parallelism_and_batch_size_configs(kwargs)
    cfg = qwen3_30b_a3b_pretrain_config(
        mock=True, precision_config=get_precision_config("bf16"), seq_length=2048
    )
    set_basic_perf_overrides(cfg)
    cfg.model.pipeline_model_parallel_size = 2 if pp is None else pp
    cfg.train.global_batch_size = 512 if gbs is None else gbs
    common(cfg)
    if kwargs.get("use_tokendrop", True):
        cfg.model = apply_moe_token_drop(cfg.model)
    return cfg
"""


def test_a_performance_recipe_without_arguments_has_its_own_values() -> None:
    found = translate(Megatron(), "recipe.py", PERFORMANCE)
    expected = {
        "layout.pp": "2",
        "training.global_batch": "512 sequences",
        "training.sequence": "2048",
        "routing.capacity_factor": "1.0",
    }
    got = values(found)
    assert "training.recompute" not in got  # which `common` turns off
    assert {name: got[name] for name in expected} == expected
    assert not found.questions


def test_arguments_of_a_recipe_of_the_library_replace_its_values() -> None:
    call = "llama3_8b_pretrain_config(tensor_model_parallel_size=4, global_batch_size=64{more})"
    text = f"from megatron.bridge.recipes.llama import x\ndef mine():\n    return {call}\n"
    found = translate(Megatron(), "recipe.py", text.format(more=""))
    assert values(found)["layout.tp"] == "4"
    assert values(found)["training.global_batch"] == "64 sequences"
    strange = translate(Megatron(), "recipe.py", text.format(more=", pace=3"))
    assert "layout.zero" in [one.attribute for one in strange.questions]


MATRIX = """\
ConfigContainer:
  mixed_precision: {grad_reduce_in_fp32: false}
perf_matrix:
  h100:
    num_gpus_64:
      common: {num_gpus_per_node: 8, seq_length: 8192, mbs: 1, gbs: 128, tp: 4, vp: 5, ep: 1, etp: null}
      bf16: {pp: 4, cp: 2}
      fp8_cs: {pp: 8, cp: 1}
  h200:
    num_gpus_32:
      common: {num_gpus_per_node: 8, seq_length: 4096, mbs: 2, gbs: 64, tp: 2, pp: 4, cp: 1, vp: 5}
      bf16:
      fp8_cs:
"""


def read_matrix(run: str, name: str = "llama3_70b_llm_pretrain.yaml") -> Translation:
    assert Megatron().recognizes(name, MATRIX)
    return Megatron().read(ImportFile(name, MATRIX, ImportOptions(recipe=run)))


def test_a_run_of_a_matrix_of_performance_runs_is_read() -> None:
    bf16, fp8 = (values(read_matrix(f"h100.num_gpus_64.{one}")) for one in ("bf16", "fp8_cs"))
    expected = {
        "cluster.devices": "64",
        "layout.tp": "4",
        "layout.pp": "4",
        "layout.cp": "2",
        "layout.sequence_parallel": "on",
        "schedule.chunks": "5",
        "training.model": "llama3_70b",
        "training.global_batch": "128 sequences",
        "precision.reduction": "2 B",
    }
    assert expected.items() <= bf16.items()
    assert (fp8["layout.pp"], fp8["precision.weights"]) == ("8", "1 B")


def test_an_empty_run_of_a_matrix_has_the_common_layout() -> None:
    bf16, fp8 = (values(read_matrix(f"h200.num_gpus_32.{one}")) for one in ("bf16", "fp8_cs"))
    for one in (bf16, fp8):
        assert (one["layout.tp"], one["layout.pp"], one["cluster.devices"]) == ("2", "4", "32")
        assert (one["training.sequence"], one["training.micro_batch"]) == ("4096", "2")
    assert "precision.weights" not in bf16
    assert fp8["precision.weights"] == "1 B"


def test_a_matrix_of_performance_runs_names_its_runs() -> None:
    (problem,) = read_matrix("").problems
    assert "--recipe h100.num_gpus_64.bf16 | --recipe h100.num_gpus_64.fp8_cs" in problem.help
    assert "--recipe h200.num_gpus_32.bf16 | --recipe h200.num_gpus_32.fp8_cs" in problem.help
    (problem,) = read_matrix("h100.num_gpus_64.fp8_ds").problems
    assert "did you mean `h100.num_gpus_64.fp8_cs`" in problem.message
    asked = [one.attribute for one in read_matrix("h100.num_gpus_64.bf16", "a.yaml").questions]
    assert "model" in asked


@pytest.mark.parametrize(("degree", "asks"), [(1, False), (4, True)])
def test_a_layout_of_stages_in_code_matters_with_a_pipeline(degree: int, asks: bool) -> None:
    body = (
        'cfg = _pretrain_common(); cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B")'
        f".to_megatron_provider(); cfg.model.pipeline_model_parallel_size = {degree}; "
        f"cfg.model.pipeline_model_parallel_layout = _layout({degree}, 1)"
    )
    found = translate(Megatron(), "recipe.py", recipe(body))
    assert ("schedule.stages" in {one.attribute for one in found.questions}) is asks


_LAYOUTS = """
def place(model, layout=None, *, alone=False):
    if layout is not None:
        model.pipeline_model_parallel_layout = layout
        return
    ends = ["mtp"] * (getattr(model, "mtp_num_layers", 1) or 0) + ["loss"]
    ways = {
        (1, 1): None,
        (4, 1): [["embedding"] + ["decoder"] * 10] + [["decoder"] * 9] * 2 + [["decoder"] * 8 + ends],
    }
    if alone:
        model.pipeline_model_parallel_layout = build(model)
    elif (model.pipeline_model_parallel_size, 1) in ways:
        model.pipeline_model_parallel_layout = ways[(model.pipeline_model_parallel_size, 1)]

def pipeline_layout(pp, vp):
    known = {(4, 1): [["embedding", "decoder"]] + [["decoder"] * 17] * 2 + [["decoder", "loss"]]}
    if (pp, vp) not in known:
        raise ValueError(f"{pp} and {vp} are not known")
    found = known[(pp, vp)]
    return list([list(one) for one in found])
"""


@pytest.mark.parametrize(
    ("line", "stages"),
    [
        ("place(cfg.model)", "[10, 9, 9, 8]"),
        ("cfg.model.pipeline_model_parallel_layout = pipeline_layout(4, 1)", "[1, 17, 17, 1]"),
    ],
)
def test_stages_that_a_function_of_the_file_picks_by_degrees_are_read(
    line: str, stages: str
) -> None:
    body = (
        'cfg = _pretrain_common(); cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B")'
        ".to_megatron_provider(); cfg.model.pipeline_model_parallel_size = 4; "
        f"cfg.model.mtp_num_layers = 0; {line}"
    )
    found = translate(Megatron(), "recipe.py", recipe(body) + _LAYOUTS)
    assert values(found)["schedule.stages"] == stages


@pytest.mark.parametrize(
    ("line", "multiple"),
    [
        ("cfg.model.vocab_size = 50304; cfg.model.make_vocab_size_divisible_by = 128", "1"),
        ("cfg.tokenizer.vocab_size = 50257", "128"),
        ("cfg.tokenizer.vocab_size = 50257; cfg.model.make_vocab_size_divisible_by = 64", "64"),
    ],
)
def test_the_vocabulary_of_a_tokenizer_alone_is_padded(line: str, multiple: str) -> None:
    sizes = "num_layers=4, hidden_size=512, num_attention_heads=8"
    body = f"cfg = _pretrain_common(); cfg.model = GPTModelProvider({sizes}); {line}"
    found = Megatron().translate("recipe.py", recipe(body))
    assert values(found)["layout.vocabulary_multiple"] == multiple


@pytest.mark.parametrize(
    "body",
    [
        "cfg = kimi_k2_pretrain_512gpu_h100_bf16_config()",
        "cfg = llama3_8b_pretrain_config(); cfg.optimizer, plan = distributed_muon(max_lr=3e-4)",
    ],
)
def test_a_recipe_with_muon_is_rejected(body: str) -> None:
    found = Megatron().translate("recipe.py", recipe(body))
    assert "the optimizer Muon is not modeled" in found.problems[0].message


def test_values_that_functions_of_another_file_return_raise_questions() -> None:
    body = (
        'cfg = _pretrain_common(); cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B")'
        ".to_megatron_provider(); cfg.model.tensor_model_parallel_size = pick(4); "
        "cfg.train.micro_batch_size = pick(1); cfg.model.recompute_granularity = pick()"
    )
    found = translate(Megatron(), "recipe.py", recipe(body))
    asked = {one.attribute for one in found.questions}
    assert {"layout.tp", "training.micro_batch", "training.recompute"} <= asked


@try_each(
    "model, expected",
    [
        (
            "GPTProvider175B(tensor_model_parallel_size=4)",
            {"model.layers": "96", "model.hidden": "12_288", "model.ffn": "49_152"},
        ),
        (
            "Nemotron4ModelProvider340B()",
            {"model.layers": "96", "model.kv_heads": "8", "model.gated": "off"},
        ),
        (
            "OlMoEModelProvider(num_moe_experts=32)",
            {"model.experts": "32", "model.top_k": "8", "model.vocabulary": "50_304"},
        ),
        ("KimiK2Provider()", {"training.model": "kimi_k2"}),
        ("GLM45AirModelProvider106B()", {"model.prediction_layers": "1"}),
        (
            "MLAModelProvider(num_layers=4, hidden_size=512, num_attention_heads=8)",
            {"model.kv_lora": "512", "model.q_lora": "512", "model.rope_dim": "64"},
        ),
    ],
)
def test_a_class_of_a_provider_has_its_sizes(model: str, expected: dict[str, str]) -> None:
    text = recipe(
        f"cfg = _pretrain_common(); cfg.model = {model}; cfg.tokenizer.vocab_size = 64000"
    )
    found = translate(Megatron(), "recipe.py", text)
    assert expected.items() <= values(found).items()
    assert not found.questions


@try_each(
    "model, message",
    [
        ("NemotronNanoModelProvider9Bv2()", "Mamba layers"),
        ("Nemotron3NanoProvider()", "Mamba layers"),
        ("Ministral3ModelProvider8B()", "vision towers"),
        ("Llama33NemotronSuper49BProvider()", "layers of different sizes"),
    ],
)
def test_a_class_of_other_layers_is_rejected_by_name(model: str, message: str) -> None:
    text = recipe(f"cfg.model = {model}")
    assert message in problems(text, "recipe.py")[0]


def test_a_recipe_of_one_release_says_which() -> None:
    text = "def mine():\n    cfg = olmoe_7b_pretrain_config()\n    cfg.train.train_iters = 9\n"
    found = settings(translate(Megatron(), "recipe.py", f"{text}    return cfg\n"))
    assert (found["model.experts"].value, found["layout.ep"].value) == ("64", "8")
    assert (found["model.tied"].value, found["framework.rotary"].value) == ("off", "eager")
    assert found["layout.ep"].assumption == "Megatron-Bridge 0.3: olmoe_7b_pretrain_config"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gemma2_9b_pretrain_config", "scaled"),  # against _pretrain_common
        ("gemma2_9b_sft_config", "scaled_experts"),  # against _sft_common
        ("gemma2_9b_peft_config", "scaled"),
        ("gpt_oss_20b_pretrain_config", "scaled"),
        ("llama31_405b_sft_config", "scaled_experts"),
        ("qwen3_30b_a3b_sft_config", "scaled_experts"),
        ("qwen3_8b_sft_config", "scaled"),
    ],
)
def test_the_average_of_gradients_is_that_of_the_recipe(name: str, value: str) -> None:
    """Megatron-Bridge 0.6.2: average_in_collective of the recipe, else of its base."""
    found = translate(Megatron(), "recipe.py", recipe(f"cfg = {name}()"))
    assert values(found)["sharding.gradient_average"] == value
