"""Block sizes, volumes and times of context parallelism, and the break-even length of a ring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Figure, Formula, Outcome, Real, Section, Sheet, Study, formula
from parcost.numeric import any_of
from parcost_plugins.parallelism.context.all_to_all import ULYSSES, shares
from parcost_plugins.parallelism.context.exchange import SIZES, ContextExchange
from parcost_plugins.parallelism.context.ring import RING
from parcost_plugins.physics.kernel_times import kernel_seconds
from parcost_plugins.vocabulary import Cluster, FusedAttention, Layout, Training


def ranks(study: Study) -> Figure:
    """Return the devices of one model copy; sequence parallelism needs no additional devices."""
    layout = study[Layout]
    sheet = Sheet(
        source="sequence parallelism uses the tensor-parallel ranks without further devices",
        t=layout.tp,
        c=layout.cp,
        p=float(layout.pp),
    )
    return sheet("model_parallel_devices", "devices of one replica", "", "t c p")


def traffic(found: ContextExchange, outcome: Outcome) -> Iterator[Figure]:
    """Yield sizes and times, per layer and per step."""
    link, widths = found.outer.hop, shares(found)
    sheet = Sheet(
        source=SIZES,
        **found.inputs,
        r=found.rounds,
        u=found.trading,
        a=found.heads,
        k=found.kv_heads,
        width=widths,
        cores=sum(found.counts.get("F", ())) / found.study[Layout].pp,
        again=sum(found.counts.get("R", ())) / found.study[Layout].pp,
        m=outcome.pipeline.micro_batches,
        M=(found.study[Cluster].device.memory, "B"),
        T=(_core(found), "s"),
        alpha=(link.explain_latency(), "s"),
        B=(link.explain_bandwidth(), "B/s"),
    )
    yield from _volumes(sheet, found)
    yield from _ring(sheet, found)
    sheet.source = SIZES
    exposed, hidden = _seconds_by_line(outcome)
    yield sheet(
        "cp_seconds",
        "context-parallel communication of a step",
        "s",
        "sum(exposed) + sum(hidden), by the ledger",
        exposed=(exposed, "s"),
        hidden=(hidden, "s"),
    )
    yield sheet(
        "cp_exposed", "exposed CP communication", "s", "sum(exposed)", exposed=(exposed, "s")
    )
    sheet.source = ULYSSES
    yield sheet(
        "cp_ring_over_ulysses",
        "forward bytes of a ring / bytes of all-to-alls",
        "",
        "ratio((c - 1) w, sum(width) (c - 1) / c)",
    )
    yield sheet(
        "cp_crossover",
        "cp below which a ring sends fewer bytes than an all-gather",
        "",
        "1 + ratio(a, k)",
    )


def _volumes(sheet: Sheet, found: ContextExchange) -> Iterator[Figure]:
    """Yield the bytes that a rank holds and sends, per layer and per step."""
    yield sheet("cp_tokens", "tokens of a sequence on a rank", "", "s / c")
    yield sheet("cp_block", "keys and values of a rank's tokens", "MB", "s / c b w e")
    forward, backward = "(c - 1) s / c b w e", "(c - 1) s / c b w (e + g)"
    if found.kind != "all_gather":
        traded = "s / c b sum(width) (u - 1) / u"
        forward = f"(r - 1) s / c b w e + {traded} e"
        backward = f"(r - 1) s / c b w (e + g) + {traded} g"
    of_rank = "sent by one rank"
    yield sheet(
        "cp_volume_per_layer_forward",
        "context-parallel volume of a layer, forward",
        "MB",
        f"{forward}, {of_rank}",
    )
    yield sheet(
        "cp_volume_per_layer_backward",
        "context-parallel volume of a layer, backward",
        "MB",
        f"{backward}, {of_rank}",
    )
    yield sheet(
        "cp_volume",
        "context-parallel volume of a step",
        "GB",
        "(cp_volume_per_layer_forward (cores + again) + cp_volume_per_layer_backward cores) m, "
        "cores layers of a rank, again of them recomputed",
    )


def _ring(sheet: Sheet, found: ContextExchange) -> Iterator[Figure]:
    """Yield the buffer and the overlap of one message of a ring."""
    sheet.source = RING
    twice = "2 " if any_of(found.cp > 1) and found.context.double_buffer else ""
    yield sheet("cp_buffer", "blocks held in flight, forward", "MB", f"c > 1 ? {twice}cp_block : 0")
    yield sheet("cp_buffer_share", "ring buffer / memory of the device", "%", "cp_buffer / M")
    yield sheet("cp_send", "time to send a block", "s", _send(found))
    yield sheet("cp_work", "time to compute with a block", "s", "T / r")
    yield sheet(
        "cp_overlap",
        "time to send a block / time to compute with it",
        "",
        "ratio(cp_send, cp_work), hidden up to 1",
    )
    yield sheet(
        "cp_free_from", "fewest tokens per rank with a hidden ring", "", _break_even_tokens(found)
    )


def regime(found: ContextExchange, outcome: Outcome) -> Section:
    """Return whether the exchange is hidden, and the number of tokens from which it would be."""
    send, work = _send(found), formula("T / r", T=_core(found), r=found.rounds)
    exposed: Any = sum(_seconds_by_line(outcome)[0].values(), 0.0)
    tokens, free = _tokens(found), _break_even_tokens(found).value
    rings = found.kind in ("ring", "hybrid")
    rows = [
        ("tokens of a sequence on a rank", (tokens, "")),
        ("exposed in a step", (exposed, "s")),
    ]
    notes = ["attention waits for the gather or all-to-all, so that it is exposed"]
    if rings:
        rows += [
            ("time to send a block", (send.value, "s")),
            ("time to compute a block", (work.value, "s")),
            ("fewest tokens per rank with a hidden ring", (free, "")),
        ]
        if found.kind == "ring":
            notes = []
        notes.append(
            "send time grows with the tokens per rank, compute time with their square: longer "
            "blocks hide more"
        )
        notes.append(_regime_text(found, float(tokens), float(free)))
    return Section(
        title="Context parallelism", columns=("quantity", "value"), rows=rows, notes=notes
    )


def _regime_text(found: ContextExchange, tokens: float, free: float) -> str:
    """Return the regime as text."""
    if not found.context.double_buffer:
        return "without a double buffer, every block is exposed"
    if tokens >= free:
        return f"hidden: {tokens:.0f} tokens per rank; {free:.0f} are enough"
    degree = int(found.study[Training].sequence // free)
    enough = f"cp = {degree} has enough" if degree else "the whole sequence has fewer"
    return f"exposed: {tokens:.0f} tokens per rank; {free:.0f} are needed; {enough}"


def _tokens(found: ContextExchange) -> Real:
    return found.study[Training].sequence / found.cp


def _send(found: ContextExchange) -> Formula:
    n = found.size("s / c b w e")
    algorithm = found.algorithm if any_of(found.cp > 1) else "auto"
    return found.study.collective("point_to_point", n, found.outer, algorithm).formula


def _core(found: ContextExchange) -> Formula | float:
    """Return the seconds of forward attention of one layer."""
    for operator in found.study.operators:
        if isinstance(operator, FusedAttention) and operator.pass_ == "F":
            return kernel_seconds(operator, found.study)
    return 0.0


def _break_even_tokens(found: ContextExchange) -> Formula:
    """Return the tokens per rank at which computing a block takes as long as sending it.

    With X tokens, sending takes alpha + X n / B, and the compute time is proportional to X squared.
    """
    link = found.outer.hop
    tokens = _tokens(found)
    return formula(
        "ratio(n + sqrt(n^2 + 4 f alpha), 2 f), at which compute and send take equal time",
        f=formula("T / (r X^2)", T=(_core(found), "s"), r=found.rounds, X=tokens),
        n=formula(
            "N / (X B)",
            N=(found.size("s / c b w e"), "B"),
            X=tokens,
            B=(link.explain_bandwidth(), "B/s"),
        ),
        alpha=(link.explain_latency(), "s"),
        source=RING,
    )


def _seconds_by_line(outcome: Outcome) -> tuple[dict[str, Real], dict[str, Real]]:
    """Return the exposed and the hidden seconds of a step, by ledger line."""
    exposed: dict[str, Real] = {}
    hidden: dict[str, Real] = {}
    for line in outcome.ledger:
        own = line.plugin is not None and line.plugin.name == "context_parallel"
        if own and line.resource != "compute":
            name = f"{line.name}, {line.pass_}"
            exposed[name] = exposed.get(name, 0.0) + line.exposed
            hidden[name] = hidden.get(name, 0.0) + line.hidden
    return exposed, hidden
