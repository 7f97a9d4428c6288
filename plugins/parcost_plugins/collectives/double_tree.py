"""Two complementary binary trees: logarithmic latency at nearly full bandwidth.

Every rank is an inner node of one tree and a leaf of the other. So each tree carries half of the
message, and every port is busy. A tree of depth d sends ``c = sqrt(d n / (2 alpha B))`` pieces; a
short message is not split. In NCCL this is the algorithm ``tree``: one pair of trees per channel,
each through its own port of a node. So the trees use every port of the group at a boundary, as a
ring does. They ignore the levels of the fabric and are estimated on ``group.flat``.
"""

from __future__ import annotations

from attrs import evolve

from parcost import ClosedForm, Group, Phase, Real, hookimpl, record
from parcost.numeric import ceil_log2, maximum, minimum, sqrt, where
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase

_CUT = "n / B + 2 {d} alpha + sqrt(8 {d} alpha n / B)"
_WHOLE = "{d} (2 alpha + n / B)"
_ONCE = f"min({_CUT}, {_WHOLE})".format(d="ceil(log2(P))")


@record(eq=False)
class DoubleTree(PhasedAlgorithm):
    """A broadcast down both trees, a reduction up them; an all-reduce is both.

    The number of *pieces* per tree is optimised if it is not given.
    """

    pieces: Real | None = None

    name = "double_tree"
    operations = frozenset({"all_reduce", "broadcast", "reduce"})
    source = "Sanders, Speck, Träff 2009; NCCL, src/graph/trees.cc: a tree per channel"

    def cut(self, pieces: Real) -> DoubleTree:
        """Return the algorithm with *pieces* pieces in each tree."""
        return evolve(self, pieces=pieces)

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases along the trees, in pieces or unsplit, whichever is faster."""
        link, depth = group.flat, ceil_log2(group.ranks)
        other = minimum(depth, 1.0)  # one rank has a tree without depth
        if self.pieces is None:
            per_latency = maximum(link.latency * link.bandwidth, 1.0)  # bytes; at least one
            pieces = maximum(sqrt(depth * n / (2 * per_latency)), 1.0)
        else:
            pieces = self.pieces
        rounds = 2 * (depth + pieces) * other
        bytes_ = rounds * n / (2 * pieces)
        if self.pieces is None:
            whole = link.seconds(2 * depth, depth * n) <= link.seconds(rounds, bytes_)
            rounds = where(whole, 2 * depth, rounds)
            bytes_ = where(whole, depth * n, bytes_)
        passes = 2 if operation == "all_reduce" else 1
        reduced = 0.0 if operation == "broadcast" else bytes_
        return single_phase(link, passes * rounds, passes * bytes_, reduced)

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one expression, for a message that is cut or whole."""
        return ClosedForm(f"2 {_ONCE}" if operation == "all_reduce" else _ONCE, group.flat)


@hookimpl
def collectives() -> list[DoubleTree]:
    """Return the double tree algorithm."""
    return [DoubleTree()]
