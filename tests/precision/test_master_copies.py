"""Master copies beside the weights: which frameworks keep them."""

from __future__ import annotations

from typing import Any

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.{precision}
use catalog.frameworks.{framework}
cluster  {{ devices = 8 }}
layout   {{ zero = 3 }}
training {{ sequence = 4096, global_batch = 32 sequences, recompute = full }}
"""
PARAMETERS = 8_030_261_248
STATE = ("weights", "gradients", "optimizer state")


def evaluate(framework: str, precision: str) -> Any:
    (scenario,) = parcost.load_text(SPEC.format(framework=framework, precision=precision))
    return scenario.evaluate().result


def test_fsdp2_shards_one_copy_of_each_parameter() -> None:
    """4 B of fp32 weights, 8 B of moments and 4 B of gradients; bf16 is in gathered blocks only."""
    result = evaluate("torchtitan", "bf16_fsdp")
    assert [d.id for d in result.diagnostics] == []
    held = sum(
        line.bytes_
        for line in result.outcome.memory_by_moment()[0]["optimizer"]
        if any(line.name.startswith(name) for name in STATE)
    )
    assert held == pytest.approx(16 * PARAMETERS / 8, rel=1e-3)


@pytest.mark.parametrize(
    ("framework", "precision", "warns"),
    [
        ("torchtitan", "bf16", True),
        ("torchtitan", "bf16_zero", True),
        ("torchtitan", "fp8_delayed", True),
        ("pytorch_fsdp", "bf16", True),
        ("fsdp_composer", "bf16", True),
        ("torchtitan", "bf16_fsdp", False),
        ("torchtitan", "bf16_pure", False),
        ("torchtitan", "fp32", False),
        ("torchtitan", "fp8_torchao", False),
        ("megatron_core", "bf16", False),
        ("deepspeed", "bf16_zero", False),
    ],
)
def test_a_recipe_with_a_master_copy_is_named_where_the_framework_has_none(
    framework: str, precision: str, warns: bool
) -> None:
    found = [d for d in evaluate(framework, precision).diagnostics if d.id == "master-copy"]
    assert len(found) == warns
    for one in found:
        assert f"`{precision}` has weights of" in one.message
        assert "catalog.precisions.bf16_fsdp" in (one.help or "")
