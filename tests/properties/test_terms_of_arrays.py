"""A search evaluates whole arrays of layouts: every line is what each layout gives alone.

A sweep keeps layouts apart whose groups cross other levels. Here they are estimated in one
go, degrees of one among them, so that a plugin that asks about a float and forgets the
array (``tp == 1.0`` and return) tells on itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import parcost
from parcost import Outcome

from ..rows import mark_most

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.{model}
use catalog.precisions.{recipe}

cluster  {{ devices = 64 }}
layout   {{ tp = 1 }}
memory   {{ usable = 100 % }}
training {{
  sequence     = 8192
  global_batch = 256 sequences
}}
"""

Choices = Mapping[str, Sequence[Any]]

#: What may be swept; every axis has the value at which there is nothing to do.
AXES: Choices = {
    "layout.tp": [1, 2, 4, 8, 16],
    "layout.cp": [1, 2, 4, 8],
    "training.micro_batch": [1, 2, 4],
    "training.sequence": [4096, 8192, 16384],
    "cluster.devices": [64, 128, 256],
}
EXPERT_AXES: Choices = {**AXES, "layout.ep": [1, 2, 4, 8], "layout.etp": [1, 2]}

#: What is one word for all layouts of a sweep, by subject.
ANY: Choices = {
    "layout.pp": [1, 2],
    "layout.zero": [0, 1, 2, 3],
    "layout.sequence_parallel": ["on", "off"],
    "training.recompute": ["none", "selective", "full"],
    "overlap.gradients": ["on", "off"],
    "overlap.parameters": ["on", "off"],
    "kernels.model": ["roofline", "tiled", "constant"],
}
TENSOR: Choices = {
    "overlap.tensor": ["on", "weight_gradients", "pipelined", "split_batch"],
    "overlap.chunk_overhead": [1e-5],
    "layout.sequence_parallel": ["on"],
    "tensor_parallel.saved_inputs": ["on", "off"],
    "collectives.tensor": ["auto", "ring", "recursive_doubling"],
}
CONTEXT: Choices = {
    "context.algorithm": ["ring", "all_gather", "ulysses"],
    "context.balance": ["zigzag", "contiguous"],
    "context.double_buffer": ["on", "off"],
}
HYBRID: Choices = {"context.algorithm": ["hybrid"], "context.ulysses": [2]}
COMPRESSED: Choices = {"compression.method": ["one_bit", "top_k", "power_sgd"]}
ON_HOST: Choices = {
    "offload.optimizer": ["50 %", "100 %"],
    "offload.activations": ["0 %", "50 %"],
    "offload.update": ["host", "device"],
    "layout.zero": [1, 3],
}
EXCHANGED: Choices = {
    "routing.distribution": ["balanced", "uniform"],
    "routing.deduplicate": ["on", "off"],
    "routing.hide": ["none", "pair"],
    "layout.sequence_parallel": ["on"],
}
SCALED: Choices = {"precision.amax_group": ["none", "tp", "dp_cp", "stage", "job"]}

FAMILIES: Mapping[str, tuple[str, str, Choices, Choices]] = {
    "dense": ("llama32_1b", "bf16", AXES, {}),
    "tensor overlap": ("llama32_1b", "bf16", AXES, TENSOR),
    "context": ("llama32_1b", "bf16", AXES, CONTEXT),
    "hybrid context": ("llama32_1b", "bf16", AXES, HYBRID),
    "compression": ("llama32_1b", "bf16", AXES, COMPRESSED),
    "offload": ("llama32_1b", "bf16", AXES, ON_HOST),
    "low precision": ("llama32_1b", "fp8_blockwise", AXES, SCALED),
    "narrow gathers": ("llama32_1b", "fp8_tensor_gather", AXES, TENSOR),
    "experts": ("mixtral_8x7b", "bf16", EXPERT_AXES, EXCHANGED),
    "latent attention": ("deepseek_v2_lite", "bf16", EXPERT_AXES, {**CONTEXT, **EXCHANGED}),
    "latent, low precision": ("deepseek_v2_lite", "fp8_deepseek", EXPERT_AXES, TENSOR),
}


@st.composite
def sweeps(draw: st.DrawFn, family: str) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Draw words and numbers that stay, and one or two axes."""
    _, _, axes, own = FAMILIES[family]
    may = {**ANY, **own}
    fixed = {name: draw(st.sampled_from(values)) for name, values in may.items()}
    swept = draw(st.lists(st.sampled_from(sorted(axes)), min_size=1, max_size=2, unique=True))
    points: dict[str, list[float]] = {}
    for name, values in axes.items():
        if name in swept:
            others = st.lists(st.sampled_from(values[1:]), min_size=1, max_size=2, unique=True)
            points[name] = [values[0], *sorted(draw(others))]
        else:
            fixed[name] = draw(st.sampled_from(values[:2]))
    return fixed, points


def legal_points(
    scenario: parcost.Scenario, points: dict[str, list[float]]
) -> dict[str, list[float]]:
    """Leave out values until every combination of the others meets the rules."""
    while True:
        (study,) = scenario.replace(points).studies()
        shape = [len(values) for values in points.values()]
        held = np.broadcast_to(np.asarray(study.legal()), (int(np.prod(shape)),))
        names = [name for name, _ in study.axes]
        rejected = ~held.reshape([len(points[name]) for name in names])
        if not rejected.any():
            return points
        worst = [
            (int(rejected.take(i, axis).sum()), name, i)
            for axis, name in enumerate(names)
            for i in range(len(points[name]))
            if len(points[name]) > 1
        ]
        if not worst:
            return {}
        _, name, i = max(worst)
        points = {**points, name: points[name][:i] + points[name][i + 1 :]}


def outcome_values(outcome: Outcome, point: int) -> dict[tuple[str, ...], float]:
    """Return every number of an outcome at one point of its arrays; zeros are left out."""
    found: dict[tuple[str, ...], float] = {}

    def add(value: Any, *name: str) -> None:
        array = np.asarray(value, dtype=float)
        number = float(array[point] if array.ndim else array)
        if number:
            found[name] = found.get(name, 0.0) + number

    add(outcome.step_seconds, "step")
    add(outcome.ideal_seconds, "ideal")
    add(outcome.flops, "flops")
    add(outcome.memory_bytes, "memory")
    for line in outcome.ledger:
        add(line.exposed, "exposed", line.kind, line.pass_, line.name)
        add(line.hidden, "hidden", line.kind, line.pass_, line.name)
    for held in outcome.memory_lines:
        add(held.bytes_, "held", held.name)
    return found


def assert_each_point_alone(scenario: parcost.Scenario, points: Mapping[str, list[float]]) -> None:
    """Estimate the whole sweep at once, and its first and last points and one between alone."""
    (study,) = scenario.replace(points).studies()
    with np.errstate(all="ignore"):
        together = study.evaluate()
    assert not study.faults
    count = len(study.axes[0][1])
    for i in sorted({0, count // 2, count - 1}):
        here = {name: float(values[i]) for name, values in study.axes}
        alone = outcome_values(scenario.replace(here).studies()[0].evaluate(), 0)
        found = outcome_values(together, i)
        for name in alone | found:
            whole = alone[("memory",) if name[0] in ("held", "memory") else ("step",)]
            least = 0.0 if name == ("flops",) else 1e-12 * whole
            expected = pytest.approx(alone.get(name, 0.0), rel=1e-12, abs=least)
            assert found.get(name, 0.0) == expected, (name, here)


def scenario_of(family: str, fixed: Mapping[str, Any]) -> parcost.Scenario:
    model, recipe, _, _ = FAMILIES[family]
    (scenario,) = parcost.load_text(TEXT.format(model=model, recipe=recipe))
    return scenario.replace(fixed)


@pytest.mark.slow
@pytest.mark.parametrize("family", mark_most(FAMILIES))
@settings(max_examples=max(2, settings().max_examples // 50))
@given(data=st.data())
def test_layouts_priced_at_once_are_priced_as_one_by_one(family: str, data: st.DataObject) -> None:
    fixed, swept = data.draw(sweeps(family))
    scenario = scenario_of(family, fixed)
    points = legal_points(scenario, swept)
    assume(any(len(values) > 1 for values in points.values()))
    assert_each_point_alone(scenario, points)


@pytest.mark.parametrize("mode", ["split_batch", "pipelined"])
def test_one_tensor_parallel_rank_cuts_nothing(mode: str) -> None:
    fixed = {"overlap.tensor": mode, "layout.sequence_parallel": "on", "training.micro_batch": 2}
    more = {"overlap.chunks": 4, "overlap.chunk_overhead": 1e-5} if mode == "pipelined" else {}
    assert_each_point_alone(
        scenario_of("tensor overlap", {**fixed, **more}), {"layout.tp": [1, 2, 4]}
    )
