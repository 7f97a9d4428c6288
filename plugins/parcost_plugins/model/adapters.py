"""Adapters (LoRA): two thin matrices beside the frozen matrix of a linear layer.

The matrix A projects the input down to the rank, the matrix B up to the output. The result is
scaled and added to that of the frozen matrix. A quantized base is dequantized for each product.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Memory, Real, Study, block_name, hookimpl, record
from parcost.numeric import all_of, any_of, maximum, where
from parcost_plugins.model.elementwise import (
    ADDED,
    CAST,
    DROPOUT,
    FP32,
    Passes,
    Traffic,
    elementwise,
    traffic_stream,
)
from parcost_plugins.model.passes import LayerSpan, linear, single_run
from parcost_plugins.model.rank import UNTIL_LAYERS, Rank, rank_of
from parcost_plugins.model.rulebook import RULES
from parcost_plugins.vocabulary import (
    Adapters,
    Compression,
    Gemm,
    KernelChoice,
    LocalUpdates,
    ModelFlops,
    Parameters,
    Serving,
    Stream,
    on_last,
)
from parcost_plugins.vocabulary.causes import BUFFERS
from parcost_plugins.vocabulary.operators import ENDS
from parcost_plugins.vocabulary.run_choices import NORMED, adapter_casts

LORA = "Hu et al. 2021 (LoRA), section 4.1"
QLORA = "Dettmers et al. 2023 (QLoRA), section 3"

#: The output is scaled, and added to that of the frozen matrix; the gradient is scaled back. A
#: compiled layer has one kernel for both, and scales the gradient in the product.
_SCALED = {
    "eager": Passes(Traffic(2, 5), Traffic(1, 2)),
    "compiled": Passes(Traffic(1, 3), Traffic(0, 0)),
}


@record(eq=False)
class _Adapter:
    """An adapter with *reads* inputs and *writes* outputs per token, in the layers of *span*.

    It adapts *target*, or several fused targets.

    *outputs* are the layers whose recomputation includes the output: backward reads only tensors
    before it.
    """

    name: str
    reads: Real
    writes: Real
    span: LayerSpan
    outputs: LayerSpan
    target: str
    place: str = "layer"

    @property
    def normed(self) -> bool:
        """Whether its input is the output of a norm."""
        return self.target in NORMED

    def elements(self, rank: Real) -> Real:
        """Return the parameters of both matrices."""
        return rank * (self.reads + self.writes)


@record(eq=False)
class _Frozen:
    """The frozen matrices of a part of a layer: their number, and their total *elements*."""

    name: str
    matrices: float
    elements: Real
    largest: Real
    span: LayerSpan


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return both matrices of every adapter."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    for each in _adapters(rank_of(study), adapters):
        elements = each.elements(adapters.rank)
        yield Parameters(
            name=each.name,
            elements=elements,
            total=elements,
            count=each.span.count,
            place="after" if each.place == "after" else "layer",
            adapter=True,
            source=LORA,
        )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return 2 FLOPs per parameter of the adapters."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    for each in _adapters(rank_of(study), adapters):
        yield ModelFlops(
            name=each.name,
            per_token=2 * sum(each.span.count) * each.elements(adapters.rank),
            kind="matmul",
            adapter=True,
            source="2 FLOPs per matrix parameter",
        )


@hookimpl
def operators(study: Study) -> Iterator[Gemm | Stream]:
    """Return the products of the adapters, and the kernels around them."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    rank, r = rank_of(study), adapters.rank
    mode = study[KernelChoice].mode or rank.training.framework.mode
    tokens, e = rank.tokens, rank.element
    for each in _adapters(rank, adapters):
        name, span, read = each.name, each.span, tokens * each.reads
        casts = adapter_casts(study, each.target)
        if any_of(casts > 0):
            moved = casts * read
            yield from elementwise(f"{name}, cast of input", CAST, moved, e, span, times=casts)
        if adapters.dropout:
            dropped = where(casts > 0, FP32, e)
            yield from elementwise(f"{name}, dropout", DROPOUT["eager"], read, dropped, span)
        for matrix, n, k, layers in (
            ("A", r, each.reads, span),
            ("B", each.writes, r, each.outputs),
        ):
            yield from linear(
                f"{name}, {matrix}", tokens, n, k, layers, role="adapter", source=LORA, trained=True
            )
        written, summed = tokens * each.writes, rank.residual_element if each.normed else e
        yield from elementwise(f"{name}, scaled and added", _SCALED[mode], written, e, each.outputs)
        yield traffic_stream(
            f"{name}, sum of input gradients", ADDED, read, summed, "B", span.count
        )
    if adapters.base is not None:
        dequantized = Traffic(1, adapters.base.bytes_ / e + 1.0)
        for frozen in _frozen(rank):
            yield from elementwise(
                f"{frozen.name}, dequantized",
                Passes(dequantized, dequantized),
                frozen.elements,
                e,
                frozen.span,
                times=adapters.base.kernels * frozen.matrices,
            )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return tensors of adapters saved for backward, and dequantized matrices."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    rank = rank_of(study)
    for each in _adapters(rank, adapters):
        symbols = {"n": (each.reads, ""), "r": (adapters.rank, "")}
        kept = [("inner activation", "s b r q")]
        if adapters.dropout:  # the dropped input, and the mask
            kept.append(("input after dropout", "s b n (q + 1)"))
        for name, text in kept:
            if each.place == "after":
                bytes_ = rank.formula(text, symbols, source=LORA)
                yield rank.kept_memory(
                    f"{each.name}, {name}",
                    bytes_,
                    each.span.count,
                    moments=UNTIL_LAYERS,
                    tag=ENDS,
                )
            else:
                yield from rank.saved_tensor(
                    f"{each.name}, {name}", text, each.span, symbols, source=LORA
                )
    if adapters.base is not None:
        largest: Real = 0.0
        for frozen in _frozen(rank):
            largest = maximum(largest, frozen.largest)
        yield Memory(
            name="dequantized matrix",
            cause=BUFFERS,
            bytes_=rank.formula(
                "n e, the largest matrix of a layer", {"n": (largest, "")}, source=QLORA
            ),
            once_per_device=True,
            moments=("forward", "loss", "backward", "end_of_backward"),
        )


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Reject adapters on parts that are not modeled."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    rank = rank_of(study)
    model, layout, precision = rank.model, rank.layout, rank.training.precision
    name = block_name(model)
    mlp = [target for target in ("gate", "up", "down") if adapters.has(target)]
    rules = (
        ("adapters-targets", adapters.head or bool(adapters.groups(gated=model.gated)), "adapters"),
        ("adapters-nominal", not model.is_nominal, f"{name}.parameters"),
        ("adapters-latent", not model.is_latent, f"{name}.kv_lora"),
        (
            "adapters-experts",
            not (model.experts and mlp),
            f"adapters.{mlp[0]}" if mlp else "adapters",
        ),
        (
            "adapters-quantized-experts",
            not (model.experts and adapters.base is not None),
            "adapters.base",
        ),
        ("adapters-prediction", model.prediction_layers == 0, f"{name}.prediction_layers"),
        ("adapters-tied-head", not (adapters.head and model.tied), "adapters.head"),
        ("adapters-tensor-parallel", layout.tp == 1, "layout.tp"),
        (
            "adapters-low-precision",
            precision.narrow == "none" or adapters.base is None,
            "adapters.base",
        ),
        ("adapters-compression", study[Compression].method == "none", "compression.method"),
        ("adapters-local-updates", study[LocalUpdates].workers == 1, "local_updates.workers"),
        ("adapters-serving", not study.all(Serving), "adapters"),
    )
    inputs = {"tp": layout.tp, "narrow": precision.narrow}
    for id_, holds, subject in rules:
        if not all_of(holds):
            yield RULES.check(id_, holds, subject, inputs=inputs)


def _adapters(rank: Rank, adapters: Adapters) -> Iterator[_Adapter]:
    """Yield the adapters of a layer and of the head."""
    model, h = rank.model, rank.model.hidden
    if model.is_nominal or model.is_latent:  # rejected by a rule
        return
    query, key = rank.heads * model.head_dim, rank.kv_heads * model.head_dim
    attention, mlp = rank.all_layers, rank.dense.rerun_all(rank.recompute.mlp)
    shapes: dict[str, tuple[Real, Real, LayerSpan, bool]] = {
        "query": (h, query, attention, False),
        "key": (h, key, attention, False),
        "value": (h, key, attention, False),
        "output": (query, h, attention, rank.keeps("output")),
        "gate": (h, rank.ffn, mlp, False),
        "up": (h, rank.ffn, mlp, False),
        "down": (rank.ffn, h, mlp, rank.keeps("down") or rank.stops_early),
    }
    for targets in adapters.groups(gated=model.gated):
        reads, _, span, ends = shapes[targets[0]]
        if any(span.count):
            writes: Real = sum((shapes[target][1] for target in targets), 0.0)
            name = f"adapter of {' and '.join(targets)}"
            yield _Adapter(name, reads, writes, span, span.rerun_none(ends), targets[0])
    if adapters.head:
        end = single_run(on_last(rank.study))
        yield _Adapter("adapter of head", h, rank.vocabulary, end, end, "head", "after")


def _frozen(rank: Rank) -> Iterator[_Frozen]:
    """Yield the frozen matrices of attention and of the MLP."""
    model, h = rank.model, rank.model.hidden
    query, key = rank.heads * model.head_dim, rank.kv_heads * model.head_dim
    elements = h * (2 * query + 2 * key)
    yield _Frozen("matrices of attention", 4.0, elements, h * query, rank.all_layers)
    span = rank.dense.rerun_all(rank.recompute.mlp)
    if any(span.count):
        matrices = 3.0 if model.gated else 2.0
        each = h * rank.ffn
        yield _Frozen("matrices of the MLP", matrices, matrices * each, each, span)
