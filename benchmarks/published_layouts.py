"""Published layouts of four runs in the space that a search covers: rank and distance.

    python benchmarks/published_layouts.py [NAME...] [--budget SECONDS]
    python benchmarks/published_layouts.py --table

Each job is searched with its budget, and the published layout is evaluated. The results are written
to ``published_layouts.json`` beside this file, which ``--table`` prints as the table of
``docs/guide/search.md``. A rank counts sets of degrees that are faster, of those that the search
found; it is a lower bound where the ranking is not proven.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import parcost
from parcost.engine.scenario import Scenario
from parcost.report.verdict import verdict
from parcost.search.layout_evaluation import settings
from parcost.search.layout_search import search_layouts
from parcost.search.result import plain_value
from parcost_apps.search.report import rank_layouts, time_differences

RESULTS = Path(__file__).with_name("published_layouts.json")
_KEPT = 50  # sets of degrees that are ranked
_TERMS = 3
_BASE = {
    "layout.cp": 1,
    "training.micro_batch": 1,
    "schedule.chunks": 1,
    "schedule.kind": "one_f_one_b",
}


class Job(NamedTuple):
    """A published run: its title, its source, its spec without a layout, and its layout."""

    title: str
    source: str
    spec: str
    layout: dict[str, Any]
    over: dict[str, list[Any]]


JOBS = {
    "llama": Job(
        "Llama 3 405B, 16,384 H100",
        "Grattafiori et al. 2024, table 4",
        """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama31_405b
use catalog.precisions.bf16
cluster { devices = 16_384 }
training { sequence = 8192, global_batch = 16 Mi tokens }
""",
        {
            **_BASE,
            "layout.tp": 8,
            "layout.pp": 16,
            "schedule.chunks": 8,
            "schedule.kind": "interleaved",
            "layout.zero": 2,
            "layout.sequence_parallel": "on",
            "training.recompute": "none",
        },
        {},
    ),
    "deepseek": Job(
        "DeepSeek-V3, 2,048 H800",
        "DeepSeek-AI 2024, section 3",
        """
use catalog.devices.h800_sxm
use catalog.fabrics.hgx_h800
use catalog.models.deepseek_v3_mtp
use catalog.precisions.fp8_deepseek
cluster { devices = 2048 }
training { sequence = 4096, global_batch = 15_360 sequences }
recompute { norms = on, up_projection = on, activation = on }
""",
        {
            **_BASE,
            "layout.tp": 1,
            "layout.pp": 16,
            "layout.ep": 64,
            "layout.etp": 1,
            "schedule.kind": "dualpipe",
            "layout.zero": 1,
            "layout.sequence_parallel": "off",
            "training.recompute": "none",
        },
        {"schedule.kind": ["one_f_one_b", "interleaved", "dualpipe"]},
    ),
    "megatron": Job(
        "Megatron 530B, 2,240 A100",
        "Narayanan et al. 2021, table 2",
        """
use catalog.devices.a100_sxm_80g
use catalog.fabrics.dgx_a100
use catalog.frameworks.megatron_lm_2021
use catalog.models.mt_nlg_530b
use catalog.precisions.fp16
cluster { devices = 2240 }
layout { vocabulary_multiple = 128 }
training {
  sequence = 2048, global_batch = 2240 sequences, flash_attention = off, dropout = on
}
""",
        {
            **_BASE,
            "layout.tp": 8,
            "layout.pp": 35,
            "layout.zero": 0,
            "layout.sequence_parallel": "off",
            "training.recompute": "full",
        },
        {},
    ),
    "mixtral": Job(
        "Mixtral 8x7B, 64 H100",
        "Megatron-LM core_v0.8.0, megatron/core/transformer/moe/README.md",
        """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.frameworks.nemo
use catalog.models.mixtral_8x7b
use catalog.precisions.bf16
cluster { devices = 64 }
training { sequence = 4096, global_batch = 256 sequences }
""",
        {
            **_BASE,
            "layout.tp": 1,
            "layout.pp": 4,
            "layout.ep": 8,
            "layout.etp": 1,
            "schedule.chunks": 8,
            "schedule.kind": "interleaved",
            "layout.zero": 1,
            "layout.sequence_parallel": "off",
            "training.recompute": "none",
        },
        {},
    ),
}


def load_job(job: Job) -> Scenario:
    """Return the scenario of a job."""
    (scenario,) = parcost.load_text(job.spec)
    return scenario


def evaluate(scenario: Scenario, values: dict[str, Any]) -> Any:
    """Return the result of one layout by itself."""
    return scenario.replace(settings(scenario, values)).evaluate().result


def exposed_seconds(result: Any) -> dict[str, float]:
    """Return the exposed seconds of a step by term; copies of one on other stages together."""
    found: dict[str, float] = {}
    for line in result.outcome.ledger:
        name = line.name.partition(", stage")[0]
        found[name] = found.get(name, 0.0) + float(line.exposed)
    return found


def measure(job: Job, budget: float) -> dict[str, Any]:
    """Search the space of a job, and return the rank of its published layout."""
    scenario = load_job(job)
    start = perf_counter()
    found = search_layouts(scenario, over=job.over, top=_KEPT, budget_seconds=budget, tolerance=0.0)
    seconds = perf_counter() - start
    published = evaluate(scenario, job.layout)
    step = float(published.outcome.step_seconds)
    best = rank_layouts(found)[0]
    terms = time_differences(exposed_seconds(best.result), exposed_seconds(published))
    faster = sum(layout.seconds < step for layout in found.best)
    return {
        "size": found.size,
        "legal": found.legal,
        "proven": found.proven,
        "parts": [found.looked, found.structures],
        "budget_seconds": budget,
        "seconds": round(seconds, 1),
        "rank": faster + 1,
        "ranked": len(found.best),
        "published": {"step_seconds": step, "verdict": verdict(published)},
        "best": {
            "values": {path: plain_value(v) for path, v in best.layout.values.items()},
            "step_seconds": best.layout.seconds,
            "verdict": verdict(best.result),
        },
        "terms": [[name, seconds] for name, seconds in terms[:_TERMS] if seconds > 0.0],
    }


def _layout_text(values: dict[str, Any]) -> str:
    names = {
        "layout.tp": "TP",
        "layout.cp": "CP",
        "layout.pp": "PP",
        "schedule.chunks": "VPP",
        "layout.ep": "EP",
        "layout.etp": "ETP",
    }
    degrees = [f"{n} {values[path]}" for path, n in names.items() if values.get(path, 1) != 1]
    size = f"MBS {values['training.micro_batch']}"
    recompute = values["training.recompute"]
    return ", ".join([*degrees, size, f"ZeRO {values['layout.zero']}", f"recompute {recompute}"])


def table() -> str:
    """Return the results as a table in Markdown."""
    rows = [
        "| run | published layout | step | rank | best found | step | distance |",
        "| :-- | :-- | --: | --: | :-- | --: | --: |",
    ]
    for name, result in json.loads(RESULTS.read_text(encoding="utf-8")).items():
        job, own, best = JOBS[name], result["published"], result["best"]
        last = result["rank"] > result["ranked"]
        rank = f"after {result['ranked']}" if last else f"{result['rank']}"
        distance = 100.0 * (own["step_seconds"] / best["step_seconds"] - 1.0)
        steps = [f"{x['step_seconds']:.3g} s, {x['verdict'].split()[0]}" for x in (own, best)]
        rows.append(
            f"| {job.title} ({job.source}) | {_layout_text(job.layout)} | {steps[0]} | {rank} "
            f"| {_layout_text(best['values'])} | {steps[1]} | {distance:+.0f} % |"
        )
    return "\n".join(rows)


def main() -> None:
    """Search the jobs that are named, or all, and write their results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("names", nargs="*", choices=[[], *JOBS])
    options.add_argument("--budget", type=float, default=120.0)
    options.add_argument("--table", action="store_true")
    chosen = options.parse_args()
    if chosen.table:
        print(table())
        return
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for name in chosen.names or JOBS:
        results[name] = measure(JOBS[name], chosen.budget)
        ordered = {key: results[key] for key in JOBS if key in results}
        RESULTS.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
        print(name, json.dumps(results[name]))


if __name__ == "__main__":
    main()
