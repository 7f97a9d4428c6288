"""What plugins contribute, and the reducer adds up.

A plugin says what something costs and what it *may* hide under; only the reducer,
which sees every term, decides what is exposed. Every ``seconds`` and ``bytes_`` may
be a float or an array over candidates. A formula is a template, a mapping of named
inputs and a source; it is rendered only when somebody asks for it.

Stages. A model is cut into ``stages * chunks`` *virtual stages*, 0 first. A term's
``count`` says how often it occurs on each of them, per micro-batch: a tuple with one
number per virtual stage, or one number for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    from parcost.numeric import Mask, Real

Pass = Literal["F", "B", "W", "R"]
Moment = Literal["forward", "backward", "optimizer", "gather"]
MOMENTS: tuple[Moment, ...] = ("forward", "backward", "optimizer", "gather")

#: The value of one input of a formula, with its unit ("B", "s", "B/s", "FLOP/s", "").
Input = tuple[Any, str]


@frozen(kw_only=True, eq=False)
class Formula:
    """How a number comes about: ``text`` in letters, ``inputs`` by letter, ``source``.

    >>> Formula(text="2 (P - 1) n / (P B)", inputs={"P": (8, "")}, source="modelling A.3").text
    '2 (P - 1) n / (P B)'
    """

    text: str
    inputs: Mapping[str, Input] = field(factory=dict)
    source: str = ""


@frozen(kw_only=True, eq=False)
class Work:
    """Time that every micro-batch spends on a virtual stage.

    *seconds* is one occurrence, *count* the occurrences per micro-batch and virtual
    stage. *pass_*: F forward, B gradient of the input, W gradient of the weights, R
    forward again under recomputation. *resource* is what it keeps busy (``compute``,
    ``hbm``, or the name of a fabric level).

    *window* None is serial. Otherwise it names the group of Work that this may hide
    under, in the same pass: all serial Work whose *host* has that name. At most
    *share* of the hosts' seconds can cover it. *slowdown* is what one hidden second
    adds to its hosts (0.14: a seventh of the multiprocessors are taken).
    """

    name: str
    seconds: Real
    pass_: Pass
    formula: Formula
    count: Sequence[float] | float = 1.0
    resource: str = "compute"
    host: str = ""
    window: str | None = None
    share: Real = 1.0
    slowdown: Real = 0.0
    flops: Real = 0.0
    bytes_: Real = 0.0


@frozen(kw_only=True, eq=False)
class Edge:
    """One hop of a micro-batch between neighbouring virtual stages on different devices."""

    name: str
    seconds: Real
    formula: Formula
    resource: str = ""
    bytes_: Real = 0.0


@frozen(kw_only=True, eq=False)
class Once:
    """Time spent once per step on each virtual stage: *seconds* times *count*.

    *when*: ``fill`` before the first forward pass of the stage, ``drain`` after its
    last backward pass, ``end`` after every stage has drained. What a stage idles
    anyway in fill or drain hides it. *beside* is the share of one micro-batch's
    forward (fill) or backward (drain) on that stage that may cover it as well, less
    the time that the same resource is busy then; *tail* seconds are never covered by
    compute (the last bucket).
    """

    name: str
    seconds: Real
    formula: Formula
    when: Literal["fill", "drain", "end"]
    count: Sequence[float] | float = 1.0
    resource: str = "compute"
    beside: Real = 0.0
    tail: Real = 0.0
    bytes_: Real = 0.0


@frozen(kw_only=True, eq=False)
class Memory:
    """Bytes held on the device of a virtual stage.

    *bytes_* times *count*; when *per_micro_batch*, also times the micro-batches whose
    activations are alive there at that moment, which the schedule decides.
    *once_per_device* is held once however many virtual stages the device has.
    """

    name: str
    bytes_: Real
    formula: Formula
    count: Sequence[float] | float = 1.0
    per_micro_batch: bool = False
    once_per_device: bool = False
    moments: Sequence[Moment] = MOMENTS


@frozen(kw_only=True, eq=False)
class Check:
    """A rule that a study must meet: a mask, and what to say where it fails.

    *subject* is the attribute to point at, such as ``layout.tp``. *message* and *help*
    are templates filled from *inputs* (``"{heads} heads do not divide by tp = {tp}"``).
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


@frozen(kw_only=True, eq=False)
class Figure:
    """A headline number of the report; ``expect`` may make claims about it by *name*.

    *unit* is a unit of the language ("s", "B", "%", "") in which it is printed.
    """

    name: str
    title: str
    value: Real
    unit: str
    formula: Formula
    note: str = ""


@frozen(kw_only=True, eq=False)
class Section:
    """A part of the report that a plugin adds after the figures: advice, sensitivities.

    Each line is a tuple of cells; the first of *columns* names rows.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    notes: Sequence[str] = ()


@frozen(kw_only=True, eq=False)
class Pipeline:
    """How the step is cut: *schedule* by name, *stages* devices, *chunks* on each.

    *micro_batches* per data-parallel replica may be an array.
    """

    schedule: str
    stages: int
    micro_batches: Real
    chunks: int = 1


class Op(NamedTuple):
    """One entry of a device's order.

    *kind*: F forward, B input gradient, W weight gradient, BW both without a gap.
    *stage* is a virtual stage, 0 to ``stages * chunks - 1``.
    """

    kind: Literal["F", "B", "W", "BW"]
    micro_batch: int
    stage: int


class Schedule(Protocol):
    """A pipeline schedule. A third party writes ``name`` and ``order`` and no more.

    Optional attributes that the core looks for:

    ``limits(stages, micro_batches, chunks) -> str | None``
        why the schedule does not exist there, in words, or None.
    ``closed_form(times, hop, stages, micro_batches, chunks) -> (seconds, mask)``
        the makespan, equal to the replay wherever *mask* holds.
    """

    name: str

    def order(self, stages: int, micro_batches: int, chunks: int) -> Sequence[Sequence[Op]]:
        """Return what each device does, in order. Runs where it says: whichever
        device lists the forward pass of a virtual stage holds that stage."""
        ...


class Collective(Protocol):
    """An algorithm for one or more collective operations.

    ``operations`` of: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all,
    point_to_point. *n* is the big buffer per rank in bytes: the total output of an
    all-gather, the total input of a reduce-scatter, what one rank sends in an
    all-to-all including the block that it keeps.
    """

    name: str
    operations: frozenset[str]
    source: str

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of one call; infinity where the algorithm cannot run."""
        ...

    def formula(self, operation: str) -> str:
        """Return the formula in letters: P ranks, n bytes, alpha, B, per level."""
        ...


class Link(Protocol):
    """What carries messages: one level of the fabric, as one rank of a group sees it."""

    name: str
    latency: Real  # alpha, seconds per message
    bandwidth: Real  # bytes per second, one direction, this rank's share

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* messages one after another, *bytes_* in all."""
        ...


@frozen(kw_only=True, eq=False)
class Group:
    """Ranks that talk to one another, as they are placed on the fabric.

    *shape* holds, fastest level first, how many of the units of the level below take
    part within one unit of this level; their product is *ranks*. ``links[i]`` joins
    the ``shape[i]`` units at level i, with the share of bandwidth that one rank has
    when every rank of the node is in a group of this kind. *flat* is the link that a
    ring over all ranks sees when it ignores the levels: the slowest boundary, crossed
    through every NIC that the group owns.
    """

    name: str
    ranks: Real
    shape: tuple[Real, ...]
    links: tuple[Link, ...]
    flat: Link


class Kernels(Protocol):
    """A model of kernel time: prices the operators of one rank on a device."""

    name: str

    def price(self, operator: Any, study: Any) -> tuple[Real, Formula] | None:
        """Return the seconds of one occurrence and how they come about.

        None means: not an operator that this model knows.
        """
        ...


@frozen(kw_only=True)
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
    """A format that reports are written in: ``--format name``."""

    name: str

    def write(self, reports: Sequence[Any]) -> str:
        """Return *reports* in this format."""
        ...
