"""DualPipe and DualPipeV: overlapped forward and backward passes (DeepSeek-AI 2024, 2025).

Every device has two phases, the streams of micro-batches that it serves. In DualPipe they are
directions: half of the micro-batches enter at the first device and half at the last; every virtual
stage is held twice. In DualPipeV they are the two chunks of a V-shaped placement; every virtual
stage is held once. In the steady state a forward pass of one phase overlaps with a backward pass of
the other; each hides communication of the other. Weight gradients are deferred if input gradients
can be sent earlier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from parcost import Case, Mask, Op, Pair, PipelineShape, Real, Schedule, hookimpl
from parcost_plugins.schedules.stage_times import is_uniform, multiples, two_chunks


class DualPipe(Schedule):
    """Two directions on an even number of devices."""

    name = "dualpipe"
    copies = 2

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        stages, micro_batches, chunks = shape.stages, shape.micro_batches, shape.chunks
        if chunks != 1:
            return "its two stages per device are its two directions: chunks = 1"
        if stages % 2:
            return f"devices are used in mirrored pairs: pp = {multiples(stages, 2)}"
        if micro_batches % 2 or micro_batches < 2 * stages:
            fitting = multiples(micro_batches, 2, 2 * stages)
            return (
                "both directions take half of the micro-batches, and need at least 2 pp = "
                f"{2 * stages} to fill: use {fitting} micro-batches"
            )
        return None

    def order(self, stages: int, micro_batches: int, chunks: int) -> Sequence[Sequence[Op | Pair]]:  # noqa: ARG002
        """Return the passes of each device, in order."""
        half, middle = micro_batches // 2, stages // 2
        down, up = range(half), range(half, micro_batches)
        lists = []
        for r in range(stages):
            phases = [(down, r), (up, stages - 1 - r)]
            near = min(r, stages - 1 - r)
            if r >= middle:
                phases.reverse()
            lists.append(_device(phases, near, middle, half, stages, near == middle - 1))
        return lists

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and a mask of the layouts for which the formula holds.

        It holds for equal stages with B = F, and W = F or F / 2. Messages must take no time, and
        pairs of overlapped passes must save none.
        """
        f, b, w = case.F[0], case.B[0], case.W[0]
        seconds = case.micro_batches * (f + b + w) + (case.stages / 2 - 1) * (f + 2 * b - w)
        return seconds, _is_balanced(case)


class DualPipeV(Schedule):
    """DualPipe with a V-shaped placement: half of the devices, and each stage on one device."""

    name = "dualpipe_v"
    frameworks: Mapping[str, str] = {
        "PyTorch": "torch/distributed/pipelining/schedules.py: ScheduleDualPipeV",
        "MindSpeed": "mindspeed/features_manager/pipeline_parallel/dualpipev_feature.py",
        "FlagScale": "flagscale/train/dualpipev/dualpipev_schedules.py",
    }

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        stages, micro_batches, chunks = shape.stages, shape.micro_batches, shape.chunks
        if micro_batches < 2 * stages:
            least = f"2 pp = {2 * stages}"
            return f"it takes {least} micro-batches to fill: use {2 * stages} micro-batches"
        return two_chunks(chunks)

    def order(self, stages: int, micro_batches: int, chunks: int) -> Sequence[Sequence[Op | Pair]]:  # noqa: ARG002
        """Return the passes of each device, in order."""
        batches = range(micro_batches)
        return [
            _device(
                [(batches, r), (batches, 2 * stages - 1 - r)],
                r,
                stages,
                micro_batches,
                2 * stages,
                r == stages - 1,
            )
            for r in range(stages)
        ]

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and a mask of the layouts for which the formula holds.

        The conditions are those of DualPipe.
        """
        f, b, w = case.F[0], case.B[0], case.W[0]
        seconds = 2 * case.micro_batches * (f + b + w) + (case.stages - 1) * (f + 2 * b - w)
        return seconds, _is_balanced(case)


def _is_balanced(case: Case) -> Mask:
    """Return whether stages are equal, B = F, W = F or F / 2, and overlap saves no time."""
    f, b, w = case.F[0], case.B[0], case.W[0]
    mask = (case.hop == 0) & (case.saved == 0) & is_uniform(case.F, case.B, case.W)
    return mask & (f == b) & ((w == f) | (2 * w == f))


class _Phases:
    """Collects the passes of one device, as its two phases alternate."""

    def __init__(self, phases: Sequence[tuple[Sequence[int], int]]) -> None:
        self.ops: list[Op | Pair] = []
        self._forward = [_ops("F", batches, x) for batches, x in phases]
        self._backward = [_ops("BW", batches, x) for batches, x in phases]
        self._put_off: deque[Op] = deque()

    def forward(self, phase: int) -> None:
        """Add the next forward pass."""
        self.ops.append(next(self._forward[phase]))

    def backward(self, phase: int, *, put_off: bool = False) -> None:
        """Add the next backward pass, and its weight gradient unless *put_off*."""
        op = next(self._backward[phase])
        if put_off:
            self.ops.append(op._replace(kind="B"))
            self._put_off.append(op._replace(kind="W"))
        else:
            self.ops.append(op)

    def add_pair(self, forward: int, backward: int) -> None:
        """Add an overlapped forward pass of one phase and backward pass of the other."""
        self.ops.append(Pair(next(self._forward[forward]), next(self._backward[backward])))

    def weights(self) -> None:
        """Add the oldest deferred weight gradient."""
        self.ops.append(self._put_off.popleft())

    def add_rest(self) -> None:
        """Add all remaining weight gradients."""
        while self._put_off:
            self.weights()


def _ops(kind: Literal["F", "BW"], batches: Iterable[int], stage: int) -> Iterator[Op]:
    for j in batches:
        yield Op(kind, j, stage)


def _device(
    phases: Sequence[tuple[Sequence[int], int]],
    r: int,
    half: int,
    batches: int,
    stages: int,
    last: bool,
) -> Sequence[Op | Pair]:
    """Return the passes of the device *r* steps after the entry of phase 0.

    The entry path is *half* devices long and the whole path *stages*; each phase has *batches*
    micro-batches. The steps follow DeepSeek's description, by number.
    """
    todo = _Phases(phases)
    behind = half - r - 1
    for _ in range(2 * behind):  # 1
        todo.forward(0)
    for _ in range(r + 1):  # 2
        todo.forward(0)
        todo.forward(1)
    for _ in range(behind):  # 3
        todo.backward(1, put_off=True)
        todo.weights()
        todo.forward(1)
    for i in range(batches - stages + r + 1):  # 4
        if i == 0 and last:
            todo.forward(0)
            todo.backward(1)
        else:
            todo.add_pair(0, 1)
        todo.add_pair(1, 0)
    for _ in range(behind):  # 5
        todo.backward(1)
        todo.add_pair(1, 0)
    for i in range(r + 1):  # 6: from the middle on weight gradients are put off
        middle, odd = (r + 1) // 2, r % 2
        todo.backward(1, put_off=i > middle or (i == middle and odd == 1))
        todo.backward(0, put_off=i >= middle)
    for _ in range(behind):  # 7
        todo.weights()
        todo.backward(0, put_off=True)
    todo.add_rest()  # 8
    return todo.ops


_DUAL_PIPES: list[DualPipe | DualPipeV] = [DualPipe(), DualPipeV()]


@hookimpl
def schedules() -> list[DualPipe | DualPipeV]:
    """Return the schedules of this module."""
    return _DUAL_PIPES
