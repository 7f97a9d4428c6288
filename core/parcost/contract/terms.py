"""Terms: the times and the memory that plugins contribute, and that the reducer adds up.

A plugin gives the cost of a term and the terms that *can* hide it; only the reducer, which has all
terms, decides which seconds are exposed. Every ``seconds`` and ``bytes_`` may be a float or an
array over candidates. A formula is a template, a mapping of named inputs and a source; it is
rendered only on demand.

Stages. A model is split into ``stages * chunks`` *virtual stages*, numbered from 0. ``count`` is
the number of occurrences of a term per micro-batch on each virtual stage: one number for all, a
tuple with one number per virtual stage. :mod:`parcost.contract.counts` has functions of counts.

Causes. A report sums time and memory by ``cause``. A cause is one or two words such as
``optimizer`` or ``gradients``, printed unchanged. A :class:`Cause` also has synonyms that users may
type. A term without a cause counts as ``other``.

Names and tags. A term's ``name`` is for human readers, and may change. Figures find terms by their
plugin, their kind and their ``tag``, a word that the plugin chooses: ``gradients``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from attrs import field

from parcost.contract.counts import are_counts, is_count, plain_count
from parcost.contract.fields import (
    AMOUNT,
    NO_FORMULA,
    SHARE,
    TEXTS,
    Declaration,
    Record,
    Rule,
    bounds,
    is_series,
    is_within,
    items,
    plain_number,
    rule,
    split_formula,
)
from parcost.contract.formulas import Formula
from parcost.language.diagnostics import quote
from parcost.numeric import all_of
from parcost.records import record

if TYPE_CHECKING:
    from typing import Self

    from parcost.numeric import Real

COMPUTE = "compute"
#: Resources that the kernels of a device keep busy; all others are links and hosts.
KERNELS = (COMPUTE, "hbm")

Pass = Literal["F", "B", "W", "R"]
#: The passes in words.
PASS_NAMES = {"F": "forward", "R": "recompute", "B": "backward", "W": "weight gradients"}
Moment = Literal["forward", "backward", "loss", "end_of_backward", "optimizer", "gather"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)


class Cause(str):
    """A category of step time or memory, with synonyms that users may type.

    >>> Cause("pipeline send/recv", "p2p").synonyms
    ('p2p',)
    """

    __slots__ = ("color", "synonyms")
    synonyms: tuple[str, ...]
    color: str

    def __new__(cls, name: str, *synonyms: str, color: str = "") -> Self:
        """Return the cause *name*, which reports print; *synonyms* are accepted as input.

        *color* is its color in terminals, pages and charts, such as ``#0072B2``.
        """
        cause = super().__new__(cls, name)
        cause.synonyms = synonyms
        cause.color = color
        return cause


class Operator(Record):
    """An operator of a rank, as a record shared by the plugins that describe and time it.

    A vocabulary derives records from it; their annotations define the valid values. *count* is the
    occurrences per micro-batch on each virtual stage, as in :class:`Work`.
    """

    __slots__ = ()
    name: str
    count: Sequence[float] | float = 1.0


class ParameterGroup(Record):
    """A group of parameters that a rank holds, as a record of a vocabulary; see
    :class:`Operator`.
    """

    __slots__ = ()
    name: str
    count: Sequence[float] | float = 1.0


class FlopCount(Record):
    """FLOPs of the model by definition, as a record of a vocabulary; see :class:`Operator`."""

    __slots__ = ()
    name: str


@record(eq=False)
class Names:
    """Names of a resource, of which one applies to each layout: the name with index ``at``.

    The core creates one term per name. It has its seconds in layouts to which the name applies, and
    0 in others.
    """

    names: tuple[str, ...]
    at: Any

    def __str__(self) -> str:
        """Return the names that apply to at least one layout, joined by "or"."""
        held = {int(i) for i in self.at.reshape(-1)}
        return " or ".join(name for i, name in enumerate(self.names) if i in held)


def _items(values: Sequence[Real]) -> Sequence[Real]:
    """Return a series as a tuple, and any other value unchanged."""
    return tuple(values) if is_series(values) else values


def _resource(name: str, value: Any) -> str:
    if isinstance(value, str):
        return ""
    if value.__class__ is not Names:
        return f"{name} = {quote(value)}, which is not a text"
    try:
        at, count = value.at, len(value.names)
        there = all_of((at >= 0) & (at < count) & (at % 1 == 0))
    except (TypeError, ValueError, AttributeError):
        there = False
    return "" if there else f"resources at {quote(value.at)}, which do not exist"


_COUNT = rule(
    is_count,
    "which is neither a count nor a list with a count for each virtual stage",
    "(value.__class__ is float and 0.0 <= value < inf)"
    " or (value.__class__ is tuple and value and are_counts(value))",
    are_counts=are_counts,
)
_RESOURCE: Declaration = {"rule": Rule(_resource, "value.__class__ is str")}
_BOUNDARIES = items(lambda value: is_within(value, 0.0), "a boundary of ", "which is not a time")
_SHARES = items(
    lambda value: is_within(value, 0.0, 1.0), "also_busy = ", "which is not between 0 and 1"
)
_CALLED = "the term `{0.name}`"


@record(kw_only=True, eq=False)
class Term(Record):
    """Seconds that keep a resource busy: the base class of Work, Edge and Once."""

    called: ClassVar[str] = _CALLED

    name: str
    seconds: Real = field(converter=plain_number, metadata=AMOUNT)
    formula: Formula = NO_FORMULA
    resource: str = field(default=COMPUTE, metadata=_RESOURCE)
    bytes_: Real = field(default=0.0, metadata=AMOUNT)
    cause: str = ""

    def __attrs_post_init__(self) -> None:
        split_formula(self, "seconds", "formula")


@record(kw_only=True, eq=False)
class StageTerm(Term):
    """The base class of Work and Once: terms that occur *count* times on each virtual stage."""

    count: Sequence[float] | float = field(default=1.0, converter=plain_count, metadata=_COUNT)
    slowdown: Real = field(default=0.0, metadata=AMOUNT)
    also: Sequence[str] = ()
    also_busy: Sequence[Real] = field(default=(), metadata=_SHARES)
    latency: Real = field(default=0.0, metadata=AMOUNT)
    tag: str = ""

    def problem(self) -> str:
        if len(self.also) == len(self.also_busy):
            return ""
        wrong = f"which is not one share for each of {len(self.also)} resources"
        return f"gave the term `{self.name}` also_busy = {quote(self.also_busy)}, {wrong}"


@record(kw_only=True, eq=False)
class Work(StageTerm):
    """Time that every micro-batch spends on a virtual stage.

    *seconds* is one occurrence, *count* the occurrences per micro-batch and virtual stage. *pass_*
    is F (forward), B (input gradient), W (weight gradient) or R (recomputed forward). *resource* is
    busy during it (``compute``, ``hbm``, or the name of a fabric level, from its link).

    If *window* is None, the term is serial. Otherwise *window* names the Work in the same pass that
    can hide this term (its hosts): all serial Work whose *host* has that name. An empty name means
    all serial Work of the forward pass, or of the whole backward pass: R, B and W, but not W if the
    schedule separates it. At most a *share* of the seconds of the hosts can hide it. The share
    *alone* of its occurrences is serial. *slowdown* is the time that one hidden second adds to its
    hosts: 0.14 if the term occupies a seventh of the SMs.

    *also* are other resources that are busy at the same time, for the share *also_busy* of its
    seconds without *latency*: see :func:`link_resources`.
    """

    pass_: Pass
    host: str = ""
    window: str | None = None
    share: Real = field(default=1.0, metadata=AMOUNT)
    alone: Real = field(default=0.0, metadata=SHARE)
    flops: Real = field(default=0.0, metadata=AMOUNT)


@record(kw_only=True, eq=False)
class Edge(Term):
    """The message of a micro-batch between neighbouring virtual stages on different devices.

    *seconds* is its time between any two devices. If boundaries differ, it is the slowest, and
    *boundaries* has the seconds over each: between devices 0 and 1, 1 and 2, and so on. Devices
    further apart use the slowest boundary between them. The schedule decides which devices hold
    neighbouring virtual stages.
    """

    resource: str = field(default="", metadata=_RESOURCE)
    boundaries: Sequence[Real] = field(default=(), converter=_items, metadata=_BOUNDARIES)


@record(kw_only=True, eq=False)
class Once(StageTerm):
    """Time spent once per step on each virtual stage: *seconds* times *count*.

    *when* is ``fill``, ``drain`` or ``end``: before the first forward pass of the stage, after its
    last backward pass, or after all stages have drained. It overlaps with idle time of the stage in
    fill or drain. A share *beside* of the pass of one micro-batch on that stage can hide it as
    well: the forward pass in fill, and the backward pass in drain (only W if the schedule separates
    it). The time that the same resource is busy in that pass is subtracted. *tail* seconds are
    never hidden by compute (the last bucket). *slowdown* is the time that one second hidden by
    compute adds to that stage. The terms of a stage in one group run one after another, and the
    group adds its longest stage. *also*, *also_busy* and *latency* are as in :class:`Work`.

    *on_arrival*: terms in fill begin when the first micro-batch arrives, and not at the start of
    the step. The waiting times of stages then add up. It applies to all terms in fill of a stage.
    *after_device*: a term in drain waits for the last backward pass of the device, and no pass
    hides it. It applies to all terms in drain of the device.
    """

    when: Literal["fill", "drain", "end"]
    beside: Real = field(default=0.0, metadata=AMOUNT)
    tail: Real = field(default=0.0, metadata=AMOUNT)
    on_arrival: bool = False
    after_device: bool = False


@record(kw_only=True, eq=False)
class Memory(Record):
    """Bytes held on the device of a virtual stage.

    The size is *bytes_* times *count*; when *per_micro_batch*, also times the micro-batches in
    flight there at that moment, which the schedule decides. *once_per_device* is held once, even if
    the device has several virtual stages. *of_activations* adds a share of all *per_micro_batch*
    memory of the device. A negative share is stored elsewhere: it reduces all *per_micro_batch*
    terms except *resident* ones (to 0 at -1), and has no separate line. *resident* terms always
    stay on the device, like the logits with activation offloading. If the schedule separates W, the
    share *freed_at_b* of a *per_micro_batch* term is freed when B ends. The rest is freed when W
    ends.

    The moment ``loss`` is the backward pass of the parts after the layers, ``backward`` the
    backward pass of the layers. A *per_micro_batch* term that is not in ``backward`` is freed
    between the two; the other micro-batches in flight still hold it. ``end_of_backward`` is the end
    of the last micro-batch's backward pass, where one of each *per_micro_batch* term is left.

    In the moments *cached* an allocator keeps the freed block, which it returns when memory runs
    out: tools such as nvidia-smi count it, the peak memory of a step does not.
    """

    called: ClassVar[str] = _CALLED

    name: str
    bytes_: Real = field(converter=plain_number, metadata=AMOUNT)
    formula: Formula = NO_FORMULA
    count: Sequence[float] | float = field(default=1.0, converter=plain_count, metadata=_COUNT)
    per_micro_batch: bool = False
    once_per_device: bool = False
    resident: bool = False
    of_activations: Real = field(
        default=0.0, metadata=bounds(-1.0, inf, "which is not a share of the activations")
    )
    freed_at_b: Real = field(default=0.0, metadata=SHARE)
    moments: Sequence[Moment] = field(default=MOMENTS, metadata=TEXTS)
    cached: Sequence[Moment] = field(default=(), metadata=TEXTS)
    cause: str = ""
    tag: str = ""

    def __attrs_post_init__(self) -> None:
        split_formula(self, "bytes_", "formula")
