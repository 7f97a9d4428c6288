"""The figures of a ``serving`` block, named ``<label>.<what>``."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Section, Sheet, attribute, block_name
from parcost.numeric import where
from parcost_plugins.inference.memory import (
    attention_over_cache,
    cache_read,
    communicators,
)
from parcost_plugins.inference.replica import Replica
from parcost_plugins.inference.speed import ServingPhase
from parcost_plugins.vocabulary import MemoryBudget, Price

ROOFLINE = "Williams et al. 2009, roofline; Pope et al. 2022, section 3"


def figures_of(replica: Replica, first: ServingPhase, next_: ServingPhase) -> Iterator[Figure]:
    """Yield every figure of *replica*; *first* is the prefill, *next_* a decode step."""
    serving, model = replica.serving, replica.serving.model
    sheet = Sheet(
        block_name(serving),
        source=ROOFLINE,
        t=attribute(serving, "tp"),
        g=serving.attention_replicas,
        p=attribute(serving, "pp"),
        n=attribute(serving, "batch"),
        k=attribute(serving, "batches"),
        S=attribute(serving, "prompt"),
        peak=(replica.explain_peak(), "FLOP/s"),
        B=(replica.explain_bandwidth(), "B/s"),
        w=(attribute(serving, "weights"), "B"),
        e=(attribute(serving, "kv"), "B"),
        L=attribute(model, "layers"),
    )
    sheet.symbols["N"] = sheet.formula("t g p, devices")
    yield from _speed(replica, first, next_, sheet)
    yield from _parts(replica, next_, sheet)
    yield from _memory(replica, sheet)


_SIDE_BY_SIDE = (
    "the longer of compute and memory time counts, as they overlap; communication is added; "
    "launches of "
    "the host count if they take longer than the sum"
)


def table(replica: Replica, first: ServingPhase, next_: ServingPhase) -> Section:
    """Return the table of times of both phases, with their bottlenecks."""
    rows = [
        (
            name,
            (phase.seconds, "s"),
            (phase.compute, "s"),
            (phase.weights, "s"),
            (phase.cache, "s"),
            (phase.communication.value, "s"),
            (phase.launches, "s"),
            phase.bound,
        )
        for name, phase in (("prefill", first), ("decode", next_))
    ]
    return Section(
        title=f"Serving `{block_name(replica.serving)}`: time by cause",
        columns=(
            "phase",
            "seconds",
            "compute",
            "weights",
            "cache",
            "communication",
            "launches",
            "bound by",
        ),
        rows=rows,
        notes=[_SIDE_BY_SIDE],
    )


def _seconds(phase: ServingPhase, sheet: Sheet) -> Formula:
    return sheet.formula(
        "max(max(compute, weights + cache) + communication, launches)",
        compute=(phase.compute, "s"),
        weights=(phase.weights, "s"),
        cache=(phase.cache, "s"),
        communication=(phase.communication, "s"),
        launches=(phase.launches, "s"),
    )


def _speed(
    replica: Replica, first: ServingPhase, next_: ServingPhase, sheet: Sheet
) -> Iterator[Figure]:
    serving = replica.serving
    yield sheet(
        "prefill_seconds",
        "time to first token (TTFT)",
        "s",
        _seconds(first, sheet),
        note=_bound(first),
    )
    yield sheet(
        "decode_seconds",
        "time per output token (TPOT)",
        "s",
        _seconds(next_, sheet),
        note=_bound(next_),
    )
    yield sheet(
        "request_seconds",
        "latency of a whole response",
        "s",
        "prefill_seconds + max(output - 1, 0) decode_seconds, as the prefill gives the first token",
        output=serving.output,
    )
    sheet.symbols["b"] = sheet.formula("min(k, p), batches in different stages")
    yield sheet(
        "tokens_per_second",
        "tokens/s",
        "",
        "ratio(n g b, decode_seconds), g groups, b batches in different stages",
        note="decoding",
    )
    yield sheet(
        "tokens_per_second_per_device",
        "tokens/s per device",
        "",
        "tokens_per_second / N",
        note="decoding",
    )
    yield sheet(
        "prefill_tokens_per_second",
        "tokens of prompts per second",
        "",
        "ratio(S g b, prefill_seconds)",
    )
    price = replica.study.get(Price)
    if price is not None:
        yield sheet(
            "cost_per_million_tokens",
            "cost per million tokens",
            "USD",
            "ratio(c N, tokens_per_second) 1e6",
            c=(price.device_hour, "USD/h"),
            note="decoding, at this batch",
        )


def _parts(replica: Replica, next_: ServingPhase, sheet: Sheet) -> Iterator[Figure]:
    serving = replica.serving
    sheet.symbols |= {
        "D": replica.dense,
        "d": replica.read_dense,
        "E": replica.expert,
        "X": replica.read_expert,
        "x": replica.visited_share(serving.batch),
        "C": (cache_read(replica, serving.context), "B"),
        "G": (replica.flops, "FLOP"),
        "H": (replica.head_flops, "FLOP"),
        "A": (replica.attention_flops, "FLOP"),
        "K": (attention_over_cache(replica), "FLOP"),
    }
    yield sheet(
        "prefill_flops",
        "FLOPs of a prompt",
        "FLOP",
        "S (G - H + A) + H, G of products and A of attention, H of logits of the last token",
    )
    yield sheet(
        "prefill_compute_seconds",
        "compute time of a prompt, including attention",
        "s",
        "((prefill_flops - S A) / peak + S A / core) / t, A of attention",
        core=(replica.explain_attention_rate(), "FLOP/s"),
    )
    yield sheet(
        "weights_seconds",
        "reading the weights",
        "s",
        "(d + X x) w / B, of a rank in all stages: d without lookup tables, a share x of X, of "
        "experts",
    )
    yield sheet("cache_seconds", "reading the cache", "s", "n C / B, C of one sequence on a rank")
    yield sheet(
        "compute_seconds",
        "compute time of a token",
        "s",
        "n (G + K) / (t peak), K of attention to the cache of a sequence",
    )
    yield from _messages(replica, next_, sheet)
    yield sheet(
        "crossover_batch",
        "batch above which compute takes longer than reading the weights",
        "",
        "w peak / (2 B)",
    )
    if serving.model.experts:
        yield sheet(
            "experts_hit",
            "experts of a layer that a batch uses",
            "",
            "K (1 - max(1 - k / K, 0)^(n g)), k of K experts for each token",
            K=float(serving.model.experts),
            k=serving.model.top_k,
            note="with uniform routing",
        )


def _messages(replica: Replica, next_: ServingPhase, sheet: Sheet) -> Iterator[Figure]:
    """Yield the communication of one token."""
    serving = replica.serving
    yield sheet("all_reduce_seconds", "one all-reduce of a token", "s", next_.all_reduce)
    yield sheet(
        "all_reduces",
        "all-reduces of a token",
        "",
        Formula(
            text="counted by layer: one behind attention and one behind a dense MLP, if t > 1",
            inputs={"L": serving.model.layers},
            value=where(serving.tp > 1, replica.all_reduces, 0.0),
        ),
    )
    yield sheet(
        "communication_seconds",
        "communication of a token",
        "s",
        next_.communication,
    )


def _memory(replica: Replica, sheet: Sheet) -> Iterator[Figure]:
    serving, model = replica.serving, replica.serving.model
    on_one = "on the device with the highest memory"
    if model.is_latent:
        width = {"r": model.kv_lora, "r'": model.rope_dim}
        text = "L (r + r') e, r and r' of the compressed cache"
    else:
        width, text = {"h": model.kv_heads, "d": model.head_dim}, "2 L h d e, h KV heads of size d"
    yield sheet(
        "kv_bytes_per_token",
        "cache of one token",
        "B",
        text,
        width,
        note="over all ranks, each part counted once",
    )
    yield sheet(
        "kv_sequence",
        "cache of one sequence on a device",
        "GiB",
        "C / p, C of all stages",
        C=(cache_read(replica, serving.longest), "B"),
        note="of the longest",
    )
    yield sheet("kv_memory", "cache of all sequences on a device", "GiB", "kv_sequence n k")
    yield sheet("weights", "weights of the model", "B", "(D + E) w", note="each counted once")
    yield sheet(
        "weights_memory",
        "weights on a device",
        "GiB",
        "psi w, psi parameters of the device with the highest memory",
        psi=replica.device_parameters,
        note=on_one,
    )
    budget = replica.study[MemoryBudget]
    usable = budget.usable
    sheet.symbols |= {"M": (serving.device.memory, "B")}
    sheet.symbols["overhead"] = (
        sheet.formula(
            "c + k x, context c and k communicators of x",
            c=(attribute(budget, "context"), "B"),
            k=communicators(replica),
            x=(attribute(budget, "communicator"), "B"),
        ),
        "B",
    )
    sheet.symbols["usable"] = sheet.formula("share M", share=usable), "B"
    yield sheet(
        "memory", "memory in use", "GiB", "weights_memory + kv_memory + overhead", note=on_one
    )
    yield sheet("headroom", "headroom", "GiB", "usable - memory", note=on_one)
    yield sheet("capacity", "memory of all devices", "B", "M N")
    yield sheet(
        "largest_batch",
        "largest batch",
        "",
        "floor((usable - weights_memory - overhead) / (k kv_sequence))",
        note="sequences that fit into the cache",
    )
    yield sheet("devices", "devices", "", "t g p")


def _bound(phase: ServingPhase) -> str:
    return f"bound by {phase.bound}" if phase.bound else ""
