"""The CPU time of ``parcost eval`` as a process, compared with importing its libraries.

    python benchmarks/startup.py [SPEC [LIMIT]]

Prints CPU seconds (user and system) of whole processes, interleaved so that a busy machine affects
all equally, and their ratio. The project promises 2.2 at most. With a LIMIT after the spec the exit
code is 1 above it: a guard that a busy machine does not trip.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

ROUNDS = 11
PROMISED = 2.2
SPEC = Path(__file__).parents[1] / "specs" / "runs" / "llama3_70b_64_h100.par"
PARCOST = "import sys; from parcost_apps.cli import main; sys.exit(main())"


def cpu_seconds(environment: Mapping[str, str], *arguments: str) -> float:
    """Return the CPU seconds of ``python -c arguments...``, which has to succeed."""
    before = getrusage(RUSAGE_CHILDREN)
    command = [sys.executable, "-c", *arguments]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(spec: str, limit: str = "inf") -> int:
    """Measure, print, and return whether the limit holds."""
    with TemporaryDirectory() as folder:
        # Byte code is kept for all alike, whatever the environment says, and from nowhere else.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return compare(spec, environment, float(limit))


def compare(spec: str, environment: Mapping[str, str], limit: float) -> int:
    """Run the processes in turns; return 1 where the ratio is above *limit*."""
    processes = {
        "python": ["pass"],
        "import numpy, lark, attrs, pluggy": ["import numpy, lark, attrs, pluggy"],
        "parcost --help": [PARCOST, "--help"],
        f"parcost check {Path(spec).name}": [PARCOST, "check", spec],
        f"parcost eval {Path(spec).name}": [PARCOST, "eval", spec],
    }
    for arguments in processes.values():
        cpu_seconds(environment, *arguments)  # once for the disk cache and the byte code
    times: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(ROUNDS):
        for name, arguments in processes.items():
            times[name].append(cpu_seconds(environment, *arguments))
    print(f"{'CPU seconds of the process':40} {'least':>7} {'median':>7}")
    for name, seconds in times.items():
        print(f"{name:40} {min(seconds):7.3f} {median(seconds):7.3f}")
    _, imports, *_, evaluated = times.values()
    ratio = median(evaluated) / median(imports)
    print(f"eval / imports: {ratio:.2f}, promised: {PROMISED} at most")
    return int(ratio > limit)


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or [str(SPEC)])))
