"""Variables of submissions to MLPerf Training."""

from __future__ import annotations

import pytest

from parcost import ImportFile, Translation
from parcost_formats.tools.mlperf import MlPerf

from .translations import assumptions, settings, uses

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
        "precision.weights": "1 B",
    }
    assert expected.items() <= settings(found).items()
    assert "precisions.fp8_current" in uses(found)
    assert assumptions(found)["layout.sequence_parallel"].startswith("MLPerf Training")
    assert [one.attribute for one in found.questions] == ["training.recompute"]


@pytest.mark.parametrize(("value", "start"), [("True", "step"), ("False", "arrival")])
def test_stages_gather_together_or_in_turn(value: str, start: str) -> None:
    text = f"{JOB}export ALIGN_PARAM_GATHER={value}\n"
    assert settings(read(text))["overlap.gather_start"] == start
    whole = text.replace("INTERLEAVED_PIPELINE=8", "INTERLEAVED_PIPELINE=1")  # stages in one piece
    assert settings(read(whole))["overlap.gather_start"] == "arrival"
    alone = text.replace("PIPELINE_MODEL_PARALLEL=8", "PIPELINE_MODEL_PARALLEL=1")
    assert "overlap.gather_start" not in settings(read(alone))


def test_buckets_have_elements_of_two_bytes() -> None:
    text = f"{JOB}export BUCKET_SIZE=768000000\n"
    assert settings(read(text))["overlap.bucket"] == "768_000_000 * 2 B"


def test_what_missing_files_set_raises_questions() -> None:
    asked = [one.attribute for one in read(JOB).questions]
    assert asked == ["layout.zero", "training.recompute", "precision"]
    asked = [one.attribute for one in read(JOB.replace("_405b", "_own")).questions]
    assert asked[:2] == ["model", "training.sequence"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("export FP8=True\n", "fp8_delayed"),
        ("export FP8=True FP8_RECIPE=delayed\n", "fp8_delayed"),
    ],
)
def test_recipes_of_eight_bits_are_read(line: str, answer: str) -> None:
    assert f"precisions.{answer}" in uses(read(f"{JOB}{line}"))


def test_adapters_are_an_error() -> None:
    text = JOB.replace("TENSOR_MODEL_PARALLEL", "TP").replace("PIPELINE_MODEL_PARALLEL", "PP")
    (problem,) = read(text).problems
    assert "adapters" in problem.message
