"""The ZeRO stages side by side: memory of a rank, and what it sends in a step.

That sharding everything costs 1.5 times the traffic of plain replicas is the case of one
micro-batch. Gathers repeat with every micro-batch, and so does the reduction unless
gradients are kept whole until the last.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real, Section, called
from parcost_plugins.parallelism.data.alone.say import figures_of
from parcost_plugins.vocabulary import ZeroSketch

STAGES = (0, 1, 2, 3)


def figures(z: ZeroSketch) -> Iterator[Figure]:
    """Yield what a rank holds and sends at each stage."""
    say = figures_of(z)
    plain = sent(z, 0)
    letters = {"psi": (z.parameters, ""), "N": (z.ranks, ""), "m": (z.micro_batches, "")}
    for stage in STAGES:
        bytes_, text = held(z, stage)
        yield say(
            f"memory_{stage}", f"state of a rank, ZeRO {stage}", bytes_, "GB", text, **letters
        )
        volume = sent(z, stage)
        yield say(
            f"traffic_{stage}",
            f"sent by a rank in a step, ZeRO {stage}",
            volume,
            "GB",
            "(N - 1) / N x what is reduced and gathered",
            **letters,
        )
        if not isinstance(z.ranks, float) or z.ranks > 1:
            yield say(
                f"against_replicas_{stage}",
                f"traffic over that of replicas, ZeRO {stage}",
                volume / plain,
                "",
                "sent / (2 (N - 1) / N psi r)",
                **letters,
            )


def section(z: ZeroSketch) -> Section:
    """Return all stages in a table."""
    plain = sent(z, 0)
    rows = []
    for stage in STAGES:
        volume = sent(z, stage)
        against = volume / plain if not isinstance(plain, float) or plain else 1.0
        rows.append((f"ZeRO {stage}", (held(z, stage)[0], "B"), (volume, "B"), against))
    return Section(
        title=f"ZeRO stages, {called(z)}",
        columns=("stage", "state of a rank", "sent in a step", "over replicas"),
        rows=rows,
        notes=["sent: by one rank in a ring, in all micro-batches of a step"],
    )


def held(z: ZeroSketch, stage: int) -> tuple[Real, str]:
    """Return the bytes of state that a rank holds at *stage*, and how they come about."""
    w, g, o = z.precision.weights, z.precision.gradients, z.precision.optimizer
    each, text = {
        0: (w + g + o, "psi (w + g + o)"),
        1: (w + g + o / z.ranks, "psi (w + g + o / N)"),
        2: (w + (g + o) / z.ranks, "psi (w + (g + o) / N)"),
        3: ((w + g + o) / z.ranks, "psi (w + g + o) / N"),
    }[stage]
    if z.accumulate == "whole" and stage >= 2:
        each, text = each + g * (1.0 - 1.0 / z.ranks), f"{text}, g whole"
    return z.parameters * each, text


def sent(z: ZeroSketch, stage: int) -> Real:
    """Return the bytes that a rank sends in a step at *stage*."""
    m, r, w = z.micro_batches, z.precision.reduction, z.precision.gather
    reduced = m if z.accumulate == "shard" else 1.0
    passes = 2.0 if z.reshard else 1.0
    each = {0: 2.0 * r, 1: r + w, 2: reduced * r + w, 3: reduced * r + passes * m * w}[stage]
    return (z.ranks - 1.0) / z.ranks * z.parameters * each
