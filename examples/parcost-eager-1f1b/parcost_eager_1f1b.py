"""Eager 1F1B (Zhuang et al. 2023): more forward passes ahead, so that messages hide.

In 1F1B stage s of p has p - s micro-batches in flight, so every round trip waits for its messages.
Starting nearly twice as many gives each stage other work to do meanwhile. The price is memory; the
bubble of a pipeline whose messages take no time is that of 1F1B.
"""

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl


class Eager1F1B(Schedule):
    """One model chunk per device."""

    name = "eager_1f1b"

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason if the schedule does not exist."""
        return None if shape.chunks == 1 else "it has one model chunk per device: chunks = 1"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return the ops of each device, in order."""
        return [stage(s, 2 * (stages - 1 - s), micro_batches) for s in range(stages)]

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan of equal stages whose messages take no time: that of 1F1B.

        A case may have many pipelines, so there is no `if` and no loop over stages.
        """
        alike: Mask = case.hop == 0
        for passes in (case.F, case.backward):
            for each in passes[1:]:
                alike = alike & (each == passes[0])
        both = case.F[0] + case.backward[0]
        return (case.micro_batches + case.stages - 1) * both, alike


def stage(s: int, ahead: int, micro_batches: int) -> list[Op]:
    """Return the ops of stage *s*, with *ahead* forward passes before the 1F1B phase."""
    forwards, backwards = ([Op(kind, j, s) for j in range(micro_batches)] for kind in ("F", "BW"))
    ops, forwards = forwards[:ahead], forwards[ahead:]
    for backward in backwards:
        ops += [*forwards[:1], backward]
        forwards = forwards[1:]
    return ops


EAGER_1F1B = Eager1F1B()


@hookimpl
def schedules() -> list[Eager1F1B]:
    """Offer the schedule."""
    return [EAGER_1F1B]
