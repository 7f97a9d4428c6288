"""What a layer sends, collective by collective, and which pairs of products a stage has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from parcost import Pass, Study, record
from parcost_plugins.vocabulary import Gemm, virtual_stages
from parcost_plugins.vocabulary.operators import (
    ATTENTION_COLUMNS,
    ATTENTION_ROWS,
    MLP_COLUMNS,
    MLP_ROWS,
    SHARED_EXPERTS,
    SHARED_ROWS,
)

Operation = Literal["all_gather", "reduce_scatter", "all_reduce"]

#: The hosts of each pair of products: those split by columns, those split by rows.
HOSTS: Mapping[str, tuple[str, str]] = {
    "attention": (ATTENTION_COLUMNS, ATTENTION_ROWS),
    "MLP": (MLP_COLUMNS, MLP_ROWS),
    "shared experts": (SHARED_EXPERTS, SHARED_ROWS),
}


@record
class Row:
    """A collective over the residual stream of a micro-batch.

    *part*: ``forward``; ``backward``, on the way to the stage before; ``sum`` of input
    gradients; ``weights``, which only a weight gradient waits for. *host* says which
    product it may hide under, as a whole; *pipelined* which it may run beside in chunks.
    """

    name: str
    operation: Operation
    part: Literal["forward", "backward", "sum", "weights"]
    host: Literal["", "columns", "head"] = ""
    pipelined: Literal["", "columns", "rows"] = ""
    place: Literal["layer", "first", "last"] = "layer"

    @property
    def passes(self) -> Sequence[Pass]:
        """Where it stands; what runs forward again tells the other ranks again."""
        if self.part == "forward":
            return ("F", "R")
        return ("B",) if self.part == "backward" else ("W",)

    def under(self, pair: str, which: str = "") -> str:
        """Return the host of *pair* that it may hide under."""
        columns, rows = HOSTS[pair]
        return rows if (which or self.host) == "rows" else columns


WITHOUT_SEQUENCE_PARALLEL = (
    Row("tensor all-reduce", "all_reduce", "forward"),
    Row("input gradient all-reduce", "all_reduce", "sum", "columns"),
)
SAVED_INPUT = Row("saved input all-gather", "all_gather", "backward", "columns")
WITH_SEQUENCE_PARALLEL = (
    Row("tensor all-gather", "all_gather", "forward", pipelined="columns"),
    Row("tensor reduce-scatter", "reduce_scatter", "forward", pipelined="rows"),
    Row("output gradient all-gather", "all_gather", "backward", pipelined="rows"),
    SAVED_INPUT,
    Row("input gradient reduce-scatter", "reduce_scatter", "sum", "columns"),
)


def pairs(study: Study, pass_: Pass) -> dict[str, Sequence[float]]:
    """Return how many pairs of each kind every virtual stage has: one for each product by rows.

    In the pass R these are the pairs that run forward again. Kinds of which there are none
    are left out.
    """
    found: dict[str, Sequence[float]] = {pair: (0.0,) * virtual_stages(study) for pair in HOSTS}
    kinds = {rows: pair for pair, (_, rows) in HOSTS.items()}
    for operator in study.operators:
        if isinstance(operator, Gemm) and operator.pass_ == pass_ and operator.host in kinds:
            pair = kinds[operator.host]
            found[pair] = [a + b for a, b in zip(found[pair], operator.count, strict=True)]
    return {pair: count for pair, count in found.items() if any(count)}
