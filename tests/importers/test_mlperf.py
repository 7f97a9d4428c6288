"""Variables of submissions to MLPerf Training."""

from __future__ import annotations

import pytest

from parcost import ImportFile, Translation
from parcost_formats.tools.mlperf import MlPerf

from ..rows import try_each
from .translations import assumptions, names, settings, uses

JOB = """\
source $(dirname ${BASH_SOURCE[0]})/config_common.sh
source $(dirname ${BASH_SOURCE[0]})/config_common_405b.sh
export MINIBS=144
export TENSOR_MODEL_PARALLEL=4
export PIPELINE_MODEL_PARALLEL=8
export INTERLEAVED_PIPELINE=8
export CONTEXT_PARALLEL=2
export MICRO_BATCH_SIZE=1
export TP_COMM_OVERLAP=True
export DGXNNODES=64
export DGXNGPU=8
"""
COMMON = """\
export USE_DIST_OPTIMIZER=True
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
export FP8=True
export FP8_RECIPE="tensorwise"
export FP8_PARAM_GATHER=True
"""


def read(text: str, **neighbors: str) -> Translation:
    beside = {f"{name}.sh": text for name, text in neighbors.items()}
    assert MlPerf().recognizes("config_x.sh", text)
    return MlPerf().read(ImportFile("config_x.sh", text, neighbor=beside.get))


def test_files_that_a_configuration_sources_are_read() -> None:
    found = read(JOB, config_common=COMMON, config_common_405b="export MAX_STEPS=5\n")
    expected = {
        "cluster.devices": "64 * 8",
        "layout.tp": "4",
        "layout.pp": "8",
        "layout.cp": "2",
        "layout.zero": "1",
        "schedule.chunks": "8",
        "schedule.kind": "interleaved",
        "training.global_batch": "(144 * layout.dp) sequences",
        "training.model": "llama31_405b",
        "training.sequence": "8192",
        "overlap.tensor": "pipelined",
    }
    assert expected.items() <= settings(found).items()
    # Parameters are gathered in 8 bits, and gradients reduced in 16.
    assert "precisions.fp8_current_nemo" in uses(found)
    assert assumptions(found)["layout.sequence_parallel"].startswith("MLPerf Training")
    assert [one.attribute for one in found.questions] == ["training.recompute"]


@pytest.mark.parametrize(("value", "start"), [("True", "step"), ("False", "arrival")])
def test_stages_gather_together_or_in_turn(value: str, start: str) -> None:
    text = f"{JOB}export ALIGN_PARAM_GATHER={value}\n"
    assert settings(read(text))["overlap.gather_start"] == start
    # Of stages in one piece, hooks gather in turn, or what a schedule is to gather has to wait.
    whole = settings(read(text.replace("INTERLEAVED_PIPELINE=8", "INTERLEAVED_PIPELINE=1")))
    in_turn = value == "False"
    assert whole.get("overlap.gather_start") == ("arrival" if in_turn else None)
    assert whole.get("overlap.parameters") == (None if in_turn else "off")


@pytest.mark.parametrize(("value", "parameters"), [("True", "off"), ("False", None)])
def test_without_stages_aligned_gathers_hide_under_nothing(
    value: str, parameters: str | None
) -> None:
    text = JOB.replace("PIPELINE_MODEL_PARALLEL=8", "PIPELINE_MODEL_PARALLEL=1")
    text = text.replace("INTERLEAVED_PIPELINE=8", "INTERLEAVED_PIPELINE=null")
    found = settings(read(f"{text}export ALIGN_PARAM_GATHER={value}\n"))
    assert "overlap.gather_start" not in found
    assert found.get("overlap.parameters") == parameters


def test_buckets_have_elements_of_two_bytes() -> None:
    text = f"{JOB}export BUCKET_SIZE=768000000\n"
    assert settings(read(text))["overlap.bucket"] == "768_000_000 * 2 B"


def test_what_missing_files_set_raises_questions() -> None:
    asked = [one.attribute for one in read(JOB).questions]
    assert asked == ["layout.zero", "precision", "training.recompute"]
    asked = [one.attribute for one in read(JOB.replace("_405b", "_own")).questions]
    assert asked[:2] == ["model", "training.sequence"]


@try_each(
    "line, answer",
    [
        ("export FP8=True FP8_RECIPE=delayed\n", "fp8_delayed"),
        ("export FP8=True FP8_RECIPE=delayed FP8_PARAM_GATHER=True\n", "fp8_delayed_nemo"),
        ("export FP8=True FP8_RECIPE=mxfp8 FP8_PARAM_GATHER=True\n", "mxfp8_nemo"),
        ("export FP8=False\n", "bf16_nemo"),
    ],
)
def test_recipes_of_eight_bits_are_read(line: str, answer: str) -> None:
    found = read(f"{JOB}{line}")
    assert f"precisions.{answer}" in uses(found)
    # pretrain.py reduces gradients of 2 bytes; catalogue entries of NeMo have them already.
    assert settings(found).get("precision.gradients", "2 B") == "2 B"
    assert ("precision.gradients" in settings(found)) == (not answer.endswith("_nemo"))
    # A cast of gradients (2 + 4), Adam (4 + 2 x 12), and a cast of the master (4 + 2).
    assert settings(found).get("precision.update_traffic", "40 B") == "40 B"
    assert settings(found).get("precision.norm_traffic", "12 B") == "12 B"


def test_a_recipe_that_no_file_names_raises_a_question() -> None:
    (question,) = [
        one for one in read(f"{JOB}export FP8=True\n").questions if one.attribute == "precision"
    ]
    assert "--use catalog.precisions.mxfp8_nemo" in question.answers


MIXTURE = """\
source $(dirname ${BASH_SOURCE[0]})/config_common.sh
export MINIBS=2
export TENSOR_MODEL_PARALLEL=2
export PIPELINE_MODEL_PARALLEL=1
export CONTEXT_PARALLEL=2
export CP_COMM_TYPE=a2a
export EXPERT_PARALLEL=8
export EXPERT_TENSOR_PARALLEL=1
export MOE_TOKEN_DISPATCHER_TYPE=flex
export MOE_FLEX_DISPATCHER_BACKEND=hybridep
export NUM_DISTOPT_INSTANCES=2
export INTERLEAVED_PIPELINE=null
export DGXNNODES=4
export DGXNGPU=8
"""
SIZED = """\
export MODEL_SIZE=20b
export USE_DIST_OPTIMIZER=True
export FP8=True
export FP8_PARAM_GATHER=True
"""


def test_the_size_of_a_common_file_names_a_benchmark_with_experts() -> None:
    found = read(MIXTURE, config_common=SIZED)
    assert not found.questions
    assert not found.problems
    expected = {
        "layout.ep": "8",
        "layout.etp": "1",
        "routing.dispatcher": "hybridep",
        "context.algorithm": "ulysses",
        "sharding.shard": "layout.dp * layout.cp / 2",
        "training.sequence": "8192",
        "training.recompute": "none",
        "model.vocabulary": "128_256",  # of its tokenizer, and not of the published model
    }
    assert expected.items() <= settings(found).items()
    assert {"models.gpt_oss_20b", "precisions.fp8_current_nemo"} <= set(uses(found))
    # Without its common file nothing is known of the model, and nothing of recomputation.
    asked = [one.attribute for one in read(MIXTURE).questions]
    assert asked == ["model", "training.sequence", "layout.zero", "precision", "training.recompute"]


@try_each(
    "line, attribute, value",
    [
        ("OVERWRITTEN_NUM_LAYERS=12", "model.layers", "12"),
        ("ENCODER_SEQ_LENGTH=4096", "training.sequence", "4096"),
        ("GLOBAL_BATCH_SIZE=96", "training.global_batch", "96 sequences"),
        ("ACT_CKPT_GRANULARITY=full", "training.recompute", "full"),
        ('RECOMPUTE_MODULES="mlp layernorm"', "recompute.mlp", "on"),
        ('RECOMPUTE_MODULES="core_attn"', "training.recompute", "selective"),
        ("MOE_EXPERT_CAPACITY_FACTOR=1.5", "routing.capacity_factor", "1.5"),
        ("OVERLAP_MOE_EXPERT_PARALLEL_COMM=True", "routing.hide", "pair"),
        ("MOE_ROUTER_FORCE_LOAD_BALANCING=True", "routing.distribution", "uniform"),
        ("GRAD_ACCUM_FUSION=False", "kernels.fused_accumulation", "off"),
        ("OVERWRITTEN_NUM_LAYERS=12", "sharding.gradient_average", "scaled"),
        ("AVERAGE_IN_COLLECTIVE=True", "sharding.gradient_average", "scaled_experts"),
        ("AVERAGE_IN_COLLECTIVE=True", "sharding.gradient_check", "off"),
        ("MOE_PERMUTE_FUSION=False", "framework.permutation", "eager"),
        ("MOE_ROUTER_FUSION=True", "framework.router", "fused"),
        ("MCORE_CUDA_GRAPH=1", "kernels.cuda_graphs", "layer"),
        ("MCORE_CUDA_GRAPH=1 FULL_CUDA_GRAPH=1", "kernels.cuda_graphs", "iteration"),
        ("CUDA_GRAPH_IMPLEMENTATION=local", "kernels.cuda_graphs", "layer"),
        (
            "CUDA_GRAPH_IMPLEMENTATION=local CUDA_GRAPH_SCOPE=full_iteration",
            "kernels.cuda_graphs",
            "iteration",
        ),
    ],
)
def test_a_variable_that_decides_is_read(line: str, attribute: str, value: str) -> None:
    found = read(f"{MIXTURE}export {line}\n", config_common=SIZED)
    assert settings(found)[attribute] == value


@pytest.mark.parametrize(
    ("line", "attribute"),
    [
        ("PIPELINE_LAYOUT='Et|tL'", "schedule.stages"),
        ("USE_MCORE_FSDP=True", "layout.zero"),
        ("RECOMPUTE_MODULES=elsewhere", "training.recompute"),
    ],
)
def test_a_variable_that_is_not_read_raises_a_question(line: str, attribute: str) -> None:
    found = read(f"{MIXTURE}export {line}\n", config_common=SIZED)
    assert [one.attribute for one in found.questions] == [attribute]


@pytest.mark.parametrize("line", ["CUDA_GRAPH_IMPLEMENTATION=none", "MCORE_CUDA_GRAPH=0"])
def test_graphs_that_are_off_capture_nothing(line: str) -> None:
    found = read(f"{MIXTURE}export {line} CUDA_GRAPH_SCOPE=full\n", config_common=SIZED)
    assert "kernels.cuda_graphs" not in settings(found)


@try_each(
    "line, is_listed, is_known",
    [
        ("FIRST_LAST_LAYERS_BF16=True", True, True),
        ("FIRST_LAST_LAYERS_BF16=False", False, True),
        ("DEFER_EMBEDDING_WGRAD_COMPUTE=True", True, True),
        ("PATCH_GEGLU_GRAPH_SAFE=True", True, True),
        ("CE_FUSION_IMPL=te", False, True),
        ("CE_FUSION_IMPL=native", True, True),
        ("LR_WARMUP_STEPS=32", False, True),
        ("NVTE_NORM_FWD_USE_CUDNN=1", False, True),
        ("SHARD_THE_EMBEDDING=True", False, False),
    ],
)
def test_a_variable_is_listed_unless_it_decides_nothing(
    line: str, is_listed: bool, is_known: bool
) -> None:
    """Every variable that was not read was listed as without effect."""
    found = read(f"{MIXTURE}export {line}\n", config_common=SIZED)
    name = line.partition("=")[0]
    assert (name in names(found.missing), name not in names(found.unknown)) == (is_listed, is_known)


def test_moments_of_deepseek_are_narrow_unless_the_file_says_otherwise() -> None:
    for line, is_listed in (("", True), ("export USE_PRECISION_AWARE_OPTIMIZER=False\n", False)):
        found = read(f"{MIXTURE}{line}", config_common=SIZED.replace("20b", "671b"))
        assert ("USE_PRECISION_AWARE_OPTIMIZER" in names(found.missing)) == is_listed


def test_the_name_of_a_sourced_file_is_its_recipe() -> None:
    text = MIXTURE.replace("config_common.sh", "config_common_mxfp8.sh")
    found = read(text, config_common_mxfp8=SIZED.replace("20b", "671b"))
    assert {"models.deepseek_v3", "precisions.mxfp8_nemo"} <= set(uses(found))
    assert settings(found)["model.prediction_layers"] == "1"
    assert settings(found)["training.sequence"] == "4096"


def test_adapters_are_an_error() -> None:
    text = JOB.replace("TENSOR_MODEL_PARALLEL", "TP").replace("PIPELINE_MODEL_PARALLEL", "PP")
    (problem,) = read(text).problems
    assert "adapters" in problem.message
