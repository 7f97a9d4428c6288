"""1F1B: warm-up with one forward pass per later stage, then forward and backward alternate.

Narayanan et al. 2021 (PipeDream-Flush, Megatron). Without message time the makespan equals GPipe,
with at most ``p - s`` micro-batches in flight on stage s. With p micro-batches in flight, every
round trip waits for two messages over each boundary. It does not if the last stage is so slow that
it is the bottleneck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost.numeric import floor, is_array, maximum, minimum, where
from parcost_plugins.schedules.stage_times import (
    is_uniform,
    maximum_of,
    minimum_of,
    one_chunk,
)


class OneFOneB(Schedule):
    """The usual schedule, with one model chunk per device."""

    name = "one_f_one_b"
    frameworks: Mapping[str, str] = {
        "Megatron-LM": "megatron/core/pipeline_parallel/schedules.py",
        "DeepSpeed": "deepspeed/runtime/pipe/schedule.py: TrainSchedule",
        "PyTorch": "torch/distributed/pipelining/schedules.py: Schedule1F1B",
    }
    search_default = True

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        return one_chunk(shape.chunks)

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return warm-up, steady state and cool-down of each device."""
        return [_stage(s, min(stages - 1 - s, micro_batches), micro_batches) for s in range(stages)]

    def period(self, stages: int, chunks: int) -> int:  # noqa: ARG002
        """Return the number of micro-batches of a round."""
        return 1

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and a mask of where the formula applies: equal stages, or
        a slow last stage.

        Equal stages, any message time c: ``(m + p - 1) t``, and 2 c for each boundary once. Add 2 c
        for each of the ``m - 2 - floor((m - 2) / p)`` micro-batches that wait for a round trip.

        Bottleneck: the last stage is busy longer than any other by 2 c. Then it never waits after
        its first micro-batch, if the stages before it fill in time. They do if no forward pass is
        longer than both passes of any stage.
        """
        hop, stages, m = case.hop, case.stages, case.micro_batches
        both = [f + b for f, b in zip(case.F, case.backward, strict=True)]
        *others, last = both
        round_trips = (stages - 1) + (m - 2) - floor((m - 2) / stages)
        equal = (m + stages - 1) * last + 2 * hop * round_trips
        paced = case.before(both)[-1] + m * last + 2 * (stages - 1) * hop
        even = is_uniform(case.F, case.backward)
        pace: Mask = True
        longest, shortest = maximum_of(case.F), minimum_of(both)
        for t in others:
            pace = pace & (t + 2 * hop <= last)
        return where(even, equal, paced), even | (pace & (longest <= shortest))

    def lower_bound(self, case: Case) -> Real:
        """Return a lower bound of the makespan in seconds; it is exact for a single slow stage.

        Work of the stages before the slowest, ahead of its first and after its last pass, does not
        overlap. Work of the stages after it overlaps only with its p - 1 - s other passes at that
        time.
        """
        backward = case.backward
        both = [f + b for f, b in zip(case.F, backward, strict=True)]
        before, behind = case.before(both), case.behind(both)
        further = case.behind([1] * len(both))  # stages
        longest: Real = before[-1] + both[-1]
        rows = (case.F, backward, both, case.counts, before, behind, further)
        for f, b, t, n, ahead, rest, stages in zip(*rows, strict=True):
            for i in _run_ends(n):
                others, meanwhile = rest + (n - 1 - i) * t, stages + (n - 1 - i)
                waits = maximum(others - meanwhile * f, 0.0) + maximum(others - meanwhile * b, 0.0)
                waits = where(case.micro_batches >= case.stages, waits, 0.0)
                longest = maximum(longest, ahead + i * t + case.micro_batches * t + waits)
        return longest

    def spans(self, case: Case) -> tuple[Sequence[Real], Sequence[Real]]:
        """Return the start of the first forward and the end of the last backward pass, per stage.

        In both cases the first micro-batch runs forward and the last one runs backward through the
        stages without waiting.
        """
        seconds, _ = self.closed_form(case)
        starts = case.before([f + case.hop for f in case.F])
        behind = case.before([b + case.hop for b in case.backward])
        return starts, [seconds - late for late in behind]


def _run_ends(count: Real) -> Sequence[Real]:
    """Return the first and the last position in a run; a bound is largest at one of them.

    A run of no stages has the last position of the run before it, which is already counted.
    """
    if not is_array(count) and count <= 1:
        return (count - 1,)
    return minimum(count - 1, 0), count - 1


def _stage(s: int, warm_up: int, micro_batches: int) -> list[Op]:
    ops = [Op("F", j, s) for j in range(warm_up)]
    for j in range(warm_up, micro_batches):
        ops += [Op("F", j, s), Op("BW", j - warm_up, s)]
    return ops + [Op("BW", j, s) for j in range(micro_batches - warm_up, micro_batches)]


_ONE_F_ONE_B = OneFOneB()


@hookimpl
def schedules() -> list[OneFOneB]:
    """Return the schedule of this module."""
    return [_ONE_F_ONE_B]
