"""A replica of a small model with different degrees, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost import Study, formula, plain_of
from parcost_plugins.inference.memory import ServingMemory, cache_read, copies
from parcost_plugins.inference.replica import Replica
from parcost_plugins.inference.rules import capacity_check, finite_time_check, prerequisites
from parcost_plugins.inference.speed import ServingPhase, decode, prefill
from parcost_plugins.vocabulary import Cluster, Layout, Serving, Training

from ..rows import try_each

LAYERS, HIDDEN, VOCABULARY = 6, 64, 1000
SMALL = """
device card {
  memory = 80 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}
fabric wire { level net { bandwidth = 1 GB/s per_direction, latency = 0 s } }
model small { layers = 6, hidden = 64, heads = 8, kv_heads = 4, vocabulary = 1000 %s }
serving chat {
  fabric = wire, compute = bf16, weights = 2 B, activation = 2 B, batch = 5, prompt = 10
  collective = ring %s
}
"""
MIXTURE = ", experts = 8, top_k = 2, dense_first = 2, expert_ffn = 32"
SHARED = MIXTURE + ", shared_experts = 1"


def study(model: str = "", serving: str = "", more: str = "") -> Study:
    return parcost.load_text(SMALL % (model, serving) + more)[0].studies()[0]


def replica(model: str = "", serving: str = "", more: str = "") -> Replica:
    of = study(model, serving, more)
    return Replica.from_serving(of, of[Serving])


def result(model: str = "", serving: str = "", more: str = "") -> parcost.Result:
    found = parcost.load_text(SMALL % (model, serving) + more)[0].evaluate().result
    assert found.faults == ()
    return found


def complaints(model: str = "", serving: str = "") -> dict[str, Any]:
    return broken_rules(SMALL % (model, serving))


# --- what ranks tell one another ------------------------------------------------------------


@try_each(
    "model, degrees, sent",
    [
        # n = 5 tokens x 64 x 2 B = 640 B, which a ring of two ranks sends once.
        ("", "tp = 2", 12 * 640),
        ("", "tp = 4", 12 * 640 * 1.5),
        # Experts stand in for the MLP of four layers of six: half of the copies of a token go to
        # the other half of the experts and back, then two ranks reduce what they received.
        (MIXTURE, "tp = 2, ep = 2, attention_replicas = 2", 8 * 640 + 4 * (2 * 320 + 1280)),
        # What every token visits is reduced apart where other experts are elsewhere.
        (SHARED, "tp = 2, ep = 2, attention_replicas = 2", 12 * 640 + 4 * (2 * 320 + 1280)),
        (SHARED, "tp = 2, ep = 4, attention_replicas = 4", 12 * 640 + 4 * (2 * 480 + 1280)),
        # Whole experts on both ranks: the product of every token is reduced.
        (SHARED, "tp = 2", 8 * 640 + 4 * 640),
        # Two messages of all tokens from stage to stage.
        (
            SHARED,
            "tp = 2, ep = 4, attention_replicas = 4, pp = 3",
            12 * 640 + 4 * (2 * 480 + 1280) + 2 * 640,
        ),
        ("", "pp = 3", 2 * 640),
    ],
)
def test_a_token_is_reduced_exchanged_and_passed_on(model: str, degrees: str, sent: float) -> None:
    found = decode(replica(model, f", {degrees}"))
    assert plain_of(found.communication) == pytest.approx(sent / 1e9)
    assert ("(p - 1) c" in found.communication.text) is ("pp" in degrees)


@pytest.mark.parametrize(("degrees", "all_"), [("tp = 2", 12), ("pp = 2", 0), ("tp = 1", 0)])
def test_a_measured_all_reduce_is_one_of_several_ranks(degrees: str, all_: int) -> None:
    found = decode(replica("", f", {degrees}, all_reduce = 7 s"))
    hop = 640 / 1e9 if "pp" in degrees else 0.0
    assert plain_of(found.communication) == pytest.approx(7 * all_ + hop)
    assert plain_of(found.all_reduce) == (7.0 if all_ else 0.0)


def test_one_device_without_a_fabric_has_no_communication() -> None:
    of = parcost.load_text((SMALL % ("", ", all_reduce = 7 s")).replace("fabric = wire, ", ""))
    alone = of[0].studies()[0]
    found = decode(Replica.from_serving(alone, alone[Serving]))
    assert (plain_of(found.all_reduce), plain_of(found.communication)) == (0.0, 0.0)


def phase(**seconds: float) -> ServingPhase:
    nothing = dict.fromkeys(
        ("flops", "compute", "weights", "cache", "all_reduce", "communication", "launches"), 0.0
    )
    given: dict[str, Any] = {**nothing, **seconds}
    for name in ("all_reduce", "communication"):
        given[name] = formula("T", T=(given[name], "s"))
    return ServingPhase(**given)


@try_each(
    "seconds, whole, bound",
    [
        ({"compute": 3.0, "weights": 1.0, "cache": 1.0, "communication": 2.0}, 5.0, "compute"),
        (
            {"compute": 3.0, "weights": 2.0, "cache": 2.0, "communication": 2.0},
            6.0,
            "memory bandwidth",
        ),
        ({"compute": 3.0, "communication": 3.0}, 6.0, "compute"),
        ({"compute": 3.0, "communication": 4.0}, 7.0, "communication"),
        ({"compute": 3.0, "communication": 2.0, "launches": 5.0}, 5.0, "compute"),
        ({"compute": 3.0, "communication": 2.0, "launches": 4.0}, 5.0, "compute"),
        ({"compute": 3.0, "communication": 2.0, "launches": 6.0}, 6.0, "the host"),
    ],
)
def test_the_longest_part_sets_the_pace(
    seconds: dict[str, float], whole: float, bound: str
) -> None:
    found = phase(**seconds)
    assert (found.seconds, found.bound) == (whole, bound)


# --- what a replica holds -------------------------------------------------------------------


def test_the_last_of_two_stages_holds_the_norm_as_well() -> None:
    two = replica("", ", pp = 2")
    whole = two.dense
    assert two.expert == 0.0
    assert two.visited_share(3.0) == 1.0
    assert (
        two.device_parameters == (whole + HIDDEN) / 2
    )  # an embedding on one, a head and a norm on the other
    counted = (
        "training { sequence = 10, global_batch = 1 sequences }\nuse catalog.precisions.bf16\n"
    )
    counted += "cluster { devices = 2 }\nlayout { pp = 2 }\n"
    counted += "schedule { count_embedding = on, count_head = on, stages = [4, 2] }\n"
    assert replica("", ", pp = 2", counted).device_parameters == two.device_parameters


def test_products_are_two_flops_for_each_weight_of_a_matrix() -> None:
    one = replica()
    matrices = one.dense - VOCABULARY * HIDDEN - (2 * LAYERS + 1) * HIDDEN
    assert one.flops == 2 * matrices
    # a token of ten sees five on the average: scores and their sums, in each of 64 channels
    assert one.attention_flops == 2 * 2 * HIDDEN * 10 / 2 * LAYERS
    found = prefill(one)
    head = 2 * VOCABULARY * HIDDEN
    assert found.flops == 10 * (one.flops - head + one.attention_flops) + head
    assert found.cache == found.launches == 0.0


def test_the_stand_in_trains_nothing() -> None:
    of = replica("", ", tp = 2, pp = 3").study
    recipe, layout = of[Training].precision, of[Layout]
    assert (recipe.gradients, recipe.optimizer, recipe.update_traffic) == (0.0, 0.0, 0.0)
    assert of[Training].micro_batches == 1.0
    assert (layout.tp, layout.pp, layout.etp) == (2, 3, 1.0)
    assert of[Cluster].devices == 6
    more = replica(SHARED, ", tp = 2, ep = 4, attention_replicas = 4, pp = 3")
    assert more.study[Layout].etp == 2.0
    assert more.study[Cluster].devices == more.devices == 24


def test_layers_that_serve_to_train_are_left_out() -> None:
    assert replica(", prediction_layers = 1").dense == replica().dense


@pytest.mark.parametrize(("tokens", "kept"), [(250, 4 * 100 + 2 * 250), (50, 6 * 50)])
def test_a_layer_with_a_window_keeps_no_more_than_that(tokens: int, kept: int) -> None:
    # four layers of six within 100 tokens, every third one over all; 2 x 4 heads x 8 x 2 B
    one = replica(", window = 100, full_every = 3")
    assert one.windowed_layers == 4
    assert cache_read(one, tokens) == 128 * kept
    assert cache_read(replica(), tokens) == 128 * 6 * tokens


@try_each(
    "model, tp, expected",
    [
        ("heads = 8, kv_heads = 4", 8, 2.0),
        ("heads = 1, kv_heads = 1", 2, 2.0),
        ("heads = 8, kv_heads = 4", 2, 1.0),
        ("parameters = 1 M, kv_heads = 4, head_dim = 8", 8, 1.0),
    ],
)
def test_ranks_beyond_the_heads_hold_copies_where_heads_are_known(
    model: str, tp: int, expected: float
) -> None:
    text = (SMALL % ("", f", tp = {tp}")).replace("heads = 8, kv_heads = 4", model)
    of = parcost.load_text(text)[0].studies()[0]
    assert copies(Replica.from_serving(of, of[Serving])) == expected


def memory(**bytes_: float) -> ServingMemory:
    return ServingMemory(per_token=1.0, weights=1.0, sequence=6.0, **bytes_)


def test_room_is_what_weights_and_overheads_leave() -> None:
    found = memory(held=30.0, cache=20.0, overhead=7.0, usable=100.0)
    assert (found.total, found.available) == (57.0, 63.0)
    assert found.largest_batch(2.0) == 5.0
    assert memory(held=30.0, cache=20.0, overhead=7.0, usable=30.0).largest_batch(2.0) == 0.0


GIB = 2.0**30


@pytest.mark.parametrize(
    ("held", "usable", "needed"), [(31.0, 40.0, 4.0), (30.0, 20.0, 8.0), (3.0, 13.0, 1.0)]
)
def test_a_replica_that_does_not_fit_says_what_would(
    held: float, usable: float, needed: float
) -> None:
    """At tp = 2: 62 GiB take four halves of 40, 60 six of 20; 6 less than a half of 13."""
    of = replica("", ", tp = 2, batches = 3, longest = 99")
    held, usable = held * GIB, usable * GIB
    found = capacity_check(of, memory(held=held, cache=9 * GIB, overhead=GIB, usable=usable))
    assert found.inputs["needed"] == needed
    assert found.inputs["weights"] == held / GIB
    assert (found.inputs["cache"], found.inputs["room"]) == (9.0, usable / GIB - 1.0)
    assert (found.inputs["sequences"], found.inputs["longest"]) == (15.0, 99)
    assert found.holds is (needed == 1.0)  # 3 + 9 + 1 GiB are 13, to the byte


# --- figures --------------------------------------------------------------------------------


@pytest.mark.slow
def test_groups_and_stages_make_tokens_at_once() -> None:
    found = result(SHARED, ", tp = 2, ep = 4, attention_replicas = 4, pp = 3, batches = 2")
    seconds = found.figure("chat.prefill_seconds")
    assert found.figure("chat.prefill_tokens_per_second") == pytest.approx(10 * 4 * 2 / seconds)
    figures = {f.name.removeprefix("chat."): f for _, f in found.figures}
    assert figures["experts_hit"].value == pytest.approx(8 * (1 - 0.75**20))
    of = replica(SHARED, ", tp = 2, ep = 4")
    assert figures["weights"].value == 2 * (of.dense + of.expert)
    usable = figures["headroom"].formula.inputs["usable"][0]
    assert usable > found.figure("chat.memory") > 0
    assert figures["headroom"].value == usable - found.figure("chat.memory")


@pytest.mark.parametrize(
    ("model", "degrees"),
    [
        (SHARED, "tp = 2, ep = 4, attention_replicas = 4, pp = 3, batches = 2"),
        ("", "pp = 2"),
        (", parameters = 1 M", "tp = 4"),
    ],
)
def test_figures_are_what_rules_and_bounds_go_by(model: str, degrees: str) -> None:
    more = f", {degrees}, context = 700, longest = 900"
    found, of = result(model, more), replica(model, more)
    held, first, next_ = ServingMemory.from_replica(of), prefill(of), decode(of)
    for name, value in {
        "kv_bytes_per_token": held.per_token,
        "kv_sequence": held.sequence,
        "kv_memory": held.cache,
        "weights": held.weights,
        "weights_memory": held.held,
        "memory": held.total,
        "headroom": held.usable - held.total,
        "largest_batch": held.largest_batch(of.serving.batches),
        "prefill_flops": first.flops,
        "prefill_compute_seconds": first.compute,
        "prefill_seconds": first.seconds,
        "weights_seconds": next_.weights,
        "cache_seconds": next_.cache,
        "compute_seconds": next_.compute,
        "decode_seconds": next_.seconds,
    }.items():
        assert found.figure(f"chat.{name}") == pytest.approx(value, rel=1e-12), name
    assert held.overhead > 0
    assert held.largest_batch(1.0) > 0


def test_either_phase_may_never_end() -> None:
    short, never = phase(compute=1.0), phase(compute=float("inf"))
    assert finite_time_check(replica(), short, short).holds
    assert not finite_time_check(replica(), short, never).holds
    assert not finite_time_check(replica(), never, short).holds


# --- rules ----------------------------------------------------------------------------------


def test_a_model_of_stated_size_has_heads_of_no_number() -> None:
    model = ", parameters = 1 M, head_dim = 8"
    text = SMALL.replace("heads = 8, kv_heads = 4", "kv_heads = 6")
    of = parcost.load_text(text % (model, ", tp = 4"))[0].studies()[0][Serving]
    assert [check.id for check in prerequisites(of) if not check.holds] == []


def test_twelve_devices_of_three_stages_are_counted() -> None:
    degrees = ", tp = 2, ep = 4, attention_replicas = 2, pp = 3"
    text = (SMALL % (MIXTURE, degrees)).replace("fabric = wire, ", "")
    found = broken_rules(text)
    assert found["serving-no-fabric"]["devices"] == 12
    plan = SMALL.replace(
        "hidden = 64, heads = 8, kv_heads = 4", "parameters = 1 M, kv_heads = 4, head_dim = 8"
    )
    replicas = ", tp = 2, attention_replicas = 2, pp = 3"
    assert broken_rules(plan % ("", replicas))["serving-no-width"]["devices"] == 12
    assert "serving-no-width" not in broken_rules(plan % ("", ""))
    assert "serving-no-width" in broken_rules(plan % ("", ", tp = 2"))


def broken_rules(text: str) -> dict[str, Any]:
    of = parcost.load_text(text)[0].studies()[0][Serving]
    return {check.id: check.inputs for check in prerequisites(of) if not check.holds}


def test_the_smallest_model_has_a_cache_and_a_width() -> None:
    one = SMALL.replace(
        "hidden = 64, heads = 8, kv_heads = 4",
        "parameters = 1 M, hidden = 1, kv_heads = 1, head_dim = 1",
    )
    assert broken_rules(one % ("", ", pp = 2")) == {}


def test_one_expert_is_an_expert() -> None:
    found = complaints(", experts = 1, top_k = 1", ", ep = 2")
    assert "serving-experts" in found
    assert "serving-no-experts" not in found
    assert "serving-no-experts" in complaints("", ", ep = 2")


def power(cap: str) -> Any:
    device = f"bf16 = 100 TFLOPS dense, power = 700 W{cap},"
    text = (SMALL % ("", "")).replace("bf16 = 100 TFLOPS dense,", device)
    of = parcost.load_text(text)[0].studies()[0]
    return Replica.from_serving(of, of[Serving]).peak


def test_a_capped_device_multiplies_more_slowly() -> None:
    assert power(", power_cap = 350 W") < power("") <= 100e12
