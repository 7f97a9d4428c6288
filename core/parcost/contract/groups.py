"""Groups of ranks, the links between them, and the phases of a collective on these links."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from attrs import Factory, field

from parcost.contract.fields import AMOUNT, BY_TYPE, Record, is_list, is_within, rule
from parcost.language.diagnostics import quote
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.formulas import Formula
    from parcost.numeric import Real


class Phase(NamedTuple):
    """Part of a collective: *rounds* messages one after another on *link*.

    *bytes_* is the traffic of the busiest port in one direction, over all rounds. *reduced* is the
    number of bytes that a rank reduces in it.
    """

    link: Link
    rounds: Real
    bytes_: Real
    reduced: Real = 0.0


@record(eq=False)
class ClosedForm:
    """The time of a collective as one expression in P (ranks), n (bytes), alpha and B.

    Alpha and B belong to *link*. A tuple of links has one of each for every level. There ``sum(E)``
    and ``max(E)`` take E for each level with several members: g is the number of members and G the
    product of g over the levels below. *symbols* are all other symbols.
    """

    text: str
    link: Link | tuple[Link, ...] = ()
    symbols: Mapping[str, Any] = MappingProxyType({})


@record(kw_only=True)
class Library(Record):
    """A communication library: the *algorithms* that it has for each operation, by name.

    In a study that uses the library, ``auto`` picks only among them. Algorithms that no plugin
    offers are ignored.
    """

    name: str
    algorithms: Mapping[str, Sequence[str]]
    source: str


class Link(ABC):
    """The connection of one rank of a group at one level of the fabric.

    *name* is the level. A link over several levels has the name of the level that limits long
    messages, the outermost of equals. If candidates differ, it has :class:`Names`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the level."""

    @property
    @abstractmethod
    def latency(self) -> Real:
        """Alpha: seconds per message."""

    @property
    @abstractmethod
    def bandwidth(self) -> Real:
        """Bytes per second in one direction: this rank's share, for long messages."""

    @property
    def resource(self) -> Any:
        """The resource on which messages run in sequence: the outermost level that the link spans.

        It does not change with the bandwidths, which decide the level that limits a message.
        """
        return self.name

    @property
    def measured(self) -> bool:
        """Whether times are interpolated from measured points, which formulas then name."""
        return False

    def explain_latency(self) -> Real | Formula:
        """Return alpha in seconds, as a formula if it has one."""
        return self.latency

    def explain_bandwidth(self) -> Real | Formula:
        """Return B in bytes per second, as a formula if it has one."""
        return self.bandwidth

    @property
    def level(self) -> object:
        """The block that describes the level, for algorithms that depend on its capabilities."""
        return None

    @property
    def also(self) -> Sequence[str]:
        """The other levels that the link spans."""
        return ()

    @property
    def also_busy(self) -> Sequence[Real]:
        """The share of the time for which long messages keep each of the other levels busy."""
        return ()

    @abstractmethod
    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time in seconds of *rounds* equal messages in sequence, *bytes_* in total."""


def link_resources(link: Link) -> dict[str, Any]:
    """Return the busy resources of a term over *link*: ``Work(..., **link_resources(link))``.

    A ring over several levels runs at the rate of the slowest. The other levels are busy for a
    share of that time, without its latency, which the term gives as ``latency``. Other traffic on
    these levels uses the rest of the time.
    """
    if not link.also:
        return {"resource": link.resource}
    return {"resource": link.resource, "also": link.also, "also_busy": link.also_busy}


def _is_link(value: Any) -> bool:
    return isinstance(value, Link)


BY_TYPE |= {
    "Link": rule(_is_link, "which is not a link", "isinstance(value, Link)", Link=Link),
    "tuple[Link, ...]": rule(
        lambda links: is_list(links, _is_link),
        "which are not links",
        "value.__class__ is tuple and all([isinstance(one, Link) for one in value])",
        Link=Link,
    ),
    "tuple[Real, ...]": rule(
        lambda shape: is_list(shape, lambda n: is_within(n, 0.0)),
        "which is not a shape",
        "value.__class__ is tuple and all([n.__class__ is float and n >= 0 for n in value])",
    ),
}


@record(kw_only=True, eq=False)
class Group(Record):
    """Ranks that communicate, and their placement on the fabric.

    *shape* has a number per level, fastest first: the number of units of the level below in one
    unit of this level. Their product is *ranks*. Where units hold different numbers of members,
    *shape* has the largest and *fewest* the smallest. *strides* are the distances between members
    at each level, in units of the level below: 1 for neighbours, less if a unit holds several.

    A link has the bandwidth of one rank while all ranks communicate in their own groups of this
    kind. Links differ in the other traffic over the same boundary:

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

    *reduction* is gamma, the seconds that a rank takes to reduce one byte; 0 where the reduction is
    part of the copy, as it is on a GPU.

    *members* lists the ranks of every group of this kind in the job, each in its order. Traces need
    it; None means unknown.
    """

    called: ClassVar[str] = "the group `{0.name}`"

    name: str
    ranks: Real = field(metadata=AMOUNT)
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
    reduction: Real = field(default=0.0, metadata=AMOUNT)
    members: Callable[[], Sequence[Sequence[int]]] | None = field(default=None, repr=False)

    def problem(self) -> str:
        for name, links in (("links", self.links), ("pairs", self.pairs)):
            if len(links) != len(self.shape):
                wrong = "not one for each level"
                return f"gave the group `{self.name}` {name} = {quote(links)}, {wrong}"
        return ""


@record(eq=False)
class Communication:
    """The collective behind a formula of time: one call of *operation* over *bytes_* in *group*.

    *bytes_* are counted as a :class:`parcost.Collective` counts them. The formulas of
    ``study.collective`` have one. A plugin that computes such a time itself adds one, so that
    traces have its collective: ``attrs.evolve(price, communication=Communication(...))``.
    """

    operation: str
    bytes_: Real
    group: Group
