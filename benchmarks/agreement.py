"""Whether a search that asks about many numbers of stages at once finds what one by one does.

    python benchmarks/agreement.py [--count 100] [--first 0] [--log FILE]

Each seed is a small random space over schedules, stages, chunks, experts, context parallelism,
ZeRO 0 to 3, devices and objectives. It is searched twice: with structures joined, and with each
of them asked about on its own. Winners, fronts, and every score of every layout have to agree
within 1e-12. A log has a line for each seed that is done, so that a run goes on where it was
ended; it ends with a failure where seeds disagree.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve

import parcost
from parcost import SpecError
from parcost.output.search_points import Points
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space

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
    found = []
    for together in (True, False):
        whole = evolve(space(scenario, axes, list(axes)), merges=together)
        lines: list[str] = []
        request = SearchRequest(objective=objective, keep=5, budget_seconds=math.inf)
        try:
            best = search(whole, request)
            search(whole, request, points=Points(whole, "jsonl", lines.append))
        except SpecError as error:
            found.append(([d.id for d in error.diagnostics], {}, 0))
            continue
        rows = {
            json.dumps([row[path] for path in axes]): row
            for row in map(json.loads, "".join(lines).splitlines())
        }
        listed = [
            (one.values, one.cost, one.seconds, one.bytes_) for one in (*best.best, *best.front)
        ]
        counts = [best.legal, best.refused, best.gap, best.proven, list(best.faults), listed]
        found.append((counts, rows, best.legal))
    (one, rows, legal), (other, own, _) = found
    said = list(_different("the result", one, other))
    if rows.keys() != own.keys():
        said.append(f"{len(rows)} layouts are {len(own)} one by one")
    for at in rows.keys() & own.keys():
        said += _different(at, rows[at], own[at])
    return said[:5], legal


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
