"""Zero bubble, one chunk: ZB-H1 and ZB-H2 (Qi et al. 2023).

With a split backward pass a stage sends its input gradient before it computes weight gradients. It
defers weight gradients to its idle time. ZB-H1 starts at most as many forward passes as 1F1B holds
on its first stage. ZB-H2 starts twice as many, so no device idles, except at a barrier at the end
of the step.
"""

from __future__ import annotations

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost.numeric import maximum
from parcost_plugins.schedules.stage_times import is_uniform, one_chunk


class ZeroBubble(Schedule):
    """Weight gradients fill the bubble, with 1F1B's memory (H1) or about twice as much (H2).

    Stage s starts with ``many (p - s) - (many - 1)`` F and delays ``many s`` W; *many* is 1 for H1
    and 2 for H2.
    """

    def __init__(self, name: str, many: int) -> None:
        self.name = name
        self._many = many

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        if shape.stages == 1:
            return "one stage has no bubble to fill: take pp = 2 or more, or one_f_one_b"
        return one_chunk(shape.chunks)

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return the passes of each device, in order."""
        many = self._many
        return [
            _stage(s, many * (stages - s) - (many - 1), many * s, micro_batches)
            for s in range(stages)
        ]

    def period(self, stages: int, chunks: int) -> int:  # noqa: ARG002
        """Return the number of micro-batches of a round."""
        return 1

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and a mask of where the formula applies: equal stages,
        messages without time.

        With ZB-H1 messages may take time: every stage waits for two messages in each direction. The
        formula applies if W is the shortest pass and a round trip is no longer than W.
        """
        hop, stages, micro_batches = case.hop, case.stages, case.micro_batches
        f, b, w = case.F[0], case.B[0], case.W[0]
        mask = (micro_batches >= 2 * stages) & is_uniform(case.F, case.B, case.W)
        if self._many == 1:
            most = maximum(maximum(f + b - w, f), b) + 4 * hop
            quiet = (hop == 0) | ((w <= f) & (w <= b) & (2 * hop <= w))
        else:
            most = maximum(maximum(f + b - 2 * w, f), b - f)
            quiet = hop == 0
        return micro_batches * (f + b + w) + (stages - 1) * most, mask & quiet


def _stage(s: int, ahead: int, kept: int, micro_batches: int) -> list[Op]:
    """Return the passes of stage *s*: *ahead* F before its first B, W delayed by *kept* B."""
    forwards, weights = ([Op(kind, j, s) for j in range(micro_batches)] for kind in ("F", "W"))
    ops, forwards = forwards[:ahead], forwards[ahead:]
    for j in range(micro_batches):
        ops.append(Op("B", j, s))
        if j >= kept:
            ops.append(weights.pop(0))
        if forwards:
            ops.append(forwards.pop(0))
    return ops + weights


_ZERO_BUBBLE = [ZeroBubble("zb_h1", 1), ZeroBubble("zb_h2", 2)]


@hookimpl
def schedules() -> list[ZeroBubble]:
    """Return the schedules of this module."""
    return _ZERO_BUBBLE
