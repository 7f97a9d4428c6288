"""Whether a search that asks about many numbers of stages at once finds what one by one does.

    python benchmarks/agreement.py [--count 100] [--first 0] [--log FILE]

Each seed is a small random space over schedules, stages, chunks, experts, context parallelism,
ZeRO 0 to 3, devices and objectives. It is searched three times. Two searches score every layout:
with structures joined, and with each of them asked about on its own. The third joins structures
and leaves out layouts that cannot rank, as users do. Winners, fronts, counts and refusals of the
three, and every score of every layout of the first two, have to agree within 1e-12. Of equally
good layouts the two may replay others: then the bound of one is at most the step of the other. A
log has a line for each seed that is done, so that a run goes on where it was ended; it ends with a
failure where seeds disagree.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attrs import evolve

import parcost
from parcost import SpecError
from parcost.search import best_first, tally
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import Space, StructureGroup, space
from parcost_apps.search.points import Points

MODELS = {
    "dense": "model m { layers = 12, hidden = 2048, heads = 16, ffn = 5632, vocabulary = 32_000 }",
    "tied": "model m { layers = 12, hidden = 2048, heads = 16, vocabulary = 64_000, tied = on }",
    "experts": """model m {
      layers = 12, hidden = 1536, heads = 16, ffn = 6144, vocabulary = 32_000
      experts = 16, top_k = 2, expert_ffn = 768, shared_experts = 1, dense_first = 1
    }""",
    "windows": """model m {
      layers = 8, hidden = 2304, heads = 8, kv_heads = 4, head_dim = 256, ffn = 9216
      vocabulary = 64_000, window = 1024, full_every = 2
    }""",
}
DEVICES = ("h100_sxm", "b200")
SETTINGS = (
    "",
    "overlap { tensor = on }",
    "overlap { multiprocessors = 10 }",
    "schedule { transfers = blocking }",
    "schedule { count_head = on }",
    "schedule { assignment = front }",
    "sharding { accumulate = whole }",
    "sharding { shard = 4, replicate = micro_batch }",
    "recompute { every = 2 }",
    "recompute { norms = on }",
    "context { algorithm = all_gather }",
    "offload { optimizer = 50 %, update = device }",
    "price { device_hour = 2 USD/h }",
)
STAGES: Mapping[str, list[Any]] = {
    "layout.pp": [1, 2, 3, 4, 6, 8],
    "schedule.chunks": [1, 2, 3],
    "schedule.kind": [
        "gpipe", "one_f_one_b", "interleaved", "breadth_first", "zb_h1", "zb_v", "dualpipe",
        "chimera",
    ],
}  # fmt: skip
OTHERS: Mapping[str, list[Any]] = {
    "layout.tp": [1, 2, 4],
    "layout.cp": [1, 2, 4],
    "layout.ep": [1, 2, 4],
    "layout.zero": [0, 1, 2, 3],
    "layout.sequence_parallel": ["off", "on"],
    "training.micro_batch": [1, 2, 4],
    "training.recompute": ["none", "selective", "full"],
    "overlap.gradients": ["off", "on"],
    "overlap.parameters": ["off", "on"],
    "cluster.device": list(DEVICES),
}
OBJECTIVES = ("step_time", "mfu", "tokens_per_second_per_device", "fewest_devices")
MOST = 2000  # points
DISAGREE = 1e-12


def drawn(seed: int) -> tuple[str, dict[str, list[Any]], str]:
    """Return a spec, axes and an objective."""
    rng = random.Random(seed)
    kind = rng.choice(list(MODELS))
    settings = {text.split()[0] if text else "": text for text in rng.sample(SETTINGS, 2)}
    device, devices = rng.choice(DEVICES), rng.choice([16, 24, 48, 64])
    text = "\n".join(
        [
            *(f"use catalog.devices.{device}" for device in DEVICES),
            "use catalog.fabrics.hgx_h100",
            "use catalog.precisions.bf16",
            MODELS[kind],
            f"cluster {{ device = {device}, devices = {devices} }}",
            f"training {{ sequence = 2048, global_batch = {rng.choice([48, 96])} sequences }}",
            *settings.values(),
            "",
        ]
    )
    axes = {name: rng.sample(values, min(3, len(values))) for name, values in STAGES.items()}
    if "one_f_one_b" not in axes["schedule.kind"]:
        axes["schedule.kind"].append("one_f_one_b")
    names = [name for name in OTHERS if name != "layout.ep" or kind == "experts"]
    for name in rng.sample(names, len(names)):
        some = rng.sample(OTHERS[name], 2)
        if math.prod(map(len, axes.values())) * len(some) <= MOST:
            axes[name] = some
    return text, axes, rng.choice(OBJECTIVES)


def disagreements(seed: int) -> tuple[list[str], int]:
    """Return how two searches of a space differ, and how many layouts of it are legal."""
    text, axes, objective = drawn(seed)
    (scenario,) = parcost.load_text(text)
    whole = space(scenario, axes, list(axes))
    request = SearchRequest(objective=objective, keep=5, budget_seconds=math.inf, front=True)
    with ExitStack() as shared:  # what all searches, or both that join, would compute alike
        shared.enter_context(_computed_once(tally, "evaluate_layout", _layout_key))
        with ExitStack() as joined:
            joined.enter_context(_computed_once(Space, "groups", _one_key, list))
            joined.enter_context(_computed_once(best_first, "Scores", _group_key))
            one, rows = _every_layout(whole, request)
            best = _result(whole, request)
        other, own = _every_layout(evolve(whole, merges=False), request)
    said = list(_different("the result", one, other))
    said += _different("without layouts that cannot rank", best, other)
    if rows.keys() != own.keys():
        said.append(f"{len(rows)} layouts are {len(own)} one by one")
    for at in rows.keys() & own.keys():
        said += _different_layouts(at, rows[at], own[at])
    return said[:5], len(rows)


def _layout_key(_scenario: Any, values: Mapping[str, Any], _objective: str) -> Any:
    return tuple(map(str, values.items()))


def _group_key(group: StructureGroup) -> Any:
    return id(group)


def _one_key(_space: Space) -> Any:
    return None


@contextmanager
def _computed_once(
    owner: Any, name: str, key: Callable[..., Any], keep: Callable[[Any], Any] = lambda found: found
) -> Iterator[None]:
    """Make a function of *owner* return the same object again for arguments with the same *key*."""
    known: dict[Any, Any] = {}
    compute = getattr(owner, name)

    def answer(*arguments: Any) -> Any:
        at = key(*arguments)
        if at not in known:
            known[at] = keep(compute(*arguments))
        return known[at]

    with patch.object(owner, name, answer):
        yield


def _every_layout(whole: Space, request: SearchRequest) -> tuple[Any, Mapping[str, Any]]:
    """Return the result of a search that scores every layout, and the figures of each layout."""
    lines: list[str] = []
    found = _result(whole, request, Points(whole, "jsonl", lines.append))
    every = map(json.loads, "".join(lines).splitlines())
    return found, {json.dumps([row[axis.attribute] for axis in whole.axes]): row for row in every}


def _result(whole: Space, request: SearchRequest, points: Points | None = None) -> Any:
    """Return counts, the best layouts and the front of a search, or why it refuses."""
    try:
        found = search(whole, request, points=points)
    except SpecError as error:
        return [one.id for one in error.diagnostics]
    listed = [
        [(one.values, one.cost, one.seconds, one.bytes_) for one in layouts]
        for layouts in (found.best, found.front)
    ]
    return [found.legal, found.rejected, found.gap, found.proven, list(found.faults), listed]


def _different_layouts(
    where: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[str]:
    """Yield where the scores of a layout differ; of one that is not replayed, its bound."""
    if one["exact"] == other["exact"]:
        yield from _different(where, one, other)
        return
    exact, bounded = (one, other) if one["exact"] else (other, one)
    least, step = bounded["step_time_lower_bound_seconds"], exact["step_time_seconds"]
    if least > step * (1.0 + DISAGREE):
        yield f"{where}: a bound of {least} is above {step}"


def _different(where: str, one: Any, other: Any) -> Iterator[str]:
    """Yield where two values, or values inside of them, differ."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            yield f"{where}: {one} is {other} one by one"
            return
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _different(f"{where}, {i}", a, b)
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in {**one, **other}:
            yield from _different(f"{where}, {key}", one.get(key), other.get(key))
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=DISAGREE):
            yield f"{where}: {one} is {other} one by one"
    elif one != other:
        yield f"{where}: {one} is {other} one by one"


def seed_options(doc: str | None) -> argparse.ArgumentParser:
    """Return the options that choose seeds and a log, under the text of a program."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--log", type=Path, default=None)
    return parser


def compare_seeds(
    given: argparse.Namespace, compare: Callable[[int], tuple[Sequence[str], int]]
) -> int:
    """Compare the space of each seed that the log lacks, and return 1 where some differ.

    *compare* returns what differs in the space of a seed, and how many layouts are legal.
    """
    done: dict[int, Any] = {}
    if given.log is not None and given.log.exists():
        for line in given.log.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            done[row["seed"]] = row
    for seed in range(given.first, given.first + given.count):
        if seed in done:
            continue
        said, legal = compare(seed)
        done[seed] = {"seed": seed, "legal": legal, "said": list(said)}
        if given.log is not None:
            with given.log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(done[seed]) + "\n")
        for line in said:
            print(f"seed {seed}: {line}", flush=True)
    wrong = [row["seed"] for row in done.values() if row["said"]]
    legal = sum(row["legal"] for row in done.values())
    filled = sum(bool(row["legal"]) for row in done.values())
    print(
        f"{len(done)} spaces, {filled} with {legal:,} legal layouts: {len(wrong)} disagree {wrong}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(compare_seeds(seed_options(__doc__).parse_args(), disagreements))
