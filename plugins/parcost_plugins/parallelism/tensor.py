"""Tensor parallelism: what the ranks that share a layer tell one another.

A layer has two pairs of products, each split by columns and then by rows. Behind a pair
the ranks add up what they have; on the way back they do so in front of it.

- Without sequence parallelism that is an all-reduce of the residual stream.
- With it, a reduce-scatter behind a pair and an all-gather in front, in both passes.
  What was saved as a shard is gathered once more for the weight gradient, while the
  input gradient is computed.

The sums of backward may hide under the weight gradients of the same products
(``overlap.tensor``). A schedule that puts weight gradients off leaves them nothing to
hide under, for the stage before waits for the sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from attrs import field, frozen

from parcost import Check, Formula, Mask, Pass, Real, Study, Work, block, hookimpl, switch
from parcost.numeric import all_of, any_of, ceil_div, minimum, where
from parcost_plugins.vocabulary import (
    Cluster,
    CollectiveChoice,
    Layout,
    Overlap,
    Training,
    layers,
    on_first,
    on_last,
)
from parcost_plugins.vocabulary.operators import (
    ATTENTION_COLUMNS,
    HEAD_COLUMNS,
    MLP_COLUMNS,
)

FP32 = 4.0  # bytes: the loss is reduced in full precision
PADDED_TO = (
    128.0  # rows per rank, Megatron-LM's default: offered to a vocabulary that does not divide
)
LOSS_SUMS = 3  # the greatest logit, the target's, and the sum of the exponentials


@block("tensor_parallel", label="none")
class TensorParallel:
    """Which tensor-parallel collectives are priced."""

    ends: bool = switch(
        default=True, doc="those of the embedding, the head and the loss, besides the layers'"
    )


class _Row(NamedTuple):
    """A collective over the residual stream of a micro-batch.

    *part*: ``forward``; ``backward`` on the way to the stage before, or under its *window*;
    ``sum`` of input gradients, under the weight gradients of its *window* where that is
    possible; ``weights``, which only a weight gradient waits for.
    """

    name: str
    operation: Literal["all_gather", "reduce_scatter", "all_reduce"]
    place: Literal["layer", "first", "last"]
    part: Literal["forward", "backward", "sum", "weights"]
    window: str | None = None

    def passes(self, *, again: bool, covered: bool) -> Sequence[tuple[Pass, str | None]]:
        """Return where it stands: the passes, and the window that it may hide under."""
        if self.part == "forward":
            return [("F", None), ("R", None)] if again and self.place == "layer" else [("F", None)]
        if self.part == "sum":
            return [("W", self.window)] if covered else [("B", None)]
        return [("B" if self.part == "backward" else "W", self.window)]


_WITHOUT_SEQUENCE_PARALLEL = (
    _Row("tensor all-reduce", "all_reduce", "layer", "forward"),
    _Row("input gradient all-reduce", "all_reduce", "layer", "sum", ATTENTION_COLUMNS),
    _Row("embedding all-reduce", "all_reduce", "first", "forward"),
    _Row("head input gradient all-reduce", "all_reduce", "last", "sum", HEAD_COLUMNS),
)
_WITH_SEQUENCE_PARALLEL = (
    _Row("tensor all-gather", "all_gather", "layer", "forward"),
    _Row("tensor reduce-scatter", "reduce_scatter", "layer", "forward"),
    _Row("output gradient all-gather", "all_gather", "layer", "backward"),
    _Row("saved input all-gather", "all_gather", "layer", "backward", ATTENTION_COLUMNS),
    _Row("input gradient reduce-scatter", "reduce_scatter", "layer", "sum", ATTENTION_COLUMNS),
    _Row("embedding reduce-scatter", "reduce_scatter", "first", "forward"),
    _Row("embedding gradient all-gather", "all_gather", "first", "weights"),
    _Row("head all-gather", "all_gather", "last", "forward"),
    _Row("head saved input all-gather", "all_gather", "last", "backward", HEAD_COLUMNS),
    _Row("head input gradient reduce-scatter", "reduce_scatter", "last", "sum", HEAD_COLUMNS),
)


@hookimpl
def blocks() -> list[type]:
    """Offer the choice of what is priced."""
    return [TensorParallel]


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Price the collectives of the layers and, unless they are left out, of the ends."""
    layout, training = study[Layout], study[Training]
    if isinstance(layout.tp, float) and layout.tp == 1.0:
        return
    rows = _WITH_SEQUENCE_PARALLEL if layout.sequence_parallel else _WITHOUT_SEQUENCE_PARALLEL
    chosen = study.get(TensorParallel)
    ends = chosen is None or chosen.ends
    covered = study[Overlap].tensor != "off" and not _puts_off_weight_gradients(study)
    counts: dict[str, Sequence[float]] = {
        "layer": [2 * n for n in layers(study)],
        "first": on_first(study),
        "last": on_last(study),
    }
    wire = _wire(study)
    for row in rows:
        if ends or row.place == "layer":
            priced = wire.priced(row.operation, "s b h e")
            for pass_, window in row.passes(again=training.recompute == "full", covered=covered):
                yield wire.work(row.name, pass_, priced, counts[row.place], window)
    if ends:
        loss = wire.priced("all_reduce", "s b l")
        yield wire.work("loss all-reduce", "F", loss, [LOSS_SUMS * n for n in counts["last"]])


class _Priced(NamedTuple):
    seconds: Real
    bytes_: Real
    formula: Formula


@frozen(kw_only=True, eq=False)
class _Wire:
    """The tensor-parallel group of a study, and the sizes of what it sends, by letter."""

    study: Study
    algorithm: str
    resource: str
    slowdown: Real
    sizes: dict[str, tuple[Real, str]]
    _priced: dict[str, _Priced] = field(factory=dict, init=False)

    def priced(self, operation: str, size: str) -> _Priced:
        """Price a collective over the product of the letters of *size*, once."""
        if (known := self._priced.get(operation + size)) is not None:
            return known
        letters = {letter: self.sizes[letter] for letter in size.split()}
        n: Real = 1.0
        for factor, _ in letters.values():
            n = n * factor
        call = self.study.collective(operation, n, "tp", self.algorithm)
        formula = Formula(
            text=f"{call.formula.text}, n = {size}",
            inputs={**call.formula.inputs, **letters},
            source=call.formula.source,
        )
        self._priced[operation + size] = priced = _Priced(call.seconds, n, formula)
        return priced

    def work(
        self,
        name: str,
        pass_: Pass,
        priced: _Priced,
        count: Sequence[float],
        window: str | None = None,
    ) -> Work:
        """Return a collective that a pass waits for, or that may hide in a window of it."""
        return Work(
            name=name,
            seconds=priced.seconds,
            pass_=pass_,
            formula=priced.formula,
            count=count,
            resource=self.resource,
            window=window,
            slowdown=self.slowdown,
            bytes_=priced.bytes_,
        )


def _wire(study: Study) -> _Wire:
    training = study[Training]
    taken, of = study[Overlap].multiprocessors, study[Cluster].device.multiprocessors
    return _Wire(
        study=study,
        algorithm=study[CollectiveChoice].tensor,
        resource=study.group("tp").flat.name,
        slowdown=taken / (of - taken),
        sizes={
            "s": (training.sequence / study[Layout].cp, ""),
            "b": (training.micro_batch, ""),
            "h": (training.model.hidden, ""),
            "e": (training.precision.activation, "B"),
            "l": (FP32, "B"),
        },
    )


_orders: dict[tuple[int, int, int], tuple[Any, bool]] = {}


def _puts_off_weight_gradients(study: Study) -> bool:
    """Say whether the schedule ever has input and weight gradients apart.

    Its order for a few micro-batches tells. A schedule is known by its identity, and
    kept so that its identity stays its own.
    """
    cut = study.pipeline
    _, schedule = study.plugins.named("schedules")[cut.schedule]
    key = (id(schedule), cut.stages, cut.chunks)
    if key not in _orders:
        order = schedule.order(cut.stages, 2 * cut.stages, cut.chunks)
        _orders[key] = (schedule, any(op[0] == "W" for ops in order for op in ops))
    return _orders[key][1]


# --- Rules ---------------------------------------------------------------------------


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the degree divides all that it splits.

    Where the heads say it, KV heads, MLP and sequence do not repeat it.
    """
    layout, training = study[Layout], study[Training]
    model, tp = training.model, layout.tp
    heads = model.heads % tp == 0
    copies = minimum(model.kv_heads % tp, tp % model.kv_heads)
    inputs = {"tp": tp, "heads": model.heads, "kv": model.kv_heads, "ffn": model.ffn}
    rules: list[tuple[str, Mask, str]] = [
        ("heads-divide", heads, "{heads} heads do not divide by tp = {tp}"),
        (
            "kv-heads-divide",
            where(heads, copies, 0.0) == 0,
            "{kv} KV heads do not divide by tp = {tp}, nor tp by them",
        ),
        (
            "ffn-divide",
            where(heads, model.ffn % tp, 0.0) == 0,
            "an MLP of width {ffn} does not divide by tp = {tp}",
        ),
    ]
    for id_, holds, message in rules:
        yield Check(
            id=id_,
            holds=holds,
            subject="layout.tp",
            message=message,
            inputs=inputs,
            help="" if all_of(holds) else _nearest(holds, **inputs),
        )
    step = PADDED_TO * tp
    yield Check(
        id="vocabulary-divide",
        holds=model.padded_vocabulary(layout) % tp == 0,
        subject="layout.tp",
        message="a vocabulary of {vocabulary} does not divide by tp = {tp}",
        inputs={
            "vocabulary": model.vocabulary,
            "tp": tp,
            "multiple": PADDED_TO,
            "padded": ceil_div(model.vocabulary, step) * step,
        },
        help="`layout.vocabulary_multiple = {multiple}` pads it to {padded}, as Megatron-LM does",
    )
    yield from _sequence_rules(layout, training.sequence, heads)


def _sequence_rules(layout: Layout, sequence: Real, heads: Mask) -> Iterator[Check]:
    if not layout.sequence_parallel:
        return
    tp = layout.tp
    yield Check(
        id="sequence-divide",
        holds=where(heads, sequence % tp, 0.0) == 0,
        subject="training.sequence",
        message="a sequence of {sequence} tokens does not divide by tp = {tp}",
        inputs={
            "sequence": sequence,
            "tp": tp,
            "below": sequence // tp * tp,
            "above": ceil_div(sequence, tp) * tp,
        },
        help="sequence parallelism gives every rank the same share: take {below} or {above} tokens",
    )
    yield Check(
        id="sequence-parallel-alone",
        holds=any_of(tp > 1),
        subject="layout.sequence_parallel",
        message="sequence parallelism shards nothing: tp is {tp}",
        inputs={"tp": tp},
        severity="warning",
    )


def _nearest(holds: Mask, tp: Real, heads: Real, kv: Real, ffn: Real) -> str:
    """Return the degrees next to the first that fails that divide heads and MLP, in words."""
    values = [_first_failure(holds, value) for value in (tp, heads, kv, ffn)]
    tp, heads, kv, ffn = values
    legal = [
        t
        for t in range(1, int(heads) + 1)
        if heads % t == 0 and ffn % t == 0 and 0 in (kv % t, t % kv)
    ]
    near = [t for t in legal if t < tp][-1:] + [t for t in legal if t > tp][:1]
    return f"nearest legal: tp = {' or '.join(map(str, near))}"


def _first_failure(holds: Mask, value: Real) -> float:
    """Return *value* at the first point where *holds* does not, which a message shows."""
    if isinstance(value, (float, int)):
        return value
    point = 0 if isinstance(holds, (bool, int)) else int(holds.argmin())
    return float(value[point])
