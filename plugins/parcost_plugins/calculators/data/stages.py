"""The ZeRO stages side by side: memory of a rank, and its traffic per step.

ZeRO 3 has 1.5 times the traffic of plain replicas only with one micro-batch. Gathers are repeated
in every micro-batch. So are reductions, unless gradients stay unsharded until the last micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Section, Sheet, block_name
from parcost_plugins.vocabulary import ZeroSketch

STAGES = (0, 1, 2, 3)


def figures(z: ZeroSketch) -> Iterator[Figure]:
    """Yield the bytes that a rank holds and sends at each stage."""
    sheet = _sheet(z)
    for stage in STAGES:
        yield sheet(
            f"memory_{stage}", f"state of a rank, ZeRO {stage}", "GB", _memory_text(z, stage)
        )
        yield sheet(
            f"traffic_{stage}",
            f"sent by a rank in a step, ZeRO {stage}",
            "GB",
            _traffic_text(z, stage),
        )
        if not isinstance(z.ranks, float) or z.ranks > 1:
            yield sheet(
                f"against_replicas_{stage}",
                f"traffic / traffic of plain replicas, ZeRO {stage}",
                "",
                f"traffic_{stage} / traffic_0",
            )


def section(z: ZeroSketch) -> Section:
    """Return all stages in a table."""
    sheet = _sheet(z)
    plain = sheet.formula(_traffic_text(z, 0)).value
    rows = []
    for stage in STAGES:
        volume = sheet.formula(_traffic_text(z, stage)).value
        against = volume / plain if not isinstance(plain, float) or plain else 1.0
        held = sheet.formula(_memory_text(z, stage)).value
        rows.append((f"ZeRO {stage}", (held, "B"), (volume, "B"), against))
    return Section(
        title=f"ZeRO stages, {block_name(z)}",
        columns=("stage", "state of a rank", "sent in a step", "sent / ZeRO 0"),
        rows=rows,
        notes=[
            "sent: by one rank in a ring, in all micro-batches of a step",
            "sent / ZeRO 0: bytes sent / bytes that ZeRO 0 sends",
        ],
    )


def _sheet(z: ZeroSketch) -> Sheet:
    """Return the symbols of the formulas: psi parameters, N ranks, m micro-batches, and bytes."""
    recipe = z.precision
    return Sheet(
        block_name(z),
        psi=z.parameters,
        N=z.ranks,
        m=z.micro_batches,
        w=(recipe.weights, "B"),
        g=(recipe.gradients, "B"),
        o=(recipe.optimizer, "B"),
        r=(recipe.reduction, "B"),
        a=(recipe.gather, "B"),
    )


def _memory_text(z: ZeroSketch, stage: int) -> str:
    """Return the formula of the state bytes of a rank at *stage*."""
    if z.accumulate == "whole" and stage >= 2:
        return ("psi (w + g + o / N)", "psi (w / N + g + o / N)")[stage - 2]
    return (
        "psi (w + g + o)",
        "psi (w + g + o / N)",
        "psi (w + (g + o) / N)",
        "psi (w + g + o) / N",
    )[stage]


def _traffic_text(z: ZeroSketch, stage: int) -> str:
    """Return the formula of the bytes that a rank sends per step at *stage*."""
    reduced = "m r" if z.accumulate == "shard" else "r"
    passes = "2 m a" if z.reshard else "m a"
    each = ("2 r", "r + a", f"{reduced} + a", f"{reduced} + {passes}")[stage]
    return f"(N - 1) / N psi ({each}), reduced with r and gathered a bytes per element gathered"
