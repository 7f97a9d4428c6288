"""The ledger: whose seconds they are, and that they add up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from parcost import PluginError, SpecError
from parcost.contract.pipelines import Pipeline
from parcost.contract.plugin import Plugin
from parcost.engine.reduce import evaluate, reduce
from parcost.engine.study import SpecStudy
from parcost.plugins.discovery import load


def line(outcome: Any, name: str) -> Any:
    return next(x for x in outcome.ledger if x.name == name)


def layers(make: Any, first: float = 0.0, last: float = 0.0, p: int = 4) -> list[Any]:
    return [
        make.work("layer", 1.0),
        make.work("layer", 2.0, "B"),
        make.work("embedding", first, count=(1, *[0] * (p - 1))),
        make.work("head", last, count=(*[0] * (p - 1), 1)),
    ]


def test_the_busiest_device_is_the_reference_and_the_first_of_equals(make: Any) -> None:
    assert make.step(*layers(make), p=4, m=8.0).device == 0
    assert make.step(*layers(make, last=1.0), p=4, m=8.0).device == 3
    assert make.step(*layers(make, first=1.0, last=1.0), p=4, m=8.0).device == 0


def test_lines_are_of_the_reference_device_for_the_whole_step(make: Any) -> None:
    found = make.step(*layers(make, last=1.0), p=4, m=8.0)
    assert line(found, "layer").exposed == 8.0
    assert line(found, "head").exposed == 8.0
    assert line(found, "head").times == 8.0
    assert [x.name for x in found.ledger] == ["head", "layer", "layer", "bubble"]
    assert found.ideal_seconds == 32.0
    assert line(found, "bubble").exposed == 9.0  # the three other stages, forth and back
    assert found.step_seconds == found.makespan_seconds == 41.0


def test_lines_are_in_the_order_of_passes_and_names(make: Any) -> None:
    works = [make.work(n, 1.0, k) for k in "WBRF" for n in "ba"]
    more = [make.edge(0.1), make.once("end", 1.0, "end"), make.once("fill", 1.0, "fill")]
    found = make.step(*works, *more, p=2, m=4.0)
    order = [(x.name, x.pass_) for x in found.ledger]
    assert order[:8] == [(n, k) for k in "FRBW" for n in "ab"]
    assert [name for name, _ in order[8:]] == ["bubble", "hop", "fill", "end"]


def test_kernels_of_each_device_are_its_own(make: Any) -> None:
    """Of 36 s, stage 0 works all and stage 1 a third: each has 4 (1 + 2) s by layer."""
    layers = [make.work("layer", 1.0, count=(3, 1)), make.work("layer", 2.0, "B", count=(3, 1))]
    found = make.step(*layers, p=2, m=4.0)
    assert found.step_seconds == 36.0
    assert found.kernel_seconds == [36.0, 12.0]


def test_kernels_do_not_run_while_a_device_waits(make: Any) -> None:
    """Of 10 s of a collective 8 hide under a layer, slowed by 2 s; the other 2 s it waits."""
    found = make.step(
        make.work("layer", 8.0),
        make.work("reduce", 10.0, resource="net", window="", slowdown=0.25),
        make.once("update", 3.0, "end", resource="hbm"),
        make.once("gather", 5.0, "fill", resource="net"),
        m=2.0,
    )
    waits = line(found, "reduce").exposed + line(found, "gather").exposed
    assert waits == 2 * 2 + 5
    assert found.kernel_seconds == [found.step_seconds - waits] == [2 * (8 + 2) + 3]


def test_the_bubble_is_that_of_messages_without_a_time(make: Any) -> None:
    found = make.step(
        make.work("f", 100.0), make.work("b", 200.0, "B"), make.edge(1.0), p=4, m=16.0
    )
    assert line(found, "bubble").exposed == 900.0
    assert line(found, "hop").exposed == 28.0
    assert found.step_seconds == 5728.0


def test_messages_are_charged_kind_by_kind(make: Any) -> None:
    works = [make.work("f", 100.0), make.work("b", 200.0, "B")]
    found = make.step(*works, make.edge(0.25, "x"), make.edge(0.75, "y"), p=4, m=16.0)
    assert [line(found, n).exposed for n in "xy"] == [7.0, 21.0]


def test_a_message_without_a_waiting_device_is_hidden(make: Any) -> None:
    works = [*layers(make, last=10.0)]
    found = make.step(*works, make.edge(1.0), p=4, m=16.0)  # the last stage sets the pace
    assert found.device == 3
    assert line(found, "hop").exposed == 6.0  # three boundaries, twice
    assert line(found, "hop").times == 16.0  # it sends a gradient of each micro-batch
    assert line(found, "hop").hidden == 10.0
    assert make.step(*works, make.edge(0.0), p=4, m=16.0).ledger[-1].name == "bubble"


def test_one_device_has_neither_bubble_nor_hop(make: Any) -> None:
    works = [make.work("f", 0.1), make.work("b", 0.2, "B")]
    found = make.step(*works, make.edge(1.0), m=7.0)
    assert {x.kind for x in found.ledger} == {"work"}


def test_lines_that_are_zero_everywhere_are_left_out(make: Any) -> None:
    some = np.array([0.0, 1.0])
    found = make.step(make.work("a", 1.0), make.work("b", some), make.work("c", 0.0 * some))
    assert [x.name for x in found.ledger] == ["a", "b"]


def test_a_term_that_counts_nothing_costs_nothing_even_at_infinity(make: Any) -> None:
    impossible = make.work("all-to-all", float("inf"), count=(0, 0))
    assert make.step(make.work("a", 1.0), impossible, p=2, m=1.0).step_seconds == 2.0


def test_a_virtual_stage_is_charged_to_the_device_that_holds_it(make: Any) -> None:
    head = make.work("head", 1.0, count=(0, 0, 0, 1))
    works = [make.work("f", 1.0), make.work("b", 2.0, "B"), head]
    found = make.step(*works, p=2, m=4.0, v=2, schedule="interleaved")
    assert found.device == 1
    assert line(found, "f").exposed == 8.0
    assert line(found, "f").times == 8.0
    assert line(found, "head").exposed == 4.0


def test_flops_are_those_of_the_reference_device(make: Any) -> None:
    works = [
        make.work("f", 1.0, flops=10.0, count=3),
        make.work("head", 1.0, flops=100.0, count=(0, 1)),
    ]
    assert make.step(*works, p=2, m=4.0).flops == 4 * (30.0 + 100.0)


def test_each_line_knows_its_plugin_and_term(make: Any) -> None:
    work = make.work("f", 1.0)
    (only,) = make.step(work).ledger
    assert only.term is work
    assert str(only.plugin) == "`test`"
    assert only.formula is work.formula


def test_what_the_reducer_adds_has_formulas_with_numbers(make: Any) -> None:
    works = [make.work("f", 100.0), make.work("b", 200.0, "B")]
    found = make.step(*works, make.edge(1.0), p=4, m=16.0)
    bubble, hop = line(found, "bubble").formula, line(found, "hop").formula
    assert bubble.inputs["T_p"] == (5700.0, "s")
    assert bubble.inputs["t_p"] == (4800.0, "s")
    assert hop.inputs["T"] == (5728.0, "s")
    assert hop.inputs["T_0"] == (5700.0, "s")
    assert hop.inputs["c"] == (1.0, "s")


def test_the_reference_device_may_differ_between_candidates(make: Any) -> None:
    last = np.array([0.0, 1.0, 3.0])
    found = make.step(*layers(make, first=2.0, last=last), p=4, m=8.0)
    assert list(found.device) == [0, 0, 3]
    assert list(line(found, "embedding").exposed) == [16.0, 16.0, 0.0]
    assert list(line(found, "head").exposed) == [0.0, 0.0, 24.0]
    assert list(line(found, "head").times) == [0.0, 0.0, 8.0]


# --- boundaries that differ -----------------------------------------------------------------


def test_each_message_takes_the_hop_of_its_boundary(make: Any) -> None:
    # The last stage sets the pace, so that only the first and the last micro-batch wait
    # for messages: both ways over boundaries of 1, 5 and 1 s.
    works = [
        make.work("f", 10.0, count=(1, 1, 1, 3)),
        make.work("b", 20.0, "B", count=(1, 1, 1, 3)),
    ]
    edge = make.edge(5.0, boundaries=(1.0, 5.0, 1.0))
    found = make.step(*works, edge, p=4, m=16.0)
    assert line(found, "hop").exposed == 2 * (1.0 + 5.0 + 1.0)
    assert line(found, "hop").hidden == 16 * 1.0 - 14.0  # the last stage only sends back
    assert line(found, "hop").formula.inputs["c"] == (5.0, "s")


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b", "zb_h1"])
def test_equal_boundaries_are_one_hop(schedule: str, make: Any) -> None:
    works = [make.work(k, 10.0, k) for k in "FBW"]
    one = make.step(*works, make.edge(3.0), p=4, m=8.0, schedule=schedule)
    each = make.step(*works, make.edge(3.0, boundaries=[3.0] * 3), p=4, m=8.0, schedule=schedule)
    assert each.step_seconds == one.step_seconds
    assert [x.exposed for x in each.ledger] == [x.exposed for x in one.ledger]


def test_an_edge_for_boundaries_that_are_not_there_is_refused(make: Any) -> None:
    with pytest.raises(
        PluginError, match="`hop` has times for 2 boundaries, but the pipeline has 3"
    ):
        make.step(make.work("f", 1.0), make.edge(1.0, boundaries=(1.0, 1.0)), p=4, m=4.0)
    with pytest.raises(PluginError, match="`hop` is negative"):
        make.step(make.work("f", 1.0), make.edge(1.0, boundaries=(-1.0,)), p=2, m=4.0)


# --- the worked example ---------------------------------------------------------------------


def test_llama3_70b_on_64_h100_takes_the_step_of_the_worked_example(make: Any) -> None:
    head = {"count": (0, 0, 0, 1)}
    found = make.step(
        make.work("layers", 4.00528e-3, count=20),
        make.work("layers", 6.86184e-3, "B", count=20),
        make.work("head", 2.9009e-3, **head),
        make.work("head", 5.8019e-3, "B", **head),
        make.edge(0.39283e-3),
        make.once("reduce-scatter", 0.100923, "drain", resource="network"),
        make.once("optimizer", 0.011962, "end"),
        make.once("all-gather", 0.050461, "fill", resource="network"),
        p=4,
        m=16.0,
    )
    assert found.makespan_seconds == pytest.approx(4.271106, rel=1e-5)
    assert found.step_seconds == pytest.approx(4.434451, rel=1e-5)


# --- contracts -------------------------------------------------------------------------------


def test_a_term_that_counts_stages_which_are_not_there_is_a_fault(make: Any) -> None:
    plugin, faults = Plugin("mine", "mine-dist", "2"), []
    terms = [(plugin, make.work("a", 1.0)), (plugin, make.work("b", 1.0, count=(1, 1, 1)))]
    memory = [(plugin, make.memory("c", 1.0, count=(1, 1, 1)))]
    pipeline = Pipeline(schedule="gpipe", stages=2, micro_batches=1.0)
    found = reduce(pipeline, make.schedules["gpipe"], terms, memory, faults)
    assert found.step_seconds == 2.0
    assert [(f.hook, f.message) for f in faults] == [
        ("terms", "`b` has counts for 3 virtual stages, but the pipeline has 2"),
        ("memory", "`c` has counts for 3 virtual stages, but the pipeline has 2"),
    ]
    with pytest.raises(PluginError, match="plugin `mine` of mine-dist 2 failed in `terms`"):
        reduce(pipeline, make.schedules["gpipe"], terms, memory)


@pytest.mark.parametrize(
    "kind, changes, complaint",
    [
        ("work", {"seconds": -1.0}, "`x` is negative"),
        ("work", {"seconds": np.array([1.0, -1.0])}, "`x` is negative"),
        ("work", {"pass_": "forward"}, "`x` names `forward`, which is not one of F or R or B or W"),
        ("once", {"when": "start"}, "`x` names `start`, which is not one of fill or drain or end"),
        (
            "memory",
            {"moments": ["forward", "update"]},
            "not one of forward or backward or loss or end_of_backward or optimizer or gather",
        ),
    ],
)
def test_a_term_that_makes_no_sense_is_a_fault(
    kind: str, changes: Any, complaint: str, make: Any
) -> None:
    term = {
        "work": make.work("x", 1.0),
        "once": make.once("x", 1.0, "end"),
        "memory": make.memory("x", 1.0),
    }[kind]
    with pytest.raises(PluginError) as error:
        make.step(make.work("a", 1.0), evolve(term, **changes))
    assert str(error.value).endswith(complaint)


class BareSchedule(SimpleNamespace):
    """A study without a spec."""

    schedule, schedule_named = SpecStudy.schedule, SpecStudy.schedule_named


def study(schedule: str, *more: tuple[str, Any], chunks: int = 1) -> Any:
    pipeline = Pipeline(schedule=schedule, stages=2, micro_batches=4.0, chunks=chunks)
    return BareSchedule(
        name="study",
        path="study.par",
        pipeline=pipeline,
        plugins=load(*more),
        faults=[],
        contributions=lambda _: (),
    )


def test_an_unknown_schedule_is_a_spec_error() -> None:
    with pytest.raises(SpecError) as error:
        evaluate(study("one_f_two_b"))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.message == "no plugin provides the schedule `one_f_two_b`"
    assert diagnostic.help == "did you mean `one_f_one_b`?"


def test_a_schedule_that_does_not_exist_there_names_the_spec() -> None:
    with pytest.raises(SpecError) as error:
        evaluate(study("one_f_one_b", chunks=2))
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.place == "study.par"
    assert diagnostic.message == (
        "`one_f_one_b` does not run with 2 stages, 4 micro-batches and chunks = 2: it has one model chunk per device: chunks = 1"
    )


def test_a_bad_order_is_its_plugin_s_mistake(make: Any) -> None:
    schedule = make.listed("mine", lambda *_: [[], []])
    from parcost import hookimpl

    module = SimpleNamespace(schedules=hookimpl(lambda: [schedule]))
    with pytest.raises(PluginError) as error:
        evaluate(study("mine", ("mine_plugin", module)))
    assert str(error.value) == (
        "plugin `mine_plugin` failed in `schedules`: "
        "schedule `mine` at p = 2, m = 4, v = 1: device 0 has no passes"
    )
