"""The rules of placement: what they forbid, what they warn of, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parcost import Check, Diagnostic, Study
from parcost.engine.rules import diagnose, gather
from parcost.engine.study import SpecStudy
from parcost.plugins.discovery import load
from parcost_plugins import topology
from parcost_plugins.collectives import ring
from parcost_plugins.topology import checks
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import (
    Cluster,
    CollectiveChoice,
    Fabric,
    Layout,
    Level,
    Model,
    PlausibleRange,
    Precision,
    Training,
)

from ..rows import try_each

PLUGINS = load(("topology", topology), ("checks", checks), ("ring", ring), installed=False)
NODE = {"size": 8.0, "bandwidth": 450e9, "latency": 3e-6}
NETWORK = {"bandwidth": 50e9, "latency": 14e-6}


def study(
    *levels: dict[str, Any],
    tp: Any = 8.0,
    dp: Any = 8.0,
    order: str = "tp-dp-pp",
    devices: Any = 64.0,
    algorithm: str = "auto",
) -> Study:
    names = ("node", "network", "spine")
    fabric = Fabric(
        levels=tuple(
            Level(label=name, **level)
            for name, level in zip(names, levels or (NODE, NETWORK), strict=False)
        )
    )
    model = Model(layers=80, hidden=8192.0, heads=64.0, vocabulary=128256.0)
    precision = Precision(
        compute="bf16",
        weights=2.0,
        gradients=4.0,
        optimizer=12.0,
        activation=2.0,
        update_traffic=30.0,
    )
    training = Training(
        model=model, precision=precision, sequence=8192.0, micro_batch=1.0, global_batch=32.0
    )
    blocks = {
        Cluster: (Cluster(device=None, devices=devices, fabric=fabric),),
        Layout: (Layout(tp=tp, dp=dp, pp=1, order=order),),
        Training: (training,),
        CollectiveChoice: (CollectiveChoice(tensor=algorithm),),
        PlausibleRange: (
            PlausibleRange(device_bandwidth=1.8e12, network_bandwidth=100e9, latency=0.1),
        ),
    }
    return SpecStudy("test", blocks, PLUGINS)


def failures(given: Study) -> dict[str, Check]:
    asked = [check for _, check in given.contributions("checks")]
    return {check.id: check for check in gather(asked, given).failed}


def diagnostic_of(given: Study, id: str) -> Diagnostic:
    return diagnose(failures(given)[id], given)


def test_a_layout_that_is_placed_well_breaks_no_rule() -> None:
    assert failures(study()) == {}


# --- order ------------------------------------------------------------------------------


@try_each(
    "order, complaint, near",
    [
        ("tp-pd-pp", "leaves out `dp` and contains names that are not degrees: `pd`", "tp-dp-pp"),
        ("pp-tp", "leaves out `dp`", "pp-tp-dp"),
        ("tp-dp-pp-vp", "contains names that are not degrees: `vp`", "tp-dp-pp"),
        ("dp-tp-tp-pp", "repeats `tp`", "dp-tp-pp"),
        ("", "leaves out `tp`, `dp`", "tp-dp"),
    ],
)
def test_an_order_names_every_degree_once(order: str, complaint: str, near: str) -> None:
    found = diagnostic_of(study(order=order), "order-names")
    assert found.message == f"the order `{order}` {complaint}"
    assert found.help == f'write `order = "{near}"`'
    assert failures(study(order=order))["order-names"].subject == "layout.order"


@pytest.mark.parametrize("order", ["tp-dp-pp", "pp-dp-tp", "dp-tp-pp"])
def test_any_order_of_all_degrees_is_legal(order: str) -> None:
    assert "order-names" not in failures(study(order=order))


# --- reach --------------------------------------------------------------------------------


def test_a_sweep_keeps_the_layouts_that_need_no_more_than_the_order_names() -> None:
    given = study(tp=np.array([1.0, 2.0, 8.0]), order="dp-pp")
    [check] = [c for c in checks.checks(given) if c.id == "order-names"]
    assert check.holds.tolist() == [True, False, False]  # type: ignore[union-attr]


def test_a_fabric_joins_all_devices() -> None:
    found = diagnostic_of(study(NODE, {**NETWORK, "size": 4.0}), "fabric-small")
    assert found.message == "the levels of the fabric connect 32 devices, but the cluster has 64"
    assert found.notes == ("size of level `network`: 4, in units of 8 devices",)
    assert found.help == (
        "write a size of 8 for level `network`, or remove its size, so that it connects all devices"
    )


def test_a_fabric_may_join_more_than_the_devices() -> None:
    assert failures(study(NODE, {**NETWORK, "size": 9.0})) == {}


def test_a_sweep_over_devices_beyond_the_fabric_is_an_error() -> None:
    devices = np.array([16.0, 32.0, 64.0])
    given = study(NODE, {**NETWORK, "size": 4.0}, devices=devices, dp=devices / 8)
    [check] = [c for c in checks.checks(given) if c.id == "fabric-small"]
    assert check.holds.tolist() == [True, True, False]  # type: ignore[union-attr]


@try_each(
    "inner, outer, ids",
    [
        # levels whose sizes and dimensions say how many devices they join, and the last of all
        (8.0, {"size": 8.0}, ["level-without-size", "fabric-small"]),
        (8.0, {"kind": "torus", "dimensions": (2, 4)}, ["level-without-size", "fabric-small"]),
        (8.0, {}, ["level-without-size"]),
        (None, {"size": 8.0}, ["level-without-size"]),
        (None, {}, ["level-without-size"]),
    ],
)
def test_a_fabric_reaches_as_far_as_its_sizes_say(
    inner: float | None, outer: dict[str, Any], ids: list[str]
) -> None:
    given = study({**NODE, "size": inner}, {**NETWORK, **outer})
    found = list(checks._level_checks(given[Cluster], tiers(given[Cluster])))
    assert [check.id for check in found] == ids
    assert found[0].holds is (inner is not None)
    assert all(check.holds for check in found[1:])


def test_one_level_is_held_to_what_devices_are_joined_by() -> None:
    """450 GB/s are no network's, and a domain of all devices has no other."""
    assert failures(study({**NODE, "size": 64.0})) == {}
    assert set(failures(study(NODE, {**NETWORK, "bandwidth": 450e9}))) == {"implausible-bandwidth"}


def test_a_misspelled_degree_stands_for_one_and_the_rest_come_last() -> None:
    assert checks._nearest_order(["xp", "pp"], ["tp", "dp", "pp"]) == "tp-pp-dp"


def test_only_the_last_level_may_leave_its_size_out() -> None:
    given = study({**NODE, "size": None}, {**NETWORK, "size": 4.0})
    assert diagnostic_of(given, "level-without-size").message == (
        "level `node` has no size, and is not the last level"
    )
    assert "fabric-small" not in failures(given)


# --- the fast domain ----------------------------------------------------------------------


def test_tensor_parallelism_beyond_a_node_is_a_warning_with_its_price() -> None:
    given = study(tp=16.0, dp=4.0, algorithm="ring")
    check = failures(given)["tp-wider-than-fast-domain"]
    found = diagnose(check, given)
    # 134.2 MB; 2 x 15/16 of it: at 8 x 50 = 400 GB/s and 30 x 14 us, or at 450 GB/s and 30 x 3 us
    there = 30 * 14e-3 + 2 * 15 / 16 * 134.217728e6 / 400e9 * 1e3
    inside = 30 * 3e-3 + 2 * 15 / 16 * 134.217728e6 / 450e9 * 1e3
    assert (f"{there:.3g}", f"{inside:.3g}") == ("1.05", "0.649")
    assert check.severity == "warning"
    said = {"there": there, "inside": inside, "n": 128.0, "tp": 16, "cap": 8}
    assert {name: check.inputs[name] for name in said} == pytest.approx(said, rel=1e-12)
    assert found.message == (
        "tensor-parallel groups of 16 reach beyond the 8 devices of level `node`: an "
        "all-reduce of one activation takes 1.05 ms, and would take 0.649 ms inside one `node`"
    )
    assert found.notes == (
        "the activation is sequence 8192 x micro_batch 1 x hidden 8192 x 2 B = 128 MiB",
        "algorithm: ring out to level `network`, ring inside one `node`",
    )


def test_tensor_parallelism_that_straddles_nodes_is_warned_of_too() -> None:
    given = study(tp=6.0, dp=8.0, devices=48.0)
    assert "groups of 6 do not divide" in diagnostic_of(given, "tp-wider-than-fast-domain").message
    given = study(tp=7.0, dp=8.0, devices=56.0)  # of which one place is left
    assert "groups of 7 do not divide" in diagnostic_of(given, "tp-wider-than-fast-domain").message


def test_tensor_parallelism_that_is_placed_last_leaves_the_node_however_small_it_is() -> None:
    given = study(tp=2.0, dp=32.0, order="dp-tp-pp")
    assert (
        "groups of 2 are spread over the 8 devices"
        in diagnostic_of(given, "tp-wider-than-fast-domain").message
    )


def test_the_warning_speaks_only_of_the_layouts_of_a_sweep_that_earn_it() -> None:
    tp = np.array([4.0, 8.0, 16.0, 32.0])
    given = study(tp=tp, dp=64 / tp)
    [check] = [c for c in checks.checks(given) if c.id == "tp-wider-than-fast-domain"]
    assert check.holds.tolist() == [True, True, False, False]  # type: ignore[union-attr]


@try_each("tp", [0.5, 3.0, 5.0, 64.0, 100.0])
@try_each("order", ["tp-dp-pp", "nonsense"])
def test_no_layout_however_wrong_breaks_the_rules_themselves(tp: float, order: str) -> None:
    given = study(tp=tp, dp=64 / tp, order=order)
    assert not given.faults
    failures(given)
    assert not given.faults
