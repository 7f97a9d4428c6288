"""Where the terms of a step stand, against a step computed by hand."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from parcost import Edge, StepTrace

from ..rows import try_each


def test_a_step_of_two_stages_is_as_worked_out_by_hand(two_by_two: StepTrace, spans: Any) -> None:
    # gathers to 0.25; F0 F1 on device 0; F0 arrives at 1.25 + 0.5, B0 goes back at 4.75 + 0.5,
    # F1 waits for B0, B1 ends at 7.75 and its gradient takes from 8.25 to 10.25.
    first, last = spans(two_by_two, 0), spans(two_by_two, 1)
    assert first["passes"] == [
        ("F0", 0.25, 1.25),
        ("F1", 1.25, 2.25),
        ("B0", 5.25, 7.25),
        ("B1", 8.25, 10.25),
    ]
    assert last["passes"] == [
        ("F0", 1.75, 2.75),
        ("B0", 2.75, 4.75),
        ("F1", 4.75, 5.75),
        ("B1", 5.75, 7.75),
    ]
    assert first["node"] == [("gather", 0.25, 0.5), ("gather", 1.25, 1.5)]
    assert first["network"] == [("sum", 5.25, 5.75), ("sum", 8.25, 8.75)]
    assert first["compute"][:2] == [("product", 0.5, 1.25), ("product", 1.5, 2.25)]
    assert first["network, once per step"] == [
        ("parameters", 0.0, 0.25),
        ("reduction", 10.25, 10.75),
    ]
    assert last["network, once per step"][1] == ("reduction", 7.75, 8.25)
    assert first["compute, once per step"] == [("update", 10.75, 11.75)]
    assert last["compute, once per step"] == [("update", 10.75, 11.75)]
    assert two_by_two.seconds == 11.75


def test_messages_leave_behind_their_pass_and_arrive_before_the_next(
    two_by_two: StepTrace,
) -> None:
    found = {(m.op.kind, m.op.micro_batch): m for m in two_by_two.messages()}
    assert {key: (m.sender, m.receiver, m.start, m.end) for key, m in found.items()} == {
        ("F", 0): (0, 1, 1.25, 1.75),
        ("F", 1): (0, 1, 2.25, 2.75),
        ("BW", 0): (1, 0, 4.75, 5.25),
        ("BW", 1): (1, 0, 7.75, 8.25),
    }
    assert found["F", 0].to == ("F", 0, 1)
    assert found["BW", 1].to == ("BW", 1, 0)


def test_memory_rises_with_a_forward_pass_and_falls_behind_a_backward_one(
    two_by_two: StepTrace,
) -> None:
    # 10 bytes of weights, and 3 for each micro-batch alive; device 0 has both at once.
    first = list(two_by_two.memory(0))
    assert first == [
        (0.25, 13.0),
        (1.25, 16.0),
        (5.25, 16.0),
        (7.25, 13.0),
        (8.25, 13.0),
        (10.25, 10.0),
        (10.75, 10.0),
        (11.75, 10.0),
    ]
    assert max(bytes_ for _, bytes_ in two_by_two.memory(1)) == 13.0


def test_the_exposed_rest_of_a_transfer_stands_behind_its_hosts(terms: Any, spans: Any) -> None:
    trace = terms.trace_of(
        terms.work("a", 1.0, host="a"),
        terms.work("b", 1.0),
        terms.work("long", 1.5, resource="network", window="a"),
        terms.work("back", 1.0, "B"),
        p=1,
        m=1,
    )
    found = spans(trace, 0)
    assert found["compute"] == [("a", 0.0, 1.0), ("b", 1.0, 2.0), ("back", 2.5, 3.5)]
    assert sorted(found["network"]) == [("long", 0.0, 1.0), ("long", 2.0, 2.5)]
    hides = {one.start: one.beside for one in trace.slices(0) if one.name == "long"}
    assert hides == {0.0: True, 2.0: False}


def test_what_hides_goes_round_what_its_stream_does_already(terms: Any, spans: Any) -> None:
    trace = terms.trace_of(
        terms.work("a", 1.0),
        terms.work("b, waited for", 0.5, resource="network"),
        terms.work("c", 1.0),
        terms.work("hides", 1.5, resource="network", window=""),
        terms.work("back", 1.0, "B"),
        p=1,
        m=1,
    )
    assert sorted(spans(trace, 0)["network"], key=lambda one: one[1]) == [
        ("hides", 0.0, 1.0),
        ("b, waited for", 1.0, 1.5),
        ("hides", 1.5, 2.0),
    ]


@try_each("forward", [0.5, 3.0])
@try_each("kind", ["one_f_one_b", "dualpipe"])
def test_no_hidden_second_is_left_out(kind: str, forward: float, terms: Any) -> None:
    """Beside a pass of 3 s hides more than eight lanes of 0.1 s have time for."""
    trace = terms.trace_of(
        terms.work("forward", forward),
        terms.work("backward", 0.1, "B"),
        terms.work("sum", 2.0, "B", resource="network", window=""),
        terms.work("weights", 0.1, "W"),
        kind=kind,
        p=4,
        m=8,
    )
    placed: dict[Any, float] = {}
    shares: dict[Any, float] = {}
    kinds = set()
    for d in range(4):
        for one in trace.slices(d):
            if one.term is not None and one.term.name == "sum":
                op = d, one.op
                placed[op] = placed.get(op, 0.0) + one.end - one.start
                shares[op] = shares.get(op, 0.0) + one.of
                kinds.add((one.kind, one.name, one.stream.partition(" (")[0]))
    assert len(placed) >= 4 * 4
    assert placed == pytest.approx(dict.fromkeys(placed, 2.0), rel=1e-9)
    assert shares == pytest.approx(dict.fromkeys(shares, 1.0), rel=1e-9)
    rest = {name for kind, name, _ in kinds if kind == "rest"}
    assert rest == ({"rest of sum"} if (kind, forward) == ("dualpipe", 3.0) else set())


def test_slowdown_is_a_slice_of_its_own(terms: Any, spans: Any) -> None:
    trace = terms.trace_of(
        terms.work("a", 2.0),
        terms.work("hides", 1.0, resource="network", window="", slowdown=0.25),
        terms.work("back", 1.0, "B"),
        p=1,
        m=1,
    )
    assert ("slowdown by hides", 2.0, 2.25) in spans(trace, 0)["compute"]
    assert trace.seconds == 3.25


def test_passes_that_run_forward_again_have_a_slice(terms: Any, spans: Any) -> None:
    trace = terms.trace_of(
        terms.work("a", 1.0), terms.work("a", 1.0, "R"), terms.work("b", 2.0, "B"), p=1, m=1
    )
    assert spans(trace, 0)["passes"] == [("F0", 0.0, 1.0), ("R0", 1.0, 2.0), ("B0", 2.0, 4.0)]


def test_a_reduction_beside_the_last_pass_is_in_two_slices(terms: Any, spans: Any) -> None:
    trace = terms.trace_of(
        terms.work("a", 1.0),
        terms.work("b", 2.0, "B"),
        terms.once("reduction", 3.0, "drain", resource="network", beside=0.5, slowdown=0.1),
        p=1,
        m=1,
    )
    # half of the backward pass covers 1 s, which slows it by 0.1 s
    found = spans(trace, 0)
    assert found["network, once per step"] == [
        ("reduction", 2.0, 3.0),
        ("reduction", 3.1, 5.1),
    ]
    assert found["compute, once per step"] == [("slowdown by reduction", 3.0, 3.1)]
    assert trace.seconds == pytest.approx(5.1, rel=1e-12)


@try_each("waits", [False, True])
@try_each(
    "kind, more",
    [
        ("one_f_one_b", {"p": 4, "m": 6}),
        ("interleaved", {"p": 2, "m": 4, "chunks": 2}),
        ("zb_h1", {"p": 3, "m": 5}),
        ("zb_v", {"p": 3, "m": 6, "chunks": 2}),
        ("dualpipe", {"p": 4, "m": 8}),
        ("chimera", {"p": 4, "m": 4}),
    ],
)
def test_streams_do_not_overlap_and_the_last_slice_ends_the_step(
    kind: str, more: dict[str, int], waits: bool, terms: Any
) -> None:
    beside = {"resource": "network", "beside": 0.5, "slowdown": 0.1}
    trace = terms.trace_of(
        terms.work("product", 0.7, host="product"),
        terms.work("tensor", 0.2, resource="node"),
        terms.work("exchange", 0.9, resource="network", window="product", slowdown=0.2),
        terms.work("again", 0.3, "R"),
        terms.work("input", 0.8, "B"),
        terms.work("scatter", 0.5, "W", resource="network", window=""),
        terms.work("weights", 0.6, "W"),
        Edge(name="hop", seconds=0.15, formula=terms.formula),
        terms.once("parameters", 0.9, "fill", **beside, on_arrival=waits),
        terms.once("reduction", 1.7, "drain", **beside, after_device=waits),
        terms.once("update", 0.3, "end", resource="hbm"),
        kind=kind,
        **more,
    )
    last = 0.0
    for d in range(trace.pipeline.stages):
        streams: dict[str, list[Any]] = {}
        busy: dict[Any, float] = {}
        for one in trace.slices(d):
            assert one.end >= one.start >= 0.0
            streams.setdefault(one.stream, []).append(one)
            last = max(last, one.end)
            if one.kind in ("work", "slowdown") and one.op is not None and not one.beside:
                busy[one.op] = busy.get(one.op, 0.0) + one.end - one.start
        for own in streams.values():
            own.sort(key=lambda one: (one.start, one.end))
            assert all(b.start >= a.end for a, b in pairwise(own))
        for activity in trace.passes()[d]:  # a pass is what the device waits for
            assert busy[activity.op] == pytest.approx(activity.end - activity.start, rel=1e-9)
    assert last == pytest.approx(trace.seconds, rel=1e-9)
    count = sum(1 for d in range(trace.pipeline.stages) for _ in trace.slices(d))
    assert trace.slice_count() == count + sum(1 for _ in trace.messages())
