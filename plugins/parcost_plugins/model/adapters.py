"""Adapters (LoRA): two low-rank matrices in addition to the frozen matrix of a linear layer.

The matrix A projects the input down to the rank r, the matrix B up to the output. The result is
scaled and added to that of the frozen matrix. A quantized base is dequantized for each GEMM.

The table has the matrices of a rank with tensor parallelism of t ranks, by `adapters.split`. The
frozen matrix has k inputs and n outputs.

    split   matrix by   A of a rank   on tokens     B of a rank   on tokens
    both    columns     k x r / t     all           r x n / t     all
    both    rows        k / t x r     all           r x n / t     all, outputs are gathered
    one     columns     k x r         of the rank   r x n / t     all
    one     rows        k / t x r     all           r x n         of the rank

With sequence parallelism a rank has 1/t of the tokens, without it all tokens. The package
`parallelism.tensor` estimates the messages. Routed experts share an adapter, or each has its own in
a grouped GEMM.

Example: the fused query, key and value projections of Llama 3 8B have 4096 inputs and 6144 outputs.
An adapter of rank 16 has 16 x (4096 + 6144) = 163,840 parameters. With t = 2 a rank has 81,920 of
them if both matrices are split. If only one is split, it has 16 x (4096 + 3072) = 114,688.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from parcost import (
    Check,
    Mask,
    Memory,
    Real,
    Study,
    block_name,
    hookimpl,
    occurs,
    record,
    sum_counts,
)
from parcost.numeric import all_of, any_of, maximum, where
from parcost_plugins.model.moe import Experts, experts_of
from parcost_plugins.model.rank import UNTIL_LAYERS, Rank, rank_of
from parcost_plugins.model.rulebook import RULES
from parcost_plugins.physics import on_last
from parcost_plugins.physics.elementwise import (
    ADDED,
    CAST,
    DROPOUT,
    FP32,
    Passes,
    Traffic,
    elementwise,
    traffic_stream,
)
from parcost_plugins.physics.passes import LayerSpan, linear, single_run
from parcost_plugins.physics.run_choices import (
    NORMED,
    adapter_casts,
    regathers_inputs,
    tensor_overlap,
)
from parcost_plugins.vocabulary import (
    Adapters,
    Compression,
    Gemm,
    KernelChoice,
    LocalUpdates,
    ModelFlops,
    Parameters,
    Routing,
    Serving,
    Stream,
)
from parcost_plugins.vocabulary.causes import BUFFERS
from parcost_plugins.vocabulary.operators import (
    ADAPTER_COLUMNS,
    ADAPTER_ROWS,
    ENDS,
    SHARED_ADAPTER_COLUMNS,
)

LORA = "Hu et al. 2021 (LoRA), section 4.1"
QLORA = "Dettmers et al. 2023 (QLoRA), section 3"

#: The output is scaled, and added to that of the frozen matrix; the gradient is scaled back. A
#: compiled layer has one kernel for both, and scales the gradient in the product.
_SCALED = {
    "eager": Passes(Traffic(2, 5), Traffic(1, 2)),
    "compiled": Passes(Traffic(1, 3), Traffic(0, 0)),
}


class _Product(NamedTuple):
    """The GEMM of *tokens* with A or with B, of *inputs* x *outputs* on this rank.

    Every rank holds a copy of a *replicated* matrix. *host* is the name that tensor parallelism
    uses.
    """

    tokens: Real
    inputs: Real
    outputs: Real
    host: str = ""
    replicated: bool = False


@record(kw_only=True, eq=False)
class _Adapter:
    """An adapter in the layers of *span*. It adapts *target*, or several fused targets.

    *outputs* are the layers whose recomputation includes the output. *batch* is the number of
    adapters in a grouped GEMM. A token visits *copies* adapters, and the model has *whole*. *total*
    is the number of parameters of one adapter, and *added* the number of output elements on this
    rank. *kept* are the formulas of the saved tokens of input and inner activation, with the value
    of R.
    """

    name: str
    target: str
    span: LayerSpan
    outputs: LayerSpan
    a: _Product
    b: _Product
    total: Real
    added: Real
    kept: tuple[str, str] = ("s b", "s b")
    received: Real = 0.0
    batch: Real = 1.0
    load: Real = 1.0
    copies: Real = 1.0
    whole: Real = 1.0
    place: Literal["layer", "after"] = "layer"
    expert: bool = False

    @property
    def follows_norm(self) -> bool:
        """Whether its input is the output of a norm."""
        return self.target in NORMED and not self.expert

    @property
    def symbols(self) -> dict[str, Any]:
        """The symbols of the formulas of saved tensors, besides those of a rank."""
        own = {"n": (self.a.inputs, ""), "r": (self.b.inputs, "")}
        return {**own, "R": (self.received, "")} if self.expert else own

    def elements(self, *, replicated: bool) -> Real:
        """Return the parameters on this rank: those that every rank of the group holds, or the
        others.
        """
        return sum(
            (
                self.batch * one.inputs * one.outputs
                for one in (self.a, self.b)
                if one.replicated == replicated
            ),
            0.0,
        )


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
    """Return sum over both matrices of every adapter."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    for each in _adapters(study, adapters):
        own, copied = each.elements(replicated=False), each.elements(replicated=True)
        shares = [(each.name, own, False, each.whole * each.total - copied)]
        if any_of(copied > 0):
            shares.append((f"{each.name}, on every rank", copied, True, copied))
        for name, elements, replicated, total in shares:
            yield Parameters(
                name=name,
                elements=elements,
                total=total,
                count=each.span.count,
                place=each.place,
                replicated=replicated,
                expert=each.expert,
                adapter=True,
                source=LORA,
            )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return 2 FLOPs per parameter of the adapters that a token visits."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    for each in _adapters(study, adapters):
        yield ModelFlops(
            name=each.name,
            per_token=2 * sum_counts(each.span.count) * each.copies * each.total,
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
    rank = rank_of(study)
    mode = study[KernelChoice].mode or rank.training.framework.mode
    e = rank.element
    for each in _adapters(study, adapters):
        name, span = each.name, each.span
        read = each.batch * each.a.tokens * each.a.inputs
        casts = adapter_casts(study, each.target)
        if any_of(casts > 0):
            moved = casts * read
            yield from elementwise(f"{name}, cast of input", CAST, moved, e, span, times=casts)
        if adapters.dropout:
            dropped = where(casts > 0, FP32, e)
            yield from elementwise(f"{name}, dropout", DROPOUT["eager"], read, dropped, span)
        for matrix, product, layers in (("A", each.a, span), ("B", each.b, each.outputs)):
            yield from linear(
                f"{name}, {matrix}",
                product.tokens,
                product.outputs,
                product.inputs,
                layers,
                batch=each.batch,
                load=each.load,
                role="adapter",
                host=product.host,
                source=LORA,
                trained=True,
            )
        if adapters.split == "both" and not each.expert:
            yield from _gather_columns(each, rank)
        summed = rank.residual_element if each.follows_norm else e
        yield from elementwise(
            f"{name}, scaled and added", _SCALED[mode], each.added, e, each.outputs
        )
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


def _gather_columns(each: _Adapter, rank: Rank) -> Iterator[Stream]:
    """Yield the copies that reorder gathered columns, and the copies of their gradients.

    An all-gather concatenates the columns of the ranks along rows. Megatron-Core reorders them in
    one more kernel, and copies its shard of the gradient.
    """
    tp, e = rank.layout.tp, rank.element
    several = where(tp > 1, 1.0, 0.0)
    passes = Passes(Traffic(1, 2), Traffic(1, 2.0 / tp))
    gathered, span = each.a.tokens * each.b.inputs, each.span
    if each.b.host == ADAPTER_ROWS[1]:
        gathered, span = each.b.tokens * rank.model.hidden, each.outputs
        if rank.layout.sequence_parallel and rank.study[Adapters].all_to_all:
            gathered = gathered / tp
    name = f"{each.name}, gathered columns"
    yield from elementwise(name, passes, several * gathered, e, span, times=several)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return tensors of adapters saved for backward, and dequantized matrices."""
    adapters = study.get(Adapters)
    if adapters is None:
        return
    rank = rank_of(study)
    for each in _adapters(study, adapters):
        read, inner = each.kept
        kept = [("inner activation", f"{inner} r q")]
        if adapters.dropout:  # the dropped input, and the mask
            kept.append(("input after dropout", f"{read} n (q + 1)"))
        for tensor, text in kept:
            name, symbols = f"{each.name}, {tensor}", each.symbols
            if each.place == "after":
                bytes_ = rank.formula(text, symbols, source=LORA)
                yield rank.kept_memory(
                    name, bytes_, each.span.count, moments=UNTIL_LAYERS, tag=ENDS
                )
            else:
                yield from rank.saved_tensor(name, text, each.span, symbols, source=LORA)
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
    layout, precision = rank.layout, rank.training.precision
    inputs = {
        "tp": layout.tp,
        "etp": layout.etp,
        "rank": adapters.rank,
        "narrow": precision.narrow,
    }
    for id_, holds, subject in _rules(study, adapters):
        if not all_of(holds):
            yield RULES.check(id_, holds, subject, inputs=inputs)


def _rules(study: Study, adapters: Adapters) -> tuple[tuple[str, Mask, str], ...]:
    """Return the id of each rule, the mask where it is satisfied, and its subject."""
    rank = rank_of(study)
    model, layout, precision = rank.model, rank.layout, rank.training.precision
    name = block_name(model)
    mlp = [target for target in ("gate", "up", "down") if adapters.has(target)]
    experts = bool(model.experts and mlp)
    columns = adapters.has("query", "key", "value", "gate", "up")
    return (
        ("adapters-targets", adapters.head or bool(adapters.groups(gated=model.gated)), "adapters"),
        ("adapters-nominal", not model.is_nominal, f"{name}.parameters"),
        ("adapters-latent", not model.is_latent, f"{name}.kv_lora"),
        (
            "adapters-experts",
            not experts or adapters.experts is not None,
            f"adapters.{mlp[0]}" if mlp else "adapters",
        ),
        ("adapters-expert-parts", not experts or layout.etp == 1, "layout.etp"),
        (
            "adapters-shared-experts",
            not (experts and model.shared_experts and study[Routing].hide == "shared_experts")
            or layout.tp == 1,
            "layout.tp",
        ),
        (
            "adapters-quantized-experts",
            not (model.experts and adapters.base is not None),
            "adapters.base",
        ),
        ("adapters-prediction", model.prediction_layers == 0, f"{name}.prediction_layers"),
        ("adapters-tied-head", not (adapters.head and model.tied), "adapters.head"),
        ("adapters-tensor-parallel", adapters.split is not None or layout.tp == 1, "layout.tp"),
        (
            "adapters-rank-divide",
            not (adapters.split == "both" and columns) or adapters.rank % layout.tp == 0,
            "adapters.rank",
        ),
        (
            "adapters-chunks",
            not (adapters.split == "one" and tensor_overlap(study) == "pipelined")
            or layout.tp == 1,
            "overlap.tensor",
        ),
        ("adapters-head-parallel", not adapters.head or layout.tp == 1, "adapters.head"),
        ("adapters-quantized-parallel", adapters.base is None or layout.tp == 1, "adapters.base"),
        (
            "adapters-low-precision",
            precision.narrow == "none" or adapters.base is None,
            "adapters.base",
        ),
        (
            "adapters-narrow-type",
            precision.narrow != "none" or not adapters.narrow,
            "adapters.narrow",
        ),
        ("adapters-compression", study[Compression].method == "none", "compression.method"),
        ("adapters-local-updates", study[LocalUpdates].workers == 1, "local_updates.workers"),
        ("adapters-serving", not study.all(Serving), "adapters"),
    )


def _adapters(study: Study, adapters: Adapters) -> Iterator[_Adapter]:
    """Yield the adapters of a layer and of the head."""
    rank = rank_of(study)
    model, h = rank.model, rank.model.hidden
    if model.is_nominal or model.is_latent:  # rejected by a rule
        return
    key, query = model.kv_heads * model.head_dim, model.heads * model.head_dim
    attention, mlp = rank.all_layers, rank.dense.rerun_all(rank.recompute.mlp)
    widths = {"query": query, "key": key, "value": key}
    parts = {
        "query": rank.heads * model.head_dim,
        "key": rank.kv_heads * model.head_dim,
        "value": rank.kv_heads * model.head_dim,
    }
    for targets in adapters.groups(gated=model.gated):
        if targets[0] in widths:
            wide = sum((widths[target] for target in targets), 0.0)
            part = sum((parts[target] for target in targets), 0.0)
            yield _by_columns(rank, adapters, targets, attention, wide, part)
        elif targets[0] == "output":
            yield _by_rows(rank, adapters, "output", attention, rank.keeps("output"), query)
        elif occurs(mlp.count):
            yield _of_mlp(rank, adapters, targets, mlp, model.ffn)
    found = experts_of(study)
    if found is not None and occurs(rank.moe_layers.count):
        yield from _of_experts(found, adapters)
    if adapters.head:
        end, r = single_run(on_last(study)), adapters.rank
        yield _Adapter(
            name="adapter of head",
            target="head",
            span=end,
            outputs=end,
            a=_Product(rank.tokens, h, r),
            b=_Product(rank.tokens, r, rank.vocabulary),
            total=r * (h + rank.vocabulary),
            added=rank.tokens * rank.vocabulary,
            place="after",
        )


def _of_mlp(
    rank: Rank,
    adapters: Adapters,
    targets: tuple[str, ...],
    span: LayerSpan,
    width: Real,
    suffix: str = "",
) -> _Adapter:
    """Return the adapter of some *targets* of a dense MLP, or of shared experts, of a *width*."""
    if targets[0] == "down":
        ends = not suffix and (rank.keeps("down") or rank.stops_early)
        return _by_rows(rank, adapters, "down", span, ends, width, suffix)
    wide = len(targets) * width
    return _by_columns(rank, adapters, targets, span, wide, wide / rank.layout.tp, suffix)


def _by_columns(
    rank: Rank,
    adapters: Adapters,
    targets: tuple[str, ...],
    span: LayerSpan,
    whole: Real,
    part: Real,
    suffix: str = "",
) -> _Adapter:
    """Return the adapter of column-parallel *targets*: *part* of *whole* outputs on this rank."""
    h, r, tokens, shards = rank.model.hidden, adapters.rank, rank.tokens, rank.residual_shards
    one = adapters.split == "one"
    inner, seen = (r, tokens / shards) if one else (r / rank.layout.tp, tokens)
    a_host, b_host = SHARED_ADAPTER_COLUMNS if suffix else ADAPTER_COLUMNS
    return _Adapter(
        name=f"adapter of {' and '.join(targets)}{suffix}",
        target=targets[0],
        span=span,
        outputs=span,
        a=_Product(seen, h, inner, a_host, one),
        b=_Product(tokens, r, part, b_host),
        total=r * (h + whole),
        added=tokens * part,
        kept=_saved_tokens(rank, split_inputs=one or regathers_inputs(rank.study), split_inner=one),
    )


def _by_rows(
    rank: Rank,
    adapters: Adapters,
    target: str,
    span: LayerSpan,
    ends: bool,
    whole: Real,
    suffix: str = "",
) -> _Adapter:
    """Return the adapter of a row-parallel *target* of *whole* inputs."""
    h, r, tokens, shards = rank.model.hidden, adapters.rank, rank.tokens, rank.residual_shards
    one = adapters.split == "one"
    outputs, seen = (h, tokens / shards) if one else (h / rank.layout.tp, tokens)
    a_host, b_host = ADAPTER_ROWS
    return _Adapter(
        name=f"adapter of {target}{suffix}",
        target=target,
        span=span,
        outputs=span.rerun_none(ends),
        a=_Product(tokens, whole / rank.layout.tp, r, a_host),
        b=_Product(seen, r, outputs, b_host, one),
        total=r * (whole + h),
        added=tokens * h / shards,
        kept=_saved_tokens(rank, split_inputs=False, split_inner=one),
    )


def _saved_tokens(rank: Rank, *, split_inputs: bool, split_inner: bool) -> tuple[str, str]:
    """Return the formulas of the tokens whose input and inner activation a rank saves."""
    share = "s b / t" if rank.layout.sequence_parallel else "s b"
    return share if split_inputs else "s b", share if split_inner else "s b"


def _of_experts(found: Experts, adapters: Adapters) -> Iterator[_Adapter]:
    """Yield the adapters of routed and of shared experts."""
    rank, model, r = found.rank, found.rank.model, adapters.expert_rank
    h, span = model.hidden, rank.moe_layers.rerun_all(rank.recompute.moe)
    shared = adapters.experts == "shared"
    batch, tokens = (1.0, found.received_tokens) if shared else (found.local, found.each)
    for targets in adapters.groups(gated=model.gated):
        if targets[0] not in ("gate", "up", "down"):
            continue
        wide = len(targets) * model.expert_ffn
        inputs, outputs = (model.expert_ffn, h) if targets[0] == "down" else (h, wide)
        yield _Adapter(
            name=f"adapter of {' and '.join(targets)} of routed experts",
            target=targets[0],
            span=span,
            outputs=span,
            a=_Product(tokens, inputs, r),
            b=_Product(tokens, r, outputs),
            total=r * (inputs + outputs),
            added=found.received_tokens * outputs,
            kept=("R", "R"),
            received=found.received_tokens,
            batch=batch,
            load=found.load,
            copies=model.top_k,
            whole=1.0 if shared else model.experts,
            expert=True,
        )
        if model.shared_experts:
            suffix = " of shared experts"
            yield _of_mlp(rank, adapters, targets, span, model.shared_width, suffix)


def _frozen(rank: Rank) -> Iterator[_Frozen]:
    """Yield the frozen matrices of attention and of the MLP."""
    model, h = rank.model, rank.model.hidden
    query, key = rank.heads * model.head_dim, rank.kv_heads * model.head_dim
    elements = h * (2 * query + 2 * key)
    yield _Frozen("matrices of attention", 4.0, elements, h * query, rank.all_layers)
    span = rank.dense.rerun_all(rank.recompute.mlp)
    if occurs(span.count):
        matrices = 3.0 if model.gated else 2.0
        each = h * rank.ffn
        yield _Frozen("matrices of the MLP", matrices, matrices * each, each, span)
