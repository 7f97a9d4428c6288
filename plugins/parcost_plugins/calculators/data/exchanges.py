"""Bytes that a rank sends to reduce gradients, by method, and other costs of the method.

Volumes assume bandwidth-optimal algorithms: rings for sums and gathers, and direct exchange
for all-to-alls.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Sheet, block_name
from parcost_plugins.vocabulary import ExchangeSketch
from parcost_plugins.vocabulary.compression import EXCHANGED, SUMMED


def figures(e: ExchangeSketch) -> Iterator[Figure]:
    """Yield the figures of an ``exchange`` block."""
    P = e.ranks
    sheet = Sheet(
        block_name(e),
        P=P,
        n=e.elements,
        e=(e.size, "B"),
        H=e.period,
        q=e.fragments,
        r=e.rank,
        n_r=e.rows,
        n_c=e.columns,
        density=e.density,
        value=(e.value, "B"),
        index=(e.index, "B"),
        B=(e.bandwidth, "B/s"),
    )
    sheet.symbols["c"] = (_compressed_bytes(e, sheet), "B")
    yield sheet("gradients", "gradients of a rank", "GB", "n e")
    gathered = e.method == "top_k"
    yield sheet("chunk", "bytes of a ring message", "GB", "n c" if gathered else "n c / P")
    often, remark = _OFTEN.get(e.method, _IN_A_RING)
    yield sheet("message", "compressed gradients of a rank", "GB", f"n c, {remark}")
    yield sheet(
        "ratio",
        "compression ratio of the message",
        "",
        "ratio(e, c), with indices and scales",
    )
    yield sheet("per_element", "sent by a rank per gradient element", "B", f"{often} c, {remark}")
    yield sheet(
        "plain_per_element",
        "sent by a rank per gradient element, uncompressed",
        "B",
        "2 (P - 1) / P e",
    )
    several = isinstance(P, float) and P > 1
    if several:
        yield sheet(
            "gain",
            "uncompressed bytes / compressed bytes sent",
            "",
            "ratio(plain_per_element, per_element)",
        )
    yield sheet("volume", "sent by a rank per reduction", "GB", "n per_element")
    yield sheet("total", "sent by all ranks", "TB", "P volume")
    yield sheet(
        "limit",
        "sent by a rank, for many ranks",
        "GB",
        "2 n c, without the factor (P - 1) / P" if e.method != "top_k" else "P n c",
    )
    yield sheet("per_step", "sent by a rank per gradient element, per step", "B", "per_element / H")
    yield sheet("peak", "sent by a rank in one exchange", "GB", "volume / q")
    yield from _method(e, sheet, several=several)
    if e.bandwidth is not None:
        yield sheet("time", "time to send it", "ms", "volume / B")
        yield sheet("limit_time", "time to send it, for many ranks", "ms", "limit / B")


def _method(e: ExchangeSketch, sheet: Sheet, *, several: bool) -> Iterator[Figure]:
    """Yield the figures that only top-k or PowerSGD has."""
    if e.method == "top_k":
        yield sheet(
            "break_even",
            "density above which compression saves no bytes",
            "%",
            "ratio(2 (P - 1) / P e, (P - 1) (value + index)), beyond it a ring sends fewer bytes"
            if several
            else "1",
        )
    if e.method == "power_sgd":
        yield sheet(
            "flops",
            "FLOPs of projection, reconstruction and orthogonalisation",
            "TFLOP",
            "n / (n_r n_c) (6 r n_r n_c + 2 n_r r^2), of matrices of n_r rows and n_c columns",
        )


_IN_A_RING = "2 (P - 1) / P", "all-reduce in a ring"
_OFTEN = {
    **dict.fromkeys(EXCHANGED, ("2 (P - 1) / P", "all-to-all and all-gather")),
    "top_k": ("(P - 1)", "all-gather of the parts of all other ranks"),
    "power_sgd": ("2 (P - 1) / P", "all-reduce of two factors"),
}


def _compressed_bytes(e: ExchangeSketch, sheet: Sheet) -> Formula:
    """Return the bytes per element of a compressed gradient."""
    if e.method in EXCHANGED:
        return sheet.formula(
            "b / 8 + scale / block",
            b=EXCHANGED[e.method],
            scale=(e.scale, "B"),
            block=e.block,
        )
    if e.method == "top_k":
        return sheet.formula("density (value + index)")
    if e.method == "power_sgd":
        return sheet.formula("e r (n_r + n_c) / (n_r n_c)")
    return sheet.formula("b / 8", b=SUMMED[e.method]) if e.method in SUMMED else sheet.formula("e")
