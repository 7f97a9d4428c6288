"""What ``parcost eval`` costs as a process, against importing what it is built on.

    python benchmarks/startup.py [SPEC]

Prints CPU seconds (user and system) of whole processes, interleaved so that a busy
machine hits all alike, and their ratio. The project promises 2.5 at most; above that
the exit code is 1.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

ROUNDS = 11
PROMISED = 2.5
SPEC = Path(__file__).parents[1] / "specs" / "runs" / "llama3_70b_64_h100.par"
PARCOST = "import sys; from parcost.cli import main; sys.exit(main())"


def cpu_seconds(*arguments: str) -> float:
    """Return the CPU seconds of ``python -c arguments...``, which has to succeed."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", *arguments], check=True, capture_output=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(spec: str) -> int:
    """Measure, print, and say whether the promise holds."""
    processes = {
        "python": ["pass"],
        "import numpy, lark, attrs, pluggy": ["import numpy, lark, attrs, pluggy"],
        "parcost --help": [PARCOST, "--help"],
        f"parcost check {Path(spec).name}": [PARCOST, "check", spec],
        f"parcost eval {Path(spec).name}": [PARCOST, "eval", spec],
    }
    for arguments in processes.values():
        cpu_seconds(*arguments)  # once for the disk cache and the byte code
    times: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(ROUNDS):
        for name, arguments in processes.items():
            times[name].append(cpu_seconds(*arguments))
    print(f"{'CPU seconds of the process':40} {'least':>7} {'median':>7}")
    for name, seconds in times.items():
        print(f"{name:40} {min(seconds):7.3f} {median(seconds):7.3f}")
    _, imports, *_, evaluated = times.values()
    ratio = median(evaluated) / median(imports)
    print(f"eval / imports: {ratio:.2f}, promised: {PROMISED} at most")
    return int(ratio > PROMISED)


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or [str(SPEC)])))
