"""Links: latency and bandwidth, and measured points in place of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import parcost
from parcost import Curve, Group, SpecError
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.topology.links import AlphaBeta, LinkSet, MeasuredLink
from parcost_plugins.vocabulary import Cluster

KIB, MIB, GIB = 2.0**10, 2.0**20, 2.0**30


def measured_link(
    *points: tuple[float, float], latency: float = 0.0, ports: Any = 1.0
) -> MeasuredLink:
    sizes, seconds = zip(*points, strict=True)
    curve = Curve(sizes=np.array(sizes), seconds=np.array(seconds))
    return MeasuredLink(name="node", latency=latency, curve=curve, ports=ports)


def test_a_link_pays_for_rounds_and_bytes() -> None:
    link = AlphaBeta(name="node", latency=3e-6, bandwidth=450e9)
    assert link.seconds(7.0, 9e9) == pytest.approx(21e-6 + 20e-3)


def test_a_measured_point_is_met_exactly() -> None:
    link = measured_link((64 * KIB, 52e-6), (MIB, 100e-6), (GIB, 5e-3))
    assert link.seconds(1.0, 64 * KIB) == pytest.approx(52e-6)
    assert link.seconds(1.0, MIB) == pytest.approx(100e-6)
    assert link.seconds(1.0, GIB) == pytest.approx(5e-3)


def test_between_points_time_is_a_power_of_the_size() -> None:
    link = measured_link((1e3, 1e-5), (1e5, 4e-5))
    assert link.seconds(1.0, 1e4) == pytest.approx(2e-5)  # halfway in both logarithms


def test_outside_the_points_the_nearest_segment_goes_on() -> None:
    link = measured_link((1e3, 1e-5), (1e5, 4e-5), (1e6, 4e-4))
    assert link.seconds(1.0, 1e7) == pytest.approx(4e-3)
    assert link.seconds(1.0, 1e1) == pytest.approx(2.5e-6)


def test_outside_the_points_longer_messages_are_neither_faster_nor_slower_per_byte() -> None:
    falling = measured_link((1e3, 4e-5), (1e4, 1e-5))
    assert falling.seconds(1.0, 1e2) == pytest.approx(4e-5)
    assert falling.seconds(1.0, 1e5) == pytest.approx(1e-5)
    steep = measured_link((1e3, 1e-6), (1e4, 1e-4))
    assert steep.seconds(1.0, 1e5) == pytest.approx(1e-3)


def test_sizes_that_are_one_in_logarithms_rise_as_their_bytes_do() -> None:
    size = 2.0**52  # the next one has the same logarithm
    link = measured_link((1.0, 0.5), (size, 1.0), (size + 1.0, 2.0))
    assert link.seconds(1.0, 4.0 * size) == pytest.approx(8.0)


def test_times_of_sizes_that_are_one_in_logarithms_go_on_level_where_they_do_not_rise() -> None:
    size = 2.0**52
    for last in (1.0, 0.5):
        link = measured_link((1.0, 0.5), (size, 1.0), (size + 1.0, last))
        assert link.seconds(1.0, 4.0 * size) == pytest.approx(last)


def test_points_that_are_near_one_another_have_a_slope_of_their_own() -> None:
    link = measured_link((1e3, 1e-3), (2e3, 2**0.5 * 1e-3))
    assert link.seconds(1.0, 8e3) == pytest.approx(2 * 2**0.5 * 1e-3)


def test_a_hundredth_of_a_byte_takes_less_than_one() -> None:
    link = measured_link((1e3, 1e-3), (1e6, 1.0))
    assert link.seconds(1.0, 0.01) == pytest.approx(1e-8)


def test_no_message_takes_less_than_the_latency() -> None:
    link = measured_link((1e3, 1e-5), (1e5, 1e-3), latency=3e-6)
    assert link.seconds(1.0, 10.0) == 3e-6
    assert link.seconds(1.0, 0.0) == 3e-6
    assert link.seconds(0.0, 0.0) == 0.0


def test_what_was_measured_wins_over_a_latency_that_contradicts_it() -> None:
    link = measured_link((1e3, 1e-5), (1e5, 1e-3), latency=1.0)
    assert link.seconds(1.0, 1e3) == pytest.approx(1e-5)


def test_many_rounds_are_many_messages_of_their_own_size() -> None:
    link = measured_link((1e3, 1e-5), (1e5, 4e-5))
    assert link.seconds(10.0, 1e5) == pytest.approx(10 * 2e-5)


def test_a_single_point_says_a_bandwidth() -> None:
    link = measured_link((1e6, 1e-3))
    assert link.seconds(1.0, 5e6) == pytest.approx(5e-3)
    assert link.bandwidth == pytest.approx(1e9)


@pytest.mark.parametrize("ports", [0.5, 4.0])
def test_a_share_of_ports_carries_a_share_of_the_bytes(ports: float) -> None:
    points = ((1e3, 1e-5), (1e5, 4e-5))
    shared, whole = measured_link(*points, ports=ports), measured_link(*points)
    assert shared.seconds(1.0, 1e4) == pytest.approx(whole.seconds(1.0, 1e4 / ports))
    assert shared.bandwidth == pytest.approx(ports * whole.bandwidth)


@example([(1e9, 1.0), (999_999_999.9999999, 1.0)], [0.0, 1e12])  # of one logarithm
@given(
    st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e-7, 1)), min_size=1, max_size=8),
    st.lists(st.floats(0, 1e12), min_size=1, max_size=5),
)
def test_an_array_of_sizes_gives_what_each_size_gives(
    points: list[tuple[float, float]], sizes: list[float]
) -> None:
    link = measured_link(*sorted(dict(points).items()), latency=1e-6)
    together = link.seconds(np.full(len(sizes), 2.0), np.array(sizes))
    assert together == pytest.approx([link.seconds(2.0, size) for size in sizes], rel=1e-12)


@given(st.floats(0, 1e11), st.floats(0, 1e11))
def test_more_bytes_never_take_less_on_a_rising_curve(one: float, other: float) -> None:
    link = measured_link((64 * KIB, 52e-6), (MIB, 100e-6), (GIB, 5e-3), latency=20e-6)
    small, large = sorted([one, other])
    assert link.seconds(1.0, large) >= link.seconds(1.0, small) * (1 - 1e-12)


def test_points_on_a_line_of_bandwidth_behave_like_that_bandwidth() -> None:
    link = measured_link((1e3, 1e-6), (1e9, 1.0))
    group = Group(name="g", ranks=8.0, shape=(8.0,), links=(link,))
    assert Ring().seconds("all_reduce", 1e8, group) == pytest.approx(2 * 7 / 8 * 1e8 / 1e9)


def test_collectives_ask_a_measured_link_for_messages_of_their_size() -> None:
    near = measured_link((1e3, 1e-5), (1e9, 1e-2))
    far = AlphaBeta(name="network", latency=1e-5, bandwidth=50e9)
    group = Group(name="g", ranks=16.0, shape=(8.0, 2.0), links=(near, far))
    expected = 14 * near.seconds(1.0, 1e8 / 8) + 2 * (1e-5 + 1e8 / 16 / 50e9)
    assert Hierarchical().seconds("all_reduce", 1e8, group) == pytest.approx(expected)


def test_links_that_a_round_waits_for_together_count_only_where_they_are_crossed() -> None:
    near, far = (
        measured_link((1e3, 1e-5), (1e5, 4e-5)),
        AlphaBeta(name="f", latency=1.0, bandwidth=1.0),
    )
    crossed = (np.array([True, True]), np.array([True, False]))
    link = LinkSet(name="f", latency=1.0, bandwidth=1.0, links=(near, far), crossed=crossed)
    assert link.seconds(1.0, 1e4) == pytest.approx([1e4 + 1.0, 2e-5])


def test_the_rate_of_a_whole_node_is_shared_by_its_ports() -> None:
    """3200 Gb/s of a node on 8 ports are 400 Gb/s, 50 GB/s, of each; on 4 ports 100 GB/s."""
    text = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric mine {{
  level node {{ size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us }}
  level network {{ bandwidth = 3200 Gbps per_unit, {ports} latency = 14 us }}
}}
cluster {{ devices = 32 }}
training {{ sequence = 4096, global_batch = 32 sequences }}
"""
    for ports, each in ((8, 50e9), (4, 100e9)):
        study = parcost.load_text(text.format(ports=f"ports = {ports},"))[0].first
        assert study[Cluster].fabric.levels[-1].bandwidth == each
    with pytest.raises(SpecError) as error:
        _ = parcost.load_text(text.format(ports=""))[0].first
    (found,) = error.value.diagnostics
    assert found.id == "not-given"
    assert found.message == "`bandwidth = per_unit` needs `ports`"
