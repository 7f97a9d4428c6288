"""What a search calls exact is what a single evaluation says, whatever hides under what."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import Formula, Memory, SpecError
from parcost.contract.plugin import Plugin
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space
from parcost.search.term_arrays import Windows, merge_terms
from parcost_apps.search.points import Points

Compare = Callable[..., tuple[list[str], int]]

MACHINE = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
cluster { devices = 16 }
fabric f {
  level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us }
  level net { bandwidth = 400 Gbps per_direction, latency = 14 us }
}
training { sequence = 512, global_batch = 32 sequences }
"""
DENSE = "model m { layers = 12, hidden = 3072, heads = 24, vocabulary = 49_152 }\n"
EXPERTS = """
model m {
  layers = 8, hidden = 1536, heads = 16, ffn = 6144, vocabulary = 32_000
  experts = 32, top_k = 4, expert_ffn = 768, shared_experts = 1, dense_first = 1
}
"""
#: Parts of a spec with which terms of different ZeRO stages hide in one window.
MIXED = [
    DENSE + "sharding { shard = 4, replicate = micro_batch }\noverlap { tensor = on }",
    EXPERTS + "routing { hide = shared_experts }",
]


@pytest.mark.slow
@pytest.mark.parametrize("part", MIXED)
def test_zero_stages_side_by_side_are_what_they_are_by_themselves(
    part: str, compare: Compare
) -> None:
    """Guests of a window take what room there is by name, which stages do not share."""
    axes = {
        "layout.zero": [1, 2, 3],
        "overlap.gradients": ["on"],
        "overlap.parameters": ["off", "on"],
    }
    said, legal = compare(MACHINE + part + "\n", axes)
    assert (said, legal) == ([], 6)


def test_memory_that_is_a_share_of_activations_is_not_added_up() -> None:
    """Two shares of a half leave a quarter, and one of the same bytes leaves a half."""
    formula = Formula(text="a half", inputs={})
    half = Memory(name="kept", bytes_=1.0, formula=formula, of_activations=-0.5)
    plain = Memory(name="plain", bytes_=1.0, formula=formula)
    plugin = Plugin("any")
    found = merge_terms([(plugin, term) for term in (half, half, plain, plain)], Windows())
    assert [(m.of_activations, m.bytes_) for _, m in found] == [
        (-0.5, 1.0),
        (-0.5, 1.0),
        (0.0, 2.0),
    ]


#: Blocks with which communication hides, waits or is shared out in other ways.
BLOCKS = [
    "overlap { tensor = on }",
    "overlap { first_bucket = 1 MB, bucket = 10 MB }",
    "overlap { multiprocessors = 10 }",
    "routing { hide = pair }",
    "routing { hide = shared_experts }",
    "sharding { shard = 4, replicate = micro_batch }",
    "sharding { accumulate = whole }",
    "sharding { keep_last = on }",
    "context { algorithm = ring, double_buffer = on }",
    "offload { optimizer = 50 %, update = device, activations = 30 % }",
    "local_updates { workers = 2, period = 8 }",
    "schedule { transfers = blocking }",
    "price { device_hour = 2 USD/h }",
]
#: Axes beside the ZeRO stage and what overlaps.
MORE: list[dict[str, list[Any]]] = [
    {"layout.cp": [1, 2]},
    {"training.recompute": ["none", "full"]},
    {"layout.tp": [1, 2], "layout.sequence_parallel": ["off", "on"]},
    {"layout.pp": [1, 2], "schedule.kind": ["one_f_one_b", "zb_h1"]},
    {"layout.pp": [2], "schedule.kind": ["dualpipe", "chimera", "gpipe"]},
    {"layout.pp": [2], "schedule.chunks": [2], "schedule.kind": ["interleaved", "zb_v"]},
]
OBJECTIVES = ["step_time", "mfu", "tokens_per_second_per_device", "fewest_devices"]


def mixed_space(seed: int) -> tuple[str, dict[str, list[Any]], str]:
    """Return a spec, the axes of a small space and an objective."""
    rng = random.Random(seed)
    model = (DENSE, EXPERTS)[seed % 2]
    blocks = {block.split()[0]: block for block in rng.sample(BLOCKS, 3)}
    axes: dict[str, list[Any]] = {
        "layout.zero": [0, 1, 2, 3],
        "overlap.gradients": ["off", "on"],
        "overlap.parameters": ["on"],
    }
    more = [*MORE, {"layout.ep": [1, 4]}] if model is EXPERTS else MORE
    axes |= rng.choice(more)
    return "\n".join([MACHINE + model, *blocks.values(), ""]), axes, rng.choice(OBJECTIVES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_every_exact_score_that_is_written_or_listed_is_that_of_the_layout_by_itself(
    seed: int,
) -> None:
    text, axes, objective = mixed_space(seed)
    (scenario,) = parcost.load_text(text)
    whole = space(scenario, axes, list(axes))
    lines: list[str] = []
    try:
        found = search(
            whole,
            SearchRequest(objective=objective, keep=5),
            points=Points(whole, "jsonl", lines.append),
        )
    except SpecError as error:
        assert error.diagnostics[0].id in {"empty-space", "nothing-fits"}  # noqa: PT017
        return
    rows = [json.loads(line) for line in "".join(lines).splitlines()]
    assert len(rows) == found.legal
    for row in rows:
        result = scenario.replace({path: row[path] for path in axes}).evaluate().result
        assert result.outcome is not None
        seconds, bytes_ = float(result.outcome.step_seconds), float(result.outcome.memory_bytes)
        assert row["step_time_lower_bound_seconds"] <= seconds * (1 + 1e-12)
        assert row["memory_lower_bound_bytes"] <= bytes_ * (1 + 1e-12)
        if row["exact"]:
            assert row["step_time_seconds"] == pytest.approx(seconds, rel=1e-12)
            assert row["step_time_lower_bound_seconds"] == pytest.approx(seconds, rel=1e-12)
            assert row["mfu_fraction"] == pytest.approx(result.figure("mfu"), rel=1e-12)
            assert row["memory_bytes"] == pytest.approx(bytes_, rel=1e-12)
    for layout in found.best:
        result = scenario.replace(layout.values).evaluate().result
        assert result.outcome is not None
        assert layout.seconds == pytest.approx(float(result.outcome.step_seconds), rel=1e-12)
        if objective in {"mfu", "tokens_per_second_per_device"}:
            assert layout.value == pytest.approx(result.figure(objective), rel=1e-12)
