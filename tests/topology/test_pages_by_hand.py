"""Pages, figures and rules of a placement, against what a pencil says of it."""

from __future__ import annotations

from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Check, Edge, Figure, Formula, Section, SpecError, Study
from parcost.engine.rules import diagnose
from parcost.numeric import INFINITY
from parcost_plugins import topology
from parcost_plugins.topology import details, views
from parcost_plugins.topology.decomposition import Decomposition, has_experts, join
from parcost_plugins.topology.placement import _share
from parcost_plugins.topology.tiers import _routes, switches, tiers
from parcost_plugins.vocabulary import Cluster, Level

from ..rows import try_each

JOB = """
use catalog.devices.h100_sxm
use catalog.models.llama3_70b
use catalog.precisions.bf16
fabric f {{
  level node {{ size = 8, bandwidth = 400 GB/s per_direction, latency = 3 us, efficiency = 0.75 }}
  level rack {{ size = 4, bandwidth = 50 GB/s per_direction, latency = 10 us, ports = 4 }}
  level pod  {{ bandwidth = 25 GB/s per_direction, latency = 20 us, {pod} }}
}}
cluster {{ devices = {devices}, fabric = f }}
layout {{ {layout} }}
training {{ sequence = 8192, global_batch = 32 sequences }}
{more}
"""


def study(
    layout: str = "tp = 8, pp = 4", devices: Any = 64, pod: str = "", more: str = ""
) -> Study:
    text = JOB.format(layout=layout, devices=devices, pod=pod, more=more)
    return parcost.load_text(text)[0].studies()[0]


def page(name: str, given: Study, only: Any = ()) -> list[Section]:
    return list(views.sections(given, name, only))


# --- pages ----------------------------------------------------------------------------------------------


def test_the_levels_are_drawn_from_the_outermost_in() -> None:
    _, fabric = page("stages", study())
    assert fabric.rows == [
        ("pod", 2, "rack", "switch", 32, (25e9, "B/s"), (20 * 1e-6, "s"), ""),
        ("└─ rack", 4, "node", "switch", 4, (50e9, "B/s"), (10 * 1e-6, "s"), ""),
        ("   └─ node", 8, "device", "switch", 1, (300e9, "B/s"), (3 * 1e-6, "s"), ""),
    ]
    _, fabric = page("stages", study(pod="kind = torus, dimensions = [2, 3]"))
    assert fabric.rows[0][1:4] == (6, "rack", "torus 2 x 3")


@pytest.mark.parametrize(
    "layout, notes",
    [
        # stages stand 16 ranks apart: nodes 0, 2, 4, 6 and racks 0, 0, 1, 1; or 8 apart
        (
            "tp = 8, pp = 4",
            [
                "3 of 3 boundaries between stages lead out of a `node`",
                (
                    "1 of 3 boundaries between stages lead out of a `rack`; "
                    'only 0 with `order = "tp-cp-pp-dp"`, which moves replicas further apart'
                ),
            ],
        ),
        # 4 apart: nodes 0, 0, 1, 1, 2, 2, 3, 3, as near as they can be
        (
            'tp = 2, cp = 2, pp = 8, order = "tp-cp-pp-dp"',
            [
                "3 of 7 boundaries between stages lead out of a `node`",
                "0 of 7 boundaries between stages lead out of a `rack`",
            ],
        ),
        ("tp = 8", []),
    ],
)
def test_boundaries_that_leave_a_unit_are_counted(layout: str, notes: list[str]) -> None:
    stages, _ = page("stages", study(layout))
    assert [note for note in stages.notes if "boundar" in note] == notes


def test_a_stage_says_what_it_holds_where_it_is_and_where_it_sends() -> None:
    stages, _ = page("stages", study())
    assert stages.columns == (
        "stage", "layers", "other parts", "ranks", "ranks of replica 0", "node", "rack", "next stage over",
    )  # fmt: skip
    assert stages.rows == [
        (0, list(range(20)), "embedding", 16, list(range(8)), [0], [0], "rack"),
        (1, list(range(20, 40)), "-", 16, list(range(16, 24)), [2], [0], "pod"),
        (2, list(range(40, 60)), "-", 16, list(range(32, 40)), [4], [1], "rack"),
        (3, list(range(60, 80)), "head", 16, list(range(48, 56)), [6], [1], "-"),
    ]
    assert page("stages", study(), [3])[0].rows == stages.rows[3:]
    assert page("other", study()) == []


@pytest.mark.parametrize(
    "name, only, said",
    [
        ("ranks", [0, 63], None),
        ("ranks", [64], "there is no rank 64: they are 0 to 63"),
        ("ranks", [5, -1], "there is no rank -1: they are 0 to 63"),
        ("stages", [4], "there is no stage 4: they are 0 to 3"),
    ],
)
def test_only_ranks_and_stages_that_there_are_can_be_picked(
    name: str, only: list[int], said: str | None
) -> None:
    if said is None:
        assert [row[0] for row in page(name, study(), only)[0].rows] == only
        return
    with pytest.raises(SpecError) as caught:
        page(name, study(), only)
    assert [found.message for found in caught.value.diagnostics] == [said]


def test_pages_list_a_million_ranks_and_ten_million_members_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here 64 ranks, which list eight members of tp, two of dp and four of pp each."""
    given = study()
    listed = 64 * (8 + 4 + 2)
    monkeypatch.setattr(views, "_MOST_RANKS", 64)
    monkeypatch.setattr(views, "_MOST_LISTED", listed)
    assert len(page("ranks", given)[0].rows) == 64
    monkeypatch.setattr(views, "_MOST_LISTED", listed - 1)
    with pytest.raises(SpecError, match=f"the groups of 64 ranks list {listed} members"):
        page("ranks", given)
    assert len(page("ranks", given, [0])[0].rows) == 1
    monkeypatch.setattr(views, "_MOST_RANKS", 63)
    with pytest.raises(SpecError, match="64 ranks are too many to list"):
        page("stages", given)
    monkeypatch.undo()
    assert (views._MOST_RANKS, views._MOST_LISTED) == (10**6, 10**7)


# --- figures --------------------------------------------------------------------------------------------


def machine(given: Study) -> dict[str, float]:
    return {f.name: f.value for f in details._machine(given)}  # type: ignore[misc]


def test_a_node_has_what_its_devices_and_ports_carry() -> None:
    """Eight devices of 300 GB/s behind four ports of 50."""
    assert machine(study()) == pytest.approx(
        {
            "device_bandwidth": 300e9,
            "port_bandwidth": 50e9,
            "node_bandwidth": 200e9,
            "node_bandwidth_bidirectional": 400e9,
            "device_share": 25e9,
            "node_ratio": 12,
        }
    )


@pytest.mark.slow
def test_a_device_with_two_ports_in_its_node_has_both_of_them() -> None:
    text = JOB.format(layout="tp = 8", devices=64, pod="", more="")
    text = text.replace("latency = 3 us", "latency = 3 us, ports = 2")
    found = machine(parcost.load_text(text)[0].studies()[0])
    assert found["device_bandwidth"] == pytest.approx(600e9)
    assert found["node_ratio"] == pytest.approx(24)


@pytest.mark.parametrize("bytes_, needed, headroom", [(0.0, 0, INFINITY), (5.0, 0.3, 25e9 / 0.3)])
def test_a_boundary_needs_what_all_parts_of_all_micro_batches_send(
    bytes_: float, needed: float, headroom: float
) -> None:
    """Two parts of three micro-batches in 100 s, over a rank's share of the pod's ports."""
    hop = Edge(name="hop", seconds=0.0, formula=Formula(text="0"), bytes_=bytes_)
    outcome: Any = SimpleNamespace(
        pipeline=SimpleNamespace(micro_batches=3.0, chunks=2.0),
        ledger=[SimpleNamespace(term=None), SimpleNamespace(term=hop)],
        step_seconds=100.0,
    )
    given = study("tp = 32, pp = 2")
    found = {f.name: f.value for f in details._boundary(given, outcome)}
    assert found == pytest.approx({"pp_sustained": needed, "pp_headroom": headroom})
    outcome.ledger = []
    assert not list(details._boundary(given, outcome))


RAILS = """
use catalog.devices.h100_sxm
use catalog.models.llama3_70b
use catalog.precisions.bf16
fabric f {{
  level node {{ size = 8, bandwidth = 400 GB/s per_direction, latency = 3 us }}
  level rail {{ bandwidth = 50 GB/s per_direction, latency = 10 us, kind = rail, pxn = {pxn} }}
}}
cluster {{ devices = 64, fabric = f }}
layout {{ tp = {tp}, zero = 1 }}
training {{ sequence = 8192, global_batch = 64 sequences }}
"""


@try_each(
    "tp, pxn, rows",
    [
        # dp has 8 / tp places in a node, each on a rail of its own, and other places in the
        # next node where tp does not divide eight
        (8, "off", [("dp", "rail", (1.0, "%"), (1.0, "%"), "straight")]),
        (2, "off", [("dp", "rail", (1.0, "%"), (0.25, "%"), "straight")]),
        (2, "on", [("dp", "rail", (1.0, "%"), (1.0, "%"), "inside the node first (PXN)")]),
        (64, "off", [("tp", "rail", (1.0, "%"), (0.125, "%"), "straight")]),
        (
            3,
            "off",
            [
                ("tp", "rail", (1.0, "%"), (1 / 3, "%"), "straight"),
                ("dp", "rail", (0.0, "%"), (0.0, "%"), "straight"),
            ],
        ),
    ],
)
def test_traffic_that_stays_on_a_rail_is_listed(tp: int, pxn: str, rows: list[Any]) -> None:
    (given,) = parcost.load_text(RAILS.format(tp=tp, pxn=pxn))[0].studies()
    (section,) = details.sections(given)
    assert section.rows == rows
    named = {f"{name}_on_{level}": share[0] for name, level, _, share, _ in rows}
    found: dict[str, Any] = {}
    for _, group in given.contributions("groups"):
        found |= {f.name: (f.value, f.formula.text[:5]) for f in details._rail(group)}
    for name, share in named.items():
        text = "1, as" if pxn == "on" else "a / u"
        assert found[name] == (share, text)
    assert not list(details.sections(study()))


# --- rules ----------------------------------------------------------------------------------------------


def failed_rules(given: Study) -> dict[str, Check]:
    found = (check for _, check in given.contributions("checks") if isinstance(check, Check))
    return {check.id: check for check in found if check.holds is False}


@try_each(
    "pod, id",
    [
        # 64 devices as two racks of 32: with their 32 ports each, 64 ends
        ("kind = fat_tree, radix = 7", None),
        ("kind = fat_tree, radix = 6", "fat-tree-full"),
        ("kind = rail, radix = 2", None),
        ("kind = dragonfly, routing = minimal, ports = 1", None),
        ("kind = torus, dimensions = [2, 1]", None),
        ("kind = torus, dimensions = [2, 1], size = 2", None),
        ("kind = torus, dimensions = [2, 1], size = 3", "torus-size"),
    ],
)
def test_a_kind_is_what_its_level_can_be(pod: str, id: str | None) -> None:
    found = failed_rules(study(pod=pod)).keys() & {
        "fat-tree-full", "dragonfly-links", "torus-size", "torus-dimensions",
    }  # fmt: skip
    assert found == ({id} if id else set())


def test_switches_that_a_tree_needs_have_the_next_even_number_of_ports() -> None:
    """128 ends want a cube of 512, which is that of eight; 64 want 6.35."""
    for devices, ends, needed in ((128, 128, 8), (64, 64, 8)):
        given = study("tp = 8", devices, pod="kind = fat_tree, radix = 4")
        inputs = failed_rules(given)["fat-tree-full"].inputs
        assert (inputs["ends"], inputs["most"], inputs["needed"]) == (ends, 16, needed)


def test_a_dragonfly_reaches_each_other_group_by_a_link_where_routes_are_straight() -> None:
    for ports, wrong in ((3, False), (2, True)):
        pod = f"kind = dragonfly, routing = minimal, ports = {ports}"
        given = study(devices=128, pod=pod)
        assert ("dragonfly-links" in failed_rules(given)) is wrong
        adaptive = study(devices=128, pod=pod.replace("minimal", "adaptive"))
        assert "dragonfly-links" not in failed_rules(adaptive)
    said = diagnose(failed_rules(given)["dragonfly-links"], given)
    assert said.message == (
        "minimal routing needs a global link to every other group: a group of level `pod` has 2, "
        "and there are 3 other groups"
    )


def test_the_inputs_of_a_figure_are_in_its_formula() -> None:
    given = study()
    figures: list[Figure] = list(details._machine(given))
    of = {f.name: {k: v for k, (v, _) in f.formula.inputs.items()} for f in figures}
    assert of["device_bandwidth"] == {"B": 300e9, "ports": 1}
    assert of["node_bandwidth"] == {"B_port": 50e9, "k": 0.5, "devices": 8}


def plausibility_rules(given: Study) -> dict[str, tuple[str, str | None]]:
    """Return what is warned of, by the attribute and what is said of it."""
    found = failed_rules(given)
    said = [diagnose(c, given) for i, c in found.items() if i.startswith("implausible")]
    return {d.id: (d.message, d.help) for d in said}


def test_implausible_links_have_a_hint_with_the_intended_unit() -> None:
    """800 GB/s of a port, of which two thirds are achieved by flows that collide: as written."""
    fast = "bandwidth = 800 GB/s per_direction, latency = 20 s, efficiency = 0.5, collisions = 1.5"
    pod = f"size = 2 }}\n  level wide {{ {fast}"
    known = "plausible { network_bandwidth = 100 GB/s per_direction, latency = 0.1 s }"
    assert plausibility_rules(study(pod=pod, more=known)) == {
        "implausible-bandwidth": (
            (
                "level `wide` has 800 GB/s per device, and the fastest known link of its kind has "
                "100 GB/s"
            ),
            "for 800 gigabits per second write `800 Gbps per_direction`",
        ),
        "implausible-latency": (
            (
                "a message on level `wide` takes 20 s to start; in 0.1 s light goes half round the earth"
            ),
            "for 20 microseconds write `20 us`",
        ),
    }


@pytest.mark.slow
def test_a_share_of_a_fast_port_is_printed_as_a_share() -> None:
    """Four ports of 250 GB/s for 32 devices are 31.25 GB/s of each; 250 GB/s are written."""
    pod = "ports = 4, efficiency = 0.5, collisions = 1.25"
    fast = study(pod=pod, more="plausible { network_bandwidth = 20 GB/s per_direction }")
    assert "implausible-bandwidth" not in failed_rules(fast)
    text = JOB.format(devices=64, layout="tp = 8", pod=pod, more="plausible { MORE }")
    text = text.replace("25 GB/s", "250 GB/s").replace(
        "MORE", "network_bandwidth = 31 GB/s per_direction, latency = 19 us"
    )
    found = failed_rules(parcost.load_text(text)[0].studies()[0])
    for id, said in {
        "implausible-bandwidth": {"rate": 31.25, "most": 31, "written": 250},
        "implausible-latency": {"latency": 20e-6, "most": 19e-6},
    }.items():
        inputs = found[id].inputs
        assert {name: inputs[name] for name in said} == pytest.approx(said, rel=1e-12)
        assert inputs["level"] == "pod"


def test_a_device_with_two_ports_is_held_to_what_one_carries() -> None:
    limit = "plausible { network_bandwidth = 30 GB/s per_direction }"
    assert "implausible-bandwidth" not in failed_rules(study(pod="ports = 64", more=limit))


def test_links_as_fast_as_the_fastest_known_are_plausible() -> None:
    """A network of 25 GB/s; inner levels of 400 and of 4 x 50 / 8 GB/s, where latency is 20 us."""

    def limits(device: int, network: int, latency: float) -> str:
        return (
            f"plausible {{ device_bandwidth = {device} GB/s per_direction, "
            f"network_bandwidth = {network} GB/s per_direction, latency = {latency} us }}"
        )

    assert plausibility_rules(study(more=limits(400, 25, 20))) == {}
    assert set(plausibility_rules(study(more=limits(399, 25, 20)))) == {"implausible-bandwidth"}
    assert set(plausibility_rules(study(more=limits(400, 24, 20)))) == {"implausible-bandwidth"}
    assert set(plausibility_rules(study(more=limits(400, 25, 19)))) == {"implausible-latency"}


def test_all_ranks_together_are_the_job() -> None:
    job = study().group("job")
    assert (job.ranks, job.shape) == (64, (8, 4, 2))
    assert (job.name, job.strides[0]) == ("job", 1)
    alone = study("tp = 1").group("tp")
    assert (alone.ranks, alone.shape, alone.reduction) == (1, (1, 1, 1), 0)


def test_a_device_that_sums_at_a_rate_takes_its_inverse_for_a_byte() -> None:
    text = JOB.format(layout="tp = 8", devices=64, pod="", more="")
    mine = "device mine extends h100_sxm { reduction_bandwidth = 4 B/s }\n"
    text = text.replace("cluster { devices", "cluster { device = mine, devices")
    (given,) = parcost.load_text(mine + text)[0].studies()
    assert given.group("tp").reduction == 0.25
    assert given.group("job").reduction == 0.25


@try_each(
    "these, those, same",
    [
        ([(1.0, 2.0)], [(1.0, 2.0)], True),
        ([(1.0, 2.0)], [(1.0, 3.0)], False),
        ([(1.0, 2.0)], [(2.0, 2.0)], False),
        ([(1.0, 2.0)], [(1.0, 2.0), (4.0, 2.0)], False),
        ([(1.0, 2.0), (4.0, 2.0)], [(1.0, 2.0), (4.0, 2.0)], True),
        ([(1.0, 2.0), (4.0, 2.0)], [(1.0, 2.0), (4.0, 3.0)], False),
        ([], [], True),
    ],
)
def test_groups_on_the_same_axes_are_placed_once(
    these: list[tuple[float, float]], those: list[tuple[float, float]], same: bool
) -> None:
    assert topology._are_equal(these, those) is same


def test_groups_of_the_same_ranks_have_the_same_links() -> None:
    given = study("tp = 2, cp = 2, dp = 4, pp = 4")
    assert given.group("dp_cp").links is not given.group("dp").links
    plain = study("tp = 8, pp = 4")
    assert plain.group("dp_cp").links is plain.group("dp").links
    assert plain.group("tp").links is not plain.group("dp").links


def test_what_leaving_the_fast_domain_costs_is_of_one_activation_as_far_as_it_goes() -> None:
    """Two sequences of 8192 tokens, 8192 wide, of 2 B: 256 MiB over sixteen ranks of a rack."""
    text = JOB.format(layout="tp = 16", devices=64, pod="", more="collectives { tensor = ring }")
    text = text.replace("sequence = 8192,", "sequence = 8192, micro_batch = 2,")
    (given,) = parcost.load_text(text)[0].studies()
    inputs = failed_rules(given)["tp-wider-than-fast-domain"].inputs
    n = 2 * 8192 * 8192 * 2
    expected = {
        "tp": 16,
        "cap": 8,
        "n": n / 2**20,
        "b": 2,
        "there": (30 * 10e-6 + 2 * 15 / 16 * n / 200e9) * 1e3,  # the four ports of a node
        "inside": (30 * 3e-6 + 2 * 15 / 16 * n / 300e9) * 1e3,
    }
    assert {name: inputs[name] for name in expected} == pytest.approx(expected, rel=1e-12)
    assert (inputs["level"], inputs["outermost"]) == ("node", "rack")


# --- axes -----------------------------------------------------------------------------------------------


@try_each(
    "axes, found",
    [
        ([(1.0, 3.0), (3.0, 5.0)], [(1.0, 15.0)]),
        ([(3.0, 5.0), (1.0, 3.0)], [(1.0, 15.0)]),
        ([(1.0, 3.0), (6.0, 5.0)], [(1.0, 3.0), (6.0, 5.0)]),
        ([(6.0, 5.0), (1.0, 3.0)], [(1.0, 3.0), (6.0, 5.0)]),
        ([(4.0, 1.0), (2.0, 7.0)], [(2.0, 7.0)]),
        ([(4.0, 1.0), (2.0, 1.0)], []),
    ],
)
def test_axes_that_go_on_where_another_ends_are_one(axes: Any, found: Any) -> None:
    assert join(axes) == found


def test_axes_of_a_sweep_are_one_where_the_narrower_has_one_rank_somewhere() -> None:
    """Strides of 2, and of 2 or 4: four or eight ranks that are two apart."""
    cp = (2.0, np.array([1.0, 2.0]))
    dp = (np.array([2.0, 4.0]), 4.0)
    for axes in ([cp, dp], [dp, cp]):
        ((stride, extent),) = join(axes)  # type: ignore[arg-type]
        assert (stride, list(extent)) == (2.0, [4.0, 8.0])  # type: ignore[arg-type]


@try_each(
    "model, layout, experts",
    [
        ("llama3_70b", "tp = 8", False),
        ("deepseek_v3", "tp = 8", True),
        ("llama3_70b", "tp = 8, ep = 2", True),
        ("llama3_70b", "tp = 8, etp = 2", True),
    ],
)
def test_ranks_of_experts_are_cut_where_there_are_some(
    model: str, layout: str, experts: bool
) -> None:
    text = JOB.format(layout=layout, devices=64, pod="", more="").replace("llama3_70b", model)
    (given,) = parcost.load_text(text)[0].studies()
    assert has_experts(given) is experts
    assert ("edp" in [group.name for _, group in given.contributions("groups")]) is experts


def test_all_ranks_of_the_same_parameters_train_together_unless_some_are_apart() -> None:
    given = study("tp = 4, cp = 2, dp = 8")

    def ranks(given: Study, name: str) -> Any:
        return prod(n for _, n in Decomposition.from_study(given).axes[name])

    names = ("tp", "cp", "dp", "pp", "dp_cp", "workers", "shard", "replicate")
    assert {name: ranks(given, name) for name in names} == {
        "tp": 4, "cp": 2, "dp": 8, "pp": 1, "dp_cp": 16, "workers": 1, "shard": 16, "replicate": 1,
    }  # fmt: skip
    apart = study("tp = 4, cp = 2, dp = 8", more="local_updates { workers = 4 }")
    assert [ranks(apart, name) for name in ("workers", "shard")] == [4, 4]


# --- links ----------------------------------------------------------------------------------------------


def test_places_of_a_group_are_counted_in_units_of_each_level() -> None:
    given = study()
    assert given.group("dp").strides == (8, 1, 0.25)
    assert given.group("pp").strides == (16, 2, 0.5)
    assert study("tp = 1, dp = 64").group("tp").strides == (1, 1 / 8, 1 / 32)


def test_a_ring_keeps_the_levels_that_it_crosses_busy_for_a_share() -> None:
    """Eight ranks of a node at 300 GB/s behind 200, and a rack of 32 behind 800 GB/s."""
    given = study()
    job = given.group("job").flat
    assert (job.name, job.bandwidth, job.latency) == ("rack", 200e9, 20 * 1e-6)
    assert job.resource == "pod"  # the outermost, on which its rounds run in sequence
    assert job.also == ("node", "rack")  # type: ignore[attr-defined]
    assert job.also_busy == pytest.approx((2 / 3, 1))  # type: ignore[attr-defined]
    tp, dp = given.group("tp").flat, given.group("dp").flat
    assert (tp.name, tp.bandwidth, tp.also) == ("node", 300e9, ())  # type: ignore[attr-defined]
    assert (dp.name, dp.bandwidth, dp.also) == ("rack", 25e9, ())  # type: ignore[attr-defined]


def test_a_level_that_a_group_does_not_cross_delays_nothing() -> None:
    text = JOB.format(layout="tp = 8, pp = 4", devices=64, pod="", more="")
    (given,) = parcost.load_text(text.replace("latency = 3 us", "latency = 3 ms"))[0].studies()
    assert given.group("dp").shape == (1, 2, 1)
    assert given.group("dp").flat.latency == 10 * 1e-6
    assert given.group("tp").flat.latency == given.group("job").flat.latency == 3 * 1e-3


def test_a_share_of_time_is_of_a_level_that_is_crossed() -> None:
    assert _share(0.25, 0.5) == 0.5
    assert _share(3.0, 12.0) == 0.25
    assert _share(3.0, INFINITY) == _share(3.0, 0.0) == 0
    rates = np.array([0.5, 4.0, INFINITY, 0.0])
    assert list(_share(0.25, rates)) == [0.5, 0.0625, 0, 0]  # type: ignore[arg-type]
    assert list(_share(rates[:2], 8.0)) == [0.0625, 0.5]  # type: ignore[arg-type]


@try_each("ports, hop", [(2, 25 / 32), (32, 25 / 2), (96, 25 * 1.5), (128, 25 * 2)])
def test_a_message_between_groups_of_a_dragonfly_has_half_a_port_or_its_own(
    ports: int, hop: float
) -> None:
    """Groups of 32 devices, whose messages take two links each: half of what is theirs."""
    pod = f"kind = dragonfly, routing = valiant, ports = {ports}"
    given = study("tp = 32, pp = 2", pod=pod)
    assert given.group("pp").hop.bandwidth == pytest.approx(hop * 1e9)


def test_a_message_between_devices_of_two_groups_has_half_of_their_own_ports() -> None:
    """Of three ports each, on a pod of which the links carry less than those of a rack."""
    given = study("dp = 64", pod="kind = dragonfly, routing = valiant, ports = 96")
    assert given.group("dp").hop.bandwidth == pytest.approx(25e9 * 3 / 2)


def test_links_of_a_sweep_have_one_name_where_one_level_limits_them_all() -> None:
    swept = study("tp = [2, 4, 8]")
    assert swept.group("tp").flat.name == "node"
    assert not isinstance(study("tp = [8, 16]").group("tp").flat.name, str)


def test_groups_along_two_axes_are_no_chain() -> None:
    group = study('tp = 4, cp = 2, pp = 2, dp = 4, order = "tp-cp-pp-dp"').group("dp_cp")
    assert {group.hop_after(rank) for rank in range(7)} == {group.hop}


@pytest.mark.parametrize(
    "pod, ends", [("kind = fat_tree, ports = 4", 8), ("kind = rail", 2), ("kind = fat_tree", 64)]
)
def test_switches_join_the_ports_of_all_units_and_a_rail_one_of_each(pod: str, ends: int) -> None:
    assert tiers(study(pod=pod)[Cluster])[2].endpoints == ends


@try_each(
    "pod, factor",
    [
        # two racks of 32 ports: one switch of 64, or leaves of 16 that are thinned four times
        ("kind = fat_tree, radix = 64", 1),
        ("kind = fat_tree, radix = 32", 4),
        ("kind = fat_tree, radix = 64, hops = 2", 4),
        ("kind = fat_tree", 4),
        ("kind = rail, radix = 32", 1),
    ],
)
def test_the_leaves_of_the_outermost_level_are_thinned_where_there_are_several(
    pod: str, factor: float
) -> None:
    given = study(pod=f"{pod}, oversubscription = 4")
    assert given.group("job").links[2].bandwidth == pytest.approx(25e9 / factor)


@try_each(
    "endpoints, crossed",
    [
        # of eight ports: a switch joins 8, leaves of 4 make two levels of 32, pods are of 16
        (8, {1: 1, 8: 1}),
        (9, {4: 1, 5: 3, 9: 3}),
        (32, {4: 1, 5: 3, 17: 3, 32: 3}),
        (33, {4: 1, 5: 3, 16: 3, 17: 5, 33: 5}),
    ],
)
def test_switches_between_neighbours_are_those_of_the_smallest_tree(
    endpoints: int, crossed: dict[int, int]
) -> None:
    tree = Level(bandwidth=1.0, latency=0.0, kind="fat_tree", radix=8.0)
    found = {reach: switches(tree, float(endpoints), float(reach)) for reach in crossed}
    assert found == crossed


@try_each(
    "given, crossed",
    [
        ({}, 1),
        ({"hops": 4.0}, 4),
        ({"kind": "dragonfly"}, 3),
        ({"kind": "dragonfly_plus", "routing": "minimal"}, 3),
        ({"kind": "dragonfly", "routing": "valiant"}, 5),
    ],
)
def test_a_way_through_a_level_crosses_the_switches_of_its_kind(
    given: dict[str, Any], crossed: int
) -> None:
    assert switches(Level(bandwidth=1.0, latency=0.0, **given), 64.0, 64.0) == crossed


@try_each(
    "routing, links, groups, to_all, to_one",
    [
        ("minimal", 4.0, 5.0, 1, 1 / 4),
        ("minimal", 3.0, 5.0, 1 / 2, 1 / 4),
        ("minimal", 1.0, 2.0, 1, 1),
        ("adaptive", 4.0, 5.0, 1, 1 / 2),
        ("adaptive", 3.0, 5.0, 1 / 2, 1 / 2),
        ("adaptive", 1.0, 2.0, 1, 1),
        ("valiant", 4.0, 5.0, 1 / 2, 1 / 2),
    ],
)
def test_routes_of_a_dragonfly_are_straight_or_by_way_of_others(
    routing: str, links: float, groups: float, to_all: float, to_one: float
) -> None:
    level = Level(bandwidth=1.0, latency=0.0, kind="dragonfly", routing=routing)
    assert _routes(level, links, groups) == (to_all, to_one)


def test_groups_of_the_same_ranks_are_listed_under_their_first_name() -> None:
    def group_names(layout: str, more: str = "") -> list[str]:
        (section,) = page("ranks", study(layout, more=more), [0])
        return [name.removesuffix(" group") for name in section.columns if " " in name]

    assert group_names("tp = 8, pp = 2") == ["tp", "pp", "dp"]
    assert group_names("tp = 8, zero = 3", "sharding { shard = 4 }") == [
        "tp",
        "dp",
        "shard",
        "replicate",
    ]
    assert group_names("tp = 2, dp = 32, ep = 32, etp = 2") == ["tp", "dp", "etp", "ep"]
