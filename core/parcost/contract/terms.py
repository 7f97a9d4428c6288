"""What plugins contribute, and the reducer adds up.

A plugin says what something costs and what it *may* hide under; only the reducer,
which sees every term, decides what is exposed. Every ``seconds`` and ``bytes_`` may
be a float or an array over candidates. A formula is a template, a mapping of named
inputs and a source; it is rendered only when somebody asks for it.

Stages. A model is cut into ``stages * chunks`` *virtual stages*, 0 first. A term's
``count`` says how often it occurs on each of them, per micro-batch: one number for all,
a tuple with one number per virtual stage or, by what is counted, a :class:`Row`.

Causes. A report sums time and memory by ``cause``, a word or two such as ``tensor`` or
``gradients``, which is printed as it is. A term without one counts as ``other``.

Names and tags. A term's ``name`` is for people, and may be reworded. Figures find terms by
their plugin, their kind and their ``tag``, a word of the plugin's own: ``gradients``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from attrs import Factory, field

from parcost.contract.formulas import Formula
from parcost.records import record

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from parcost.contract.entries import Entry, Part
    from parcost.contract.page import Paper
    from parcost.numeric import Mask, Real

Pass = Literal["F", "B", "W", "R"]
Moment = Literal["forward", "backward", "optimizer", "gather"]
MOMENTS: tuple[Moment, ...] = ("forward", "backward", "optimizer", "gather")


#: What numbers of records may be, by the attribute: the least and the most, where there are such.
_NUMBER: Mapping[str, float] = {"minimum": -inf}
_AMOUNT: Mapping[str, float] = {"minimum": 0.0}
_SHARE: Mapping[str, float] = {"minimum": 0.0, "maximum": 1.0}

_NONE: Any = None  # a formula that a number brings along


class Operator:
    """What a rank computes, in the words of the plugins that describe and price it.

    A vocabulary derives records from it; their annotations say what values may be. *count* is
    the occurrences per micro-batch on each virtual stage, as in :class:`Work`.
    """

    __slots__ = ()
    name: str
    count: Sequence[float] | float = 1.0


class ParameterGroup:
    """Parameters that a rank holds, in the words of a vocabulary; see :class:`Operator`."""

    __slots__ = ()
    name: str
    count: Sequence[float] | float = 1.0


class FlopCount:
    """FLOPs of the model by definition, in the words of a vocabulary; see :class:`Operator`."""

    __slots__ = ()
    name: str


class Row(tuple[float, ...]):  # noqa: SLOT001  a tuple has none that is not empty
    """How often something stands on each virtual stage, by the function that counts it.

    ``Row(80, layers)`` are the 80 layers of a model: a tuple of how many there are in all, so that
    ``sum`` and ``any`` of it depend on no stages. The core asks ``layers(study)``, with further
    *arguments* if any, for one number per virtual stage where it adds up.

    >>> sum(Row(80, len)), Row(80, len) == Row(80, len)
    (80, True)
    """

    function: Callable[..., tuple[Any, ...]]
    arguments: tuple[Any, ...]

    def __new__(
        cls, total: float, function: Callable[..., tuple[Any, ...]], *arguments: Any
    ) -> Self:
        """Count *total* of something, on each stage as *function* says."""
        found = super().__new__(cls, (total,))
        found.function, found.arguments = function, arguments
        return found

    def __eq__(self, other: object) -> bool:
        """Return whether both count the same."""
        return isinstance(other, Row) and (
            (*self, self.function, self.arguments) == (*other, other.function, other.arguments)
        )

    def __ne__(self, other: object) -> bool:
        """Return whether they count something else."""
        return not self == other

    def __hash__(self) -> int:
        """Return what equal rows have in common."""
        return hash((self.function, self.arguments))

    def of(self, study: Any) -> Any:
        """Return one number for each virtual stage of *study*."""
        return study.query(self.function, *self.arguments)


def _plain(value: Real | Formula) -> Real:
    """Return *value*, whose formula its term takes once it is made."""
    return value  # type: ignore[return-value]


def _cells(rows: Any) -> Any:
    """Return the rows of a table, with numbers in the place of formulas."""
    if not isinstance(rows, (list, tuple)):
        return rows
    return [
        tuple([cell.value if cell.__class__ is Formula else cell for cell in row])
        if isinstance(row, (list, tuple))
        else row
        for row in rows
    ]


@record(eq=False)
class Names:
    """One name out of several for each candidate: ``names[at]``, as a resource may have.

    The core makes a term of each name, with its seconds where the name holds.
    """

    names: tuple[str, ...]
    at: Any

    def __str__(self) -> str:
        """Return the names that hold somewhere, as a sentence has them."""
        held = {int(i) for i in self.at.reshape(-1)}
        return " or ".join(name for i, name in enumerate(self.names) if i in held)


@record(kw_only=True, eq=False)
class Work:
    """Time that every micro-batch spends on a virtual stage.

    *seconds* is one occurrence, *count* the occurrences per micro-batch and virtual
    stage. *pass_*: F forward, B gradient of the input, W gradient of the weights, R
    forward again under recomputation. *resource* is what it keeps busy (``compute``,
    ``hbm``, or the name of a fabric level, which a link knows).

    *window* None is serial. Otherwise it names the group of Work that this may hide
    under, in the same pass: all serial Work whose *host* has that name. An empty name
    is all serial Work of the forward pass, or of the whole backward pass: R, B and W, or
    without W where the schedule runs it apart.
    At most *share* of the hosts' seconds can cover it. *slowdown* is what one hidden
    second adds to its hosts (0.14: a seventh of the multiprocessors are taken).

    *also* are other resources that are busy meanwhile, for the share of its seconds that
    *also_busy* says: see :func:`link_resources`.
    """

    name: str
    seconds: Real = field(converter=_plain, metadata=_AMOUNT)
    pass_: Pass
    formula: Formula = _NONE
    count: Sequence[float] | float = 1.0
    resource: str = "compute"
    host: str = ""
    window: str | None = None
    share: Real = field(default=1.0, metadata=_AMOUNT)
    slowdown: Real = field(default=0.0, metadata=_AMOUNT)
    flops: Real = field(default=0.0, metadata=_AMOUNT)
    bytes_: Real = field(default=0.0, metadata=_AMOUNT)
    also: Sequence[str] = ()
    also_busy: Sequence[Real] = ()
    cause: str = ""
    tag: str = ""

    def __attrs_post_init__(self) -> None:
        """Take the formula of a number that has one."""
        given: Any = self.seconds
        if given.__class__ is Formula:
            self.formula, self.seconds = given, given.value  # type: ignore[misc]


@record(kw_only=True, eq=False)
class Edge:
    """One hop of a micro-batch between neighbouring virtual stages on different devices.

    *seconds* is the hop between any two devices. Where they differ it is the slowest, and
    *boundaries* has the seconds of a hop over each: of devices 0 and 1, of 1 and 2, and so
    on. Devices further apart take the slowest boundary between them. Which devices hold
    neighbouring virtual stages is the schedule's business.
    """

    name: str
    seconds: Real = field(converter=_plain, metadata=_AMOUNT)
    formula: Formula = _NONE
    resource: str = ""
    bytes_: Real = field(default=0.0, metadata=_AMOUNT)
    boundaries: Sequence[Real] = ()
    cause: str = ""

    def __attrs_post_init__(self) -> None:
        """Take the formula of a number that has one."""
        given: Any = self.seconds
        if given.__class__ is Formula:
            self.formula, self.seconds = given, given.value  # type: ignore[misc]


@record(kw_only=True, eq=False)
class Once:
    """Time spent once per step on each virtual stage: *seconds* times *count*.

    *when*: ``fill`` before the first forward pass of the stage, ``drain`` after its
    last backward pass, ``end`` after every stage has drained. What a stage idles
    anyway in fill or drain hides it. *beside* is the share of one micro-batch's
    forward (fill) or backward (drain; W alone where the schedule splits it off) on that
    stage that may cover it as well, less the time that the same resource is busy then;
    *tail* seconds are never covered by compute (the last bucket). *slowdown* is what one
    second under compute adds to that stage. The terms of a stage in one group run one
    after another, and the group adds its longest stage. *also* and *also_busy* are those of
    :class:`Work`.
    """

    name: str
    seconds: Real = field(converter=_plain, metadata=_AMOUNT)
    formula: Formula = _NONE
    when: Literal["fill", "drain", "end"]
    count: Sequence[float] | float = 1.0
    resource: str = "compute"
    beside: Real = field(default=0.0, metadata=_AMOUNT)
    tail: Real = field(default=0.0, metadata=_AMOUNT)
    slowdown: Real = field(default=0.0, metadata=_AMOUNT)
    bytes_: Real = field(default=0.0, metadata=_AMOUNT)
    also: Sequence[str] = ()
    also_busy: Sequence[Real] = ()
    cause: str = ""
    tag: str = ""

    def __attrs_post_init__(self) -> None:
        """Take the formula of a number that has one."""
        given: Any = self.seconds
        if given.__class__ is Formula:
            self.formula, self.seconds = given, given.value  # type: ignore[misc]


@record(kw_only=True, eq=False)
class Memory:
    """Bytes held on the device of a virtual stage.

    *bytes_* times *count*; when *per_micro_batch*, also times the micro-batches whose
    activations are alive there at that moment, which the schedule decides.
    *once_per_device* is held once however many virtual stages the device has.
    *of_activations* is a share of all *per_micro_batch* memory there, which is held too. A
    negative one is kept elsewhere, down to -1, which is all of it: every *per_micro_batch* term
    is then what is left of it, and this one no line.
    Where the schedule runs W apart, the share *freed_at_b* of a *per_micro_batch* term is
    freed when B ends, and the rest when W does.
    """

    name: str
    bytes_: Real = field(converter=_plain, metadata=_AMOUNT)
    formula: Formula = _NONE
    count: Sequence[float] | float = 1.0
    per_micro_batch: bool = False
    once_per_device: bool = False
    of_activations: Real = field(default=0.0, metadata={"minimum": -1.0})
    freed_at_b: Real = field(default=0.0, metadata=_SHARE)
    moments: Sequence[Moment] = MOMENTS
    cause: str = ""
    tag: str = ""

    def __attrs_post_init__(self) -> None:
        """Take the formula of a number that has one."""
        given: Any = self.bytes_
        if given.__class__ is Formula:
            self.formula, self.bytes_ = given, given.value  # type: ignore[misc]


@record(kw_only=True, eq=False)
class Check:
    """A rule that a study must meet: a mask, and what to say where it fails.

    *subject* is the attribute to point at, such as ``layout.tp``, or "" for none. *message* and
    *help* are templates filled from *inputs* (``"{heads} heads are not divisible by tp = {tp}"``).
    A failed ``error`` makes the point infeasible; a ``warning`` only speaks.
    """

    id: str
    holds: Mask
    subject: str
    message: str
    inputs: Mapping[str, Any] = field(factory=dict)
    help: str = ""
    notes: Sequence[str] = ()
    severity: Literal["error", "warning"] = "error"


@record(kw_only=True, eq=False)
class Figure:
    """A headline number of the report; ``expect`` may make claims about it by *name*.

    *unit* is a unit of the language ("s", "B", "%", "") in which it is printed. A *detail*
    is printed where a claim names it or somebody asks for it, and else left to files. A
    figure with a *brief* note, which may be empty, stands on the report of one screen with
    that in the place of *note*; *whole* is what the value is a part of, if anything. With a
    *column* it is one in tables of many studies or points, the lowest number first: what
    there is no room for goes from the end.
    """

    name: str
    title: str
    value: Real = field(converter=_plain)
    unit: str
    formula: Formula = _NONE
    note: str = ""
    detail: bool = False
    brief: str | None = None
    whole: Real | None = None
    column: int | None = None

    def __attrs_post_init__(self) -> None:
        """Take the formula of a number that has one."""
        given: Any = self.value
        if given.__class__ is Formula:
            self.formula, self.value = given, given.value  # type: ignore[misc]


@record(kw_only=True, eq=False)
class Interval:
    """Where the measured value of the figure called *name* lies, in *coverage* of all cases.

    *low* and *high* are in the base unit of the figure. The report prints them beside it, and
    the figures ``NAME_low`` and ``NAME_high`` hold them for claims and files. *formula* is that
    of *low*, and *upper* that of *high*.
    """

    name: str
    low: Real = field(converter=_plain, metadata=_NUMBER)
    high: Real = field(converter=_plain, metadata=_NUMBER)
    coverage: float = field(metadata=_SHARE)
    formula: Formula = _NONE
    upper: Formula = _NONE

    def __attrs_post_init__(self) -> None:
        """Take the formulas of the bounds, where they have them."""
        for end, name in (("high", "upper"), ("low", "formula")):
            value = getattr(self, end)
            if value.__class__ is Formula:
                object.__setattr__(self, name, value)
                object.__setattr__(self, end, value.value)
        upper: Any = self.upper
        object.__setattr__(self, "upper", self.formula if upper is None else upper)


@record(kw_only=True, eq=False)
class Section:
    """A part of the report that a plugin adds after the figures: advice, sensitivities.

    Each line is a tuple of cells; the first of *columns* names rows. The first *lead* rows
    stand on the report of one screen as well.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]] = field(converter=_cells)
    notes: Sequence[str] = ()
    lead: int = 0


@record(kw_only=True, eq=False)
class Axis:
    """An attribute that a search may choose, by its path, and the values that may be legal.

    *values* are numbers in base units, or words of the language. Those that rules do not
    let through at some point of the space are left out there. A search takes *others*, values
    with a remark on each, only where somebody names them, and prints them and *why*. An axis
    that *follows* from the others is not chosen, needs no values, and is written beside them.
    *lacking* are values that nobody has there, for the reason *lacks*: a search prints both.
    """

    attribute: str
    values: Sequence[Any] = ()
    others: Mapping[Any, str] = field(factory=dict)
    why: str = ""
    lacking: Sequence[Any] = ()
    lacks: str = ""
    follows: bool = False


@record(kw_only=True, eq=False)
class Objective:
    """What a search makes as small as it can: ``cost(step_seconds)``, an array like it.

    *cost* never falls where the step takes longer. *value* turns it into the number that
    people know, in *unit*; *largest* says that this is to be large, as an MFU is. An
    objective with a *short* title stands beside every layout, whatever is looked for.
    """

    name: str
    title: str
    unit: str
    cost: Callable[[Real], Real]
    value: Callable[[Real], Real]
    largest: bool = False
    short: str = ""


@record(kw_only=True, eq=False)
class Limit:
    """What a layout must meet to be found: ``holds(step_seconds, memory_bytes)``.

    A longer step, or more memory, never makes it hold: a layout that breaks it by a bound
    from below breaks it. *says* is the limit in words: ``memory <= 70 GiB``.
    """

    name: str
    says: str
    holds: Callable[[Real, Real], Mask]


@record(kw_only=True, eq=False)
class Goal:
    """What a search of the study is for, where the command line does not say otherwise.

    *axes* are names of axes, all that there are where it is empty. None is not said. *subject*
    is the block that says so, to point at, with attributes called like these.
    """

    objective: str | None = None
    axes: Sequence[str] = ()
    limits: Sequence[Limit] = ()
    keep: int | None = None
    budget_seconds: float | None = None
    subject: str = ""


@record(kw_only=True, eq=False)
class Pipeline:
    """How the step is cut: *schedule* by name, *stages* devices, *chunks* on each.

    *micro_batches* per data-parallel replica may be an array. *blocking*: a device does
    nothing else while it sends to another. *overlap* is how much of what the halves of a
    :class:`Pair` could hide under each other they do hide.
    """

    schedule: str
    stages: int
    micro_batches: Real = field(metadata=_AMOUNT)
    chunks: int = 1
    blocking: bool = False
    overlap: Real = field(default=1.0, metadata=_SHARE)


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


#: The longest order that is worked out, in micro-batches times virtual stages.
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


class Phase(NamedTuple):
    """Part of a collective: *rounds* messages one after another on *link*.

    *bytes_* are those of the busiest port in one direction, all rounds together, and
    *reduced* those that a rank adds on the way.
    """

    link: Link
    rounds: Real
    bytes_: Real
    reduced: Real = 0.0


@record(kw_only=True)
class Library:
    """A communication library: the *algorithms* that it has for each operation, by name.

    ``auto`` picks among them alone in a study of the library. One that no plugin offers is
    passed over.
    """

    name: str
    algorithms: Mapping[str, Sequence[str]]
    source: str


class Link(ABC):
    """What carries messages: a level of the fabric, as one rank of a group sees it.

    *name* is the level; a link that spans several is named by the one that limits long
    messages, the outermost of equals, or has :class:`Names` where candidates differ.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The level."""

    @property
    @abstractmethod
    def latency(self) -> Real:
        """Alpha: seconds per message."""

    @property
    @abstractmethod
    def bandwidth(self) -> Real:
        """Bytes per second in one direction: this rank's share, for long messages."""

    @property
    def measured(self) -> bool:
        """Whether times are read off points, which formulas name in place of alpha and B."""
        return False

    @property
    def level(self) -> object:
        """The block that describes the level, for algorithms that depend on what it can do."""
        return None

    @property
    def also(self) -> Sequence[str]:
        """The other levels that the link spans."""
        return ()

    @property
    def also_busy(self) -> Sequence[Real]:
        """The share of the time in which long messages keep each other level busy."""
        return ()

    @abstractmethod
    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* equal messages one after another, *bytes_* in all."""


def link_resources(link: Link) -> dict[str, Any]:
    """Return what a term keeps busy that goes over *link*: ``Work(..., **busy(link))``.

    A ring over several levels runs at the rate of the slowest, and meanwhile the others are
    busy for a share of the time. What else goes over those finds only the rest of them.
    """
    if not link.also:
        return {"resource": link.name}
    return {"resource": link.name, "also": link.also, "also_busy": link.also_busy}


@record(kw_only=True, eq=False)
class Group:
    """Ranks that talk to one another, as they are placed on the fabric.

    *shape* holds, fastest level first, how many of the units of the level below take
    part within one unit of this level; their product is *ranks*. Where units hold
    different numbers of members, *shape* has the largest and *fewest* the smallest.
    *strides* are the places of each level from one member to the next, in units of the level
    below: 1 where members are neighbours, less where a unit holds several.

    Each link is what one rank has while every rank of the job is busy in its own group
    of this kind; they differ in who else crosses the same boundary:

    ``links[i]``
        joins the ``shape[i]`` units at level i; all members of a unit cross at once,
        each with its part of the data and to any number of peers.
    *flat*
        joins all ranks in one ring that ignores the levels: the slowest boundary,
        crossed through every port that the group owns there. The default is the
        outermost link, which is exact on one level.
    ``pairs[i]``
        joins any two units at level i while every rank has a single partner, across
        that level. It differs from ``links[i]`` where each peer has a port of its own.
    *pair*
        joins any two ranks, wherever they are: the slowest of the pairs.
    *hop*
        joins neighbours in the group, which cross a boundary one at a time: the
        slowest boundary, shared only with the other groups of the unit below.
    ``hop_after(i)``
        is the same between ranks i and i + 1 alone: the default is *hop*. Equal
        boundaries share one object.

    *reduction* is gamma, the seconds that a rank takes to reduce one byte; 0 where the
    reduction is part of the copy, as it is on a GPU.
    """

    name: str
    ranks: Real
    shape: tuple[Real, ...]
    links: tuple[Link, ...]
    flat: Link = field(default=Factory(lambda self: self.links[-1], takes_self=True))
    pairs: tuple[Link, ...] = field(default=Factory(lambda self: self.links, takes_self=True))
    pair: Link = field(default=Factory(lambda self: self.pairs[-1], takes_self=True))
    hop: Link = field(default=Factory(lambda self: self.pair, takes_self=True))
    hop_after: Callable[[int], Link] = field(
        default=Factory(lambda self: lambda _: self.hop, takes_self=True)
    )
    fewest: tuple[Real, ...] = field(default=Factory(lambda self: self.shape, takes_self=True))
    strides: tuple[Real, ...] = field(
        default=Factory(lambda self: (1.0,) * len(self.shape), takes_self=True)
    )
    reduction: Real = 0.0


@record(kw_only=True)
class Catalogue:
    """A directory of .par files, imported as ``use name.folder.block``.

    *prelude* is the path, below *root*, of a file whose blocks every study starts
    from and overrides: the assumptions, each with its provenance.
    """

    name: str
    root: Any  # a pathlib.Path or importlib.resources Traversable directory
    prelude: str = ""
    doc: str = ""


class Exporter(ABC):
    """A format of text that reports are written in: ``--format name``.

    *reads* is the part of each entry that it reads (see :class:`parcost.contract.entries.Entry`):
    ``data``, ``full``, ``points`` or ``page``. No other part is made. Shards of a run are
    entries, which ``parcost merge`` hands over as one run does.
    """

    name: str
    reads: Part = "data"

    @abstractmethod
    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:
        """Yield the text of *entries*, piece by piece as they are evaluated.

        An entry that is ``rejected`` is a file without a report; its diagnostics are on
        stderr already, so that a format for people may leave it out.
        """


class FileExporter(ABC):
    """A format of files that are not text, which is only written with ``--out``."""

    name: str
    reads: Part = "data"

    @abstractmethod
    def save(self, entries: Iterable[Entry], path: Path) -> None:
        """Write *entries* into the file at *path*, which is empty."""
