"""Pages, figures and rules of a placement, against what a pencil says of it."""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost import Check, Figure, Section, SpecError, Study
from parcost.evaluation.rules import diagnose
from parcost_plugins.topology import details, views

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
    return list(views.views(given, name, only))


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
                "3 of 3 boundaries of a replica leave their `node`",
                (
                    "1 of 3 boundaries of a replica leave their `rack`; "
                    '0 with `order = "tp-cp-pp-dp"`, which moves the replicas apart'
                ),
            ],
        ),
        # 4 apart: nodes 0, 0, 1, 1, 2, 2, 3, 3, as near as they can be
        (
            'tp = 2, cp = 2, pp = 8, order = "tp-cp-pp-dp"',
            [
                "3 of 7 boundaries of a replica leave their `node`",
                "0 of 7 boundaries of a replica leave their `rack`",
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
        "stage", "layers", "besides", "ranks", "first replica", "node", "rack", "to the next over",
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
    with pytest.raises(SpecError, match="64 ranks are too many to look at one by one"):
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


@pytest.mark.parametrize(
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
        text = "1, by" if pxn == "on" else "a / u"
        assert found[name] == (share, text)
    assert not list(details.sections(study()))


# --- rules ----------------------------------------------------------------------------------------------


def broken(given: Study) -> dict[str, Check]:
    found = (check for _, check in given.contributions("checks") if isinstance(check, Check))
    return {check.id: check for check in found if check.holds is False}


@pytest.mark.parametrize(
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
    found = broken(study(pod=pod)).keys() & {"fat-tree-full", "dragonfly-links", "torus-size"}
    assert found == ({id} if id else set())


def test_a_dragonfly_reaches_each_other_group_by_a_link_where_routes_are_straight() -> None:
    for ports, wrong in ((3, False), (2, True)):
        pod = f"kind = dragonfly, routing = minimal, ports = {ports}"
        given = study(devices=128, pod=pod)
        assert ("dragonfly-links" in broken(given)) is wrong
        adaptive = study(devices=128, pod=pod.replace("minimal", "adaptive"))
        assert "dragonfly-links" not in broken(adaptive)
    said = diagnose(broken(given)["dragonfly-links"], given)
    assert said.message == (
        "2 global links of a group of level `pod` cannot reach each of 3 other groups, as minimal "
        "routing would have to"
    )


def test_what_a_figure_is_made_of_is_in_its_formula() -> None:
    given = study()
    figures: list[Figure] = list(details._machine(given))
    of = {f.name: {k: v for k, (v, _) in f.formula.inputs.items()} for f in figures}
    assert of["device_bandwidth"] == {"B": 300e9, "ports": 1}
    assert of["node_bandwidth"] == {"B_port": 50e9, "k": 0.5, "devices": 8}
