"""Traces: the activity of every device in a step over time, the input of timeline formats.

A trace has the passes of a step, and the terms inside of each pass. It has messages between stages,
once-per-step terms, and memory over time. The engine places them with these rules:

- Passes are those of the replay, delayed by the terms that stages wait for before the first pass.
- In a pass, serial terms are placed one after another, in the order of the report. Then come
  the exposed part of overlapping terms, and the slowdown.
- An overlapping term begins with its hosts, in the idle time of its stream. If other traffic of the
  stream interrupts it, it is several slices. If the stream has no idle time left, it moves to a
  second lane (at most eight). Time that does not fit in any lane is drawn as ``rest``, parallel to
  the whole pass.
- Once-per-step terms have separate streams. Those of ``fill`` are before the first pass of a
  stage, those of ``drain`` after its last. Those of ``end`` are after the last pass of all.
  The share that compute hides is parallel to the neighbouring pass.
- Seconds of the report without an event are a separate slice, with such a name.

So no two slices of a stream overlap, and the last slice ends with the step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from attrs import field

from parcost.contract.formulas import Formula
from parcost.contract.groups import Communication
from parcost.contract.outcome import LedgerLine
from parcost.contract.pipelines import Activity, Op, Pair, Pipeline
from parcost.contract.study import Study
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.contract.terms import Edge, Once, Work

#: The stream of the passes themselves.
PASS_STREAM = "passes"
#: The stream of kernels: terms that keep compute or memory busy.
COMPUTE_STREAM = "compute"


class Slice(NamedTuple):
    """One piece of work on a stream of a device, in seconds since the step began.

    *kind*: ``pass`` is a whole pass, or its recomputed part. ``work`` is a term of a pass, and
    ``once`` a once-per-step term. ``slowdown`` is the slowdown of compute under a transfer, and
    ``rest`` is time that no event shows.

    *beside* is true if other work hides it. *op* is its pass. *of* is the share of the term in this
    slice: of its time in one pass, or for ``once`` on one *stage*. *calls* is the number of
    occurrences of the term there.
    """

    name: str
    kind: Literal["pass", "work", "slowdown", "once", "rest"]
    stream: str
    start: float
    end: float
    beside: bool = False
    op: Op | Pair | None = None
    stage: int = 0
    of: float = 1.0
    calls: float = 1.0
    term: Work | Once | None = None
    plugin: Plugin | None = None


class StageMessage(NamedTuple):
    """A message between the devices of neighbouring stages, in seconds since the step began.

    *op* is the sending pass, *to* the pass that waits for the message. *edges* are the terms of its
    time.
    """

    sender: int
    receiver: int
    start: float
    end: float
    op: Op
    to: Op
    edges: Sequence[tuple[Plugin, Edge]] = ()


@record(kw_only=True, eq=False, slots=False)
class StepTrace(ABC):
    """The activity of the devices of a pipeline over time: of a step, or of a pipeline without a
    step.

    *at* has the swept values of its point. *part* is the name of a pipeline without a step, "" for
    a step. *seconds* is the step time, and *ledger* its lines. *held* has the virtual stages of
    each device, *alive* the maximum number of micro-batches in flight on each. *ranks* are chosen
    by the user; with None the format chooses. All numbers are scalars.
    """

    name: str
    path: str
    at: Mapping[str, Any] = field(factory=dict)
    part: str = ""
    study: Study
    pipeline: Pipeline
    seconds: float
    ledger: Sequence[LedgerLine] = ()
    held: Sequence[Sequence[int]]
    alive: Sequence[int]
    ranks: Sequence[int] | None = None

    @abstractmethod
    def activities(self) -> Sequence[Sequence[Activity]]:
        """Return the passes of each device in a pipeline without once-per-step terms."""

    @abstractmethod
    def passes(self) -> Sequence[Sequence[Activity]]:
        """Return the passes of each device at their times in the step."""

    @abstractmethod
    def slices(self, device: int) -> Iterator[Slice]:
        """Yield each pass of a device with its terms, followed by the once-per-step terms."""

    @abstractmethod
    def slice_count(self) -> int:
        """Return the number of slices and messages; none of them is created."""

    @abstractmethod
    def messages(self) -> Iterator[StageMessage]:
        """Yield every message between stages."""

    @abstractmethod
    def memory(self, device: int) -> Iterator[tuple[float, float]]:
        """Yield times in seconds, and the bytes that a device holds from that time on.

        During a pass it holds the memory of the moment forward or backward of the report. It counts
        the micro-batches in flight at that time. After the pipeline it holds the maximum of
        optimizer and gather.
        """


def timed_communications(of: Formula) -> Sequence[tuple[Communication, float]]:
    """Return the collectives of a formula of time, in order, each with the seconds of one call.

    They come from the formula *of*, or from the formulas of its inputs. The number of occurrences
    is ``of.value`` divided by the sum of the seconds.
    """
    if isinstance(of.communication, Communication):
        return [(of.communication, float(of.value))]
    return [
        found
        for _, value, _ in of.symbols()
        if isinstance(value, Formula)
        for found in timed_communications(value)
    ]
