"""Gradients reduced and parameters gathered over replicas, ZeRO 0 to 3.

The plain study's link does 1 GB/s without latency, so a ring of two ranks moves n bytes
of an all-gather or a reduce-scatter in n / 2e9 seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from parcost import Formula, Once, Outcome, Study, Work
from parcost.engine.reduce import evaluate
from parcost.plugins.discovery import load
from parcost_plugins.vocabulary import Parameters

from ..rows import mark_most, try_each

Bind = Callable[..., Study]

TWO = {"cluster.devices": 2, "training.global_batch": 2}
OVERLAP = {"overlap.gradients": "on", "overlap.parameters": "on"}


def parameters_record(
    elements: float, count: Sequence[float] = (1.0,), place: str = "layer", **more: float
) -> Parameters:
    total = more.get("total", elements)
    name = f"{place} {count}"
    return Parameters(name=name, elements=elements, total=total, count=count, place=place)  # type: ignore[arg-type]


def work(pass_: Any, seconds: float, count: Sequence[float] = (1.0,), host: str = "") -> Work:
    formula = Formula(text="given")
    return Work(name=pass_, seconds=seconds, pass_=pass_, formula=formula, count=count, host=host)


def ours(study: Study) -> dict[tuple[str, str], Any]:
    """Return the terms of data parallelism by name and pass."""
    found = [term for plugin, term in study.contributions("terms") if ".data" in plugin.name]
    assert study.faults == []
    return {(term.name, getattr(term, "pass_", "")): term for term in found}


def once_term(study: Study, name: str) -> Once:
    term = ours(study)[name, ""]
    assert isinstance(term, Once)
    return term


def exposed_seconds(outcome: Outcome, name: str) -> Any:
    return sum(line.exposed for line in outcome.ledger if line.name == name)


def step(study: Study) -> Any:
    """Return the step without the optimizer, which is not at issue here."""
    outcome = evaluate(study)
    assert study.faults == []
    return outcome.step_seconds - exposed_seconds(outcome, "optimizer update")


# --- ZeRO 0 and 1: once per step ----------------------------------------------------------


def test_zero_0_reduces_fp32_gradients_once(bind: Bind) -> None:
    term = once_term(bind(TWO, parameters=[parameters_record(1e9)]), "gradient all-reduce")
    assert term.seconds == pytest.approx(2 * 0.5 * 4e9 / 1e9)
    assert (term.when, term.resource, term.bytes_) == ("drain", "net", 4e9)


def test_zero_1_scatters_gradients_and_gathers_parameters(bind: Bind) -> None:
    study = bind({**TWO, "layout.zero": 1}, parameters=[parameters_record(1e9)])
    assert once_term(study, "gradient reduce-scatter").seconds == pytest.approx(0.5 * 4e9 / 1e9)
    gather = once_term(study, "parameter all-gather")
    assert gather.seconds == pytest.approx(0.5 * 2e9 / 1e9)
    assert gather.when == "end"


@try_each("zero", range(4))
def test_one_replica_costs_nothing(bind: Bind, zero: int) -> None:
    parameters = [parameters_record(1e9, (8.0,)), parameters_record(1e8, place="before")]
    study = bind({"cluster.devices": 1, "layout.zero": zero}, parameters=parameters)
    assert all(term.seconds == 0 for term in ours(study).values())


@pytest.mark.slow
def test_the_worked_example_of_70b_parameters_on_64_devices(bind: Bind) -> None:
    # 80 layers of 855,638,016 in matrices and 16,384 in norms, a vocabulary of 128,256
    # rows; tp 8 shards matrices and rows, every rank holds the norms.
    layer, rows = 855_638_016 / 8 + 16_384, 128_256 * 8192 / 8
    assert layer * 20 + rows == 2_270_756_864
    study = bind(
        {
            "cluster.devices": 64,
            "wire.net.bandwidth": 45e9,
            "plain.memory_bandwidth": 3.35e12,
            "plain.memory_efficiency": 0.85,
            "small.layers": 80,
            "layout.tp": 8,
            "layout.pp": 4,
            "layout.zero": 1,
        },
        parameters=[
            parameters_record(layer, (20.0, 20.0, 20.0, 20.0)),
            parameters_record(rows, (1.0, 0.0, 0.0, 0.0), "before"),
            parameters_record(rows + 8192, (0.0, 0.0, 0.0, 1.0), "after"),
        ],
    )
    seconds = {t.name: t.seconds for _, t in study.contributions("terms")}
    assert seconds["gradient reduce-scatter, stage 0"] == pytest.approx(0.100923, abs=5e-7)
    assert seconds["parameter all-gather, stage 0"] == pytest.approx(0.050461, abs=5e-7)
    assert seconds["optimizer update, stage 0"] == pytest.approx(0.011962, abs=5e-7)


@pytest.mark.slow
def test_stages_that_hold_the_same_are_priced_once_and_named(bind: Bind) -> None:
    parameters = [
        parameters_record(1e6, (2.0, 2.0, 2.0, 2.0)),
        parameters_record(5e6, (1.0, 0.0, 0.0, 0.0), "before"),
        parameters_record(6e6, (0.0, 0.0, 0.0, 1.0), "after"),
    ]
    study = bind({"layout.pp": 4}, parameters=parameters)
    assert {name: term.count for (name, _), term in ours(study).items()} == {
        "gradient all-reduce, stage 0": (1.0, 0.0, 0.0, 0.0),
        "gradient all-reduce, stages 1 to 2": (0.0, 1.0, 1.0, 0.0),
        "gradient all-reduce, stage 3": (0.0, 0.0, 0.0, 1.0),
    }


# --- buckets ------------------------------------------------------------------------------


def bucketed(bind: Bind, bucket: float, backward: float = 0.2) -> Any:
    """Expose 500 MB of gradients over 8 ranks at 300 GB/s, 5 us for each all-reduce."""
    study = bind(
        {
            "wire.net.bandwidth": 300e9,
            "wire.net.latency": 5e-6 / 14,  # a ring of 8 ranks sends 14 times
            "overlap.gradients": "on",
            "overlap.bucket": bucket,
        },
        parameters=[parameters_record(125e6)],
        terms=[work("F", 0.1), work("B", backward)],
    )
    return exposed_seconds(evaluate(study), "gradient all-reduce")


def test_sixteen_buckets_leave_the_last_one_exposed(bind: Bind) -> None:
    assert bucketed(bind, 31.25e6) == pytest.approx(187.2917e-6, rel=1e-6)


def test_one_bucket_has_nothing_to_hide_under(bind: Bind) -> None:
    assert bucketed(bind, 500e6) == pytest.approx(2.921667e-3, rel=1e-6)


def test_a_reduction_longer_than_backward_leaves_the_excess(bind: Bind) -> None:
    # N tau - (1 - 1/N) T_b with N = 16, tau = 187.29 us, T_b = 1 ms
    expected = 16 * 187.291667e-6 - 15 / 16 * 1e-3
    assert bucketed(bind, 31.25e6, backward=1e-3) == pytest.approx(expected, rel=1e-6)


def test_without_overlap_everything_is_exposed_after_backward(bind: Bind) -> None:
    study = bind(TWO, parameters=[parameters_record(1e9)], terms=[work("F", 10.0), work("B", 20.0)])
    assert exposed_seconds(evaluate(study), "gradient all-reduce") == pytest.approx(4.0)


def test_gathered_parameters_hide_under_the_first_forward_but_for_a_bucket(bind: Bind) -> None:
    values = {**TWO, **OVERLAP, "layout.zero": 1, "overlap.bucket": 500e6}
    study = bind(
        values, parameters=[parameters_record(1e9)], terms=[work("F", 10.0), work("B", 20.0)]
    )
    # 4 GB of gradients are 8 buckets, and their parameters, 2 GB, take 1 s.
    assert exposed_seconds(evaluate(study), "parameter all-gather") == pytest.approx(1 / 8)


@pytest.mark.parametrize("start, waits", [("step", 1), ("arrival", 2)])
def test_stages_that_gather_on_arrival_wait_in_turn(bind: Bind, start: str, waits: int) -> None:
    values = {"cluster.devices": 4, "layout.pp": 2, **OVERLAP, "layout.zero": 1}
    study = bind(
        {**values, "overlap.bucket": 500e6, "overlap.gather_start": start},
        parameters=[parameters_record(1e9, (1.0, 1.0))],
        terms=[work("F", 0.1, (1.0, 1.0)), work("B", 20.0, (1.0, 1.0))],
    )
    # 2 GB take 1 s in 8 buckets on each stage, and 7/8 of a forward pass hide 0.0875 s of that.
    name = "parameter all-gather"
    assert exposed_seconds(evaluate(study), name) == pytest.approx(waits * 0.9125)


def test_stages_that_drain_early_reduce_while_the_others_drain(bind: Bind) -> None:
    # Stage 1 ends its last backward pass 20 s before stage 0 does.
    study = bind(
        {"cluster.devices": 4, "layout.pp": 2},
        parameters=[
            parameters_record(1e9, (2.0, 0.0), "before"),
            parameters_record(1e9, (4.0, 4.0)),
        ],
        terms=[work("F", 10.0, (1.0, 1.0)), work("B", 20.0, (1.0, 1.0))],
    )
    lines = {line.name: line.exposed for line in evaluate(study).ledger}
    assert lines["gradient all-reduce, stage 0"] == pytest.approx(24.0)
    assert "gradient all-reduce, stage 1" not in lines  # 16 s


@try_each(
    "more, head, exposed",
    [
        ({}, 4.0, 0.0),  # of 1 s, beside 4 s of the head
        ({}, 0.25, 0.75),
        ({"sharding.prefetch": 0}, 4.0, 1.0),
        ({"overlap.parameters": "off"}, 4.0, 1.0),
    ],
)
def test_the_last_layer_is_gathered_beside_the_head(
    bind: Bind, more: dict[str, Any], head: float, exposed: float
) -> None:
    values = {**TWO, **OVERLAP, **more, "layout.zero": 3, "small.layers": 4}
    products = evolve(work("B", head, host="head, by columns"), name="head")
    terms = [work("F", 20.0), work("B", 20.0), products]
    study = bind(values, parameters=[parameters_record(1e9, (4.0,))], terms=terms)
    lines = evaluate(study).ledger
    found = [t.exposed for t in lines if (t.name, t.pass_) == ("first parameter all-gather", "B")]
    assert sum(found) == pytest.approx(exposed)


# --- ZeRO 2: every micro-batch ------------------------------------------------------------


@pytest.mark.parametrize(("overlap", "buckets"), [({}, 4), (OVERLAP, 1)])
def test_zero_2_reduces_in_every_micro_batch_bucket_by_bucket(
    bind: Bind, overlap: dict[str, str], buckets: int
) -> None:
    # 4 GB leave in four buckets of 1 GB, each half a second and a message's latency; all
    # are exposed where none may hide, and else the last.
    values = {**TWO, **overlap, "layout.zero": 2, "training.global_batch": 6}
    values["wire.net.latency"] = 0.25
    study = bind(
        values, parameters=[parameters_record(1e9)], terms=[work("F", 10.0), work("B", 20.0)]
    )
    outcome = evaluate(study)
    assert exposed_seconds(outcome, "last gradient bucket") == pytest.approx(3 * 0.75)
    rest = exposed_seconds(outcome, "gradient reduce-scatter")
    assert rest == pytest.approx(3 * 0.75 * (buckets - 1))


@pytest.mark.parametrize(("zero", "messages"), [(0, 2), (1, 1)])
def test_whole_gradients_that_may_not_hide_leave_in_one_message(
    bind: Bind, zero: int, messages: int
) -> None:
    values = {**TWO, "layout.zero": zero, "overlap.bucket": 1e8, "wire.net.latency": 0.25}
    study = bind(values, parameters=[parameters_record(1e9)])
    name = ["gradient all-reduce", "gradient reduce-scatter"][zero]
    # a ring of two: a reduce-scatter is one round of 2 GB, an all-reduce two
    assert once_term(study, name).seconds == pytest.approx(messages * 2.25)


# --- ZeRO 3: every layer ------------------------------------------------------------------


def layers(bind: Bind, depth: int, forward: float, backward: float, **more: Any) -> Study:
    """Bind *depth* layers whose gather and whose reduction take 3 s each."""
    values = {**TWO, **OVERLAP, "layout.zero": 3, "mixed.reduction": 2, "small.layers": depth}
    terms = [
        work("F", forward, (depth,)),
        work("B", backward / 2, (depth,)),
        work("W", backward / 2, (depth,), host="weights"),
    ]
    more = {name.replace("__", "."): value for name, value in more.items()}
    return bind(
        {**values, **more}, parameters=[parameters_record(3e9, (float(depth),))], terms=terms
    )


def test_ten_layers_hide_all_but_the_first_gathers_and_the_last_reduction(bind: Bind) -> None:
    assert step(layers(bind, 10, 5.0, 10.0)) == pytest.approx(3 + 50 + 3 + 100 + 3)


@pytest.mark.slow
def test_backward_waits_for_gathers_and_reductions_on_the_same_wire(bind: Bind) -> None:
    assert step(layers(bind, 40, 5.0, 4.0)) == pytest.approx(447)


@pytest.mark.parametrize("depth", mark_most([1, 2, 7], 4))
@pytest.mark.parametrize("forward", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("backward", [2.0, 6.0, 16.0])
def test_a_pass_takes_what_two_streams_take(
    bind: Bind, depth: int, forward: float, backward: float
) -> None:
    # AG + (L - 1) max(F, AG) + F, then AG + (L - 1) max(BW, AG + RS) + BW + RS
    there = 3 + (depth - 1) * max(forward, 3) + forward
    back = 3 + (depth - 1) * max(backward, 6) + backward + 3
    assert step(layers(bind, depth, forward, backward)) == pytest.approx(there + back)


def test_without_overlap_gathers_and_reductions_are_serial(bind: Bind) -> None:
    study = layers(bind, 10, 5.0, 10.0, overlap__gradients="off", overlap__parameters="off")
    assert step(study) == pytest.approx(150 + 3 * 30)


def test_all_traffic_repeats_with_every_micro_batch(bind: Bind) -> None:
    one = layers(bind, 10, 5.0, 10.0)
    three = layers(bind, 10, 5.0, 10.0, training__global_batch=6)
    assert step(three) == pytest.approx(3 * step(one))


def test_the_embedding_is_gathered_first_and_the_head_kept_for_backward(bind: Bind) -> None:
    values = {**TWO, **OVERLAP, "layout.zero": 3, "mixed.reduction": 2, "small.layers": 10}
    study = bind(
        values,
        parameters=[
            parameters_record(1e9, place="before"),
            parameters_record(3e9, (10.0,)),
            parameters_record(2e9, place="after"),
        ],
        terms=[work("F", 5.0, (10.0,)), work("B", 10.0, (10.0,))],
    )
    found = {key: (term.seconds, term.window) for key, term in ours(study).items()}
    assert found["embedding parameter all-gather", "F"] == (1.0, None)
    assert found["embedding parameter all-gather", "B"] == (1.0, "")
    assert found["head parameter all-gather", "F"] == (2.0, "")
    assert ("head parameter all-gather", "B") not in found
    assert found["embedding gradient reduce-scatter", "W"] == (1.0, None)
    assert found["head gradient reduce-scatter", "W"] == (2.0, "")
    # Exposed: embedding and one layer before forward, one layer before backward, one
    # layer's and the embedding's gradients behind it.
    assert step(study) == pytest.approx(1 + 3 + 50 + 3 + 100 + 3 + 1)


@pytest.mark.slow
def test_compute_is_slower_while_traffic_hides_under_it(bind: Bind) -> None:
    # 16 of 132 multiprocessors: every hidden second costs 16 / 116 seconds of compute.
    taken = {"plain__multiprocessors": 132, "overlap__multiprocessors": 16}
    hidden = 9 * 3 * 3
    assert step(layers(bind, 10, 5.0, 10.0, **taken)) == pytest.approx(159 + 16 / 116 * hidden)


# --- an embedding that the head shares ----------------------------------------------------


@try_each("zero, shards", [(0, 1), (1, 1), (2, 2), (3, 2)])
def test_a_shared_embedding_is_added_up_by_both_ends(bind: Bind, zero: int, shards: int) -> None:
    # two replicas of four stages: from ZeRO 2 on each replica keeps half of the gradients
    parameters = [
        parameters_record(1e6, (2.0, 2.0, 2.0, 2.0)),
        parameters_record(1e9, (1.0, 0.0, 0.0, 0.0), "before"),
        parameters_record(1e9, (0.0, 0.0, 0.0, 1.0), "after", total=0.0),
    ]
    study = bind({"layout.pp": 4, "layout.zero": zero}, parameters=parameters)
    term = once_term(study, "shared embedding all-reduce")
    assert term.bytes_ == pytest.approx(4e9 / shards)
    assert term.seconds == pytest.approx(2 * 0.5 * 4e9 / shards / 1e9)
    assert list(term.count) == [1.0, 0.0, 0.0, 1.0]  # type: ignore[arg-type]
    assert term.when == "end"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "chunks"), [("dualpipe", 1), ("dualpipe_v", 2), ("zb_v", 2), ("interleaved", 2)]
)
def test_ends_that_stand_on_one_device_send_no_gradients(
    bind: Bind, kind: str, chunks: int
) -> None:
    """A V ends where it begins, and so do two ways through a pipeline; a ring does not."""
    inner = (0.0,) * (4 * chunks - 2)
    parameters = [
        parameters_record(1e6, (2.0,) * 4 * chunks),
        parameters_record(1e9, (1.0, *inner, 0.0), "before"),
        parameters_record(1e9, (0.0, *inner, 1.0), "after", total=0.0),
    ]
    values = {"layout.pp": 4, "schedule.kind": kind, "schedule.chunks": chunks}
    known = [schedule for _, schedule in load().offers("schedules").values()]
    study = bind(
        {**values, "training.global_batch": 32},
        schedules=[schedule for schedule in known if schedule.name == kind],
        parameters=parameters,
    )
    names = {name for name, _ in ours(study)}
    assert ("shared embedding all-reduce" in names) == (kind == "interleaved")


def test_without_a_copy_nothing_is_added_up(bind: Bind) -> None:
    parameters = [parameters_record(1e6, (4.0, 4.0)), parameters_record(1e9, (0.0, 1.0), "after")]
    names = {name for name, _ in ours(bind({"layout.pp": 2}, parameters=parameters))}
    assert "shared embedding all-reduce" not in names


# --- arrays -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("zero", range(4))
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_a_sweep_gives_at_every_point_what_that_point_gives_alone(
    bind: Bind, zero: int, overlap: str
) -> None:
    def study(devices: Any, bucket: Any) -> Study:
        return bind(
            {
                "cluster.devices": devices,
                "layout.zero": zero,
                "overlap.gradients": overlap,
                "overlap.parameters": overlap,
                "overlap.bucket": bucket,
                "training.global_batch": 48,
            },
            parameters=[parameters_record(1e8, (8.0,)), parameters_record(3e8, place="after")],
            terms=[work("F", 0.1, (8.0,)), work("B", 0.2, (8.0,))],
        )

    swept = study([1, 2, 4, 8], [1e8, 3e8])
    axes = {name: list(values) for name, values in swept.axes}
    points = list(zip(axes["cluster.devices"], axes["overlap.bucket"], strict=True))
    assert len(points) == 8
    together = np.broadcast_to(evaluate(swept).step_seconds, 8)
    alone = [evaluate(study(*point)).step_seconds for point in points]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
