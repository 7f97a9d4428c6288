"""Casts of torchao in a compiled layer, against a layer that was timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import parcost
import parcost_specs
from parcost import Work
from parcost_plugins.vocabulary import KernelChoice, Training

TABLE = Path(parcost_specs.__file__).parent / "measured" / "casts.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
TIMES = {(row["what"], row["recipe"]): row["time_us"] for row in ROWS}

SPEC = """
use catalog.devices.h200_sxm
use catalog.fabrics.hgx_h100
use catalog.frameworks.torchtitan
use catalog.precisions.{recipe}
model one {{
  layers = 1, hidden = 4096, heads = 32, kv_heads = 8, ffn = 14_336, vocabulary = 1024
}}
cluster {{ devices = 1 }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 1 sequences }}
kernels {{ mode = compiled }}
"""
#: Elements that are cast, in millions: inputs and weights, gradients of outputs.
INPUTS = 8192 * (3 * 4096 + 14_336) / 1e6
WEIGHTS = (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14_336 * 4096) / 1e6
OUTPUTS = 8192 * (3 * 4096 + 2 * 1024 + 2 * 14_336) / 1e6


def casts_of_layer(recipe: str) -> tuple[float, float]:
    """Microseconds of casts in forward and in backward: the rest of the layer is as in bf16.

    Products in forward accumulate fast, those of gradients do not, with one factor per tensor.
    """

    def rest(name: str, forward: str, slow: str) -> tuple[float, float]:
        ahead, whole = "products of a layer forward", "products of a layer"
        first = TIMES["layer forward", name] - TIMES[ahead, forward]
        backward = TIMES["layer", name] - TIMES["layer forward", name]
        return first, backward - TIMES[whole, slow] + TIMES[ahead, slow]

    wide = rest("bf16", "bf16", "bf16")
    forward = "rows" if recipe == "rows" else "fast accumulation"
    narrow = rest(recipe, forward, "slow accumulation")
    return narrow[0] - wide[0], narrow[1] - wide[1]


def test_the_constants_follow_from_the_layer() -> None:
    (study,) = parcost.load_text(SPEC.format(recipe="fp8_torchao"))[0].studies()
    (rows,) = parcost.load_text(SPEC.format(recipe="fp8_torchao_rows"))[0].studies()
    each = study[KernelChoice].cast_time * 1e6 / 132 * 1e6  # microseconds of a million elements
    ahead = [casts_of_layer(recipe)[0] / (INPUTS + WEIGHTS) for recipe in ("tensor", "rows")]
    assert sum(ahead) / 2 == pytest.approx(each, rel=0.02)
    operands = INPUTS + OUTPUTS
    # with a factor for each row, backward casts weights along columns as well
    steps = (casts_of_layer("rows")[1] / each - OUTPUTS) / (operands + WEIGHTS)
    assert steps == pytest.approx(rows[Training].precision.column_steps, rel=0.03)
    left = casts_of_layer("tensor")[1] - each * (OUTPUTS + WEIGHTS)
    moved = left * 4.8 * 0.896 / operands
    assert moved == pytest.approx(study[Training].precision.column_cast, rel=0.2)


@pytest.mark.parametrize(
    ("name", "recipe"), [("fp8_torchao", "tensor"), ("fp8_torchao_rows", "rows")]
)
def test_casts_of_a_layer_take_what_was_timed(name: str, recipe: str) -> None:
    (study,) = parcost.load_text(SPEC.format(recipe=name))[0].studies()
    found = {"F": 0.0, "B": 0.0, "W": 0.0}
    for _, term in study.contributions("terms"):
        if isinstance(term, Work) and term.name.startswith(("cast", "weight cast")):
            found[term.pass_] += 1e6 * float(term.seconds) * sum(term.count)
    forward, backward = casts_of_layer(recipe)
    assert found["F"] == pytest.approx(forward, rel=0.12)
    assert found["B"] + found["W"] == pytest.approx(backward, rel=0.12)
