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
    """Part of a collective: *rounds* messages in sequence on *link*.

    *bytes_* is the traffic of the busiest port in one direction, summed over all rounds. *reduced*
    is the number of bytes that a rank reduces.
    """

    link: Link
    rounds: Real
    bytes_: Real
    reduced: Real = 0.0


@record(eq=False)
class ClosedForm:
    """The time of a collective as one expression in P (ranks), n (bytes), alpha and B.

    Alpha and B belong to *link*. With a tuple of links, each level has its own alpha and B. Then
    ``sum(E)`` and ``max(E)`` evaluate E for each level with several members. g is the number of
    members, and G the product of g over the levels below. *symbols* has the values of all other
    symbols.
    """

    text: str
    link: Link | tuple[Link, ...] = ()
    symbols: Mapping[str, Any] = MappingProxyType({})


@record(kw_only=True)
class Library(Record):
    """A communication library: the *algorithms* that it has for each operation, by name.

    In a study that uses the library, ``auto`` chooses only among them. Algorithms that no plugin
    provides are ignored.
    """

    name: str
    algorithms: Mapping[str, Sequence[str]]
    source: str


class Link(ABC):
    """The connection of one rank of a group at one level of the fabric.

    *name* is the name of this level. If the link spans several levels, *name* is the level that
    limits the bandwidth of long messages. If several levels do, it is the outermost. It is a
    :class:`Names` if the level differs between layouts.
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
        """Bytes per second of this rank in one direction, for long messages."""

    @property
    def resource(self) -> Any:
        """The resource on which messages queue: the outermost level that the link spans.

        Unlike *name*, it does not depend on the bandwidths.
        """
        return self.name

    @property
    def measured(self) -> bool:
        """Whether times are interpolated from measured points, so that formulas mention these."""
        return False

    def explain_latency(self) -> Real | Formula:
        """Return alpha in seconds, as a formula if it has one."""
        return self.latency

    def explain_bandwidth(self) -> Real | Formula:
        """Return B in bytes per second, as a formula if it has one."""
        return self.bandwidth

    @property
    def level(self) -> object:
        """The block of the level; algorithms may read its attributes."""
        return None

    @property
    def also(self) -> Sequence[str]:
        """The other levels that the link spans."""
        return ()

    @property
    def also_busy(self) -> Sequence[Real]:
        """The share of the time of long messages in which each of the other levels is busy."""
        return ()

    @abstractmethod
    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time in seconds of *rounds* equal messages in sequence, *bytes_* in total."""


def link_resources(link: Link) -> dict[str, Any]:
    """Return the busy resources of a term over *link*: ``Work(..., **link_resources(link))``.

    A ring over several levels runs at the rate of the slowest. The other levels are busy for a
    share of that time, excluding the latency of the term. Other traffic can use these levels in the
    remaining time.
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
    """A group of ranks that communicate, and its placement on the fabric.

    *shape* has a number per level, fastest first: the number of units of the level below in one
    unit of this level. Their product is *ranks*. If units have different numbers of members,
    *shape* has the largest number and *fewest* the smallest. *strides* are the distances between
    members at each level, in units of the level below: 1 for neighbours, less than 1 if a unit
    holds several members.

    A link has the bandwidth of one rank while all ranks communicate in their own groups of this
    kind. The kinds of links differ in the traffic that shares the boundary.

    ``links[i]`` connects the ``shape[i]`` units at level i: all members of a unit send their part
    of the data at the same time, to any number of peers. *flat* connects all ranks in one ring,
    independent of the levels. Its bandwidth is that of the slowest boundary, with all ports of the
    group. The default is the outermost link, which is exact for one level. ``pairs[i]`` connects
    two units at level i while every rank has a single partner across that level. It differs from
    ``links[i]`` if each peer has a separate port. *pair* connects any two ranks: the slowest of the
    pairs. *hop* connects neighbours in the group, one message at a time. It is the slowest
    boundary, shared only with the other groups of the inner unit. ``hop_after(i)`` is the link
    between ranks i and i + 1; the default is *hop*. Equal boundaries share one object.

    *reduction* is gamma, the time in seconds to reduce one byte on a rank; 0 if the reduction is
    part of the copy, as on a GPU.

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

    *bytes_* has the definition of *n* in :class:`parcost.Collective`. Formulas of
    ``study.collective`` have a ``Communication``. A plugin that computes the time of a collective
    itself should add one, so that traces contain the collective: ``attrs.evolve(price,
    communication=Communication(...))``.
    """

    operation: str
    bytes_: Real
    group: Group
