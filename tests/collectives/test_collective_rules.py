"""Algorithms that are named where they cannot run."""

from __future__ import annotations

from typing import Any

import pytest

import parcost

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster {{ devices = 96 }}
layout {{ tp = {tp}, {layout} }}
training {{ sequence = 8192, global_batch = 96 sequences }}
collectives {{ {choice} }}
fabric hgx_h100 {{ level node {{ in_network = {reduces} }} }}
"""


def ids(tp: int, choice: str, layout: str = "zero = 0", reduces: str = "off") -> dict[str, Any]:
    text = TEXT.format(tp=tp, choice=choice, layout=layout, reduces=reduces)
    (scenario,) = parcost.load_text(text)
    found = scenario.check()
    return {d.id: d for d in found if d.id.startswith("collective")}


def test_what_can_run_is_let_through() -> None:
    assert not ids(8, "tensor = ring, data = hierarchical")
    assert not ids(8, "tensor = nvls", reduces="on")
    assert not ids(1, "tensor = nvls")  # no group to run over


@pytest.mark.parametrize(
    "tp, choice, layout, reduces, said, hint",
    [
        (8, "tensor = nvls", "zero = 0", "off", "whose level says `in_network = on`", "`auto`"),
        (16, "tensor = nvls", "zero = 0", "on", "16 ranks of `tp`, 8 on each node", "`auto`"),
        (8, "data = halving_doubling", "zero = 1", "off", "power of two", "are 8 and 16"),
        (8, "data = torus", "zero = 0", "off", "`kind = torus`", "`auto`"),
        (8, "data = nccl", "zero = 0", "off", "it needs `tuning`", "`auto`"),
        (8, "data = collnet_direct", "zero = 0", "off", "`in_network = on`", "`auto`"),
    ],
)
def test_what_cannot_run_is_said_with_what_it_needs(
    tp: int, choice: str, layout: str, reduces: str, said: str, hint: str
) -> None:
    found = ids(tp, choice, layout, reduces)["collective-unable"]
    assert said in found.message
    assert found.help is not None
    assert hint in found.help
    assert found.labels


def test_a_switch_that_does_not_reduce_is_told_how_to() -> None:
    """The spec in the help is one that lets the algorithm run."""
    hint = ids(8, "tensor = nvls")["collective-unable"].help
    assert hint is not None
    turned_on = "fabric hgx_h100 { level node { in_network = on } }"
    assert f"`{turned_on}`" in hint
    assert not ids(8, "tensor = nvls", reduces="on")


def test_an_algorithm_for_experts_says_nothing_of_a_dense_model() -> None:
    assert not ids(8, "expert = pairwise")
