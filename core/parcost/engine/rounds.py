"""Rounds of an order: the ops between warm-up and cool-down, which repeat with later micro-batches.

A long order is a short order with more rounds. So only the short order is compiled, and a replay
repeats one round. If a round adds the same time to all values that later ops need, so does every
further round. Then one multiplication replaces the remaining rounds.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence

from parcost.contract.pipelines import Op, Pair
from parcost.records import frozen


@frozen(kw_only=True, eq=False)
class Round:
    """One round of an order: the entries from *start* to *stop* in the order of *turns*.

    *turns* has the device of each entry. *carried* are the outputs that cross devices and are
    produced before *start* and needed after it, numbered as in ``turns_of``. After the round, the
    *later* outputs replace them. *sizes* are the ops of a round by device.
    """

    turns: Sequence[int]
    start: int
    stop: int
    carried: Sequence[int]
    later: int
    sizes: Sequence[int]


def find_round(
    lists: Sequence[Sequence[Op | Pair]],
    home: Sequence[int],
    turns: Sequence[int],
    period: int,
    virtual: int,
) -> Round | None:
    """Return the first round of *period* micro-batches, None if the order is not periodic.

    *home* is the device of each (micro-batch, virtual stage), *turns* the device of each entry.
    """
    micro_batches = len(home) // virtual
    ops: list[Sequence[Op]] = []
    for entries in lists:
        if any(isinstance(entry, Pair) for entry in entries):
            return None
        ops.append(entries)  # type: ignore[arg-type]
    if any(len(own) * period % micro_batches for own in ops):
        return None
    sizes = [len(own) * period // micro_batches for own in ops]
    begins = _steady_positions(ops, turns, sizes, period, virtual)
    if begins is None or not _is_balanced(ops, begins, sizes, period):
        return None
    phases: tuple[list[int], ...] = ([], [], [], [])  # before the round, it, the next, the rest
    made = [4] * (2 * len(home) + 1)  # the phase of each output
    made[-1] = 0  # a position without work
    live: tuple[set[int], ...] = (set(), set(), set())  # after each phase
    at = [0] * len(ops)
    for d in turns:
        kind, j, x = ops[d][at[d]]
        phase = 0 if at[d] < begins[d] else min(1 + (at[d] - begins[d]) // sizes[d], 3)
        at[d] += 1
        phases[phase].append(d)
        need, output = _need_and_output(kind, j * virtual + x, x, virtual, len(home))
        if made[need] > phase:
            return None  # an op waits for one of a later round
        if need >= 0 and home[need % len(home)] != d:
            for cut in range(made[need], min(phase, 3)):
                live[cut].add(need)
        if output >= 0:
            made[output] = phase
    later = period * virtual
    carried = sorted(live[0])
    if {output + later for output in carried} != live[1]:
        return None
    start = len(phases[0])
    return Round(
        turns=array("I", [d for phase in phases for d in phase]),
        start=start,
        stop=start + len(phases[1]),
        carried=carried,
        later=later,
        sizes=sizes,
    )


def _steady_positions(
    ops: Sequence[Sequence[Op]],
    turns: Sequence[int],
    sizes: Sequence[int],
    period: int,
    virtual: int,
) -> Sequence[int] | None:
    """Return the position of the first round on each device, None if there is no round.

    The round and the next one are equal except for their micro-batches, and so are the ops just
    before them. Every virtual stage had its first forward pass before.
    """
    alike = [_repeat_lengths(own, size, period) for own, size in zip(ops, sizes, strict=True)]
    at = [0] * len(ops)
    ready = [False] * len(ops)
    started: set[int] = set()
    for d in turns:
        if len(started) == virtual and all(ready):
            return at
        kind, _, x = ops[d][at[d]]
        if kind == "F":
            started.add(x)
        ready[d] = alike[d][at[d]] > sizes[d]
        at[d] += 1
    return None


def _repeat_lengths(ops: Sequence[Op], size: int, period: int) -> Sequence[int]:
    """Return for each position the length of the run of ops that repeats *size* positions later."""
    found = [0] * (len(ops) + 1)
    for i in range(len(ops) - size - 1, -1, -1):
        kind, j, x = ops[i]
        if ops[i + size] == (kind, j + period, x):
            found[i] = found[i + 1] + 1
    return found


def _is_balanced(
    ops: Sequence[Sequence[Op]], begins: Sequence[int], sizes: Sequence[int], period: int
) -> bool:
    """Return whether a round has each pass of each stage for *period* micro-batches."""
    for own, begin, size in zip(ops, begins, sizes, strict=True):
        found = Counter((kind, x) for kind, _, x in own[begin : begin + size])
        if found.keys() != {(kind, x) for kind, _, x in own} or {*found.values()} != {period}:
            return False
    return True


def _need_and_output(kind: str, at: int, x: int, virtual: int, half: int) -> tuple[int, int]:
    """Return the index of the output that an op needs, and of its own output; -1 for none."""
    if kind == "F":
        return (at - 1 if x else -1), at
    if kind == "W":
        return -1, -1
    return (half + at + 1 if x + 1 < virtual else -1), half + at
