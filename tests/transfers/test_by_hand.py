"""Transfers in round numbers: seconds of a few, bytes of tens, all worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

import parcost
from parcost import Curve, Group, formula
from parcost.engine.study import SpecStudy
from parcost.plugins.discovery import load
from parcost_plugins.calculators.transfers.estimate import (
    bisection,
    bus_factor,
    estimate_transfer,
    fastest_algorithm,
    limit,
)
from parcost_plugins.calculators.transfers.figures import SENT
from parcost_plugins.calculators.transfers.links import CurveLink, TransferLinks
from parcost_plugins.calculators.transfers.place import place
from parcost_plugins.calculators.transfers.tables import _size_text
from parcost_plugins.collectives import in_network, naive, ring
from parcost_plugins.collectives.bounds import LowerBound
from parcost_plugins.collectives.halving_doubling import HalvingDoubling
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.recursive_doubling import RecursiveDoubling
from parcost_plugins.physics.exchange import AlphaBeta
from parcost_plugins.vocabulary import OPERATIONS, CollectiveChoice, Transfer

from ..rows import try_each

OWN = "latency = 2 s, bandwidth = 5 B/s per_direction"
RING = f"operation = all_reduce, algorithm = ring, ranks = 4, {OWN}"


def volume(operation: str, n: float, P: float) -> float:
    found: float = formula(SENT[operation], s=n, P=P).value
    return found


def result(body: str, before: str = "") -> Any:
    (scenario,) = parcost.load_text(f"{before}\ntransfer x {{ {body} }}\n")
    found = scenario.evaluate().result
    assert not found.diagnostics, found.diagnostics
    return found


def answers(body: str, before: str = "") -> dict[str, Any]:
    """Return the figures of one transfer by name, without its label."""
    return {f.name.removeprefix("x."): f for _, f in result(body, before).figures}


def figures(body: str, before: str = "") -> dict[str, Any]:
    return {name: figure.value for name, figure in answers(body, before).items()}


def check_table(body: str, expected: dict[str, float], before: str = "") -> None:
    found = figures(body, before)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def place_group(body: str, before: str = "") -> Group:
    (scenario,) = parcost.load_text(f"{before}\ntransfer x {{ {body} }}\n")
    (study,) = scenario.studies()
    (transfer,) = study.all(Transfer)
    return place(study, transfer)


# --- figures ------------------------------------------------------------------------------------------


def test_a_ring_of_four_passes_forty_bytes_in_six_rounds() -> None:
    """Six rounds of 2 s, and 60 B at 5 B/s: as long, so that they meet at this very size."""
    check_table(
        f"{RING}, size = 40 B, times = 3, setup = 7 s",
        {
            "ranks": 4,
            "size": 40,
            "shard": 10,
            "rounds": 6,
            "bytes": 60,
            "seconds": 24,
            "total_seconds": 79,
            "total_bytes": 180,
            "volume": 240,
            "total_volume": 720,
            "bandwidth": 5,
            "alpha": 2,
            "beta": 0.2,
            "algorithm_bandwidth": 40 / 24,
            "bus_bandwidth": 60 / 24,
            "lower_bound": 12,
            "efficiency": 0.5,
            "latency_seconds": 12,
            "bandwidth_seconds": 12,
            "crossover": 40,
        },
    )
    quick = RING.replace("2 s", "2 ms").replace("5 B/s", "5 kB/s")
    check_table(
        f"{quick}, size = 40 B",
        {"seconds": 24e-3, "algorithm_bandwidth": 40 / 24e-3, "efficiency": 0.5, "crossover": 40},
    )
    check_table(f"{RING}, size = 0.5 B", {"crossover": 40, "bandwidth_seconds": 0.15})


def test_calls_that_are_packed_launched_and_waited_for() -> None:
    """48 B as 24 B, in three calls of 12 + 12/5 s; 1 s and a launch of 2 s to each of them."""
    body = f"{RING}, size = 48 B, compression = 2, chunks = 3, overhead = 1 s, launched = on, "
    body += "codec = 8 B/s, skew = 9 s, compute = 60 s"
    seconds = 3 * (12 + 2.4 + 3) + 12 + 9
    check_table(
        body,
        {
            "seconds": seconds,
            "bytes": 36,
            "volume": 144,
            "size": 48,
            "chunks": 3,
            "chunk_size": 16,
            "chunk_seconds": 14.4,
            "overhead_seconds": 9,
            "chunking_cost": seconds / 19.2 - 1,
            "best_chunks": (7.2 / 3) ** 0.5,
            "exposed_tail": 7.2 / 3 + 9,
            "ratio": seconds / 60,
            "hidden": 60,
            "exposed": seconds - 60,
            "lower_bound": 7.2,
        },
        "collectives { launch = 2 s }",
    )
    found = figures(f"{RING}, size = 48 B, chunks = 3, compute = 500 s")
    assert found["seconds"] == pytest.approx(3 * (12 + 4.8))
    assert found["best_chunks"] == float("inf")
    assert (found["hidden"], found["exposed"]) == (found["seconds"], 0)
    assert found["exposed_tail"] == pytest.approx(14.4 / 3)


def test_what_was_left_at_its_default_has_no_figures() -> None:
    plain = set(figures(f"{RING}, size = 40 B"))
    assert not {"node_rounds", "node_bytes"} & plain
    several = {"total_seconds", "total_bytes", "total_volume"}
    split = {
        "chunks", "chunk_size", "chunk_seconds", "overhead_seconds", "chunking_cost",
        "best_chunks", "exposed_tail",
    }  # fmt: skip
    for more, added in {
        "times = 2": several,
        "setup = 1 s": several,
        "chunks = 2": split,
        "overhead = 1 s": split,
        "gamma = 1 s/B": {"reduced", "reduction_seconds"},
        "compute = 0 s": {"ratio", "hidden", "exposed"},
        "bisection = 1 B/s per_direction": {"bisection_bound"},
        "skew = 1 s": set[str](),
    }.items():
        assert set(figures(f"{RING}, size = 40 B, {more}")) - plain == added, more
    assert figures(f"{RING}, size = 40 B, compute = 0 s")["ratio"] == float("inf")


def test_a_plain_call_shows_its_own_formula_and_any_other_that_of_all_calls() -> None:
    body = f"{RING}, size = 40 B"
    plain = "all_reduce by ring: 2 (P - 1) alpha + 2 n (P - 1) / P / B"
    assert answers(body)["seconds"].formula.shown == plain
    for more in ("chunks = 2", "overhead = 1 s", "skew = 1 s", "codec = 1 B/s"):
        text = answers(f"{body}, {more}")["seconds"].formula.text
        assert text == "c (t + o) + packing + skew, c calls of t", more
    chain = f"operation = broadcast, algorithm = ring, ranks = 4, size = 40 B, {OWN}"
    assert answers(chain)["seconds"].formula.shown.startswith("broadcast by ring: sum(r alpha")
    cut = answers(f"{chain}, pieces = 2")["seconds"]
    assert (cut.formula.text[:9], cut.value) == ("c (t + o)", 4 * (2 + 4))


@pytest.mark.parametrize("ranks, busy", [(1, 0), (2, 1), (4, 1)])
def test_a_broadcast_keeps_the_bus_busy_with_its_bytes(ranks: int, busy: int) -> None:
    found = figures(f"operation = broadcast, algorithm = tree, ranks = {ranks}, size = 40 B, {OWN}")
    assert found["bus_bandwidth"] == pytest.approx(busy * found["algorithm_bandwidth"])


@pytest.mark.slow
def test_additions_are_counted_and_priced() -> None:
    check_table(
        f"{RING}, size = 40 B, gamma = 3 s/B",
        {"reduced": 30, "reduction_seconds": 90, "seconds": 24 + 90, "lower_bound": 90},
    )


def test_one_rank_and_no_bytes_take_no_time() -> None:
    alone = f"operation = all_reduce, algorithm = ring, ranks = 1, size = 40 B, chunks = 2, {OWN}"
    nothing = {"seconds": 0, "algorithm_bandwidth": 0, "bus_bandwidth": 0, "crossover": 0}
    check_table(alone, {**nothing, "efficiency": 1, "chunking_cost": 0, "volume": 0})
    check_table(f"{RING}, size = 0 B", {"seconds": 12, "crossover": 0, "algorithm_bandwidth": 0})


@try_each(
    "operation, factor, sent, across",
    [
        # buffers that pass a port, bytes that all ranks send, and bytes over a half cut; of 40 B
        ("all_reduce", 1.5, 240, 40),
        ("all_gather", 0.75, 120, 20),
        ("reduce_scatter", 0.75, 120, 20),
        ("broadcast", 1, 120, 40),
        ("reduce", 1, 120, 40),
        ("scatter", 0.75, 30, 20),
        ("gather", 0.75, 30, 20),
        ("all_to_all", 0.75, 120, 40),
        ("point_to_point", 1, 40, 40),
    ],
)
def test_what_four_ranks_have_to_send(
    operation: str, factor: float, sent: float, across: float
) -> None:
    assert bus_factor(operation, 4.0) == factor
    assert volume(operation, 40.0, 4.0) == sent
    assert bisection(operation, 40.0, 4.0, 8.0) == across / 8
    assert bus_factor(operation, 1.0) == 0
    assert volume(operation, 40.0, 1.0) == 0
    assert bisection(operation, 40.0, 1.0, 8.0) == 0
    if operation == "point_to_point":
        assert (bus_factor(operation, 2.0), volume(operation, 40.0, 2.0)) == (1, 40)
        assert bisection(operation, 40.0, 2.0, 8.0) == 5


def test_every_operation_is_counted() -> None:
    assert len(OPERATIONS) == 9


# --- places -------------------------------------------------------------------------------------------

NODES = (
    "operation = all_reduce, size = 1 B, congestion = 2, "
    "latency = 3 s, bandwidth = 40 B/s per_direction, efficiency = 0.5, "
    "network_latency = 7 s, network_bandwidth = 30 B/s per_direction, network_efficiency = 0.4"
)


@try_each(
    "ports, own, flat, hop",
    [
        # 10 B/s in a node, 6 B/s a port; a rank has its share of them, a ring all, a leader one
        (1, 1.5, 6, 6),
        (2, 3, 10, 6),
        (4, 6, 10, 6),
        (8, 12, 10, 10),
    ],
)
def test_nodes_of_four_ranks_have_ports_into_the_network(
    ports: int, own: float, flat: float, hop: float
) -> None:
    group = place_group(f"{NODES}, nodes = 3, ranks_per_node = 4, ports = {ports}")
    assert (group.ranks, group.shape) == (12, (4, 3))
    assert [link.bandwidth for link in group.links] == [10, own]
    assert [link.latency for link in group.links] == [3, 7]
    assert (group.flat.bandwidth, group.hop.bandwidth) == (flat, hop)
    assert group.pair.bandwidth == min(10, own)
    assert group.flat.seconds(2.0, 60.0) == 14 + 60 / flat


@try_each(
    "nodes, local, bandwidth, latency",
    [(1, 1, 10, 3), (1, 2, 10, 3), (2, 1, 6, 1), (2, 2, 6, 3), (3, 1, 6, 1), (3, 4, 6, 3)],
)
def test_a_ring_waits_for_the_levels_that_it_crosses(
    nodes: int, local: int, bandwidth: float, latency: float
) -> None:
    body = NODES.replace("network_latency = 7 s", "network_latency = 1 s")
    group = place_group(f"{body}, nodes = {nodes}, ranks_per_node = {local}, ports = 1")
    assert (group.flat.bandwidth, group.flat.latency) == (bandwidth, latency)


def test_a_message_is_between_two_ranks_or_nodes_by_default() -> None:
    message = f"operation = point_to_point, size = 1 B, {OWN}"
    far = "network_bandwidth = 1 B/s per_direction"
    assert place_group(message).ranks == 2
    assert place_group(f"{message}, ranks = 5").ranks == 5
    assert place_group(f"{message}, nodes = 3, {far}").ranks == 3
    assert place_group(f"{message}, nodes = 3, ranks_per_node = 4, {far}").ranks == 12


def test_the_bandwidth_of_a_transfer_is_inside_of_a_node_and_of_a_message_between_them() -> None:
    nodes = "nodes = 3, ranks_per_node = 4, ports = 1"
    check_table(f"{NODES}, {nodes}, algorithm = ring", {"bandwidth": 10, "alpha": 3})
    message = NODES.replace("all_reduce", "point_to_point")
    check_table(f"{message}, {nodes}", {"bandwidth": 6, "alpha": 7})


FABRIC = """
fabric f {{
  level node {{ size = 8, bandwidth = 90 B/s per_direction, latency = 1 s, oversubscription = 3 }}
  level net {{
    bandwidth = 60 B/s per_direction, latency = 5 s, cable_latency = 7 s, hop_latency = 11 s
    efficiency = 0.5, collisions = 2, oversubscription = 3, {more}
  }}
}}
"""


@try_each(
    "name, more, bandwidth, latency",
    [
        # 90 B/s for two flows; 60 B/s, of which half is achieved by two that collide, thinned
        ("node", "", 45, 1),
        ("net", "", 60 / 2 / 2 / 3 / 2, 5 + 7 + 11),
        ("net", "hops = 3", 2.5, 5 + 7 + 33),
        ("net", "kind = rail", 7.5, 5 + 7 + 11),
    ],
)
def test_a_level_of_the_fabric_stands_for_a_link(
    name: str, more: str, bandwidth: float, latency: float
) -> None:
    body = f'operation = all_reduce, size = 1 B, ranks = 6, level = "{name}", congestion = 2'
    group = place_group(body, FABRIC.format(more=more))
    (link,) = group.links
    assert (group.ranks, group.shape) == (6, (6,))
    assert (link.bandwidth, link.latency, link.name) == (bandwidth, latency, name)
    assert group.reduction == 0
    assert place_group(f"{body}, gamma = 2 s/B", FABRIC.format(more=more)).reduction == 2


# --- estimates -------------------------------------------------------------------------------------------

PLUGINS = load(("ring", ring), ("naive", naive), installed=False)


def levels(g: float, k: float) -> Group:
    links = (
        AlphaBeta(name="node", latency=2.0, bandwidth=5.0),
        AlphaBeta(name="network", latency=11.0, bandwidth=3.0),
    )
    return Group(name="g", ranks=g * k, shape=(g, k), links=links)


def test_a_launch_is_added_where_the_study_says_one_and_the_transfer_asks_for_it() -> None:
    group = Group(name="g", ranks=4.0, shape=(4.0,), links=levels(4.0, 1.0).links[:1])
    for choice, launched, extra in (
        ((), True, 0),
        ((CollectiveChoice(),), True, 0),
        ((CollectiveChoice(launch=2.0),), True, 2),
        ((CollectiveChoice(launch=2.0),), False, 0),
    ):
        study = SpecStudy("test", {CollectiveChoice: choice}, PLUGINS)
        transfer = Transfer(operation="all_reduce", size=40.0, algorithm="ring", launched=launched)
        estimate = estimate_transfer(study, transfer, group, 40.0)
        assert (estimate.extra, estimate.whole, estimate.n) == (extra, 24, 40)
        assert limit(study, estimate) == 0  # where nothing offers a bound


def test_of_two_algorithms_the_faster_moves_and_of_equals_the_first() -> None:
    group = Group(name="g", ranks=4.0, shape=(4.0,), links=levels(4.0, 1.0).links[:1])
    halves, doubles = HalvingDoubling(), RecursiveDoubling()

    def choice_of(*algorithms: Any) -> tuple[Any, Any]:
        seconds, moved = fastest_algorithm(algorithms, "all_reduce", 40.0, group)
        return seconds, None if moved is None else (moved.rounds, moved.bytes_)

    assert choice_of(naive.Naive(), halves) == choice_of(halves, naive.Naive()) == (20, (4, 60))
    assert choice_of(halves, doubles) == (20, (4, 60))
    assert choice_of(doubles, halves) == (20, (2, 80))
    assert choice_of(halves, LowerBound()) == choice_of(LowerBound(), halves) == (12, None)
    assert choice_of(halves, in_network.Nvls()) == (20, (4, 60))


def test_a_sweep_moves_at_each_point_what_its_fastest_algorithm_does() -> None:
    """A ring has the network's name, and a hierarchy passes the node as well."""
    algorithms = (ring.Ring(), Hierarchical())
    group, sizes = levels(4.0, 3.0), np.array([1.0, 40.0, 1e3, 1e6])
    group = evolve(group, flat=AlphaBeta(name="network", latency=4.0, bandwidth=40.0))
    seconds, moved = fastest_algorithm(algorithms, "all_reduce", sizes, group)
    assert moved is not None
    ways = set()
    for i, n in enumerate(sizes.tolist()):
        least, alone = fastest_algorithm(algorithms, "all_reduce", n, group)
        assert alone is not None
        ways.add(len(alone.by_link))
        assert np.broadcast_to(seconds, 4)[i] == least
        for name, pair in moved.by_link.items():
            at = tuple(np.broadcast_to(amount, 4)[i] for amount in pair)
            assert at == alone.by_link.get(name, (0, 0)), (name, n)
        for name in ("rounds", "bytes_", "reduced", "waiting", "moving"):
            assert np.broadcast_to(getattr(moved, name), 4)[i] == getattr(alone, name), name
    assert ways == {1, 2}


# --- links --------------------------------------------------------------------------------------------

CURVE = Curve(sizes=np.array([10.0, 1000.0]), seconds=np.array([2.0, 20.0]))


@try_each(
    "rounds, bytes_, ports, seconds",
    [
        (1.0, 10.0, 1.0, 2.0),
        (1.0, 100.0, 1.0, 40**0.5),  # half way in logarithms
        (3.0, 300.0, 1.0, 3 * 40**0.5),
        (1.0, 1.0, 1.0, 2.0),  # which contains the latency
        (1.0, 3000.0, 1.0, 60.0),  # at 50 B/s
        (2.0, 2000.0, 2.0, 2 * 20 * 0.5**0.5),  # 500 B of each port
        (1.0, 1500.0, 0.5, 60.0),
        (0.5, 100.0, 1.0, 0.5 * 40**0.5),
        (0.0, 0.0, 1.0, 0.0),
    ],
)
def test_measured_points_are_met_and_continued(
    rounds: float, bytes_: float, ports: float, seconds: float
) -> None:
    link = CurveLink(name="own", latency=1.0, curve=CURVE, ports=ports)
    assert link.seconds(rounds, bytes_) == pytest.approx(seconds)
    assert link.bandwidth == 50 * ports
    assert link.measured
    swept = link.seconds(np.array([rounds, rounds]), bytes_)
    assert list(swept) == pytest.approx([seconds, seconds])  # type: ignore[arg-type]


def test_points_below_a_byte_are_met_too() -> None:
    curve = Curve(sizes=np.array([0.01, 1.0]), seconds=np.array([0.1, 10.0]))
    link = CurveLink(name="own", latency=0.0, curve=curve, ports=1.0)
    assert link.seconds(1.0, 0.1) == pytest.approx(1.0)
    assert link.seconds(1.0, 0.0) == pytest.approx(0.1)


def test_short_waits_are_as_long_as_the_longer_of_them() -> None:
    points = Curve(sizes=np.array([1.0, 10.0]), seconds=np.array([0.2, 0.5]))
    near = AlphaBeta(name="near", latency=0.3, bandwidth=100.0)
    far = CurveLink(name="far", latency=0.1, curve=points, ports=1.0)
    for crossed, seconds in (((True, True), 0.5), ((True, False), 0.4), ((False, True), 0.5)):
        both = TransferLinks(name="far", links=(near, far), crossed=crossed)
        assert both.seconds(1.0, 10.0) == pytest.approx(seconds)
        assert both.latency == (0.3 if crossed[0] else 0.1)


@pytest.mark.parametrize(
    "crossed, latency, bandwidth, seconds",
    [
        ((True, True), 7, 4, 14 + 15),  # the slowest start and the narrowest way
        ((True, False), 3, 4, 6 + 15),
        ((False, True), 7, 10, 14 + 6),
    ],
)
def test_links_are_waited_for_together_where_they_are_crossed(
    crossed: tuple[bool, bool], latency: float, bandwidth: float, seconds: float
) -> None:
    near = AlphaBeta(name="near", latency=3.0, bandwidth=4.0)
    far = AlphaBeta(name="far", latency=7.0, bandwidth=10.0)
    both = TransferLinks(name="far", links=(near, far), crossed=crossed)
    assert (both.latency, both.bandwidth, both.measured) == (latency, bandwidth, False)
    assert both.seconds(2.0, 60.0) == seconds
    points = CurveLink(name="far", latency=7.0, curve=CURVE, ports=1.0)
    mixed = TransferLinks(name="far", links=(near, points), crossed=crossed)
    assert mixed.measured
    alone = [near.seconds(1.0, 3000.0), points.seconds(1.0, 3000.0)]  # 753 s, and 60 s
    assert mixed.seconds(1.0, 3000.0) == max(s for s, c in zip(alone, crossed, strict=True) if c)
    assert mixed.seconds(1.0, 10.0) == max(s for s, c in zip((5.5, 2.0), crossed, strict=True) if c)


# --- tables -------------------------------------------------------------------------------------------


def table(body: str, before: str = "") -> Any:
    ((_, section),) = result(body, before).sections
    return section


def test_algorithms_are_listed_with_what_each_moves_and_why_another_cannot_run() -> None:
    """30 B over four ranks, in rounds of 2 s at 5 B/s."""
    section = table(f"operation = all_reduce, ranks = 4, size = 30 B, compare = algorithms, {OWN}")
    rows = {row[0]: row[1:] for row in section.rows}
    assert rows["ring"] == (6, (45, "B"), (12, "s"), (21, "s"), "")
    assert rows["halving_doubling"] == (4, (45, "B"), (8, "s"), (17, "s"), "")
    assert rows["recursive_doubling"] == (2, (60, "B"), (4, "s"), (16, "s"), "fastest")
    assert rows["naive"] == (6, (180, "B"), (12, "s"), (48, "s"), "not chosen by auto")
    assert rows["lower_bound"] == ("-", "-", "-", (9, "s"), "lower bound")
    assert section.columns == ("algorithm", "rounds", "bytes", "start-up", "time", "")
    reason = "all ranks on one node, whose level has `in_network = on`"
    assert f"`nvls` is not available here: it needs {reason}" in section.notes


def test_a_table_of_operations_lists_what_can_run_and_says_nothing_of_the_rest() -> None:
    section = table(f"operation = all_reduce, ranks = 4, size = 30 B, compare = operations, {OWN}")
    assert section.columns[0] == "operation"
    assert len(section.notes) == 3
    operations = [row[0] for row in section.rows]
    assert list(dict.fromkeys(operations)) == list(OPERATIONS)
    best = {row[0]: row[1] for row in section.rows if row[6] == "fastest"}
    assert best["scatter"] == "tree"
    ring = next(row for row in section.rows if row[:2] == ("reduce_scatter", "ring"))
    assert ring[2:6] == (3, (22.5, "B"), (6, "s"), (10.5, "s"))


def test_a_table_by_size_goes_from_a_kibibyte_to_sixteen_gibibytes_by_four() -> None:
    section = table(f"{RING}, size = 30 B, compare = sizes")
    sizes = [row[0][0] for row in section.rows]
    assert sizes == [1024.0 * 4**i for i in range(13)]
    (size, unit), name, (seconds, _), (busy, _) = section.rows[2]
    assert (size, unit, name) == (16384, "B", "ring")
    assert seconds == pytest.approx(12 + 1.5 * 16384 / 5)
    assert busy == pytest.approx(1.5 * 16384 / seconds)
    alone = RING.replace("ranks = 4", "ranks = 1")
    assert [row[3][0] for row in table(f"{alone}, size = 1 B, compare = sizes").rows] == [0.0] * 13


@try_each(
    "operation, ranks, rows, columns, further",
    [
        ("all_reduce", 2, 2, 2, False),
        ("all_reduce", 16, 30, 16, False),
        ("all_reduce", 17, 32, 16, True),
        ("all_gather", 33, 32, 16, True),
        ("reduce_scatter", 34, 32, 16, True),
        ("all_gather", 40, 32, 16, True),
    ],
)
def test_a_long_ring_shows_its_first_ranks_and_steps(
    operation: str, ranks: int, rows: int, columns: int, further: bool
) -> None:
    body = f"operation = {operation}, ranks = {ranks}, size = 40 B total, schedule = on, {OWN}"
    section = table(body)
    assert len(section.rows) == rows
    assert {len(row) for row in section.rows} == {1 + columns}
    said = f"the first 16 of {ranks} ranks; each further rank sends the next chunk"
    assert (said in section.notes) is further
    if operation == "all_gather":  # a rank starts with its own chunk
        assert section.rows[0][:3] == ("AG 1", "0 to 1", "1 to 2")
        assert section.rows[1][:3] == ("AG 2", f"{ranks - 1} to 1", "0 to 2")
    else:  # and its own sum arrives last
        assert section.rows[0][:3] == ("RS 1", f"{ranks - 1} to 1", f"0 to {2 % ranks}")


def test_what_does_not_go_around_a_ring_has_no_steps() -> None:
    section = table(f"operation = broadcast, ranks = 20, size = 40 B, schedule = on, {OWN}")
    assert section.rows == []
    assert section.notes == ["`broadcast` does not go around a ring in chunks"]


def test_the_remedy_of_a_short_message_is_fusion() -> None:
    """25 B: 7.5 s of bytes, 12 s of start-up, equal at 40 B; two at once take 27 s."""
    section = table(f"{RING}, size = 25 B, advice = on")
    assert section.notes == [
        "latency-bound: the transfer takes 7.5e+06 us and start-up 1.2e+07 us; they are equal at 40 B"
    ]
    assert section.rows == [
        ("fuse 2 such messages into one: each", (13.5, "s"), (6, "s")),
        ("use `recursive_doubling`", (14, "s"), (5.5, "s")),
        ("lower bound for any algorithm:", (7.5, "s"), (12, "s")),
    ]


def test_the_remedy_of_a_long_message_is_a_narrower_type_or_overlap() -> None:
    section = table(f"{RING}, size = 80 B, advice = on")
    assert section.notes == [
        "bandwidth-bound: the transfer takes 2.4e+07 us and start-up 1.2e+07 us; they are equal at 40 B"
    ]
    assert section.rows == [
        ("send half the bytes (a type of fewer bits)", (24, "s"), (12, "s")),
        ("overlap it with compute of the same length", (0, "s"), (36, "s")),
        ("use `halving_doubling`", (32, "s"), (4, "s")),
        ("lower bound for any algorithm:", (24, "s"), (12, "s")),
    ]
    level = table(f"{RING}, size = 40 B, advice = on")
    assert level.notes[0].startswith("bandwidth-bound")
    best = table(f"{RING.replace('= ring', '= auto')}, size = 80 B, advice = on")
    assert [row[0][:4] for row in best.rows] == ["send", "over", "lowe"]


def test_only_what_is_summed_or_dealt_out_may_be_hidden() -> None:
    def changes(operation: str) -> list[str]:
        body = f"operation = {operation}, ranks = 4, size = 4 kB total, advice = on, {OWN}"
        return [row[0] for row in table(body).rows]

    hidden = "overlap it with compute of the same length"
    assert hidden in changes("all_gather")
    assert hidden not in changes("broadcast")


def test_an_empty_message_is_bound_by_nothing() -> None:
    section = table(f"{RING}, size = 0 B, advice = on")
    assert section.notes == []
    assert section.rows[-1] == ("lower bound for any algorithm:", (4, "s"), (8, "s"))


@try_each(
    "bytes_, text",
    [
        (999.0, "999 B"),
        (1e3, "1 kB"),
        (999e3, "999 kB"),
        (1e6, "1 MB"),
        (999e6, "999 MB"),
        (1e9, "1 GB"),
        (999e9, "999 GB"),
        (1e12, "1 TB"),
        (1234e12, "1234 TB"),
    ],
)
def test_bytes_are_printed_in_the_largest_full_unit(bytes_: float, text: str) -> None:
    assert _size_text(bytes_) == text
