"""Scripts of MindSpeed-LLM and of Pai-Megatron-Patch: flags that Megatron-LM does not have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from parcost import Translation
from parcost_formats.tools.megatron import Megatron

from ..rows import try_each
from .megatron_files import figures, settings, small, values

#: A model with the layers of DeepSeek-V3, in small: 13 layers and three that do nothing.
LATENT = """\
--num-layers 16 --noop-layers 13,14,15 --hidden-size 256 --ffn-hidden-size 768
--num-attention-heads 8 --multi-head-latent-attention --qk-rope-head-dim 16 --qk-nope-head-dim 32
--q-lora-rank 96 --kv-lora-rank 64 --v-head-dim 32 --qk-layernorm --mla-fa-without-pad
--spec mindspeed_llm.tasks.models.spec.deepseek_spec layer_spec
--num-experts 32 --moe-router-topk 4 --moe-intermediate-size 128 --n-shared-experts 2
--first-k-dense-replace 3 --moe-layer-freq 1 --moe-token-dispatcher-type alltoall_seq
--moe-grouped-gemm --gemm-gradient-accumulation-fusion --moe-tp-extend-ep
--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --expert-model-parallel-size 4
--sequence-parallel --use-distributed-optimizer --seq-length 512 --micro-batch-size 1
--global-batch-size 64 --padded-vocab-size 1024 --swiglu --use-fused-swiglu --normalization RMSNorm
--use-fused-rmsnorm --position-embedding-type rope --use-fused-rotary-pos-emb --use-flash-attn
--disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0.0
--hidden-dropout 0.0 --bf16 --no-shared-storage
"""
DENSE = """\
--num-layers 8 --hidden-size 256 --ffn-hidden-size 512 --num-attention-heads 8 --seq-length 512
--micro-batch-size 1 --global-batch-size 16 --padded-vocab-size 1024 --normalization RMSNorm
--position-embedding-type rope --swiglu --use-fused-rmsnorm --use-fused-swiglu
--use-fused-rotary-pos-emb --use-flash-attn --disable-bias-linear --bf16
--untie-embeddings-and-output-weights --attention-dropout 0.0 --hidden-dropout 0.0
"""
GROUPED = "--group-query-attention --num-query-groups 2 --context-parallel-size 2"
#: The job of LATENT, without the layers that do nothing.
LATENT_SPEC = """
use catalog.frameworks.megatron_core
use catalog.precisions.bf16
model small {
  layers = 13, hidden = 256, ffn = 768, heads = 8, vocabulary = 1024
  q_lora = 96, kv_lora = 64, nope_dim = 32, rope_dim = 16, v_dim = 32
  experts = 32, top_k = 4, expert_ffn = 128, dense_first = 3
  shared_experts = 2, shared_ffn = 128
  gated = on, norm = rms, biases = off, tied = off
}
layout { tp = 2, pp = 2, ep = 8, etp = 1, sequence_parallel = on, zero = 1 }
schedule { stages = [8, 5] }
training {
  precision = bf16, framework = megatron_core, sequence = 512, micro_batch = 1
  global_batch = 64 sequences, dropout = off
}
routing { dispatcher = alltoall }
kernels { grouped_experts = on }
"""
PAI_SPEC = """
use catalog.frameworks.megatron_core
use catalog.precisions.bf16
use catalog.models.deepseek_v2_lite
layout { ep = 4, zero = 1, vocabulary_multiple = 128 }
training {
  precision = bf16, framework = megatron_core, sequence = 4096, micro_batch = 1
  global_batch = 64 sequences, dropout = off
}
"""


def read(text: str) -> Translation:
    found = Megatron().translate("run.args", text)
    assert not found.problems, [one.message for one in found.problems]
    return found


def problems(text: str) -> list[str]:
    return [one.message for one in Megatron().translate("run.args", text).problems]


def numbers(result: Any) -> dict[str, float]:
    """Return the figures of a report by name: step time, memory, parameters and so on."""
    return {figure.name: figure.value for _, figure in result.figures}


def named_gaps(found: Translation) -> dict[str, str]:
    """Return why keys that decide a cost are not read."""
    return {key.name: key.reason for key in found.unknown}


def test_layers_experts_and_ranks_of_a_mixture_are_those_that_run() -> None:
    found = read(LATENT)
    expected = {
        "model.layers": "13",
        "model.dense_first": "3",
        "model.expert_ffn": "128",
        "model.shared_ffn": "256",  # two of 128
        "model.nope_dim": "32",
        "model.rope_dim": "16",
        "model.kv_lora": "64",
        "schedule.stages": "[8, 5]",  # of eight layers each, the last three of which do nothing
        "layout.ep": "8",  # ranks of tensor parallelism have whole experts
        "layout.etp": "1",
        "routing.dispatcher": "alltoall",
    }
    assert expected.items() <= values(found).items()
    assert "model.moe_every" not in values(found)
    assert not found.questions
    assert not found.unknown
    assert "of them 3 without computation" in settings(found)["model.layers"].assumption


@pytest.mark.slow
def test_a_whole_job_of_mindspeed_has_the_report_of_its_spec(tmp_path: Path) -> None:
    found = figures(tmp_path, LATENT, 16)
    assert numbers(found) == numbers(figures(tmp_path, LATENT_SPEC, 16, "small.par"))


@try_each(
    "flags, kinds",
    [
        ("--first-k-dense-replace 0 --moe-layer-freq 1", {}),
        ("--first-k-dense-replace -1 --moe-layer-freq -1", {}),
        ("--first-k-dense-replace 2 --moe-layer-freq 1", {"model.dense_first": "2"}),
        ("--first-k-dense-replace 1", {"model.dense_first": "1"}),
        # The layer that does nothing is the second, which is dense.
        ("--first-k-dense-replace 2 --noop-layers 1,7", {"model.dense_first": "1"}),
    ],
)
def test_the_first_layers_have_no_experts(flags: str, kinds: dict[str, str]) -> None:
    found = values(read(f"{DENSE} --num-experts 4 {flags}"))
    names = ("model.dense_first", "model.moe_every")
    assert {name: found[name] for name in names if name in found} == kinds


@try_each(
    "flags, stages, chunks",
    [
        ("--pipeline-model-parallel-size 4 --num-layer-list 1,2,3,2", "[1, 2, 3, 2]", None),
        ("--pipeline-model-parallel-size 4 --noop-layers 0,7", "[1, 2, 2, 1]", None),
        (
            "--num-layers-per-virtual-pipeline-stage 2 --pipeline-model-parallel-size 2 --noop-layers 7",
            "[2, 2, 2, 1]",
            "2",
        ),
        (
            "--pipeline-model-parallel-size 2 --schedules-method dualpipev --noop-layers 6,7",
            "[2, 2, 2, 0]",
            "2",
        ),
    ],
)
def test_stages_have_the_layers_that_run(flags: str, stages: str, chunks: str | None) -> None:
    found = values(read(f"{DENSE} {flags}"))
    assert found["schedule.stages"] == stages
    assert found.get("schedule.chunks") == chunks


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("megatron_cp_algo", {"context.algorithm": "ring"}),
        ("ulysses_cp_algo", {"context.algorithm": "ulysses"}),
        (
            "hybrid_cp_algo --ulysses-degree-in-cp 2",
            {"context.algorithm": "hybrid", "context.ulysses": "2"},
        ),
    ],
)
def test_the_algorithm_of_context_parallelism_is_read(flags: str, expected: dict[str, str]) -> None:
    text = f"{DENSE} --context-parallel-size 4 --context-parallel-algo {flags}"
    assert expected.items() <= values(read(text)).items()


def test_the_algorithm_is_a_question_as_releases_differ() -> None:
    (question,) = read(f"{DENSE} --context-parallel-size 4").questions
    assert question.attribute == "context.algorithm"
    assert "--set context.algorithm=ring" in question.answers


def test_kernels_are_fused_where_a_flag_says_so() -> None:
    assert not [path for path in values(read(DENSE)) if path.startswith("framework.")]
    plain = f"{DENSE} --no-shared-storage"
    for flag in ("--use-fused-rmsnorm", "--use-fused-swiglu", "--use-flash-attn"):
        plain = plain.replace(flag, "")
    found = settings(read(plain))
    assert found["framework.norm"].value == "eager"
    assert found["framework.activation"].value == "halves"
    assert found["kernels.attention"].value == "unfused"
    assert "without --use-flash-attn" in found["kernels.attention"].assumption


def test_recomputed_layers_of_a_device_are_shared_out_over_its_stages() -> None:
    text = (
        f"{DENSE} --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 "
        "--recompute-granularity full --recompute-method block --recompute-num-layers 2"
    )
    assert values(read(text))["recompute.layers"] == "2"
    found = values(read(f"{text} --enable-recompute-layers-per-pp-rank"))
    assert found["recompute.layers"] == "1"


def test_what_is_not_modelled_is_named() -> None:
    found = named_gaps(
        read(f"{DENSE} --swap-optimizer --reuse-fp32-param --use-ascend-coc --variable-seq-lengths")
    )
    assert set(found) == {
        *("--swap-optimizer", "--reuse-fp32-param", "--use-ascend-coc", "--variable-seq-lengths")
    }
    assert "not modeled" in found["--swap-optimizer"]
    padded = named_gaps(read(LATENT.replace(" --mla-fa-without-pad", "")))
    assert "--mla-fa-without-pad" in padded["--multi-head-latent-attention"]


@try_each(
    "flags, key, reason",
    [
        (
            "--enable-high-availability",
            "--enable-high-availability",
            "keeps a copy of the optimizer state",
        ),
        ("--enable-high-availability --distributed-optimizer-no-replica", "", ""),
        ("--optimizer-selection fused_ema_adamw", "--optimizer-selection", "two moments"),
        ("--optimizer-selection fused_torch_adamw", "", ""),
        ("--use-ema", "--use-ema", "average of the weights"),
        ("--moe-permutation-async-comm", "--moe-permutation-async-comm", "not modeled"),
        (
            "--num-experts 4 --moe-grouped-gemm",
            "--moe-grouped-gemm",
            "without --gemm-gradient-accumulation-fusion",
        ),
        ("--num-experts 4 --moe-grouped-gemm --gemm-gradient-accumulation-fusion", "", ""),
        (
            "--gemm-gradient-accumulation-fusion --no-gradient-accumulation-fusion",
            "--gemm-gradient-accumulation-fusion",
            "only experts",
        ),
        # Keys and values of grouped queries are repeated by default.
        (f"{GROUPED} --context-parallel-algo ulysses_cp_algo", "--context-parallel-algo", "copies"),
        (
            f"{GROUPED} --context-parallel-algo ulysses_cp_algo --kv-head-repeat-before-uly-alltoall",
            "--kv-head-repeat-before-uly-alltoall",
            "copies",
        ),
        (f"{GROUPED} --context-parallel-algo megatron_cp_algo", "", ""),
        ("--kv-head-repeat-before-uly-alltoall", "", ""),
    ],
)
def test_flags_that_decide_memory_or_time_are_named(flags: str, key: str, reason: str) -> None:
    found = named_gaps(read(f"{DENSE} {flags}"))
    assert set(found) == ({key} if key else set())
    assert reason in found.get(key, "")


@pytest.mark.parametrize("flag", ["--use-fused-rmsnorm", "--n-shared-experts 1"])
def test_one_flag_that_forks_share_does_not_make_a_script_of_mindspeed(flag: str) -> None:
    found = read(small("--micro-batch-size 1 --global-batch-size 8 --num-experts 4", flag))
    assert "kernels.attention" not in values(found)
    assert named_gaps(found).keys() == {flag.partition(" ")[0]}


@try_each(
    "flags, message",
    [
        (f"--num-layers 8 --num-experts 8 --first-k-dense-replace {'1' * 5000}", "a whole number"),
        ("--num-layers 999999999 --num-experts 8 --first-k-dense-replace 3", "at most 100,000"),
        (
            "--num-layers 99999999 --pipeline-model-parallel-size 99999999 --noop-layers 5",
            "at most 100,000",
        ),
        (f"--num-layers 8 --noop-layers 000000000{'1' * 5000}", "layer numbers from 0 to 8 - 1"),
        ("--num-layers 8 --pipeline-model-parallel-size -2 --noop-layers 5", "are not divisible"),
    ],
)
def test_numbers_too_large_are_reported_at_once(flags: str, message: str) -> None:
    text = DENSE.replace("--num-layers 8", flags)
    start = time.process_time()
    assert any(message in one for one in problems(text))
    assert time.process_time() - start < 2  # seconds


@try_each(
    "flags, message",
    [
        ("--lora-target-modules linear_qkv", "adapters of this tool are not supported"),
        ("--stage dpo", "preference training"),
        ("--tp-2d --tp-x 2 --tp-y 2", "two dimensions"),
        ("--enable-dsa-indexer", "sparse attention"),
        ("--spec mindspeed_llm.tasks.models.spec.hunyuan_spec layer_spec", "another module"),
        ("--pipeline-model-parallel-size 2 --num-layer-list 3,4", "add up to 8 layers"),
        ("--noop-layers 8", "layer numbers from 0 to 8 - 1"),
        ("--context-parallel-size 2 --context-parallel-algo adaptive_cp_algo", "is not modeled"),
        (
            "--num-experts 4 --moe-intermediate-size 64 --moe-ffn-hidden-size 128",
            "and --moe-ffn-hidden-size 128",
        ),
    ],
)
def test_jobs_that_cannot_be_written_are_rejected_by_name(flags: str, message: str) -> None:
    assert any(message in one for one in problems(f"{DENSE} {flags}"))


def test_a_model_of_pai_megatron_patch_comes_from_another_file(tmp_path: Path) -> None:
    text = (
        "--num-layers 27 --hidden-size 2048 --num-attention-heads 16 --qk-nope-head-dim 128 "
        "--qk-rope-head-dim 64 --num-experts 64 --num-shared-experts 2 --bf16 --seq-length 4096 "
        "--micro-batch-size 1 --global-batch-size 64 --expert-model-parallel-size 4 "
        "--attention-dropout 0.0 --hidden-dropout 0.0 --use-distributed-optimizer"
    )
    (question,) = read(text).questions
    assert question.attribute == "model"
    model = "use catalog.models.deepseek_v2_lite\n"
    found = figures(tmp_path, text, 8, more=model)
    assert numbers(found) == numbers(figures(tmp_path, PAI_SPEC, 8, "pai.par"))


@try_each(
    "deciding, harmless",
    [
        ("--optimizer-selection fused_ema_adamw", "--optimizer-selection fused_torch_adamw"),
        ("--sparse-mode 4", "--sparse-mode 2"),
        ("--npu-deterministic", ""),
        ("--use-deter-comp", ""),
    ],
)
def test_a_flag_that_decides_is_listed_unless_its_value_is_harmless(
    deciding: str, harmless: str
) -> None:
    flag = deciding.partition(" ")[0]
    assert flag in {one.name for one in read(f"{DENSE} {deciding}").unknown}
    assert flag not in {one.name for one in read(f"{DENSE} {harmless}").unknown}
