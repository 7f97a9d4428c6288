"""Closed forms as a report prints them, each with a time that is counted by hand.

A text that comes to another number than the algorithm is not printed; so each row needs the
algorithm, the text and the count to agree.
"""

from __future__ import annotations

from typing import Any

import pytest

from parcost import Collective, Group, Real
from parcost.contract.collective_formulas import explain
from parcost.plugins.discovery import load
from parcost_plugins.physics.exchange import AlphaBeta
from parcost_plugins.vocabulary import Level

from ..rows import try_each

ALGORITHMS: dict[str, Any] = {
    name: algorithm for name, (_, algorithm) in load().offers("collectives").items()
}

#: The start-up time and the bytes a second of every link of a group: no two are alike.
LEVELS = ((3.0, 5.0), (7.0, 2.0), (11.0, 4.0))
PAIRS = ((13.0, 4.0), (17.0, 3.0))
FLAT, PAIR, HOP = (19.0, 6.0), (23.0, 8.0), (29.0, 9.0)


def link(name: str, figures: tuple[float, float], level: Level | None = None) -> AlphaBeta:
    alpha, B = figures
    return AlphaBeta(name=name, latency=alpha, bandwidth=B, level=level)


def group(*shape: float, ranks: float | None = None, **more: Any) -> Group:
    """Return ranks of which every link differs."""
    product = 1.0
    for g in shape:
        product *= g
    return Group(
        name="g",
        ranks=product if ranks is None else ranks,
        shape=tuple(map(float, shape)),
        links=tuple(link(f"l{i}", figures) for i, figures in enumerate(LEVELS[: len(shape)])),
        flat=link("flat", FLAT),
        pairs=tuple(link(f"l{i}", figures) for i, figures in enumerate(PAIRS[: len(shape)])),
        pair=link("pair", PAIR),
        hop=link("hop", HOP),
        **more,
    )


def plain(*shape: float, level: Level | None = None, figures: Any = LEVELS[0]) -> Group:
    """Return ranks on one link, whatever way they take."""
    (P,) = shape
    return Group(name="g", ranks=P, shape=(P,), links=(link("l0", figures, level),))


def node_seconds(rounds: float, bytes_: float) -> float:
    return rounds * 3 + bytes_ / 5


def network_seconds(rounds: float, bytes_: float) -> float:
    return rounds * 7 + bytes_ / 2


def near_pair(rounds: float, bytes_: float) -> float:
    return rounds * 13 + bytes_ / 4


def far_pair(rounds: float, bytes_: float) -> float:
    return rounds * 17 + bytes_ / 3


def flat(rounds: float, bytes_: float) -> float:
    return rounds * 19 + bytes_ / 6


def pair(rounds: float, bytes_: float) -> float:
    return rounds * 23 + bytes_ / 8


def level(**values: Any) -> Level:
    return Level(bandwidth=1.0, latency=1.0, **values)


SIX, SWITCH = group(6), plain(6.0, level=level(in_network=True))
RING_OF_FOUR = plain(4.0, level=level(kind="torus", dimensions=(4,)))
UNLIKE = group(6, 2, ranks=8.0)  # eight ranks: six on one node and two on another
PXN = Group(
    name="g",
    ranks=24.0,
    shape=(4.0, 3.0, 2.0),
    links=(
        link("l0", (3.0, 0.1)),
        link("l1", (7.0, 2.0), level(kind="rail", pxn=True)),
        link("l2", (11.0, 4.0), level(kind="rail", pxn=True)),
    ),
)

LAP = "(P - 1) alpha + n (P - 1) / P / B"
TREES = (
    "min(n / B + 2 ceil(log2(P)) alpha + sqrt(8 ceil(log2(P)) alpha n / B), "
    "ceil(log2(P)) (2 alpha + n / B))"
)
ROUNDS_OF_A_TREE = "ceil(log2(P)) alpha + n (P - 1) / P / B"
HALVES = "sum((log2(g) alpha + n / G (g - 1) / g / B))"
TWICE_HALVES = "sum(2 (log2(g) alpha + n / G (g - 1) / g / B))"
BY_PAIRS = "(log2(P) alpha + n (P - 1) / P / B)"
MERGED_SCATTER = (
    "(floor(log2(P)) + 2) alpha + (n (q - 1) / q + n (1 + 1 / P)) / B, q the power of two below P"
)
LEVEL = "(g - 1) (alpha + n / G / g / B)"
PARTS = "sum(ceil(log2(g)) alpha + n / G (g - 1) / g / B)"
EXCHANGE = (
    "max(m alpha' + (m + r (P - m - 1)) n / (P B') + max(M alpha), "
    "max(M (alpha + n / (P B))) + m alpha'), m messages within a unit, M that leave it at "
    "each level, r the share of those relayed inside"
)

#: An algorithm and operation, bytes, ranks, the text, and the seconds: rounds and bytes by link.
FORMS: list[tuple[str, str, float, Group, str, float]] = [
    # six ranks with 60 B: shares of 10 B
    ("ring", "all_reduce", 60, SIX, "2 (P - 1) alpha + 2 n (P - 1) / P / B", flat(10, 100)),
    ("ring", "all_gather", 60, SIX, LAP, flat(5, 50)),
    ("ring", "reduce_scatter", 60, SIX, LAP, flat(5, 50)),
    ("pairwise", "reduce_scatter", 60, SIX, LAP, pair(5, 50)),
    ("bruck", "all_gather", 60, SIX, ROUNDS_OF_A_TREE, pair(3, 50)),
    # 1, 10, 11, 100, 101 have seven ones
    (
        "bruck",
        "all_to_all",
        60,
        SIX,
        "ceil(log2(P)) alpha + n / P S / B, S one-bits in 1 to P - 1",
        pair(3, 70),
    ),
    # of seven ranks each of three bits is set in three
    (
        "bruck",
        "all_to_all",
        70,
        group(7),
        "ceil(log2(P)) alpha + n / P S / B, S one-bits in 1 to P - 1",
        pair(3, 3 * 3 * 10),
    ),
    ("pat", "all_gather", 60, group(1, 6), ROUNDS_OF_A_TREE, flat(3, 50)),
    ("pat", "reduce_scatter", 60, group(1, 6), ROUNDS_OF_A_TREE, flat(3, 50)),
    ("direct", "point_to_point", 60, SIX, "alpha + n / B", 29 + 60 / 9),
    ("naive", "broadcast", 60, SIX, "(P - 1) (alpha + n / B)", pair(5, 300)),
    ("naive", "reduce", 60, SIX, "(P - 1) (alpha + n / B)", pair(5, 300)),
    ("naive", "all_reduce", 60, SIX, "2 (P - 1) (alpha + n / B)", pair(10, 600)),
    ("linear", "scatter", 60, SIX, "(P - 1) (alpha + n / P / B)", pair(5, 50)),
    ("linear", "gather", 60, SIX, "(P - 1) (alpha + n / P / B)", pair(5, 50)),
    (
        "van_de_geijn",
        "broadcast",
        60,
        plain(6.0),
        "(ceil(log2(P)) + P - 1) alpha + 2 n (P - 1) / P / B",
        node_seconds(3, 50) + node_seconds(5, 50),
    ),
    # what leaves a rank once, and its reduced share once more
    ("nvls", "all_reduce", 60, SWITCH, "2 alpha + n (1 + 1 / P) / B", node_seconds(2, 70)),
    ("nvls", "all_gather", 60, SWITCH, "alpha + n (P - 1) / P / B", node_seconds(1, 50)),
    ("nvls", "reduce_scatter", 60, SWITCH, "alpha + n (P - 1) / P / B", node_seconds(1, 50)),
    # three hops down a tree, whole; or 2 (3 + 6) rounds of a sixth of each half of 2736 B
    ("double_tree", "broadcast", 60, SIX, TREES, flat(6, 180)),
    ("double_tree", "reduce", 60, SIX, TREES, flat(6, 180)),
    ("double_tree", "all_reduce", 60, SIX, f"2 {TREES}", flat(12, 360)),
    ("double_tree", "broadcast", 2736, SIX, TREES, flat(18, 18 * 228)),
    ("double_tree", "reduce", 2736, SIX, TREES, flat(18, 18 * 228)),
    ("double_tree", "all_reduce", 2736, SIX, f"2 {TREES}", flat(36, 36 * 228)),
    # two nodes of four with 120 B: 60 and 30 B in the node, 15 B between nodes
    (
        "halving_doubling",
        "all_gather",
        120,
        group(4, 2),
        HALVES,
        near_pair(2, 90) + far_pair(1, 15),
    ),
    (
        "halving_doubling",
        "reduce_scatter",
        120,
        group(4, 2),
        HALVES,
        near_pair(2, 90) + far_pair(1, 15),
    ),
    *(
        (
            "halving_doubling",
            operation,
            120,
            group(4, 2),
            TWICE_HALVES,
            near_pair(4, 180) + far_pair(2, 30),
        )
        for operation in ("all_reduce", "broadcast", "reduce")
    ),
    # 60, 30 and 15 B between any two
    ("halving_doubling", "all_gather", 120, UNLIKE, BY_PAIRS, pair(3, 105)),
    ("halving_doubling", "reduce_scatter", 120, UNLIKE, BY_PAIRS, pair(3, 105)),
    ("halving_doubling", "all_reduce", 120, UNLIKE, f"2 {BY_PAIRS}", pair(6, 210)),
    ("halving_doubling", "broadcast", 120, UNLIKE, f"2 {BY_PAIRS}", pair(6, 210)),
    ("halving_doubling", "reduce", 120, UNLIKE, f"2 {BY_PAIRS}", pair(6, 210)),
    # two of six hand on 60 B, four halve and double 30 and 15 B, two get 60 B or their 10 B back
    (
        "halving_doubling",
        "all_reduce",
        60,
        SIX,
        "(2 floor(log2(P)) + 2) alpha + (2 n (q - 1) / q + 2 n) / B, q the power of two below P",
        pair(1 + 4 + 1, 60 + 90 + 60),
    ),
    (
        "halving_doubling",
        "reduce_scatter",
        60,
        SIX,
        MERGED_SCATTER,
        pair(1 + 2 + 1, 60 + 45 + 10),
    ),
    # all 120 B in every round; of a reduce-scatter a half, three quarters, seven eighths
    (
        "recursive_doubling",
        "all_reduce",
        120,
        group(4, 2),
        "sum(log2(g) (alpha + n / B))",
        near_pair(2, 240) + far_pair(1, 120),
    ),
    (
        "recursive_doubling",
        "all_reduce",
        60,
        SIX,
        "(2 ceil(log2(P)) - floor(log2(P))) (alpha + n / B)",
        pair(1 + 2 + 1, 4 * 60),
    ),
    (
        "recursive_doubling",
        "all_gather",
        120,
        group(4, 2),
        "log2(P) alpha + n (P - 1) / P / B",
        pair(3, 15 + 30 + 60),
    ),
    (
        "recursive_doubling",
        "reduce_scatter",
        120,
        group(4, 2),
        "log2(P) alpha + n (log2(P) - (P - 1) / P) / B",
        pair(3, 60 + 90 + 105),
    ),
    # three nodes of four with 120 B: rounds of 30 B in the node, of 10 B between nodes
    (
        "hierarchical",
        "all_reduce",
        120,
        group(4, 3),
        f"sum(2 {LEVEL})",
        node_seconds(6, 180) + network_seconds(4, 40),
    ),
    (
        "hierarchical",
        "all_gather",
        120,
        group(4, 3),
        f"sum({LEVEL})",
        node_seconds(3, 90) + network_seconds(2, 20),
    ),
    (
        "hierarchical",
        "reduce_scatter",
        120,
        group(4, 3),
        f"sum({LEVEL})",
        node_seconds(3, 90) + network_seconds(2, 20),
    ),
    (
        "hierarchical",
        "all_to_all",
        120,
        group(4, 3),
        "sum((g - 1) (alpha + n / g / B))",
        node_seconds(3, 3 * 30) + network_seconds(2, 2 * 40),
    ),
    # of 480 B half cross the middle of the ring, over its two links
    (
        "hierarchical",
        "all_to_all",
        120,
        RING_OF_FOUR,
        "sum((g - 1) (alpha + n / g / B))",
        node_seconds(3, 480 / 2 / 2 / 2),
    ),
    (
        "hierarchical_overlapped",
        "all_reduce",
        120,
        group(4, 3),
        f"max(2 {LEVEL})",
        node_seconds(6, 180),
    ),
    (
        "hierarchical_overlapped",
        "all_reduce",
        12,
        group(4, 3),
        f"max(2 {LEVEL})",
        network_seconds(4, 4),
    ),
    # four nodes of three: two rounds at each level
    *(
        (
            "tree",
            operation,
            120,
            group(3, 4),
            "sum(ceil(log2(g)) (alpha + n / B))",
            near_pair(2, 240) + far_pair(2, 240),
        )
        for operation in ("broadcast", "reduce")
    ),
    (
        "tree",
        "all_reduce",
        120,
        group(3, 4),
        "sum(2 ceil(log2(g)) (alpha + n / B))",
        near_pair(4, 480) + far_pair(4, 480),
    ),
    ("tree", "scatter", 120, group(3, 4), PARTS, near_pair(2, 80) + far_pair(2, 30)),
    ("tree", "gather", 120, group(3, 4), PARTS, near_pair(2, 80) + far_pair(2, 30)),
    # 10 B to each of 23: three in the node, 20 beyond and 12 of these beyond the rack
    ("pairwise", "all_to_all", 240, group(4, 3, 2), EXCHANGE, network_seconds(20, 200) + 3 * 3),
    # three of four that leave the node move inside of it first, at 0.1 B/s
    ("pairwise", "all_to_all", 240, PXN, EXCHANGE, 3 * 3 + (3 + 15) * 10 / 0.1 + 20 * 7),
]


@try_each("name, operation, n, placed, text, seconds", FORMS)
def test_a_closed_form_is_printed_and_comes_to_what_is_counted(
    name: str, operation: str, n: float, placed: Group, text: str, seconds: float
) -> None:
    algorithm = ALGORITHMS[name]
    found = explain(operation, n, placed, algorithm, algorithm.seconds(operation, n, placed))
    assert found.text == text
    assert found.value == pytest.approx(seconds, rel=1e-12)


def test_every_algorithm_without_a_closed_form_above_has_none() -> None:
    above = {(name, operation) for name, operation, *_ in FORMS}
    for name, algorithm in ALGORITHMS.items():
        for operation in algorithm.operations:
            if (name, operation) not in above:
                assert algorithm.closed_form(operation, group(4, 2)) is None


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "all_gather"])
def test_no_closed_form_is_of_ranks_that_an_algorithm_does_not_take(operation: str) -> None:
    assert ALGORITHMS["halving_doubling"].closed_form(operation, SIX) is None


@try_each(
    "name, operation, bytes_",
    [
        ("bruck", "all_gather", 7 * 70),
        ("pairwise", "reduce_scatter", 7 * 70),
        ("recursive_doubling", "all_gather", 7 * 70),
        ("recursive_doubling", "all_reduce", 3 * 560),
        ("halving_doubling", "all_gather", 7 * 70),
    ],
)
def test_closed_forms_are_of_links_that_distant_ranks_share(
    name: str, operation: str, bytes_: float
) -> None:
    """On a ring of eight, the middle carries 8/7 of what leaves a rank, and rounds start alike."""
    placed = plain(8.0, level=level(kind="torus", dimensions=(8,)))
    algorithm = ALGORITHMS[name]
    found = explain(operation, 560, placed, algorithm, algorithm.seconds(operation, 560, placed))
    assert found.text == algorithm.closed_form(operation, placed).text
    rounds = 7 if name == "pairwise" else 3
    assert found.value == pytest.approx(node_seconds(rounds, bytes_ * 8 / 7), rel=1e-12)


def test_an_exchange_is_printed_with_the_levels_that_it_crosses_alone() -> None:
    """Two racks of one node of four: eight ranks, four of them in another rack."""
    symbols = ALGORITHMS["pairwise"].closed_form("all_to_all", group(4, 1, 2)).symbols
    assert symbols["M"] == {"l2": 4}
    assert (symbols["alpha"], symbols["B"]) == (({"l2": 11}, "s"), ({"l2": 4}, "B/s"))


class SingleMessage(Collective):
    """An algorithm of one message, whose closed form has no sums."""

    name, operations = "summed", frozenset({"all_reduce"})

    def seconds(self, operation: str, n: Real, group: Group) -> Real:  # noqa: ARG002
        return group.hop.seconds(1.0, n)

    closed_form = ALGORITHMS["direct"].closed_form


@pytest.mark.parametrize(("reduction", "is_expression"), [(0.0, True), (1e-9, False)])
def test_a_closed_form_is_of_groups_that_add_for_nothing(
    reduction: float, is_expression: bool
) -> None:
    placed = group(6, reduction=reduction)
    found = explain("all_reduce", 60, placed, SingleMessage(), 29 + 60 / 9)
    assert found.is_expression is is_expression
