"""Collectives of a layer, and the GEMM pairs on each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Literal, NamedTuple

from parcost import Pass, Real, Study, map_counts, occurs, record
from parcost_plugins.physics.partition import Counts
from parcost_plugins.vocabulary import Gemm, Layout, Model
from parcost_plugins.vocabulary.operators import (
    ATTENTION_COLUMNS,
    ATTENTION_ROWS,
    MLP_COLUMNS,
    MLP_ROWS,
    SHARED_EXPERTS,
    SHARED_ROWS,
)

Operation = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]

#: The hosts of each pair of products: those split by columns, those split by rows.
HOSTS: Mapping[str, tuple[str, str]] = {
    "attention": (ATTENTION_COLUMNS, ATTENTION_ROWS),
    "MLP": (MLP_COLUMNS, MLP_ROWS),
    "shared experts": (SHARED_EXPERTS, SHARED_ROWS),
}


@record
class LayerRow:
    """A collective over the tokens of a micro-batch.

    *side* is the inputs of column-parallel GEMMs, the outputs of row-parallel GEMMs, or their
    gradients. *part* is ``forward``, ``backward``, ``sum`` (of input gradients), or ``weights``
    (for a weight gradient only). *host* is the GEMM that may hide it as a whole; *pipelined* is the
    GEMM with which it may overlap in chunks.
    """

    name: str
    operation: Operation
    part: Literal["forward", "backward", "sum", "weights"]
    side: Literal["columns", "rows"] = "columns"
    host: Literal["", "columns", "head"] = ""
    pipelined: Literal["", "columns", "rows"] = ""
    place: Literal["layer", "first", "last"] = "layer"

    @property
    def passes(self) -> Sequence[Pass]:
        """The passes that contain the collective; recomputation repeats forward communication."""
        if self.part == "forward":
            return ("F", "R")
        return ("B",) if self.part == "backward" else ("W",)

    def host_of_pair(self, pair: str, which: str = "") -> str:
        """Return the GEMM of *pair* that may hide the collective."""
        columns, rows = HOSTS[pair]
        return rows if (which or self.host) == "rows" else columns


WITHOUT_SEQUENCE_PARALLEL = (
    LayerRow("tensor all-reduce", "all_reduce", "forward", "rows"),
    LayerRow("input gradient all-reduce", "all_reduce", "sum", host="columns"),
)
SAVED_INPUT = LayerRow("saved input all-gather", "all_gather", "backward", host="columns")
WITH_SEQUENCE_PARALLEL = (
    LayerRow("tensor all-gather", "all_gather", "forward", pipelined="columns"),
    LayerRow("tensor reduce-scatter", "reduce_scatter", "forward", "rows", pipelined="rows"),
    LayerRow("output gradient all-gather", "all_gather", "backward", "rows", pipelined="rows"),
    SAVED_INPUT,
    LayerRow("input gradient reduce-scatter", "reduce_scatter", "sum", host="columns"),
)


def rows_of(layout: Layout) -> Sequence[LayerRow]:
    """Return the collectives of a layer of *layout*."""
    return WITH_SEQUENCE_PARALLEL if layout.sequence_parallel else WITHOUT_SEQUENCE_PARALLEL


class Message(NamedTuple):
    """One tensor of a collective: its *width* per token, and the number of *pairs* that send it.

    *tensor* is "" for the residual stream. Gathers of a *wide* one are never in low precision.
    """

    tensor: str
    width: Real
    pairs: Mapping[str, Sequence[float]]
    wide: bool = False

    @property
    def times(self) -> Sequence[float]:
        """The number of messages on each virtual stage."""
        return reduce(partial(map_counts, add), self.pairs.values())

    def label(self, row: LayerRow) -> str:
        """Return the name of *row* for this tensor."""
        return f"{row.name} of {self.tensor}" if self.tensor else row.name


def messages(
    row: LayerRow, found: Mapping[str, Sequence[float]], model: Model
) -> Iterator[Message]:
    """Yield the tensors that the collectives of *row* exchange; *found* is the number of pairs of
    each.

    It is the residual stream. For latent attention they are the compressed queries, keys and
    values, which every rank projects up for its own heads.
    """
    whole = dict(found)
    if row.side == "columns" and model.is_latent and "attention" in whole:
        latent = {"attention": whole.pop("attention")}
        for read in model.attention_inputs:
            if not read.name:
                whole |= latent
            elif read.multiplied or row is not SAVED_INPUT:
                yield Message(read.name, read.width, latent)
    if whole:
        yield Message("", model.hidden, whole)


def pairs(
    study: Study, pass_: Pass, side: Literal["columns", "rows"] = "rows"
) -> dict[str, Sequence[float]]:
    """Return the number of pairs on each virtual stage, by kind: one per row-parallel GEMM.

    In the pass R these are the recomputed pairs. If only the first GEMM of an MLP is recomputed, it
    counts if *side* is ``columns``. Kinds without pairs are omitted.
    """
    found: dict[str, Counts] = {}
    kinds = {rows: pair for pair, (_, rows) in HOSTS.items()}
    if side == "columns":
        kinds = {host: pair for host, pair in kinds.items() if pair != "MLP"}
        kinds[MLP_COLUMNS] = "MLP"
    for operator in study.operators:
        if isinstance(operator, Gemm) and operator.pass_ == pass_ and operator.host in kinds:
            pair = kinds[operator.host]
            own = operator.count
            found[pair] = map_counts(add, own, found.get(pair, 0.0))
    return {pair: found[pair] for pair in HOSTS if pair in found and occurs(found[pair])}
