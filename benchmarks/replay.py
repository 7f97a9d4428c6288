"""Replaying op orders: one candidate, and a hundred thousand in arrays.

    python benchmarks/replay.py

Prints microseconds of one replay at p * m * v = 512, per candidate in an array of 10^5, and of the
layout of an order, which happens once. Each is also given as a multiple of a baseline: the sum of
as many floats in a Python loop (for one candidate), or of as many arrays (for many). The ratio
varies less between machines.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

from parcost import Pipeline
from parcost.contract.pipelines import Times
from parcost.engine.orders import order_of
from parcost.engine.replay import PipelinePlan, run
from parcost.plugins.discovery import load

CANDIDATES = 100_000


def best(call: Callable[[], object], times: int, rounds: int = 7) -> float:
    """Return the least CPU microseconds of a call."""
    taken = []
    for _ in range(rounds):
        start = process_time()
        for _ in range(times):
            call()
        taken.append((process_time() - start) / times)
    return min(taken) * 1e6


def add_floats(count: int) -> float:
    """Add up *count* floats in a loop: the baseline of one candidate."""
    sum_ = 0.0
    for value in [0.5] * count:
        sum_ = sum_ + value
    return sum_


def add_arrays(block: Any, count: int) -> None:
    """Add *block* to itself *count* times: the baseline of many."""
    for _ in range(count):
        block + block


class UnknownOrder:
    """A schedule that the cache has not seen."""

    def __init__(self, schedule: Any) -> None:
        self.name, self.order = schedule.name, schedule.order
        self.copies = getattr(schedule, "copies", 1)


def main() -> None:
    """Measure and print."""
    schedules = {name: found for name, (_, found) in load().offers("schedules").items()}
    one = "one candidate, us"
    many = f"{CANDIDATES:,} candidates, us each"
    print(f"{'schedule':<14}{'p':>4}{'m':>5}{'v':>4}{one:>26}{many:>34}{'order, us':>18}")
    for name in ("gpipe", "one_f_one_b"):
        for p, m in ((4, 128), (8, 64), (64, 8)):
            print(row(schedules[name], p, m))
    for name, v in (("interleaved", 2), ("zb_h1", 1), ("zb_v", 2), ("dualpipe", 1)):
        print(row(schedules[name], 8, 64 // v, v))


def row(schedule: Any, p: int, m: int, v: int = 1) -> str:
    """Return the figures of one schedule."""
    cut = Pipeline(schedule=schedule.name, stages=p, micro_batches=float(m), chunks=v)
    plan = PipelinePlan(schedule, cut)
    order = order_of(schedule, p, m, v)
    ops = len(order.program.into)
    values = [float(x) for x in range(p * v)]
    copies = [0.0] * len(order.device)
    alone = best(lambda: run(order, Times(values, values, values), 0.125, copies), 50)
    adding = best(lambda: add_floats(ops), 50)

    slow = np.linspace(1.0, 2.0, CANDIDATES)
    times = Times(*[[slow] * (p * v)] * 3)
    together = best(lambda: replay(plan, times), 1, 3) / CANDIDATES
    block = slow[:4096]
    arrays = best(lambda: add_arrays(block, ops), 3, 3) / block.size
    laid = best(lambda: order_of(UnknownOrder(schedule), p, m, v).program, 3)
    return (
        f"{schedule.name:<14}{p:>4}{m:>5}{v:>4}{alone:>15.0f} ({alone / adding:>5.1f} x)"
        f"{together:>23.2f} ({together / arrays:>5.1f} x){laid:>15.0f} us"
    )


def replay(plan: PipelinePlan, times: Times) -> Any:
    """Replay with a hop and never by closed form."""
    return plan.timeline(times, 0.125, [0.0] * len(plan.device), spans=False)


if __name__ == "__main__":
    main()
