"""FSDP by itself: the closed form, and the two streams that it stands for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import parcost
from parcost_plugins.calculators.data.layers import passes, timeline
from parcost_plugins.vocabulary import FsdpSketch

from ..rows import try_each


def sketch(
    layers: int, forward: float, backward: float, gather: float, reduce: float, **more: Any
) -> FsdpSketch:
    return FsdpSketch(
        layers=layers,
        forward=forward,
        backward=backward,
        gather=gather,
        reduce=reduce,
        **{"reshard": True, "keep_last": False, **more},
    )


@pytest.mark.parametrize(
    ("given", "keep_last", "seconds"),
    [
        ((10, 5.0, 10.0, 3.0, 3.0), False, 159),
        ((10, 5.0, 10.0, 3.0, 3.0), True, 156),
        ((40, 5.0, 4.0, 3.0, 3.0), False, 447),
    ],
)
def test_both_passes_take_what_was_worked_out(given: Any, keep_last: bool, seconds: float) -> None:
    assert sum(passes(sketch(*given, keep_last=keep_last))) == pytest.approx(seconds)


@try_each("layers", [1, 2, 5, 20])
@try_each("forward", [1.0, 5.0])
@try_each("backward", [2.0, 7.0, 12.0])
@try_each("reduce", [1.0, 3.0, 6.0])
@try_each("more", [{}, {"keep_last": True}, {"reshard": False}])
def test_the_streams_take_the_closed_form_within_a_period(
    layers: int, forward: float, backward: float, reduce: float, more: dict[str, bool]
) -> None:
    given = sketch(layers, forward, backward, 3.0, reduce, **more)
    done = max(event.end for event in timeline(given))
    assert done == pytest.approx(sum(passes(given)), abs=max(backward, 3.0 + reduce))


@pytest.mark.parametrize("more", [{}, {"keep_last": True}, {"reshard": False}])
def test_no_stream_does_two_things_at_once_and_nothing_computes_before_it_has_arrived(
    more: dict[str, bool],
) -> None:
    events = timeline(sketch(7, 2.0, 4.0, 3.0, 5.0, **more))
    for stream in (("gather", "reduce"), ("forward", "backward")):
        busy = sorted((e.start, e.end) for e in events if e.what in stream)
        assert all(before[1] <= after[0] for before, after in pairwise(busy))
    gathers = [e for e in events if e.what == "gather"]
    computed = {(e.what, e.layer): e.start for e in events if e.what in ("forward", "backward")}
    assert all(e.end <= computed["forward", e.layer] for e in gathers[:7])
    assert len(gathers) == {(): 14, ("keep_last",): 13, ("reshard",): 7}[tuple(more)]
    reduced = [e for e in events if e.what == "reduce"]
    assert all(e.start >= computed["backward", e.layer] + 4.0 for e in reduced)


def test_a_block_says_passes_and_collectives() -> None:
    (scenario,) = parcost.load_text(
        "fsdp f { layers = 10, forward = 5 ms, backward = 10 ms, gather = 3 ms }\n"
        "buckets b { gradients = 1 GB, ranks = 2, bandwidth = 10 GB/s per_direction\n"
        "backward = 1 s, count = 4 }\n"
    )
    study = scenario.studies()[0]
    found = [answer for _, answer in study.contributions("calculations")]
    figures = {f.name: f.value for f in found if isinstance(f, parcost.Figure)}
    assert figures["f.time"] == pytest.approx(0.159)
    assert figures["f.collectives"] == 30
    assert figures["f.exposed"] == pytest.approx(0.009)
    lines = {s.title: s.rows for s in found if isinstance(s, parcost.Section)}
    assert len(lines["Timeline, f"]) == 2 * 10 + 10 + 20
    # a quarter of 0.1 s each, full at 0.25, 0.5, 0.75 and 1 s
    assert [row[3][0] for row in lines["Timeline, b"]] == pytest.approx(
        [0.275, 0.525, 0.775, 1.025]
    )
