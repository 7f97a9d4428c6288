"""The groups of a layout, against the ranks that coordinates give, whichever the order."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import parcost
from parcost import Group, Study
from parcost.engine.rules import diagnose
from parcost.engine.study import SpecStudy
from parcost.plugins.discovery import load
from parcost_plugins import topology
from parcost_plugins.topology import checks
from parcost_plugins.topology.ranks import Ranks
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster, Fabric, Layout, Level, LocalUpdates, Sharding

from ..rows import try_each

PLUGINS = load(("topology", topology), installed=False)
ORDERS = ["-".join(names) for names in itertools.permutations(("tp", "cp", "dp", "pp"))]


def study(
    sizes: dict[str, int],
    order: str,
    capacities: list[int],
    *,
    ep: int = 1,
    etp: int = 1,
    shard: int | None = None,
    workers: int = 1,
) -> Study:
    """Return a study of a layout on levels whose units hold so many devices."""
    inner = [
        Level(label=f"l{i}", size=cap / below, bandwidth=1e9, latency=1e-6)
        for i, (below, cap) in enumerate(itertools.pairwise([1, *capacities]))
    ]
    outer = Level(label="net", bandwidth=1e9, latency=1e-6)
    devices = sizes["tp"] * sizes["cp"] * sizes["dp"] * sizes["pp"]
    cluster = Cluster(device=None, devices=float(devices), fabric=Fabric(levels=(*inner, outer)))
    floats = {name: float(sizes[name]) for name in ("tp", "cp", "dp")}
    layout = Layout(**floats, pp=sizes["pp"], order=order, ep=float(ep), etp=float(etp))
    blocks: dict[type, tuple[Any, ...]] = {Cluster: (cluster,), Layout: (layout,)}
    if shard is not None:
        blocks[Sharding] = (Sharding(shard=float(shard)),)
        blocks[LocalUpdates] = (LocalUpdates(workers=float(workers), wire=2.0, outer_state=8.0),)
    return SpecStudy("test", blocks, PLUGINS)


def coordinates(sizes: dict[str, int], order: str) -> list[dict[str, int]]:
    """Return the coordinates of every rank; the first name of *order* varies fastest."""
    names = order.split("-")
    slow_first = itertools.product(*(range(sizes[name]) for name in reversed(names)))
    return [dict(zip(reversed(names), values, strict=True)) for values in slow_first]


def group_ranks(every: list[dict[str, int]], names: tuple[str, ...]) -> list[list[int]]:
    """Return the ranks that differ in the coordinates *names* alone."""
    groups = defaultdict(list)
    for rank, own in enumerate(every):
        groups[tuple(v for name, v in own.items() if name not in names)].append(rank)
    return sorted(groups.values())


def looked_at(groups: list[list[int]], capacities: list[int], count: int) -> list[int]:
    """Return the most units of the level below that a group has within a unit, by level."""
    most = []
    for below, cap in itertools.pairwise([1, *capacities, count * max(capacities)]):
        counts = []
        for group in groups:
            units = defaultdict(set)
            for rank in group:
                units[rank // cap].add(rank // below)
            counts += [len(held) for held in units.values()]
        most.append(max(counts))
    return most


SIZES = st.fixed_dictionaries({n: st.sampled_from([1, 2, 3, 4]) for n in ("tp", "cp", "dp", "pp")})
CAPACITIES = st.sampled_from([[8], [4], [6], [4, 16], [2, 8], [72]])


@settings(deadline=None)
@given(SIZES, st.sampled_from(ORDERS), CAPACITIES)
def test_groups_have_the_members_and_the_shape_that_their_coordinates_give(
    sizes: dict[str, int], order: str, capacities: list[int]
) -> None:
    given_ = study(sizes, order, capacities)
    ranks, every = Ranks.from_study(given_), coordinates(sizes, order)
    for name, along in {
        **{n: (n,) for n in ("tp", "cp", "dp", "pp")},
        "dp_cp": ("dp", "cp"),
        "shard": ("dp", "cp"),
    }.items():
        expected = group_ranks(every, along)
        assert sorted(ranks.groups[name].tolist()) == expected
        group = given_.group(name)
        assert group.ranks == len(expected[0])
        assert list(group.shape) == looked_at(expected, capacities, ranks.count)


@settings(deadline=None)
@given(
    SIZES,
    st.sampled_from(["tp-cp-dp-pp", "cp-tp-dp-pp", "tp-cp-ep-dp-pp", "tp-dp-ep-cp-pp"]),
    st.data(),
)
def test_experts_are_cut_over_the_ranks_of_a_stage(
    sizes: dict[str, int], order: str, data: st.DataObject
) -> None:
    """etp x ep x edp ranks make a stage, whichever way the dense part is cut."""
    assume(sizes["tp"] * sizes["cp"] * sizes["dp"] > 1)
    stage = sizes["tp"] * sizes["cp"] * sizes["dp"]
    ep = data.draw(st.sampled_from([n for n in range(1, stage + 1) if stage % n == 0]))
    left = stage // ep
    etp = data.draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0]))
    assume(ep * etp > 1)
    given_ = study(sizes, order, [8], ep=ep, etp=etp)
    experts = {"etp": etp, "ep": ep, "edp": stage // (ep * etp), "pp": sizes["pp"]}
    named = order.split("-")
    first = (
        "etp-edp-ep-pp"
        if "ep" in named and named.index("dp") < named.index("ep")
        else "etp-ep-edp-pp"
    )
    every = coordinates(experts, first)
    ranks = Ranks.from_study(given_)
    for name in ("etp", "ep", "edp"):
        expected = group_ranks(every, (name,))
        assert sorted(ranks.groups[name].tolist()) == expected
        assert given_.group(name).ranks == experts[name]
        assert list(given_.group(name).shape) == looked_at(expected, [8], ranks.count)


@try_each("order", ["tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-cp-pp"])
@try_each("shard, workers", [(2, 1), (4, 1), (8, 1), (1, 1), (2, 2), (4, 2)])
def test_shards_replicas_and_workers_are_the_ranks_of_the_same_parameters(
    order: str, shard: int, workers: int
) -> None:
    """Ranks of one shard are the nearest; those of one worker hold whole replicas."""
    sizes = {"tp": 2, "cp": 2, "dp": 4, "pp": 2}
    given_ = study(sizes, order, [8], shard=shard, workers=workers)
    ranks = Ranks.from_study(given_)
    for rank in range(ranks.count):
        alike = set(ranks.members("dp_cp", rank))
        own = set(ranks.members("shard", rank))
        others = set(ranks.members("replicate", rank))
        apart = set(ranks.members("workers", rank))
        assert len(own) == shard
        assert len(apart) == workers
        assert len(own) * len(others) * len(apart) == len(alike) == 8
        assert own | others | apart <= alike
        assert own & others == own & apart == others & apart == {rank}


def test_an_order_that_leaves_out_degrees_of_one_places_the_others_as_before() -> None:
    sizes = {"tp": 2, "cp": 1, "dp": 8, "pp": 2}
    for name in ("tp", "dp", "pp", "job"):
        old = study(sizes, "tp-dp-pp", [8]).group(name)
        new = study(sizes, "tp-cp-dp-pp", [8]).group(name)
        assert (old.shape, old.flat.bandwidth) == (new.shape, new.flat.bandwidth)


def test_dense_studies_place_no_groups_of_experts() -> None:
    placed = study({"tp": 2, "cp": 1, "dp": 2, "pp": 1}, "tp-cp-dp-pp", [8])
    names = [group.name for _, group in placed.contributions("groups")]
    assert names == ["tp", "cp", "pp", "dp", "dp_cp", "workers", "shard", "replicate", "job"]


def test_ring_of_two_per_node_shares_the_ports_of_the_node() -> None:
    """tp 2, dp 8 on nodes of eight: four of dp in a node, four ports of 50 GB/s each (EX-B1)."""
    text = """
    use catalog.devices.h100_sxm
    use catalog.models.llama32_1b
    use catalog.precisions.bf16
    fabric f {
      level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 0 s }
      level net { bandwidth = 50 GB/s per_direction, latency = 0 s }
    }
    cluster { devices = 16 }
    layout { tp = 2 }
    training { sequence = 8192, global_batch = 16 sequences }
    """
    (scenario,) = parcost.load_text(text)
    (bound,) = scenario.studies()
    group = bound.group("dp")
    assert group.shape == (4.0, 2.0)
    call = bound.collective("all_reduce", 1e9, group, "ring")
    assert call.seconds == pytest.approx(8.75e-3)


def test_eight_ranks_of_a_node_each_have_their_own_port() -> None:
    sizes = {"tp": 8, "cp": 1, "dp": 4, "pp": 1}
    placed = study(sizes, "tp-cp-dp-pp", [8]).group("dp")
    assert placed.shape == (1.0, 4.0)
    assert placed.flat.bandwidth == 1e9


def test_context_beside_tensor_leaves_a_node_of_8_and_stays_in_a_domain_of_72() -> None:
    """tp 8 x cp 2 = 16 devices do not fit into eight; document 003 has them share a node."""
    sizes = {"tp": 8, "cp": 2, "dp": 4, "pp": 1}
    assert study(sizes, "tp-cp-dp-pp", [8]).group("cp").shape == (1.0, 2.0)
    assert study(sizes, "tp-cp-dp-pp", [72]).group("cp").shape == (2.0, 1.0)


def test_every_link_says_which_level_it_belongs_to() -> None:
    placed = study({"tp": 4, "cp": 1, "dp": 8, "pp": 1}, "tp-cp-dp-pp", [8])
    levels = [tier.level for tier in tiers(placed[Cluster])]
    group: Group = placed.group("dp")
    assert [link.level for link in group.links] == levels  # type: ignore[attr-defined]
    assert [link.level for link in group.pairs] == levels  # type: ignore[attr-defined]
    for link in (group.flat, group.pair, group.hop):
        assert link.level is levels[1]  # type: ignore[attr-defined]


def test_summing_takes_time_where_the_device_says_so() -> None:
    """A ring over eight sums 7/8 of a buffer: 1 GB at 100 GB/s is 8.75 ms more."""
    text = """
    use catalog.devices.h100_sxm
    use catalog.fabrics.hgx_h100
    use catalog.models.llama32_1b
    use catalog.precisions.bf16
    cluster { devices = 8 }
    layout { zero = 1 }
    training { sequence = 8192, global_batch = 8 sequences }
    """
    (plain,) = parcost.load_text(text)[0].studies()
    slow = "device mine extends h100_sxm { reduction_bandwidth = 100 GB/s }\n"
    (summing,) = parcost.load_text(
        slow + text.replace("devices = 8", "devices = 8, device = mine")
    )[0].studies()
    assert plain.group("dp").reduction == 0.0
    assert summing.group("dp").reduction == pytest.approx(1e-11)
    seconds = [s.collective("all_reduce", 1e9, "dp", "ring").seconds for s in (plain, summing)]
    assert seconds[1] - seconds[0] == pytest.approx(8.75e-3)


@pytest.mark.parametrize("order, fine", [("tp-cp-dp-pp", True), ("tp-pp-cp-dp", False)])
def test_the_stages_of_experts_are_those_of_the_dense_part(order: str, fine: bool) -> None:
    """pp after tp 2 stands 2 ranks apart; after etp 1 the experts' would stand 1 apart."""
    given_ = study({"tp": 2, "cp": 1, "dp": 4, "pp": 2}, order, [8], ep=4)
    found = {c.id: c for c in checks._same_stages(given_)}["order-of-experts"]
    assert found.holds is fine
    if not fine:
        said = diagnose(found, given_)
        assert said.message == (
            "the order `tp-pp-cp-dp` gives each pipeline stage two sets of ranks: the next stage "
            "is 2 ranks away for dense layers, and 1 for experts"
        )
        assert said.help == "place `pp` last, so that both distances are equal"


def test_stages_are_compared_where_there_are_several_and_experts() -> None:
    order = "tp-pp-cp-dp"
    alone = study({"tp": 2, "cp": 1, "dp": 8, "pp": 1}, order, [8], ep=4)
    dense = study({"tp": 2, "cp": 1, "dp": 4, "pp": 2}, order, [8])
    assert not list(checks._same_stages(alone))
    assert not list(checks._same_stages(dense))


FIGURES = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric f {
  level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 0 s }
  level net { bandwidth = 50 GB/s per_direction, latency = 0 s, ports = 4 }
}
cluster { devices = 32 }
layout { tp = 8, pp = 2 }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""


@pytest.mark.slow
def test_figures_name_what_a_node_and_its_ports_carry() -> None:
    """Four ports of 50 GB/s for eight devices; document 002's nodes have eight of them."""
    result = parcost.load_text(FIGURES)[0].evaluate().result
    values = {
        "port_bandwidth": 50e9,
        "node_bandwidth": 200e9,
        "node_bandwidth_bidirectional": 400e9,
        "device_share": 25e9,
        "device_bandwidth": 450e9,
        "node_ratio": 18.0,
        "tp_bandwidth": 450e9,
        "tp_units": 1.0,
        "pp_units": 2.0,
        "dp_ranks": 2.0,
        "dp_bandwidth": 25e9,
    }
    for name, value in values.items():
        assert result.figure(name) == pytest.approx(value), name


def test_a_boundary_of_stages_needs_its_messages_spread_over_the_step() -> None:
    """Document 003: 64 messages of 67 MB in 2.4 s are 1.8 GB/s, here of one rank of eight."""
    result = parcost.load_text(FIGURES)[0].evaluate().result
    assert result.outcome is not None
    sent = 16 * 8192 * 4096 * 2  # micro-batches of one sequence, whole on every rank of tp
    needed = sent / result.outcome.step_seconds
    assert result.figure("pp_sustained") == pytest.approx(needed)
    assert result.figure("pp_headroom") == pytest.approx(25e9 / needed)


def test_a_torus_is_no_node_with_ports() -> None:
    text = """
use catalog.devices.tpu_v5p
use catalog.fabrics.tpu_v5p_pod
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
training { sequence = 8192, global_batch = 8 sequences }
"""
    result = parcost.load_text(text)[0].evaluate().result
    names = {figure.name for _, figure in result.details}
    assert "device_bandwidth" in names
    assert not names & {"port_bandwidth", "node_bandwidth", "device_share", "node_ratio"}
