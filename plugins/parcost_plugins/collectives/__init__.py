"""Algorithms of collective operations, one plugin each, under the alpha-beta-gamma model.

``seconds = rounds * alpha + bytes / B + reduced * gamma``. Rounds are sequential. Bytes are counted
at the busiest port in one direction; ports are full duplex. Reduced bytes are the bytes that a rank
adds on the critical path. *n* is always the larger buffer of one rank: the output of an all-gather
or gather; the input of a reduce-scatter or scatter; all blocks of one rank in an all-to-all,
including the one that it keeps. Gamma is a property of the group; it is 0 on accelerators, where
additions are fused with the copy.

Every formula is zero for one rank and has no bandwidth term for zero bytes, so none needs a branch.
If an algorithm ignores the levels of the fabric, its docstring names the link that it uses.

Most algorithms declare phases, which :class:`PhasedAlgorithm` adds up.
"""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.collectives.rulebook import RULES

PARTS = (
    "bounds",
    "bruck",
    "direct",
    "double_tree",
    "halving_doubling",
    "hierarchical",
    "in_network",
    "leader",
    "libraries",
    "naive",
    "nccl",
    "pairwise",
    "pat",
    "pipelined",
    "recursive_doubling",
    "ring",
    "rules",
    "torus",
    "tree",
    "van_de_geijn",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
