"""A batch of distinct specs: against Lark's bare parse, against itself unchanged, on two cores.

    python benchmarks/batch.py [COUNT] [jsonl|csv|...]

Writes COUNT specs of 60 lines into a temporary folder (10,000 by default) and runs
``parcost eval`` on them as a user does. Prints CPU seconds, because others may use the
machine, rates, and the ratios that the project promises:

    cold / Lark                2 at most
    specs per second           120 at least, on one core
    cold / unchanged          20 at least
    one process / two        1.7 at least, in seconds of the clock
    memory, 10 x as many     the same

Lark's parse is timed in turns with the batch, in blocks, so that a machine that others
use slows both alike.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from parcost_grammar.generate import lark

BLOCK = 1000
PARCOST = "import sys; from parcost_apps.cli import main; sys.exit(main())"
MEMORY = """
import sys
from resource import RUSAGE_SELF, getrusage
from parcost_apps.cli import main
code = main()
print(getrusage(RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
TEXT = """\
# Job {i}: a dense model on nodes of eight, as the sweep of a fleet would write it.
use catalog.devices.h100_sxm
use catalog.models.llama3_70b
use catalog.precisions.bf16

let nodes = {nodes}
let width = 8

fabric rails_{i} {{
  level node {{
    size      = 8 devices
    bandwidth = 360 GB/s per_direction @assumed("0.80 of NVLink 4")
    latency   = 2 us @assumed("one message")
  }}
  level network {{
    bandwidth = {rate} GB/s per_direction @measured("all-reduce of 1 GiB, job {i}")
    latency   = 20 us @assumed("one message between nodes")
  }}
}}

cluster {{
  devices = nodes * width
}}

layout {{
  tp                = 8
  pp                = {pp}
  sequence_parallel = on
  zero              = 1
}}

# Sequences are packed; the batch is that of the first phase.
training {{
  sequence     = 8192
  micro_batch  = 1
  global_batch = {batch} sequences
}}

overlap {{
  gradients  = on
  parameters = on
  bucket     = {bucket} MB
}}

collectives {{
  tensor = ring
  data   = ring
}}

memory {{
  usable = {usable} %
}}

expect {{
  mfu       >= 5 %
  step_time <= 10 min
  memory    <= 80 GiB
}}
# The end of job {i}.
"""


def text(i: int) -> str:
    """Return the spec of job *i*."""
    return TEXT.format(
        i=i,
        nodes=(8, 16, 32, 64)[i % 4],
        rate=40 + i / 1000,
        pp=(4, 8)[i // 4 % 2],
        batch=(64, 128, 256)[i // 8 % 3],
        bucket=25 + 25 * (i // 24 % 5),
        usable=90 + i % 7,
    )


def blocks(folder: Path, count: int) -> Iterator[Path]:
    """Write the specs, in folders of a block each."""
    for start in range(0, count, BLOCK):
        block = folder / f"{start:06}"
        block.mkdir(parents=True)
        for i in range(start, min(start + BLOCK, count)):
            (block / f"job{i:06}.par").write_text(text(i), encoding="utf-8")
        yield block


def run(*arguments: str, code: str = PARCOST) -> tuple[float, float, str]:
    """Return CPU seconds, seconds of the clock and the messages of one command."""
    before, start = getrusage(RUSAGE_CHILDREN), perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    after = getrusage(RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, perf_counter() - start, done.stderr


def parse_seconds(block: Path) -> float:
    """Return the CPU seconds that Lark takes for the texts of a block."""
    bare = lark()
    texts = [path.read_text(encoding="utf-8") for path in sorted(block.iterdir())]
    bare.parse(texts[0])
    start = process_time()
    for one in texts:
        bare.parse(one)
    return process_time() - start


def print_value(name: str, value: float, promised: str = "") -> None:
    """Print one number."""
    print(f"{name:44}{value:10.2f}{'   ' + promised if promised else ''}", flush=True)


def main(count: int, format_: str) -> None:
    """Measure and print."""
    os.environ.pop("PARCOST_NO_CACHE", None)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # which compiles all of it for each process
    with TemporaryDirectory() as place:
        folder, cache = Path(place, "specs"), str(Path(place, "cache"))
        options = ["--format", format_, "--out", str(Path(place, "out")), "--cache", cache]
        found = list(blocks(folder, count))
        lines = text(0).count("\n")
        print(f"{count:,} specs of {lines} lines, --format {format_}, {os.cpu_count()} cores")
        theirs = cold = 0.0
        for block in found:
            theirs += parse_seconds(block)
            cold += run("eval", str(block), *options)[0]
        print_value("Lark, bare LALR parse, CPU ms per spec", theirs / count * 1e3)
        print_value("cold, CPU ms per spec", cold / count * 1e3)
        print_value("cold / Lark", cold / theirs, "at most 2")
        print_value("cold, specs per second of one core", count / cold, "at least 120")
        everything = [str(block) for block in found]
        warm, clock, messages = run("eval", *everything, *options)
        known = re.search(r"(\d+) of them unchanged", messages)
        assert known, "nothing was remembered"
        assert int(known[1]) == count
        print_value("unchanged, CPU ms per spec", warm / count * 1e3)
        print_value("unchanged, seconds", clock)
        print_value("cold / unchanged", cold / warm, "at least 20")
        processes(found, options[:4])
        memory(found, options[:4])


def processes(found: Sequence[Path], options: Sequence[str]) -> None:
    """Compare one process with two, long enough for starting them not to count."""
    paths = [str(block) for block in found[:4]]
    one = run("eval", *paths, *options, "--no-cache")[1]
    two = run("eval", *paths, *options, "--no-cache", "--jobs", "2")[1]
    print_value("one process / two, seconds of the clock", one / two, "at least 1.7")


def memory(found: Sequence[Path], options: Sequence[str]) -> None:
    """Compare the memory of a batch with that of one that is ten times as long."""
    few = [str(path) for path in sorted(found[0].iterdir())[: BLOCK // 10 * len(found[:10])]]
    for name, paths in (("few", few), ("many", [str(block) for block in found[:10]])):
        messages = run("eval", *paths, *options, "--no-cache", code=MEMORY)[2]
        print_value(f"{name} specs, peak MB", int(messages.split()[-1]) / 1024)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(int(arguments[0]) if arguments else 10_000, (arguments[1:] or ["jsonl"])[0])
