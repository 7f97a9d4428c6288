"""Parsing, binding and checking a 900-line file, against Lark's bare parse of its text.

    python benchmarks/bind.py

Prints the ratio that the project promises to keep at or below 2.5.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import parcost
from parcost_grammar.generate import lark

DEVICE = """
device accelerator_{i} @vendor("data sheet {i}") {{
  memory                        = {i} GiB
  memory_bandwidth              = 3.35 TB/s
  fp32                          = 67 TFLOPS
  bf16                          = 989.4 TFLOPS dense
  fp8                           = 1979 TFLOPS dense @measured("bench, 2024")
  multiprocessors               = 132
  matmul_efficiency             = 80 % @assumed("a guess")
  fp8_matmul_efficiency         = 0.5 + {i} / 1000
  fp4_matmul_efficiency         = min(0.45, 50 %)
  memory_efficiency             = 85 %
  host_bandwidth                = 64 GB/s per_direction
  power                         = 700 W  # thermal design power
}}
"""


def text(lines: int) -> str:
    """Return a spec of about *lines* lines."""
    blocks = [DEVICE.format(i=i) for i in range(1, lines // 15 + 1)]
    return "".join(blocks)


def best(run: Callable[[], object], times: int = 7) -> float:
    """Return the least CPU seconds of *times* runs."""
    seconds = []
    for _ in range(times):
        start = process_time()
        run()
        seconds.append(process_time() - start)
    return min(seconds)


def main() -> None:
    """Measure and print."""
    spec = text(900)
    session = parcost.Session()
    bare = lark()

    def bind() -> None:
        session.load_text(spec)[0].studies()

    ours = best(bind)
    theirs = best(lambda: bare.parse(spec))
    print(f"{spec.count(chr(10))} lines")
    print(f"lark, bare LALR parse     {theirs * 1e3:8.1f} ms")
    print(f"parse, bind and check     {ours * 1e3:8.1f} ms")
    print(f"ratio                     {ours / theirs:8.2f}   (at most 2.5)")


if __name__ == "__main__":
    main()
