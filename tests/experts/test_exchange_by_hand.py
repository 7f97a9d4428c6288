"""Exchanges of twelve ranks on two pods of three nodes of two, counted rank by rank."""

from __future__ import annotations

from itertools import combinations, product
from math import log, pi, sqrt
from statistics import fmean
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Study
from parcost_plugins.parallelism.expert import buffers, details, exchange, rules
from parcost_plugins.parallelism.expert.exchange import TokenExchange
from parcost_plugins.vocabulary import CollectiveChoice
from parcost_plugins.vocabulary.framework import KERNEL_DISPATCHERS

from ..rows import try_each

#: A rank has 40 tokens of 10 elements; each goes to 3 of 12 experts.
TOKENS, HIDDEN, TOP, EXPERTS = 40, 10, 3, 12
MODEL = "hidden = 10, heads = 2, ffn = 14, vocabulary = 100, experts = 12, top_k = 3"
EVEN = "distribution = balanced, metadata = 0 B, counts = 0 B"
SPEEDS = (90.0, 30.0, 10.0)


def bind(
    layout: str = "ep = 12",
    routing: str = EVEN,
    *,
    model: str = MODEL,
    speeds: tuple[float, float, float] = SPEEDS,
    devices: int = 12,
    device: str = "",
    extra: str = "",
) -> Study:
    node, pod, net = speeds
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.precisions.bf16
        device card extends h100_sxm {{ multiprocessors = 10, {device} }}
        model small {{ layers = 5, {model} }}
        fabric f {{
          level node {{ size = 2 devices, bandwidth = {node} B/s per_direction, latency = 1 s }}
          level pod {{ size = 3 nodes, bandwidth = {pod} B/s per_direction, latency = 2 s }}
          level net {{ bandwidth = {net} B/s per_direction, latency = 3 s }}
        }}
        cluster {{ devices = {devices}, device = card, fabric = f }}
        layout {{ {layout} }}
        training {{ sequence = 40, global_batch = 72 sequences }}
        routing {{ {routing} }}
        {extra}
        """
    )
    (study,) = scenario.studies()
    return study


def devices_of(groups: int, experts: int = EXPERTS, top: int = TOP) -> float:
    """Return how many of *groups* a token visits, over all choices of its experts."""
    each = experts // groups
    return fmean(len({e // each for e in c}) for c in combinations(range(experts), top))


def works(study: Study) -> dict[tuple[str, str], Any]:
    return {(term.name, term.pass_): term for term in exchange.terms(study)}


#: A copy on the way back has 10 elements of 2 B, and the busiest rank 1.5 times the mean.
BACK = 20
BUSY = "imbalance = 1.5, counts = 0 B"


def largest_by_hand(count: int) -> float:
    """Return the mean of the largest of *count* normal deviates, by the law of extreme values."""
    root = sqrt(2 * log(count))
    return root - (log(log(count)) + log(4 * pi)) / (2 * root) + 0.5772156649015329 / root


def outer_lam(units: int, ranks: int, inside: int) -> float:
    return 1 + 0.5 / sqrt(inside) * largest_by_hand(units) / largest_by_hand(ranks)


@pytest.mark.parametrize("speeds", [(2.0, 900.0, 900.0), (900.0, 2.0, 900.0), (900.0, 900.0, 2.0)])
def test_a_deduplicated_exchange_takes_as_long_as_its_slowest_level(
    speeds: tuple[float, float, float],
) -> None:
    study = bind(routing=f"{BUSY}, deduplicate = on", speeds=speeds)
    found = works(study)["expert combine", "F"]
    # Of the copies, half leave their rank in a node; of six nodes, two others are in the pod and
    # three in the other one.
    inside = 1.5 * TOKENS * TOP * BACK / 2
    away = outer_lam(6, 12, 2) * TOKENS * devices_of(6) / 6 * BACK
    levels = [
        1 * 1 + inside / speeds[0],
        2 * 2 + 2 * away / speeds[1],
        1 * 3 + 3 * away / speeds[2],
    ]
    assert found.seconds == pytest.approx(max(levels), rel=1e-9)
    assert found.formula.source == "DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.2"
    assert found.bytes_ == pytest.approx(TOKENS * BACK * (TOP + 5 * devices_of(6) / 6), rel=1e-9)


@try_each("kind", KERNEL_DISPATCHERS)
@try_each(
    "speeds, rate",
    [
        ((900.0, 900.0, 900.0), 3),  # 4 multiprocessors of 3 B/s
        ((2.0, 900.0, 900.0), 900),  # half of the links of a node
        ((900.0, 2.0, 900.0), 900),
        ((900.0, 900.0, 2.0), 900),
    ],
)
def test_kernels_take_as_long_as_their_slowest_level(
    kind: str, speeds: tuple[float, float, float], rate: float
) -> None:
    said = f"{kind}_multiprocessors = 4, {kind}_rate = {rate} B/s, {kind}_efficiency = 50 %"
    study = bind(
        routing=f"{BUSY}, dispatcher = {kind}, {said}, outer_efficiency = 25 %", speeds=speeds
    )
    found = works(study)["expert combine", "F"]
    inside = 1.5 * TOKENS * devices_of(12) * BACK / 2
    away = outer_lam(6, 12, 2) * TOKENS * devices_of(6) / 6 * BACK
    levels = [
        1 + inside / min(4 * rate, 0.5 * speeds[0]),
        2 + 2 * away / (0.25 * speeds[1]),
        3 + 3 * away / (0.25 * speeds[2]),
    ]
    assert found.seconds == pytest.approx(max(levels), rel=1e-9)
    assert found.bytes_ == pytest.approx(inside + 5 * away, rel=1e-9)
    # six multiprocessors compute on
    assert found.slowdown == pytest.approx(4 / 6)


def test_kernels_in_one_node_wait_for_no_further_level() -> None:
    said = "dispatcher = deepep, deepep_multiprocessors = 4, deepep_rate = 9000 B/s"
    fast = (1e6, 30.0, 10.0)
    found = works(bind("ep = 2", f"{EVEN}, {said}", speeds=fast))["expert combine", "F"]
    inside = TOKENS * devices_of(2) * BACK / 2
    assert found.seconds == pytest.approx(1 + inside / 36000, rel=1e-9)
    assert found.seconds < 2
    assert found.slowdown == pytest.approx(4 / 6)
    every = said.replace("multiprocessors = 4", "multiprocessors = 10")
    for term in works(bind("ep = 2", f"{EVEN}, {every}")).values():
        assert term.slowdown == float("inf")  # nothing is left to compute with


@pytest.mark.parametrize("kind", ["deduplicate = on", "dispatcher = deepep"])
def test_two_nodes_have_one_further_each(kind: str) -> None:
    said = f"{kind}, deepep_multiprocessors = 4, deepep_rate = 9 GB/s, outer_efficiency = 50 %"
    study = bind("ep = 4", f"{EVEN}, {said}", devices=4, speeds=(1e9, 2.0, 1e9))
    assert study.group("ep").shape[:2] == (2, 2)
    reached = 2.0 if "dedup" in kind else 2.0 * 0.5
    away = TOKENS * devices_of(2) / 2 * BACK
    assert works(study)["expert combine", "F"].seconds == pytest.approx(2 + away / reached)


def test_the_formula_of_kernels_names_each_level() -> None:
    study = bind(routing=f"{EVEN}, dispatcher = deepep, deepep_multiprocessors = 4")
    inputs = works(study)["expert combine", "F"].formula.inputs
    assert [inputs[name][0] for name in ("a_in", "a[0]", "a[1]")] == [1, 2, 3]
    assert [inputs[name][0] for name in ("p[0]", "p[1]")] == [2 / 5, 3 / 5]
    # units of one rank send nothing inside, not even a message
    apart = bind(
        "tp = 2, ep = 3, etp = 2, sequence_parallel = on",
        f"{EVEN}, dispatcher = deepep, deepep_multiprocessors = 4",
        devices=6,
    )
    inputs = works(apart)["expert combine", "F"].formula.inputs
    assert [inputs[name][0] for name in ("a_in", "a[0]", "a[1]")] == [0, 2, 0]


def the(study: Study) -> TokenExchange:
    found = exchange.exchange_of(study)
    assert found is not None
    return found


@pytest.mark.parametrize(("ranks", "units"), [(2, 1), (12, 6)])
def test_the_busiest_unit_is_less_busy_than_its_busiest_rank(ranks: int, units: int) -> None:
    found = the(bind(f"ep = {ranks}", BUSY))
    assert found.units == units
    expected = 1.0 if units == 1 else outer_lam(units, ranks, 2)
    assert found.unit_imbalance() == pytest.approx(expected, rel=1e-9)


def test_units_of_one_rank_are_as_busy_as_it() -> None:
    study = bind("tp = 2, ep = 3, etp = 2, sequence_parallel = on", BUSY, devices=6)
    found = the(study)
    assert found.group.shape[0] == 1
    assert found.units == 3
    assert found.unit_imbalance() == pytest.approx(1.5, rel=1e-12)
    pair = the(bind("tp = 2, ep = 2, etp = 2, sequence_parallel = on", BUSY, devices=4))
    assert pair.group.shape[0] == 1
    assert pair.unit_imbalance() == pytest.approx(1.5, rel=1e-12)


@pytest.mark.slow
def test_limited_units_are_visited_by_as_many_experts_on_any_of_their_ranks() -> None:
    # Two units of two ranks; of four experts, two fall on either: on 1.5 of its ranks
    study = bind(routing=f"{EVEN}, node_limit = 2", model=MODEL.replace("top_k = 3", "top_k = 4"))
    drawn = fmean(len(set(draw)) for draw in product(range(2), repeat=2))
    assert the(study).destination_units == 2
    assert the(study).destination_ranks == pytest.approx(2 * drawn)
    assert the(study).remote_units == pytest.approx(2 * 5 / 6)
    assert the(bind()).destination_ranks == pytest.approx(devices_of(12))
    assert the(bind()).destination_units == pytest.approx(devices_of(6))


ROUTED = "distribution = balanced, dispatch = 1 B, combine = 3 B, scales = 7 B"


def test_an_all_gather_goes_back_as_a_sum() -> None:
    study = bind(
        routing=f"{ROUTED}, counts = 4 B, dispatcher = allgather",
        device="reduction_bandwidth = 50 B/s",
    )
    once = [
        study.collective(name, 999.0, study.group("ep"))
        for name in ("all_gather", "reduce_scatter")
    ]
    assert once[0].seconds < once[1].seconds  # which adds up
    found = works(study)
    # 12 ranks gather all tokens of 17 B, and for each of 12 experts a flag and a weight of 2 B,
    # whose gradients go back; of results 30 B go back
    assert {key: term.bytes_ for key, term in found.items()} == {
        ("expert dispatch", "F"): 480 * (17 + 12 * 3),
        ("expert combine", "F"): 480 * 30,
        ("expert combine gradient", "B"): 480 * 30,
        ("expert dispatch gradient", "B"): 480 * (17 + 12 * 2),
    }
    for (name, _), term in found.items():
        gathers = name in ("expert dispatch", "expert combine gradient")
        operation = "all_gather" if gathers else "reduce_scatter"
        call = study.collective(operation, term.bytes_, study.group("ep"))
        assert term.seconds == call.seconds


def test_an_all_to_all_sends_copies_and_counts() -> None:
    study = bind(routing=f"{ROUTED}, metadata = 5 B, counts = 4 B", extra="recompute { moe = on }")
    found = works(study)
    away = {
        ("expert dispatch", "F"): 120 * 17,
        ("routing weights dispatch", "F"): 120 * 5,
        ("routing weights dispatch gradient", "B"): 120 * 5,
        ("expert combine", "F"): 120 * 30,
        ("expert combine gradient", "B"): 120 * 17,
        ("expert dispatch gradient", "B"): 120 * 30,
        ("token counts all-gather", "F"): 12 * 12 * 4,
    }
    again = {(n, "R"): b for (n, p), b in away.items() if p == "F"}
    assert {key: term.bytes_ for key, term in found.items()} == {**away, **again}
    one = works(bind(routing="distribution = balanced, counts = 1 B"))
    assert one["token counts all-gather", "F"].bytes_ == 12 * 12
    assert one["token counts all-gather", "F"].seconds > 0
    # the busiest rank takes the bytes of its copies, and everybody waits for it
    busy = works(bind(routing=f"{ROUTED}, metadata = 5 B, imbalance = 1.5"))
    group, algorithm = study.group("ep"), study[CollectiveChoice].expert
    call = study.collective("all_to_all", 1.5 * 120 * 17, group, algorithm)
    assert busy["expert dispatch", "F"].bytes_ == 120 * 17
    assert busy["expert dispatch", "F"].seconds == call.seconds


@pytest.mark.parametrize(
    ("training", "kinds"), [("", {"F", "B"}), ("recompute { moe = on }", {"F", "B", "R"})]
)
def test_parts_of_experts_exchange_what_they_received(training: str, kinds: set[str]) -> None:
    layout = "tp = 2, ep = 3, etp = 2, sequence_parallel = on"
    study = bind(layout, BUSY, devices=12, extra=training)
    found = {k: t for k, t in works(study).items() if "tensor" in k[0]}
    # 20 tokens of a rank to three experts, 1.5 times as many on the busiest; two ranks have parts
    assert {term.bytes_ for term in found.values()} == {2 * 20 * 3 * 1.5 * 10 * 2}
    assert {pass_ for _, pass_ in found} == kinds
    assert len(found) == 2 * len(kinds)
    same = bind("tp = 2, etp = 2", BUSY, extra=training)
    found = {k: t for k, t in works(same).items() if "tensor" in k[0]}
    assert {term.bytes_ for term in found.values()} == {40 * 3 * 1.5 * 10 * 2}
    assert {name.partition(",")[0] for name, _ in found} == {"expert tensor all-reduce"}
    swept = bind("tp = [1, 2], etp = 2, sequence_parallel = off", BUSY, extra=training)
    for (name, _), term in works(swept).items():
        if "tensor" in name:
            shared = [seconds > 0 for seconds in term.seconds]
            assert shared == [bytes_ > 0 for bytes_ in term.bytes_]
            assert shared == (
                [False, True] if "reduce" in name and "all" in name else [True, False]
            )


# --- Figures ------------------------------------------------------------------------------------


def figures(study: Study) -> dict[str, Any]:
    return {figure.name: figure.value for figure in details.details(study, None, brief=False)}  # type: ignore[arg-type]


def test_figures_of_a_mixture() -> None:
    study = bind(
        "ep = 6, pp = 2",
        f"{ROUTED}, metadata = 5 B, capacity_factor = 1.25",
        extra="schedule { stages = [3, 2] }",
    )
    found = figures(study)
    # Projections 4 x 10 x 10, two norms, and a router of 10 x 12 a layer; the ends.
    rest = 5 * (4 * 10 * 10 + 2 * 10 + 10 * 12) + 2 * 100 * 10 + 10
    assert found["active_parameters"] == pytest.approx(rest + 5 * 3 * (3 * 10 * 14))
    assert found["experts_per_device"] == 2
    assert found["expert_tokens"] == 40 * 6 * 3 / 12
    assert found["expert_imbalance"] == 1
    assert found["expert_capacity"] == 13  # 1.25 times 10, whole
    assert found["dropped_share"] == 0
    assert "dropped_tokens" not in found
    assert found["expert_units"] == pytest.approx(devices_of(3))
    places = 12 * 13  # of 120 copies: empty ones are sent as well
    away = places * 5 / 6
    assert found["dispatch_bytes"] == pytest.approx(away * 17)
    assert found["combine_bytes"] == pytest.approx(away * 30)
    assert found["exchange_bytes"] == pytest.approx(2 * away * 47)
    assert found["dispatch_outer_bytes"] == pytest.approx(places * 2 / 3 * 17)
    sent = {term.name: term.bytes_ for _, term in study.contributions("terms")}
    assert sent["expert dispatch"] == pytest.approx(places * 17)
    assert sent["expert combine"] == pytest.approx(places * 30)


@pytest.mark.parametrize(
    ("kind", "copies", "outer"),
    [
        ("allgather", 11, 5),
        ("deepep", devices_of(12) * 11 / 12, devices_of(6) * 5 / 6),
        ("alltoall", 3 * 11 / 12, 3 * 5 / 6),
    ],
)
def test_bytes_that_leave_a_rank_and_a_node(kind: str, copies: float, outer: float) -> None:
    found = figures(bind(routing=f"{ROUTED}, dispatcher = {kind}"))
    assert found["dispatch_bytes"] == pytest.approx(40 * copies * 17)
    assert found["dispatch_outer_bytes"] == pytest.approx(40 * outer * 17)


def test_experts_of_a_device_are_counted_whole_or_in_slices() -> None:
    study = bind("tp = 2, ep = 3, etp = 2, sequence_parallel = on")
    assert figures(study)["experts_per_device"] == 4  # halves of 12 / 3


def test_tokens_dropped_by_measured_loads() -> None:
    loads = "distribution = measured, loads = [5, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]"
    factor = "capacity_factor = 1.5"
    # A mean of one: each has one and a half places. Two ranks hold halves of nine and three.
    found = figures(bind("ep = 2", f"{loads}, {factor}"))
    assert found["dropped_tokens"] == pytest.approx(3.5 / 12)
    assert found["expert_imbalance"] == pytest.approx(10 / 6)
    assert found["dropped_share"] == pytest.approx(1 - 1.5 / (10 / 6))
    stated = figures(bind("ep = 2", f"{loads}, {factor}, imbalance = 2"))
    assert "dropped_tokens" not in stated
    assert stated["dropped_share"] == 0.25
    unread = figures(bind("ep = 2", f"{loads.replace('measured', 'uniform')}, {factor}"))
    assert "dropped_tokens" not in unread
    assert "expert_capacity" not in figures(bind("ep = 2", loads))


def test_a_nominal_model_has_no_experts_to_send_to() -> None:
    study = bind(model=f"{MODEL}, parameters = 5000")
    assert exchange.exchange_of(study) is None
    assert not figures(study)
    assert not works(study)
    assert not list(rules.checks(study))
    assert not list(buffers.memory(study))
    cut = bind("tp = 2, etp = 2", model=f"{MODEL}, parameters = 5000")
    assert not works(cut)


@pytest.mark.parametrize(
    ("kind", "routing", "places"),
    [
        ("allgather", "imbalance = 1.5", 480),
        ("alltoall", "imbalance = 1.5", 120 * 1.5),
        ("alltoall", "imbalance = 1.5, buffer_factor = 3", 120 * 3),
    ],
)
def test_room_for_what_arrives(kind: str, routing: str, places: float) -> None:
    said = f"dispatcher = {kind}, dispatch = 1 B, combine = 3 B, {routing}"
    study = bind(
        "ep = 6, pp = 2",
        said,
        model=f"{MODEL}, dense_first = 3",
        extra="schedule { stages = [3, 2] }",
    )
    (found,) = buffers.memory(study)
    each = 10 * (1 + 3)
    assert found.bytes_ == pytest.approx((240 if kind == "allgather" else places) * each)
    assert tuple(found.count) == (0, 1)  # type: ignore[arg-type]
    (pair,) = buffers.memory(bind("ep = 2", said))
    assert pair.bytes_ == pytest.approx((80 if kind == "allgather" else places) * each)
    swept = bind("ep = [1, 12]", said)
    (found,) = buffers.memory(swept)
    assert np.asarray(found.bytes_).tolist() == [0, pytest.approx(places * each)]


# --- Rules --------------------------------------------------------------------------------------


def failures(study: Study) -> set[str]:
    return {check.id for check in rules.checks(study) if not check.holds}


LOADS = "distribution = measured, loads = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"


@try_each(
    "layout, routing, model, expected",
    [
        ("", "", "", set()),
        ("", "", "top_k = 12", set()),
        ("", "", "top_k = 13", {"experts-visited"}),
        ("ep = 1, etp = 7", "", "", set()),
        ("ep = 1, etp = 3", "", "", {"expert-width-divide"}),
        ("ep = 5", "", "", {"experts-divide"}),
        ("tp = 2, ep = 2", "", "", {"experts-sequence-parallel"}),
        ("tp = 2, ep = 2, etp = 2", "", "", {"experts-sequence-parallel"}),
        ("tp = 2, ep = 1", "", "", {"experts-sequence-parallel"}),
        ("tp = 2, ep = 1, etp = 2", "", "", set()),
        ("tp = 2, ep = 2, sequence_parallel = on", "", "", set()),
        (
            "tp = 4, ep = 1, sequence_parallel = on",
            "",
            "shared_experts = 1, shared_ffn = 6",
            {"shared-width-divide"},
        ),
        ("tp = 4, ep = 1, sequence_parallel = on", "", "shared_experts = 1, shared_ffn = 8", set()),
        ("", LOADS, "", set()),
        ("", LOADS.replace("[1, ", "["), "", {"loads-count"}),
        ("", LOADS.replace("1, ", "0, "), "", set()),
        ("", LOADS.replace("1", "0"), "", {"loads-count"}),
        ("", f"{LOADS.replace('1', '0')}, capacity_factor = 1", "", {"loads-count"}),
        ("", LOADS.replace("measured", "uniform"), "", {"routing-unread"}),
        ("", f"{LOADS}, concentration = 3", "", {"routing-unread"}),
        ("", "distribution = dirichlet, concentration = 3", "", set()),
        ("", "distribution = dirichlet", "", set()),
        # what is stated in place of a distribution makes it no worse
        ("", f"{LOADS.replace('measured', 'uniform')}, imbalance = 2", "", set()),
        ("", f"{LOADS}, capacity_factor = 1", "", set()),
        ("", f"{LOADS}, capacity_factor = 0.9", "", {"capacity-drops"}),
        ("", f"{LOADS}, imbalance = 2, capacity_factor = 2", "", set()),
        ("", f"{LOADS}, imbalance = 2, capacity_factor = 1.9", "", {"capacity-drops"}),
        ("", "hide = shared_experts", "", {"exchange-hides"}),
        ("", "hide = shared_experts", "shared_experts = 1", set()),
        ("", "hide = pair", "", set()),
        ("", "dispatcher = deepep, deepep_multiprocessors = 9", "", set()),
        (
            "",
            "dispatcher = deepep, deepep_multiprocessors = 10",
            "",
            {"dispatcher-multiprocessors"},
        ),
        # six units of two experts for the three of a token: two are enough
        ("", "deduplicate = on, node_limit = 2", "", set()),
        ("", "deduplicate = on, node_limit = 1", "", {"node-limit-experts"}),
        ("", "deduplicate = on, node_limit = 1", "top_k = 2", set()),
        ("", "deduplicate = on, node_limit = 6", "top_k = 12", set()),
        ("", "deduplicate = on, node_limit = 6", "top_k = 13", {"experts-visited"}),
        ("", "node_limit = 2", "", {"node-limit-copies"}),
        ("", "dispatcher = deepep, deepep_multiprocessors = 4, node_limit = 2", "", set()),
        ("ep = 1", "node_limit = 1", "", set()),
    ],
)
def test_rules_to_the_last_one(layout: str, routing: str, model: str, expected: set[str]) -> None:
    said = routing if "distribution" in routing else f"distribution = balanced, {routing}"
    shape = MODEL.replace("top_k = 3", model) if "top_k" in model else f"{MODEL}, {model}"
    assert failures(bind(layout or "ep = 12", said, model=shape)) == expected
