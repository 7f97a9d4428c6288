"""Parsing a 900-line file, against Lark's bare parse of the same text.

    python benchmarks/parse.py

Lark parses with the same grammar, its LALR parser and basic lexer, and positions. The
project promises that parsing, binding and checking together take at most 2.5 times
that; see benchmarks/bind.py. Also here: what a process saves by reading tables instead
of importing Lark and building them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from time import process_time

from parcost.language.format import format_text
from parcost.language.parse import parse
from parcost.language.text import Source
from parcost_grammar.generate import lark

PIECE = """
# Fabric number {i}, from the data sheet
fabric net_{i} @vendor("DGX H100 datasheet") {{
  level node {{
    size      = 8 devices
    bandwidth = 450 GB/s per_direction @measured("nccl-tests, 2024-06")
    latency   = 3.4 us
  }}
  level rail {{ size = 32 nodes, bandwidth = 400 Gbps per_direction, latency = 14 us }}
}}

let nodes_{i} = 8 + {i}
cluster c_{i} {{ device = h100_sxm, devices = nodes_{i} * 8, fabric = net_{i} }}
layout l_{i} {{
  tp   = [1, 2, 4, 8]
  dp   = cluster.devices / (tp * pp)  # what remains
  zero = devices > 64 && nodes_{i} >= 8 ? 1 : 0
}}
training t_{i} {{
  sequence     = 8192
  global_batch = 16 Mi tokens
  efficiency   = min(0.9, 41 % + 3 %)
}}
expect {{ mfu = 41 % +- 3 %, memory <= 80 GiB }}
use catalog.models.llama3_70b as m_{i}
"""

READ_TABLES = "from parcost.language.parse import tables; tables()"
BUILD_TABLES = "from parcost_grammar.generate import lark; lark()"


def best(run: Callable[[], object], times: int = 9) -> float:
    """Return the least CPU milliseconds of *times* runs."""
    milliseconds = []
    for _ in range(times):
        start = process_time()
        run()
        milliseconds.append((process_time() - start) * 1e3)
    return min(milliseconds)


def fresh(code: str) -> float:
    """Return the CPU milliseconds of *code* in a process of its own, imports included."""
    timed = f"from time import process_time as t; s = t()\n{code}\nprint((t() - s) * 1e3)"
    command = [sys.executable, "-c", timed]
    runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs)


def main() -> None:
    """Measure and print."""
    pieces = [PIECE.format(i=i) for i in range(35)]
    text = "".join(pieces)
    source = Source("benchmark.par", text)
    assert not parse(source)[1]
    broken = Source("broken.par", text.replace("zero = ", "zero ; "))
    bare = best(lambda: lark().parse(text))
    rows = {
        "parse": best(lambda: parse(source)),
        f"parse, {len(parse(broken)[1])} errors": best(lambda: parse(broken)),
        "format": best(lambda: format_text(text)),
    }
    print(f"{text.count(chr(10))} lines")
    print(f"{'Lark, bare LALR parse':24} {bare:7.1f} ms")
    for name, milliseconds in rows.items():
        print(f"{name:24} {milliseconds:7.1f} ms  {milliseconds / bare:5.2f} of Lark's")
    print(f"{'import, read tables':24} {fresh(READ_TABLES):7.1f} ms")
    print(f"{'import, build tables':24} {fresh(BUILD_TABLES):7.1f} ms  with Lark")


if __name__ == "__main__":
    main()
