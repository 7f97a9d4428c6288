"""Weights in float32 under products in bf16: autocast casts each weight ahead of its product.

Two layers of width 256 with an MLP of 512 that has a gate, and a head of 1,024 rows. A layer has
4 x 256 x 256 + 3 x 256 x 512 = 655,360 weights, the head 262,144. A cast reads 4 bytes and writes
2, in forward, in recomputation, and behind the product for the gradient.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import parcost
from parcost import Study

from ..rows import try_each

LAYER, HEAD, RANK = 655_360, 262_144, 8
#: Both matrices of an adapter of rank 1: inputs and outputs of its seven targets.
ADAPTER = 4 * (256 + 256) + 2 * (256 + 512) + (512 + 256)

SPEC = """
device plain {{
  memory = 800 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, matmul_efficiency = 1
  memory_efficiency = 1, multiprocessors = 100
}}
kernels {{ attention_forward_efficiency = 0.5, attention_backward_efficiency = 0.5 }}
fabric wire {{ level net {{ bandwidth = 1 GB/s per_direction, latency = 0 s }} }}
precision held {{
  compute = bf16, weights = {weights}, gradients = 4 B, optimizer = 8 B, activation = 2 B
  gather = 2 B, update_traffic = 0 B
}}
model small {{
  layers = 2, hidden = 256, heads = 4, ffn = 512, gated = on, vocabulary = 1024
}}
cluster {{ devices = 2 }}
layout {{ zero = {zero} }}
training {{ sequence = 128, global_batch = 2 sequences, recompute = {recompute} }}
{more}
"""


def read(weights: str = "4 B", zero: int = 0, recompute: str = "none", more: str = "") -> Study:
    text = SPEC.format(weights=weights, zero=zero, recompute=recompute, more=more)
    (scenario,) = parcost.load_text(text)
    return scenario.first


def cast(study: Study, pass_: str) -> float:
    """Return the bytes that the casts of one pass move."""
    return sum(
        term.bytes_ * sum(term.count)
        for _, term in study.contributions("terms")
        if term.name.startswith("autocast of ") and term.pass_ == pass_
    )


@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("full", 2 * LAYER)])
def test_weights_and_their_gradients_are_cast_in_every_micro_batch(
    recompute: str, again: int
) -> None:
    study = read(recompute=recompute)
    assert cast(study, "F") == cast(study, "W") == 6 * (2 * LAYER + HEAD)
    assert cast(study, "R") == 6 * again
    assert cast(study, "B") == 0


@pytest.mark.parametrize("settings", [{"weights": "2 B"}, {"zero": 3}])
def test_narrow_weights_and_those_that_are_gathered_narrow_have_no_cast(settings: Any) -> None:
    assert [cast(read(**settings), pass_) for pass_ in "FRW"] == [0, 0, 0]


def test_frozen_weights_have_a_type_of_their_own() -> None:
    """A frozen weight has no gradient, and only the adapters' are cast back."""
    adapters = f"adapters {{ rank = {RANK}, weights = %s }}"
    both = read(more=adapters % "4 B")
    assert cast(both, "F") == 6 * (2 * (LAYER + RANK * ADAPTER) + HEAD)
    assert cast(both, "W") == 6 * 2 * RANK * ADAPTER
    assert cast(read(more=adapters % "2 B"), "F") == 6 * 2 * RANK * ADAPTER


@pytest.mark.parametrize(
    ("recompute", "more", "held", "behind"),
    [
        ("none", "", 2 * LAYER + HEAD, 0),
        ("full", "", HEAD, 2 * LAYER),
        ("full", "adapters { rank = 8, weights = 4 B }", HEAD, 2 * RANK * ADAPTER),
    ],
)
def test_backward_holds_the_copies_that_it_reads(
    recompute: str, more: str, held: int, behind: int
) -> None:
    """Autocast keeps copies of trained weights up to the loss; recomputation makes others."""
    found = {"autocast copy": 0.0, "autocast copy until the loss": 0.0}
    for _, memory in read(recompute=recompute, more=more).contributions("memory"):
        name = memory.name.partition(",")[0]
        if name in found:
            found[name] += memory.bytes_ * sum(memory.count)
    assert list(found.values()) == [2 * held, 2 * behind]


@try_each(
    "more, settings, bytes_",
    [
        # Seven adapters with 6 inputs of 256 and one of 512: a cast to 4 B and one back, 12 B.
        ("", {}, 12 * 2048),
        # A norm with a weight in float32 makes 4 B: only autocast's own cast is left of 5 inputs.
        ("weights = 4 B", {}, 6 * 5 * 256 + 12 * (256 + 512)),
        ("weights = 4 B, cast_inputs = off", {}, 6 * 5 * 256),
        ("cast_inputs = off", {}, 0),
        ("base = nf4", {}, 0),  # PEFT's layers of 4 bits leave it to autocast
        ("", {"weights": "2 B"}, 0),
        ("", {"zero": 3}, 0),  # gathered in bf16
        ("key = off, down = off", {}, 12 * 5 * 256),
    ],
)
def test_inputs_of_adapters_are_cast_to_their_type_and_back(
    more: str, settings: dict[str, Any], bytes_: int
) -> None:
    """Of 128 tokens in each of two layers, in every pass."""
    text = f"use catalog.quantizations.nf4\nadapters {{ rank = 8, {more} }}"
    study = read(recompute="full", more=text, **settings)
    found = dict.fromkeys("FBR", 0.0)
    for one in study.operators:
        if one.name.startswith("adapter") and one.name.endswith("cast of input"):
            found[one.pass_] += one.bytes_ * sum(one.count)
    assert found == dict.fromkeys("FBR", 2 * 128 * bytes_)


@pytest.mark.parametrize(
    ("mode", "casts", "dropped"),
    # Dropout reads and writes the wide input, and writes a mask.
    [("eager", 12, 4 + 4 + 1), ("compiled", 0, 2 + 2 + 1)],
)
def test_a_compiler_joins_the_casts_of_inputs(mode: str, casts: int, dropped: int) -> None:
    more = f"adapters {{ rank = 8, dropout = on }}\nframework ours {{ mode = {mode} }}"
    found = {"cast of input": 0.0, "dropout": 0.0}
    for one in read(more=more).operators:
        kind = one.name.rpartition(", ")[2]
        if one.name.startswith("adapter") and kind in found and one.pass_ == "F":
            found[kind] += one.bytes_ * sum(one.count)
    elements = 2 * 128 * 2048
    assert found == {"cast of input": casts * elements, "dropout": dropped * elements}


ELEMENTS = 128 * 256  # of the residual stream
APART = "framework ours { separate_projections = on }"


def traffic_of(study: Study, name: str) -> list[float]:
    """Return the bytes that operators move whose name matches *name*, in forward and in backward."""
    found = dict.fromkeys("FB", 0.0)
    for one in study.operators:
        if re.fullmatch(name, one.name) and one.pass_ in found:
            found[one.pass_] += one.bytes_ * sum(one.count)
    return list(found.values())


@try_each(
    "name, more, narrow, wide",
    [
        ("embedding", "", (2 + 2, 0), (4 + 4, 0)),
        ("layer norms", "", (4 * (2 + 2), 4 * (3 * 2)), (4 * (4 + 4), 4 * (3 * 4))),
        ("final norm", "", (2 + 2, 3 * 2), (4 + 4, 3 * 4)),
        # The branch has 2 B; its gradient is cast from the sum's 4 B.
        (
            "residual additions",
            "",
            (4 * (2 + 2 + 2), 4 * (2 + 2 + 2)),
            (4 * (4 + 2 + 4), 4 * (4 + 4 + 4 + 4 + 2)),
        ),
        # In each of two layers ahead of QKV and of gate and up, or of each of the five; the head.
        (".*cast of input", "", (0, 0), (5 * 6, 5 * 6)),
        (".*cast of input", APART, (0, 0), (11 * 6, 11 * 6)),
        (".*cast of input", "framework ours { mode = compiled }", (0, 0), (0, 0)),
        ("sum of the gradients.*", APART, (0, 2 * 3 * 6), (0, 2 * 3 * 12)),
        # Operator by operator: no cast of the input, and none back ahead of the gain.
        (
            "final norm",
            "framework ours { norm = composite }",
            (4 * 2 + 7 * 4, 8 * 2 + 19 * 4),
            (2 * 4 + 5 * 4, 6 * 4 + 17 * 4),
        ),
    ],
)
def test_an_embedding_in_float32_makes_the_residual_stream_so(
    name: str, more: str, narrow: tuple[int, int], wide: tuple[int, int]
) -> None:
    assert traffic_of(read(more=more), name) == [ELEMENTS * one for one in wide]
    for settings in ({"weights": "2 B"}, {"zero": 3}):  # in bf16, or gathered in bf16
        assert traffic_of(read(more=more, **settings), name) == [ELEMENTS * one for one in narrow]


@try_each(
    "name, more, narrow, wide",
    [
        ("layer input", "", 2 * 2, 2 * 4),
        ("MLP norm input", "", 2 * 2, 2 * 4),
        ("final norm input", "", 2, 4),
        # Products read copies of 2 B: one that they share, or one of each.
        ("attention input", "", 2 * 2, 2 * 2),
        ("attention input", APART, 2 * 2, 2 * 3 * 2),
        ("MLP input", APART, 2 * 2, 2 * 2 * 2),
        ("head input", APART, 2, 2),
    ],
)
def test_checkpoints_of_a_wide_residual_stream_are_wide(
    name: str, more: str, narrow: int, wide: int
) -> None:
    for settings, bytes_ in (({}, wide), ({"weights": "2 B"}, narrow), ({"zero": 3}, narrow)):
        study = read(more=more, **settings)
        found = [one for _, one in study.contributions("memory") if one.name == name]
        assert sum(one.bytes_ * sum(one.count) for one in found) == bytes_ * ELEMENTS


def test_each_adapter_keeps_its_copy_of_the_input() -> None:
    for weights, copies in (("4 B", 3), ("2 B", 1)):
        study = read(weights=weights, more="adapters { rank = 8 }")
        found = [one for _, one in study.contributions("memory") if one.name == "attention input"]
        assert sum(one.bytes_ * sum(one.count) for one in found) == 2 * copies * 2 * ELEMENTS


def test_two_narrow_copies_of_a_weight_are_not_a_wide_one() -> None:
    """Parameters in MXFP8 are held along rows and along columns: 2.0625 B, more than bf16 has."""
    text = SPEC.format(weights="2.0625 B, wide_weights = 2 B", zero=1, recompute="none", more="")
    (scenario,) = parcost.load_text(text)
    study = scenario.studies()[0]
    for hook in ("terms", "memory"):
        names = [term.name for _, term in study.contributions(hook)]
        assert not [name for name in names if name.startswith(("autocast of", "autocast copy"))]
