"""A mixture of experts instead of the MLP: router, routed experts, shared experts.

A rank holds ``experts / ep`` routed experts, each split into ``etp`` parts. It receives tokens from
all ranks that share one set of experts. On average these are as many as it sends, and more on the
busiest rank, for which all ranks wait. Its experts run as one grouped GEMM. The exchange is
described by ``experts.exchange``. Shared experts process every token on its own rank, and are split
like a dense MLP.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Real, Study, hookimpl, record, sum_counts
from parcost.numeric import any_of, where
from parcost_plugins.model.rank import KEPT, Rank, rank_of
from parcost_plugins.physics.elementwise import (
    CLAMPED,
    CLAMPED_JOINED,
    EXPERT_BIAS_JOINED,
    EXPERT_BIAS_PRODUCT,
    EXPERT_BIAS_SUM,
    GATED,
    PLAIN,
    ROUTER,
    SORTED,
    SUMMED,
    WEIGHED,
    WEIGHED_SUM,
    Passes,
    copies,
    elementwise,
    traffic_stream,
)
from parcost_plugins.physics.passes import SPLIT, LayerSpan, linear
from parcost_plugins.physics.routing import (
    busiest_rank_load,
    dispatcher_of,
    expert_tokens,
    has_fixed_counts,
    rank_tokens,
    sends_once,
)
from parcost_plugins.vocabulary import Gemm, ModelFlops, Parameters, Routing, Stream
from parcost_plugins.vocabulary.operators import (
    MLP_COLUMNS,
    MLP_ROWS,
    SHARED_EXPERTS,
    SHARED_ROWS,
)

MIXTURE = "Shazeer et al. 2017; Fedus et al. 2021 (Switch Transformer)"


@record(eq=False)
class Experts:
    """The experts of one rank, and the tokens of the busiest rank."""

    rank: Rank
    local: Real  # routed experts, in whole or in parts
    width: Real  # of such a part
    each: Real  # tokens of one expert
    load: Real  # the same over those that the mean rank multiplies, padding included
    sent: Real  # tokens that a rank routes
    shared: Real  # width of the shared experts on this rank

    @property
    def received_tokens(self) -> Real:
        """Tokens that a rank receives for all its experts."""
        return self.local * self.each


def experts_of(study: Study) -> Experts | None:
    """Return the experts of one rank; None for a model without experts."""
    rank = rank_of(study)
    model, layout = rank.model, rank.layout
    if not model.experts or model.is_nominal:
        return None
    load = busiest_rank_load(study)
    return Experts(
        rank=rank,
        local=model.experts / layout.ep,
        width=model.expert_ffn / layout.etp,
        each=expert_tokens(study) * load,
        load=1.0 if study[Routing].capacity_factor is not None else load,
        sent=rank_tokens(study),
        shared=model.shared_width / layout.tp,
    )


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the router, and the matrices and biases of the experts."""
    found = experts_of(study)
    if found is None:
        return
    rank, model, count = found.rank, found.rank.model, found.rank.moe_layers.count
    h, E, F, inner = model.hidden, model.experts, model.expert_ffn, _matrices(rank)
    routing = h * E + (E if model.router_bias else 0) + (h if model.shared_gate else 0)
    yield Parameters(
        name="router",
        elements=routing,
        total=routing,
        count=count,
        replicated=True,
        source="the router is replicated on every rank",
    )
    yield Parameters(
        name="routed experts",
        elements=found.local * inner * h * found.width,
        total=E * inner * h * F,
        count=count,
        expert=True,
        matrices=2.0 * found.local,
        source=MIXTURE,
    )
    if model.biases:
        wide, narrow = inner - 1, h
        yield Parameters(
            name="biases of routed experts",
            elements=found.local * (wide * found.width + narrow),
            total=E * (wide * F + narrow),
            count=count,
            expert=True,
            matrices=0.0,
            source=MIXTURE,
        )
    if model.shared_experts:
        yield Parameters(
            name="shared experts",
            elements=inner * h * found.shared,
            total=inner * h * model.shared_width,
            count=count,
            matrices=2.0,
            source=SPLIT,
        )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return 2 FLOPs per parameter of the router and of the experts used by a token."""
    found = experts_of(study)
    if found is None:
        return
    model, layers = found.rank.model, sum_counts(found.rank.moe_layers.count)
    visited = model.top_k * model.expert_ffn + model.shared_width
    per_layer = model.experts + _matrices(found.rank) * visited + (1 if model.shared_gate else 0)
    yield ModelFlops(
        name="mixture of experts",
        per_token=2 * layers * model.hidden * per_layer,
        kind="matmul",
        source="2 FLOPs per active matrix parameter",
    )


@hookimpl
def operators(study: Study) -> Iterator[Gemm | Stream]:
    """Return routing, the grouped products of the experts, and the shared experts."""
    found = experts_of(study)
    if found is None:
        return
    rank, model, h = found.rank, found.rank.model, found.rank.model.hidden
    span = rank.moe_layers.rerun_all(rank.recompute.moe)
    yield from linear(
        "router",
        found.sent,
        float(model.experts),
        h,
        span,
        role="router",
        source=MIXTURE,
        trained=rank.trains_model,
    )
    e, scores = rank.element, model.experts * found.sent
    yield from elementwise("router probabilities", ROUTER[rank.fusion.router], scores, e, span)
    there, back = copies(rank.fusion.permutation, model.top_k)
    sent = h * model.top_k * found.sent
    yield from elementwise("token permutation", there, sent, e, span)
    if not (sends_once(study) or dispatcher_of(study) == "allgather"):
        yield from _sort_streams(found, span)
    yield from _routed_experts(found, span, has_fixed_counts(study))
    yield from elementwise("token unpermutation", back, sent, e, span)
    if model.shared_experts:
        yield from _shared_experts(found, span, study[Routing].hide == "shared_experts")


def _sort_streams(found: Experts, span: LayerSpan) -> Iterator[Stream]:
    """Yield the sorting of received tokens by expert, and back.

    Received tokens are ordered by sending rank. If a token was sent once for several experts, or
    gathered, it is copied for each expert on arrival.
    """
    rank, there_and_back = found.rank, where(found.local > 1.0, 2.0, 0.0)
    yield from elementwise(
        "sorting of routed tokens",
        SORTED,
        there_and_back * found.received_tokens * rank.model.hidden,
        rank.element,
        span,
        times=there_and_back,
    )


def _routed_experts(found: Experts, span: LayerSpan, fixed: bool) -> Iterator[Gemm | Stream]:
    rank, h, ups = found.rank, found.rank.model.hidden, _matrices(found.rank) - 1
    yield from linear(
        "routed experts, up",
        found.each,
        ups * found.width,
        h,
        span,
        batch=found.local,
        load=found.load,
        role="expert",
        source=MIXTURE,
        trained=rank.trains_model,
    )
    yield from _routed_activations(found, span.rerun_all(rank.recompute.activation), fixed)
    yield from linear(
        "routed experts, down",
        found.each,
        h,
        found.width,
        span,
        batch=found.local,
        load=found.load,
        role="expert",
        source=MIXTURE,
        trained=rank.trains_model,
    )
    if rank.model.biases and rank.training.framework.expert_biases == "eager":
        yield from _routed_biases(found, span)
    elif rank.model.biases and rank.training.framework.expert_activation == "in_product":
        # A kernel behind the product sums the gradient over tokens, and times the bias over the
        # width, for the gradients of biases and of routing weights.
        elements = found.received_tokens * h
        name = "gradients of biases and routing weights"
        yield traffic_stream(name, SUMMED, elements, rank.element, "B", span.count)


def _routed_activations(found: Experts, span: LayerSpan, fixed: bool) -> Iterator[Stream]:
    """Yield the activation of routed experts; *fixed* is true if their token count is fixed."""
    rank, elements = found.rank, found.received_tokens * found.width
    framework, name, e = rank.training.framework, "activation of routed experts", rank.element
    if framework.expert_activation == "in_product" and rank.model.gated:
        return
    if rank.model.clamped:
        yield from elementwise("clamps of routed experts", CLAMPED, elements, e, span)
        yield from elementwise(
            "clamps of routed experts, joined", CLAMPED_JOINED, elements, e, span
        )
    if framework.expert_activation == "dense" or fixed or not rank.model.gated:
        yield from elementwise(name, _activation(rank), elements, e, span)
        return
    yield from elementwise(name, WEIGHED[framework.expert_activation], elements, e, span)
    yield traffic_stream("gradients of routing weights", WEIGHED_SUM, elements, e, "B", span.count)


def _routed_biases(found: Experts, span: LayerSpan) -> Iterator[Stream]:
    """Yield the biases of routed experts, times routing weights, expert by expert."""
    elements, e, each = (
        found.received_tokens * found.rank.model.hidden,
        found.rank.element,
        found.local,
    )
    for part, passes, times in (
        ("times routing weights", EXPERT_BIAS_PRODUCT, each),
        ("added", EXPERT_BIAS_SUM, each),
        ("joined", EXPERT_BIAS_JOINED, 1.0),
    ):
        yield from elementwise(
            f"biases of routed experts, {part}", passes, elements, e, span, times=times
        )


def _shared_experts(found: Experts, span: LayerSpan, covers: bool) -> Iterator[Gemm | Stream]:
    """Yield the shared experts; with *covers* they can hide the token exchange."""
    rank, h, ups = found.rank, found.rank.model.hidden, _matrices(found.rank) - 1
    columns, rows = (SHARED_EXPERTS, SHARED_ROWS) if covers else (MLP_COLUMNS, MLP_ROWS)
    yield from linear(
        "shared experts, up",
        rank.tokens,
        ups * found.shared,
        h,
        span,
        host=columns,
        trained=rank.trains_model,
    )
    yield from elementwise(
        "activation of shared experts",
        _activation(rank),
        rank.tokens * found.shared,
        rank.element,
        span.rerun_all(rank.recompute.activation),
        host=columns if covers else "",
    )
    yield from linear(
        "shared experts, down",
        rank.tokens,
        h,
        found.shared,
        span,
        host=rows,
        trained=rank.trains_model,
    )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return tensors saved for backward: the input, the routing, and outputs of experts."""
    found = experts_of(study)
    if found is None:
        return
    rank, model, span = found.rank, found.rank.model, found.rank.moe_layers
    again, text = rank.recompute.norms or rank.recomputes_outputs, rank.residual_text
    if rank.trains_model:  # for the router, whose product stays wide
        yield from rank.saved_tensor(
            "mixture input", f"{text} e", span.rerun_all(again), source=KEPT
        )
    span = span.rerun_all(rank.recompute.moe)
    narrow = any_of(rank.saved_element_size != rank.element)  # else they keep that of the router
    shared = narrow if rank.trains_model else rank.keeps_input("gate", "up")
    if model.shared_experts and shared:
        whole = text if rank.trains_model else rank.gathered_elements_text
        yield from rank.saved_tensor(
            "input of shared experts", f"{whole} q", span.rerun_all(again), source=KEPT
        )
    made = span.rerun_all(rank.recompute.activation or rank.recomputes_outputs)
    counts = {"R": (found.received_tokens, ""), "T": (found.sent, "")}
    yield from rank.saved_tensor(
        "router logits and probabilities",
        "8 T E",
        span,
        {"T": counts["T"]},
        source=KEPT,
        freed=0.5,  # the gradient of the logits outlives them, the probabilities go with B
    )
    rows = [
        (
            "gate and up of routed experts" if model.gated else "up of routed experts",
            "2 R F g / u" if model.gated else "R F g / u",
            span,
        ),
    ]
    if rank.keeps_input("gate", "up"):
        rows.append(("tokens at routed experts", "R h q", span))
    if rank.keeps_input("down"):
        rows.append(("activation of routed experts", "R F q / u", made))
    weighed = rank.training.framework.router_weights
    if weighed != "activation":
        # The gradient of a routing weight needs what it is multiplied with.
        name = f"{weighed} of routed experts{', unweighted' if weighed == 'input' else ''}"
        rows.append((name, "R h e", span))
    if model.shared_experts:
        rows += [
            (
                "gate and up of shared experts" if model.gated else "up of shared experts",
                "2 s b G g / t" if model.gated else "s b G g / t",
                span,
            ),
        ]
        if rank.keeps_input("down"):
            rows.append(("activation of shared experts", "s b G q / t", made))
    for name, text, layers in rows:
        yield from rank.saved_tensor(name, text, layers, counts, source=KEPT)


def _activation(rank: Rank) -> Passes:
    return GATED[rank.fusion.activation] if rank.model.gated else PLAIN


def _matrices(rank: Rank) -> int:
    """Return the number of matrices of an expert."""
    return 3 if rank.model.gated else 2
