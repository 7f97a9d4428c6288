"""Legal layouts per second of ``parcost search``, on one core.

    python benchmarks/search.py [--table]

Two spaces: a dense model of 70B on 1,024 GPUs and a mixture of 256 experts on 2,048. Each is
searched in a process of its own: once with the start of the interpreter and the reading of
the spec, as on the command line, and once in process. The peak memory is reported, and the
number of calls of plugins: those about the space, and those of the listed layouts, each of
which is evaluated by itself. ``--table`` adds how time per layout and memory change with the
size of the space. Seconds are CPU seconds, which other processes disturb less.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from attrs import evolve

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # which compiles all of it for each process
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

DENSE = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster { devices = 1024 }
training { sequence = 8192, global_batch = 2048 sequences }
"""
EXPERTS = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.deepseek_v3
use catalog.precisions.bf16
model deep extends deepseek_v3 { layers = 64 }  # 61 is a prime number, and no pipeline cuts it
cluster { devices = 2048 }
training { model = deep, sequence = 4096, global_batch = 16384 sequences }
"""
SPACES = {"dense 70B, 1,024 GPUs": DENSE, "256 experts, 2,048 GPUs": EXPERTS}
#: The axes of the dense space, so that it stays as large whatever plugins offer.
OVER = {
    "layout.pp": [1, 2, 4, 8, 16],
    "schedule.chunks": [1, 2, 4, 5, 8, 10, 16, 20, 40, 80],
    "layout.tp": [1, 2, 4, 8, 16, 32, 64],
    "layout.cp": [1, 2, 4, 8, 16, 32, 64],
    "training.micro_batch": [1, 2, 4, 8, 16, 32, 64],
    "schedule.kind": ["one_f_one_b", "interleaved", "gpipe", "breadth_first"],
    "layout.zero": [0, 1, 2, 3],
    "layout.sequence_parallel": ["off", "on"],
    "training.recompute": ["none", "selective", "full"],
    "overlap.gradients": ["off", "on"],
    "overlap.parameters": ["off", "on"],
    "overlap.tensor": ["off", "on"],
}
WHOLE = "-"  # stands for these axes
#: From 10^4 to 10^8 points: axes that are added, one after another.
STEPS = (
    "tp,pp,micro_batch,schedule,recompute",
    "tp,pp,micro_batch,schedule,recompute,zero,sequence_parallel",
    "tp,pp,cp,micro_batch,schedule,recompute,zero,sequence_parallel",
    "tp,pp,cp,micro_batch,schedule,recompute,zero,sequence_parallel,gradients,parameters",
    "",
)
MORE = "tp,pp,cp,ep,etp,micro_batch,schedule,recompute,zero,sequence_parallel,gradients"


def inside(path: str, axes: str) -> None:
    """Search in this process and print points, legal layouts, seconds and bytes."""
    import parcost
    from parcost.plugins.discovery import Plugins
    from parcost.search.best_first import SearchRequest, search
    from parcost.search.space import space

    calls = {"space": 0, "layouts": 0}
    ask = Plugins.ask

    def count_call(self: Plugins, hook: str, *args: Any, only: int | None = None, **of: Any) -> Any:
        if only is not None:
            calls["space"] += 1
        else:
            calls["layouts"] += len(self.implementers(hook))
        return ask(self, hook, *args, only=only, **of)

    (scenario,) = parcost.load(path)
    given = OVER if axes == WHOLE else {}
    names = [name for name in axes.split(",") if name and name != WHOLE]
    start = process_time()
    request = SearchRequest(budget_seconds=1e9)
    found = search(space(scenario, given, names or list(given)), request)
    seconds = process_time() - start
    start = process_time()
    search(space(scenario, given, names or list(given)), evolve(request, front=True))
    with_front = process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Plugins.ask = count_call  # type: ignore[method-assign]
    search(space(scenario, given, names or list(given)), request)
    print(found.size, found.legal, seconds, with_front, peak, calls["space"], calls["layouts"])


def measure(text: str, axes: str = "") -> tuple[int, int, float, float, float, float, str, str]:
    """Return points, legal layouts, seconds of the CPU, bytes, and calls.

    The seconds are those in process, the same with the Pareto front, and from the shell.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "spec.par")
        path.write_text(text, encoding="utf-8")
        command = [sys.executable, __file__, "--inside", str(path), axes]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        size, legal, seconds, front, peak, calls, others = run.stdout.split()
        start = children_seconds()
        program = "import sys; from parcost_apps.cli import main; sys.exit(main(sys.argv[1:]))"
        flags = ["--axes", axes] if axes and axes != WHOLE else []
        for name, values in OVER.items() if axes == WHOLE else ():
            flags += ["--over", f"{name}={','.join(map(str, values))}"]
        if axes == WHOLE:
            flags += ["--axes", ",".join(OVER)]
        flags += ["--budget", "1e9"]
        command = [sys.executable, "-c", program, "search", str(path), *flags]
        subprocess.run(command, check=True, capture_output=True)
        whole = children_seconds() - start
    return int(size), int(legal), float(seconds), float(front), whole, float(peak), calls, others


def children_seconds() -> float:
    """Return the seconds of the CPU that child processes have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    print(f"Python {sys.version.split()[0]}, one of {os.cpu_count()} cores")
    for name, text in SPACES.items():
        axes = WHOLE if text is DENSE else ""
        size, legal, seconds, front, whole, peak, calls, others = measure(text, axes)
        print(f"{name}: {legal:,} of {size:,} points are legal")
        print(f"  in process      {seconds:8.2f} s  {legal / seconds:12,.0f} layouts a second")
        print(f"  with the front  {front:8.2f} s  {legal / front:12,.0f} layouts a second")
        print(f"  from the start  {whole:8.2f} s  {legal / whole:12,.0f} layouts a second")
        print(f"  peak memory     {peak / 2**20:8.0f} MiB")
        print(f"  plugin calls    {calls:>8}, and {others} of layouts that are listed")
    if "--table" in sys.argv:
        print(f"{'points':>14} {'legal':>12} {'seconds':>9} {'us a layout':>11} {'MiB':>7}")
        spaces = [(DENSE, axes) for axes in STEPS] + [(EXPERTS, MORE), (EXPERTS, "")]
        for text, axes in spaces:
            size, legal, seconds, _, _, peak, _, _ = measure(text, axes)
            each = seconds / legal * 1e6
            print(f"{size:14,} {legal:12,} {seconds:9.2f} {each:11.3f} {peak / 2**20:7.0f}")


if __name__ == "__main__":
    if "--inside" in sys.argv:
        inside(*sys.argv[2:])
    else:
        main()
