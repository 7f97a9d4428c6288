"""Passes at once: what hides under what, and where the ledger says so; and two copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

from parcost import Pipeline
from parcost.contract.plugin import Plugin
from parcost.engine.maxima import total
from parcost.engine.reduce import reduce


def passes(make: Any, compute: Any, net: Any, **more: Any) -> list[Any]:
    """Return F, B and W that compute, and then communicate what nothing of their own hides."""
    return [
        *(make.work("kernels", s, k) for k, s in zip("FBW", compute, strict=True)),
        *(
            make.work("exchange", s, k, resource="net", **more)
            for k, s in zip("FBW", net, strict=True)
        ),
    ]


def line(outcome: Any, name: str, pass_: str) -> Any:
    (found,) = [x for x in outcome.ledger if (x.name, x.pass_) == (name, pass_)]
    return found


def test_a_fifth_that_is_communication_hides_in_every_pair(make: Any) -> None:
    works = passes(make, (8.0, 8.0, 8.0), (2.0, 2.0, 2.0))
    found = make.step(*works, p=8, m=32.0, schedule="dualpipe")
    assert found.step_seconds == 864  # F = B = W = 10, and a pair is 24
    assert found.run.times.pair(0, 7) == 24


def test_communication_hidden_by_pairs_counts_as_hidden(make: Any) -> None:
    works = passes(make, (8.0, 8.0, 8.0), (2.0, 2.0, 2.0))
    found = make.step(*works, p=8, m=32.0, schedule="dualpipe")
    pairs = found.run.plan.orders[0][1].pairs[int(found.device)]
    often = sum(pairs.values())  # of the device that has the fewest: it is the busiest
    assert often == 32 - 12 + 1
    for kind in "FBW":
        assert line(found, "exchange", kind).hidden == pytest.approx(often * 2.0)
        assert line(found, "exchange", kind).exposed == pytest.approx((32 - often) * 2.0)
        assert line(found, "kernels", kind).exposed == 32 * 8.0
    assert found.step_seconds == total(x.exposed for x in found.ledger)
    assert found.ideal_seconds == pytest.approx(32 * 30.0 - often * 6.0)


def test_devices_with_equal_passes_are_as_busy_as_their_own_pairs_leave_them(make: Any) -> None:
    works = passes(make, (8.0, 8.0, 8.0), (2.0, 2.0, 2.0))
    found = make.step(*works, p=8, m=32.0, schedule="dualpipe")
    often = [sum(pairs.values()) for pairs in found.run.plan.orders[0][1].pairs]
    assert len(set(often)) > 1
    assert found.device_seconds == pytest.approx([32 * 30.0 - n * 6.0 for n in often])


@pytest.mark.parametrize(
    "compute, net, pair",
    [
        ((10.0, 10.0, 10.0), (0.0, 0.0, 0.0), 30.0),  # nothing to hide
        ((1.0, 1.0, 1.0), (9.0, 8.0, 0.0), 17.0),  # messages follow one another
        ((1.0, 20.0, 0.0), (3.0, 1.0, 0.0), 21.0),  # both halves are within the kernels
        ((0.0, 3.0, 3.0), (2.0, 5.0, 0.0), 11.0),  # no shorter than the longer half
    ],
)
def test_a_pair_is_as_long_as_its_kernels_its_messages_or_its_longer_half(
    compute: Any, net: Any, pair: float, make: Any
) -> None:
    found = make.step(*passes(make, compute, net), p=2, m=4.0, schedule="dualpipe")
    assert found.run.times.pair(1, 0) == pair


def test_a_resource_is_busy_in_a_pair_although_its_work_is_hidden(make: Any) -> None:
    """The host launches the kernels of both halves one after another, whatever it hides under."""
    works = passes(make, (10.0, 5.0, 5.0), (4.0, 2.0, 2.0))
    host = [make.work("host", s, k, resource="host", window="") for k, s in (("F", 14.0), ("B", 7))]
    alone, free = (
        make.step(*works, *more, p=2, m=4.0, schedule="dualpipe").run.times.pair(1, 0)
        for more in (host, ())
    )
    assert (alone, free) == (21.0, 20.0)
    beside = evolve(host[0], seconds=np.array([14.0, 40.0]))  # where it sticks out of a pass
    many = make.step(*works, beside, host[1], p=2, m=4.0, schedule="dualpipe")
    assert many.run.times.pair(1, 0)[0] == alone


def test_messages_on_two_resources_hide_beside_each_other(make: Any) -> None:
    works = [
        make.work("kernels", 1.0, "F"),
        make.work("kernels", 1.0, "B"),
        make.work("inside", 6.0, "F", resource="nvlink"),
        make.work("across", 7.0, "B", resource="network"),
    ]
    found = make.step(*works, p=2, m=4.0, schedule="dualpipe")
    assert found.run.times.pair(1, 0) == 8.0  # as long as the backward half alone


def test_kernels_are_slower_while_messages_hide(make: Any) -> None:
    works = passes(make, (8.0, 8.0, 8.0), (2.0, 2.0, 2.0), slowdown=0.25)
    found = make.step(*works, p=2, m=4.0, schedule="dualpipe")
    assert found.run.times.pair(1, 0) == 24.0 + 0.25 * 6.0


@pytest.mark.parametrize("share, pair", [(0.0, 30.0), (0.5, 27.0), (1.0, 24.0)])
def test_a_share_of_the_gain_may_be_had(share: float, pair: float, make: Any) -> None:
    works = [(Plugin("test"), w) for w in passes(make, (8.0, 8.0, 8.0), (2.0, 2.0, 2.0))]
    cut = Pipeline(schedule="dualpipe", stages=2, micro_batches=4.0, overlap=share)
    run = reduce(cut, make.schedules["dualpipe"], works).run
    assert run is not None
    assert run.times.pair(1, 0) == pair


# --- two copies ---------------------------------------------------------------------------


def test_every_device_of_two_directions_holds_the_parameters_of_two_stages(make: Any) -> None:
    works = passes(make, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    state = make.memory("state", 1.0, count=(10.0, 1.0, 1.0, 30.0))
    for schedule, m in (("dualpipe", 8.0), ("chimera", 8.0)):
        found = make.step(*works, state, p=4, m=m, schedule=schedule)
        assert list(found.device_memory) == [40.0, 2.0, 2.0, 40.0]


def test_activations_of_both_directions_add_up(make: Any) -> None:
    works = passes(make, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    found = make.step(
        *works, make.memory("activations", 2.0, per_micro_batch=True), p=8, m=32.0,
        schedule="dualpipe",
    )  # fmt: skip
    assert list(found.device_memory) == [18.0] * 8  # p + 1 micro-batches


def test_step_costs_count_for_every_copy(make: Any) -> None:
    works = passes(make, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    step = make.once("update", 1.0, "end", count=(5.0, 1.0, 1.0, 2.0))
    plain = make.step(*works, p=4, m=8.0, schedule="dualpipe")
    found = make.step(*works, step, p=4, m=8.0, schedule="dualpipe")
    assert found.step_seconds == plain.step_seconds + 7.0


def test_each_copy_does_half_of_the_work(make: Any) -> None:
    works = [
        make.work("pass", 1.0, k, count=(4.0, 1.0, 1.0, 2.0), flops=10.0) for k in ("F", "B", "W")
    ]
    found = make.step(*works, p=4, m=8.0, schedule="chimera")
    assert found.ideal_seconds == 3 * (4 * 4 + 4 * 2)
    assert found.flops == 30.0 * (4 * 4 + 4 * 2)
    assert found.device == 0


def test_a_device_in_two_directions_sends_both_ways_for_both(make: Any) -> None:
    works = passes(make, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    edge = make.edge(0.125)
    found = make.step(*works, edge, p=4, m=8.0, schedule="chimera")
    (hop,) = [x for x in found.ledger if x.kind == "send_recv"]
    # Device 0 sends forward for the 4 micro-batches that enter there, and backward for the
    # 4 that turn round there.
    assert found.device == 0
    assert hop.times == 8


# --- freed at B ---------------------------------------------------------------------------


@pytest.mark.parametrize("freed, bytes_", [(0.0, 4.0), (1.0, 4.0), (0.5, 4.0)])
def test_the_first_stage_of_zb_h1_has_all_its_micro_batches_whole(
    freed: float, bytes_: float, make: Any
) -> None:
    works = passes(make, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    held = make.memory("activations", 1.0, per_micro_batch=True, freed_at_b=freed)
    found = make.step(*works, held, p=4, m=16.0, schedule="zb_h1")
    assert found.memory_bytes == bytes_


@pytest.mark.parametrize("freed, last", [(0.0, 4.0), (0.5, 2.5), (1.0, 1.0)])
def test_the_last_stage_of_zb_h1_holds_what_w_needs_of_p_micro_batches(
    freed: float, last: float, make: Any
) -> None:
    works = passes(make, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    held = make.memory("activations", 1.0, per_micro_batch=True, freed_at_b=freed)
    found = make.step(*works, held, p=4, m=16.0, schedule="zb_h1")
    assert found.device_memory[3] == last


def test_what_is_freed_at_b_does_not_matter_where_b_and_w_are_one(make: Any) -> None:
    works = passes(make, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))
    held = make.memory("activations", 1.0, per_micro_batch=True)
    plain = make.step(*works, held, p=4, m=16.0)
    found = make.step(*works, evolve(held, freed_at_b=0.5), p=4, m=16.0)
    assert list(found.device_memory) == list(plain.device_memory)
