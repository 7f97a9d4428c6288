"""Faults that are planted in the reducer one by one: each fails the law that is named.

A law that holds of a wrong reducer guards nothing. A fault is a small change that a hand could
make; the law is tried on the same random steps each time, until one of them breaks it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from parcost.engine import bounds, memory, overlap, reduce, stage_costs, step_costs
from parcost.engine.maxima import MaximumChoice
from parcost.search import memory_bounds, timing

EXAMPLES = 400  # at most: what is listed here needs a few dozen, or some 200


def _module(name: str) -> Any:
    path = Path(__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"planted_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LAWS = _module("test_laws")


@pytest.fixture(autouse=True)
def _make(make: Any) -> None:
    LAWS.MAKE = make


@frozen
class Fault:
    """What is changed, and who notices: a law, or the file of cases computed by hand."""

    name: str
    places: Sequence[tuple[Any, str]]
    change: Callable[[Any], Any]
    law: str


def scaled(factor: float) -> Callable[[Any], Any]:
    """Return a change that scales what a function returns."""
    return lambda function: lambda *a, **k: factor * function(*a, **k)


def constant(value: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a change that puts *value* in the place of a function."""
    return lambda _: value


def _closed_too_short(function: Any) -> Any:
    def wrapper(schedule: Any, asked: Any) -> Any:
        seconds, mask = function(schedule, asked)
        return 0.999 * seconds, mask

    return wrapper


def _no_pairs(_: Any) -> Any:
    return lambda _run, *_groups: [0.0] * len(_run.plan.held)


def _room_of_the_pass(function: Any) -> Any:
    """Room is the compute of the pass, however much its own resource is busy."""
    return lambda load, guests, under, _: function(load, guests, under, {})


def _hides_twice(_: Any) -> Any:
    """What hides under the same hosts does not leave less room for the next."""
    return lambda took, rooms: [min(t, r) for t, r in zip(took, rooms, strict=True)]


def _more_than_it_took(function: Any) -> Any:
    return lambda seconds, rooms: [1.5 * each for each in function(seconds, rooms)]


def _one_micro_batch_more(function: Any) -> Any:
    def wrapper(self: Any, d: int, moment: Any) -> Any:
        return [n + (n > 0) for n in function(self, d, moment)]

    return wrapper


def _released_at_once(_: Any) -> Any:
    def held_back(releases: Any, run: Any) -> Any:
        return releases[0], evolve(run.timeline, seconds=run.timeline.seconds + releases[0])

    return held_back


def _first_device(function: Any) -> Any:
    return lambda values: (function(values)[0], MaximumChoice(0, (0,)))


def _forgets_the_last(function: Any) -> Any:
    return lambda values: function(list(values)[:-1])


def _slows_nothing(function: Any) -> Any:
    return lambda load, guests: dict.fromkeys(function(load, guests), False)


FAULTS = [
    Fault(
        "transfers find room while their own link is busy",
        [(stage_costs, "hide")],
        _room_of_the_pass,
        "test_windows",
    ),
    Fault(
        "two transfers hide in the same room",
        [(overlap, "_fill")],
        _hides_twice,
        "test_windows",
    ),
    Fault(
        "a transfer hides for longer than it takes",
        [(overlap, "_fill")],
        _more_than_it_took,
        "test_windows",
    ),
    Fault(
        "what slows its hosts most does not hide first",
        [(overlap, "_slows_hosts")],
        _slows_nothing,
        "test_windows",
    ),
    Fault(
        "further resources of a transfer are never busy",
        [(stage_costs, "shared_resources"), (step_costs, "shared_resources")],
        constant(lambda _: ()),
        "test_windows",
    ),
    Fault(
        "all stages cost what the first does",
        [(reduce, "kinds")],
        constant(lambda _, stages: [0] * stages),
        "fill_and_drain_are_what_a_simulator_says",
    ),
    Fault(
        "one kind of message hides another",
        [(reduce, "add_hops")],
        constant(lambda _, other: other),
        "fill_and_drain_are_what_a_simulator_says",
    ),
    Fault(
        "stages need not wait for their own gather",
        [(step_costs, "_release_delay")],
        _released_at_once,
        "fill_and_drain_are_what_a_simulator_says",
    ),
    Fault(
        "reductions of a device do not crowd its links",
        [(step_costs, "_busiest_seconds")],
        _no_pairs,
        "test_step_costs",
    ),
    Fault(
        "twice the compute of a micro-batch covers what is beside it",
        [(step_costs, "_idle_seconds")],
        scaled(2.0),
        "test_step_costs",
    ),
    Fault(
        "the fullest device is the first",
        [(memory, "find_maximum")],
        _first_device,
        "memory_adds_up_to_the_fullest_moment_of_the_fullest_device",
    ),
    Fault(
        "a micro-batch too many is alive",
        [(memory.PlanMemory, "alive")],
        _one_micro_batch_more,
        "memory_adds_up_to_the_fullest_moment_of_the_fullest_device",
    ),
    Fault(
        "what a device holds once is held for every stage",
        [(memory.DeviceMemory, "_count_memory")],
        constant(
            lambda self, term, d: sum(stage_costs.count(term, x) * n for x, n in self.copies[d])
        ),
        "memory_adds_up_to_the_fullest_moment_of_the_fullest_device",
    ),
    Fault(
        "a line of memory is forgotten",
        [(memory, "total")],
        _forgets_the_last,
        "memory_adds_up_to_the_fullest_moment_of_the_fullest_device",
    ),
    Fault(
        "the bound of a search is 1 % too high",
        [(timing, "lower_bound")],
        scaled(1.01),
        "a_bound_is_never_above_the_replay_and_what_is_exact_equals_it",
    ),
    Fault(
        "the bound adds the way of a micro-batch that another one hides",
        [(bounds, "_so_far")],
        constant(lambda values: [sum(values)] * (len(values) + 1)),
        "a_bound_is_never_above_the_replay_and_what_is_exact_equals_it",
    ),
    Fault(
        "a closed form is 0.1 % too short",
        [(timing, "closed_form")],
        _closed_too_short,
        "a_bound_is_never_above_the_replay_and_what_is_exact_equals_it",
    ),
    Fault(
        "the memory of a search has a micro-batch too many",
        [(memory_bounds, "_in_flight")],
        constant(lambda alive, _scale, _most: alive + (alive > 0.0)),
        "a_bound_is_never_above_the_replay_and_what_is_exact_equals_it",
    ),
]


def fails(law: str, make: Any) -> bool:
    """Return whether a case computed by hand, or a random step, comes out wrong."""
    if law.startswith("test_"):
        return any(map(partial(_is_wrong, make), vars(_module(law)).values()))
    test = getattr(LAWS, f"test_{law}")
    inner = test.hypothesis.inner_test
    drawn = {"step": LAWS.steps(), "data": st.data()}
    some = settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        some(given(**{name: drawn[name] for name in signature(inner).parameters})(inner))()
    except AssertionError:
        return True
    return False


def _is_wrong(make: Any, case: Any) -> bool:
    """Return whether *case* is a test of hand-made terms alone, and fails."""
    if not getattr(case, "__name__", "").startswith("test_"):
        return False
    if list(signature(case).parameters) != ["make"]:
        return False
    try:
        case(make)
    except AssertionError:
        return True
    return False


@pytest.mark.slow  # the fast tests try each law on fewer steps
@pytest.mark.parametrize("law", sorted({fault.law for fault in FAULTS}))
def test_without_a_fault_everything_holds(law: str, make: Any) -> None:
    assert not fails(law, make)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_noticed(
    fault: Fault, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name in fault.places:
        monkeypatch.setattr(place, name, fault.change(getattr(place, name)))
    assert fails(fault.law, make)
