"""Messages of adapters whose matrices tensor parallelism splits.

The GEMMs of adapters have separate ``host`` names, from which their number in a pass follows. A
message for T tokens has width r (the inner activation) or h (the hidden size).

- Both matrices are split. For a frozen matrix split by columns, A has r / t outputs, which are
  gathered. For one split by rows, outputs of A are summed, and the h / t outputs of B are gathered.
  With sequence parallelism each rank keeps a shard of these. Gradients are exchanged in the same
  way.
- One matrix is split. Only inner activations and their gradients are exchanged. With sequence
  parallelism, the other matrix has partial gradients, which are summed once per step (see
  ``norms``).

Sources: Megatron-Bridge 0.4 and NeMo 2.3, peft/utils.py, ParallelLinearAdapter, with
ColumnParallelLinear and RowParallelLinear of Megatron-Core; mcore-bridge of ms-swift 4, tuners/
lora.py, LoraParallelLinear, with TELinear of Transformer Engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import Literal, NamedTuple

from parcost import Pass, Study, Work, map_counts, occurs
from parcost_plugins.parallelism.tensor.group import TensorGroup
from parcost_plugins.parallelism.tensor.layer_collectives import Message, Operation
from parcost_plugins.physics.partition import Counts
from parcost_plugins.physics.run_choices import regathers_inputs
from parcost_plugins.vocabulary import Adapters, Gemm, Layout, Training
from parcost_plugins.vocabulary.operators import (
    ADAPTER_COLUMNS,
    ADAPTER_ROWS,
    SHARED_ADAPTER_COLUMNS,
)

(_COLUMNS_A, _COLUMNS_B), (_ROWS_A, _ROWS_B) = ADAPTER_COLUMNS, ADAPTER_ROWS
_SHARED_A = SHARED_ADAPTER_COLUMNS[0]
_EVERY_A = (_COLUMNS_A, _SHARED_A)


class _Row(NamedTuple):
    """A collective for each of the GEMMs with the hosts *products*, in one direction.

    *width* is r (the rank of the adapters), h (the hidden size), or a fraction of h.
    """

    name: str
    products: Sequence[str]
    operation: Operation
    width: Literal["r", "h", "h / t"]
    backward: bool = False


_INNER = "inner activation"
_BOTH = (
    _Row(f"{_INNER} all-gather", _EVERY_A, "all_gather", "r"),
    _Row(f"{_INNER} gradient all-reduce", (_COLUMNS_B, _ROWS_B), "all_reduce", "r", True),
    _Row(f"{_INNER} all-reduce", (_ROWS_A,), "all_reduce", "r"),
)
_GATHERED = _Row("output all-gather", (_ROWS_B,), "all_gather", "h")
_BOTH_SHARDED = (
    _GATHERED,
    _Row("output gradient all-gather", (_ROWS_B,), "all_gather", "h", True),
)
_BOTH_EXCHANGED = (
    _Row("output all-to-all", (_ROWS_B,), "all_to_all", "h / t"),
    _Row("output gradient all-to-all", (_ROWS_B,), "all_to_all", "h / t", True),
)
_BOTH_WHOLE = (
    _GATHERED,
    _Row("input gradient all-reduce", _EVERY_A, "all_reduce", "h", True),
)
_REGATHERED = (_Row("saved input all-gather", _EVERY_A, "all_gather", "h", True),)
_ONE_SHARDED = (
    _Row(f"{_INNER} all-gather", (_COLUMNS_B,), "all_gather", "r"),
    _Row(f"saved {_INNER} all-gather", (_COLUMNS_B,), "all_gather", "r", True),
    _Row(f"{_INNER} gradient reduce-scatter", (_COLUMNS_B,), "reduce_scatter", "r", True),
    _Row(f"{_INNER} reduce-scatter", (_ROWS_A,), "reduce_scatter", "r"),
    _Row(f"{_INNER} gradient all-gather", (_ROWS_A,), "all_gather", "r", True),
)
_ONE_WHOLE = (
    _Row(f"{_INNER} all-reduce", (_ROWS_A,), "all_reduce", "r"),
    _Row(f"{_INNER} gradient all-reduce", (_COLUMNS_B,), "all_reduce", "r", True),
)


def _own_gathers(products: Sequence[str]) -> Sequence[_Row]:
    """Return the collectives of adapters that gather their input separately from the frozen GEMM.

    Other adapters share the gathered input of the frozen GEMM, and the gradient of the input.
    """
    return (
        _Row("input all-gather", products, "all_gather", "h"),
        _Row("input gradient reduce-scatter", products, "reduce_scatter", "h", True),
    )


class Exchange(NamedTuple):
    """A collective of adapters in one pass, and its message."""

    name: str
    operation: Operation
    pass_: Pass
    message: Message


def exchanges(study: Study, mode: str) -> Iterator[Exchange]:
    """Yield the collectives of all adapters, with an overlap *mode* of tensor parallelism."""
    adapters = study.get(Adapters)
    if adapters is None or adapters.split is None:
        return
    layout, h = study[Layout], study[Training].model.hidden
    widths = {"r": adapters.rank, "h": h, "h / t": h / layout.tp}
    passes: dict[bool, Sequence[Pass]] = {False: ("F", "R"), True: ("B",)}
    for row in _rows(study, adapters, layout, chunks=mode == "pipelined"):
        for pass_ in passes[row.backward]:
            times = _times(study, row.products, "F" if row.backward else pass_)
            if occurs(times):
                named = Message(f"adapters, {row.width}", widths[row.width], {"": times}, wide=True)
                yield Exchange(f"adapter {row.name}", row.operation, pass_, named)


def collectives(study: Study, on_wire: TensorGroup, mode: str) -> Iterator[Work]:
    """Yield the work of all collectives. With *mode* ``split_batch`` they overlap with the other
    half batch.
    """
    halves = mode == "split_batch"
    for name, operation, pass_, message in exchanges(study, mode):
        cost = on_wire.estimate(operation, message, parts=2.0 if halves else 1.0)
        yield on_wire.work(name, pass_, cost, message.times, "" if halves else None)


def _rows(study: Study, adapters: Adapters, layout: Layout, *, chunks: bool) -> Iterator[_Row]:
    """Yield the collectives, depending on the split and on sequence parallelism.

    With communication in *chunks*, there is no gathered input that an adapter could share.
    """
    sharded, again = layout.sequence_parallel, regathers_inputs(study)
    if adapters.split == "one":
        yield from _ONE_SHARDED if sharded else _ONE_WHOLE
        return
    yield from _BOTH
    if not sharded:
        yield from _BOTH_WHOLE
        return
    yield from _BOTH_EXCHANGED if adapters.all_to_all else _BOTH_SHARDED
    yield from _own_gathers(_EVERY_A if chunks or again else (_SHARED_A,))
    if again:
        yield from _REGATHERED


def _times(study: Study, products: Sequence[str], pass_: str) -> Counts:
    """Return the number of GEMMs with these hosts on each virtual stage."""
    found: Counts | float = 0.0
    for operator in study.operators:
        if isinstance(operator, Gemm) and operator.pass_ == pass_ and operator.host in products:
            found = map_counts(add, operator.count, found)
    return found if not isinstance(found, float) else ()
