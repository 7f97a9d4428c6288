"""How a step is cut: pipelines, the orders of their devices, and what a schedule is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from attrs import field

from parcost.contract.fields import AMOUNT, NAME, SHARE, WHOLE, Record
from parcost.records import record

if TYPE_CHECKING:
    from parcost.numeric import Real


@record(kw_only=True, eq=False)
class Pipeline(Record):
    """How the step is cut: *schedule* by name, *stages* devices, *chunks* on each.

    *micro_batches* per data-parallel replica may be an array. *blocking*: a device does
    nothing else while it sends to another. *overlap* is how much of what the halves of a
    :class:`Pair` could hide under each other they do hide.
    """

    called: ClassVar[str] = "the pipeline"

    schedule: str = field(metadata=NAME)
    stages: int = field(metadata=WHOLE)
    micro_batches: Real = field(metadata=AMOUNT)
    chunks: int = field(default=1, metadata=WHOLE)
    blocking: bool = False
    overlap: Real = field(default=1.0, metadata=SHARE)


class Op(NamedTuple):
    """One entry of a device's order.

    *kind*: F forward, B input gradient, W weight gradient, BW both without a gap.
    *stage* is a virtual stage, 0 to ``stages * chunks - 1``.
    """

    kind: Literal["F", "B", "W", "BW"]
    micro_batch: int
    stage: int


class Pair(NamedTuple):
    """An entry of a device's order: an F and a BW, of different micro-batches, at once.

    It starts when the inputs of both have arrived, and both outputs leave at its end. What
    one half only communicates may hide under what the other computes.
    """

    forward: Op
    backward: Op


class Times(NamedTuple):
    """Seconds of one micro-batch on each virtual stage, 0 first; floats or arrays.

    *B* includes what is computed again for it. A fused BW takes ``B + W``. *FB* are the
    seconds of pairs, by the virtual stages of their F and their BW: see :meth:`pair`.
    """

    F: Sequence[Real]
    B: Sequence[Real]
    W: Sequence[Real]
    FB: Mapping[tuple[int, int], Real] = MappingProxyType({})

    def pair(self, forward: int, backward: int) -> Real:
        """Return the seconds of an F and a BW at once, on these virtual stages.

        >>> Times([1, 2], [3, 4], [5, 6], {(1, 0): 9}).pair(1, 0)
        9
        >>> Times([1, 2], [3, 4], [5, 6]).pair(1, 0)  # nothing hides: one after the other
        10
        """
        if (forward, backward) in self.FB:
            return self.FB[forward, backward]
        return self.F[forward] + self.B[backward] + self.W[backward]


class Activity(NamedTuple):
    """One entry of a device's order as it runs, in seconds since the pipeline began."""

    op: Op | Pair
    start: float
    end: float


#: The longest order that is simulated, in micro-batches times virtual stages.
LONGEST_ORDER = 2**17


@record(kw_only=True)
class PipelineShape:
    """How a pipeline is cut: *stages* devices, *chunks* on each, *micro_batches* per step."""

    stages: int
    micro_batches: int
    chunks: int = 1


@record(kw_only=True, eq=False)
class Case:
    """A pipeline to be timed: how it is cut, the *times* of its passes, and of messages.

    *stages* and *chunks* are plain integers; *micro_batches* may be an array. *hop* is the
    seconds of a message between neighbouring devices. Where boundaries differ it is the
    slowest, and *boundaries* has one number for each: of devices 0 and 1, of 1 and 2.
    """

    stages: int
    micro_batches: Real
    chunks: int = 1
    times: Times
    hop: Real = 0.0
    boundaries: tuple[Real, ...] = ()

    @property
    def hops(self) -> tuple[Real, ...]:
        """The seconds of a message over each boundary of neighbouring devices."""
        return self.boundaries or (self.hop,) * (self.stages - 1)

    @property
    def virtual_stages(self) -> int:
        """The parts of the model: *stages* times *chunks*."""
        return self.stages * self.chunks
