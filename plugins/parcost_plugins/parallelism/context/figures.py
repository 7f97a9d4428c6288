"""Blocks, volumes and times of context parallelism, and when its ring is free."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Real, Section, Study
from parcost.numeric import ratio, sqrt, where
from parcost_plugins.parallelism.context.exchange import SIZES, Exchange
from parcost_plugins.parallelism.context.ring import RING, kernel_seconds
from parcost_plugins.parallelism.context.trade import ULYSSES, shares
from parcost_plugins.vocabulary import Cluster, FusedAttention, Layout, Training


def ranks(study: Study) -> Figure:
    """Return the devices that one copy of the model takes: sequence parallelism adds none."""
    layout = study[Layout]
    degrees = {"t": layout.tp, "c": layout.cp, "p": float(layout.pp)}
    return Figure(
        name="model_parallel_devices",
        title="devices of one replica",
        value=layout.tp * layout.cp * layout.pp,
        unit="",
        formula=Formula(
            text="t c p",
            inputs={letter: (degree, "") for letter, degree in degrees.items()},
            source="sequence parallelism shares the tensor-parallel ranks, and adds no device",
        ),
    )


def traffic(found: Exchange, outcome: Outcome) -> Iterator[Figure]:
    """Yield sizes and times, by layer and by step."""
    cores = sum(found.counts.get("F", ())) / found.study[Layout].pp
    m = outcome.pipeline.micro_batches
    forward, backward = _volumes(found)
    send, work = _send(found), _work(found)
    device = found.study[Cluster].device
    buffer = 2.0 * found.block if found.context.double_buffer else found.block
    buffer = where(found.cp > 1, buffer, 0.0)  # a rank by itself waits for none
    text = f"{'2 ' if found.context.double_buffer else ''}(s / c) b w e where c > 1, else 0"
    kv, heads = found.kv_heads, found.heads
    exposed, spent = _spent(outcome)
    rows: list[tuple[str, str, Real, str, str, str]] = [
        ("cp_tokens", "tokens of a sequence on a rank", _tokens(found), "", "s / c", SIZES),
        (
            "cp_block",
            "keys and values of a rank's tokens",
            found.block,
            "MB",
            "(s / c) b w e",
            RING,
        ),
        (
            "cp_volume_per_layer_forward",
            "context-parallel volume of a layer, forward",
            forward,
            "MB",
            "sent by one rank",
            SIZES,
        ),
        (
            "cp_volume_per_layer_backward",
            "context-parallel volume of a layer, backward",
            backward,
            "MB",
            "sent by one rank",
            SIZES,
        ),
        (
            "cp_volume",
            "context-parallel volume of a step",
            (forward + backward) * cores * m,
            "GB",
            "of all layers and micro-batches, sent by one rank",
            SIZES,
        ),
        ("cp_buffer", "blocks held under way, forward", buffer, "MB", text, RING),
        (
            "cp_buffer_share",
            "of the device's memory",
            buffer / device.memory,
            "%",
            "buffer / memory",
            RING,
        ),
        ("cp_send", "time to send a block", send, "s", "alpha + n / B", RING),
        ("cp_work", "time to work on a block", work, "s", "attention / r", RING),
        (
            "cp_overlap",
            "sending over working",
            ratio(send, work),
            "",
            "hidden up to 1",
            RING,
        ),
        (
            "cp_free_from",
            "tokens on a rank from which a ring is free",
            _free_from(found),
            "",
            "larger root of X^2 f - X n - alpha: X >= 2 (k / a) F / B without latency",
            RING,
        ),
        ("cp_seconds", "context-parallel communication of a step", spent, "s", "ledger", SIZES),
        ("cp_exposed", "of which nothing hides", exposed, "s", "ledger", SIZES),
        (
            "cp_ring_over_ulysses",
            "forward bytes of a ring over those of all-to-alls",
            ratio(_ring_volume(found), _ulysses_volume(found)),
            "",
            "(c - 1) 2 k d / ((2 a d + 2 k d) (c - 1) / c)",
            ULYSSES,
        ),
        (
            "cp_crossover",
            "degree below which a ring sends less",
            1.0 + ratio(heads, kv),
            "",
            "1 + a / k",
            ULYSSES,
        ),
    ]
    for name, title, value, unit, text, source in rows:
        yield Figure(
            name=name,
            title=title,
            value=value,
            unit=unit,
            formula=Formula(
                text=text,
                inputs={
                    **found.inputs,
                    "r": (found.rounds, ""),
                    "a": (heads, ""),
                    "k": (kv, ""),
                },
                source=source,
            ),
        )


def regime(found: Exchange, outcome: Outcome) -> Section:
    """Return whether the exchange hides, and from how many tokens it would."""
    send, work, exposed = _send(found), _work(found), _spent(outcome)[0]
    tokens, free = _tokens(found), _free_from(found)
    rings = found.kind in ("ring", "hybrid")
    rows = [
        ("tokens of a sequence on a rank", (tokens, "")),
        ("exposed in a step", (exposed, "s")),
    ]
    notes = ["nothing hides a gather or an all-to-all that attention waits for"]
    if rings:
        rows += [
            ("sending a block", (send, "s")),
            ("working on a block", (work, "s")),
            ("free from, tokens on a rank", (free, "")),
        ]
        if found.kind == "ring":
            notes = []
        notes.append(
            "sending grows with the tokens and working with their square: longer blocks hide more"
        )
        notes.append(_said(found, float(tokens), float(free)))
    return Section(title="Context parallelism", columns=("what", "is"), rows=rows, notes=notes)


def _said(found: Exchange, tokens: float, free: float) -> str:
    """Return the regime in words."""
    if not found.context.double_buffer:
        return "without a double buffer every block is waited for, whatever its length"
    if tokens >= free:
        return f"free overlap: {tokens:.0f} tokens on a rank, and {free:.0f} are enough"
    degree = int(found.study[Training].sequence // free)
    enough = f"cp = {degree} has that many" if degree else "the whole sequence has fewer"
    return f"exposed: {tokens:.0f} tokens on a rank, and {free:.0f} would do; {enough}"


def _tokens(found: Exchange) -> Real:
    return found.study[Training].sequence / found.cp


def _volumes(found: Exchange) -> tuple[Real, Real]:
    """Return the bytes that a rank sends for a layer, forward and backward."""
    if found.kind == "all_gather":
        forward = (found.cp - 1) * found.block
        return forward, forward + (found.cp - 1) * found.block_gradients
    ring = found.rounds - 1
    traded = _traded(found, found.trading) * found.context.key_value
    ratio = found.context.gradients / found.context.key_value
    return (
        ring * found.block + traded,
        ring * (found.block + found.block_gradients) + traded * ratio,
    )


def _traded(found: Exchange, among: Real) -> Real:
    """Return the elements that a rank sends in the all-to-alls of one pass."""
    return found.tokens * sum(shares(found).values(), 0.0) * (among - 1) / among


def _ring_volume(found: Exchange) -> Real:
    return (found.cp - 1) * found.block


def _ulysses_volume(found: Exchange) -> Real:
    return _traded(found, found.cp) * found.context.key_value


def _send(found: Exchange) -> Real:
    call = found.study.collective("point_to_point", found.block, found.outer, found.algorithm)
    return call.seconds


def _core(found: Exchange) -> Real:
    """Return the seconds of attention on one layer, forward."""
    for operator in found.study.operators:
        if isinstance(operator, FusedAttention) and operator.pass_ == "F":
            return kernel_seconds(operator, found.study)
    return 0.0


def _work(found: Exchange) -> Real:
    return _core(found) / found.rounds


def _free_from(found: Exchange) -> Real:
    """Return the tokens on a rank at which working on a block takes as long as sending it.

    With X tokens, sending takes alpha + X n / B, and working grows with X squared.
    """
    link = found.outer.hop
    tokens = _tokens(found)
    square = _core(found) / found.rounds / (tokens * tokens)
    linear = found.block / tokens / link.bandwidth
    return ratio(linear + sqrt(linear * linear + 4.0 * square * link.latency), 2.0 * square)


def _spent(outcome: Outcome) -> tuple[Real, Real]:
    """Return the seconds of a step that are exposed, and all of them."""
    exposed: Real = 0.0
    every: Real = 0.0
    for line in outcome.ledger:
        own = line.plugin is not None and line.plugin.name == "context_parallel"
        if own and line.resource != "compute":
            exposed, every = exposed + line.exposed, every + line.exposed + line.hidden
    return exposed, every
