"""A slow simulator of pipelines, independent of the replay of the product.

It iterates over the devices until all ops are done. An op starts when its device is free and its
inputs have arrived. Tests compare closed forms, bounds and the replay with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parcost.contract.pipelines import Op, Pair
from parcost.records import frozen


@frozen(eq=False)
class Simulation:
    """The result of a simulation. *starts* and *ends* are by stage and device, *spans* by device.

    *when* has an entry for each op: its device, the op, its start and its end.
    """

    seconds: Any
    starts: Mapping[tuple[int, int], Any]
    ends: Mapping[tuple[int, int], Any]
    spans: Sequence[Any]
    when: Sequence[tuple[int, Op | Pair, Any, Any]]


def inputs_of(op: Op, virtual_stages: int) -> set[tuple[str, int, int]]:
    """Return the ops that must be done before *op*, on any device; B stands for BW as well.

    >>> inputs_of(Op("F", 3, 1), 2)
    {('F', 3, 0)}
    """
    kind, j, x = op
    if kind == "F":
        return {("F", j, x - 1)} if x else set()
    if kind == "W":
        return {("B", j, x)}
    return {("F", j, x)} | ({("B", j, x + 1)} if x + 1 < virtual_stages else set())


def ops_of(entry: Op | Pair) -> list[Op]:
    """Return the op of an entry, or both ops of a pair."""
    return [entry.forward, entry.backward] if isinstance(entry, Pair) else [entry]


def simulate(
    lists: Sequence[Sequence[Op | Pair]],
    times: Mapping[str, Any],
    hop: Any = 0,
    releases: Mapping[tuple[int, int], Any] | None = None,
    *,
    blocking: bool = False,
) -> Simulation:
    """Return the simulation of devices that execute *lists*, each in order.

    *times* are the seconds of "F", "B" and "W" by virtual stage; ``times["FB"]`` are those of
    pairs. *hop* is one number, or one for each boundary of neighbouring devices. *releases* are the
    earliest starts of stages, by stage and device. A *blocking* device waits while it sends.

    Raises:
        AssertionError: The order deadlocks.

    >>> order = [[Op("F", 0, 0), Op("BW", 0, 0)], [Op("F", 0, 1), Op("BW", 0, 1)]]
    >>> simulate(order, {"F": [1, 1], "B": [1, 1], "W": [1, 1]}, hop=3).seconds
    12
    """
    virtual = len(times["F"])
    hops = hop if isinstance(hop, (list, tuple)) else [hop] * (len(lists) - 1)
    home = {
        (op.micro_batch, op.stage): d
        for d, entries in enumerate(lists)
        for entry in entries
        for op in ops_of(entry)
    }

    def way(a: int, b: int) -> Any:
        return max(hops[min(a, b) : max(a, b)], default=0)

    def duration(entry: Op | Pair) -> Any:
        if isinstance(entry, Pair):
            x, y = entry.forward.stage, entry.backward.stage
            in_turn = times["F"][x] + times["B"][y] + times["W"][y]
            return times.get("FB", {}).get((x, y), in_turn)
        return sum(times[kind][entry.stage] for kind in entry.kind)

    end: dict[tuple[str, int, int], Any] = {}
    when: list[tuple[int, Op | Pair, Any, Any]] = []
    clock: list[Any] = [0] * len(lists)
    left = [list(entries) for entries in lists]
    begun: set[tuple[int, int]] = set()
    while any(left):
        moved = False
        for d, entries in enumerate(left):
            while entries and all(
                inputs_of(op, virtual) <= end.keys() for op in ops_of(entries[0])
            ):
                entry = entries.pop(0)
                start = clock[d]
                for op in ops_of(entry):
                    for key in inputs_of(op, virtual):
                        start = max(start, end[key] + way(home[key[1], key[2]], d))
                    if op.kind == "F" and (op.stage, d) not in begun:
                        begun.add((op.stage, d))
                        start = max(start, (releases or {}).get((op.stage, d), 0))
                clock[d] = start + duration(entry)
                when.append((d, entry, start, clock[d]))
                for op in ops_of(entry):
                    end[op.kind[0], op.micro_batch, op.stage] = when[-1][3]
                    reader = op.stage + (1 if op.kind == "F" else -1)
                    if blocking and op.kind != "W" and 0 <= reader < virtual:
                        clock[d] += way(home[op.micro_batch, reader], d)
                moved = True
        assert moved, f"deadlock: devices wait for {[entries[0] for entries in left if entries]}"
    return _simulation(when, clock)


def _simulation(when: list[tuple[int, Op | Pair, Any, Any]], clock: Sequence[Any]) -> Simulation:
    starts: dict[tuple[int, int], Any] = {}
    ends: dict[tuple[int, int], Any] = {}
    for d, entry, start, stop in sorted(when, key=lambda one: one[2]):
        for op in ops_of(entry):
            if op.kind == "F":
                starts.setdefault((op.stage, d), start)
            else:
                ends[op.stage, d] = max(stop, ends.get((op.stage, d), stop))
    return Simulation(
        seconds=max(clock),
        starts=starts,
        ends=ends,
        spans=[
            max(stop for at, _, _, stop in when if at == d)
            - min(start for at, _, start, _ in when if at == d)
            for d in range(len(clock))
        ],
        when=when,
    )
