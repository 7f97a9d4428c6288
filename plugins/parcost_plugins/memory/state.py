"""Training state per parameter: weights, gradients and optimizer state.

Ranks that hold the same parameters may shard the state (ZeRO).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from attrs import evolve

from parcost import Mask, Memory, Moment, Real, Study, attribute, formula, hookimpl
from parcost.numeric import all_of, any_of, minimum, ratio, where
from parcost_plugins.memory.gradient_buffers import gradient_buffers
from parcost_plugins.physics.adapters import (
    Holding,
    holdings,
    trains_model,
    weight_bytes,
    whole_scales,
)
from parcost_plugins.physics.run_choices import (
    accumulates_whole,
    adds_behind_pass,
    copies_buckets,
    frees_gradients,
    gradient_shards,
    host_sums,
    keeps_gradients,
    shards_gradients,
    shards_states,
    shards_weights,
)
from parcost_plugins.physics.stage_parameters import StageKind, stage_kinds, trained_kinds
from parcost_plugins.vocabulary import (
    Adapters,
    Compression,
    LocalUpdates,
    Offload,
    Training,
)
from parcost_plugins.vocabulary.causes import (
    BUFFERS,
    GRADIENTS,
    OPTIMIZER_STATE,
    WEIGHTS,
)
from parcost_plugins.vocabulary.sharding import outer_state_bytes

MICRO_GRADIENTS = "gradients of a micro-batch"
_FEEDBACK = ("one_bit", "top_k", "power_sgd")  # methods that keep what they did not send


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Yield the memory of state, and of gradient buffers."""
    for holding in holdings(study):
        for kind in stage_kinds(study, holding):
            yield _weights(kind, study, holding)
            if holding == "quantized" and any_of(whole_scales(study) != 0):
                yield _scales(kind, study)
    for kind in trained_kinds(study):
        yield from _state(kind, study)
        yield from gradient_buffers(kind, study)
        if copies_buckets(study):
            yield _copies(kind, study)
        if study[Compression].method in _FEEDBACK:
            yield _residual_memory(kind, study)
        if any_of(outer_state_bytes(study[LocalUpdates]) != 0) and not study[LocalUpdates].offload:
            yield _outer_optimizer(kind, study)


def _weights(kind: StageKind, study: Study, holding: Holding) -> Memory:
    """Return the weights of a *holding*."""
    name = str(WEIGHTS)
    owner: object = study[Training].precision
    if holding != "trained":
        name, owner = f"{holding} {name}", study.get(Adapters)
    elif not trains_model(study):
        name = f"{name} of adapters"
    return _share(
        kind,
        (name, WEIGHTS, "weights"),
        weight_bytes(study, holding),
        kind.shards(shards_weights(study)),
        study[Offload].parameters,
        None if holding == "quantized" else partial(_size_of_element, owner, "weights"),
    )


def _scales(kind: StageKind, study: Study) -> Memory:
    """Return the scales of quantized weights on the device, if every rank holds all of them."""
    name, each = f"scales of quantized {WEIGHTS}", whole_scales(study)
    return _share(kind, (name, WEIGHTS, "weights"), (each, each), 1.0, 0.0, None)


def _state(kind: StageKind, study: Study) -> Iterator[Memory]:
    precision, away = study[Training].precision, study[Offload].optimizer
    sums = 0.0 if host_sums(study) == "none" else away
    shards, whole = gradient_shards(study, kind.shard), accumulates_whole(study)
    size, origin = precision.gradients, "gradients"
    if any_of(whole):
        size = where(whole, precision.whole_gradients, size)
        origin = "whole_gradients" if all_of(whole) else ""
    states = kind.shards(shards_states(study))
    for cause, tag, source, bytes_, ranks, on_host in (
        (GRADIENTS, "gradients", origin, size, shards, sums),
        (MICRO_GRADIENTS, "gradients", "gradient_copies", precision.gradient_copies, shards, 0.0),
        (OPTIMIZER_STATE, "optimizer", "optimizer", precision.optimizer, states, away),
    ):
        if isinstance(bytes_, float) and not bytes_:
            continue
        origins = partial(_size_of_element, precision, source) if source else None
        held = _share(kind, (str(cause), cause, tag), (bytes_, bytes_), ranks, on_host, origins)
        yield from _gradients(held, kind, study) if cause == GRADIENTS else (held,)
    if adds_behind_pass(study):
        names = (MICRO_GRADIENTS, GRADIENTS, "gradients")
        sizes = precision.weights, precision.wide_weights
        origins = partial(_size_of_element, precision, "weights")
        held = _share(kind, names, sizes, 1.0, 0.0, origins)
        yield from _made_in_backward(MICRO_GRADIENTS, held, kind, study, after=("end_of_backward",))


def _gradients(held: Memory, kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the gradients *held* at the end of backward, and at the moments at which they are
    allocated.

    Without a buffer, backward allocates the gradients of a single micro-batch. While the
    activations of all layers are in memory, only the last layer and the head have gradients. When
    all parts have gradients, only the activations of the first layer are left.

    PyTorch's FSDP allocates sharded gradients on the stream of reductions. The allocator gives
    their freed blocks to no other stream. DeepSpeed's ZeRO 1 copies the shard of a rank, and frees
    all gradients before the update.
    """
    kept = keeps_gradients(study, kind.replicas) | (study[Training].micro_batches > 1)
    after: tuple[Moment, ...] = ("end_of_backward", "optimizer", "gather")
    if frees_gradients(study):
        after = ("end_of_backward",)
    if all_of(kept):
        yield evolve(held, moments=("forward", "backward", "loss", *after))
        return
    yield from _made_in_backward(str(GRADIENTS), held, kind, study, after=after, kept=kept)


def _made_in_backward(
    name: str,
    held: Memory,
    kind: StageKind,
    study: Study,
    *,
    after: tuple[Moment, ...],
    kept: Mask = False,
) -> Iterator[Memory]:
    """Yield the gradients *held* at the moments *after* backward, and at earlier moments if
    allocated then.

    If they are not *kept* between steps, backward allocates them layer by layer.
    """
    yield evolve(held, moments=after)
    made = ratio(kind.after + minimum(kind.layers, 1) * kind.layer, kind.elements)
    exist = {"M": (held.formula, "B"), "c": where(kept, 1.0, 0.0)}
    rows: tuple[tuple[str, str, dict[str, Any], tuple[Moment, ...]], ...] = (
        ("of earlier micro-batches", "c M, c if they exist", exist, ("forward", "loss")),
        (
            "at the last layer",
            "max(c, f) M, c if all exist, f of the last layer and the head",
            {**exist, "f": made},
            ("backward",),
        ),
    )
    on_stream = study[Training].framework.keeps_gradients == "replicas" and shards_gradients(study)
    for when, text, symbols, moments in rows:
        source = "backward makes the gradients of the only micro-batch layer by layer"
        bytes_ = formula(text, symbols, source=source)
        label = kind.label(f"{name} {when}")
        yield evolve(held, name=label, bytes_=bytes_, moments=moments)
        if on_stream:
            label = kind.label(f"reserved for {name}, {when}")
            source = "PyTorch, _fsdp_collectives.py: foreach_reduce, reduce_output"
            bytes_ = formula(f"M - {text}", symbols, source=source)
            yield evolve(
                held, name=label, bytes_=bytes_, moments=(), cached=moments, cause=BUFFERS, tag=""
            )


def _share(
    kind: StageKind,
    names: tuple[str, str, str],
    bytes_: tuple[Real, Real],
    shards: Real,
    away: Real,
    origins: Callable[[], dict[str, Any]] | None,
) -> Memory:
    """Return the state of a rank's shard; *names* has name, cause and tag.

    *bytes_* are per parameter, in linear layers and elsewhere.
    """
    name, cause, tag = names
    text, symbols = kind.bytes_text(*bytes_)
    remark = ", l in linear layers" if "l" in symbols else ""
    text, symbols = f"{text} / N", {**symbols, "N": shards}
    if not isinstance(away, float) or away:
        text, symbols = f"{text} (1 - o)", {**symbols, "o": away}
        remark += ", o on the host"
    text += remark
    return Memory(
        name=kind.label(name),
        cause=cause,
        bytes_=formula(
            text, symbols, source="Rajbhandari et al. 2019, ZeRO, section 5", origins=origins
        ),
        count=kind.count,
        tag=tag,
    )


def _size_of_element(owner: object, name: str) -> dict[str, Any]:
    return {"e": (attribute(owner, name), "B")}


def _copies(kind: StageKind, study: Study) -> Memory:
    """Return the buckets to which gradients are copied before reduction."""
    size = study[Training].precision.reduction
    source = "PyTorch DDP without gradient_as_bucket_view"
    return _replica_buffer(kind, "gradient buckets", size, source)


def _residual_memory(kind: StageKind, study: Study) -> Memory:
    source = "error feedback adds the part that was not sent to the next gradient"
    return _replica_buffer(kind, "compression residual", study[Compression].residual, source)


def _replica_buffer(kind: StageKind, name: str, size: Real, source: str) -> Memory:
    """Return a buffer of *size* bytes per parameter, which several replicas need."""
    return Memory(
        name=kind.label(name),
        cause=BUFFERS,
        bytes_=formula(
            "N > 1 ? psi e : 0",
            N=kind.replicas,
            psi=kind.elements,
            e=(size, "B"),
            source=source,
        ),
        count=kind.count,
    )


def _outer_optimizer(kind: StageKind, study: Study) -> Memory:
    """Return the outer optimizer's momentum, and the parameters of the last outer step."""
    shards = kind.shards(shards_states(study))
    return Memory(
        name=kind.label("outer optimizer state"),
        cause=OPTIMIZER_STATE,
        bytes_=formula(
            "psi e / N",
            psi=kind.elements,
            e=(outer_state_bytes(study[LocalUpdates]), "B"),
            N=shards,
            source="Douillard et al. 2023 (DiLoCo)",
        ),
        count=kind.count,
        tag="optimizer",
    )
