"""Flags that later releases of Megatron-LM lack decide which release a script is for."""

from __future__ import annotations

import pytest

from parcost_formats.tools.megatron import Megatron

from ..rows import try_each
from .megatron_files import MACHINE, Run, read, small, translate, values


@try_each(
    "flags, framework",
    [
        ("--checkpoint-activations", "megatron_lm_2021"),
        ("--activations-checkpoint-method uniform", "megatron_lm_2021"),
        ("--data-impl mmap", "megatron_lm_2023"),
        ("--checkpoint-activations --use-distributed-optimizer", "megatron_lm_2023"),
        ("--data-impl mmap --use-mcore-models", "megatron_core"),
        ("--data-impl mmap --deepspeed --zero-stage 1", "megatron_deepspeed"),
        ("", "megatron_core"),
    ],
)
def test_a_flag_of_an_earlier_release_has_its_framework(flags: str, framework: str) -> None:
    """Its attention was that of Transformer Engine, although such releases write scores."""
    found = read(small(flags))
    assert f"catalog.frameworks.{framework}" in {one.value for one in found.uses}
    assert values(found)["training.framework"] == framework


def test_flash_attention_of_an_earlier_release_is_read() -> None:
    found = read(small("--data-impl mmap --use-flash-attn"))
    assert values(found)["kernels.attention"] == "flash_2"


def test_layers_that_an_earlier_release_recomputes_are_read() -> None:
    early = "--activations-checkpoint-method block --activations-checkpoint-num-layers 2"
    stated = values(read(small(early)))
    assert (stated["training.recompute"], stated["recompute.layers"]) == ("full", "2")
    stated = values(read(small("--activations-checkpoint-method uniform")))
    assert stated["training.recompute"] == "full"
    assert "recompute.layers" not in stated


@pytest.mark.slow
def test_the_answer_about_the_state_of_an_optimizer_replaces_the_precision(
    run_command: Run,
) -> None:
    """The answer that the question proposed was an error beside `--bf16`."""
    flags = small("--bf16 --optimizer shampoo --micro-batch-size 1 --vocab-size 1000")
    files = {"train.sh": f"torchrun --nproc_per_node 8 pretrain_gpt.py {flags}"}
    asked = run_command("eval", *MACHINE, "train.sh", files=files)
    assert asked.code == 2
    assert "--use catalog.precisions.bf16" in asked.err
    answers = ("--use", "catalog.precisions.bf16")
    done = run_command("eval", *MACHINE, *answers, "train.sh", files=files)
    assert "import-conflict" not in done.err
    assert "step time" in done.out


OWN_YAML = (
    "language_model:\n  num_layers: 4\n  hidden_size: 128\n  num_attention_heads: 4\n"
    "  activation_func: swiglu\n  bias_activation_fusion: False\n  bias_swiglu_fusion: True\n"
    "model_parallel:\n  tensor_model_parallel_size: 2\n  bf16: True\nmicro_batch_size: 3\n"
)


@pytest.mark.parametrize(
    ("old", "new", "fused"),
    [
        ("", "", True),
        ("swiglu_fusion: True", "swiglu_fusion: False", False),
        ("swiglu\n", "gelu\n", False),
    ],
)
def test_the_switch_of_an_activation_in_yaml_is_that_of_its_kind(
    old: str, new: str, fused: bool
) -> None:
    """With SwiGLU `bias_swiglu_fusion` decides, and with GeLU `bias_activation_fusion`."""
    found = translate(Megatron(), "own.yaml", OWN_YAML.replace(old, new))
    assert ("framework.activation" not in values(found)) == fused


@pytest.mark.parametrize(
    ("words", "ranks", "multiple"),
    [(100, 8, "ceil(training.model.vocabulary / layout.tp)"), (104, 8, "1"), (100, 1, "1")],
)
def test_a_vocabulary_has_rows_for_all_ranks(words: int, ranks: int, multiple: str) -> None:
    """With a multiple of 1, 100 rows are 104 for 8 ranks."""
    flags = f"--vocab-size {words} --tensor-model-parallel-size {ranks}"
    found = read(small(flags, "--make-vocab-size-divisible-by 1"))
    assert values(found)["layout.vocabulary_multiple"] == multiple
