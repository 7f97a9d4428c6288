"""The cost of GEMMs in chunks, or of micro-batches in halves.

A GEMM with ``M / q`` rows fills tiles and waves worse than one with M rows, and is launched q
times. The kernel model of the study gives the difference: q T(M / q) - T(M).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve

from parcost import Formula, Real, Study, Work, formula
from parcost_plugins.parallelism.tensor.layer_collectives import HOSTS
from parcost_plugins.vocabulary import Gemm, KernelChoice, Layout, Overlap
from parcost_plugins.vocabulary.causes import TENSOR

_COLUMNS = frozenset(columns for columns, _ in HOSTS.values())
_ROWS = frozenset(rows for _, rows in HOSTS.values())


def chunk_losses(study: Study) -> Iterator[Work]:
    """Yield the time that GEMMs lose because they run in chunks during their communication."""
    overlap = study[Overlap]
    for gemm in _products(study):
        forward = gemm.pass_ in ("F", "R")
        if forward or (gemm.pass_ == "B" and gemm.host in _ROWS):
            yield _loss(
                study,
                gemm,
                f"{gemm.name}, in chunks",
                overlap.chunks,
                lambda g, q: evolve(g, m=g.m / q),
                overhead=overlap.chunk_overhead,
            )


def split_losses(study: Study) -> Iterator[Work]:
    """Yield the time that GEMMs lose because they run twice, each on half a micro-batch."""
    for gemm in _products(study):
        half: Callable[[Gemm, Real], Gemm] = (
            (lambda g, q: evolve(g, k=g.k / q))
            if gemm.pass_ == "W"
            else (lambda g, q: evolve(g, m=g.m / q))
        )
        yield _loss(study, gemm, f"{gemm.name}, in halves", 2.0, half)


def _products(study: Study) -> Iterator[Gemm]:
    hosts = _COLUMNS | _ROWS
    for operator in study.operators:
        if isinstance(operator, Gemm) and operator.host in hosts:
            yield operator


def _loss(
    study: Study,
    gemm: Gemm,
    name: str,
    parts: Real,
    cut: Callable[[Gemm, Real], Gemm],
    *,
    overhead: Real = 0.0,
) -> Work:
    _, model = study.plugins.offers("kernels")[study[KernelChoice].model]
    whole, part = _seconds(model, gemm, study), _seconds(model, cut(gemm, parts), study)
    seconds = formula(
        "t > 1 ? max(q T' - T, 0) + q o : 0, T' of the smaller product",
        {"T'": (part, "s")},
        t=study[Layout].tp,
        q=parts,
        T=(whole, "s"),
        o=(overhead, "s"),
        context={"M": gemm.k if gemm.pass_ == "W" else gemm.m},
        source="the kernel model of the study, for the smaller product",
    )
    return Work(
        name=name,
        cause=TENSOR,
        seconds=seconds,  # one rank waits for no other
        pass_=gemm.pass_,
        count=gemm.count,
        host=gemm.host,
    )


def _seconds(model: Any, gemm: Gemm, study: Study) -> Formula:
    timed: Formula | None = model.price(gemm, study)
    if timed is None:
        raise TypeError(f"kernel model `{model.name}` cannot estimate the product `{gemm.name}`")
    return timed
