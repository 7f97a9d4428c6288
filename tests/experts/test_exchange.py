"""The exchange of tokens: volumes, times, what it hides under."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import Study, Work
from parcost_plugins.parallelism.expert.exchange import TokenExchange, exchange_of

from ..rows import try_each

Mixture = Callable[..., Study]

EVEN = "distribution = balanced, metadata = 0 B"


def works(study: Study) -> dict[tuple[str, str], Work]:
    return {
        (term.name, term.pass_): term
        for plugin, term in study.contributions("terms")
        if plugin.name == "expert_parallel.exchange"
    }


def the(study: Study) -> TokenExchange:
    found = exchange_of(study)
    assert found is not None
    return found


def test_a_layer_exchanges_four_times_per_micro_batch(mixture: Mixture) -> None:
    study = mixture("pp = 4, ep = 16", EVEN, extra="schedule { stages = [16, 15, 15, 15] }")
    found = works(study)
    assert set(found) == {
        ("expert dispatch", "F"),
        ("expert combine", "F"),
        ("expert combine gradient", "B"),
        ("expert dispatch gradient", "B"),
        ("token counts all-gather", "F"),
    }
    for term in found.values():
        assert tuple(term.count) == (13, 15, 15, 15)


def test_a_rank_sends_a_copy_for_each_expert(mixture: Mixture) -> None:
    study = mixture("ep = 64", f"{EVEN}, dispatch = 1 B")
    found = works(study)
    away = 1 - 1 / 64
    assert found["expert dispatch", "F"].bytes_ * away == 231_211_008
    assert found["expert combine", "F"].bytes_ * away == 462_422_016


def test_gradients_travel_the_other_way_round(mixture: Mixture) -> None:
    found = works(mixture("ep = 64", f"{EVEN}, dispatch = 1 B"))
    for forward, backward in (("dispatch", "combine"), ("combine", "dispatch")):
        one = found[f"expert {forward}", "F"]
        other = found[f"expert {backward} gradient", "B"]
        assert one.seconds == other.seconds


def test_scales_travel_with_every_copy_and_its_weight_in_a_second_call(mixture: Mixture) -> None:
    plain = works(mixture("ep = 8", EVEN))["expert dispatch", "F"].bytes_
    more = works(mixture("ep = 8", "distribution = balanced, metadata = 8 B, scales = 224 B"))
    assert more["expert dispatch", "F"].bytes_ - plain == 4096 * 8 * 224
    assert more["expert dispatch gradient", "B"].bytes_ == plain
    assert more["routing weights dispatch", "F"].bytes_ == 4096 * 8 * 8
    assert more["routing weights dispatch gradient", "B"].bytes_ == 4096 * 8 * 8


@pytest.mark.parametrize(
    ("routing", "framework"),
    [
        ("deduplicate = on", "generic"),
        ("dispatcher = deepep", "generic"),
        ("distribution = balanced", "torchtitan"),
        ("distribution = balanced", "deepspeed"),
    ],
)
def test_only_weights_of_an_activation_have_that_call(
    mixture: Mixture, routing: str, framework: str
) -> None:
    extra = f"use catalog.frameworks.{framework}"
    study = mixture("ep = 8", routing, training=f"framework = {framework}", extra=extra)
    assert not [name for name, _ in works(study) if "weights" in name]


def test_the_low_latency_kernel_of_deepep_sends_seven_and_a_half_megabytes(
    mixture: Mixture,
) -> None:
    # 128 tokens to 8 experts: 7168 B and 224 B of scales there, 2 x 7168 B back
    study = mixture("ep = 64", f"{EVEN}, dispatch = 1 B, scales = 224 B")
    exchange = the(study)
    assert 128 * 8 * exchange.dispatch_bytes == pytest.approx(7.57e6, rel=1e-3)
    assert 128 * 8 * exchange.combine_bytes == pytest.approx(14.68e6, rel=1e-3)


def test_the_exchange_in_one_node_takes_its_bytes_over_nvlink(mixture: Mixture) -> None:
    study = mixture("ep = 8", EVEN, devices=8)
    n = 4096 * 8 * 7168 * 2
    assert works(study)["expert combine", "F"].seconds == pytest.approx(n * 7 / 8 / 450e9)


def test_messages_take_their_latency(mixture: Mixture) -> None:
    study = mixture(
        "ep = 8", EVEN, devices=8, latency="3 us", extra="collectives { expert = pairwise }"
    )
    n = 4096 * 8 * 7168 * 2
    expected = n * 7 / 8 / 450e9 + 7 * 3e-6
    assert works(study)["expert combine", "F"].seconds == pytest.approx(expected)


def test_the_busiest_rank_has_more_bytes_and_no_more_messages(mixture: Mixture) -> None:
    even, uneven = (
        works(
            mixture(
                "ep = 8",
                f"metadata = 0 B, imbalance = {lam}",
                devices=8,
                latency="3 us",
                extra="collectives { expert = pairwise }",
            )
        )
        for lam in (1, 1.5)
    )
    more = uneven["expert combine", "F"].seconds - even["expert combine", "F"].seconds
    assert more == pytest.approx(0.5 * 4096 * 8 * 7168 * 2 * 7 / 8 / 450e9)


def test_one_copy_per_node_crosses_between_nodes(mixture: Mixture) -> None:
    study = mixture("ep = 64", f"{EVEN}, dispatch = 1 B, deduplicate = on, node_limit = 4")
    exchange = the(study)
    assert exchange.destination_units == 4
    assert exchange.remote_units == 3.5
    outside = 4096 * 3.5 * 7168
    assert outside == pytest.approx(102.8e6, rel=1e-3)
    dispatch = works(study)["expert dispatch", "F"]
    assert dispatch.seconds == pytest.approx(outside / 50e9)  # more than on NVLink
    assert dispatch.seconds == pytest.approx(2.06e-3, rel=5e-3)


def test_without_a_limit_a_token_visits_five_of_eight_nodes(mixture: Mixture) -> None:
    exchange = the(mixture("ep = 64", f"{EVEN}, deduplicate = on"))
    assert exchange.destination_units == pytest.approx(5.294652, abs=5e-7)


def test_copies_in_a_node_bound_a_wide_choice_of_slow_links(mixture: Mixture) -> None:
    # within one node nothing is remote: all copies cross NVLink but those that stay
    study = mixture("ep = 8", f"{EVEN}, deduplicate = on", devices=8)
    expected = 4096 * 8 * 7168 * 2 * 7 / 8 / 450e9
    assert works(study)["expert combine", "F"].seconds == pytest.approx(expected)


def test_nodes_even_out_what_is_uneven_among_ranks(mixture: Mixture) -> None:
    exchange = the(mixture("ep = 64", "deduplicate = on, imbalance = 1.4"))
    assert 1.0 < exchange.unit_imbalance() < 1.4 / 8**0.5 + 1 - 1 / 8**0.5
    assert the(mixture("ep = 8", "imbalance = 1.4", devices=8)).unit_imbalance() == 1.0


def test_doubling_the_micro_batch_doubles_what_is_sent(mixture: Mixture) -> None:
    one, two = (works(mixture("ep = 64", EVEN, training=f"micro_batch = {b}")) for b in (1, 2))
    for key in one:
        factor = 1 if "counts" in key[0] else 2
        assert two[key].bytes_ == factor * one[key].bytes_


def test_tensor_parallel_ranks_dispatch_their_own_tokens(mixture: Mixture) -> None:
    whole = the(mixture("ep = 8", EVEN))
    parts = the(mixture("tp = 4, ep = 8, sequence_parallel = on", EVEN))
    assert parts.copies == whole.copies / 4


def test_parts_of_experts_gather_tokens_and_add_up_results(mixture: Mixture) -> None:
    study = mixture("tp = 4, ep = 8, etp = 2, sequence_parallel = on", EVEN)
    found = works(study)
    n = 2 * 4096 / 4 * 8 * 7168 * 2
    for name in ("expert tensor all-gather", "expert tensor reduce-scatter"):
        assert found[name, "F"].bytes_ == n
        assert found[f"{name}, backward", "B"].bytes_ == n
        # 20 us until kernels run, 8.4 of NCCL's call; the links have no latency
        assert found[name, "F"].seconds == pytest.approx(28.4e-6 + n / 2 / 450e9)


def test_cut_experts_without_sequence_parallelism_add_up_what_all_have(mixture: Mixture) -> None:
    study = mixture("tp = 8, etp = 8", EVEN, model="use catalog.models.mixtral_8x7b")
    found = works(study)
    assert set(found) == {
        ("expert tensor all-reduce", "F"),
        ("expert tensor all-reduce, backward", "B"),
    }
    assert found["expert tensor all-reduce", "F"].bytes_ == 4096 * 2 * 4096 * 2


@pytest.mark.parametrize("layout", ["ep = 8, etp = 4", "etp = 8", "ep = 4, etp = 2, cp = 2"])
def test_ranks_that_no_tensor_is_cut_over_have_tokens_of_their_own(
    mixture: Mixture, layout: str
) -> None:
    """With tp = 1 there is no sequence to share, so the switch makes no difference."""
    off, on = (mixture(f"{layout}, sequence_parallel = {switch}", EVEN) for switch in ("off", "on"))
    assert works(off).keys() == works(on).keys()
    for key, work in works(on).items():
        assert works(off)[key].seconds == work.seconds
        assert works(off)[key].bytes_ == work.bytes_
    assert ("expert tensor all-gather", "F") in works(off)


@pytest.mark.parametrize("switch", ["off", "on"])
def test_cutting_experts_leaves_the_work_of_a_rank_as_it_is(mixture: Mixture, switch: str) -> None:
    """A part of an expert has a part of the columns, and the tokens of all parts."""

    def flops(etp: int) -> float:
        study = mixture(f"ep = 4, etp = {etp}, sequence_parallel = {switch}", EVEN)
        return sum(float(op.flops) for op in study.operators if "expert" in op.name)

    whole = flops(1)
    assert whole > 0
    for etp in (2, 4, 8):
        assert flops(etp) == pytest.approx(whole)


@pytest.mark.slow
def test_recomputed_layers_exchange_again(mixture: Mixture) -> None:
    whole = works(mixture("ep = 64", EVEN, training="recompute = full"))
    assert tuple(whole["expert dispatch", "R"].count) == (58,)
    half = works(
        mixture("ep = 64", EVEN, training="recompute = full", extra="recompute { every = 2 }")
    )
    assert tuple(half["expert combine", "R"].count) == (29,)  # layers 4, 6, ..., 60
    part = works(mixture("ep = 64", EVEN, extra="recompute { moe = on }"))
    assert tuple(part["expert combine", "R"].count) == (58,)


@pytest.mark.parametrize(
    ("hide", "window"), [("none", None), ("shared_experts", "shared experts"), ("pair", "")]
)
def test_the_exchange_hides_under_what_the_study_says(
    mixture: Mixture, hide: str, window: str | None
) -> None:
    study = mixture("ep = 64", f"{EVEN}, hide = {hide}")
    assert {term.window for term in works(study).values()} == {window}


@try_each(
    "layout, training, share",
    [
        ("ep = 64", "", 1 / 16),  # 1,024 sequences over 64 replicas, one at a time
        ("ep = 64", "micro_batch = 16", 1.0),
        ("pp = 4, ep = 16", "micro_batch = 8", 4 / 8),  # 16 replicas of four stages
        ("pp = 4, ep = 16", "micro_batch = 64", 1.0),
    ],
)
def test_passes_without_a_partner_expose_their_exchange(
    mixture: Mixture, layout: str, training: str, share: float
) -> None:
    stages = "schedule { stages = [16, 15, 15, 15] }" if "pp" in layout else ""
    given = {"training": training, "extra": stages}
    (whole, apart) = (
        works(mixture(layout, f"{EVEN}, hide = {hide}", **given)) for hide in ("none", "pair")
    )
    for key, term in whole.items():
        assert apart[key].alone == pytest.approx(share)
        assert apart[key].seconds == pytest.approx(term.seconds)
        assert apart[key].bytes_ == pytest.approx(term.bytes_)


@pytest.mark.slow
def test_shared_experts_cover_the_exchange_as_far_as_they_go(mixture: Mixture) -> None:
    from parcost.engine import reduce

    none, shared, pair = (
        reduce.evaluate(
            mixture("ep = 64", f"{EVEN}, hide = {hide}", extra="overlap { multiprocessors = 0 }")
        ).step_seconds
        for hide in ("none", "shared_experts", "pair")
    )
    assert pair < shared < none


@pytest.mark.parametrize(("devices", "ep"), [(4, 1), (16, 4)])
def test_what_tensor_parallel_ranks_send_hides_under_shared_experts_as_well(
    devices: int, ep: int
) -> None:
    text = f"""
    use catalog.devices.h100_sxm
    use catalog.fabrics.hgx_h100
    use catalog.precisions.bf16
    use catalog.models.deepseek_v2_lite
    cluster {{ devices = {devices} }}
    layout {{ tp = 4, ep = {ep}, sequence_parallel = on }}
    overlap {{ tensor = on, multiprocessors = 0 }}
    routing {{ distribution = balanced }}
    training {{ sequence = 4096, micro_batch = 4, global_batch = {devices} sequences }}
    """
    (scenario,) = parcost.load_text(text)
    steps = {
        hide: scenario.replace({"routing.hide": hide}).evaluate().result.outcome.step_seconds
        for hide in ("none", "shared_experts")
    }
    if ep == 1:  # nothing is exchanged, and all else hides as it did
        assert steps["shared_experts"] == pytest.approx(steps["none"], rel=1e-12)
    else:
        assert steps["shared_experts"] < steps["none"]


def test_experts_that_stay_on_their_rank_exchange_nothing(mixture: Mixture) -> None:
    assert not works(mixture("ep = 1"))
    assert exchange_of(mixture("ep = 1")) is None
    dense = mixture("", model="use catalog.models.llama3_8b")
    assert not works(dense)


@pytest.mark.slow
def test_a_sweep_over_ranks_equals_its_points(mixture: Mixture) -> None:
    for routing in (EVEN, "deduplicate = on", "distribution = dirichlet, concentration = 6400"):
        swept = seconds(mixture("ep = [1, 8, 16, 64]", routing))
        for index, ep in enumerate((1, 8, 16, 64)):
            point = seconds(mixture(f"ep = {ep}", routing))
            for key, many in swept.items():
                expected = pytest.approx(point.get(key, 0.0), rel=1e-12)
                assert many.flat[index] == expected, key


def seconds(study: Study) -> dict[tuple[str, str], Any]:
    """Seconds by name and pass; points that use different links have terms of their own."""
    found: dict[tuple[str, str], Any] = {}
    for plugin, term in study.contributions("terms"):
        if plugin.name == "expert_parallel.exchange":
            key = (term.name, term.pass_)
            found[key] = found.get(key, 0.0) + term.seconds
    return found


def test_buffers_hold_what_may_arrive(mixture: Mixture) -> None:
    def buffer_bytes(routing: str) -> float:
        study = mixture("ep = 64", routing)
        (term,) = [
            t for p, t in study.contributions("memory") if p.name == "expert_parallel.buffers"
        ]
        assert term.once_per_device
        return term.bytes_

    each = 4096 * 8 * 7168 * (2 + 2)
    assert buffer_bytes("imbalance = 1") == each
    assert buffer_bytes("imbalance = 1.5") == 1.5 * each
    assert buffer_bytes("imbalance = 1.5, buffer_factor = 3") == 3 * each
    assert buffer_bytes("capacity_factor = 1.25") == 1.25 * each


COUNTS = "token counts all-gather"


def test_no_counts_are_not_gathered(mixture: Mixture) -> None:
    some, none = (
        set(works(mixture("ep = 64", f"counts = {size}", latency="5 us")))
        for size in ("4 B", "0 B")
    )
    assert some - none == {(COUNTS, "F")}


def test_a_sweep_to_no_counts_pays_no_latency(mixture: Mixture) -> None:
    found = works(mixture("ep = 64", "counts = [0 B, 4 B]", latency="5 us"))[COUNTS, "F"]
    none, some = found.seconds  # type: ignore[misc]
    assert none == 0.0
    assert some > 5e-6


@pytest.mark.parametrize(
    ("training", "extra"), [("recompute = full", ""), ("", "recompute { moe = on }")]
)
def test_repeated_dispatches_count_again(mixture: Mixture, training: str, extra: str) -> None:
    found = works(mixture("ep = 64", training=training, extra=extra))
    assert tuple(found[COUNTS, "R"].count) == tuple(found["expert dispatch", "R"].count)
    assert found[COUNTS, "R"].seconds == found[COUNTS, "F"].seconds
