"""Messages to distant ranks share links: no algorithm beats the ports and cuts of its fabric."""

from __future__ import annotations

import itertools
from collections import Counter
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parcost
from parcost import Study
from parcost.engine.study import SpecStudy
from parcost.numeric import INFINITY
from parcost.plugins.discovery import load
from parcost_plugins import topology
from parcost_plugins.collectives import (
    bruck,
    direct,
    double_tree,
    halving_doubling,
    hierarchical,
    leader,
    naive,
    pairwise,
    pipelined,
    recursive_doubling,
    ring,
    torus,
    tree,
    van_de_geijn,
)
from parcost_plugins.physics.exchange import torus_load
from parcost_plugins.vocabulary import Cluster, Fabric, Layout, Level

from ..rows import try_each

MODULES = (
    bruck, direct, double_tree, halving_doubling, hierarchical, leader, naive, pairwise,
    pipelined, recursive_doubling, ring, torus, tree, van_de_geijn,
)  # fmt: skip
PLUGINS = load(
    ("topology", topology),
    *((module.__name__, module) for module in MODULES),
    installed=False,
)


def study(*levels: dict[str, Any], devices: int, **layout: Any) -> Study:
    fabric = Fabric(levels=tuple(Level(label=f"l{i}", **level) for i, level in enumerate(levels)))
    cluster = Cluster(device=None, devices=float(devices), fabric=fabric)
    return SpecStudy("test", {Cluster: (cluster,), Layout: (Layout(**layout),)}, PLUGINS)


def figure(text: str, *names: str) -> list[float]:
    result = parcost.load_text(text)[0].evaluate().result
    return [float(result.figure(name)) for name in names]


# --- what the busiest link of a torus carries ---------------------------------------------------


def busiest_by_hand(K: int, stride: int, *, wrap: bool) -> float:
    """Send a block between all ranks *stride* places apart on a ring or line of *K*, each way."""
    loads: Counter[tuple[int, int]] = Counter()
    for first in range(stride):
        for source, target in itertools.permutations(range(first, K, stride), 2):
            ahead = (target - source) % K
            ways = [1 if target > source else -1]
            if wrap:
                ways = [1] if 2 * ahead < K else [-1] if 2 * ahead > K else [1, -1]
            for step in ways:
                at = source
                while at != target:
                    loads[at, step] += 2 // len(ways)
                    at = (at + step) % K
    return max(loads.values()) / 2


@try_each("wrap", [True, False])
@try_each("K, stride", [(2, 1), (3, 1), (4, 1), (5, 1), (8, 1), (8, 2), (16, 4), (16, 8), (12, 3)])
def test_the_load_of_a_torus_is_that_of_the_busiest_link(K: int, stride: int, wrap: bool) -> None:
    members = K // stride
    blocks = busiest_by_hand(K, stride, wrap=wrap)
    load = torus_load((K,), float(members), float(stride), wrap=wrap)
    if wrap or stride == 1:
        assert load == blocks / members
    else:  # the places before the first and behind the last member of a group are not passed
        assert load * (members - 1) / members <= blocks / members <= load


EXCHANGE = """
transfer t {{
  operation  = all_to_all
  size       = 1 GB total
  ranks      = 256
  kind       = torus
  dimensions = [16, 16]
  wrap       = {wrap}
  algorithm  = {algorithm}
  bandwidth  = 50 GB/s per_direction
  bisection  = {bisection} GB/s per_direction
}}
"""


@try_each("algorithm", ["auto", "pairwise", "hierarchical", "torus"])
@try_each("wrap, bisection, seconds", [("on", 1600, 0.04), ("off", 800, 0.08)])
def test_an_exchange_crosses_the_middle_of_its_torus(
    algorithm: str, wrap: str, bisection: int, seconds: float
) -> None:
    """Half of the ranks send half of a buffer: 128 x 0.5 GB over 32 links, or 16."""
    text = EXCHANGE.format(wrap=wrap, algorithm=algorithm, bisection=bisection)
    time, bound, efficiency = figure(text, "t.seconds", "t.lower_bound", "t.efficiency")
    assert time == pytest.approx(seconds)
    assert bound == pytest.approx(seconds)
    assert efficiency == pytest.approx(1.0)


STEP = """
use catalog.devices.tpu_v5e
use catalog.models.deepseek_v3
use catalog.precisions.bf16
fabric pod {{
  level pod {{
    kind       = torus
    dimensions = [16, 16]
    bandwidth  = 50 GB/s per_direction
    latency    = 0 us
  }}
}}
cluster {{ devices = 256 }}
layout {{ {layout}, zero = 1 }}
training {{ sequence = 4096, micro_batch = 1, global_batch = 256 sequences }}
{more}
"""


def lines(text: str, name: str) -> list[Any]:
    terms = parcost.load_text(text)[0].first.contributions("terms")
    return [term for _, term in terms if term.name == name]


@pytest.mark.parametrize("deduplicate", ["on", "off"])
def test_experts_on_a_torus_wait_for_its_middle(deduplicate: str) -> None:
    """4096 tokens go to 8 experts each, 7168 x 2 B a copy: 2 n / B on a torus of 16 x 16."""
    routing = f"routing {{ imbalance = 1, metadata = 0 B, deduplicate = {deduplicate} }}"
    text = STEP.format(layout="ep = 256", more=routing)
    combine = lines(text, "expert combine")
    assert combine[0].seconds == pytest.approx(2 * 4096 * 8 * 7168 * 2 / 50e9, rel=1e-6)


def test_attention_heads_that_change_places_share_the_links_of_a_line() -> None:
    """Eight ranks of a dimension of 16 are a line: its middle carries two buffers."""
    more = "context { algorithm = ulysses }"
    base = STEP.format(layout="cp = 8, ep = 1", more=more).replace("deepseek_v3", "llama3_8b")
    (term,) = [t for t in lines(base, "heads all-to-all") if t.pass_ == "F"]
    tokens, width = 4096 / 8, 4096 + 2 * 1024 + 4096  # of q, k and v, and of what comes out
    assert term.seconds == pytest.approx(2 * tokens * width * 2 / 50e9, rel=1e-6)


# --- rails --------------------------------------------------------------------------------------

NODE = {"size": 8.0, "bandwidth": 450e9, "latency": 0.0}


def rail(*, pxn: bool, ratio: float) -> dict[str, Any]:
    port = {"bandwidth": 50e9, "latency": 0.0}
    return {**port, "kind": "rail", "pxn": pxn, "oversubscription": ratio}


@try_each(
    "pxn, ratio, algorithm, seconds",
    [
        # 56/64 of a buffer leave the node, 7/8 of it for other rails, which leave their leaf
        (False, 8.0, "pairwise", 1e9 * 56 / 64 * 7 / 8 * 8 / 50e9),
        (False, 8.0, "hierarchical", 1e9 * 7 / 8 / 450e9 + 1e9 * 7 / 8 / 50e9),
        (False, 1.0, "pairwise", 1e9 * 56 / 64 / 50e9),
        (True, 8.0, "pairwise", 1e9 * 56 / 64 / 50e9),
    ],
)
def test_traffic_to_other_rails_leaves_its_leaf(
    pxn: bool, ratio: float, algorithm: str, seconds: float
) -> None:
    job = study(NODE, rail(pxn=pxn, ratio=ratio), devices=64, dp=64.0)
    found = job.collective("all_to_all", 1e9, "dp", algorithm).seconds
    assert found == pytest.approx(seconds)


def test_messages_to_other_rails_pass_the_node_first_with_pxn() -> None:
    """With a network that is as fast, 7/8 of a buffer pass the links of the node, not 7/64."""
    fast = {**rail(pxn=True, ratio=1.0), "bandwidth": 1e15}
    job = study(NODE, fast, devices=64, dp=64.0)
    found = job.collective("all_to_all", 1e9, "dp", "pairwise").seconds
    assert found == pytest.approx(1e9 * 7 / 8 / 450e9)


def test_ranks_of_the_same_place_stay_on_their_rail() -> None:
    job = study(NODE, rail(pxn=False, ratio=8.0), devices=64, tp=8.0, dp=8.0)
    found = job.collective("all_to_all", 1e9, "dp", "pairwise").seconds
    assert found == pytest.approx(1e9 * 7 / 8 / 50e9)


@pytest.mark.slow
@settings(max_examples=min(25, settings().max_examples))
@given(
    g=st.sampled_from([2, 4, 8]),
    k=st.integers(2, 16),
    ratio=st.floats(1.0, 16.0),
    alpha=st.just(0.0) | st.floats(1e-9, 1e-4),
)
def test_a_rail_exchange_is_priced_as_in_a_step(g: int, k: int, ratio: float, alpha: float) -> None:
    text = f"""
    rail_exchange x {{
      bytes_per_rank   = 64 MB
      per_node         = {g}
      nodes            = {k}
      inside           = 450 GB/s per_direction
      outside          = 50 GB/s per_direction
      message          = {alpha!r} s
      oversubscription = {ratio!r}
    }}
    """
    straight, levels = figure(text, "x.direct_seconds", "x.two_level_seconds")
    node = {"size": float(g), "bandwidth": 450e9, "latency": alpha}
    net = {**rail(pxn=False, ratio=ratio), "latency": alpha}
    job = study(node, net, devices=g * k, dp=float(g * k))
    assert straight == job.collective("all_to_all", 64e6, "dp", "pairwise").seconds
    assert levels == job.collective("all_to_all", 64e6, "dp", "hierarchical").seconds
    port = 64e6 * (g * k - g) / (g * k) / 50e9
    assert straight >= port * max(1.0, ratio * (g - 1) / g) * (1 - 1e-12)


# --- ports and cuts, on every kind of fabric ------------------------------------------------------

CUTTING = {
    "all_to_all": lambda m, P: m * (P - m) / P,
    "all_gather": lambda m, P: max(m, P - m) / P,
    "reduce_scatter": lambda m, P: max(m, P - m) / P,
    "scatter": lambda m, P: min(m, P - m) / P,
    "gather": lambda m, P: min(m, P - m) / P,
    "all_reduce": lambda *_: 1.0,
    "broadcast": lambda *_: 1.0,
    "reduce": lambda *_: 1.0,
}
dimensions = st.lists(st.integers(1, 5), min_size=1, max_size=3).filter(lambda d: prod(d) > 1)
rates = st.sampled_from([1e9, 50e9, 450e9])


def torus_cuts(sizes: list[int], rate: float, *, wrap: bool) -> list[tuple[float, float]]:
    """Return the places on one side of each cut through a torus, and the links across."""
    total = prod(sizes)
    return [
        (at * total / K, total / K * (2 if wrap else 1) * rate) for K in sizes for at in range(1, K)
    ]


@st.composite
def fabrics(draw: Any) -> tuple[list[dict[str, Any]], int, list[tuple[float, float]]]:
    """Return levels, devices, and cuts: ranks on one side and bytes a second across, each way."""
    near, far = draw(rates), draw(rates)
    inner = draw(st.sampled_from(["switch", "mesh", "torus"]))
    wrap = draw(st.booleans())
    sizes = draw(dimensions) if inner == "torus" else [draw(st.integers(1, 8))]
    g = prod(sizes)
    level: dict[str, Any] = {"bandwidth": near, "latency": 0.0, "kind": inner, "size": float(g)}
    if inner == "torus":
        level |= {"dimensions": tuple(sizes), "wrap": wrap}
        one = near * sum(2 if wrap else 1 + (K > 2) for K in sizes if K > 1)
        within = torus_cuts(sizes, near, wrap=wrap)
    else:
        one = near * (g - 1 if inner == "mesh" else 1)
        across = near * (g - 1) if inner == "mesh" else near
        within = [(m, m * (across - (m - 1) * near * (inner == "mesh"))) for m in range(1, g)]
    outer = draw(
        st.sampled_from(["none", "switch", "rail", "torus", "ethernet", "fat_tree", "dragonfly"])
    )
    if outer == "none":
        return [level], g, [(1.0, one), *within]
    ratio = draw(st.sampled_from([1.0, 2.0, 7.5]))
    beyond: dict[str, Any] = {"bandwidth": far, "latency": 0.0, "kind": outer}
    if outer == "torus":
        places = draw(dimensions)
        k = prod(places)
        beyond |= {"dimensions": tuple(places), "wrap": wrap}
        between = [(m * g, g * rate) for m, rate in torus_cuts(places, far, wrap=wrap)]
        ports = far * sum(2 if wrap else 1 + (K > 2) for K in places if K > 1)
    else:
        k, ports = draw(st.integers(2, 6)), far
        beyond |= {"pxn": draw(st.booleans())} if outer == "rail" else {}
        beyond["oversubscription"] = ratio
        if outer != "rail":
            ports = far / ratio
        between = [(m * g, m * g * ports) for m in range(1, k)]
    if outer == "dragonfly":  # a group of devices shares its links to the other groups
        links = draw(st.integers(1, 9))
        ports = links * far / ratio
        beyond["ports"] = float(links)
        between = [(m * g, m * ports) for m in range(1, k)]
    leaving = [(m, rate + m * ports) for m, rate in within]
    return [level, beyond], g * k, [(1.0, one + ports), *leaving, *between]


@pytest.mark.slow
@settings(max_examples=min(150, settings().max_examples), deadline=None)
@given(fabric=fabrics(), operation=st.sampled_from(sorted(CUTTING)))
def test_no_algorithm_beats_the_ports_and_the_cuts_of_its_fabric(
    fabric: tuple[list[dict[str, Any]], int, list[tuple[float, float]]], operation: str
) -> None:
    levels, P, cuts = fabric
    job = study(*levels, devices=P, dp=float(P))
    n = 1e9
    crossing = CUTTING[operation]
    bound = max((crossing(m, P) * n / rate for m, rate in cuts if 0 < m < P), default=0.0)
    for algorithm in job.algorithms(operation):
        seconds = job.collective(operation, n, "dp", algorithm.name).seconds
        assert seconds == INFINITY or seconds >= bound * (1 - 1e-9), algorithm.name


@pytest.mark.slow
@settings(max_examples=min(100, settings().max_examples), deadline=None)
@given(
    sizes=st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3),
    wrap=st.booleans(),
    data=st.data(),
)
def test_groups_side_by_side_share_the_cuts_of_a_torus(
    sizes: list[int], wrap: bool, data: st.DataObject
) -> None:
    """All groups exchange at once: together they cross every cut."""
    P = prod(sizes)
    powers = [2**i for i in range(P.bit_length()) if P % 2**i == 0]
    g = data.draw(st.sampled_from([p for p in powers if p > 1]))
    stride = data.draw(st.sampled_from([p for p in powers if p * g <= P]))
    level = {
        "bandwidth": 1.0,
        "latency": 0.0,
        "kind": "torus",
        "dimensions": tuple(sizes),
        "wrap": wrap,
    }
    layout = {"tp": float(stride), "dp": float(g), "pp": P // (g * stride)}
    job = study(level, devices=P, **layout)
    place = list(itertools.product(*(range(K) for K in reversed(sizes))))
    bound = 0.0
    for axis, K in enumerate(reversed(sizes)):
        cut = sum(
            place[a][axis] < K // 2 <= place[b][axis]
            for start in range(P)
            if start // stride % g == 0
            for a, b in itertools.permutations(range(start, start + g * stride, stride), 2)
        )
        links = P / K * (2 if wrap else 1)
        bound = max(bound, cut / g / links)
    for name in ("pairwise", "hierarchical", "bruck"):
        seconds = job.collective("all_to_all", 1.0, "dp", name).seconds
        assert seconds >= bound * (1 - 1e-9)


# --- trees --------------------------------------------------------------------------------------


def test_double_trees_leave_a_node_through_all_of_its_ports() -> None:
    """1 GiB over two nodes of eight with 50 GB/s each: twice n / 400 GB/s, and the pieces."""
    job = study({**NODE, "latency": 3.4e-6}, {"bandwidth": 50e9, "latency": 14e-6},
                devices=16, dp=16.0)  # fmt: skip
    n, start = float(2**30), 4 * 14e-6
    once = n / 400e9 + 2 * start + (8 * start * n / 400e9) ** 0.5
    found = job.collective("all_reduce", n, "dp", "double_tree").seconds
    assert found == pytest.approx(2 * once)
    around = job.collective("all_reduce", n, "dp", "ring").seconds
    assert around < found < 1.5 * around


@given(g=st.sampled_from([1, 2, 4, 8]), k=st.integers(2, 64), stride=st.sampled_from([1, 2, 8]))
def test_of_long_messages_double_trees_move_as_many_bytes_as_a_ring(
    g: int, k: int, stride: int
) -> None:
    node = {**NODE, "size": float(g * stride)}
    port = {"bandwidth": 50e9, "latency": 1e-6}
    P = g * k
    job = study(node, port, devices=P * stride, tp=float(stride), dp=float(P))
    trees = job.collective("all_reduce", 1e13, "dp", "double_tree").seconds
    around = job.collective("all_reduce", 1e13, "dp", "ring").seconds
    assert trees == pytest.approx(around * P / (P - 1), rel=0.05)
