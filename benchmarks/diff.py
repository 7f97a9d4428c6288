"""How long `parcost diff` takes between revisions of a repository whose specs all differ.

    python benchmarks/diff.py [SPECS]

Commits a shipped run under many names, halves the tensor parallelism of each, and prints the
seconds of `parcost diff HEAD -- specs`. The project promises 10 s for 300 specs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

SPEC = Path(__file__).parents[1] / "specs" / "runs" / "llama31_405b_16k_h100.par"
PROMISED = 10.0
GIT = ("git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@example.com")


def write(folder: Path, text: str, count: int) -> None:
    """Write *count* specs, each with a name of its own."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        (folder / f"job_{number}.par").write_text(text, encoding="utf-8")


def main(count: int = 300) -> int:
    """Measure, print, and return 1 if the promise is broken."""
    text = SPEC.read_text(encoding="utf-8")
    with TemporaryDirectory() as name:
        root = Path(name)
        write(root / "specs", text, count)
        for step in (("init", "-q"), ("add", "specs"), ("commit", "-q", "-m", "specs")):
            subprocess.run([*GIT, *step], cwd=root, check=True)
        write(root / "specs", text.replace("tp                = 8", "tp                = 4"), count)
        command = [sys.executable, "-m", "parcost", "diff", "HEAD", "--", "specs"]
        begin = perf_counter()
        found = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
        seconds = perf_counter() - begin
    changed = found.stdout.count("job_")
    print(f"{count} specs of {len(text.splitlines())} lines, {changed} lines of them in the report")
    print(f"{seconds:.1f} s, promised {PROMISED:.0f} s")
    return int(seconds > PROMISED or not changed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
