"""Traces: the activity of every device of a step over time, as timeline formats read it.

A trace has the passes of a step, and the terms inside of each pass. It has messages between stages,
what happens once per step, and memory over time. The engine places them by these rules:

- Passes are those of the replay, held back by what stages wait for before the first.
- In a pass, terms that the device waits for stand one after another, in the order of the report.
  Behind those of a pass stand the exposed rest of what hides there, and the slowdown.
- What hides begins with its hosts. It takes the time that its stream has left. Where other traffic
  of the stream is in between, it is several slices. A stream without time left has a second lane,
  and up to eight. What those have no time for is the rest, beside the whole pass.
- Terms once per step have streams of their own. Those of ``fill`` stand before the first pass of a
  stage, and those of ``drain`` behind its last. Those of ``end`` stand behind the last pass of all.
  The share that compute covers stands beside the neighbouring pass.
- Seconds that the report counts but no event shows are a slice of their own, which says so.

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

    *kind*: ``pass`` is a whole pass, or the part of it that runs forward again. ``work`` is a term
    of a pass, and ``once`` a term once per step. ``slowdown`` is that of compute under a transfer,
    and ``rest`` what no event shows.

    *beside*: other work covers it, so that the device does not wait. *op* is the pass that it
    belongs to. *of* is the share of the term that the slice is. That is the term of one pass, or
    for ``once`` of one *stage*. *calls* is how often the term occurs there.
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

    *op* is the pass that sends it, *to* the one that waits for it. *edges* are the terms that price
    it.
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
    """The activity of the devices of a pipeline over time: of a step, or of a pipeline by itself.

    *at* are the values of a sweep that it is of. *part* is the name of a pipeline by itself, ""
    for a step. *seconds* is the step time, whose lines are *ledger*. *held* are the virtual stages
    of each device, *alive* the most micro-batches alive at once on each. *ranks* are those that a
    user chose, None for a choice of the format. Every number is a plain one.
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
        """Yield each pass of a device with its terms, and then the terms once per step."""

    @abstractmethod
    def slice_count(self) -> int:
        """Return the number of slices and messages, without making them."""

    @abstractmethod
    def messages(self) -> Iterator[StageMessage]:
        """Yield every message between stages."""

    @abstractmethod
    def memory(self, device: int) -> Iterator[tuple[float, float]]:
        """Yield times and the bytes that a device holds from then on.

        During a pass it holds the memory that the report counts in forward or in backward, for the
        micro-batches in flight. After the pipeline it holds the maximum of optimizer and gather.
        """


def communications_of(of: Formula) -> Sequence[Communication]:
    """Return the collectives in a time, in sequence.

    They are found in *of* itself, or in the formulas of its inputs. The number of occurrences is
    ``of.value`` divided by the sum of their times.
    """
    return [found for found, _ in timed_communications(of)]


def timed_communications(of: Formula) -> Sequence[tuple[Communication, float]]:
    """Return the collectives in a time, each with the seconds of one call."""
    if isinstance(of.communication, Communication):
        return [(of.communication, float(of.value))]
    return [
        found
        for _, value, _ in of.letters()
        if isinstance(value, Formula)
        for found in timed_communications(value)
    ]
