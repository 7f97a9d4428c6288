"""Figures of networks in round numbers, worked out by hand, and the edges of their rules."""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost import Check, Figure
from parcost_plugins.calculators.networks import sharing

from ..rows import try_each


def answers(text: str) -> list[Any]:
    (study,) = parcost.load_text(text)[0].studies()
    return [answer for _, answer in study.contributions("calculations")]


def figures(text: str) -> dict[str, Any]:
    found = [answer for answer in answers(text) if isinstance(answer, Figure)]
    return {figure.name.partition(".")[2]: figure.value for figure in found}


def failed_rules(text: str) -> list[str]:
    found = [answer for answer in answers(text) if isinstance(answer, Check)]
    return [check.id for check in found if check.holds is False]


def network(kind: str, devices: int, **given: Any) -> str:
    whole = {
        "bandwidth": "11 GB/s per_direction",
        "port": "13 GB/s per_direction",
        "port_latency": "3 us",
        "switch_latency": "5 us",
        "cable_latency": "7 us",
        **given,
    }
    body = "".join(f"{name} = {value}\n" for name, value in whole.items())
    return f"network n {{\nkind = {kind}\ndevices = {devices}\n{body}}}\n"


def check_table(text: str, expected: dict[str, float]) -> None:
    found = figures(text)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


# --- dragonflies --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_dragonfly_of_five_groups_with_seven_links_each() -> None:
    """Twelve devices of a group inject 156 GB/s, and 77 GB/s leave it; six of ten pairs of
    groups lie across a half cut."""
    check_table(
        network("dragonfly", 60, groups=5, global_links=7),
        {
            "devices_per_group": 12,
            "links": 17.5,
            "global_bandwidth": 385e9,
            "crossing": 0.6,
            "bisection": 115.5e9,
            "bisection_bidirectional": 231e9,
            "links_per_group_needed": 4,
            "groups_reached": 4,
            "uniform": 77 / 156 * 5 / 4,
            "adversarial": 77 / 156 / 4,
            "valiant": 77 / 156 / 2,
            "path_latency": 28e-6,
        },
    )


def test_a_dragonfly_whose_links_do_not_reach_every_group() -> None:
    """22 GB/s leave a group of 12 devices, by way of other groups."""
    check_table(
        network("dragonfly", 60, groups=5, global_links=2),
        {
            "groups_reached": 2,
            "uniform": 22 / 156 / 2,
            "adversarial": 0,
            "valiant": 22 / 156 / 2,
        },
    )


def test_two_groups_are_joined_by_one_link() -> None:
    """Thirty devices of a group inject 390 GB/s, all of which one link of 11 GB/s carries."""
    text = network("dragonfly", 60, groups=2, global_links=1)
    half = 11 / 390
    check_table(text, {"uniform": 2 * half, "adversarial": half, "valiant": half / 2})
    check_table(text, {"links": 1, "crossing": 1, "bisection": 11e9, "groups_reached": 1})


def test_no_port_has_more_than_its_own_throughput() -> None:
    given = {"groups": 2, "global_links": 100}
    wide = {"crossing": 1.0, "uniform": 1.0, "adversarial": 1.0, "valiant": 1.0}
    check_table(network("dragonfly", 4, **given), wide)
    few = network("dragonfly", 60, groups=5, global_links=3, port="1 MB/s per_direction")
    check_table(few, {"uniform": 1.0, "adversarial": 0.0, "valiant": 1.0})


def test_the_routers_of_a_group_say_its_links_together_or_not_at_all() -> None:
    whole = network("dragonfly", 60, groups=5, routers=4, links_per_router=3)
    check_table(whole, {"links": 5 * 12 / 2, "most_groups": 13, "balanced_per_router": 2})
    said = network("dragonfly", 60, groups=5, routers=4, global_links=7)
    found = figures(said)
    assert "most_groups" not in found
    assert (found["links"], found["valiant_hops"]) == (17.5, 5)
    for half in ({"routers": 4}, {"links_per_router": 3}):
        assert failed_rules(network("dragonfly", 60, groups=5, **half)) == ["network-lacks"]
    assert failed_rules(network("dragonfly", 60, groups="[5, 6]")) == ["network-lacks"]
    assert failed_rules(network("dragonfly", 60)) == ["network-lacks"] * 2
    assert failed_rules(network("torus", 60)) == ["network-lacks"]


@pytest.mark.parametrize(
    "groups, wrong", [(1, ["network-groups"]), (2, []), (7, ["network-groups-divide"])]
)
def test_devices_divide_into_two_groups_or_more(groups: int, wrong: list[str]) -> None:
    assert failed_rules(network("dragonfly", 60, groups=groups, global_links=7)) == wrong


# --- fat trees and rails ------------------------------------------------------------------------------


@try_each(
    "devices, levels, leaves, spines, cores, across, latency",
    [
        # switches of ten ports, of which six go down and four up
        (7, 1, 1, 0, 0, 13 * 7 / 2, 18),
        (10, 1, 1, 0, 0, 13 * 10 / 2, 18),
        (11, 2, 2, 1, 0, 11 * 2 * 4 / 2, 28),
        (50, 2, 9, 4, 0, 11 * 9 * 4 / 2, 28),
        (60, 2, 10, 4, 0, 11 * 10 * 4 / 2, 28),
        (61, 3, 11, 9, 5, 11 * 11 * 4 / 2, 38),
        (100, 3, 17, 14, 7, 11 * 17 * 4 / 2, 38),
    ],
)
def test_switches_of_ten_ports_with_twice_as_many_down_as_up(
    devices: int, levels: int, leaves: int, spines: int, cores: int, across: float, latency: float
) -> None:
    expected = {
        "levels": levels,
        "per_leaf": 10 if levels == 1 else 6,
        "most_two_levels": 60,
        "most_three_levels": 300,
        "leaves": leaves,
        "spines": spines,
        "cores": cores,
        "switches": leaves + spines + cores,
        "bisection": across * 1e9,
        "hops": 2 * levels - 1,
        "path_latency": latency * 1e-6,
    }
    given = {"radix": 10, "oversubscription": 2}
    check_table(network("fat_tree", devices, **given), expected)
    per_tree = ("levels", "per_leaf", "hops", "path_latency")
    rails = {name: n if name in per_tree else 3 * n for name, n in expected.items()}
    check_table(network("rail", 3 * devices, per_node=3, **given), rails)


def test_the_bisection_is_that_of_this_network() -> None:
    """Of one switch, of a sweep that has one, and of rails, which are not joined at the top."""

    def middle(kind: str, devices: Any) -> tuple[str, str]:
        text = network(kind, devices, radix=10)
        found = (f for f in answers(text) if isinstance(f, Figure))
        (across,) = (figure for figure in found if figure.name == "n.bisection")
        return across.formula.text, across.note

    of_leaves = "g L u B / 2, u uplinks of a leaf"
    of_a_switch = "g (levels == 1 ? n B_port : L u B) / 2"
    assert middle("fat_tree", 10) == (of_a_switch, "")
    assert middle("fat_tree", "[10, 20]") == (of_a_switch, "")
    assert middle("fat_tree", 20) == (of_leaves, "")
    note = "sum over rails, without traffic between them"
    assert middle("rail", 20) == (of_leaves, note)


def test_three_levels_of_switches_join_no_more_than_they_have_ports_for() -> None:
    assert failed_rules(network("fat_tree", 300, radix=10, oversubscription=2)) == []
    assert failed_rules(network("fat_tree", 301, radix=10, oversubscription=2)) == [
        "network-too-small"
    ]
    assert failed_rules(network("fat_tree", 300)) == ["network-lacks"]


# --- tori ---------------------------------------------------------------------------------------------


@try_each(
    "sizes, wrap, links, across, hops, injection",
    [
        # 4 x 3: two rings across the middle of four, of three places each
        ((4, 3), True, 24, 6, 2 + 1, 4),
        ((4, 3), False, 9 + 8, 3, 3 + 2, 2),
        ((2, 5), True, 5 + 10, 4, 1 + 2, 1 + 2),
        ((3, 2), True, 6 + 3, 3, 1 + 1, 2 + 1),
        ((2,), True, 1, 1, 1, 1),
        ((1, 7), True, 7, 2, 3, 2),
        ((1,), True, 0, 0, 0, 0),
    ],
)
def test_a_torus_in_links_of_eleven(
    sizes: tuple[int, ...], wrap: bool, links: int, across: int, hops: int, injection: int
) -> None:
    devices = 1
    for size in sizes:
        devices *= size
    text = network("torus", devices, dimensions=list(sizes), wrap="on" if wrap else "off")
    check_table(
        text,
        {"links": links, "bisection": across * 11e9, "hops": hops, "injection": injection * 11e9},
    )


def test_one_device_is_its_own_longest_dimension() -> None:
    (across,) = (
        answer
        for answer in answers(network("torus", 1, dimensions=[1]))
        if isinstance(answer, Figure) and answer.name == "n.bisection"
    )
    assert (across.formula.text, across.value) == ("0, of one device", 0)


# --- bounds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaving, factor", [(0.2, 1.0), (0.5, 1.5), (1.0, 3.0)])
def test_a_leaf_of_three_to_one_bounds_what_leaves_it(leaving: float, factor: float) -> None:
    """26 GB through ports of 13 GB/s, of which 40 % of a step wait, beside 3 s of compute."""
    text = network(
        "fat_tree",
        20,
        radix=10,
        oversubscription=3,
        volume="26 GB",
        leaving=leaving,
        exposed=0.4,
        compute="3 s",
        groups=9,
        global_links=9,
    )
    bound = 2 * factor
    check_table(
        text,
        {
            "volume": 26e9,
            "port_seconds": 2,
            "leaf_seconds": leaving * 3 * 2,
            "seconds": bound,
            "slowdown": 1 + 0.4 * (factor - 1),
            "bound": bound,
            "whole_machine_seconds": 26 / (20 * 13),  # of ports, whatever is said of groups
            "of_compute": bound / 3,
            "of_step": bound / (bound + 3),
        },
    )
    assert "bisection_seconds" not in figures(text)


def test_an_all_reduce_crosses_the_middle_once_each_way() -> None:
    """One of 260 GB over five ranks: 8/5 of it through a port, all of it across 3 x 11 GB/s."""
    given = {"dimensions": [4, 3], "wrap": "off", "all_reduce": "260 GB", "ranks": 5}
    check_table(
        network("torus", 12, **given),
        {
            "volume": 416e9,
            "port_seconds": 32,
            "seconds": 32,
            "bisection_seconds": 260 / 33,
            "bound": 32,
        },
    )
    narrow = network("torus", 12, **{**given, "ranks": 12}, port="1 TB/s per_direction")
    check_table(narrow, {"bisection_seconds": 260 / 33, "bound": 260 / 33})


# --- rails --------------------------------------------------------------------------------------------


def test_an_exchange_of_three_rails_over_five_nodes() -> None:
    """Fifteen blocks of 1 GB: two stay in the node, twelve leave, of which four stay on the rail."""
    text = """
    rail_exchange x {
      bytes_per_rank = 15 GB, per_node = 3, nodes = 5, message = 7 s
      inside = 2 GB/s per_direction, outside = 4 GB/s per_direction
    }
    """
    check_table(
        text,
        {
            "direct_seconds": 12 / 4 + 14 * 7,
            "two_level_seconds": 10 / 2 + 12 / 4 + (2 + 4) * 7,
            "pipelined_seconds": 10 / 2 + (2 + 4) * 7,
            "direct_messages": 12,
            "two_level_messages": 4,
            "direct_message_bytes": 1e9,
            "two_level_message_bytes": 3e9,
            "port_bytes": 12e9,
            "inside_bytes": 2e9,
            "pxn_bytes": 10e9,
            "crossing_bytes": 8e9,
            "on_rail": 1 / 3,
        },
    )


# --- flows --------------------------------------------------------------------------------------------

SHARING = """
sharing s {
  resource port { bandwidth = 2 B/s per_direction }
  resource leaf { bandwidth = 3 B/s per_direction }
  resource idle { bandwidth = 7 B/s per_direction }
  flow near { bytes = 10 B, over = "port" }
  flow far  { bytes = 30 B, over = "port leaf", start = 1 s }
}
"""


def test_flows_share_a_port_while_both_are_there() -> None:
    """2 B alone, then 8 B beside as many of the other, whose last 22 B have the port again."""
    check_table(
        SHARING,
        {
            "near": 1 + 8,
            "far": 9 + 11,
            "port_seconds": 20,
            "leaf_seconds": 10,
            "idle_seconds": 0,
            "bound": 20,
            "seconds": 20,
        },
    )


def test_little_flows_take_a_share_of_a_second() -> None:
    text = SHARING.replace("10 B", "0.1 B").replace("30 B", "0.3 B").replace("1 s", "0 s")
    check_table(text, {"near": 0.1, "far": 0.2, "bound": 0.2, "seconds": 0.2, "leaf_seconds": 0.1})


@pytest.mark.parametrize(
    "before, after",
    [
        ('over = "port leaf"', 'over = "port spine"'),
        ('over = "port leaf"', 'over = ""'),
        (SHARING[SHARING.index("  flow near") :], "}"),
    ],
)
def test_flows_over_nothing_have_no_figures(before: str, after: str) -> None:
    text = SHARING.replace(before, after)
    assert failed_rules(text) == ["flow-over-nothing"]
    assert figures(text) == {}


@pytest.mark.parametrize("most, wrong", [(6, []), (5, ["sharing-size"])])
def test_flows_times_resources_are_followed_up_to_a_limit(
    most: int, wrong: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "_MOST", most)
    assert failed_rules(SHARING) == wrong
    assert bool(figures(SHARING)) is not bool(wrong)
