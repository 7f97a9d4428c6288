"""A model with a given number of parameters: for planning, before an architecture exists.

Its parameters are spread evenly over its layers, and every token uses all of them: 2 FLOPs per
parameter forward, 6 in training. Attention is included if the heads are given, and activations if
``saved`` is set. Other parts of a model are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Memory, Real, Study, block_name, hookimpl, sum_counts
from parcost.numeric import sqrt, where
from parcost_plugins.model import core
from parcost_plugins.model.rank import Rank, rank_of
from parcost_plugins.model.rulebook import RULES
from parcost_plugins.physics.passes import linear
from parcost_plugins.vocabulary import (
    FusedAttention,
    Gemm,
    Layout,
    ModelFlops,
    Parameters,
    Stream,
    Training,
)
from parcost_plugins.vocabulary.operators import (
    ATTENTION_COLUMNS,
    ATTENTION_ROWS,
    MLP_COLUMNS,
    MLP_ROWS,
)

STATED = "the stated total, spread evenly over the layers"
STATED_SAVED = "bytes saved per layer, from the model"
PAIRS = (
    ("first half of the parameters", ATTENTION_COLUMNS, ATTENTION_ROWS),
    ("second half of the parameters", MLP_COLUMNS, MLP_ROWS),
)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require the shape of every model, or its total parameters."""
    model, layout = study[Training].model, study[Layout]
    if model.is_nominal:
        if not isinstance(model.hidden, float) or model.hidden == 0.0:
            yield RULES.check(
                "nominal-width",
                (model.hidden > 0) | ((layout.tp == 1) & (layout.pp == 1)),
                f"{block_name(model)}.hidden",
                tp=layout.tp,
                pp=layout.pp,
                model=block_name(model),
            )
        return
    lacking = [name for name in ("hidden", "heads", "vocabulary") if _is_zero(getattr(model, name))]
    if lacking:
        names = ", ".join(f"`{name}`" for name in lacking)
        yield Check(
            id="model-incomplete",
            holds=False,
            subject=f"{block_name(model)}.{lacking[0]}",
            message=f"model `{block_name(model)}` has no {names}",
            help="write them, or `parameters = ...` for a nominal model of that size",
        )


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return a layer's share of the total."""
    rank = rank_of(study)
    if rank.model.is_nominal:
        total = _layer_parameters(rank)
        yield Parameters(
            name="parameters",
            elements=total / rank.layout.tp,
            total=total,
            count=rank.layers,
            source=STATED,
        )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return 2 FLOPs per parameter, and attention if heads are given."""
    rank = rank_of(study)
    if rank.model.is_nominal:
        yield ModelFlops(
            name="all parameters",
            per_token=2 * _layer_parameters(rank) * sum_counts(rank.layers),
            kind="matmul",
            source="2 FLOPs per parameter",
        )
        if not _is_zero(rank.model.heads):
            yield core.flops(rank)


@hookimpl
def operators(study: Study) -> Iterator[Gemm | FusedAttention | Stream]:
    """Return two pairs of equal GEMMs per layer, with the model's hidden size, and attention.

    Like attention and MLP, each pair is split by columns and then by rows.
    """
    rank = rank_of(study)
    if rank.model.is_nominal:
        quarter, hidden = _layer_parameters(rank) / (len(PAIRS) * 2), rank.model.hidden
        depth = where(hidden > 0, hidden, sqrt(quarter))
        width = quarter / depth / rank.layout.tp
        for name, columns, rows in PAIRS:
            span, tokens = rank.all_layers, rank.tokens
            yield from linear(
                f"{name}, in",
                tokens,
                width,
                depth,
                span,
                host=columns,
                source=STATED,
                trained=rank.trains_model,
            )
            yield from linear(
                f"{name}, out",
                tokens,
                depth,
                width,
                span,
                host=rows,
                source=STATED,
                trained=rank.trains_model,
            )
        if not _is_zero(rank.model.heads):
            yield from core.operators(rank)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the saved bytes per layer, stated in the model."""
    rank = rank_of(study)
    model = rank.model
    if model.is_nominal and not _is_zero(model.saved):
        yield from rank.saved_tensor(
            "saved by a layer", "s b n / t", rank.all_layers, source=STATED_SAVED
        )


def _layer_parameters(rank: Rank) -> Real:
    assert rank.model.parameters is not None
    return rank.model.parameters / sum_counts(rank.layers)


def _is_zero(value: Real) -> bool:
    return isinstance(value, (float, int)) and value == 0
