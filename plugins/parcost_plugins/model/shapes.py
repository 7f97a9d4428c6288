"""Consistency rules of the attributes of a model, of packed sequences and of recomputation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from parcost import Check, Mask, Real, Study, block_name, hookimpl
from parcost.numeric import all_of
from parcost_plugins.vocabulary import Model, Recompute, Training


class _Needs(NamedTuple):
    """An attribute that has an effect only together with another one."""

    id: str
    attribute: str
    given: bool
    has: bool
    message: str
    help: str


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules that fail or may fail; a plain dense model meets all of them."""
    training = study[Training]
    model = training.model
    yield from _mixture(model)
    yield from _listed_layers(model)
    yield from _documents(training)
    yield from _positions(model, training.sequence)
    if model.window:
        yield _window(model, training)
    yield from (
        _attribute_check(model, need) for need in _needs(model) if need.given and not need.has
    )
    chosen = study.get(Recompute)
    if chosen is not None:
        yield from _recompute_checks(chosen, training)


def _positions(model: Model, sequence: Real) -> Iterator[Check]:
    if model.positions and not model.alibi and not all_of(sequence <= model.positions):
        yield Check(
            id="positions-few",
            holds=sequence <= model.positions,
            subject="training.sequence",
            message="a sequence of {sequence} tokens is longer than the {rows} learned "
            "positions of `{model}`",
            inputs={
                "sequence": sequence,
                "model": block_name(model),
                "rows": model.positions,
            },
            help="train on at most {rows} tokens, or write `positions = {sequence}` in the model",
        )
    if model.alibi and model.positions:
        yield Check(
            id="alibi-with-positions",
            holds=False,
            subject=f"{block_name(model)}.alibi",
            message="the model has two kinds of positions: ALiBi, and {rows} learned ones",
            inputs={"rows": model.positions},
            help="leave out `positions`, or `alibi`",
        )


def _mixture(model: Model) -> Iterator[Check]:
    if model.is_nominal and model.experts:
        yield Check(
            id="nominal-experts",
            holds=False,
            subject=f"{block_name(model)}.experts",
            message="model `{model}` states both `parameters`, the size of a nominal model, and "
            "`experts` = {experts}",
            inputs={"model": block_name(model), "experts": model.experts},
            help="leave out `parameters`, to count them from the layers, or `experts`",
        )
    if model.dense_first > model.layers:
        yield Check(
            id="dense-layers",
            holds=False,
            subject=f"{block_name(model)}.dense_first",
            message="`dense_first` is {dense}, and the model has {layers} layers",
            inputs={"dense": model.dense_first, "layers": model.layers},
            help="write `dense_first` of at most {layers}",
        )


def _listed_layers(model: Model) -> Iterator[Check]:
    """Require that listed layers exist, and that they are not also stated by a count."""
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
        yield Check(
            id="listed-layers-exist",
            holds=last < model.layers,
            subject=place,
            message="layer {last} is listed, and the model has the layers 0 to {end}",
            inputs={"last": last, "end": model.layers - 1},
            help="list numbers from 0 to {end}",
        )
        if counted:
            yield Check(
                id="listed-layers-twice",
                holds=False,
                subject=place,
                message=f"`{name}` lists the layers, and `{counts}` counts them as well",
                help=f"leave out `{name}`, or `{counts}`",
            )


def _needs(model: Model) -> tuple[_Needs, ...]:
    return (*_needs_of_experts(model), *_needs_of_attention(model))


def _needs_of_experts(model: Model) -> tuple[_Needs, ...]:
    experts = model.experts > 0
    return (
        _Needs(
            "experts-shared",
            "shared_experts",
            model.shared_experts > 0,
            experts,
            "shared experts need routed experts, and `experts` is 0",
            "write `experts` in the model; the hidden size of a dense MLP is `ffn`",
        ),
        _Needs(
            "experts-dense-first",
            "dense_first",
            model.dense_first > 0,
            experts,
            "all layers are dense: `experts` is 0",
            "write `experts` in the model, or leave `dense_first` out",
        ),
        _Needs(
            "experts-dense-first",
            "dense_layers",
            bool(model.dense_layers),
            experts,
            "all layers are dense: `experts` is 0",
            "write `experts` in the model, or leave `dense_layers` out",
        ),
        _Needs(
            "experts-routed",
            "top_k",
            not isinstance(model.top_k, float) or model.top_k > 1,
            experts,
            "tokens visit several experts, and `experts` is 0",
            "write `experts` in the model, or leave `top_k` out",
        ),
    )


def _needs_of_attention(model: Model) -> tuple[_Needs, ...]:
    latent = model.is_latent
    return (
        _Needs(
            "latent-queries",
            "q_lora",
            model.q_lora > 0,
            latent,
            "compressed queries need latent attention (MLA), and `kv_lora` is 0",
            "write `kv_lora` as well",
        ),
        _Needs(
            "window-full",
            "full_every",
            model.full_every > 0,
            model.window > 0,
            "the other layers need a window, and `window` is 0",
            "write `window` as well",
        ),
        _Needs(
            "window-full",
            "full_layers",
            bool(model.full_layers),
            model.window > 0,
            "the other layers need a window, and `window` is 0",
            "write `window` as well",
        ),
        _Needs(
            "qk-norm-whole",
            "qk_norm_whole",
            model.qk_norm_whole,
            model.qk_norm,
            "the model has no norms of queries and keys: `qk_norm` is off",
            "write `qk_norm = on` as well",
        ),
        _Needs(
            "window-chunked",
            "chunked",
            model.chunked,
            model.window > 0,
            "chunked attention needs the size of a chunk, and `window` is 0",
            "write `window` as well",
        ),
    )


def _attribute_check(model: Model, need: _Needs) -> Check:
    return Check(
        id=need.id,
        holds=False,
        subject=f"{block_name(model)}.{need.attribute}",
        message=need.message,
        help=need.help,
    )


def _window(model: Model, training: Training) -> Check:
    return Check(
        id="window-wide",
        holds=training.sequence > model.window,
        subject=f"{block_name(model)}.window",
        message="a window of {window} tokens is not shorter than the sequence of {sequence}",
        inputs={"window": model.window, "sequence": training.sequence},
        help="leave `window` out, or train on longer sequences",
        severity="warning",
    )


def _documents(training: Training) -> Iterator[Check]:
    listed, sequence = training.documents, training.sequence
    if listed:
        total = sum(listed)
        yield Check(
            id="documents-fill",
            holds=sequence == total,
            subject="training.documents",
            message="documents of {total} tokens do not add up to the sequence of {sequence}",
            inputs={"total": total, "sequence": sequence},
            help="padding counts as a document: list it too",
        )
    if training.document is not None:
        each: Real = training.document
        yield Check(
            id="document-long",
            holds=each <= sequence,
            subject="training.document",
            message="a document of {each} tokens does not fit into a sequence of {sequence}",
            inputs={"each": each, "sequence": sequence},
            help="write `document` of at most {sequence}",
        )
        if listed:
            yield Check(
                id="documents-twice",
                holds=False,
                subject="training.document",
                message="`documents` lists the lengths of documents, and `document` sets all of "
                "them to "
                "{each} tokens",
                inputs={"each": each},
                help="leave one of `documents` and `document` out",
            )


def _recompute_checks(chosen: Recompute, training: Training) -> Iterator[Check]:
    model, full = training.model, training.recompute == "full"
    rules: list[tuple[str, str, Mask, str, str]] = [
        (
            "recompute-layers",
            "layers" if chosen.layers else "every" if chosen.every > 1 else "first",
            full or (chosen.first, chosen.every, chosen.layers) == (0, 1, 0),
            "it selects layers for full recomputation, but `training.recompute` is not `full`",
            "write `training {{ recompute = full }}`",
        ),
        (
            "recompute-latent",
            "up_projection",
            model.is_latent or not chosen.up_projection,
            "the model has no latent attention (MLA), and so no up projection to recompute",
            "leave `up_projection` out",
        ),
        (
            "recompute-experts",
            "moe",
            model.experts > 0 or not chosen.moe,
            "the model has no experts to recompute",
            "leave `moe` out",
        ),
    ]
    for id_, attribute, holds, message, help_ in rules:
        if not all_of(holds):
            yield Check(
                id=id_,
                holds=holds,
                subject=f"recompute.{attribute}",
                message=message,
                help=help_,
            )
