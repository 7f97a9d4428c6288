"""Tables of a transfer: comparison of algorithms, steps of a ring, and advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Real, Section, Study, block_name, block_type
from parcost.numeric import INFINITY, ceil
from parcost_plugins.calculators.transfers.estimate import (
    DIVIDED,
    TransferEstimate,
    bus_factor,
    candidates,
    fastest_algorithm,
    limit,
    movement,
)
from parcost_plugins.vocabulary import OPERATIONS
from parcost_plugins.vocabulary.answers import section_note

#: Ranks listed in a ring's steps; the others do the same, shifted by one.
_SHOWN = 16
#: Sizes of a table by size: 1 KiB to 16 GiB.
_LADDER = tuple(1024.0 * 4.0**step for step in range(13))
_SHORT = {"reduce-scatter": "RS", "all-gather": "AG"}


def sections(study: Study, estimate: TransferEstimate) -> Iterator[Section]:
    """Return the tables that the transfer requests."""
    transfer = estimate.transfer
    if _is_swept(estimate):
        if transfer.compare != "off" or transfer.schedule or transfer.advice:
            yield section_note(block_name(transfer))
        return
    if transfer.compare == "sizes":
        yield by_size(study, estimate)
    elif transfer.compare != "off":
        yield comparison(study, estimate)
    if transfer.schedule:
        yield ring(estimate)
    if transfer.advice:
        yield advice(study, estimate)


def _is_swept(estimate: TransferEstimate) -> bool:
    """Return whether any value of the transfer varies over a sweep."""
    transfer, group = estimate.transfer, estimate.group
    fields = block_type(type(transfer)).fields
    links = (group.flat, group.hop, group.pair, *group.links, *group.pairs)
    values = [getattr(transfer, name) for name in fields]
    values += [x for link in links for x in (link.latency, link.bandwidth)]
    values += [group.ranks, group.reduction, estimate.n, estimate.seconds]
    return any(getattr(value, "ndim", 0) for value in values)


def comparison(study: Study, estimate: TransferEstimate) -> Section:
    """Return the table of all algorithms of the operation, or of all operations, fastest first."""
    transfer, group = estimate.transfer, estimate.group
    all_ = transfer.compare == "operations"
    rows: list[tuple[Any, ...]] = []
    unable: list[str] = []
    for operation in OPERATIONS if all_ else (transfer.operation,):
        timed: list[tuple[Any, Any]] = []
        for known in study.algorithms(operation):
            seconds = known.seconds(operation, estimate.sent, group)
            if seconds < INFINITY:
                timed.append((seconds, known))
            elif not all_:
                unable.append(
                    f"`{known.name}` is not available here: it needs {known.needs(operation)}"
                )
        picked = {k.name for k in study.candidates(operation)}
        auto = [s for s, k in timed if k.name in picked]
        for seconds, known in sorted(timed, key=lambda pair: (pair[0], pair[1].name)):
            best = min(auto, default=None)
            by_name = known.name not in picked
            row = _row(operation, known, seconds, estimate, best, by_name=by_name, all_=all_)
            rows.append(row)
    columns = ("algorithm", "rounds", "bytes", "start-up", "time", "")
    return Section(
        title=f"{block_name(transfer)}: {'every operation' if all_ else transfer.operation} "
        "by algorithm",
        columns=("operation", *columns) if all_ else columns,
        rows=rows,
        notes=[
            "rounds: messages one after another, each with one latency (alpha)",
            "bytes: through the busiest port, in one direction",
            "n: size of the whole buffer, not the share of one rank",
            *unable,
        ],
    )


def _row(
    operation: str,
    known: Any,
    seconds: Any,
    estimate: TransferEstimate,
    best: Any,
    *,
    by_name: bool,
    all_: bool,
) -> tuple[Any, ...]:
    moved = movement(known, operation, estimate.sent, estimate.group)
    mark = "fastest" if seconds == best else ""
    if by_name:
        mark = "lower bound" if known.name == "lower_bound" else "not chosen by auto"
    cells = (
        ("-", "-", "-")
        if moved is None
        else (moved.rounds, (moved.bytes_, "B"), (moved.waiting, "s"))
    )
    row = (known.name, *cells, (seconds, "s"), mark)
    return (operation, *row) if all_ else row


def by_size(study: Study, estimate: TransferEstimate) -> Section:
    """Return the table of the fastest algorithm by size, as chosen by a library."""
    transfer, group = estimate.transfer, estimate.group
    offered = candidates(study, transfer)
    rows: list[tuple[Any, ...]] = []
    for n in _LADDER:
        each: list[tuple[Any, str]] = []
        for known in offered:
            choices = getattr(known, "choices", None)
            if choices is None:
                each.append((known.seconds(transfer.operation, n, group), known.name))
            else:
                found = choices(transfer.operation, n, group)
                each += [(seconds, name) for name, seconds in found.items()]
        seconds, name = min(each)
        busy = bus_factor(transfer.operation, group.ranks) * n / seconds if seconds > 0 else 0.0
        rows.append(((n, "B"), name, (seconds, "s"), (busy, "B/s")))
    return Section(
        title=f"{block_name(transfer)}: {transfer.operation} by size",
        columns=("size", "fastest", "time", "bus bandwidth"),
        rows=rows,
    )


def ring(estimate: TransferEstimate) -> Section:
    """Return the table of a ring: each step, with the sender and receiver of each chunk."""
    operation = estimate.transfer.operation
    P = int(estimate.group.ranks)
    shown = min(P, _SHOWN)
    rows: list[tuple[Any, ...]] = []
    phases = {
        "all_reduce": ("reduce-scatter", "all-gather"),
        "reduce_scatter": ("reduce-scatter",),
        "all_gather": ("all-gather",),
    }.get(operation, ())
    for phase in phases:
        late = 1 if phase == "reduce-scatter" else 0
        for step in range(min(P - 1, 2 * _SHOWN)):
            sent = [f"{(rank - step - late) % P} to {(rank + 1) % P}" for rank in range(shown)]
            rows.append((f"{_SHORT[phase]} {step + 1}", *sent))
    notes = [
        "each cell: the chunk that the rank sends, and its destination; a chunk is n / P",
        "a reduce-scatter adds received chunks; rank i ends with the sum of chunk i",
    ]
    if not phases:
        notes = [f"`{operation}` does not go around a ring in chunks"]
    elif shown < P:
        notes.append(f"the first {shown} of {P} ranks; each further rank sends the next chunk")
    return Section(
        title=f"{block_name(estimate.transfer)}: the ring step by step",
        columns=("step", *(f"rank {rank}" for rank in range(shown))),
        rows=rows,
        notes=notes,
    )


def advice(study: Study, estimate: TransferEstimate) -> Section:
    """Return the bottleneck of the transfer, and the seconds that each remedy saves."""
    transfer, group, moved = estimate.transfer, estimate.group, estimate.moved
    name, seconds = block_name(transfer), estimate.whole
    bound = limit(study, estimate)
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    if moved is not None and moved.moving > 0:
        meets = moved.waiting / moved.moving
        kind = "latency" if meets > 1 else "bandwidth"
        notes.append(
            f"{kind}-bound: the transfer takes {moved.moving * 1e6:.4g} us and start-up "
            f"{moved.waiting * 1e6:.4g} us; they are equal at {_size_text(meets * estimate.n)}"
        )
        if kind == "latency":
            rows += _fewer_starts(estimate, meets)
        else:
            rows += _fewer_bytes(estimate)
    others = [
        (known.seconds(transfer.operation, estimate.sent, group), known.name)
        for known in study.candidates(transfer.operation)
    ]
    fast, best = min(others)
    if fast < seconds:
        rows.append((f"use `{best}`", (fast, "s"), (seconds - fast, "s")))
    rows.append(("lower bound for any algorithm:", (bound, "s"), (seconds - bound, "s")))
    return Section(
        title=f"{name}: limits and remedies",
        columns=("change", "time", "saves"),
        rows=rows,
        notes=notes,
    )


def _fewer_starts(estimate: TransferEstimate, meets: Any) -> Iterator[tuple[Any, ...]]:
    """Yield a row with the seconds per message saved by fusing messages."""
    transfer, group = estimate.transfer, estimate.group
    many = ceil(meets)
    fused, _ = fastest_algorithm(
        estimate.algorithms, transfer.operation, estimate.sent * many, group
    )
    each = fused / many
    saved = estimate.whole - each
    yield f"fuse {many:.0f} such messages into one: each", (each, "s"), (saved, "s")


def _fewer_bytes(estimate: TransferEstimate) -> Iterator[tuple[Any, ...]]:
    """Yield the seconds saved by sending half the bytes, and by overlapping the transfer."""
    transfer, group = estimate.transfer, estimate.group
    half, _ = fastest_algorithm(estimate.algorithms, transfer.operation, estimate.sent / 2, group)
    yield "send half the bytes (a type of fewer bits)", (half, "s"), (estimate.whole - half, "s")
    if transfer.operation in DIVIDED or transfer.operation == "all_reduce":
        yield "overlap it with compute of the same length", (0.0, "s"), (estimate.whole, "s")


def _size_text(bytes_: Real) -> str:
    """Return bytes as text, for use in a sentence.

    >>> _size_text(179.2e6), _size_text(12.5)
    ('179.2 MB', '12.5 B')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if bytes_ >= size:
            return f"{bytes_ / size:.4g} {unit}"
    return f"{bytes_:.4g} B"
