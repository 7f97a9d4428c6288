"""The tensor-parallel group of a study: its links, messages, and communication time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from attrs import field

from parcost import Formula, Pass, Real, Study, Work, formula, link_resources, record
from parcost.numeric import any_of
from parcost_plugins.parallelism.tensor.layer_collectives import LayerRow, Message
from parcost_plugins.physics import slowdown
from parcost_plugins.physics.run_choices import open_window
from parcost_plugins.physics.sums import reduction_algorithm
from parcost_plugins.vocabulary import CollectiveChoice, Layout, Overlap, Training
from parcost_plugins.vocabulary.causes import TENSOR

FP32 = 4.0  # bytes: the loss is reduced in full precision


class CollectiveCost(NamedTuple):
    """The cost of a collective: seconds, bytes, and the latency within the seconds."""

    seconds: Formula
    bytes_: Real
    latency: Real = 0.0


@record(kw_only=True, eq=False)
class TensorGroup:
    """The group, the slowdown of compute by hidden communication, and message sizes by symbol."""

    study: Study
    algorithm: str
    on: Mapping[str, Any]
    slowdown: Real
    sizes: dict[str, tuple[Real, str]]
    gathered: Real
    _costs: dict[tuple[str, str, float], CollectiveCost] = field(factory=dict, init=False)

    def estimate(
        self, operation: str, message: Message | None = None, *, parts: float = 1.0
    ) -> CollectiveCost:
        """Estimate one collective over *message*, sent in *parts* equal parts.

        The default message is the residual stream.
        """
        key = (operation, message.tensor if message else "", parts)
        if key not in self._costs:
            symbols = {symbol: self.sizes[symbol] for symbol in "sbhe"}
            if message and message.tensor:
                width = {"w": (message.width, "")}
                symbols = {symbol: self.sizes[symbol] for symbol in "sb"} | width
                symbols["e"] = self.sizes["e"]
            if operation == "all_gather" and not (message and message.wide):
                symbols["e"] = (self.gathered, "B")
            self._costs[key] = self._estimate(operation, symbols, parts)
        return self._costs[key]

    def loss(self) -> CollectiveCost:
        """Estimate an all-reduce of one number per token, as in the loss."""
        symbols = {symbol: self.sizes[symbol] for symbol in "sbl"}
        return self._estimate(
            "all_reduce", symbols, 1.0, reduction_algorithm(self.study, self.algorithm)
        )

    def _estimate(
        self,
        operation: str,
        symbols: dict[str, tuple[Real, str]],
        parts: float,
        algorithm: str = "",
    ) -> CollectiveCost:
        n = formula(" ".join(symbols), symbols)
        if parts == 1.0:
            call = self.study.collective(operation, n, "tp", algorithm or self.algorithm)
            return CollectiveCost(call.formula, n.value, call.latency)
        part = formula("n / k", n=(n, "B"), k=parts)
        call = self.study.collective(operation, part, "tp", algorithm or self.algorithm)
        seconds = formula("k t, k parts", k=parts, t=(call.formula, "s"))
        return CollectiveCost(seconds, n.value, parts * call.latency)

    def work(
        self,
        name: str,
        pass_: Pass,
        cost: CollectiveCost,
        count: Sequence[float],
        window: str | None = None,
        *,
        share: Real = 1.0,
    ) -> Work:
        """Return a collective of a pass: exposed, or overlapped with compute in *window*."""
        return Work(
            name=name,
            cause=TENSOR,
            seconds=cost.seconds,
            pass_=pass_,
            count=count,
            window=open_window(self.study, window),
            share=share,
            slowdown=self.slowdown,
            bytes_=cost.bytes_,
            latency=cost.latency,
            **self.on,
        )

    def chunk_work(
        self, row: LayerRow, message: Message, pass_: Pass, pair: str, count: Sequence[float]
    ) -> Iterator[Work]:
        """Yield a collective in q chunks during a GEMM that takes T_g seconds.

        One chunk has no overlap: the first chunk of a gather, or the last one of a reduction. The
        others overlap with q - 1 of q chunks of the GEMM: max(T_g, T) + min(T_g, T) / q in total.
        """
        chunks = self.study[Overlap].chunks
        whole, named = self.estimate(row.operation, message), message.label(row)
        for name, text, part in (
            ("first or last chunk", "t / q, of q chunks", 1.0 / chunks),
            ("other chunks", "t (1 - 1 / q), of q chunks", 1.0 - 1.0 / chunks),
        ):
            seconds = formula(text, t=(whole.seconds, "s"), q=chunks)
            chunk = CollectiveCost(seconds, whole.bytes_ * part, whole.latency * part)
            window = (
                None if name == "first or last chunk" else row.host_of_pair(pair, row.pipelined)
            )
            yield self.work(
                f"{named}, {pair}, {name}", pass_, chunk, count, window, share=1.0 - 1.0 / chunks
            )


def tensor_group(study: Study) -> TensorGroup:
    """Return the tensor-parallel group of *study*."""
    training, precision, layout = study[Training], study[Training].precision, study[Layout]
    several = any_of(layout.tp > 1)
    return TensorGroup(
        study=study,
        algorithm=study[CollectiveChoice].tensor if several else "auto",
        on=link_resources(study.group("tp").flat),
        slowdown=slowdown(study) if several else 0.0,
        gathered=precision.tensor_gather if layout.sequence_parallel else precision.activation,
        sizes={
            "s": (training.sequence / layout.cp, ""),
            "b": (training.micro_batch, ""),
            "h": (training.model.hidden, ""),
            "e": (precision.activation, "B"),
            "l": (FP32, "B"),
        },
    )
