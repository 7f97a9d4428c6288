"""Two complementary binary trees: logarithmic latency at nearly full bandwidth.

Every rank is an inner node of one tree and a leaf of the other, so that each tree may
carry half of the message with every port busy. It is cut into c pieces per tree, with
c = sqrt(d n / (2 alpha B)) for trees of depth d; a short message is not cut. The trees
ignore the levels of the fabric, so all messages are priced at the slowest boundary.
"""

from __future__ import annotations

from parcost import Group, Real, hookimpl
from parcost.numeric import ceil_log2, maximum, minimum, sqrt


class DoubleBinaryTree:
    """A broadcast down both trees; an all-reduce is a reduction up them, then one."""

    name = "double_binary_tree"
    operations = frozenset({"all_reduce", "broadcast"})
    source = "Sanders, Speck, Träff 2009"
    sees = "pair"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation*, in pieces or whole, whichever is faster."""
        link, depth = group.pair, ceil_log2(group.ranks)
        whole = link.seconds(2 * depth, depth * n)  # one rank has a tree without depth
        per_latency = maximum(link.latency * link.bandwidth, 1.0)  # bytes; at least one
        pieces = maximum(sqrt(depth * n / (2 * per_latency)), 1.0)
        rounds = 2 * (depth + pieces)
        once = minimum(whole, link.seconds(rounds, rounds * n / (2 * pieces)))
        return 2 * once if operation == "all_reduce" else once

    def formula(self, operation: str) -> str:
        """Return the formula in letters, for a message that is cut."""
        once = "(n / B + 2 d alpha + sqrt(8 d alpha n / B)), d = ceil(log2 P)"
        return f"2 {once}" if operation == "all_reduce" else once


@hookimpl
def collectives() -> list[DoubleBinaryTree]:
    """Offer the trees."""
    return [DoubleBinaryTree()]
