"""What a rank sends to reduce gradients, by method: bytes, and what they cost elsewhere.

Volumes are those of algorithms that send every byte once round: rings for sums and
gathers, and direct exchange for what goes all to all.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real
from parcost.numeric import ratio
from parcost_plugins.parallelism.data.alone.say import figures_of
from parcost_plugins.parallelism.data.compressed import EXCHANGED, SUMMED
from parcost_plugins.vocabulary import ExchangeSketch


def figures(e: ExchangeSketch) -> Iterator[Figure]:
    """Yield the figures of an ``exchange`` block."""
    say = figures_of(e)
    P, n = e.ranks, e.elements
    each, often, text = _message(e)
    plain = 2.0 * (P - 1.0) / P * e.size
    sent = often * each
    letters = {"P": (P, ""), "n": (n, ""), "e": (e.size, "B"), "c": (each, "B")}
    yield say("gradients", "gradients of a rank", n * e.size, "GB", "n e", **letters)
    yield say("chunk", "what a ring sends at a time", n * e.size / P, "GB", "n e / P", **letters)
    yield say(
        "message",
        "compressed gradients of a rank",
        n * each,
        "GB",
        f"n c, {text}",
        **letters,
    )
    yield say(
        "ratio",
        "how many times smaller the message is",
        ratio(e.size, each),
        "",
        "e / c, indices and scales included",
        **letters,
    )
    yield say(
        "per_element", "sent by a rank for one gradient", sent, "B", f"{text}, times c", **letters
    )
    yield say(
        "plain_per_element",
        "sent by a rank for one gradient as it is",
        plain,
        "B",
        "2 (P - 1) / P e",
        **letters,
    )
    if isinstance(P, float) and P > 1:
        yield say("gain", "how many times less is sent", ratio(plain, sent), "", "plain / sent")
    yield say("volume", "sent by a rank", n * sent, "GB", "n times that of an element", **letters)
    yield say("total", "sent by all ranks", P * n * sent, "TB", "P n times that", **letters)
    limit = n * each * (2.0 if e.method != "top_k" else P)
    yield say(
        "limit",
        "sent by a rank, for many ranks",
        limit,
        "GB",
        "2 n c, without the factor (P - 1) / P" if e.method != "top_k" else "P n c",
        **letters,
    )
    yield say(
        "per_step",
        "sent by a rank for one gradient, by step",
        sent / e.period,
        "B",
        "sent / H",
        H=(e.period, ""),
    )
    yield say(
        "peak",
        "sent by a rank at once",
        n * sent / e.fragments,
        "GB",
        "n sent / q",
        q=(e.fragments, ""),
    )
    if e.method == "top_k":
        yield say(
            "break_even",
            "density at which nothing is gained",
            ratio(plain, (P - 1.0) * (e.value + e.index))
            if isinstance(P, float) and P > 1
            else 1.0,
            "%",
            "2 e / (P (value + index)); a ring of whole gradients sends less beyond it",
            **letters,
        )
    if e.method == "power_sgd":
        matrices = n / (e.rows * e.columns)
        flops = 6.0 * e.rank * e.rows * e.columns + 2.0 * e.rows * e.rank * e.rank
        yield say(
            "flops",
            "products of projecting, restoring and orthogonalising",
            matrices * flops,
            "TFLOP",
            "6 r n_r n_c + 2 n_r r^2",
        )
    if e.bandwidth is not None:
        B = {"B": (e.bandwidth, "B/s")}
        yield say("time", "time to send it", n * sent / e.bandwidth, "ms", "volume / B", **B)
        yield say(
            "limit_time",
            "time to send it, for many ranks",
            limit / e.bandwidth,
            "ms",
            "limit / B",
            **B,
        )


def _message(e: ExchangeSketch) -> tuple[Real, Real, str]:
    """Return bytes of a compressed element, how often a rank sends them, and how in words."""
    P = e.ranks
    around = 2.0 * (P - 1.0) / P
    if e.method in EXCHANGED:
        each = EXCHANGED[e.method] / 8.0 + e.scale / e.block
        return each, around, "all-to-all and all-gather, (P - 1) / P each"
    if e.method == "top_k":
        return e.density * (e.value + e.index), P - 1.0, "all-gather of all others' parts, P - 1"
    if e.method == "power_sgd":
        factors = e.rank * (e.rows + e.columns) / (e.rows * e.columns)
        return e.size * factors, around, "all-reduce of two factors, 2 (P - 1) / P"
    each = SUMMED[e.method] / 8.0 if e.method in SUMMED else e.size
    return each, around, "all-reduce in a ring, 2 (P - 1) / P"
