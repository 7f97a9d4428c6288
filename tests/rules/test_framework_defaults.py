"""What a framework does where a spec says nothing: what hides, and when gradients are reduced."""

from __future__ import annotations

import pytest

import parcost
from parcost import Study
from parcost_plugins.physics import run_choices
from parcost_plugins.physics.context import algorithm

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
{uses}
cluster  {{ devices = 64 }}
layout   {{ {layout} }}
training {{ sequence = 8192, global_batch = 128 sequences, recompute = full }}
{more}
"""


def study(framework: str = "", layout: str = "tp = 2", more: str = "") -> Study:
    uses = f"use catalog.frameworks.{framework}" if framework else ""
    return parcost.load_text(SPEC.format(uses=uses, layout=layout, more=more))[0].first


def step(framework: str = "", layout: str = "tp = 2", more: str = "") -> float:
    uses = f"use catalog.frameworks.{framework}" if framework else ""
    text = SPEC.format(uses=uses, layout=layout, more=more)
    result = parcost.load_text(text)[0].evaluate().result
    found: float = result.figure("step_time")
    return found


@try_each(
    "framework, layout, gradients, parameters, tensor, blocks",
    [
        # Without a framework: as PyTorch's FSDP and DDP hide, and nothing of tensor parallelism.
        ("", "tp = 2, pp = 2", True, True, "off", False),
        # Megatron-LM: options that are off; messages that are waited for without interleaving.
        ("megatron_core", "tp = 2, pp = 2", False, False, "weight_gradients", True),
        ("megatron_core", "tp = 2, zero = 3", True, True, "weight_gradients", True),
        ("nemo", "tp = 2, pp = 2", True, True, "weight_gradients", True),
        # DeepSpeed: overlap_comm is on for stage 3 alone; tensors are sent one by one.
        ("deepspeed", "pp = 2, zero = 1", False, False, "off", True),
        ("deepspeed", "zero = 3", True, True, "off", True),
        ("torchtitan", "zero = 3", True, True, "off", False),
    ],
)
def test_overlap_by_framework(
    framework: str, layout: str, gradients: bool, parameters: bool, tensor: str, blocks: bool
) -> None:
    made = study(framework, layout)
    assert run_choices.hides_gradients(made) is gradients
    assert run_choices.hides_parameters(made) is parameters
    assert run_choices.tensor_overlap(made) == tensor
    assert run_choices.blocks_on_transfers(made) is blocks


@try_each(
    "framework, layout, messages",
    [
        # Megatron-LM until 2023: --no-scatter-gather-tensors-in-pipeline turns it off.
        ("megatron_lm_2021", "tp = 2, pp = 2", "scattered"),
        ("megatron_lm_2023", "tp = 2, pp = 2, sequence_parallel = on", "whole"),
        ("megatron_core", "tp = 2, pp = 2", "whole"),
        # DeepSpeed: pipe_partitioned and grad_partitioned are on.
        ("deepspeed", "tp = 2, pp = 2", "partitioned"),
        ("megatron_deepspeed_2023", "tp = 2, pp = 2", "partitioned"),
        # DeepSpeed up to 0.5.3: grad_partitioned is off.
        ("megatron_deepspeed_2021", "tp = 2, pp = 2", "partitioned_forward"),
    ],
)
def test_messages_between_stages_by_framework(framework: str, layout: str, messages: str) -> None:
    assert run_choices.stage_messages(study(framework, layout)) == messages
    own = study(framework, layout, "schedule { messages = scattered }")
    split = "sequence_parallel" not in layout
    assert run_choices.stage_messages(own) == ("scattered" if split else "whole")


def test_messages_of_megatron_overlap_with_interleaving() -> None:
    more = "schedule { kind = interleaved, chunks = 2 }"
    assert not run_choices.blocks_on_transfers(study("megatron_core", "tp = 2, pp = 4", more))


def test_torchtitan_reduces_once_and_keeps_parameters_where_it_has_a_pipeline() -> None:
    alone, pipelined = study("torchtitan", "zero = 3"), study("torchtitan", "pp = 4, zero = 3")
    assert (run_choices.reduces_each_micro_batch(alone), run_choices.reshards(alone)) == (
        True,
        True,
    )
    assert (run_choices.reduces_each_micro_batch(pipelined), run_choices.reshards(pipelined)) == (
        False,
        False,
    )


def test_a_spec_goes_before_its_framework() -> None:
    more = """
    overlap { gradients = on, parameters = on, tensor = on }
    schedule { transfers = overlapped }
    sharding { accumulate = whole, reshard = off }
    context { algorithm = ulysses }
    """
    made = study("megatron_core", "tp = 2, cp = 2, zero = 3", more)
    assert run_choices.hides_gradients(made)
    assert run_choices.hides_parameters(made)
    assert run_choices.tensor_overlap(made) == "on"
    assert not run_choices.blocks_on_transfers(made)
    assert not run_choices.reduces_each_micro_batch(made)
    assert not run_choices.reshards(made)
    assert algorithm(made) == "ulysses"


def test_keys_reach_all_ranks_as_the_framework_does_it() -> None:
    layout = "cp = 2, zero = 3"
    found = {name: algorithm(study(name, layout)) for name in ("", "torchtitan", "deepspeed")}
    assert found == {"": "ring", "torchtitan": "all_gather", "deepspeed": "ulysses"}


@pytest.mark.slow
def test_deepspeed_reduces_all_gradients_to_all_ranks_under_zero_1() -> None:
    """An all-reduce sends (N - 1) / N of the gradients twice, a reduce-scatter once."""
    layout, quiet = "zero = 1", "overlap { gradients = off, parameters = off }"
    volumes = {}
    for name in ("", "deepspeed"):
        uses = f"use catalog.frameworks.{name}" if name else ""
        text = SPEC.format(uses=uses, layout=layout, more=quiet)
        result = parcost.load_text(text)[0].evaluate().result
        assert result.outcome is not None
        names = {line.name for line in result.outcome.ledger}
        assert ("gradient all-reduce" in names) == (name == "deepspeed")
        assert ("gradient reduce-scatter" in names) == (name == "")
        volumes[name] = result.figure("dp_volume")
        gradients, weights = result.figure("gradient_bytes"), 2.0
    # bf16: 2 bytes a parameter come back after the update; gradients are as wide as the recipe.
    wide = gradients / 8_030_261_248
    once = 63 / 64 * 8_030_261_248
    assert volumes[""] == pytest.approx(once * (wide + weights))
    assert volumes["deepspeed"] == pytest.approx(once * (2 * wide + weights))


def test_exposed_communication_takes_longer() -> None:
    assert step("", "tp = 2", "overlap { gradients = off }") > step("", "tp = 2")
