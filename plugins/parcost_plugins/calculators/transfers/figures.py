"""The figures of a transfer, such as ``<label>.seconds`` and ``<label>.rounds``."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Real, Sheet, Study, block_name, formula
from parcost_plugins.calculators.transfers.estimate import DIVIDED, TransferEstimate

_BUSY = "nccl-tests, doc/PERFORMANCE.md"


def figures(study: Study, estimate: TransferEstimate) -> Iterator[Figure]:
    """Return the figures of one transfer."""
    sheet = _sheet(estimate)
    yield from _time(sheet, estimate)
    yield from _amounts(sheet, estimate)
    yield from _rates(sheet, study, estimate)
    yield from _parts(sheet, estimate)
    yield from _chunks(sheet, estimate)
    yield from _overlap_figures(sheet, estimate)
    yield from _choices(sheet, estimate)


def _sheet(estimate: TransferEstimate) -> Sheet:
    """Return the symbols of a transfer: n bytes over P ranks, sent in c calls of t seconds each."""
    transfer, group = estimate.transfer, estimate.group
    link = group.hop if transfer.operation == "point_to_point" else group.links[0]
    return Sheet(
        block_name(transfer),
        n=(estimate.n, "B"),
        s=(estimate.sent, "B"),
        P=group.ranks,
        c=transfer.chunks,
        t=(estimate.each, "s"),
        o=(estimate.extra, "s"),
        packing=(estimate.packing, "s"),
        skew=(transfer.skew, "s"),
        setup=(transfer.setup, "s"),
        times=transfer.times,
        B=(link.bandwidth, "B/s"),
        alpha=(link.latency, "s"),
        gamma=(group.reduction, "s/B"),
        whole=(estimate.whole, "s"),
    )


def _count_formula(estimate: TransferEstimate, value: Real) -> Formula:
    """Return the formula of a number counted in the phases of the algorithm."""
    inputs = {"n": (estimate.sent, "B"), "P": estimate.group.ranks}
    return Formula(text="counted in the phases of the algorithm", inputs=inputs, value=value)


def _time(sheet: Sheet, estimate: TransferEstimate) -> Iterator[Figure]:
    transfer, call = estimate.transfer, estimate.call
    plain = (
        _is_default(estimate.extra, 0.0)
        and _is_default(transfer.skew, 0.0)
        and transfer.codec is None
    )
    if plain and _is_default(transfer.chunks, 1.0) and transfer.pieces is None:
        seconds = call.formula
    else:
        seconds = sheet.formula("c (t + o) + packing + skew, c calls of t")
    yield sheet("seconds", "time", "s", seconds, note=f"by {call.algorithm}")
    if _is_repeated(estimate):
        yield sheet("total_seconds", "time of all calls", "s", "setup + times seconds")


def _is_repeated(estimate: TransferEstimate) -> bool:
    return not (
        _is_default(estimate.transfer.times, 1.0) and _is_default(estimate.transfer.setup, 0.0)
    )


def _is_default(value: Real, plain: float) -> bool:
    """Return whether *value* is the default *plain*."""
    return isinstance(value, float) and value == plain


#: Minimum bytes sent by all ranks together.
SENT = {
    **dict.fromkeys(
        ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"), "(P - 1) s"
    ),
    **dict.fromkeys(("scatter", "gather"), "(P - 1) / P s"),
    "all_reduce": "2 (P - 1) s",
    "point_to_point": "min(P - 1, 1) s",
}
#: Minimum bytes across the bisection, in each direction.
_CROSSING = {"all_to_all": "s P / 4", **dict.fromkeys(DIVIDED - {"all_to_all"}, "s / 2")}


def _amounts(sheet: Sheet, estimate: TransferEstimate) -> Iterator[Figure]:
    yield sheet("ranks", "ranks", "", "P")
    yield sheet("size", "buffer", "B", "n")
    yield sheet("shard", "shard of one rank", "B", "n / P")
    moved = estimate.moved
    if moved is not None:
        yield sheet(
            "rounds",
            "rounds, each with one start-up time (alpha)",
            "",
            _count_formula(estimate, moved.rounds),
        )
        title = "bytes through the busiest port, in each direction"
        yield sheet("bytes", title, "B", _count_formula(estimate, moved.bytes_))
        if _is_repeated(estimate):
            yield sheet("total_bytes", f"{title}, all calls", "B", "times bytes")
        if len(moved.by_link) > 1:
            for name, (rounds, bytes_) in moved.by_link.items():
                counted = _count_formula(estimate, rounds)
                yield sheet(f"{name}_rounds", f"rounds over {name}", "", counted)
                yield sheet(
                    f"{name}_bytes", f"bytes over {name}", "B", _count_formula(estimate, bytes_)
                )
    text = SENT[estimate.transfer.operation]
    yield sheet(
        "volume",
        "lower bound of the bytes sent by all ranks",
        "B",
        f"{text}, or more in some algorithms",
    )
    if _is_repeated(estimate):
        title = "lower bound of the bytes sent by all ranks, all calls"
        yield sheet("total_volume", title, "B", "times volume")


def _rates(sheet: Sheet, study: Study, estimate: TransferEstimate) -> Iterator[Figure]:
    transfer, operation = estimate.transfer, estimate.transfer.operation
    link = estimate.group.hop if operation == "point_to_point" else estimate.group.links[0]
    yield sheet("bandwidth", f"bandwidth of {link.name}", "B/s", "B")
    yield sheet("alpha", "start-up", "s", "alpha")
    yield sheet("beta", "time per byte", "ps/B", "1 / B")
    sheet.source = _BUSY
    yield sheet(
        "algorithm_bandwidth", "algorithm bandwidth", "B/s", "seconds > 0 ? n / seconds : 0"
    )
    factor = "min(P - 1, 1)"
    if operation in DIVIDED or operation == "all_reduce":
        factor = "2 (P - 1) / P" if operation == "all_reduce" else "(P - 1) / P"
    yield sheet("bus_bandwidth", "bus bandwidth", "B/s", f"{factor} algorithm_bandwidth")
    sheet.source = "Chan et al. 2007; Patarasuk and Yuan 2009"
    crossing = None
    if transfer.bisection is not None:
        text = f"{_CROSSING.get(operation, 's')} min(P - 1, 1) / B_bisection"
        crossing = sheet.formula(text, B_bisection=(transfer.bisection, "B/s"))
    yield sheet(
        "lower_bound",
        "lower bound of the time, for any algorithm",
        "s",
        _limit(study, estimate, crossing),
    )
    yield sheet("efficiency", "lower bound / time", "%", "seconds > 0 ? lower_bound / seconds : 1")
    if crossing is not None:
        yield sheet("bisection_bound", "time across the bisection", "s", crossing)
    sheet.source = ""


def _limit(study: Study, estimate: TransferEstimate, crossing: Formula | None) -> Formula:
    """Return the lower bound in seconds for any algorithm on these links and this network."""
    operation = estimate.transfer.operation
    bound = formula("0, if no plugin provides a bound")
    if study.candidates(operation, "lower_bound"):
        bound = study.collective(operation, estimate.sent, estimate.group, "lower_bound").formula
    if crossing is None:
        return bound
    return formula("max(t, x)", t=(bound, "s"), x=(crossing, "s"))


def _parts(sheet: Sheet, estimate: TransferEstimate) -> Iterator[Figure]:
    moved = estimate.moved
    if moved is None:
        return
    waiting, moving = (
        _count_formula(estimate, moved.waiting),
        _count_formula(estimate, moved.moving),
    )
    yield sheet("latency_seconds", "part of the time: start-up", "s", waiting)
    yield sheet("bandwidth_seconds", "part of the time: bytes / bandwidth", "s", moving)
    if estimate.transfer.gamma is not None:
        yield sheet("reduced", "bytes a rank reduces", "B", _count_formula(estimate, moved.reduced))
        yield sheet(
            "reduction_seconds", "part of the time: reduction on the device", "s", "gamma reduced"
        )
    yield sheet(
        "crossover",
        "size at which start-up and transfer take equal time",
        "B",
        "bandwidth_seconds > 0 ? latency_seconds n / bandwidth_seconds : 0",
    )


def _chunks(sheet: Sheet, estimate: TransferEstimate) -> Iterator[Figure]:
    if _is_default(estimate.transfer.chunks, 1.0) and _is_default(estimate.extra, 0.0):
        return
    yield sheet("chunks", "chunks", "", "c")
    yield sheet("chunk_size", "size of a chunk", "B", "n / c")
    yield sheet("chunk_seconds", "time of a chunk", "s", "t, of n / c bytes")
    yield sheet("overhead_seconds", "overhead of all chunks", "s", "c o")
    yield sheet(
        "chunking_cost",
        "additional time of chunks",
        "%",
        "whole > 0 ? seconds / whole - 1 : 0",
        note="compared with one call without overhead",
    )
    if estimate.moved is not None:
        yield sheet(
            "best_chunks",
            "best number of chunks",
            "",
            "o > 0 ? max(sqrt(bandwidth_seconds / o), 1) : infinity",
            note="minimizes T / c + c o: the exposed last chunk and the overhead of c chunks",
        )
        yield sheet("exposed_tail", "last chunk and overhead", "s", "bandwidth_seconds / c + c o")


def _overlap_figures(sheet: Sheet, estimate: TransferEstimate) -> Iterator[Figure]:
    if estimate.transfer.compute is None:
        return
    sheet.symbols["compute"] = (estimate.transfer.compute, "s")
    sheet.symbols["T"] = sheet.formula("setup + times seconds"), "s"
    yield sheet(
        "ratio", "of the compute that it overlaps with", "%", "compute > 0 ? T / compute : infinity"
    )
    yield sheet("hidden", "hidden under compute", "s", "min(T, compute)")
    yield sheet("exposed", "exposed", "s", "max(0, T - compute)")


def _choices(sheet: Sheet, estimate: TransferEstimate) -> Iterator[Figure]:
    """Return the seconds of each variant of an algorithm, from which it chooses."""
    if estimate.transfer.algorithm == "auto":
        return
    for known in estimate.algorithms:
        choices = getattr(known, "choices", None)
        if choices is None:
            continue
        found = choices(estimate.transfer.operation, estimate.sent, estimate.group)
        for name, seconds in found.items():
            by_table = Formula(
                text="by the arithmetic of the algorithm",
                inputs={"n": (estimate.sent, "B"), "P": estimate.group.ranks},
                source=known.source,
                value=seconds,
            )
            yield sheet(name, f"time by {name}", "s", by_table)
