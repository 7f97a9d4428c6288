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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

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


_NONE: Any = None  # a formula that a number brings along


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
    *also_busy* says: see :func:`busy`.
    """

    name: str
    seconds: Real = field(converter=_plain)
    pass_: Pass
    formula: Formula = _NONE
    count: Sequence[float] | float = 1.0
    resource: str = "compute"
    host: str = ""
    window: str | None = None
    share: Real = 1.0
    slowdown: Real = 0.0
    flops: Real = 0.0
    bytes_: Real = 0.0
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
    seconds: Real = field(converter=_plain)
    formula: Formula = _NONE
    resource: str = ""
    bytes_: Real = 0.0
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
    seconds: Real = field(converter=_plain)
    formula: Formula = _NONE
    when: Literal["fill", "drain", "end"]
    count: Sequence[float] | float = 1.0
    resource: str = "compute"
    beside: Real = 0.0
    tail: Real = 0.0
    slowdown: Real = 0.0
    bytes_: Real = 0.0
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
    bytes_: Real = field(converter=_plain)
    formula: Formula = _NONE
    count: Sequence[float] | float = 1.0
    per_micro_batch: bool = False
    once_per_device: bool = False
    of_activations: Real = 0.0
    freed_at_b: Real = 0.0
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
    *help* are templates filled from *inputs* (``"{heads} heads do not divide by tp = {tp}"``).
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
    low: Real = field(converter=_plain)
    high: Real = field(converter=_plain)
    coverage: float
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
    micro_batches: Real
    chunks: int = 1
    blocking: bool = False
    overlap: Real = 1.0


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


@record(kw_only=True, eq=False)
class Replay:
    """A pipeline by itself, without the rest of a step: what ``parcost timeline`` draws.

    *hop* are the seconds of a message between neighbouring devices.
    """

    name: str
    schedule: Schedule
    pipeline: Pipeline
    times: Times
    hop: Real = 0.0


class Schedule(Protocol):
    """A pipeline schedule. A third party writes ``name`` and ``order`` and no more.

    The core reads everything else off the order, once for each (stages, micro-batches,
    chunks): who holds which virtual stage, how many micro-batches are alive, and by
    replay the time. It knows a schedule by identity, so return the same object always.

    A search bounds layouts by the order of a few more micro-batches than twice the stages, and
    takes for granted that with more of them devices hold the same stages, begin and end
    with the same ones, and hold no fewer micro-batches at once.

    Optional attributes that the core looks for:

    ``copies``
        on how many devices each virtual stage is, 1 where it is left out. With more, a
        micro-batch runs through the copies that list it, and what stages hold or do once
        per step counts on every device with a copy.
    ``frameworks``
        the training frameworks that have it, each with its source: a mapping of names to
        files or pages.
    ``search_default``
        true where a search takes it though nobody names it. Else the search says that it was
        left out, and which ``frameworks`` have it.
    ``hop_by_boundary``
        true where ``closed_form`` and ``spans`` take hops that differ: *hop* is then a
        tuple with the seconds of a hop over each boundary, of devices 0 and 1 first.
        Else *hop* is one number, and where boundaries differ the core replays.

    Optional methods, all of plain integers ``stages`` and ``chunks``, and of
    ``micro_batches`` that may be an array:

    ``for_study(study) -> Schedule``
        the schedule with what the study says of it, such as a group size. The same
        object for the same values: cache it.
    ``limits(stages, micro_batches, chunks) -> str | None``
        why the schedule does not exist there, in words, or None. Asked about one
        integer at a time, and always before ``order``.
    ``closed_form(times, hop, stages, micro_batches, chunks) -> (seconds, mask)``
        the makespan in closed form, for :class:`Times`, where sending blocks nobody. Used
        wherever *mask* holds for every candidate, and equal to the replay there.
        Elsewhere *seconds* may be anything.
    ``spans(times, hop, stages, micro_batches, chunks) -> (starts, ends)``
        where ``closed_form`` holds: when each virtual stage starts its first forward
        pass and ends its last backward pass, which says what hides in fill and drain.
        Without it, terms that need to know make the core replay.
    ``lower_bound(times, hop, stages, micro_batches, chunks) -> seconds``
        never above the makespan. Without it, the busiest device, with what has to come
        before its first op and after its last.
    """

    name: str

    def order(self, stages: int, micro_batches: int, chunks: int) -> Sequence[Sequence[Op | Pair]]:
        """Return what each of *stages* devices does, in order.

        Each virtual stage ``0 .. stages * chunks - 1`` needs an F and either a BW, or
        a B and a W, for each micro-batch ``0 .. micro_batches - 1``, all on one device. A
        virtual stage is on the devices that list it. Devices work strictly in order; an
        op starts when its device is free and its input has arrived: F after F of the stage
        before, B and BW after B of the stage behind, whose gradient leaves at the end of
        its op.
        """
        ...


class Collective(Protocol):
    """An algorithm for one or more collective operations.

    ``operations`` of: all_reduce, all_gather, reduce_scatter, broadcast, reduce, scatter,
    gather, all_to_all, point_to_point. *n* is the big buffer per rank in bytes: the total
    output of an all-gather or gather, the total input of a reduce-scatter or scatter, what
    one rank sends in an all-to-all including the block that it keeps.

    An optional attribute ``sees`` names the link of the group that the letters alpha
    and B of the formula stand for: ``flat``, ``pair`` or ``hop``, or else ``pairs`` or
    ``links``, the default, where they are written per level.

    Optional attributes and methods that the core and plugins look for:

    ``by_name_only``
        the operations for which ``auto`` leaves it out: a bound that nothing reaches, or
        what another algorithm always beats.
    ``for_study(study) -> Collective``
        the algorithm as the blocks of *study* have it.
    ``able(operation, group) -> Mask`` and ``needs(operation) -> str``
        where it can run, and what it needs in order to, in words.
    ``formula_for(operation, group) -> (text, sees) | (text, sees, letters) | None``
        the formula in groups that the letters of ``formula`` do not fit. *sees* may also be
        a link, or one per level, that the algorithm makes of those of the group; *letters* are
        further ones.
    ``phases(operation, n, group)``
        what it is made of: tuples of a link, the rounds on it, their bytes through the
        busiest port in one direction, and the bytes that a rank adds.
    ``cut(pieces) -> Collective``
        a pipelined algorithm with so many pieces, in place of the best.
    """

    name: str
    operations: frozenset[str]
    source: str

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of one call; infinity where the algorithm cannot run."""
        ...

    def formula(self, operation: str) -> str:
        """Return the formula in letters: P ranks, n bytes, alpha, B.

        Where it sees a link per level, ``sum(E)`` and ``max(E)`` take E for each: g are the
        members and G the product of g over the levels below. Where it does not give the time
        of the algorithm, the phases explain that.
        """
        ...


@record(kw_only=True)
class Library:
    """A communication library: the *algorithms* that it has for each operation, by name.

    ``auto`` picks among them alone in a study of the library. One that no plugin offers is
    passed over.
    """

    name: str
    algorithms: Mapping[str, Sequence[str]]
    source: str


class Link(Protocol):
    """What carries messages: a level of the fabric, as one rank of a group sees it.

    *name* is the level; a link that spans several is named by the one that limits long
    messages, the outermost of equals, or has :class:`Names` where candidates differ. An
    optional attribute ``measured`` says that times are read off points, which formulas
    then name in place of alpha and B. An optional attribute ``level`` is the block that
    describes the level, for algorithms that depend on what it can do. Optional attributes
    ``also`` and ``also_busy`` are the other levels that a link spans, and the share of the
    time in which long messages keep each busy.
    """

    @property
    def name(self) -> str: ...

    @property
    def latency(self) -> Real:
        """Alpha: seconds per message."""
        ...

    @property
    def bandwidth(self) -> Real:
        """Bytes per second in one direction: this rank's share, for long messages."""
        ...

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* equal messages one after another, *bytes_* in all."""
        ...


def busy(link: Link) -> dict[str, Any]:
    """Return what a term keeps busy that goes over *link*: ``Work(..., **busy(link))``.

    A ring over several levels runs at the rate of the slowest, and meanwhile the others are
    busy for a share of the time. What else goes over those finds only the rest of them.
    """
    also = getattr(link, "also", ())
    if not also:
        return {"resource": link.name}
    return {"resource": link.name, "also": also, "also_busy": getattr(link, "also_busy", ())}


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


class Kernels(Protocol):
    """A model of kernel time: prices the operators of one rank on a device."""

    name: str

    def price(self, operator: Any, study: Any) -> Formula | None:
        """Return the seconds of one occurrence and how they come about.

        None means: not an operator that this model knows.
        """
        ...


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


class Exporter(Protocol):
    """A format that reports are written in: ``--format name``.

    *reads* is the part of each entry that it reads (see :class:`parcost.contract.entries.Entry`):
    ``data``, ``full``, ``points`` or ``page``. No other part is made.

    A format of files instead of text has ``save(entries, path)`` in the place of ``write``,
    and is only written with ``--out``. Shards of a run are entries, which ``parcost merge``
    hands over as one run does.
    """

    name: str
    reads: Part

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:
        """Yield the text of *entries*, piece by piece as they are evaluated.

        An entry that is ``rejected`` is a file without a report; its diagnostics are on
        stderr already, so that a format for people may leave it out.
        """
        ...


@runtime_checkable
class Saved(Protocol):
    """A format of files that are not text."""

    name: str
    reads: Part

    def save(self, entries: Iterable[Entry], path: Path) -> None:
        """Write *entries* into the file at *path*, which is empty."""
        ...
