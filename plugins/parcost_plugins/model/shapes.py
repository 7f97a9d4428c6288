"""Consistency rules of the attributes of a model, of packed sequences and of recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parcost import Check, Mask, Real, Study, block_name, hookimpl
from parcost.numeric import all_of
from parcost_plugins.model.rulebook import RULES
from parcost_plugins.vocabulary import Model, Recompute, Training


class _Needs(NamedTuple):
    """An attribute that has an effect only if another one is set."""

    id: str
    attribute: str
    given: bool
    has: bool


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules that fail or may fail; a plain dense model satisfies all of them."""
    training = study[Training]
    model = training.model
    yield from _mixture(model)
    yield from _layer_lists(model)
    yield from _head_sizes(model)
    yield from _documents(training)
    yield from _positions(model, training.sequence)
    if model.window:
        yield _window(model, training)
    if model.full_every > model.layers and (model.window or model.delta_heads):
        place, every = f"{block_name(model)}.full_every", model.full_every
        yield RULES.check("full-layers-none", False, place, every=every, layers=model.layers)
    yield from (
        _attribute_check(model, need)
        for need in (*_needs_of_experts(model), *_needs_of_attention(model))
        if need.given and not need.has
    )
    chosen = study.get(Recompute)
    if chosen is not None:
        yield from _recompute_checks(chosen, training)


def _positions(model: Model, sequence: Real) -> Iterator[Check]:
    if model.positions and not model.alibi and not all_of(sequence <= model.positions):
        yield RULES.check(
            "positions-few",
            sequence <= model.positions,
            "training.sequence",
            sequence=sequence,
            model=block_name(model),
            rows=model.positions,
        )
    if model.alibi and model.positions:
        yield RULES.check(
            "alibi-with-positions", False, f"{block_name(model)}.alibi", rows=model.positions
        )


def _head_sizes(model: Model) -> Iterator[Check]:
    """Require a size of the heads of attention, unless the model has no hidden size either."""
    if model.is_nominal or all_of(model.hidden == 0.0):
        return
    sizes: dict[str, Real] = {"head_dim": model.head_dim}
    if model.is_latent:
        sizes = {"nope_dim": model.qk_dim, "v_dim": model.v_dim}
    for name, size in sizes.items():
        yield head_check(model, name, size, "attention")


def head_check(model: Model, attribute: str, size: Real, part: str) -> Check:
    """Return the rule that heads of a *part* of a layer have a size, stated by an *attribute*."""
    place = f"{block_name(model)}.{attribute}"
    return RULES.check("heads-sized", size > 0, place, size=size, part=part, attribute=attribute)


def _mixture(model: Model) -> Iterator[Check]:
    if model.is_nominal and model.experts:
        yield RULES.check(
            "nominal-experts",
            False,
            f"{block_name(model)}.experts",
            model=block_name(model),
            experts=model.experts,
        )
    if model.dense_first > model.layers:
        yield RULES.check(
            "dense-layers",
            False,
            f"{block_name(model)}.dense_first",
            dense=model.dense_first,
            layers=model.layers,
        )


def _layer_lists(model: Model) -> Iterator[Check]:
    """Require that listed layers exist, and that no count of such layers is also set."""
    lists: tuple[tuple[str, Sequence[int], str, bool], ...] = (
        ("full_layers", model.full_layers, "full_every", model.full_every > 0),
        (
            "dense_layers",
            model.dense_layers,
            "dense_first` or `moe_every",
            model.dense_first > 0 or model.moe_every > 1,
        ),
    )
    for name, listed, counts, counted in lists:
        if not listed:
            continue
        place = f"{block_name(model)}.{name}"
        last = max(listed)
        yield RULES.check(
            "listed-layers-exist", last < model.layers, place, last=last, end=model.layers - 1
        )
        if counted:
            yield Check(
                id="listed-layers-twice",
                holds=False,
                subject=place,
                message=f"`{name}` lists the layers, and `{counts}` counts them as well",
                help=f"leave out `{name}`, or `{counts}`",
            )


def _needs_of_experts(model: Model) -> tuple[_Needs, ...]:
    experts = model.experts > 0
    return (
        _Needs("experts-shared", "shared_experts", model.shared_experts > 0, experts),
        _Needs("experts-dense-first", "dense_first", model.dense_first > 0, experts),
        _Needs("experts-dense-first", "dense_layers", bool(model.dense_layers), experts),
        _Needs(
            "experts-routed",
            "top_k",
            not isinstance(model.top_k, float) or model.top_k > 1,
            experts,
        ),
    )


def _needs_of_attention(model: Model) -> tuple[_Needs, ...]:
    latent, mixed = model.is_latent, model.window > 0 or model.delta_heads > 0
    return (
        _Needs("latent-queries", "q_lora", model.q_lora > 0, latent),
        _Needs("window-full", "full_every", model.full_every > 0, mixed),
        _Needs("window-full", "full_layers", bool(model.full_layers), mixed),
        _Needs("qk-norm-whole", "qk_norm_whole", model.qk_norm_whole, model.qk_norm),
        _Needs("window-chunked", "chunked", model.chunked, model.window > 0),
    )


def _attribute_check(model: Model, need: _Needs) -> Check:
    place = f"{block_name(model)}.{need.attribute}"
    return RULES.check(need.id, False, place, attribute=need.attribute)


def _window(model: Model, training: Training) -> Check:
    return RULES.check(
        "window-wide",
        training.sequence > model.window,
        f"{block_name(model)}.window",
        window=model.window,
        sequence=training.sequence,
    )


def _documents(training: Training) -> Iterator[Check]:
    listed, sequence = training.documents, training.sequence
    if listed:
        total = sum(listed)
        yield RULES.check(
            "documents-fill",
            sequence == total,
            "training.documents",
            total=total,
            sequence=sequence,
        )
    if training.document is not None:
        each: Real = training.document
        yield RULES.check(
            "document-long", each <= sequence, "training.document", each=each, sequence=sequence
        )
        if listed:
            yield RULES.check("documents-twice", False, "training.document", each=each)


def _recompute_checks(chosen: Recompute, training: Training) -> Iterator[Check]:
    model, full = training.model, training.recompute == "full"
    selected = "layers" if chosen.layers else "every" if chosen.every > 1 else "first"
    rules: list[tuple[str, str, Mask]] = [
        (
            "recompute-layers",
            selected,
            full or (chosen.first, chosen.every, chosen.layers) == (0, 1, 0),
        ),
        ("recompute-latent", "up_projection", model.is_latent or not chosen.up_projection),
        ("recompute-experts", "moe", model.experts > 0 or not chosen.moe),
    ]
    for id_, attribute, holds in rules:
        if not all_of(holds):
            yield RULES.check(id_, holds, f"recompute.{attribute}")
