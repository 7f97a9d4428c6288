"""What two distributions of third parties add, seen in reports where only wheels are.

python third_parties.py EXAMPLES
"""

from __future__ import annotations

import sys
from pathlib import Path

import parcost

examples = Path(sys.argv[1])
assert "site-packages" in str(Path(parcost.__file__).parent), "this is to test the wheel"

# A block, a cost and a collective of one distribution.
(generating,) = parcost.load(examples / "parcost-rollouts" / "llama3_8b.par")
outcome = generating.evaluate().result.outcome
assert outcome is not None
theirs = [
    line
    for line in (*outcome.ledger, *outcome.memory_lines)
    if line.plugin is not None and line.plugin.distribution == "parcost-rollouts"
]
assert theirs, "parcost-rollouts adds no line"
for line in theirs:
    print(f"{line.name}, from {line.plugin}: {line.formula.text}")
used = [
    (line, part)
    for line in outcome.ledger
    for part in (line.formula, *line.formula.parts.values())
    if "all_pairs" in part.shown
]
assert used, "no message goes by all pairs"
print(f"{used[0][0].name}: {used[0][1].shown}")

# A schedule of another, which is its op order and nothing else.
PIPELINED = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster  { devices = 64 }
layout   { tp = 8, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
schedule { kind = [one_f_one_b, eager_1f1b], stages = [21, 21, 21, 17] }
"""
(pipelined,) = parcost.load_text(PIPELINED)
hops, held = {}, {}
for result in pipelined.evaluate().results:
    outcome = result.outcome
    assert outcome is not None
    kind = result.at["schedule.kind"]
    hops[kind] = sum(line.exposed for line in outcome.ledger if line.kind == "send_recv")
    held[kind] = outcome.memory_bytes
print("hops:", ", ".join(f"{kind} {seconds * 1e3:.2f} ms" for kind, seconds in hops.items()))
assert 0 < hops["eager_1f1b"] < hops["one_f_one_b"]
assert held["eager_1f1b"] > held["one_f_one_b"]
