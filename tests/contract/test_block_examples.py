"""Blocks that declarations give to copy, and the message that shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost.contract.schema import BlockType
from parcost.language.format import format_text
from parcost.plugins.discovery import load

REST = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
"""
CLUSTER = "cluster { devices = 8 }\n"
TRAINING = "training { sequence = 4096, micro_batch = 1, global_batch = 256 sequences }"


def examples() -> list[BlockType]:
    return [type_ for type_ in load().blocks.values() if type_.example]


def test_an_example_is_a_block_of_its_kind_as_fmt_writes_it() -> None:
    found = examples()
    assert {"cluster", "layout", "training"} <= {type_.kind for type_ in found}
    for type_ in found:
        assert format_text(type_.example + "\n") == type_.example + "\n"
        assert type_.example.startswith(f"{type_.kind} {{ ")


def test_a_study_of_the_examples_evaluates() -> None:
    text = REST + "\n".join(type_.example for type_ in examples())
    (scenario,) = parcost.load_text(text)
    assert scenario.evaluate().exit_code == 0


@pytest.mark.slow
def test_a_study_without_training_is_shown_a_block_that_works(
    run_command: Callable[..., Any],
) -> None:
    done = run_command("eval", "a.par", a=REST + CLUSTER)
    assert done.code == 2
    said = " ".join(done.err.split())
    assert "the study needs a `training` block" in said
    assert f"for example `{TRAINING}`" in said
    assert run_command("eval", "a.par", a=f"{REST}{CLUSTER}{TRAINING}\n").code == 0


def test_a_study_without_cluster_is_shown_one(run_command: Callable[..., Any]) -> None:
    done = run_command("eval", "a.par", a=f"{REST}{TRAINING}\n")
    assert "write `cluster { devices = 64 }`" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["training", "cluster"])
def test_two_blocks_of_a_kind_have_no_example_to_add(
    kind: str, run_command: Callable[..., Any]
) -> None:
    twice = {"training": CLUSTER, "cluster": TRAINING + "\n"}[kind]
    block = {
        "training": "training {0} {{ sequence = 4096, global_batch = 256 sequences }}\n",
        "cluster": "cluster {0} {{ devices = 8 }}\n",
    }[kind]
    text = REST + twice + block.format("a") + block.format("b")
    done = run_command("eval", "a.par", a=text)
    assert done.code == 2
    assert "for example" not in done.err
