"""The figures of a ``serving`` block, named ``<label>.<what>``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Figure, Formula, Real, Section, called
from parcost.numeric import minimum, ratio
from parcost_plugins.inference.memory import Memory, copies
from parcost_plugins.inference.replica import Replica
from parcost_plugins.inference.speed import Phase
from parcost_plugins.vocabulary import Price

ROOFLINE = "Williams et al. 2009, roofline; Pope et al. 2022, section 3"
MILLION = 1e6


def figures_of(replica: Replica, memory: Memory, first: Phase, next_: Phase) -> Iterator[Figure]:
    """Yield every figure of *replica*: *first* is the prompt, *next_* a token."""
    label = called(replica.serving)
    for name, title, value, unit, text, inputs, note in (
        *_speed(replica, first, next_),
        *_parts(replica, first, next_),
        *_memory(replica, memory),
    ):
        yield Figure(
            name=f"{label}.{name}",
            title=f"{label}: {title}",
            value=value,
            unit=unit,
            formula=Formula(text=text, inputs=inputs, source=ROOFLINE),
            note=note,
        )


_SIDE_BY_SIDE = (
    "compute and memory run side by side: the longer counts, and then communication; the host's "
    "launches count where they outlast all of it"
)


def table(replica: Replica, first: Phase, next_: Phase) -> Section:
    """Return where the time of both phases goes, and what bounds them."""
    rows = [
        (
            name,
            (phase.seconds, "s"),
            (phase.compute, "s"),
            (phase.weights, "s"),
            (phase.cache, "s"),
            (phase.communication, "s"),
            (phase.launches, "s"),
            phase.bound,
        )
        for name, phase in (("prefill", first), ("decode", next_))
    ]
    return Section(
        title=f"Serving `{called(replica.serving)}`: where the time goes",
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


_Row = tuple[str, str, Any, str, str, dict[str, tuple[Any, str]], str]


def _speed(replica: Replica, first: Phase, next_: Phase) -> Iterator[_Row]:
    serving = replica.serving
    yield (
        "prefill_seconds",
        "time to the first token",
        first.seconds,
        "s",
        "max(F / (t peak), W / (t B)) + communication",
        {
            "F": (first.flops, "FLOP"),
            "t": (serving.tp, ""),
            "peak": (replica.peak, "FLOP/s"),
            "B": (replica.bandwidth, "B/s"),
        },
        _bound(first),
    )
    yield (
        "decode_seconds",
        "time of one more token",
        next_.seconds,
        "s",
        "max(max((W + n s KV) / (t B), 2 G n / (t peak)) + communication, launches)",
        {
            "n": (serving.batch, ""),
            "s": (serving.context, ""),
            "t": (serving.tp, ""),
            "B": (replica.bandwidth, "B/s"),
            "peak": (replica.peak, "FLOP/s"),
        },
        _bound(next_),
    )
    yield (
        "request_seconds",
        "time of a whole answer",
        first.seconds + serving.output * next_.seconds,
        "s",
        "prefill + output x decode",
        {"output": (serving.output, "")},
        "",
    )
    under_way = minimum(serving.batches, float(serving.pp))
    speed = ratio(serving.batch * serving.attention_replicas * under_way, next_.seconds)
    made = {
        "n": (serving.batch, ""),
        "g": (serving.attention_replicas, ""),
        "k": (under_way, ""),
        "T": (next_.seconds, "s"),
    }
    yield (
        "tokens_per_second",
        "tokens per second",
        speed,
        "",
        "n g k / T, g groups, k batches in different stages",
        made,
        "decoding",
    )
    yield (
        "tokens_per_second_per_device",
        "tokens per second and device",
        speed / replica.devices,
        "",
        "n g k / (T N)",
        {**made, "N": (replica.devices, "")},
        "decoding",
    )
    yield (
        "prefill_tokens_per_second",
        "tokens of prompts per second",
        ratio(serving.prompt * serving.attention_replicas * under_way, first.seconds),
        "",
        "S g k / T",
        {**made, "S": (serving.prompt, ""), "T": (first.seconds, "s")},
        "",
    )
    price = replica.study.get(Price)
    if price is not None:
        rate = price.device_hour * replica.devices
        yield (
            "cost_per_million_tokens",
            "cost per million tokens",
            ratio(rate, speed) * MILLION,
            "USD",
            "c N / r x 1e6",
            {"c": (price.device_hour, "USD/h"), "N": (replica.devices, ""), "r": (speed, "")},
            "decoding, at this batch",
        )


def _parts(replica: Replica, first: Phase, next_: Phase) -> Iterator[_Row]:
    serving = replica.serving
    nothing: dict[str, tuple[Any, str]] = {}
    reads = {"t": (serving.tp, ""), "B": (replica.bandwidth, "B/s")}
    rows: list[tuple[str, str, Real, str, str]] = [
        ("prefill_flops", "FLOPs of a prompt", first.flops, "FLOP", "S (2 G + A)"),
        ("prefill_compute_seconds", "products of a prompt", first.compute, "s", "F / (t peak)"),
        ("weights_seconds", "reading the weights", next_.weights, "s", "W / (t B)"),
        ("cache_seconds", "reading the cache", next_.cache, "s", "n s KV / (t B)"),
        ("compute_seconds", "products of a token", next_.compute, "s", "2 G n / (t peak)"),
        ("all_reduce_seconds", "one all-reduce of a token", next_.all_reduce, "s", "T(n h e)"),
        ("all_reduces", "all-reduces of a token", replica.all_reduces, "", "2 per dense layer"),
        (
            "communication_seconds",
            "what ranks tell one another for a token",
            next_.communication,
            "s",
            "all-reduces, exchanges of experts, hops between stages",
        ),
        (
            "crossover_batch",
            "batch from which products take longer than weights",
            serving.weights * replica.peak / (2.0 * replica.bandwidth),
            "",
            "w peak / (2 B)",
        ),
    ]
    for name, title, value, unit, text in rows:
        yield name, title, value, unit, text, reads if unit == "s" else nothing, ""
    if serving.model.experts:
        model, tokens = serving.model, serving.batch * serving.attention_replicas
        yield (
            "experts_hit",
            "experts of a layer that a batch visits",
            float(model.experts) * replica.hit(serving.batch),
            "",
            "E (1 - (1 - k / E)^n)",
            {"E": (model.experts, ""), "k": (model.top_k, ""), "n": (tokens, "")},
            "by even chance",
        )


def _memory(replica: Replica, memory: Memory) -> Iterator[_Row]:
    serving, model = replica.serving, replica.serving.model
    latent = "L (r + d_r) e, r and d_r of the compressed cache"
    plain = "2 L k d e, k KV heads of size d"
    copied = {"copies": (copies(replica), ""), "t": (serving.tp, "")}
    nothing: dict[str, tuple[Any, str]] = {}
    on_one = "on the fullest device"
    yield (
        "kv_bytes_per_token",
        "cache of one token",
        memory.per_token,
        "B",
        latent if model.latent else plain,
        {"L": (model.layers, ""), "e": (serving.kv, "B")},
        "over all ranks, each part counted once",
    )
    yield (
        "kv_sequence",
        "cache of one sequence on a device",
        memory.sequence,
        "GiB",
        "KV s copies / (t p)",
        {**copied, "s": (serving.longest, ""), "p": (serving.pp, "")},
        "of the longest",
    )
    yield (
        "kv_memory",
        "cache of all sequences on a device",
        memory.cache,
        "GiB",
        "KV s n k copies / (t p)",
        {**copied, "n": (serving.batch, ""), "k": (serving.batches, "")},
        "",
    )
    yield (
        "weights",
        "weights of the model",
        memory.weights,
        "B",
        "N w",
        {"N": (replica.dense + replica.expert, ""), "w": (serving.weights, "B")},
        "each counted once",
    )
    yield (
        "weights_memory",
        "weights on a device",
        memory.held,
        "GiB",
        "N w / (t p)",
        nothing,
        on_one,
    )
    yield (
        "memory",
        "memory in use",
        memory.total,
        "GiB",
        "weights + cache + context",
        {"context": (memory.overhead, "B")},
        on_one,
    )
    yield (
        "headroom",
        "memory left",
        memory.usable - memory.total,
        "GiB",
        "usable capacity - memory",
        {"usable": (memory.usable, "B")},
        on_one,
    )
    yield (
        "capacity",
        "memory of all devices",
        serving.device.memory * replica.devices,
        "B",
        "N capacity",
        {"N": (replica.devices, "")},
        "",
    )
    yield (
        "largest_batch",
        "largest batch",
        memory.largest_batch(serving.batches),
        "",
        "floor((usable - weights - context) / (k KV s copies / (t p)))",
        {**copied, "k": (serving.batches, "")},
        "sequences that find room in the cache",
    )
    yield "devices", "devices", replica.devices, "", "t g p", nothing, ""


def _bound(phase: Phase) -> str:
    return f"bound by {phase.bound}" if phase.bound else ""
