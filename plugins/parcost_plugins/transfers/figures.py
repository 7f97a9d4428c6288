"""The figures of a transfer: ``<label>.seconds``, ``<label>.rounds`` and their like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Figure, Formula, Real, Study, called
from parcost.numeric import INFINITY, maximum, minimum, sqrt, where
from parcost_plugins.transfers.priced import Priced, bisection, bus_factor, limit, volume

_BUSY = "nccl-tests, doc/PERFORMANCE.md"
_WIRE = "bytes that ranks have to send, whatever the algorithm"


def figures(study: Study, priced: Priced) -> Iterator[Figure]:
    """Return the figures of one transfer."""
    make = _Maker(priced)
    yield from _time(make, priced)
    yield from _amounts(make, priced)
    yield from _rates(make, study, priced)
    yield from _parts(make, priced)
    yield from _chunks(make, priced)
    yield from _hiding(make, priced)
    yield from _choices(make, priced)


class _Maker:
    """Makes figures that are named after the transfer."""

    def __init__(self, priced: Priced) -> None:
        self.label = called(priced.transfer)

    def __call__(
        self,
        name: str,
        title: str,
        value: Real,
        unit: str,
        formula: Formula,
        note: str = "",
    ) -> Figure:
        return Figure(
            name=f"{self.label}.{name}",
            title=f"{self.label}: {title}",
            value=value,
            unit=unit,
            formula=formula,
            note=note,
        )


def _of(text: str, source: str = "", /, **inputs: tuple[Any, str]) -> Formula:
    return Formula(text=text, inputs=inputs, source=source)


def _time(make: _Maker, priced: Priced) -> Iterator[Figure]:
    transfer, call = priced.transfer, priced.call
    by = f"by {call.algorithm}"
    total = _of(
        "c (t + o) + k + w",
        c=(transfer.chunks, ""),
        t=(priced.each, "s"),
        o=(priced.extra, "s"),
        k=(priced.packing, "s"),
        w=(transfer.skew, "s"),
    )
    plain = _is(priced.extra, 0.0) and _is(transfer.skew, 0.0) and transfer.codec is None
    single = plain and _is(transfer.chunks, 1.0)
    yield make(
        "seconds",
        "time",
        priced.seconds,
        "s",
        call.formula if single and transfer.pieces is None else total,
        by,
    )
    if _repeated(priced):
        formula = _of(
            "setup + times t",
            setup=(transfer.setup, "s"),
            times=(transfer.times, ""),
            t=(priced.seconds, "s"),
        )
        yield make("total_seconds", "time, all times", priced.total, "s", formula)


def _repeated(priced: Priced) -> bool:
    return not (_is(priced.transfer.times, 1.0) and _is(priced.transfer.setup, 0.0))


def _is(value: Real, plain: float) -> bool:
    """Say whether *value* is left at what it is by default."""
    return isinstance(value, float) and value == plain


def _amounts(make: _Maker, priced: Priced) -> Iterator[Figure]:
    transfer, P, n = priced.transfer, priced.group.ranks, priced.n
    yield make("ranks", "ranks", P, "", _of("P", P=(P, "")))
    yield make("size", "buffer", n, "B", _of("n", n=(n, "B")))
    yield make("shard", "part of one rank", n / P, "B", _of("n / P", n=(n, "B"), P=(P, "")))
    moved = priced.moved
    if moved is not None:
        formula = _of("counted in what the algorithm does", n=(n, "B"), P=(P, ""))
        yield make("rounds", "rounds (alpha)", moved.rounds, "", formula)
        title = "bytes through the busiest port, each way"
        yield make("bytes", title, moved.bytes_, "B", formula)
        if _repeated(priced):
            every = _of("times b", times=(transfer.times, ""), b=(moved.bytes_, "B"))
            total = transfer.times * moved.bytes_
            yield make("total_bytes", f"{title}, all times", total, "B", every)
        if len(moved.by_link) > 1:
            for name, (rounds, bytes_) in moved.by_link.items():
                yield make(f"{name}_rounds", f"rounds over {name}", rounds, "", formula)
                yield make(f"{name}_bytes", f"bytes over {name}", bytes_, "B", formula)
    wire = volume(transfer.operation, priced.sent, P)
    formula = _of(_WIRE, n=(priced.sent, "B"), P=(P, ""))
    yield make("volume", "bytes that all ranks send", wire, "B", formula)
    if _repeated(priced):
        title = "bytes that all ranks send, all times"
        yield make("total_volume", title, transfer.times * wire, "B", formula)


def _rates(make: _Maker, study: Study, priced: Priced) -> Iterator[Figure]:
    transfer, n, P = priced.transfer, priced.n, priced.group.ranks
    seconds, operation = priced.seconds, transfer.operation
    link = priced.group.hop if operation == "point_to_point" else priced.group.links[0]
    yield make(
        "bandwidth",
        f"bandwidth of {link.name}",
        link.bandwidth,
        "B/s",
        _of("B", B=(link.bandwidth, "B/s")),
    )
    yield make("alpha", "start-up", link.latency, "s", _of("alpha", alpha=(link.latency, "s")))
    beta = 1 / link.bandwidth
    yield make("beta", "time per byte", beta, "ps/B", _of("1 / B", B=(link.bandwidth, "B/s")))
    algorithm = where(seconds > 0, n / maximum(seconds, 1e-300), 0.0)
    factor = bus_factor(operation, P)
    timed = _of("n / t", _BUSY, n=(n, "B"), t=(seconds, "s"))
    yield make("algorithm_bandwidth", "algorithm bandwidth", algorithm, "B/s", timed)
    busy = _of("f n / t", _BUSY, f=(factor, ""), n=(n, "B"), t=(seconds, "s"))
    yield make("bus_bandwidth", "bus bandwidth", factor * algorithm, "B/s", busy)
    bound = limit(study, priced)
    text = "largest of rounds alpha, bytes / B, bytes to add gamma"
    formula = _of(
        text, "Chan et al. 2007; Patarasuk and Yuan 2009", n=(priced.sent, "B"), P=(P, "")
    )
    yield make("lower_bound", "no algorithm takes less", bound, "s", formula)
    share = where(seconds > 0, bound / maximum(seconds, 1e-300), 1.0)
    yield make("efficiency", "lower bound over time", share, "%", formula)
    if transfer.bisection is not None:
        cut = bisection(operation, priced.sent, P, transfer.bisection)
        formula = _of("bytes across / B", n=(n, "B"), P=(P, ""), B=(transfer.bisection, "B/s"))
        yield make("bisection_bound", "time across the middle", cut, "s", formula)


def _parts(make: _Maker, priced: Priced) -> Iterator[Figure]:
    moved, n = priced.moved, priced.n
    if moved is None:
        return
    sizes = {"n": (n, "B"), "P": (priced.group.ranks, "")}
    starts = _of("alpha of each round, added up", **sizes)
    yield make("latency_seconds", "of which start-up", moved.waiting, "s", starts)
    travel = _of("bytes over B of each round, added up", **sizes)
    yield make("bandwidth_seconds", "of which bytes under way", moved.moving, "s", travel)
    gamma = priced.group.reduction
    if priced.transfer.gamma is not None:
        counted = _of("counted in what the algorithm does", **sizes)
        yield make("reduced", "bytes that a rank adds", moved.reduced, "B", counted)
        sums = _of("gamma G", gamma=(gamma, "s/B"), G=(moved.reduced, "B"))
        added = gamma * moved.reduced
        yield make("reduction_seconds", "of which additions", added, "s", sums)
    per_byte = moved.moving / maximum(n, 1e-300)
    meets = where(per_byte > 0, moved.waiting / maximum(per_byte, 1e-300), 0.0)
    yield make(
        "crossover",
        "size where start-up and bytes take as long",
        meets,
        "B",
        _of(
            "start-up n / (seconds of n bytes)",
            start_up=(moved.waiting, "s"),
            n=(n, "B"),
            seconds=(moved.moving, "s"),
        ),
    )


def _chunks(make: _Maker, priced: Priced) -> Iterator[Figure]:
    transfer, n = priced.transfer, priced.n
    c = transfer.chunks
    if _is(c, 1.0) and _is(priced.extra, 0.0):
        return
    yield make("chunks", "chunks", c, "", _of("c", c=(c, "")))
    yield make("chunk_size", "chunk", n / c, "B", _of("n / c", n=(n, "B"), c=(c, "")))
    one = _of("t of n / c", n=(n, "B"), c=(c, ""))
    yield make("chunk_seconds", "time of a chunk", priced.each, "s", one)
    yield make(
        "overhead_seconds",
        "overhead of all chunks",
        c * priced.extra,
        "s",
        _of("c o", c=(c, ""), o=(priced.extra, "s")),
    )
    ratio = where(priced.whole > 0, priced.seconds / maximum(priced.whole, 1e-300) - 1, 0.0)
    yield make(
        "chunking_cost",
        "what chunks add",
        ratio,
        "%",
        _of("t / t1 - 1", t=(priced.seconds, "s"), t1=(priced.whole, "s")),
        "against one call without overhead",
    )
    if priced.moved is not None:
        tail = priced.moved.moving
        spent = maximum(priced.extra, 1e-300)
        best = where(priced.extra > 0, sqrt(tail / spent), INFINITY)
        yield make(
            "best_chunks",
            "best number of chunks",
            maximum(best, 1.0),
            "",
            _of("sqrt(T / o)", T=(tail, "s"), o=(priced.extra, "s")),
            "shortest exposed tail T / c plus overhead c o, where compute covers the other chunks",
        )
        exposed = tail / c + c * priced.extra
        formula = _of("T / c + c o", T=(tail, "s"), c=(c, ""), o=(priced.extra, "s"))
        yield make("exposed_tail", "last chunk and overhead", exposed, "s", formula)


def _hiding(make: _Maker, priced: Priced) -> Iterator[Figure]:
    compute = priced.transfer.compute
    if compute is None:
        return
    total = priced.total
    inputs: dict[str, tuple[Any, str]] = {"t": (total, "s"), "c": (compute, "s")}
    ratio = where(compute > 0, total / maximum(compute, 1e-300), INFINITY)
    yield make("ratio", "of the compute beside it", ratio, "%", _of("t / c", **inputs))
    hidden = minimum(total, compute)
    yield make("hidden", "hidden under compute", hidden, "s", _of("min(t, c)", **inputs))
    yield make("exposed", "exposed", total - hidden, "s", _of("max(0, t - c)", **inputs))


def _choices(make: _Maker, priced: Priced) -> Iterator[Figure]:
    """Return the time of each of the ways among which an algorithm chooses itself."""
    if priced.transfer.algorithm == "auto":
        return
    for known in priced.algorithms:
        choices = getattr(known, "choices", None)
        if choices is None:
            continue
        found = choices(priced.transfer.operation, priced.sent, priced.group)
        for name, seconds in found.items():
            yield make(name, f"by {name}", seconds, "s", priced.call.formula)
