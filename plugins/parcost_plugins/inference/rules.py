"""Rules of serving: degrees that divide, types that the device supports, memory for the cache."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Real, block_name
from parcost.numeric import INFINITY, ceil_log2, divides, maximum
from parcost_plugins.inference.memory import ServingMemory
from parcost_plugins.inference.replica import Replica
from parcost_plugins.inference.rulebook import RULES
from parcost_plugins.inference.speed import ServingPhase
from parcost_plugins.physics.neighbours import divisors
from parcost_plugins.vocabulary import Serving

_GIB = 2.0**30
_TYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")


def prerequisites(serving: Serving) -> Iterator[Check]:
    """Yield the rules that must be satisfied before anything can be computed."""
    name, model, device = block_name(serving), serving.model, serving.device
    has = [kind for kind in _TYPES if getattr(device, kind) is not None]
    yield RULES.check(
        "serving-no-peak",
        serving.compute in has,
        f"{name}.compute",
        help=f"set `compute` to a type that it has: {', '.join(has)}",
        device=block_name(device),
        compute=serving.compute,
    )
    yield RULES.check(
        "serving-layers",
        model.layers % serving.pp == 0,
        f"{name}.pp",
        help=f"pp = {divisors(float(model.layers), float(serving.pp))} divides",
        layers=model.layers,
        pp=serving.pp,
    )
    yield from _head_checks(serving)
    yield from _nominal_checks(serving)
    yield from _experts(serving)
    yield from _replica_checks(serving)
    yield RULES.check(
        "serving-context",
        serving.context <= serving.longest,
        f"{name}.context",
        context=serving.context,
        longest=serving.longest,
    )


def _head_checks(serving: Serving) -> Iterator[Check]:
    name, model = block_name(serving), serving.model
    heads, kv, tp = model.heads, model.kv_heads, serving.tp
    yield RULES.check("serving-heads", divides(tp, heads), f"{name}.tp", heads=heads, tp=tp)
    yield RULES.check(
        "serving-kv-heads",
        model.is_latent | (heads == 0) | divides(tp, kv) | divides(kv, tp),
        f"{name}.tp",
        kv=kv,
        tp=tp,
    )


def _replica_checks(serving: Serving) -> Iterator[Check]:
    name = block_name(serving)
    replicas, ranks = serving.attention_replicas, serving.tp * serving.attention_replicas
    yield RULES.check(
        "serving-replicas",
        divides(1.0, replicas) & (replicas >= 1),
        f"{name}.attention_replicas",
        replicas=replicas,
        tp=serving.tp,
        ep=serving.ep,
    )
    devices = ranks * serving.pp
    yield RULES.check(
        "serving-no-fabric",
        (serving.fabric is not None) | (devices == 1),
        f"{name}.fabric",
        devices=devices,
    )


def _nominal_checks(serving: Serving) -> Iterator[Check]:
    """Yield the rules on attributes that a nominal model (without sizes) needs."""
    name, model = block_name(serving), serving.model
    subject, inputs = f"{name}.model", {"model": block_name(model)}
    yield RULES.check(
        "serving-no-cache",
        model.is_latent | (model.kv_heads * model.head_dim > 0),
        subject,
        inputs=inputs,
    )
    devices = serving.tp * serving.attention_replicas * serving.pp
    yield RULES.check(
        "serving-no-width",
        (model.hidden > 0) | (devices == 1),
        subject,
        inputs={**inputs, "devices": devices},
    )


def _experts(serving: Serving) -> Iterator[Check]:
    name, model = block_name(serving), serving.model
    ep, ranks = serving.ep, serving.tp * serving.attention_replicas
    yield RULES.check(
        "serving-no-experts",
        (ep == 1) | (model.experts > 0),
        f"{name}.ep",
        ep=ep,
        model=block_name(model),
    )
    if not model.experts:
        return
    experts = float(model.experts)
    yield RULES.check("serving-experts", divides(ep, experts), f"{name}.ep", experts=experts, ep=ep)
    yield RULES.check("serving-expert-ranks", divides(ep, ranks), f"{name}.ep", ranks=ranks, ep=ep)


def capacity_check(replica: Replica, memory: ServingMemory) -> Check:
    """Return the rule that weights and cache fit in memory."""
    serving = replica.serving
    largest = memory.largest_batch(serving.batches)
    return RULES.check(
        "serving-does-not-fit",
        memory.total <= memory.usable,
        f"{block_name(serving)}.batch",
        weights=memory.held / _GIB,
        cache=memory.cache / _GIB,
        sequences=serving.batch * serving.batches,
        longest=serving.longest,
        room=(memory.usable - memory.overhead) / _GIB,
        largest=largest,
        needed=_required_degree(replica, memory),
    )


def finite_time_check(replica: Replica, first: ServingPhase, next_: ServingPhase) -> Check:
    """Return the rule that the time is finite: all algorithms in use can run."""
    serving = replica.serving
    return RULES.check(
        "serving-cannot-run",
        maximum(first.seconds, next_.seconds) < INFINITY,
        f"{block_name(serving)}.collective",
        algorithm=serving.collective,
        tp=serving.tp,
    )


def _required_degree(replica: Replica, memory: ServingMemory) -> Real:
    """Return the smallest power of two of tp whose weights take at most half of a device."""
    ways = memory.held * replica.serving.tp / (0.5 * memory.usable)
    return 2.0 ** ceil_log2(maximum(ways, 1.0))
