"""What a search needs to know of an order: where stages are, and what is alive, roughly.

An order is worked out once for each schedule and structure, for as many micro-batches as it
takes until nothing new happens, and holds for any number of them. What is alive is that of
one moment on each device, the one with the most in all, and no more than there are
micro-batches: never more than the order itself would say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from attrs import frozen

from parcost.evaluation.order import Alive, ask
from parcost.terms import Op, Pair, Schedule

_SETTLED = 2  # times the stages: micro-batches until a schedule repeats itself
_TRIED = 4  # times the stages: how much further a legal number of micro-batches is looked for


@frozen(kw_only=True, eq=False)
class Sketch:
    """An order without its program; the fields are those of ``Order``.

    *micro_batches* are those that it was worked out for; *grows* says that all of them are
    alive at once, and any further one would be as well.
    """

    micro_batches: int
    grows: bool
    stage: tuple[int, ...]
    device: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]
    runs: Sequence[int]
    split: Sequence[bool]
    alive_forward: Sequence[Sequence[Alive]]
    alive_backward: Sequence[Sequence[Alive]]
    pairs: Sequence[Counter[tuple[int, int]]]
    first: Sequence[int]
    last: Sequence[int]
    final: Sequence[int]  # by device: the copy of the stage of its last op
    fused: bool


def settled(schedule: Schedule, stages: int, chunks: int, most: int) -> int:
    """Return the micro-batches to sketch an order for, where up to *most* occur."""
    limits = getattr(schedule, "limits", None)
    first = min(_SETTLED * stages + 2, most)
    for m in range(first, first + _TRIED * stages + 1):
        if limits is None or not limits(stages, m, chunks):
            return m
    return most


@lru_cache(maxsize=4096)
def sketch(schedule: Any, stages: int, micro_batches: int, chunks: int) -> Sketch:
    """Return the sketch of the order of *schedule*.

    Raises:
        OrderError: The schedule raises, or lists something else than ops.
    """
    lists = ask(schedule, stages, micro_batches, chunks)
    places: dict[tuple[int, int], int] = {}
    runs: Counter[tuple[int, int]] = Counter()
    ops = [_ops(entries) for entries in lists]
    for d, own in enumerate(ops):
        runs.update((x, d) for kind, _, x in own if kind == "F")
    by_stage: dict[int, list[int]] = {}
    for x, d in sorted(runs):
        by_stage.setdefault(x, []).append(d)
    most = max(map(len, by_stage.values()))
    copies = [
        (x, by_stage[x][n]) for n in range(most) for x in sorted(by_stage) if n < len(by_stage[x])
    ]
    places.update({copy: k for k, copy in enumerate(copies)})
    held = tuple(
        tuple(places[x, on] for x, on in sorted(copies) if on == d) for d in range(len(lists))
    )
    split = [False] * len(copies)
    forward, backward = [], []
    for d, own in enumerate(ops):
        last = {x: kind for kind, _, x in own if kind != "F"}
        for x, kind in last.items():
            split[places[x, d]] = kind == "W"
        at_f, at_b = _fullest(own, [copies[k][0] for k in held[d]])
        forward.append([at_f])
        backward.append([at_b])
    numbers = [runs[copy] for copy in copies]
    return Sketch(
        micro_batches=micro_batches,
        grows=any(
            n == numbers[k] > _SETTLED * stages
            for d, (row,) in enumerate(forward)
            for n, k in zip(row.alive, held[d], strict=True)
        ),
        stage=tuple(x for x, _ in copies),
        device=tuple(d for _, d in copies),
        held=held,
        runs=numbers,
        split=split,
        alive_forward=forward,
        alive_backward=backward,
        pairs=[
            Counter((e.forward.stage, e.backward.stage) for e in entries if isinstance(e, Pair))
            for entries in lists
        ],
        first=[own[0].stage for own in ops],
        last=[0 if own[-1].kind == "W" else own[-1].stage for own in ops],
        final=[places[own[-1].stage, d] for d, own in enumerate(ops)],
        fused=not any(kind == "W" for own in ops for kind, _, _ in own),
    )


def _ops(entries: Sequence[Op | Pair]) -> list[Op]:
    found: list[Op] = []
    for entry in entries:
        if isinstance(entry, Pair):
            found += (entry.backward, entry.forward)
        else:
            found.append(entry)
    return found


def _fullest(ops: Sequence[Op], held: Sequence[int]) -> tuple[Alive, Alive]:
    """Return the moments of a forward and of a backward pass with the most alive in all."""
    place = {x: i for i, x in enumerate(held)}
    alive, whole = [0] * len(held), [0] * len(held)
    best = [-1, -1]
    found = [Alive(tuple(alive), tuple(whole))] * 2
    sum_ = 0
    for kind, _, x in ops:
        i = place[x]
        if kind == "F":
            alive[i] += 1
            whole[i] += 1
            sum_ += 2
        now = kind != "F"
        if sum_ > best[now]:
            best[now] = sum_
            found[now] = Alive(tuple(alive), tuple(whole))
        if kind != "F":
            alive[i] -= kind != "B"
            whole[i] -= kind != "W"
            sum_ -= (kind != "B") + (kind != "W")
    return found[0], found[1]
