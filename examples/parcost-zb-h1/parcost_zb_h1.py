"""ZB-H1 (Qi et al. 2023): weight gradients put off until there is nothing better to do.

Splitting the backward pass lets a stage send its input gradient on before it works on
weights. Stage s of p starts p - s forward passes, keeps s weight gradients back, and so
fills most of the bubble of 1F1B with as many micro-batches alive as 1F1B's first stage.
"""

from parcost import Op, hookimpl


class ZBH1:
    """One model chunk per device."""

    name = "zb_h1"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return what each device does, in order."""
        return [stage(s, stages - s, micro_batches) for s in range(stages)]


def stage(s: int, ahead: int, micro_batches: int) -> list[Op]:
    """Return what stage *s* does, with *ahead* forward passes before its first B."""
    forwards, weights = ([Op(kind, j, s) for j in range(micro_batches)] for kind in ("F", "W"))
    ops, forwards = forwards[:ahead], forwards[ahead:]
    for j in range(micro_batches):
        ops.append(Op("B", j, s))
        if j >= s:
            ops.append(weights.pop(0))
        if forwards:
            ops.append(forwards.pop(0))
    return ops + weights


ZB_H1 = ZBH1()


@hookimpl
def schedules() -> list[ZBH1]:
    """Offer the schedule."""
    return [ZB_H1]
