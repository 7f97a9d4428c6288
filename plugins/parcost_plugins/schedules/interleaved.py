"""Interleaved 1F1B: several model chunks per device (Narayanan et al. 2021, Megatron-LM).

Chunk c of device r is virtual stage c p + r. Micro-batches pass in groups, each group through every
chunk before the next group starts. So the bubble is the bubble of a chunk and not of a stage. The
cost is messages: as many as there are virtual stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, Study, hookimpl
from parcost.numeric import where
from parcost_plugins.schedules.stage_times import is_uniform, minimum_of, multiples
from parcost_plugins.vocabulary import ScheduleChoice


class Interleaved(Schedule):
    """Groups of *group* micro-batches; None means as many as pipeline devices."""

    name = "interleaved"
    frameworks: Mapping[str, str] = {
        "Megatron-LM": "megatron/core/pipeline_parallel/schedules.py",
        "PyTorch": "torch/distributed/pipelining/schedules.py: ScheduleInterleaved1F1B",
    }
    search_default = True

    def __init__(self, group: int | None = None) -> None:
        self._group = group

    def for_study(self, study: Study) -> Interleaved:
        """Return the schedule with the group size of the study."""
        return _in_groups(study[ScheduleChoice].group)

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        stages, micro_batches, chunks = shape.stages, shape.micro_batches, shape.chunks
        group = self._group or stages
        if chunks == 1:
            return "with one chunk per device nothing interleaves: take chunks = 2, or one_f_one_b"
        if group < stages:
            return (
                f"a group of {group} micro-batches does not fill {stages} devices: group = {stages}"
            )
        if micro_batches % group:
            fitting = multiples(micro_batches, group)
            return f"micro-batches pass in groups of {group}: use {fitting} micro-batches"
        return None

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:
        """Return warm-up, steady state and cool-down of each device."""
        group = self._group or stages
        table = [
            (j, chunk)
            for first in range(0, micro_batches, group)
            for chunk in range(chunks)
            for j in range(first, first + group)
        ]
        return [_device(r, stages, chunks, group, table) for r in range(stages)]

    def period(self, stages: int, chunks: int) -> int:  # noqa: ARG002
        """Return the number of micro-batches of a round: a group."""
        return self._group or stages

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and a mask of where the formula applies: equal virtual
        stages, short messages.

        If a group has as many micro-batches as devices, a message over every boundary of virtual
        stages counts once. Larger groups have other work in that time. Then only one path down and
        back counts. The formula applies if a pass in each direction takes at least the time of two
        messages.
        """
        hop, stages, micro_batches, chunks = case.hop, case.stages, case.micro_batches, case.chunks
        group = self._group or stages
        f, both = case.F[0], case.backward[0]
        shorter = minimum_of((f, both))
        seconds = (micro_batches * chunks + stages - 1) * (f + both)
        spare = (group > stages) & (micro_batches > group)
        ways = where(spare, stages - 1, stages * chunks - 1)
        seconds = seconds + 2 * hop * where(stages > 1, ways, 0.0)
        ahead = minimum_of(((group - stages) * shorter / stages, (f + both) / 2))
        room = where(spare, ahead, shorter)
        short = (hop == 0) | ((hop <= room) & ((group == stages) | spare))
        return seconds, is_uniform(case.F, case.backward) & short


@cache
def _in_groups(group: int) -> Interleaved:
    return Interleaved(group)


def _device(r: int, stages: int, chunks: int, group: int, table: list[tuple[int, int]]) -> list[Op]:
    forward = [Op("F", j, chunk * stages + r) for j, chunk in table]
    backward = [Op("BW", j, (chunks - 1 - chunk) * stages + r) for j, chunk in table]
    ahead = min(2 * (stages - 1 - r) + (chunks - 1) * group, len(table))
    steady = [op for pair in zip(forward[ahead:], backward, strict=False) for op in pair]
    return forward[:ahead] + steady + backward[len(table) - ahead :]


_INTERLEAVED = Interleaved()


@hookimpl
def schedules() -> list[Interleaved]:
    """Return the schedule of this module."""
    return [_INTERLEAVED]
