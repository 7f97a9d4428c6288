"""One resolved spec, evaluated again in process.

    python benchmarks/evaluate.py [SPEC]

Prints milliseconds per evaluation, and the ratio to importing NumPy, which steadies the
figure between machines. The promise is about 2 ms for p * m * v up to 512.
"""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter

import parcost
from parcost.engine import reduce

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster {{ devices = {devices} }}
layout {{ tp = 8, pp = {pp}, zero = 1, sequence_parallel = on }}
schedule {{ kind = {schedule} }}
training {{ sequence = 8192, micro_batch = 1, global_batch = {batch} sequences }}
"""


def milliseconds(text: str, times: int = 200) -> float:
    """Return the median milliseconds of evaluating the study again."""
    (scenario,) = parcost.load_text(text)
    study = scenario.studies()[0]
    reduce.evaluate(study.fresh())
    seconds = []
    for _ in range(times):
        fresh = study.fresh()
        start = perf_counter()
        reduce.evaluate(fresh)
        seconds.append(perf_counter() - start)
    return sorted(seconds)[times // 2] * 1e3


def main() -> None:
    """Measure and print."""
    start = perf_counter()
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    importing = (perf_counter() - start) * 1e3
    for schedule, pp, m in (("one_f_one_b", 1, 16), ("one_f_one_b", 4, 16), ("one_f_one_b", 8, 64)):
        text = SPEC.format(devices=8 * pp * 2, pp=pp, batch=m * 2, schedule=schedule)
        taken = milliseconds(text)
        share = taken / importing
        print(f"{schedule:12} p={pp} m={m:3}: {taken:6.2f} ms  ({share:.4f} of importing numpy)")


if __name__ == "__main__":
    main()
