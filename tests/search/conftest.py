"""Small random spaces, and what every layout of one costs by itself."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from attrs import frozen

import parcost
from parcost import SpecError
from parcost.engine.scenario import Scenario
from parcost.search.best_first import SearchRequest, search
from parcost.search.replays import replay_layouts
from parcost.search.result import spec_text
from parcost.search.scores import Scores
from parcost.search.space import Space, StructureGroup
from parcost.search.space import space as space_of

MODELS = {
    "dense": "model m { layers = 8, hidden = 2048, heads = 16, ffn = 5632, vocabulary = 32_000 }",
    "gqa": "model m { layers = 12, hidden = 3072, heads = 24, kv_heads = 8, vocabulary = 49_152 }",
    "windows": """model m {
      layers = 8, hidden = 2304, heads = 8, kv_heads = 4, head_dim = 256, ffn = 9216
      vocabulary = 64_000, tied = on, norms = 4, window = 1024, full_every = 2
    }""",
    "moe": """model m {
      layers = 8, hidden = 2048, heads = 16, kv_heads = 8, ffn = 4096, vocabulary = 32_000
      experts = 8, top_k = 2
    }""",
    "fine": """model m {
      layers = 8, hidden = 1536, heads = 16, ffn = 6144, vocabulary = 32_000
      experts = 32, top_k = 4, expert_ffn = 768, shared_experts = 1, dense_first = 1
    }""",
    "mla": """model m {
      layers = 8, hidden = 2048, heads = 16, ffn = 6144, vocabulary = 64_000
      q_lora = 768, kv_lora = 256, nope_dim = 64, rope_dim = 32, v_dim = 64
    }""",
    "mla_moe": """model m {
      layers = 9, hidden = 2048, heads = 16, ffn = 6144, vocabulary = 64_000
      kv_lora = 256, nope_dim = 64, rope_dim = 32, v_dim = 64
      experts = 16, top_k = 2, expert_ffn = 1024, shared_experts = 2
    }""",
}

FABRICS = {
    "flat": "fabric f { level net { bandwidth = 100 GB/s per_direction, latency = 2 us } }",
    "nodes": """fabric f {
      level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us }
      level net { bandwidth = 400 Gbps per_direction, latency = 14 us }
    }""",
    "three": """fabric f {
      level node { size = 4 devices, bandwidth = 300 GB/s per_direction, latency = 2 us }
      level rack { size = 4 nodes, bandwidth = 50 GB/s per_direction, latency = 5 us }
      level net { bandwidth = 100 Gbps per_direction, latency = 20 us }
    }""",
    "curve": """fabric f {
      level node { size = 8 devices, bandwidth = 300 GB/s per_direction, latency = 3 us }
      level net {
        bandwidth = curve([64 KiB, 22 us], [1 MiB, 75 us], [16 MiB, 0.9 ms], [1 GiB, 51 ms]) per_direction
        latency = 0 s
      }
    }""",
    "mesh": """fabric f {
      level node { size = 8 devices, kind = mesh, bandwidth = 50 GB/s per_direction, latency = 3 us }
      level net { bandwidth = 100 GB/s per_direction, latency = 10 us }
    }""",
}

SETTINGS = [
    "",
    "",
    "overlap { multiprocessors = 0 }",
    "overlap { tensor = on }",
    "schedule { transfers = blocking }",
    "schedule { count_head = on }",
    "schedule { group = 8 }",
    "sharding { accumulate = whole }",
    "recompute { norms = on }",
    "context { algorithm = all_gather }",
    "routing { distribution = balanced }",
    "collectives { data = ring }",
    "kernels { model = roofline }",
]

#: What a space may vary, and out of which values; some are not legal anywhere.
AXES: Mapping[str, list[Any]] = {
    "layout.tp": [1, 2, 3, 4, 8],
    "layout.pp": [1, 2, 4, 8],
    "schedule.chunks": [1, 2, 3],
    "schedule.group": [2, 4, 8],
    "layout.cp": [1, 2, 4],
    "training.micro_batch": [1, 2, 4],
    "schedule.kind": [
        "gpipe", "one_f_one_b", "interleaved", "breadth_first", "zb_h1",
        "zb_h2", "zb_v", "chimera", "dualpipe", "dualpipe_v",
    ],
    "layout.zero": [0, 1, 2, 3],
    "layout.sequence_parallel": ["off", "on"],
    "training.recompute": ["none", "selective", "full"],
    "overlap.gradients": ["off", "on"],
    "overlap.parameters": ["off", "on"],
}  # fmt: skip
EXPERT_AXES: Mapping[str, list[Any]] = {"layout.ep": [1, 2, 4, 8], "layout.etp": [1, 2, 4]}


def random_space(seed: int) -> tuple[str, dict[str, list[Any]]]:
    """Return a spec and the axes of a space with up to some hundred points."""
    rng = random.Random(seed)
    kind = list(MODELS)[seed % len(MODELS)]
    fabric = rng.choice(list(FABRICS))
    precision = rng.choice(["bf16", "bf16", "fp8_delayed", "fp8_blockwise"])
    devices = rng.choice([8, 16, 32, 64])
    batch = rng.choice([32, 64, 96])
    order = rng.choice(["tp-cp-dp-pp", "tp-cp-dp-pp", "tp-pp-cp-dp"])
    text = f"""
use catalog.devices.{rng.choice(["h100_sxm", "h200_sxm", "b200"])}
use catalog.precisions.{precision}
{MODELS[kind]}
{FABRICS[fabric]}
cluster {{ devices = {devices} }}
layout {{ zero = {rng.choice([0, 1])}, order = "{order}" }}
training {{ sequence = {rng.choice([2048, 4096])}, global_batch = {batch} sequences }}
{rng.choice(SETTINGS)}
"""
    offered = dict(AXES) | (EXPERT_AXES if "experts" in MODELS[kind] else {})
    axes: dict[str, list[Any]] = {}
    for name, usual in (("layout.tp", 2), ("layout.pp", 2), ("schedule.kind", "one_f_one_b")):
        axes[name] = list(dict.fromkeys([*rng.sample(offered[name], rng.choice([1, 2])), usual]))
    rest = [name for name in offered if name not in axes]
    for name in rng.sample(rest, len(rest)):
        some = rng.sample(offered[name], 2)
        if math.prod(map(len, axes.values())) * len(some) <= 128:
            axes[name] = some
    return text, axes


@frozen(kw_only=True, eq=False)
class LayoutCost:
    """One layout, evaluated by itself."""

    seconds: float
    bytes_: float
    fits: bool


@frozen(kw_only=True, eq=False)
class KnownCost:
    """What the arrays of a search say of one layout."""

    legal: bool
    bound: float = 0.0
    seconds: float = math.inf
    exact: bool = False
    bytes_: float = math.inf
    replayed_seconds: float = math.inf
    replayed_bytes: float = math.inf
    fits: bool = False


def key_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a layout, in one way of writing them."""
    said = {name: spec_text(value) for name, value in values.items()}
    return tuple(
        (name, float(v) if isinstance(v, (int, float)) else v.strip('"'))
        for name, v in sorted(said.items())
    )


def layout_cost(scenario: Scenario, values: Mapping[str, Any]) -> LayoutCost | None:
    """Return what one layout costs by the public API, or None where a rule rejects it."""
    try:
        result = scenario.replace(values).evaluate().result
    except SpecError:
        return None
    if result.outcome is None:
        return None
    return LayoutCost(
        seconds=float(result.outcome.step_seconds),
        bytes_=float(result.outcome.memory_bytes),
        fits=bool(result.feasible),
    )


def one_by_one(
    scenario: Scenario, axes: Mapping[str, list[Any]]
) -> Iterator[tuple[dict[str, Any], LayoutCost | None]]:
    """Yield every layout of a space with what it costs by itself."""
    for values in product(*axes.values()):
        at = dict(zip(axes, values, strict=True))
        yield at, layout_cost(scenario, at)


def at_once(space: Space) -> dict[tuple[Any, ...], KnownCost]:
    """Return what the arrays of a search say of every layout that has a place in one."""
    found: dict[tuple[Any, ...], KnownCost] = {}
    with np.errstate(all="ignore"):
        for group in space.groups():
            if group.structures:
                found |= _known_costs(group)
    return found


def _known_costs(group: StructureGroup) -> dict[tuple[Any, ...], KnownCost]:
    found: dict[tuple[Any, ...], KnownCost] = {}
    whole = {i: np.arange(len(s.kept)) for i, s in enumerate(group.structures)}
    scores = Scores(group)
    every = list(scores.bound_layouts(whole))
    bounds = {(b.place, b.index): (b.seconds, b.points) for b in every}
    for scored in scores.score_layouts((b, b.legal) for b in every):
        structure, shape = scored.structure, scored.legal.shape
        bounded, points = bounds[scored.place, scored.index]
        if np.shape(bounded)[-1:] == (len(points),):
            bounded = bounded[..., np.searchsorted(points, scored.points)]
        bound = np.broadcast_to(bounded, shape)
        wide = [np.broadcast_to(a, shape) for a in (scored.seconds, scored.exact, scored.bytes_)]
        where = np.nonzero(scored.legal)
        seconds, bytes_, fits = replay_layouts(scored, where)
        fits = np.broadcast_to(fits, seconds.shape)
        for i, index in enumerate(zip(*where, strict=True)):
            values: dict[str, Any] = dict(structure.values)
            values |= {n: float(v[index[-1]]) for n, v in structure.degrees.items()}
            for k, choice in enumerate(structure.choices):
                at = scored.index if k == scored.choice else index[k]
                values[choice.name] = choice.values[at]
            found[key_of(values)] = KnownCost(
                legal=True,
                bound=float(bound[index]),
                seconds=float(wide[0][index]),
                exact=bool(wide[1][index]),
                bytes_=float(wide[2][index]),
                replayed_seconds=float(seconds[i]),
                replayed_bytes=float(bytes_[i]),
                fits=bool(fits[i]),
            )
    return found


def disagreements(text: str, axes: Mapping[str, list[Any]]) -> tuple[list[str], int]:
    """Return where arrays and single evaluations differ, in words, and the legal layouts."""
    (scenario,) = parcost.load_text(text)
    space = space_of(scenario, axes, list(axes))
    known = at_once(space)
    axes = {axis.attribute: list(axis.values) for axis in space.axes}
    said: list[str] = []
    legal = 0
    fastest = math.inf

    def differ(a: float, b: float) -> bool:
        return not math.isclose(a, b, rel_tol=1e-12)

    for at, one in one_by_one(scenario, axes):
        many = known.get(key_of(at))
        if one is None or many is None:
            if (one is None) != (many is None):
                said.append(f"legal alone: {one is not None}, in arrays: {many is not None}: {at}")
            continue
        legal += 1
        if one.fits:
            fastest = min(fastest, one.seconds)
        if differ(many.replayed_seconds, one.seconds):
            said.append(f"replayed {many.replayed_seconds} is {one.seconds} s alone: {at}")
        if differ(many.replayed_bytes, one.bytes_):
            said.append(f"held {many.replayed_bytes} is {one.bytes_} B alone: {at}")
        if many.exact and differ(many.seconds, one.seconds):
            said.append(f"exact {many.seconds} is {one.seconds} s alone: {at}")
        if many.seconds > one.seconds * (1 + 1e-12):
            said.append(f"bound {many.seconds} is above {one.seconds} s: {at}")
        if many.bound > one.seconds * (1 + 1e-12):
            said.append(f"first bound {many.bound} is above {one.seconds} s: {at}")
        if many.bytes_ > one.bytes_ * (1 + 1e-12):
            said.append(f"memory bound {many.bytes_} is above {one.bytes_} B: {at}")
        if many.fits != one.fits:
            said.append(f"fits alone: {one.fits}, in arrays: {many.fits}: {at}")
    best = found_in(space)
    if best != fastest and differ(best, fastest):
        said.append(f"the winner takes {best}, and of all layouts the fastest {fastest} s")
    return said, legal


def found_in(space: Space) -> float:
    """Return the seconds of the winner of a search, infinity where there is none."""
    try:
        found = search(space, SearchRequest(keep=3, budget_seconds=math.inf))
    except SpecError as error:
        if error.diagnostics[0].id not in {"empty-space", "nothing-fits"}:
            raise
        return math.inf
    return found.best[0].seconds if found.gap == 0 else math.nan


@pytest.fixture
def compare() -> Callable[..., tuple[list[str], int]]:
    """Compare the arrays of a space with its layouts one by one."""
    return disagreements


@pytest.fixture
def spaces() -> Callable[[int], tuple[str, dict[str, list[Any]]]]:
    """Return random spaces by seed."""
    return random_space
