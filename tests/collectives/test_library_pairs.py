"""What a library runs on the links of a group, worked out by hand from NCCL's source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Group, Study
from parcost_plugins.collectives.nccl import LibraryPair
from parcost_plugins.collectives.phases import phase_seconds
from parcost_plugins.topology.links import AlphaBeta

from ..rows import try_each

JOB = """
use catalog.devices.{device}
use catalog.fabrics.{fabric}
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster {{ devices = {devices} }}
layout {{ tp = {tp}, zero = 1 }}
{more}
training {{ sequence = 8192, micro_batch = 1, global_batch = 1024 sequences }}
"""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")


def job(
    devices: str = "1024",
    tp: int = 1,
    device: str = "h100_sxm",
    fabric: str = "hgx_h100",
    more: str = "",
) -> Study:
    text = JOB.format(devices=devices, tp=tp, device=device, fabric=fabric, more=more)
    return parcost.load_text(text)[0].first


def choose_pair(study: Study, operation: str, n: float, group: str = "dp") -> tuple[str, Any]:
    call = study.collective(operation, n, group)
    return call.algorithm, call.seconds


def test_a_short_all_reduce_on_sixteen_nodes_goes_down_and_up_a_tree_with_ll() -> None:
    """20 us to start, 6.8 of the call, 14 steps of 0.6 in a node and 8 of 5 between them.

    LL over more than two nodes of Intel has 20.4 GB/s, a tree half of it, and 60 % at 64 KiB.
    """
    start = 20 + 6.8 + 14 * 0.6 + 8 * 5
    name, seconds = choose_pair(job("128"), "all_reduce", 65536.0)
    assert name == "tree_ll"
    assert seconds == pytest.approx(start * 1e-6 + 65536 / (20.4e9 / 2 * 0.6))


def test_a_bucket_over_512_ranks_takes_the_network_127_times_and_not_511() -> None:
    """Of 4 ranks on each of 128 nodes: 384 steps of 1.9 us in nodes, 127 of 4 between them.

    LL128 has 92 % of 180 GB/s, of four ports with 90 % of 50 GB/s each. Simple would start 1.8 ms
    later, and gain 77 us.
    """
    name, seconds = choose_pair(job(tp=2), "reduce_scatter", 160e6)
    assert name == "ring_ll128"
    start = 20 + 14 + 384 * 1.9 + 127 * 4
    assert seconds == pytest.approx(start * 1e-6 + 160e6 * 511 / 512 / (0.92 * 180e9))
    by_name = job(tp=2).collective("reduce_scatter", 160e6, "dp", "ring_simple").seconds
    start = 20 + 8.4 + 384 * 3.4 + 127 * 14
    assert by_name == pytest.approx(start * 1e-6 + 160e6 * 511 / 512 / 180e9)


def test_a_tree_over_two_nodes_sends_a_buffer_once_each_way() -> None:
    """The network has 360 GB/s: NVLink with 369 limits the tree, of which it takes 92 %.

    On a quarter of the network the tree is faster: 90 GB/s each way, where a ring has 90 for
    nearly twice the bytes.
    """
    seconds = job("16").collective("all_reduce", 2.0**34, "dp", "tree_simple").seconds
    assert 2.0**34 / seconds == pytest.approx(0.92 * 369e9 / 2, rel=2e-3)
    slow = "level network { bandwidth = 100 Gbps per_direction }"
    plain = f"level node {{ in_network = off }}, {slow}"
    study = job("16", more=f"fabric hgx_h100 {{ {plain} }}")
    name, seconds = choose_pair(study, "all_reduce", 2.0**34)
    assert name == "tree_simple"
    assert 2.0**34 / seconds == pytest.approx(0.92 * 90e9, rel=2e-3)
    name, seconds = choose_pair(
        job("16", more=f"fabric hgx_h100 {{ {slow} }}"), "all_reduce", 2.0**34
    )
    assert name == "nvls_tree"  # the same over the network, and the switch adds in the node
    assert 2.0**34 / seconds == pytest.approx(90e9, rel=2e-3)  # a node sends the sum once


def test_two_ranks_of_a_node_do_not_fill_its_links() -> None:
    n = 2.0**30
    seconds = job("2").collective("all_reduce", n, "dp", "ring_simple").seconds
    assert seconds == pytest.approx((20 + 8.4 + 2 * 3.4) * 1e-6 + n / (0.85 * 369e9))


def test_a_switch_that_reduces_passes_nine_eighths_of_the_buffer() -> None:
    """25 us, and 82 % of NVLink for n (1 + 1/8): a bus bandwidth of 471 GB/s, 480 as measured."""
    n = 2.0**30
    on = "fabric hgx_h100 { level node { in_network = on } }"
    seconds = job("8", more=on).collective("all_reduce", n, "dp", "nvls_simple").seconds
    assert seconds == pytest.approx(45e-6 + n * 9 / 8 / (0.82 * 369e9))
    assert 1.75 * n / seconds == pytest.approx(480e9, rel=0.04)


def test_a_network_without_order_has_simple_alone() -> None:
    """Two nodes of p4d: 26 steps of 3.4 us in nodes and 4 of 14 by NCCL 2.20; 161 us measured."""
    study = job(
        "16",
        device="a100_sxm_80g",
        fabric="aws_p4d",
        more="use catalog.tunings.nccl_2_20\ncollectives { tuning = nccl_2_20 }",
    )
    name, seconds = choose_pair(study, "all_reduce", 8.0)
    assert name == "ring_simple"
    assert seconds == pytest.approx((20 + 8.4 + 26 * 3.4 + 4 * 14) * 1e-6, rel=1e-4)
    assert seconds == pytest.approx(161e-6, rel=0.1)


def test_a_table_in_collectives_replaces_that_of_the_device() -> None:
    """The trees of NCCL 2.20 have 40 % of the bandwidth, and its steps with Simple are longer."""
    more = "use catalog.tunings.nccl_2_20\ncollectives {{ tuning = nccl_2_20 }}".format()
    old, new = job("128", more=more), job("128")
    times = [
        study.collective("all_reduce", 8.0, "dp", "tree_simple").seconds for study in (old, new)
    ]
    assert times == pytest.approx(
        [(20 + 14 * 28 + 8 * 28) * 1e-6, (20 + 8.4 + 14 * 4 + 8 * 14) * 1e-6], rel=1e-3
    )


def test_a_link_that_was_measured_by_size_keeps_its_points() -> None:
    curve = "curve([1 kB, 10 us], [1 MB, 30 us], [1 GB, 20 ms])"
    more = f"fabric hgx_h100 {{ level network {{ bandwidth = {curve}, efficiency = 1 }} }}"
    study = job("16", tp=8, more=more)
    ring, own = (
        study.collective("all_gather", 1e6, "dp", name).seconds for name in ("ring", "ring_simple")
    )
    assert own == ring
    assert choose_pair(study, "all_gather", 1e6) == ("ring_simple", ring)


def spread(g: float, k: float, node: Any, network: Any, latency: Any = 14e-6) -> Group:
    """Return g ranks on each of k nodes, of so many bytes a second in a ring at each level."""
    near = AlphaBeta(name="node", latency=latency / 4, bandwidth=node)
    far = AlphaBeta(name="network", latency=latency, bandwidth=network / g)
    flat = AlphaBeta(name="network", latency=latency, bandwidth=np.minimum(node, network))
    return Group(name="g", ranks=g * k, shape=(g, k), links=(near, far), flat=flat)


@try_each("operation", OPERATIONS)
def test_a_faster_link_makes_no_call_longer(operation: str) -> None:
    """Fine sweeps of each bandwidth and latency; 1, 2, 3 and 64 nodes have rules of their own."""
    study, rates = job(), np.geomspace(1e9, 2e12, 1000)
    for k in (1.0, 2.0, 3.0, 64.0):
        for n in (1e4, 3e6, 1.6e8):
            for group in (
                spread(8.0, k, 369e9, rates),
                spread(8.0, k, rates, 360e9),
                spread(8.0, k, 369e9, 360e9, np.linspace(30e-6, 1e-6, 1000)),
            ):
                times = np.asarray(study.collective(operation, n, group).seconds)
                assert (np.diff(times) <= 1e-12).all(), (k, n)


@try_each("operation", OPERATIONS)
def test_arrays_are_their_elements_and_longer_messages_take_longer(operation: str) -> None:
    group = job("64", more="fabric hgx_h100 { level node { in_network = on } }")
    sizes = 2.0 ** np.arange(3.0, 34.0, 0.125)
    times = np.asarray(group.collective(operation, sizes, "dp").seconds)
    one = [group.collective(operation, float(n), "dp").seconds for n in sizes[::40]]
    assert times[::40] == pytest.approx(one)
    assert (np.diff(times) >= 0).all()


def test_a_report_names_the_pair_and_its_arithmetic() -> None:
    call = job("128").collective("all_reduce", 65536.0, "dp")
    assert "tree_ll" in call.formula.title
    assert "r alpha + w / B" in call.formula.text


@try_each(
    "model, layout, training",
    [
        (
            "mixtral_8x7b",
            "tp = 8, pp = 2, zero = 1, sequence_parallel = on",
            "sequence = 8192, micro_batch = 1, global_batch = 128 sequences, recompute = full",
        ),
        (
            "llama3_8b",
            "tp = 4, zero = 3",
            "sequence = 4096, global_batch = 256 sequences, recompute = selective",
        ),
    ],
)
@try_each("level, rates", [("network", "50, 2000, 15"), ("node", "400, 8000, 80")])
def test_a_faster_link_makes_no_step_longer(
    model: str, layout: str, training: str, level: str, rates: str
) -> None:
    """Fine sweeps over the jobs that once took longer on a faster network, by up to 5 %."""
    text = JOB.format(
        devices=256,
        tp=1,
        device="h100_sxm",
        fabric="hgx_h100",
        more=f"fabric hgx_h100 {{ level {level} {{ bandwidth = range({rates}) * 1 Gbps per_direction }} }}",
    )
    text = text.replace("tp = 1, zero = 1", layout).replace("llama3_8b", model)
    text = text.replace("sequence = 8192, micro_batch = 1, global_batch = 1024 sequences", training)
    (scenario,) = parcost.load_text(text)
    steps = np.concatenate(
        [np.ravel(result.figure("step_time")) for result in scenario.evaluate().results]
    )
    assert len(steps) > 90
    assert (np.diff(steps) <= 1e-9 * steps[1:]).all()


@try_each("operation, sends", [("all_reduce", 2), ("all_gather", 1)])
@try_each("tp", [1, 2, 4, 8])
def test_no_group_sends_more_over_its_ports_than_they_carry(
    operation: str, sends: int, tp: int
) -> None:
    """A node of k sends (k - 1) / k of n, twice in an all-reduce, over 8 / tp ports of 45 GB/s."""
    for devices in (16, 64, 512):
        study, k = job(str(devices), tp), devices / 8
        for n in (1e6, 1e10):
            _, seconds = choose_pair(study, operation, n)
            assert seconds >= sends * (k - 1) / k * n / (8 / tp * 45e9) * (1 - 1e-12)


@try_each(
    "devices, tp, group",
    [("8", 8, "tp"), ("128", 1, "dp"), ("16", 8, "dp"), ("[16, 64, 1024]", 8, "dp")],
)
def test_the_time_of_a_pair_is_that_of_its_phases(devices: str, tp: int, group: str) -> None:
    """Time is priced without making the phases, which are read for volumes: equal to the bit."""
    study = parcost.load_text(
        JOB.format(devices=devices, tp=tp, device="h100_sxm", fabric="hgx_h100", more="")
    )[0].studies()[0]
    ran = 0
    for operation in OPERATIONS:
        for pair in study.algorithms(operation):
            if not isinstance(pair, LibraryPair):
                continue
            for n in (0.0, 1e3, 1e9):
                seconds = pair.seconds(operation, n, study.group(group))
                phases = phase_seconds(
                    pair.phases(operation, n, study.group(group)), study.group(group)
                )
                runs = np.isfinite(seconds)
                assert np.array_equal(np.where(runs, seconds, 0.0), np.where(runs, phases, 0.0))
                ran += bool(np.any(runs & (seconds > 0)))
    assert ran >= 30
