"""A step by thumb: busy time, an all-reduce and a bubble, added up with nothing hidden.

This is how much is said about training in print, so it can be said here too, with the
conventions that such sums differ in as words: how the gradients are reduced, what the
bubble is a share of, whether weights are streamed from the host. It is no prediction: a
study with a model, a machine and a layout is.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Study, called
from parcost.numeric import minimum, ratio
from parcost_plugins.figures.estimate_parts import Parts, parts_of
from parcost_plugins.figures.estimate_ridge import ridges
from parcost_plugins.figures.naming import figures_of
from parcost_plugins.vocabulary import Estimate


def estimates(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``estimate`` block, or what it lacks."""
    for estimate in study.all(Estimate):
        lacking = list(_lacking(estimate))
        yield from lacking
        if lacking:
            continue
        parts = parts_of(estimate, study)
        yield from _work(estimate, parts)
        yield from _traffic(estimate, parts)
        yield from _seconds(estimate, parts)
        yield from _shares(estimate, parts)
        yield from _rates(estimate, parts)
        yield from ridges(estimate)
        baseline = estimate.baseline
        if baseline is not None and not list(_lacking(baseline)):
            yield from _comparison(estimate, parts, parts_of(baseline, study))


def _work(e: Estimate, parts: Parts) -> Iterator[Figure]:
    """Yield what keeps a device busy, as far as something says it."""
    say = figures_of(e)
    if e.peak is not None:
        yield say(
            "compute",
            "model FLOPs at the utilised peak",
            parts.flops_time,
            "s",
            "6 N tokens / (tp pp peak utilisation)",
            N=(parts.parameters, ""),
            tp=(e.tp, ""),
            pp=(e.pp, ""),
        )
    if e.stream is not None:
        yield say(
            "streaming",
            "weights over the streaming link",
            parts.streaming,
            "s",
            "(1 + a samples) N e / (shards B)",
            note="what offload takes; no compute",
            a=(e.activations, ""),
            N=(parts.parameters, ""),
            e=(e.weight, "B"),
            shards=(e.shards, ""),
        )
    yield say(
        "busy",
        "busy time",
        parts.busy,
        "s",
        "max(compute, streaming) + dispatch + L launch" if e.compute is None else "as given",
        compute=(parts.flops_time, "s"),
        streaming=(parts.streaming, "s"),
    )


def _traffic(e: Estimate, parts: Parts) -> Iterator[Figure]:
    """Yield what is sent, as far as something says how fast."""
    say = figures_of(e)
    if e.outer is not None and e.message is None:
        text = f"{e.reduction}, of N e"
        yield say("gradients", "all-reduce of the gradients", parts.gradients, "s", text)
    if e.inner is not None:
        yield say(
            "tensor",
            "all-reduces of tensor parallelism",
            parts.tensor,
            "s",
            "4 L / pp rings of b s h e",
            L=(e.layers, ""),
            pp=(e.pp, ""),
        )
    if e.message is not None:
        yield say(
            "sent",
            "bytes of all messages",
            e.messages * e.message,
            "GB",
            "k n",
            k=(e.messages, ""),
            n=(e.message, "B"),
        )


def _seconds(e: Estimate, parts: Parts) -> Iterator[Figure]:
    say = figures_of(e)
    communication = (parts.communication, "s")
    text = "gradients + tensor"
    inputs = {"gradients": (parts.gradients, "s"), "tensor": (parts.tensor, "s")}
    if e.communication is not None:
        text, inputs = "as given", {}
    elif e.message_time is not None:
        text, inputs = "k t", {"k": (e.messages, ""), "t": (e.message_time, "s")}
    elif e.message is not None and e.outer is not None:
        text = "k n / B"
        inputs = {"k": (e.messages, ""), "n": (e.message, "B"), "B": (e.outer, "B/s")}
    yield say(
        "communication",
        "communication",
        parts.communication,
        "s",
        text,
        **inputs,
    )
    yield say(
        "idle",
        "pipeline idle time",
        parts.bubble,
        "s",
        "busy (p - 1) / (m + p - 1)" if e.bubble == "share_of_busy" else "busy (p - 1) / m",
        busy=(parts.busy, "s"),
        p=(e.pp, ""),
        m=(e.micro_batches, ""),
    )
    yield say(
        "step_time",
        "step time",
        parts.step,
        "s",
        "busy + communication + idle",
        busy=(parts.busy, "s"),
        communication=communication,
        idle=(parts.bubble, "s"),
    )
    covered = minimum(parts.communication, parts.busy)
    window = {"communication": communication, "busy": (parts.busy, "s")}
    yield say(
        "hideable",
        "communication that the busy time could hide",
        covered,
        "s",
        "min(communication, busy)",
        **window,
    )


def _shares(e: Estimate, parts: Parts) -> Iterator[Figure]:
    say = figures_of(e)
    inputs = {"communication": (parts.communication, "s"), "busy": (parts.busy, "s")}
    yield say(
        "overhead",
        "communication over busy time",
        ratio(parts.communication, parts.busy),
        "%",
        "communication / busy",
        **inputs,
    )
    yield say(
        "communication_share",
        "communication, of the step",
        ratio(parts.communication, parts.step),
        "%",
        "communication / T",
        T=(parts.step, "s"),
        **inputs,
    )
    yield say(
        "bubble",
        "bubble share",
        parts.share,
        "%",
        "(p - 1) / (m + p - 1)",
        note="of a step without communication",
        p=(e.pp, ""),
        m=(e.micro_batches, ""),
    )
    yield say(
        "efficiency",
        "scaling efficiency",
        ratio(parts.busy, parts.step),
        "%",
        "busy / T",
        busy=(parts.busy, "s"),
        T=(parts.step, "s"),
    )


def _rates(e: Estimate, parts: Parts) -> Iterator[Figure]:
    say = figures_of(e)
    efficiency = ratio(parts.busy, parts.step)
    yield say(
        "samples_per_second",
        "samples per second",
        ratio(e.batch, parts.step),
        "",
        "batch / T",
        batch=(e.batch, ""),
        T=(parts.step, "s"),
    )
    inputs = {"N": (e.devices, ""), "efficiency": (efficiency, "")}
    yield say(
        "equivalent_devices",
        "devices' worth of work",
        e.devices * efficiency,
        "",
        "N efficiency",
        **inputs,
    )
    yield say(
        "lost_devices",
        "devices' worth lost",
        e.devices * (1.0 - efficiency),
        "",
        "N (1 - efficiency)",
        **inputs,
    )


def _comparison(e: Estimate, parts: Parts, before: Parts) -> Iterator[Figure]:
    say = figures_of(e)
    now, then = ratio(parts.busy, parts.step), ratio(before.busy, before.step)
    yield say(
        "efficiency_gain",
        "scaling efficiency gained, in points",
        now - then,
        "%",
        "efficiency - that of the baseline",
        now=(now, ""),
        then=(then, ""),
    )
    yield say(
        "speedup",
        "speed-up over the baseline",
        ratio(before.step, parts.step),
        "",
        "T of the baseline / T",
        T=(parts.step, "s"),
    )


def _lacking(e: Estimate) -> Iterator[Check]:
    """Yield what keeps the estimate from being one."""
    yield from (
        Check(
            id="estimate-compute",
            holds=False,
            subject=f"{called(e)}.compute",
            message="nothing says what the step computes or sends",
            help="give `compute`, or `parameters` with `peak` or `stream`",
        )
        for _ in range(_nothing_said(e))
    )
    yield from (
        Check(
            id="estimate-inner",
            holds=False,
            subject=f"{called(e)}.reduction",
            message="`{reduction}` reduces within the node first, and nothing says how fast",
            inputs={"reduction": e.reduction},
            help="give `inner`, the bandwidth within the node",
        )
        for _ in range(e.reduction != "flat" and e.outer is not None and e.inner is None)
    )


def _nothing_said(e: Estimate) -> bool:
    said = (e.compute, e.parameters, e.message, e.message_time, e.communication)
    return all(value is None for value in said)
