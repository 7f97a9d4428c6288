"""Algorithms of collective operations, one plugin each, under the alpha-beta-gamma model.

``seconds = rounds * alpha + bytes / B + reduced * gamma``: rounds one after another, the
bytes of the busiest port in one direction, ports being full duplex, and the bytes that a
rank adds on the critical path. *n* is always the big buffer of one rank: the output of an
all-gather or gather, the input of a reduce-scatter or scatter, all that one rank sends in
an all-to-all, the block that it keeps included. Gamma is a property of the group; it is 0
on accelerators, where additions are fused with the copy.

Every form is zero at one rank and has no bandwidth term at zero bytes, so that none
needs a branch. An algorithm that ignores the levels of the fabric says in its docstring
which link of the group it is priced on.

Most algorithms say what they are made of, in phases, and :class:`PhasedAlgorithm` adds these up.
"""

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
