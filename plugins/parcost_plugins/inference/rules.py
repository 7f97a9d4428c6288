"""Rules of serving: degrees that divide, types that the device supports, memory for the cache."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Real, block_name
from parcost.numeric import INFINITY, ceil_log2, divides, maximum
from parcost_plugins.inference.memory import ServingMemory
from parcost_plugins.inference.replica import Replica
from parcost_plugins.inference.speed import ServingPhase
from parcost_plugins.vocabulary import Serving
from parcost_plugins.vocabulary.neighbours import divisors

_GIB = 2.0**30
_TYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


def prerequisites(serving: Serving) -> Iterator[Check]:
    """Yield the rules that must hold before anything can be computed."""
    name, model, device = block_name(serving), serving.model, serving.device
    has = [kind for kind in _TYPES if getattr(device, kind) is not None]
    yield Check(
        id="serving-no-peak",
        holds=serving.compute in has,
        subject=f"{name}.compute",
        message="device `{device}` has no {compute} peak",
        inputs={"device": block_name(device), "compute": serving.compute},
        help=f"set `compute` to a type that it has: {', '.join(has)}",
    )
    yield Check(
        id="serving-layers",
        holds=model.layers % serving.pp == 0,
        subject=f"{name}.pp",
        message="{layers} layers are not divisible by pp = {pp}",
        inputs={"layers": model.layers, "pp": serving.pp},
        help=f"pp = {divisors(float(model.layers), float(serving.pp))} divides",
    )
    yield from _head_checks(serving)
    yield from _nominal_checks(serving)
    yield from _experts(serving)
    yield from _replica_checks(serving)
    yield Check(
        id="serving-context",
        holds=serving.context <= serving.longest,
        subject=f"{name}.context",
        message="a sequence has {context} tokens on average, and `longest` is {longest}",
        inputs={"context": serving.context, "longest": serving.longest},
        help="write `longest` of at least `context`",
    )


def _head_checks(serving: Serving) -> Iterator[Check]:
    name, model = block_name(serving), serving.model
    heads, kv, tp = model.heads, model.kv_heads, serving.tp
    yield Check(
        id="serving-heads",
        holds=divides(tp, heads),
        subject=f"{name}.tp",
        message="{heads} heads are not divisible by tp = {tp}",
        inputs={"heads": heads, "tp": tp},
        help="choose a tp that divides {heads}",
    )
    yield Check(
        id="serving-kv-heads",
        holds=model.is_latent | (heads == 0) | divides(tp, kv) | divides(kv, tp),
        subject=f"{name}.tp",
        message="{kv} KV heads are neither shared by tp = {tp} ranks nor copied evenly",
        inputs={"kv": kv, "tp": tp},
        help="choose a tp that divides {kv}, or a multiple of {kv}",
    )


def _replica_checks(serving: Serving) -> Iterator[Check]:
    name = block_name(serving)
    replicas, ranks = serving.attention_replicas, serving.tp * serving.attention_replicas
    yield Check(
        id="serving-replicas",
        holds=divides(1.0, replicas) & (replicas >= 1),
        subject=f"{name}.attention_replicas",
        message="`attention_replicas` is {replicas}, and must be a whole number: by default it "
        "is "
        "ep / tp = {ep} / {tp}",
        inputs={"replicas": replicas, "tp": serving.tp, "ep": serving.ep},
        help="choose an ep that is a multiple of tp, or divides it",
    )
    devices = ranks * serving.pp
    yield Check(
        id="serving-no-fabric",
        holds=(serving.fabric is not None) | (devices == 1),
        subject=f"{name}.fabric",
        message="a replica has {devices} devices, and the block names no fabric between them",
        inputs={"devices": devices},
        help="write `use catalog.fabrics.hgx_h100` and `fabric = hgx_h100`",
    )


def _nominal_checks(serving: Serving) -> Iterator[Check]:
    """Yield the rules on attributes that a nominal model (without sizes) needs."""
    name, model = block_name(serving), serving.model
    subject, inputs = f"{name}.model", {"model": block_name(model)}
    yield Check(
        id="serving-no-cache",
        holds=model.is_latent | (model.kv_heads * model.head_dim > 0),
        subject=subject,
        message="the KV cache of a token has no known size: model `{model}` has no heads",
        inputs=inputs,
        help="write `hidden`, `heads` and `kv_heads` in the model",
    )
    devices = serving.tp * serving.attention_replicas * serving.pp
    yield Check(
        id="serving-no-width",
        holds=(model.hidden > 0) | (devices == 1),
        subject=subject,
        message="{devices} devices of a replica send activations, and `{model}` has no hidden size",
        inputs={**inputs, "devices": devices},
        help="write `hidden = ...` in the model",
    )


def _experts(serving: Serving) -> Iterator[Check]:
    name, model = block_name(serving), serving.model
    ep, ranks = serving.ep, serving.tp * serving.attention_replicas
    yield Check(
        id="serving-no-experts",
        holds=(ep == 1) | (model.experts > 0),
        subject=f"{name}.ep",
        message="ep = {ep} splits experts, and `{model}` has none",
        inputs={"ep": ep, "model": block_name(model)},
        help="write `ep = 1`, or leave it out",
    )
    if not model.experts:
        return
    experts = float(model.experts)
    yield Check(
        id="serving-experts",
        holds=divides(ep, experts),
        subject=f"{name}.ep",
        message="{experts} experts are not divisible by ep = {ep}",
        inputs={"experts": experts, "ep": ep},
        help="choose an ep that divides {experts}",
    )
    yield Check(
        id="serving-expert-ranks",
        holds=divides(ep, ranks),
        subject=f"{name}.ep",
        message="a stage has tp x attention_replicas = {ranks} devices, which are not divisible by "
        "ep = {ep}",
        inputs={"ranks": ranks, "ep": ep},
        help="choose an ep that divides {ranks}, or tp x attention_replicas as a multiple of {ep}",
    )


def capacity_check(replica: Replica, memory: ServingMemory) -> Check:
    """Return the rule that weights and cache fit in memory."""
    serving = replica.serving
    largest = memory.largest_batch(serving.batches)
    return Check(
        id="serving-does-not-fit",
        holds=memory.total <= memory.usable,
        subject=f"{block_name(serving)}.batch",
        message="a device needs {weights:.1f} GiB for weights and {cache:.1f} GiB for the KV cache "
        "({longest} tokens x {sequences} in the batch), and {room:.1f} GiB are usable",
        inputs={
            "weights": memory.held / _GIB,
            "cache": memory.cache / _GIB,
            "sequences": serving.batch * serving.batches,
            "longest": serving.longest,
            "room": (memory.usable - memory.overhead) / _GIB,
            "largest": largest,
            "needed": _required_degree(replica, memory),
        },
        help="the largest batch that fits is {largest}; with tp = {needed}, the weights would fill "
        "at most half of the memory",
    )


def ends(replica: Replica, first: ServingPhase, next_: ServingPhase) -> Check:
    """Return the rule that the time is finite: all algorithms in use can run."""
    serving = replica.serving
    return Check(
        id="serving-cannot-run",
        holds=maximum(first.seconds, next_.seconds) < INFINITY,
        subject=f"{block_name(serving)}.collective",
        message="algorithm `{algorithm}` cannot run the all-reduces of {tp} ranks on this fabric",
        inputs={"algorithm": serving.collective, "tp": serving.tp},
        help="write `collective = auto`, which chooses the fastest algorithm that can run",
    )


def _required_degree(replica: Replica, memory: ServingMemory) -> Real:
    """Return the smallest power of two of tp whose weights take at most half of a device."""
    ways = memory.held * replica.serving.tp / (0.5 * memory.usable)
    return 2.0 ** ceil_log2(maximum(ways, 1.0))
