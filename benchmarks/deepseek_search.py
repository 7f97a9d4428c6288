"""The default search of DeepSeek-V3 on 2,048 H800: seconds, whether it is proven, what it lists.

    python benchmarks/deepseek_search.py [--budget SECONDS]

61 layers have no even cut, so that every pipeline is uneven. The search is ``parcost search``
without options except the budget, in one process on one core.
"""

from __future__ import annotations

import argparse
import os
import resource
from time import perf_counter, process_time

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # which compiles all of it for each process
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

SPEC = """
use catalog.devices.h800_sxm
use catalog.fabrics.hgx_h800
use catalog.models.deepseek_v3
use catalog.precisions.fp8_blockwise
cluster { devices = 2048 }
training { sequence = 4096, global_batch = 15_360 sequences }
"""


def main() -> None:
    """Search once and print what was found, and how long it took."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--budget", type=float, default=60.0)
    budget = options.parse_args().budget
    import parcost
    from parcost.search.layout_search import search_layouts
    from parcost_plugins.physics.partition import cut_text, layers

    (scenario,) = parcost.load_text(SPEC)
    start, used = perf_counter(), process_time()
    found = search_layouts(scenario, budget_seconds=budget)
    wall, cpu = perf_counter() - start, process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    proof = "proven" if found.proven else f"not proven, gap {found.gap}"
    print(f"{found.legal:,} of {found.size:,} points are legal; {proof}")
    print(f"{wall:.1f} s of {budget:g} s, {cpu:.1f} s of CPU, {peak:.0f} MiB")
    print(f"{found.looked} of {found.structures} parts")
    for layout in found.best:
        study = layout.result.study if layout.result is not None else None
        cut = cut_text(layers(study)) if study is not None else ""
        degrees = {k.partition(".")[2]: v for k, v in list(layout.values.items())[:7]}
        print(f"  {layout.seconds:.2f} s  {layout.bytes_ / 2**30:.1f} GiB  {cut}  {degrees}")


if __name__ == "__main__":
    main()
