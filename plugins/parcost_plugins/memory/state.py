"""Training state per parameter: weights, gradients and optimizer state.

Ranks that hold the same parameters may shard the state (ZeRO).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from parcost import Memory, Real, Study, attribute, formula, hookimpl
from parcost.numeric import all_of, any_of, minimum, where
from parcost_plugins.vocabulary import (
    Adapters,
    Compression,
    LocalUpdates,
    Offload,
    Training,
)
from parcost_plugins.vocabulary.adapters import (
    Holding,
    holdings,
    trains_model,
    weight_bytes,
    whole_scales,
)
from parcost_plugins.vocabulary.causes import BUFFERS, GRADIENTS, OPTIMIZER_STATE, WEIGHTS
from parcost_plugins.vocabulary.run_choices import (
    accumulates_whole,
    copies_buckets,
    gradient_shards,
    host_sums,
    shards_states,
    shards_weights,
)
from parcost_plugins.vocabulary.sharding import outer_state_bytes
from parcost_plugins.vocabulary.stage_parameters import StageKind, stage_kinds, trained_kinds

MICRO_GRADIENTS = "gradients of a micro-batch"
_FEEDBACK = ("one_bit", "top_k", "power_sgd")  # methods that keep what they did not send


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Yield the memory of state, and of gradient buffers."""
    framework = study[Training].framework
    staging, update = framework.gradient_staging, framework.update_gradients
    for holding in holdings(study):
        for kind in stage_kinds(study, holding):
            yield _weights(kind, study, holding)
            if holding == "quantized" and any_of(whole_scales(study) != 0):
                yield _scales(kind, study)
    for kind in trained_kinds(study):
        yield from _state(kind, study)
        if any_of(study[Training].precision.gradient_copies != 0):
            yield _copy_to_add(kind, study)
        elif any_of(staging != 0) and not shards_weights(study):
            yield _staging_buffer(kind, study)
        if any_of(update != 0) and shards_states(study) and not shards_weights(study):
            yield _update_copy(kind, study)
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
    """Return the scales of quantized weights, if every rank holds them all, and on the device."""
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
        yield _share(kind, (str(cause), cause, tag), (bytes_, bytes_), ranks, on_host, origins)


def _share(
    kind: StageKind,
    names: tuple[str, str, str],
    bytes_: tuple[Real, Real],
    shards: Real,
    away: Real,
    origins: Callable[[], dict[str, Any]] | None,
) -> Memory:
    """Return a rank's share of state: name, cause and tag in *names*.

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


def _staging_buffer(kind: StageKind, study: Study) -> Memory:
    """Return the staging buffer of gradients for their reduction.

    Its size matches no freed block, so an allocator reserves new memory for it.
    """
    staging, size = study[Training].framework.gradient_staging, study[Training].precision.gradients
    return Memory(
        name=kind.label("gradient staging"),
        cause=BUFFERS,
        bytes_=formula(
            "N > 1 ? min(k, psi) e : 0, k elements at a time",
            N=kind.replicas,
            k=staging,
            psi=kind.elements,
            e=(size, "B"),
            source="DeepSpeed, runtime/engine.py: gradients are flattened, so many at a time",
        ),
        count=kind.count,
        once_per_device=True,
        moments=("backward", "loss", "optimizer"),
    )


def _copy_to_add(kind: StageKind, study: Study) -> Memory:
    """Return the copy of one gradient in the type of the buffer that it is added to.

    Gradients of a micro-batch are cast one by one, each in a tensor of its own. The buffer is one
    tensor, which is reduced in place: nothing is staged. No block of that size is free, so an
    allocator reserves new memory for it.
    """
    precision = study[Training].precision
    return Memory(
        name=kind.label("copy of a gradient to add"),
        cause=BUFFERS,
        bytes_=formula(
            "max(a, b, k m) e, embedding b, head a, or the largest matrix m of k layers",
            a=kind.after,
            b=kind.before,
            k=minimum(kind.layers, 1),
            m=kind.matrix,
            e=(precision.gradients, "B"),
            source="DeepSpeed, runtime/bf16_optimizer.py: update_hp_grads casts each gradient, and "
            "get_grads_for_reduction returns the flat buffer",
        ),
        count=kind.count,
        once_per_device=True,
        moments=("backward", "loss", "optimizer"),
    )


def _update_copy(kind: StageKind, study: Study) -> Memory:
    """Return the copy of a shard's gradients that the optimizer reads, if it needs wider ones.

    It is one tensor, which matches no freed block: an allocator reserves new memory for it.
    """
    training, offload = study[Training], study[Offload]
    wide, size = training.framework.update_gradients, training.precision.gradients
    return Memory(
        name=kind.label("gradients of the update"),
        cause=BUFFERS,
        bytes_=formula(
            "N > 1 ? psi g / N (1 - o) : 0, o on the host",
            psi=kind.elements,
            g=(where(size < wide, wide, 0.0), "B"),
            N=kind.shards(shards_states(study)),
            o=offload.optimizer,
            source="DeepSpeed, runtime/zero/stage_1_and_2.py: `step` flattens a partition",
        ),
        count=kind.count,
        moments=("backward", "loss", "optimizer"),
    )


def _copies(kind: StageKind, study: Study) -> Memory:
    """Return the buckets to which gradients are copied before reduction."""
    size = study[Training].precision.reduction
    source = "PyTorch DDP without gradient_as_bucket_view"
    return _replica_buffer(kind, "gradient buckets", size, source)


def _residual_memory(kind: StageKind, study: Study) -> Memory:
    source = "error feedback adds what was not sent to the next gradient"
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
