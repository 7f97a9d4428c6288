"""Laws of adding up, over random terms, pipelines and schedules."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from parcost import Edge, Memory, Once, Pair, Pipeline, PipelineShape, Work
from parcost.contract.plugin import Plugin
from parcost.engine.maxima import total
from parcost.search.memory_bounds import peak_memory
from parcost.search.serial_work import SerialWork, bound_seconds
from parcost.search.stage_loads import StageLoads, StructureLoads
from parcost.search.timing import ScheduleTimes, SketchPlan

RESOURCES = ("compute", "link", "network")
seconds = st.integers(0, 8).map(float)


@st.composite
def steps(draw: st.DrawFn) -> SimpleNamespace:
    """A pipeline with a schedule that exists there, and terms on it."""
    p = draw(st.integers(1, 4))
    v = draw(st.sampled_from([1, 1, 2]))
    kind = draw(
        st.sampled_from(
            ["gpipe", "one_f_one_b", "zb_h1", "any", "pairs"]
            if v == 1
            else ["interleaved", "any", "pairs"]
        )
    )
    m = draw(st.integers(1, 5)) * (p if kind == "interleaved" else 1)
    n = p * v
    counts = st.one_of(
        st.integers(0, 3).map(float), st.lists(st.integers(0, 2).map(float), min_size=n, max_size=n)
    )

    def shared_links() -> dict[str, Any]:
        names = draw(st.sampled_from([(), (), ("link",), ("network",), ("link", "network")]))
        shares = st.sampled_from([0.25, 0.5, 1.0])
        return {"also": names, "also_busy": tuple(draw(shares) for _ in names)}

    def work(i: int) -> Work:
        hidden = draw(st.booleans())
        return MAKE.work(
            f"w{i}",
            draw(seconds),
            draw(st.sampled_from("FBWR")),
            count=draw(counts),
            resource=draw(st.sampled_from(RESOURCES)),
            host=draw(st.sampled_from(["", "x", "y"])),
            window=draw(st.sampled_from(["x", "y", ""])) if hidden else None,
            share=draw(st.sampled_from([0.5, 1.0])),
            slowdown=draw(st.sampled_from([0.0, 0.25, 0.5])),
            **shared_links(),
        )

    def once(i: int) -> Once:
        return MAKE.once(
            f"o{i}",
            draw(st.integers(0, 30).map(float)),
            draw(st.sampled_from(["fill", "drain", "end"])),
            count=draw(counts),
            resource=draw(st.sampled_from(RESOURCES)),
            beside=draw(st.sampled_from([0.0, 0.5, 1.0])),
            tail=draw(st.integers(0, 3).map(float)),
            slowdown=draw(st.sampled_from([0.0, 0.25, 0.5])),
            **shared_links(),
        )

    def memory(i: int) -> Memory:
        living = draw(st.booleans())
        moments = st.lists(
            st.sampled_from(["forward", "backward", "loss", "optimizer", "gather"]), unique=True
        )
        return MAKE.memory(
            f"m{i}",
            draw(seconds),
            count=draw(counts),
            per_micro_batch=living,
            freed_at_b=draw(st.sampled_from([0.0, 0.0, 0.25, 1.0])) if living else 0.0,
            once_per_device=not living and draw(st.booleans()),
            moments=draw(moments),
        )

    return SimpleNamespace(
        p=p, v=v, m=m, kind=kind, seed=draw(st.integers(0, 10**6)),
        terms=[
            *(work(i) for i in range(draw(st.integers(0, 6)))),
            *(MAKE.edge(draw(seconds), f"e{i}") for i in range(draw(st.integers(0, 2)))),
            *(once(i) for i in range(draw(st.integers(0, 3)))),
        ],
        memory=[memory(i) for i in range(draw(st.integers(0, 4)))],
    )  # fmt: skip


MAKE: Any = None


@pytest.fixture(autouse=True, scope="session")
def _make(make: Any) -> None:
    global MAKE  # noqa: PLW0603  strategies are made before fixtures are
    MAKE = make


def schedule(step: Any) -> Any:
    random_ones = {"any": MAKE.any_order, "pairs": MAKE.any_pairs}
    if step.kind in random_ones:
        return random_ones[step.kind](step.seed)
    return MAKE.schedules[step.kind]


def add_up(step: Any, terms: Sequence[Any] | None = None, m: Any = None) -> Any:
    return MAKE.step(
        *(step.terms if terms is None else terms),
        *step.memory,
        p=step.p,
        m=float(step.m) if m is None else m,
        v=step.v,
        schedule=schedule(step),
    )


def times(term: Any, x: int) -> float:
    return float(term.count if isinstance(term.count, float) else term.count[x])


def own_orders(step: Any) -> list[list[int]]:
    """Return the virtual stages of each device."""
    return [sorted(ran) for ran in runs(step)]


def runs(step: Any) -> list[dict[int, int]]:
    """Return how many micro-batches run through each stage on each device."""
    lists = schedule(step).order(step.p, step.m, step.v)
    return [
        dict(Counter(op.stage for entry in entries for op in ops_of(entry) if op.kind == "F"))
        for entries in lists
    ]


def ops_of(entry: Any) -> list[Any]:
    return [entry.forward, entry.backward] if isinstance(entry, Pair) else [entry]


@pytest.mark.slow
@given(step=steps())
def test_the_ledger_adds_up_to_the_step(step: Any) -> None:
    found = add_up(step)
    assert found.step_seconds == total(x.exposed for x in found.ledger)
    once = total(x.exposed for x in found.ledger if x.pass_ in ("fill", "drain", "end"))
    assert found.step_seconds == pytest.approx(found.makespan_seconds + once)
    busy = total(x.exposed for x in found.ledger if x.pass_ in ("F", "R", "B", "W"))
    assert found.ideal_seconds == pytest.approx(busy)
    for x in found.ledger:
        assert x.exposed >= -1e-9
        assert x.hidden >= -1e-9
        if isinstance(x.term, (Work, Once)):
            assert x.exposed + x.hidden == pytest.approx(x.term.seconds * x.times)


@given(step=steps())
def test_memory_adds_up_to_the_fullest_moment_of_the_fullest_device(step: Any) -> None:
    found = add_up(step)
    assert found.memory_bytes == total(x.bytes_ for x in found.memory_lines)
    lists = schedule(step).order(step.p, step.m, step.v)
    fullest = [
        max(moments(step, ops, held)) for ops, held in zip(lists, own_orders(step), strict=True)
    ]
    assert found.device_memory == fullest
    assert found.memory_bytes == max(fullest)
    assert found.memory_device == fullest.index(max(fullest))


def moments(step: Any, ops: Sequence[Any], held: Sequence[int]) -> list[float]:
    """Return the bytes on a device at every op, and at the two moments without any."""
    found = [bytes_(step, moment, held, ({}, {}), ({}, {})) for moment in ("optimizer", "gather")]
    alive = dict.fromkeys(held, 0.0)
    whole = dict.fromkeys(held, 0.0)
    for entry in ops:
        for op in ops_of(entry):
            if op.kind == "F":
                alive[op.stage] += 1
                whole[op.stage] += 1
                found.append(bytes_(step, "forward", held, (alive, whole), (alive, whole)))
        for op in ops_of(entry):
            if op.kind != "F":
                before = {**alive}, {**whole}
                alive[op.stage] -= op.kind in ("W", "BW")
                whole[op.stage] -= op.kind in ("B", "BW")
                for moment in ("loss", "backward"):
                    found.append(bytes_(step, moment, held, before, (alive, whole)))
    return found


def bytes_(
    step: Any,
    moment: str,
    held: Sequence[int],
    before: tuple[dict[int, float], dict[int, float]],
    after: tuple[dict[int, float], dict[int, float]],
) -> float:
    """Return the bytes at a *moment*, with counts *before* an op and *after* it."""
    found = 0.0
    for term in step.memory:
        r = term.freed_at_b
        over = term.per_micro_batch and moment == "backward" and moment not in term.moments
        alive, whole = after if over else before
        living = {x: r * whole.get(x, 0.0) + (1 - r) * alive.get(x, 0.0) for x in held}
        counts = [times(term, x) * (living[x] if term.per_micro_batch else 1) for x in held]
        if moment in term.moments or over:
            found += term.bytes_ * (max(counts) if term.once_per_device else sum(counts))
    return found


def keeps_busy(term: Work | Once, resource: str) -> float:
    """Return for which share of its seconds a term keeps *resource* busy."""
    both = dict(zip(term.also, term.also_busy, strict=True))
    return 1.0 if term.resource == resource else float(both.get(resource, 0.0))


@pytest.mark.slow
@given(step=steps())
def test_no_step_is_shorter_than_what_a_resource_has_to_do(step: Any) -> None:
    found = add_up(step)
    for ran in runs(step):
        for resource in RESOURCES:
            busy = sum(
                keeps_busy(term, resource)
                * term.seconds
                * times(term, x)
                * (m if isinstance(term, Work) else 1)
                for term in step.terms
                for x, m in ran.items()
                if not isinstance(term, Edge)
            )
            assert found.step_seconds >= busy - 1e-9


@given(step=steps())
def test_no_step_is_longer_than_everything_one_after_another(step: Any) -> None:
    everything = 0.0
    for term in step.terms:
        if isinstance(term, Edge):
            everything += 2 * step.m * step.p * step.v * term.seconds
            continue
        often = sum(
            times(term, x) * (m if isinstance(term, Work) else 1)
            for ran in runs(step)
            for x, m in ran.items()
        )
        everything += term.seconds * often * (1 + term.slowdown)
    assert add_up(step).step_seconds <= everything + 1e-9


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_more_time_anywhere_never_shortens_the_step(step: Any, data: Any) -> None:
    if not step.terms:
        return
    i = data.draw(st.integers(0, len(step.terms) - 1))
    more = data.draw(st.sampled_from([0.5, 1.0, 7.0, 40.0]))
    longer = [*step.terms]
    longer[i] = evolve(longer[i], seconds=longer[i].seconds + more)
    assert add_up(step, longer).step_seconds >= add_up(step).step_seconds - 1e-9


#: What the numbers of a term grow by, where growing them is more work.
GROWTH = {
    "seconds": st.sampled_from([0.25, 1.0, 7.0]),
    "slowdown": st.sampled_from([0.0, 0.25, 0.5]),
    "also_busy": st.sampled_from([0.0, 0.25, 0.5]),
    "tail": st.sampled_from([0.0, 1.0, 3.0]),
    "boundaries": st.sampled_from([0.0, 1.0, 3.0]),
    "bytes_": st.sampled_from([0.5, 3.0]),
    "of_activations": st.sampled_from([0.25, 1.0]),
}


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_growing_any_number_of_any_term_never_makes_a_step_shorter_or_smaller(
    step: Any, data: Any
) -> None:
    """A search rests on it: a bound of few terms, or of their least, is a bound."""
    k = 3
    column = st.lists(st.integers(0, 8).map(float), min_size=k, max_size=k).map(np.array)
    slower = st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=k, max_size=k).map(np.array)
    before = []
    for term in (*step.terms, *step.memory):
        if data.draw(st.booleans()):
            name = "bytes_" if isinstance(term, Memory) else "seconds"
            term = evolve(term, **{name: data.draw(column)})  # noqa: PLW2901
        if isinstance(term, (Work, Once)) and data.draw(st.booleans()):
            term = evolve(term, slowdown=data.draw(slower))  # noqa: PLW2901
        before.append(term)
    if not before:
        return
    i = data.draw(st.integers(0, len(before) - 1))
    after = [*before]
    names = [name for name in GROWTH if hasattr(after[i], name)]
    if isinstance(after[i], Memory) and not after[i].per_micro_batch:
        names = ["bytes_", "of_activations"]
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)):
        own, more = getattr(after[i], name), data.draw(GROWTH[name])
        most = 1.0 if name == "also_busy" else inf  # a share
        larger = tuple(min(x + more, most) for x in own) if isinstance(own, tuple) else own + more
        after[i] = evolve(after[i], **{name: larger})
    more = {
        "blocking": data.draw(st.booleans()),
        "overlap": data.draw(st.sampled_from([0.0, 0.5, 1.0])),
    }
    one, other = (
        MAKE.step(*t, p=step.p, m=float(step.m), v=step.v, schedule=schedule(step), **more)
        for t in (before, after)
    )
    assert np.all(other.step_seconds >= one.step_seconds - 1e-9)
    assert np.all(other.memory_bytes >= one.memory_bytes - 1e-9)


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_higher_counts_never_shorten_the_step(step: Any, data: Any) -> None:
    found = [i for i, term in enumerate(step.terms) if not isinstance(term, Edge)]
    if not found:
        return
    i = data.draw(st.sampled_from(found))
    more = [*step.terms]
    n = step.p * step.v
    often = tuple(times(more[i], x) + data.draw(st.integers(0, 2)) for x in range(n))
    more[i] = evolve(more[i], count=often)
    assert add_up(step, more).step_seconds >= add_up(step).step_seconds - 1e-9


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_what_hides_less_never_shortens_the_step_where_hosts_are_not_slowed(
    step: Any, data: Any
) -> None:
    even = [t if isinstance(t, Edge) else evolve(t, slowdown=0.0) for t in step.terms]
    found = [i for i, term in enumerate(even) if not isinstance(term, Edge)]
    if not found:
        return
    i = data.draw(st.sampled_from(found))
    less = data.draw(st.sampled_from([0.0, 0.5]))
    more = [*even]
    if isinstance(more[i], Once):
        later = more[i].tail + data.draw(seconds)
        more[i] = evolve(more[i], beside=less * more[i].beside, tail=later)
    else:
        more[i] = evolve(more[i], share=less * more[i].share)
    assert add_up(step, more).step_seconds >= add_up(step, even).step_seconds - 1e-9


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_a_boundary_that_takes_longer_never_shortens_the_step(step: Any, data: Any) -> None:
    column = st.lists(seconds, min_size=step.p - 1, max_size=step.p - 1)
    hops, more = data.draw(column), data.draw(column)

    def slow_links(hops: Sequence[float]) -> Any:
        uneven = MAKE.edge(max(hops, default=0.0), "uneven", boundaries=hops)
        return add_up(step, [*step.terms, uneven]).step_seconds

    assert slow_links([a + b for a, b in zip(hops, more, strict=True)]) >= slow_links(hops) - 1e-9


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_more_bytes_anywhere_never_make_a_device_emptier(step: Any, data: Any) -> None:
    if not step.memory:
        return
    i = data.draw(st.integers(0, len(step.memory) - 1))
    term, n = step.memory[i], step.p * step.v
    changes: dict[str, Any] = {
        "bytes_": term.bytes_ + data.draw(seconds),
        "count": tuple(times(term, x) + data.draw(st.integers(0, 2)) for x in range(n)),
        "freed_at_b": 0.0,
        "of_activations": term.of_activations + data.draw(st.sampled_from([0.25, 1.0])),
        "moments": ("forward", "backward", "loss", "optimizer", "gather"),
    }
    name = data.draw(st.sampled_from(sorted(changes)))
    more = [*step.memory]
    more[i] = evolve(term, **{name: changes[name]})
    before, after = (
        add_up(SimpleNamespace(**{**vars(step), "memory": held})) for held in (step.memory, more)
    )
    assert after.memory_bytes >= before.memory_bytes - 1e-9
    pairs = zip(after.device_memory, before.device_memory, strict=True)
    assert all(a >= b - 1e-9 for a, b in pairs)


@pytest.mark.slow
@given(step=steps())
def test_a_bound_is_never_above_the_replay_and_what_is_exact_equals_it(step: Any) -> None:
    schedule_ = MAKE.registered.get(step.kind, schedule(step))
    if (
        schedule_.limits(PipelineShape(stages=step.p, micro_batches=step.m, chunks=step.v))
        if step.kind in MAKE.registered
        else (
            step.m > 2 * step.p + 2  # an order of its own for every number has no sketch
        )
    ):
        return
    cut = Pipeline(
        schedule=step.kind, stages=step.p, micro_batches=np.array([float(step.m)]), chunks=step.v
    )
    edges = [term for term in step.terms if isinstance(term, Edge)]
    stages = StageLoads([term for term in step.terms if term not in edges], pairs=True)
    loads = StructureLoads(stages, range(step.p * step.v), slice(0, 1))
    timed = ScheduleTimes(cut, schedule_, loads, edges, np.ones(1, dtype=bool))
    found = add_up(step)
    slack = 1e-12 * found.step_seconds
    assert serial_bound(step, timed.plan) <= found.step_seconds + slack
    bound, exact = (np.broadcast_to(value, 1) for value in timed.step())
    assert bound[0] <= found.step_seconds + slack
    if exact[0]:
        assert bound[0] == pytest.approx(found.step_seconds, rel=1e-12)
    stages = range(step.p * step.v)
    held = peak_memory(step.memory, [timed.plan], [stages], [np.array([float(step.m)])])
    assert np.all(held <= found.memory_bytes * (1 + 1e-12))


def serial_bound(step: Any, plan: SketchPlan) -> float:
    """Return what serial work alone says of a step."""

    def counts(row: Any) -> Sequence[float]:
        return row if isinstance(row, tuple) else (row,) * (step.p * step.v)

    hashable = [
        evolve(t, count=tuple(t.count)) if isinstance(getattr(t, "count", 1.0), list) else t
        for t in step.terms
    ]
    work = SerialWork([(Plugin(name="test"), term) for term in hashable], 0)
    assert not work.may_not_end(bool)
    rows = [(*words, counts(row), seconds) for *words, row, seconds in work.sums(float)]
    return float(bound_seconds(plan, float(step.m), rows))


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_fill_and_drain_are_what_a_simulator_says(step: Any, data: Any) -> None:
    n = step.p * step.v
    column = st.lists(st.integers(0, 9).map(float), min_size=n, max_size=n)
    F, B, W, gather, reduction = (data.draw(column) for _ in range(5))
    hop = data.draw(seconds)
    hops = data.draw(st.lists(seconds, min_size=step.p - 1, max_size=step.p - 1))
    uneven = [hop + each for each in hops]
    terms = [
        *(MAKE.work("pass", 1.0, k, count=c) for k, c in zip("FBW", (F, B, W), strict=True)),
        MAKE.edge(hop, "even"),
        MAKE.edge(max(hops, default=0.0), "uneven", boundaries=hops),
        MAKE.once("gather", 1.0, "fill", count=gather, resource="link"),
        MAKE.once("reduce", 1.0, "drain", count=reduction, resource="link"),
    ]
    lists = schedule(step).order(step.p, step.m, step.v)
    releases = {}
    for d, held in enumerate(own_orders(step)):
        for i, x in enumerate(held):
            releases[x, d] = sum(gather[y] for y in held[: i + 1])
    piped = MAKE.simulate(lists, {"F": F, "B": B, "W": W}, uneven, releases)
    done = piped.seconds
    for d, held in enumerate(own_orders(step)):
        free = 0.0
        for x in reversed(held):
            free = max(free, piped.ends[x, d]) + reduction[x]
        done = max(done, free)
    assert add_up(step, terms).step_seconds == pytest.approx(done)


@pytest.mark.slow
@given(step=steps(), seed=st.integers(0, 10**6))
def test_the_order_of_terms_does_not_change_a_bit(step: Any, seed: int) -> None:
    shuffled = [*step.terms]
    random.Random(seed).shuffle(shuffled)
    one, other = add_up(step), add_up(step, shuffled)
    assert one.step_seconds == other.step_seconds
    assert [(x.name, x.exposed) for x in one.ledger] == [(x.name, x.exposed) for x in other.ledger]


@pytest.mark.slow
@given(step=steps(), data=st.data())
def test_candidates_in_an_array_give_what_each_gives_alone(step: Any, data: Any) -> None:
    k = 4
    column = st.lists(st.integers(0, 8).map(float), min_size=k, max_size=k).map(np.array)
    slower = st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=k, max_size=k).map(np.array)
    batches = data.draw(st.lists(st.integers(1, 4), min_size=k, max_size=k).map(np.array))
    m = batches * {"interleaved": float(step.p), "pairs": 2.0}.get(step.kind, 1.0)
    arrays = [
        evolve(term, seconds=data.draw(column)) if data.draw(st.booleans()) else term
        for term in step.terms
    ]
    arrays = [
        evolve(term, slowdown=data.draw(slower))
        if isinstance(term, (Work, Once)) and data.draw(st.booleans())
        else term
        for term in arrays
    ]
    many = add_up(step, arrays, m=m)
    for i in range(k):
        alone = add_up(step, [value_at(term, i) for term in arrays], m=float(m[i]))
        for name in ("step_seconds", "makespan_seconds", "memory_bytes", "device", "flops"):
            assert pick(getattr(many, name), i) == pytest.approx(getattr(alone, name), rel=1e-12)
        found = {(x.name, x.pass_): pick(x.exposed, i) for x in many.ledger}
        for x in alone.ledger:
            exposed = found.pop((x.name, x.pass_))
            assert exposed == pytest.approx(x.exposed, rel=1e-12, abs=1e-9)
        assert list(found.values()) == pytest.approx([0.0] * len(found), abs=1e-9)


def value_at(term: Any, i: int) -> Any:
    changes: dict[str, Any] = {"seconds": pick(term.seconds, i)}
    if isinstance(term, (Work, Once)):
        changes["slowdown"] = pick(term.slowdown, i)
    return evolve(term, **changes)


def pick(value: Any, i: int) -> float:
    return float(np.broadcast_to(value, (4,))[i])
