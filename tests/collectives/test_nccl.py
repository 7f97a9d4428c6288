"""NCCL's own cost model, by the table of release 2.30: worked numbers and what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Group, Study
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import Level

from ..rows import try_each

A100 = "generation = ampere, channels = 12, channel_bandwidth = 20 GB/s per_direction"
H100 = "generation = hopper, channels = 16, channel_bandwidth = 24 GB/s per_direction"
H200 = "generation = hopper, channels = 16, links = 18"
B200 = "generation = blackwell, channels = 16, links = 18"


def study(machine: str) -> Study:
    text = f"use catalog.tunings.nccl_2_30\ncollectives {{ tuning = nccl_2_30, {machine} }}\n"
    (scenario,) = parcost.load_text(text)
    return scenario.studies()[0]


def nodes(g: float, k: float = 1.0, *, kind: str = "switch", in_network: bool = False) -> Group:
    level = Level(bandwidth=1e9, latency=0.0, kind=kind, in_network=in_network)
    link = AlphaBeta(name="node", latency=0.0, bandwidth=1e9, level=level)
    far = AlphaBeta(name="network", latency=0.0, bandwidth=1e9)
    return Group(name="g", ranks=g * k, shape=(g, k), links=(link, far))


def pairs(machine: str, n: float, group: Group, operation: str = "all_reduce") -> dict[str, Any]:
    found = next(a for a in study(machine).algorithms(operation) if a.name == "nccl")
    chosen: dict[str, Any] = found.choices(operation, n, group)  # type: ignore[attr-defined]
    return chosen


def best(machine: str, n: float, group: Group, operation: str = "all_reduce") -> str:
    times = pairs(machine, n, group, operation)
    return min(times, key=times.__getitem__)


def test_a_gibibyte_on_eight_a100_takes_the_ring_with_simple() -> None:
    # 8.4 + 14 x 3.4 us, and 2^30 B at 240 GB/s x 8/14; 8203.9 us were measured
    group = nodes(8.0)
    times = pairs(A100, 2.0**30, group)
    assert times["ring_simple"] == pytest.approx(7885.367e-6, rel=1e-7)
    assert best(A100, 2.0**30, group) == "ring_simple"
    assert times["ring_simple"] == pytest.approx(8203.9e-6, rel=0.04)


def test_a_tiny_message_on_eight_a100_takes_the_ring_with_ll() -> None:
    times = pairs(A100, 8.0, nodes(8.0))
    assert times["ring_ll"] == pytest.approx(15.0e-6, rel=1e-4)
    assert best(A100, 8.0, nodes(8.0)) == "ring_ll"


def test_a_short_message_on_sixteen_nodes_takes_the_tree() -> None:
    times = pairs(H100, 65536.0, nodes(8.0, 16.0))
    assert times["ring_ll"] == pytest.approx(317.975e-6, rel=1e-5)
    assert times["tree_ll"] == pytest.approx(65.908e-6, rel=1e-5)
    assert best(H100, 65536.0, nodes(8.0, 16.0)) == "tree_ll"


def test_one_h200_node_changes_from_a_ring_to_the_switch_between_one_and_two_mib() -> None:
    # as the measured log does, at 2 MiB
    group = nodes(8.0, in_network=True)
    assert best(H200, 2.0**20, group) == "ring_ll"
    assert best(H200, 2.0**21, group) == "nvls"
    assert best(H200, 2.0**30, group) == "nvls"


@pytest.mark.parametrize(
    "machine, measured",
    [("generation = ampere, channels = 24, links = 12", 235e9), (H200, 367.6e9), (B200, 682e9)],
)
def test_the_links_payload_is_near_the_bus_bandwidth_that_rings_reach(
    machine: str, measured: float
) -> None:
    # 12 x 20, 18 x 20.6 and 18 x 40.1 GB/s against measured ring bus bandwidth
    n = 2.0**40
    seconds = pairs(machine, n, nodes(8.0))["ring_simple"]
    assert 2 * 7 / 8 * n / seconds == pytest.approx(measured, rel=0.06)


def test_an_all_gather_knows_no_tree() -> None:
    found = pairs(H100, 1e6, nodes(8.0, 2.0), "all_gather")
    assert set(found) == {"ring_ll", "ring_ll128", "ring_simple"}
    # base 6.6, 15 steps of which one crosses the network, 22.5 GB/s at most on two AMD nodes
    amd = pairs(f"{H100}, host = amd", 1e6, nodes(8.0, 2.0), "all_gather")["ring_ll"]
    assert amd == pytest.approx((6.6 + 14 * 2.0 + 2.7) * 1e-6 + 1e6 / (22.5e9 * 16 / 15))


def test_a_long_ring_over_nodes_waits_longer_for_each_step() -> None:
    group = nodes(8.0, 4.0)
    steps = 8.4 + 56 * 3.4 + 6 * 14.0  # us: 62 steps, of which 6 cross the network
    long = pairs(H100, 1e9, group)["ring_simple"] - 1e9 / (16 * 24e9 * 32 / 62)
    assert long == pytest.approx(1.4 * steps * 1e-6)
    short = pairs(H100, 1e4, group)["ring_simple"] - 1e4 / (16 * 24e9 * 32 / 62)
    assert short == pytest.approx(steps * 1e-6)


def test_one_rank_in_a_node_steps_over_the_network_as_a_tree_does() -> None:
    found = pairs(H100, 8.0, nodes(1.0, 4.0), "all_gather")
    assert found["ring_ll"] == pytest.approx((6.6 + 3 * 5.0) * 1e-6, rel=1e-4)
    # PAT: base 8, two rounds of 14 / 3.5, and 2.8 for each of four ranks
    assert found["pat"] == pytest.approx((8 + 2 * 14 / 3.5 + 2.8 * 4) * 1e-6, rel=1e-4)


def test_a_slow_card_adds_its_latency_to_each_step_over_the_network() -> None:
    """A step with Simple waits for two cards, one with LL for one."""
    group, slow = nodes(1.0, 4.0), f"{H100}, card_latency = 3 us"
    quick, found = (pairs(machine, 8.0, group, "all_gather") for machine in (H100, slow))
    assert found["ring_ll"] - quick["ring_ll"] == pytest.approx(3 * 3e-6)
    assert found["ring_simple"] - quick["ring_simple"] == pytest.approx(3 * 2 * 3e-6)


def test_pcie_has_steps_of_its_own_and_no_ll128() -> None:
    found = pairs(
        "generation = ampere, channels = 2, channel_bandwidth = 10 GB/s per_direction",
        8.0,
        nodes(4.0, kind="pcie"),
    )
    assert found["ring_ll"] == pytest.approx((6.6 + 6 * 1.0) * 1e-6, rel=1e-3)
    assert not any("ll128" in name for name in found)


def test_collnet_and_nvls_over_nodes_ask_for_the_networks_switches() -> None:
    group = nodes(8.0, 4.0, in_network=True)
    without, with_ = pairs(H100, 1e6, group), pairs(f"{H100}, collnet = on", 1e6, group)
    assert "collnet_chain" not in without
    assert "collnet_direct" not in without
    assert "nvls" not in without
    # chain: seven steps of 2.8 each way and the network's 30; half of 384 GB/s
    assert with_["collnet_chain"] == pytest.approx((14 * 2.8 + 30) * 1e-6 + 1e6 / 192e9)
    # direct: two steps of 3.7, 0.4 for each of seven peers both ways, 31; 384 / 0.75 x 0.85 / 2
    assert with_["collnet_direct"] == pytest.approx(
        (2 * (3.7 + 2.8) + 31) * 1e-6 + 1e6 / (384e9 / 0.75 * 0.85 / 2)
    )
    assert with_["nvls"] == pytest.approx((25 + 18) * 1e-6 + 1e6 / (16 * 24e9 * 32 / 62))
    # NVLS-tree: 25 + 2 x 2 x 20.9, and the channels of the network
    tree = (25 + 2 * 2 * 20.9) * 1e-6 + 1e6 / (16 * 24e9 * 32 / 62)
    assert without["nvls_tree"] == pytest.approx(tree)


@try_each("operation", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_one_rank_costs_nothing_and_arrays_are_their_elements(operation: str) -> None:
    found = next(a for a in study(H200).algorithms(operation) if a.name == "nccl")
    assert found.seconds(operation, 1e6, nodes(1.0)) == 0
    n = np.array([8.0, 65536.0, 2.0**20, 2.0**30])
    g = np.array([8.0, 8.0, 4.0, 1.0])
    k = np.array([1.0, 16.0, 2.0, 4.0])
    level = Level(bandwidth=1e9, latency=0.0, in_network=True)
    link = AlphaBeta(name="node", latency=0.0, bandwidth=1e9, level=level)
    group = Group(name="g", ranks=g * k, shape=(g, k), links=(link, link))
    together = found.seconds(operation, n, group)
    alone = [
        found.seconds(operation, float(n[i]), nodes(float(g[i]), float(k[i]), in_network=True))
        for i in range(4)
    ]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_it_runs_only_by_name_and_only_with_a_table() -> None:
    said, unsaid = study(H100), study("generation = hopper")
    group = nodes(8.0)
    assert "nccl" not in said.collective("all_reduce", 1e6, group).algorithm
    assert said.collective("all_reduce", 1e6, group, "nccl").seconds < 1
    assert unsaid.collective("all_reduce", 1e6, group, "nccl").seconds == float("inf")
