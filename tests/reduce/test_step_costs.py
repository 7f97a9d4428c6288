"""What is spent once per step: what hides in fill, in drain, and beside a micro-batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def line(outcome: Any, name: str) -> Any:
    return next(x for x in outcome.ledger if x.name == name)


def stages(make: Any, f: float = 1.0, b: float = 2.0, w: float = 1.0) -> list[Any]:
    return [make.work("f", f), make.work("b", b, "B"), make.work("w", w, "W")]


# --- buckets ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "buckets, exposed",
    [(1, 2.921667e-3), (16, 187.2917e-6)],
)
def test_buckets_of_500_mb_hide_under_200_ms_of_backward(
    buckets: int, exposed: float, make: Any
) -> None:
    volume, alpha = 2.916667e-3, 5e-6
    reduction = make.once(
        "reduce",
        buckets * alpha + volume,
        "drain",
        resource="link",
        beside=1 - 1 / buckets,
        tail=alpha + volume / buckets,
    )
    found = make.step(make.work("b", 0.2, "B"), reduction)
    assert line(found, "reduce").exposed == pytest.approx(exposed, rel=1e-5)


def test_more_buckets_than_fit_are_bound_by_the_wire(make: Any) -> None:
    # N tau - T_b (1 - 1/N) with T_b = 2, N = 4, tau = 1
    reduction = make.once("reduce", 4.0, "drain", resource="link", beside=0.75, tail=1.0)
    found = make.step(make.work("b", 2.0, "B"), reduction)
    assert line(found, "reduce").exposed == 4.0 - 2.0 * 0.75


def test_compute_covers_only_while_the_wire_is_free(make: Any) -> None:
    backward = [make.work("b", 6.0, "B"), make.work("gather", 4.0, "B", resource="link")]
    for resource, exposed in (("link", 8.0 - 6.0), ("network", 0.0)):
        reduction = make.once("reduce", 8.0, "drain", resource=resource, beside=1.0)
        found = make.step(*backward, reduction)
        assert found.step_seconds == 10.0 + exposed


def test_a_reduction_finds_room_on_every_resource_that_it_keeps_busy(make: Any) -> None:
    backward = [make.work("b", 6.0, "B"), make.work("gather", 4.0, "B", resource="link")]
    for share, exposed in ((0.5, 0.0), (1.0, 2.0), (0.875, 1.0)):  # of 8 s, beyond 6
        on = {"resource": "network", "also": ("link",), "also_busy": (share,)}
        found = make.step(*backward, make.once("reduce", 8.0, "drain", beside=1.0, **on))
        assert found.step_seconds == 10.0 + exposed


def test_only_the_last_micro_batch_covers(make: Any) -> None:
    reduction = make.once("reduce", 8.0, "drain", resource="link", beside=1.0)
    found = make.step(make.work("f", 1.0), make.work("b", 2.0, "B"), reduction, m=10.0)
    assert line(found, "reduce").exposed == 6.0


def test_recomputation_covers_too(make: Any) -> None:
    reduction = make.once("reduce", 8.0, "drain", resource="link", beside=1.0)
    works = [make.work(k, 2.0, k) for k in "RBW"]
    assert line(make.step(*works, reduction), "reduce").exposed == 2.0


def test_only_weight_gradients_cover_where_they_are_split_off(make: Any) -> None:
    reduction = make.once("reduce", 8.0, "drain", resource="link", beside=1.0)
    found = make.step(*stages(make, 1, 2, 3), reduction, schedule="zb_h1", m=4.0)
    assert line(found, "reduce").exposed == 5.0


def test_terms_of_a_stage_run_one_after_another_and_share_their_cover(make: Any) -> None:
    works = [make.work("backward", 10.0, "B")]
    a = make.once("a", 6.0, "drain", resource="link", beside=1.0)
    b = make.once("b", 7.0, "drain", resource="link", beside=1.0)
    other = make.once("c", 7.0, "drain", resource="network")
    found = make.step(*works, b, other, a)
    assert [line(found, n).exposed for n in "abc"] == [0.0, 3.0, 7.0]


# --- compute that is slowed down ----------------------------------------------------------


def test_each_second_under_compute_slows_it_down(make: Any) -> None:
    # 8 s, of which 0.75 x 4 = 3 s run under backward; each takes 0.25 s from it.
    reduction = make.once(
        "reduce", 8.0, "drain", resource="link", beside=0.75, tail=2.0, slowdown=0.25
    )
    found = make.step(make.work("b", 4.0, "B"), reduction)
    assert line(found, "reduce").exposed == 5.0
    slowdown = line(found, "slowdown by reduce")
    assert (slowdown.kind, slowdown.pass_, slowdown.resource) == ("slowdown", "drain", "compute")
    assert slowdown.exposed == 0.75
    assert slowdown.formula.inputs == {"kappa": (0.25, ""), "t": (3.0, "s")}
    assert found.step_seconds == 4.0 + 5.0 + 0.75


def test_terms_hidden_by_idle_time_slow_nothing_down(make: Any) -> None:
    # Stage 1 ends 3 s before the step does, which hides its reduction without compute.
    reduction = make.once("reduce", 3.0, "drain", count=(0, 1), resource="link", slowdown=0.5)
    found = make.step(*stages(make), reduction, p=2, m=4.0)
    assert found.step_seconds == found.makespan_seconds
    assert not [x for x in found.ledger if x.kind == "slowdown"]


def test_idling_makes_up_for_slower_compute_last(make: Any) -> None:
    # Stage 1 idles 2 s at the end. Of its reduction 2 s hide under backward, which takes
    # 1 s longer by it; the rest comes first to meet the 2 s.
    for seconds, reduced, slower in ((3.0, 0, 0), (3.5, 0, 0.5), (4.0, 0, 1), (5.0, 1, 1)):
        reduction = make.once(
            "reduce", seconds, "drain", count=(0, 1, 0), resource="link",
            beside=1.0, tail=seconds - 2.0, slowdown=0.5,
        )  # fmt: skip
        found = make.step(*stages(make, 1, 2, 0), reduction, p=3, m=4.0)
        exposed = {x.name: x.exposed for x in found.ledger}
        assert found.step_seconds - found.makespan_seconds == reduced + slower
        assert exposed["reduce"] == reduced
        assert exposed["slowdown by reduce"] == slower
        assert line(found, "slowdown by reduce").hidden == 1.0 - slower


def test_a_gather_slows_the_first_forward_pass(make: Any) -> None:
    gather = make.once("gather", 8.0, "fill", resource="link", beside=0.5, slowdown=0.25)
    found = make.step(make.work("f", 4.0), gather, m=3.0)
    assert found.step_seconds == 3 * 4.0 + (8.0 - 2.0) + 2.0 * 0.25


# --- slack ------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b"])
def test_a_reduction_hides_in_the_drain_of_later_stages(schedule: str, make: Any) -> None:
    works = stages(make)  # stage s ends 3 s before the step
    for counts, exposed in (((1, 0, 0, 0), 5.0), ((0, 1, 0, 0), 2.0), ((0, 0, 1, 0), 0.0)):
        reduction = make.once("reduce", 5.0, "drain", count=counts, resource="link")
        found = make.step(*works, reduction, p=4, m=8.0, schedule=schedule)
        assert line(found, "reduce").exposed == exposed
        assert line(found, "reduce").hidden == 5.0 - exposed


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b"])
def test_a_gather_hides_in_the_fill_of_later_stages(schedule: str, make: Any) -> None:
    works = stages(make, f=2.0)  # stage s starts at 2 s
    for counts, exposed in (((1, 0, 0, 0), 5.0), ((0, 1, 0, 0), 3.0), ((0, 0, 0, 1), 0.0)):
        gather = make.once("gather", 5.0, "fill", count=counts, resource="link")
        found = make.step(*works, gather, p=4, m=8.0, schedule=schedule)
        assert line(found, "gather").exposed == exposed
        assert line(found, "gather").hidden == 5.0 - exposed


def test_stage_0_exposes_all_when_every_stage_gathers_alike(make: Any) -> None:
    gather = make.once("gather", 5.0, "fill", resource="link")
    found = make.step(*stages(make), gather, p=4, m=8.0)
    assert line(found, "gather").exposed == 5.0
    assert found.step_seconds == found.makespan_seconds + 5.0


@pytest.mark.parametrize("schedule, p, v", [("one_f_one_b", 4, 1), ("interleaved", 2, 2)])
def test_stages_that_gather_on_arrival_wait_one_after_another(
    schedule: str, p: int, v: int, make: Any
) -> None:
    more = {"p": p, "v": v, "m": 8.0, "schedule": schedule}
    for counts in ((1, 1, 1, 1), (1, 0, 1, 0), (0, 0, 0, 1)):
        gather = make.once("gather", 5.0, "fill", count=counts, resource="link", on_arrival=True)
        found = make.step(*stages(make), gather, **more)
        assert line(found, "gather").exposed == pytest.approx(5.0 * sum(counts))
        assert found.step_seconds == pytest.approx(found.makespan_seconds + 5.0 * sum(counts))
    hidden = make.once("gather", 5.0, "fill", resource="link", on_arrival=True, beside=1.0)
    found = make.step(*stages(make), hidden, **more)  # each under its own forward pass of 1 s
    assert found.step_seconds == pytest.approx(found.makespan_seconds + 4 * 4.0)


def test_a_late_stage_costs_only_what_the_pipeline_takes_longer(make: Any) -> None:
    # Stage 0 does all the work: its own 8 x 10 s hide that stage 1 starts 3 s late.
    works = [
        make.work("f", 4.0, count=(1, 0)),
        make.work("b", 6.0, "B", count=(1, 0)),
    ]
    gather = make.once("gather", 7.0, "fill", count=(0, 1), resource="link")
    found = make.step(*works, gather, p=2, m=8.0)
    assert found.makespan_seconds == 80.0
    assert line(found, "gather").exposed == 0.0
    late = make.step(*works, make.once("gather", 9.0, "fill", count=(0, 1)), p=2, m=8.0)
    assert late.step_seconds == 81.0  # F F until 8, then BW waits for stage 1


def test_a_gather_hides_beside_the_first_forward_pass_but_for_its_first_bucket(make: Any) -> None:
    gather = make.once("gather", 8.0, "fill", resource="link", beside=0.75, tail=2.0)
    assert line(make.step(make.work("f", 4.0), gather), "gather").exposed == 8.0 - 3.0
    assert line(make.step(make.work("f", 12.0), gather), "gather").exposed == 2.0


def test_the_longest_stage_counts_and_is_listed(make: Any) -> None:
    works = stages(make)
    found = make.step(
        *works,
        make.once("first", 4.0, "drain", count=(1, 0)),
        make.once("second", 8.0, "drain", count=(0, 1)),
        p=2,
        m=4.0,
    )
    assert found.step_seconds == found.makespan_seconds + 5.0
    assert line(found, "second").exposed == 5.0
    assert not [x for x in found.ledger if x.name == "first"]


def test_the_end_waits_for_all_and_hides_nothing(make: Any) -> None:
    found = make.step(
        *stages(make),
        make.once("optimizer", 3.0, "end", count=(1, 2)),
        make.once("norm", 0.5, "end"),
        p=2,
        m=4.0,
    )
    assert line(found, "optimizer").exposed == 6.0
    assert line(found, "norm").exposed == 0.5
    assert found.step_seconds == found.makespan_seconds + 6.5


def test_groups_add_up_one_after_another(make: Any) -> None:
    found = make.step(
        *stages(make),
        make.once("gather", 2.0, "fill", resource="link"),
        make.once("reduce", 3.0, "drain", resource="link"),
        make.once("optimizer", 4.0, "end"),
        p=4,
        m=8.0,
    )
    assert [x.name for x in found.ledger if x.kind == "once"] == ["gather", "reduce", "optimizer"]
    assert found.step_seconds == 11 * 4.0 + 2.0 + 3.0 + 4.0


# --- several virtual stages on a device -----------------------------------------------------


def test_gradients_of_later_chunks_are_reduced_while_earlier_ones_run(make: Any) -> None:
    # p = 1, v = 2, m = 1: F0 F1 BW1 BW0, each 3 s; chunk 1 is ready 3 s before the end.
    works = [make.work("f", 3.0), make.work("b", 3.0, "B")]
    for seconds, exposed in ((2.0, 2.0), (3.0, 3.0), (5.0, 7.0)):
        reduction = make.once("reduce", seconds, "drain", resource="link")
        found = make.step(*works, reduction, v=2, schedule="interleaved")
        assert found.step_seconds == 12.0 + exposed
        assert line(found, "reduce").times == 2.0
        assert line(found, "reduce").hidden == 2 * seconds - exposed


def test_gradients_that_wait_for_the_device_are_reduced_after_its_last_chunk(make: Any) -> None:
    works = [make.work("f", 1.0), make.work("b", 2.0, "B")]
    chunks: dict[str, Any] = {"p": 2, "m": 2.0, "v": 2, "schedule": "interleaved"}
    # four chunks of 3 s a micro-batch pair, and one chunk of bubble; chunk 1 is ready 6 s early
    for after_device, exposed in ((False, 1.5), (True, 3.0)):
        reduction = make.once("reduce", 1.5, "drain", resource="link", after_device=after_device)
        found = make.step(*works, reduction, **chunks)
        assert found.makespan_seconds == 15.0
        assert found.step_seconds == 15.0 + exposed
        assert line(found, "reduce").exposed == exposed
        assert line(found, "reduce").hidden == 3.0 - exposed
    # the second device ends 2 s before the first, which has nothing to reduce
    late = make.once("reduce", 1.5, "drain", count=(0, 1, 0, 1), resource="link", after_device=True)
    assert make.step(*works, late, **chunks).step_seconds == 15.0 - 2.0 + 3.0


@pytest.mark.parametrize("seconds, exposed", [(4.0, 4.0), (16.0, 16.0), (20.0, 24.0)])
def test_all_reductions_but_the_last_hide_under_the_chunks_of_breadth_first(
    seconds: float, exposed: float, make: Any
) -> None:
    works = [make.work("pass", s, k) for s, k in ((1.0, "F"), (2.0, "B"))]
    reduction = make.once("reduce", seconds, "drain", resource="link")
    found = make.step(*works, reduction, p=4, m=8.0, v=2, schedule="breadth_first")
    # Chunk 1 of the first device is done 8 passes of 2 s before chunk 0, which is done last.
    assert found.makespan_seconds == (8 * 2 + 3) * 3.0
    assert found.step_seconds == found.makespan_seconds + exposed


def test_a_reduction_that_queues_behind_another_has_less_compute_to_hide_under(make: Any) -> None:
    # Of 5 s, 3 hide under BW1, so the wire is free at 11; BW0 ends at 12, and the rest
    # of the second 5 s ends at 16 and not at 14.
    works = [make.work("f", 3.0), make.work("b", 3.0, "B")]
    reduction = make.once("reduce", 5.0, "drain", resource="link", beside=1.0)
    found = make.step(*works, reduction, v=2, schedule="interleaved")
    assert found.step_seconds == 16.0
    assert line(found, "reduce").exposed == 4.0


def test_parameters_of_later_chunks_are_gathered_while_earlier_ones_run(make: Any) -> None:
    works = [make.work("f", 3.0), make.work("b", 3.0, "B")]
    for seconds, exposed in ((2.0, 2.0), (3.0, 3.0), (5.0, 7.0)):
        gather = make.once("gather", seconds, "fill", resource="link")
        found = make.step(*works, gather, v=2, schedule="interleaved")
        assert found.step_seconds == 12.0 + exposed


def test_a_wire_that_chunks_keep_busy_has_no_time_for_their_reductions(make: Any) -> None:
    works = [make.work("f", 3.0), make.work("b", 3.0, "B", resource="link")]
    reduction = make.once("reduce", 3.0, "drain", resource="link")
    found = make.step(*works, reduction, v=2, schedule="interleaved")
    assert found.step_seconds >= 2 * 3.0 + 2 * 3.0
    busy = make.step(
        make.work("f", 0.0), make.work("b", 3.0, "B", resource="link"), reduction,
        v=2, schedule="interleaved",
    )  # fmt: skip
    assert busy.step_seconds == 12.0


# --- candidates ------------------------------------------------------------------------------


def test_the_longest_stage_is_chosen_for_each_candidate(make: Any) -> None:
    seconds = np.array([1.0, 5.0, 20.0])
    terms = [
        make.once("first", 4.0, "drain", count=(1, 0)),
        make.once("second", seconds, "drain", count=(0, 1)),
    ]
    found = make.step(*stages(make), *terms, p=2, m=4.0)
    assert list(found.step_seconds - found.makespan_seconds) == [4.0, 4.0, 17.0]
    assert list(line(found, "first").exposed) == [4.0, 4.0, 0.0]
    assert list(line(found, "second").exposed) == [0.0, 0.0, 17.0]
