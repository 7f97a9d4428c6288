"""Pipelines: the split of a step, the order of each device, and the input of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from attrs import field

from parcost.contract.fields import AMOUNT, NAME, SHARE, WHOLE, Record
from parcost.numeric import Real, maximum
from parcost.records import record


@record(kw_only=True, eq=False)
class Pipeline(Record):
    """The split of a step: the name of its *schedule*, *stages* devices, and *chunks* stages per
    device.

    *micro_batches* per data-parallel replica may be an array. *blocking*: a device does not compute
    while it sends. *overlap* is the achieved share of the possible overlap between the halves of a
    :class:`Pair`.
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

    *kind*: F forward, B input gradient, W weight gradient, BW both gradients without a gap. *stage*
    is a virtual stage, 0 to ``stages * chunks - 1``.
    """

    kind: Literal["F", "B", "W", "BW"]
    micro_batch: int
    stage: int


class Pair(NamedTuple):
    """An entry of a device's order: an F and a BW of different micro-batches that run together.

    It starts when the inputs of both have arrived, and both outputs leave at its end. Communication
    of one half can overlap with compute of the other.
    """

    forward: Op
    backward: Op


def ops_of(entry: Op | Pair) -> Sequence[Op]:
    """Return the ops of an entry of a device's order: a single op, or the F and the BW of a
    pair.
    """
    return entry if isinstance(entry, Pair) else (entry,)


class Times(NamedTuple):
    """Seconds of one micro-batch on each virtual stage, 0 first; floats or arrays.

    *B* includes recomputation. A fused BW takes ``B + W``. *FB* maps the virtual stages of the F
    and the BW of a pair to the seconds of the pair; see :meth:`pair`.
    """

    F: Sequence[Real]
    B: Sequence[Real]
    W: Sequence[Real]
    FB: Mapping[tuple[int, int], Real] = MappingProxyType({})

    def pair(self, forward: int, backward: int) -> Real:
        """Return the seconds of a pair of an F and a BW on these virtual stages.

        >>> Times([1, 2], [3, 4], [5, 6], {(1, 0): 9}).pair(1, 0)
        9
        >>> Times([1, 2], [3, 4], [5, 6]).pair(1, 0)  # nothing hides: one after the other
        10
        """
        if (forward, backward) in self.FB:
            return self.FB[forward, backward]
        return self.F[forward] + self.B[backward] + self.W[backward]


class Activity(NamedTuple):
    """One entry of a device's order with its times, in seconds since the pipeline began."""

    op: Op | Pair
    start: float
    end: float


#: The longest order that is simulated, in micro-batches times virtual stages.
LONGEST_ORDER = 2**18


@record(kw_only=True)
class PipelineShape:
    """The shape of a pipeline: *stages* devices, *chunks* on each, *micro_batches* per step."""

    stages: int
    micro_batches: int
    chunks: int = 1


@record(kw_only=True, eq=False)
class Case:
    """One or many pipelines to be timed: their shape, and the seconds of their passes.

    All fields, including *stages* and *chunks*, are numbers or arrays that broadcast. A run is a
    sequence of neighbouring virtual stages with equal times. *F*, *B* and *W* are the seconds of
    one micro-batch on a stage of each run, from first to last. *counts* are the stages of each run.
    The last virtual stage is always a separate run. ``F[-1]`` is its time, and ``F[0]`` the time of
    the first stage. If a pipeline lacks a run, its count is 0, and its times are those of a
    neighbouring run.

    *saved* is the largest time in seconds that a :class:`Pair` saves compared with its halves in
    sequence. *hop* is the seconds of the slowest message between devices. If boundaries differ,
    *hops_before* has the sum over the boundaries before each run, and devices have one stage each.

    >>> case = Case(stages=4, micro_batches=8, F=(1, 2), B=(2, 3), W=(0, 1), counts=(3, 1), hop=5)
    >>> case.backward, case.before(case.F), case.messages
    ([2, 4], [0, 3], [0, 15])
    """

    stages: Real
    micro_batches: Real
    chunks: Real = 1
    F: Sequence[Real]
    B: Sequence[Real]
    W: Sequence[Real]
    counts: Sequence[Real]
    saved: Real = 0.0
    hop: Real = 0.0
    hops_before: Sequence[Real] = ()

    @property
    def backward(self) -> Sequence[Real]:
        """The seconds of B plus W, by run."""
        return [b + w for b, w in zip(self.B, self.W, strict=True)]

    @property
    def messages(self) -> Sequence[Real]:
        """The seconds of a message over all boundaries before each run of equal virtual stages."""
        return self.hops_before or self.before([self.hop] * len(self.counts))

    def before(self, seconds: Sequence[Real]) -> Sequence[Real]:
        """Return the sum of *seconds* over all stages before each run; *seconds* are by run."""
        return _sums(list(zip(self.counts, seconds, strict=True))[:-1])

    def behind(self, seconds: Sequence[Real]) -> Sequence[Real]:
        """Return the sum of *seconds* over all stages after each run; *seconds* are by run."""
        return _sums(list(zip(self.counts, seconds, strict=True))[:0:-1])[::-1]

    @classmethod
    def from_times(
        cls,
        times: Times,
        *,
        stages: int,
        micro_batches: Real,
        chunks: int = 1,
        hop: Real | tuple[Real, ...] = 0.0,
        alike: Sequence[int] = (),
    ) -> Case:
        """Return the case of a single pipeline, from the *times* of each virtual stage.

        A tuple *hop* has one number for each boundary: between devices 0 and 1, 1 and 2, and so on.
        Neighbouring stages with the same number in *alike* form a run; without *alike*, each stage
        is a run.

        Raises:
            ValueError: The number of times is not the number of virtual stages.
        """
        passes = list(zip(times.F, times.B, times.W, strict=True))
        last = stages * chunks - 1
        if len(passes) != last + 1:
            raise ValueError(f"{len(passes)} times were given for {last + 1} virtual stages")
        starts = [x for x in range(last) if not (x and alike) or alike[x] != alike[x - 1]]
        starts.append(last)
        forward, backward, weights = zip(*(passes[x] for x in starts), strict=True)
        across: Sequence[Real] = ()
        slowest: Real = 0.0
        if isinstance(hop, tuple):
            for each in hop:
                slowest = maximum(slowest, each)
            across = _sums([(1, each) for each in hop]) if chunks == 1 else ()
        else:
            slowest = hop
        saved: Real = 0.0
        for (x, y), pair in times.FB.items():
            saved = maximum(saved, times.F[x] + times.B[y] + times.W[y] - pair)
        return cls(
            stages=stages,
            micro_batches=micro_batches,
            chunks=chunks,
            F=forward,
            B=backward,
            W=weights,
            counts=[b - a for a, b in pairwise((*starts, last + 1))],
            saved=saved,
            hop=slowest,
            hops_before=[across[x] for x in starts] if across else (),
        )


def _sums(runs: Sequence[tuple[Real, Real]]) -> list[Real]:
    """Return the prefix sums, from 0, of *runs*: pairs of a count and a value."""
    each = (x if isinstance(n, int) and n == 1 else n * x for n, x in runs)
    return list(accumulate(each, initial=0))
