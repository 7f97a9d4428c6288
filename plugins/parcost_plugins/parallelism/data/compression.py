"""Gradient reduction, compressed or not: bytes, collectives, and the cost of compression.

A ring can only sum plain numbers. Quantised gradients and signs use an all-to-all, a local sum and
an all-gather; a reduce-scatter needs only the first two. With top-k every rank gathers the selected
values of all others. PowerSGD sends two thin factors of each matrix by all-reduce, and vectors
uncompressed.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from parcost import Call, Communication, Formula, Group, Real, Study, formula, record
from parcost.numeric import any_of, maximum, where
from parcost_plugins.physics.stage_parameters import StageKind
from parcost_plugins.vocabulary import Compression, Training
from parcost_plugins.vocabulary.compression import EXCHANGED, SUMMED


@record(kw_only=True, eq=False)
class ReductionCost:
    """The cost of a reduction: its time with its formula, its latency, and the bytes of its
    message.
    """

    formula: Formula
    bytes_: Real
    latency: Real = 0.0


def exchange(
    study: Study, kind: StageKind, operation: str, elements: Real, group: str, algorithm: str
) -> ReductionCost:
    """Estimate *operation*, an all-reduce or a reduce-scatter, of *elements* gradients."""
    chosen = study[Compression]
    method = chosen.method

    def estimate(operation: str, each: Real, text: str = "psi g") -> tuple[Call, Formula]:
        n = formula(text, {"psi": elements, text[-1]: (each, "B")})
        return study.collective(operation, n, group, algorithm), n

    if method == "none" or method in SUMMED:
        each = SUMMED[method] / 8.0 if method in SUMMED else study[Training].precision.reduction
        return _sequence([estimate(operation, each)])
    if method in EXCHANGED:
        n = formula("psi c", psi=elements, c=(quantised_bytes(chosen), "B"))
        calls = [(_sum_exchange(study, n, study.group(group)), n)]
        if operation == "all_reduce":
            calls.append((study.collective("all_gather", n, group, algorithm), n))
        return _sequence(calls)
    if method == "top_k":
        n = formula(
            "P psi c", P=study.group(group).ranks, psi=elements, c=(top_k_bytes(chosen), "B")
        )
        return _sequence([(study.collective("all_gather", n, group, algorithm), n)])
    return _sequence([estimate("all_reduce", part, "psi c") for part in low_rank(study, kind)])


def _sum_exchange(study: Study, n: Formula, group: Group) -> Call:
    """Estimate the all-to-all after which every rank has its share of the sum.

    Either all ranks exchange at the same time, or level by level, where a unit sends only its
    quantised sum. The faster way counts. Ring and tree algorithms do not support this.
    """
    whole = study.collective("all_to_all", n, group)
    flat = whole.formula
    levels: list[Formula] = []
    left = n
    for units, link in zip(group.shape, group.links, strict=True):
        if any_of(units > 1):
            name = f"{group.name} at {link.name}"
            level = Group(name=name, ranks=units, shape=(units,), links=(link,))
            levels.append(study.collective("all_to_all", left, level).formula)
            left = formula("n / g", n=(left, "B"), g=units)
    if len(levels) < 2:
        return whole
    faster = formula(
        "min(flat, sum(level))",
        flat=(flat, "s"),
        level=(levels, "s"),
        source="ZeRO++ exchanges by levels",
    )
    known = evolve(faster, communication=Communication("all_to_all", n.value, group))
    return Call(seconds=faster.value, algorithm=whole.algorithm, formula=known)


def quantised_bytes(chosen: Compression) -> Real:
    """Return the bytes per quantised element, scales included."""
    return EXCHANGED[chosen.method] / 8.0 + chosen.scale / chosen.block


def top_k_bytes(chosen: Compression) -> Real:
    """Return the bytes per gradient element that a rank sends with top-k compression."""
    return chosen.density * (chosen.value + chosen.index)


def low_rank(study: Study, kind: StageKind) -> tuple[Real, Real, Real]:
    """Return bytes per element: of both PowerSGD factors, and of uncompressed vectors.

    In a transformer, one side of every matrix is the hidden size. A tensor of at most that many
    elements is a vector.
    """
    chosen, hidden = study[Compression], study[Training].model.hidden
    size = study[Training].precision.reduction
    rows: Real = 0.0
    columns: Real = 0.0
    whole: Real = 0.0
    for held, often in kind.held:
        width = held.elements / hidden
        shrinks = (hidden + width) * chosen.rank * chosen.minimum_rate < held.elements
        rows = rows + often * where(shrinks, hidden, 0.0)
        columns = columns + often * where(shrinks, width, 0.0)
        whole = whole + often * where(shrinks, 0.0, held.elements)
    elements = maximum(kind.elements, 1.0)
    factor = chosen.rank * chosen.factor / elements
    return factor * rows, factor * columns, whole * size / elements


def _sequence(calls: Sequence[tuple[Call, Formula]]) -> ReductionCost:
    """Return the total of calls in sequence."""
    if len(calls) == 1:
        [(call, n)] = calls
        return ReductionCost(formula=call.formula, bytes_=n.value, latency=call.latency)
    bytes_: Real = 0.0
    latency: Real = 0.0
    for call, n in calls:
        bytes_ = bytes_ + n.value
        latency = latency + call.latency
    return ReductionCost(
        formula=formula("sum(t)", t=([call.formula for call, _ in calls], "s")),
        bytes_=bytes_,
        latency=latency,
    )
