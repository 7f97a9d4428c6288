"""Geometry of networks, against counting switches and links one by one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import parcost
from parcost import Diagnostic

from ..rows import try_each


def figures(text: str) -> dict[str, Any]:
    """Return the figures of a study that is calculations alone, by what follows the label."""
    (scenario,) = parcost.load_text(text)
    report = scenario.evaluate()
    assert not report.diagnostics, report.diagnostics
    (study,) = scenario.studies()
    found = [answer for _, answer in study.contributions("calculations")]
    return {f.name.partition(".")[2]: f.value for f in found if isinstance(f, parcost.Figure)}


def diagnostics_of(text: str) -> list[Diagnostic]:
    (scenario,) = parcost.load_text(text)
    return list(scenario.evaluate().diagnostics)


def network(kind: str, devices: int, **given: Any) -> str:
    body = "".join(f"{name} = {value}\n" for name, value in given.items())
    return (
        f"network n {{\nkind = {kind}\ndevices = {devices}\n"
        f"bandwidth = 50 GB/s per_direction\n{body}}}\n"
    )


# --- dragonflies --------------------------------------------------------------------------


@try_each("groups", [2, 3, 4, 5, 6, 7])
def test_the_links_of_a_dragonfly_across_a_half_cut_are_those_counted(groups: int) -> None:
    """One link for each pair of groups: all are counted, on every cut in halves."""
    found = figures(network("dragonfly", 4 * groups, groups=groups, global_links=groups - 1))
    pairs = list(itertools.combinations(range(groups), 2))
    half = range(groups // 2)
    crossing = sum((a in half) != (b in half) for a, b in pairs)
    assert found["links"] == len(pairs)
    assert found["bisection"] == pytest.approx(crossing * 50e9)
    assert found["bisection_bidirectional"] == pytest.approx(2 * crossing * 50e9)


def test_document_001_counts_every_link_twice() -> None:
    found = figures(network("dragonfly", 4096, groups=64, global_links=8))
    assert found["devices_per_group"] == 64
    assert found["global_bandwidth"] == pytest.approx(25.6e12)
    assert found["links"] == 256
    assert found["bisection"] == pytest.approx(6.501587302e12, rel=1e-9)
    assert found["links_per_group_needed"] == 63
    assert found["groups_reached"] == 8
    assert found["adversarial"] == 0.0  # most pairs of groups have no link


def test_a_balanced_dragonfly_has_the_throughput_of_its_inventors() -> None:
    found = figures(network("dragonfly", 129 * 128, groups=129, routers=16, links_per_router=8))
    assert found["adversarial"] == pytest.approx(1 / 128)
    assert found["uniform"] == 1.0
    assert found["valiant"] == 0.5
    assert found["most_groups"] == 129
    assert found["balanced_per_router"] == 8
    assert (found["hops"], found["valiant_hops"]) == (3, 5)


def test_a_tapered_dragonfly_passes_on_what_its_links_carry() -> None:
    """Eight routers of 16 devices with four links each: a quarter of the injection leaves."""
    found = figures(network("dragonfly_plus", 17 * 128, groups=17, routers=8, links_per_router=4))
    assert found["uniform"] == pytest.approx(32 / 128 * 17 / 16)
    assert found["valiant"] == pytest.approx(32 / 128 / 2)
    assert found["adversarial"] == pytest.approx(32 / 16 / 128)


# --- fat trees and rails --------------------------------------------------------------------


def tree(devices: int, radix: int) -> tuple[int, int, int]:
    """Return the leaves, spines and cores of a tree that is built switch by switch."""
    if devices <= radix:
        return 1, 0, 0
    half = radix // 2
    leaves = -(-devices // half)
    if devices <= radix * half:
        return leaves, -(-leaves * half // radix), 0
    spines = -(-leaves * half // half)
    return leaves, spines, -(-spines * half // radix)


@try_each("radix", [4, 8, 64])
@try_each("share", [0.01, 0.1, 0.25, 0.5, 1.0])
def test_a_fat_tree_has_the_switches_that_building_it_takes(radix: int, share: float) -> None:
    devices = max(int(radix**3 / 4 * share), 1)
    found = figures(network("fat_tree", devices, radix=radix))
    assert (found["leaves"], found["spines"], found["cores"]) == tree(devices, radix)


def test_the_largest_trees_of_64_ports_join_2048_and_65536() -> None:
    found = figures(network("fat_tree", 65536, radix=64))
    assert (found["most_two_levels"], found["most_three_levels"]) == (2048, 65536)
    assert (found["levels"], found["hops"]) == (3, 5)
    assert found["bisection"] == pytest.approx(65536 / 2 * 50e9)
    assert figures(network("fat_tree", 2048, radix=64))["hops"] == 3
    assert figures(network("fat_tree", 32, radix=64))["hops"] == 1


def test_a_rail_leaf_serves_half_as_many_nodes_as_a_switch_has_ports() -> None:
    found = figures(network("rail", 512 * 8, per_node=8, radix=64))
    assert found["per_leaf"] == 32
    assert found["leaves"] == 8 * 512 / 32
    assert found["most_two_levels"] == 8 * 2048


def test_three_to_one_costs_what_leaves_the_leaf() -> None:
    """1 GB at 50 GB/s and 3:1: 20 ms where a fifth leaves, 60 ms where all does (EX-B2)."""
    given = {"radix": 64, "oversubscription": 3, "volume": "1 GB"}
    for leaving, seconds in ((0.2, 20e-3), (1 / 3, 20e-3), (0.5, 30e-3), (1.0, 60e-3)):
        found = figures(network("fat_tree", 1024, **given, leaving=leaving))
        assert found["seconds"] == pytest.approx(seconds)
    half_exposed = figures(network("fat_tree", 1024, **given, exposed=0.5))
    assert half_exposed["slowdown"] == pytest.approx(1 + 0.5 * (3 - 1))


def test_ports_of_an_oversubscribed_leaf_are_three_down_for_one_up() -> None:
    found = figures(network("fat_tree", 48 * 64, radix=64, oversubscription=3))
    assert found["per_leaf"] == 48
    assert found["leaves"] == 64
    assert found["bisection"] == pytest.approx(64 * 16 * 50e9 / 2)


# --- tori -----------------------------------------------------------------------------------


def neighbours(sizes: tuple[int, ...], wrap: bool) -> set[frozenset[tuple[int, ...]]]:
    links = set()
    for here in itertools.product(*map(range, sizes)):
        for axis, size in enumerate(sizes):
            beyond = here[axis] + 1
            if beyond < size or (wrap and size > 1):
                there = (*here[:axis], beyond % size, *here[axis + 1 :])
                links.add(frozenset([here, there]))
    return links


@try_each("sizes", [(8,), (2,), (4, 4), (4, 8), (2, 4), (1, 4), (4, 4, 8), (2, 2, 2)])
@try_each("wrap", [True, False])
def test_a_torus_has_the_links_and_the_narrowest_cut_that_drawing_it_shows(
    sizes: tuple[int, ...], wrap: bool
) -> None:
    devices = 1
    for size in sizes:
        devices *= size
    text = network("torus", devices, dimensions=list(sizes), wrap="on" if wrap else "off")
    found = figures(text)
    links = neighbours(sizes, wrap)
    assert found["links"] == len(links)
    longest = max(range(len(sizes)), key=lambda axis: sizes[axis])
    half = sizes[longest] // 2
    cut = sum(len({end[longest] < half for end in link}) == 2 for link in links)
    assert found["bisection"] == pytest.approx(cut * 50e9)


# --- bounds ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_port_bounds_the_all_reduce_of_document_001_far_more_than_the_middle() -> None:
    given = {"groups": 64, "global_links": 8, "all_reduce": "700 GB", "ranks": 1024}
    found = figures(network("dragonfly", 4096, **given))
    assert found["volume"] == pytest.approx(2 * 1023 / 1024 * 700e9)
    assert found["port_seconds"] == pytest.approx(27.97265625)
    assert found["bisection_seconds"] == pytest.approx(700e9 / 6.501587302e12)
    assert found["bound"] == pytest.approx(27.97265625)
    quoted = figures(
        network("dragonfly", 4096, groups=64, global_links=8, volume="1.4 TB", compute="200 ms")
    )
    assert quoted["whole_machine_seconds"] == pytest.approx(54.6875e-3)


def test_an_overhead_is_a_share_of_compute_and_a_smaller_one_of_the_step() -> None:
    """55 ms beside 200 ms: 27.5 % of the compute, and 21.6 % of the step of 255 ms."""
    given = {"radix": 64, "volume": "2.75 GB", "compute": "200 ms"}
    found = figures(network("fat_tree", 64, **given))
    assert found["bound"] == pytest.approx(55e-3)
    assert found["of_compute"] == pytest.approx(0.275)
    assert found["of_step"] == pytest.approx(55 / 255)


# --- mistakes -------------------------------------------------------------------------------


@try_each(
    "text, id, message, help",
    [
        (
            network("fat_tree", 64),
            "network-lacks",
            "`n` is a fat_tree without its `radix`",
            "write `radix = ...`",
        ),
        (
            network("dragonfly", 64, groups=8),
            "network-lacks",
            "`n` is a dragonfly without its `global_links`",
            "write `global_links = ...`",
        ),
        (
            network("torus", 64),
            "network-lacks",
            "`n` is a torus without its `dimensions`",
            "write `dimensions = ...`",
        ),
        (
            network("torus", 64, dimensions=[4, 8]),
            "network-torus",
            "dimensions 4 x 8 have 32 nodes, but `n` has 64 devices",
            "write `devices = 32`",
        ),
        (
            network("fat_tree", 65537, radix=64),
            "network-too-small",
            "three levels of switches of radix 64 connect at most 65536 devices, but `n` has 65537",
            "write a larger radix",
        ),
        (
            network("dragonfly", 64, groups=1, global_links=4),
            "network-groups",
            "network `n` has 1 group: global links need a second group",
            "write at least two groups",
        ),
        (
            network("dragonfly", 65, groups=8, global_links=4),
            "network-groups-divide",
            "65 devices are not divisible by 8 dragonfly groups",
            "write a number of groups that divides the devices",
        ),
    ],
)
def test_an_impossible_network_has_an_error_with_the_reason(
    text: str, id: str, message: str, help: str | None
) -> None:
    (found,) = diagnostics_of(text)
    assert (found.id, found.message, found.help) == (id, message, help)
