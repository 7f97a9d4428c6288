"""Flags with which Megatron-LM stops are errors, at the flag, with its reason."""

from __future__ import annotations

import pytest

from parcost_formats.tools.megatron import Megatron

from .megatron_files import small
from .translations import problems


def read(flags: str) -> list[tuple[str, str]]:
    return problems(Megatron(), f"torchrun --nproc_per_node 8 pretrain_gpt.py {small(flags)}\n")


FULL = "--recompute-granularity full"
METHOD = "--recompute-method uniform --recompute-num-layers 1"
LEVELS = "--hierarchical-context-parallel-sizes 2 4"
VIRTUAL = "--pipeline-model-parallel-size 2 --num-layers 4 --num-virtual-stages-per-pipeline-rank 2"


@pytest.mark.parametrize(
    ("flags", "place", "reason"),
    [
        ("--max-position-embeddings 8", "--max-position-embeddings 8", "8 positions are fewer"),
        (f"{FULL} --recompute-num-layers 1", FULL, "without `--recompute-method`"),
        (f"{FULL} --recompute-method block", FULL, "without `--recompute-num-layers`"),
        (f"--recompute-activations {METHOD}", "--recompute-activations", "`--recompute-method uni"),
        ("--overlap-param-gather --overlap-grad-reduce", "--overlap-param-gather", "distributed"),
        (
            "--overlap-param-gather --use-distributed-optimizer",
            "--overlap-param-gather",
            "without `--overlap-grad-reduce`",
        ),
        ("--fp4-param-gather", "--fp4-param-gather", "without `--fp4-format`"),
        ("--exp-avg-dtype bf16", "--exp-avg-dtype bf16", "can only be fp32"),
        ("--optimizer-cpu-offload", "--optimizer-cpu-offload", "precision-aware"),
        (
            f"--cuda-graph-impl local {FULL} {METHOD}",
            FULL,
            "if `--cuda-graph-impl local` is set too",
        ),
        ("--mtp-num-layers 1", "--mtp-num-layers 1", "`--position-embedding-type rope | none`"),
        ("--moe-ffn-hidden-size 64", "--moe-ffn-hidden-size 64", "without `--num-experts`"),
        (
            f"--cpu-offloading-num-layers 1 {FULL} {METHOD}",
            "--cpu-offloading-num-layers 1",
            "if `--recompute-granularity full` is set too",
        ),
        (
            "--cpu-offloading-num-layers 2",
            "--cpu-offloading-num-layers 2",
            "--num-layers is 2, and at most 1 can be offloaded",
        ),
        (
            f"--context-parallel-size 4 --cp-comm-type a2a+p2p {LEVELS}",
            LEVELS,
            "2 * 4 = 8 is not the degree of context parallelism, 4",
        ),
        (
            f"{VIRTUAL} --no-overlap-p2p-communication",
            "--no-overlap-p2p-communication",
            "only with 3 stages or more",
        ),
    ],
)
def test_flags_with_which_megatron_stops(flags: str, place: str, reason: str) -> None:
    found = read(flags)
    assert any(reason in message and where == place for message, where in found), found


@pytest.mark.parametrize(
    "flags",
    [
        f"{FULL} {METHOD}",
        f"{FULL} --overlap-moe-expert-parallel-comm",
        METHOD,
        "--recompute-activations",
        "--max-position-embeddings 131072",
        "--overlap-param-gather --overlap-grad-reduce --use-megatron-fsdp",
        f"--cuda-graph-impl local --cuda-graph-scope full_iteration {FULL} {METHOD}",
        f"{FULL} --recompute-method uniform --recompute-num-layers $N",
        "--sequence-parallel",
        "--checkpoint-activations",
        "--partition-activations",
    ],
)
def test_flags_with_which_megatron_runs(flags: str) -> None:
    assert read(flags) == []


def test_a_flag_of_some_branches_may_be_the_one_that_is_needed() -> None:
    text = (
        f'A="{FULL}"\nif [ -n "$X" ]; then A="$A {METHOD}"; fi\n'
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {small()} $A\n"
    )
    assert problems(Megatron(), text, "run.sh") == []


def test_a_misspelled_flag_is_named_where_it_is_needed() -> None:
    flags = "--overlap-param-gather --overlap-grad-reduce --use-distribuetd-optimizer"
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {small(flags)}\n"
    (problem,) = Megatron().translate("run.sh", text).problems
    assert "`--use-distribuetd-optimizer` is spelled otherwise" in problem.help
