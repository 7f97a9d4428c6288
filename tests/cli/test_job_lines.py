"""The job as it was read: lines of the screen that a user compares with the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

Run = Callable[..., Any]

USES = ("--use", "catalog.devices.h100_sxm", "--use", "catalog.fabrics.hgx_h100")
MEGATRON = """\
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 \\
  --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights \\
  --position-embedding-type rope --seq-length 8192 --max-position-embeddings 8192 \\
  --vocab-size 128256 --make-vocab-size-divisible-by 1 --micro-batch-size 1 \\
  --global-batch-size 128 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \\
  --sequence-parallel --use-distributed-optimizer --bf16 --recompute-granularity selective \\
  --attention-dropout 0 --hidden-dropout 0 --tokenizer-type NullTokenizer --train-iters 10
"""
EXPERTS = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.mixtral_8x7b
use catalog.precisions.bf16
cluster   { devices = 64 }
layout    { ep = 8, pp = 2, zero = 1 }
schedule  { kind = interleaved, chunks = 2 }
recompute { norms = on }
offload   { optimizer = 50 %, host_memory_bandwidth = 40 GB/s }
training  { sequence = 4096, global_batch = 256 sequences }
"""


def job(screen: str) -> Mapping[str, str]:
    """Return the lines of the job by name, each in one line."""
    block = re.search(r"^  model  .*?(?=^\s*$)", screen, re.MULTILINE | re.DOTALL)
    assert block is not None, screen
    lines = re.split(r"^  (?=\S)", block[0], flags=re.MULTILINE)
    found = (" ".join(line.split()).partition(" ") for line in lines if line)
    return {name: text for name, _, text in found}


def test_a_launch_script_is_shown_as_it_was_read(run_command: Run) -> None:
    done = run_command("eval", "run.sh", *USES, files={"run.sh": MEGATRON})
    assert done.code == 0, done.err
    found = job(done.out)
    # 2 x 128256 x 4096 + 32 x (4096 x (2 x 4096 + 2 x 1024) + 3 x 4096 x 14336 + 2 x 4096) + 4096
    assert "8.03 billion parameters, 32 layers, hidden size 4,096" in found["model"]
    assert found["layout"] == ("32 h100_sxm: TP 4, PP 2, DP 4, ZeRO 1, SP on, schedule one_f_one_b")
    assert found["training"] == (
        "128 sequences of 8,192 tokens, micro-batch 1, recompute selective"
    )
    assert found["precision"].startswith("bf16")
    assert "megatron" in found["precision"]


@pytest.mark.slow
def test_experts_offload_and_parts_that_are_recomputed_are_shown(run_command: Run) -> None:
    found = job(run_command("eval", "a.par", a=EXPERTS).out)
    assert (
        "46.7 billion parameters, 32 layers, hidden size 4,096, 8 experts, top 2"
        in (found["model"])
    )
    assert found["layout"] == (
        "64 h100_sxm: PP 2, DP 32, EP 8, ZeRO 1, schedule interleaved with 2 chunks"
    )
    assert found["training"].endswith("recompute norms, 50 % of optimizer on the host")


@pytest.mark.slow
def test_the_lines_are_in_every_page_and_not_beside_chosen_figures(run_command: Run) -> None:
    for options in (("--full",), ("--set", "layout.ep=3")):
        assert (
            "experts, top 2" in job(run_command("eval", "a.par", *options, a=EXPERTS).out)["model"]
        )
    assert "  layout  " not in run_command("eval", "a.par", "--figures", "mfu", a=EXPERTS).out


@pytest.mark.parametrize(
    "name, value, place",
    [
        ("layout.zero", "1", "run.sh:"),
        ("training.recompute", "selective", "run.sh:"),
        ("model.layers", "32", "run.sh:"),
        ("h100_sxm.memory_bandwidth", "3.35 TB/s", "h100_sxm.par:"),
    ],
)
def test_explain_has_the_place_that_sets_an_attribute(
    run_command: Run, name: str, value: str, place: str
) -> None:
    done = run_command("explain", "run.sh", *USES, name, files={"run.sh": MEGATRON})
    assert done.code == 0, done.err
    facts = dict(re.findall(r"^  (value|set by) +(\S.*)$", done.out, re.MULTILINE))
    assert facts["value"] == value
    assert place in facts["set by"]


@pytest.mark.slow
def test_explain_has_the_attributes_of_a_block(run_command: Run) -> None:
    done = run_command("explain", "a.par", "layout", a=EXPERTS)
    assert re.search(r"^  ep +8 +a\.par:6$", done.out, re.MULTILINE)
    assert re.search(r"^  tp +1 +default$", done.out, re.MULTILINE)


@pytest.mark.slow
def test_explain_names_the_nearest_attribute(run_command: Run) -> None:
    done = run_command("explain", "a.par", "layout.zeroo", a=EXPERTS)
    assert done.code == 2
    assert "did you mean `layout.zero`" in done.err


@pytest.mark.slow
def test_a_sweep_has_the_lines_that_its_points_share(run_command: Run) -> None:
    swept = ("--set", "model.hidden=[2048,4096]", "--set", "layout.pp=[2,4]")
    found = job(run_command("eval", "a.par", *swept, a=EXPERTS).out)
    assert "hidden size 2,048 to 4,096" in found["model"]
    assert "layout" not in found
    assert found["training"].startswith("256 sequences of 4,096 tokens")


@pytest.mark.slow
def test_a_search_has_the_lines_that_its_layouts_share(run_command: Run) -> None:
    found = job(
        run_command("search", "a.par", "--over", "zero=1,2", "--over", "ep=4,8", a=EXPERTS).out
    )
    assert found["model"].startswith("mixtral_8x7b: 46.7 billion parameters")
    assert "layout" not in found
