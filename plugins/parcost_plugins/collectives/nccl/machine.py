"""The machine in the library's topology search, with the tuning table of its release.

It comes from the study (channels, and the bandwidth of each) or from the links of a group. With
links, a level's `latency` is the latency of a step with Simple; other protocols have a fraction of
it, as in the table. A channel has the bandwidth of one NVLink of the generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import prod

from attrs import field

from parcost import Group, Link, Mask, Real, block_name, record
from parcost.numeric import INFINITY, floor_log2, is_array, log2, maximum, minimum, where
from parcost_plugins.vocabulary import (
    CollectiveChoice,
    GenerationTuning,
    HostTuning,
    ProtocolTuning,
    Tuning,
)

#: The pairs of algorithm and protocol that a table has to have latencies of.
PROTOCOLS = frozenset(
    (
        *(f"{shape}_{kind}" for shape in ("ring", "tree") for kind in ("ll", "ll128", "simple")),
        *("collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"),
    )
)
_STEP = "ring_simple"  # the row of the step that a level's latency is


@lru_cache(maxsize=64)
def _rows(table: Tuning) -> Mapping[str, ProtocolTuning]:
    return {block_name(protocol): protocol for protocol in table.protocols}


@record(kw_only=True, eq=False)
class RankSpread:
    """The number of nodes of a group, and its ranks per node (*local*)."""

    ranks: Real
    local: Real
    nodes: Real
    pcie: Mask  # inside of a node, rather than NVLink
    reduces: bool  # the switch of a node

    @classmethod
    def from_group(cls, group: Group) -> RankSpread:
        """Return the spread of *group*; its innermost levels are the node.

        Unequal nodes are modeled with the mean number of ranks.
        """
        inside = host_levels(group)
        nodes = prod(group.shape[inside:], start=1.0)
        pcie: Mask = False
        for members, link in zip(group.shape[:inside], group.links, strict=False):
            if getattr(link.level, "kind", "") == "pcie":
                pcie = pcie | ((members > 1) if inside > 1 else True)
        return cls(
            ranks=group.ranks,
            local=group.ranks / nodes,
            nodes=nodes,
            pcie=pcie,
            reduces=bool(getattr(group.links[0].level, "in_network", False)),
        )

    def by_nodes(self, one: Real, two: Real, more: Real) -> Real:
        """Return the value for one node, two nodes, or more."""
        return where(self.nodes <= 1, one, where(self.nodes <= 2, two, more))

    def beyond_one_node(self, value: Real) -> Real:
        """Return *value* for several nodes, 0 for one."""
        return where(self.nodes > 1, value, 0.0)


def host_levels(group: Group) -> int:
    """Return the number of levels in a host: the first, and those with `in_host`."""
    count = 1
    while count < len(group.links) and getattr(group.links[count].level, "in_host", False):
        count += 1
    return count


@record(kw_only=True, eq=False)
class Machine:
    """A table with its rows for the GPU and the host, and the channels.

    *intra* and *inter* are the bandwidth of one channel within a node and between nodes, in B/s.
    """

    table: Tuning
    generation: GenerationTuning
    host: HostTuning
    channels: Real
    intra: Real
    inter: Real
    card_latency: Real
    collnet: bool

    def protocol(self, name: str) -> ProtocolTuning:
        """Return the latencies of a pair of algorithm and protocol, such as ``ring_ll``."""
        return _rows(self.table)[name]

    @property
    def start(self) -> Real:
        """The start-up time of a call in seconds, which the library's own prediction ignores."""
        return 0.0

    def ring_channel(self, spread: RankSpread, operation: str = "") -> Real:  # noqa: ARG002
        """Return the bandwidth of one channel of a ring, in B/s."""
        return where(spread.nodes <= 2, self.intra, self.inter)

    def tree_channel(self, spread: RankSpread) -> Real:
        """Return the bandwidth of one channel of a tree, in B/s."""
        return self.ring_channel(spread)

    def nvls_rate(self, spread: RankSpread, operation: str, outside: Real, cap: Real) -> Real:
        """Return the bandwidth of NVLS; *outside* and *cap* limit each channel."""
        P, reduced = spread.ranks, operation == "all_reduce"
        share = 2.0 if reduced else (spread.local - 1) / spread.local
        channel = minimum(minimum(self.nvls_channel * share, outside), cap)
        bus = self.channels * channel
        return bus * P / (2 * maximum(P - 1, 1.0)) if reduced else bus

    @property
    def nvls_channel(self) -> Real:
        """The bandwidth of an NVLS channel in B/s; one channel is reserved for the reduction."""
        channels = self.channels
        return self.intra * self.generation.nvls_efficiency * (channels - 1) / channels

    def collnet_rate(self, rate: Real) -> Real:
        """Return the bandwidth of CollNet in B/s, on a node with *rate*."""
        return rate

    def inside(self, row: ProtocolTuning, spread: RankSpread) -> Real:
        """Return the seconds of one step inside a node."""
        return where(spread.pcie, _step_seconds(row.pcie), _step_seconds(row.nvlink))

    def outside(self, row: ProtocolTuning, protocol: str) -> Real:
        """Return the seconds of a step between nodes."""
        cards = self.table.simple_ports if protocol == "simple" else 1.0
        return _step_seconds(row.network) + self.card_latency * cards

    def crosses(self, protocol: str) -> Mask:  # noqa: ARG002
        """Return whether the network supports the protocol."""
        return True

    def correction(self, protocol: str, n: Real) -> Real:
        """Return the factor on a tree's bandwidth, which changes at powers of two of *n*."""
        table = self.table
        percent = {
            "ll": table.tree_ll_correction,
            "ll128": table.tree_ll128_correction,
            "simple": table.tree_simple_correction,
        }[protocol]
        return self.factor_at(percent, maximum(n / table.correction_from, 1.0))

    def factor_at(self, percent: tuple[int, ...], size: Real) -> Real:
        """Return the factor at *size*, in units of the first entry's size; 1 beyond the last."""
        place = floor_log2(size)
        factor: Real = 1.0
        for i, value in enumerate(percent):
            factor = where(place == i, value / 100, factor)
        return factor


@record(kw_only=True, eq=False)
class LinkMachine(Machine):
    """The machine from the links of a group, consistent with measured times of calls.

    *ring* and *tree* are the total bandwidth of all channels. Step latencies are the table's times
    the factors *near* and *far*. The factor on a tree is interpolated, so that time grows with the
    size.
    """

    ring: Real
    tree: Real
    near: Real
    far: Real
    node: Real
    flags: Mask = True
    launched: bool = True

    @property
    def start(self) -> Real:
        """The seconds until the kernels of all ranks run."""
        return self.table.start if self.launched else 0.0

    def ring_channel(self, spread: RankSpread, operation: str = "") -> Real:
        """Return the bandwidth of a channel; an all-reduce of two ranks does not fill it."""
        share = self.table.two_ranks if operation == "all_reduce" else 1.0
        two = where((spread.ranks <= 2) & (spread.nodes <= 1), share, 1.0)
        return self.ring * two / self.channels

    def tree_channel(self, spread: RankSpread) -> Real:  # noqa: ARG002
        """Return the bandwidth of one channel of a tree, in B/s."""
        return self.tree / self.channels

    def nvls_rate(self, spread: RankSpread, operation: str, outside: Real, cap: Real) -> Real:
        """Return the bandwidth: a port carries n (1 + 1/g) bytes in an all-reduce, n (g - 1)/g in a
        gather.

        With k nodes each node sends at least 2 (k - 1)/k of an all-reduce, which the table ignores.
        """
        P, g, reduced = spread.ranks, spread.local, operation == "all_reduce"
        passed = (1 + 1 / g) if reduced else maximum(g - 1, 1.0) / g
        bus = self.channels * minimum(outside, cap)
        beyond = bus * P / (2 * maximum(P - 1, 1.0)) if reduced else bus
        if reduced:
            k = spread.nodes
            least = where(k > 1, k / (2 * maximum(k - 1, 1.0)), INFINITY)
            beyond = minimum(beyond, self.channels * self.inter * least)
        return minimum(self.node * self.table.nvls_reach / passed, beyond)

    def collnet_rate(self, rate: Real) -> Real:
        """Return the bandwidth of CollNet in B/s: a NIC sends its part up, and receives the sum."""
        return minimum(rate, self.channels * self.inter)

    def inside(self, row: ProtocolTuning, spread: RankSpread) -> Real:
        """Return the seconds of one step inside a node."""
        return super().inside(row, spread) * self.near

    def outside(self, row: ProtocolTuning, protocol: str) -> Real:  # noqa: ARG002
        """Return the seconds of a step between nodes."""
        return _step_seconds(row.network) * self.far

    def crosses(self, protocol: str) -> Mask:
        """Return whether the network supports the protocol."""
        return True if protocol == "simple" else self.flags

    def factor_at(self, percent: tuple[int, ...], size: Real) -> Real:
        """Return the factor at *size*, interpolated between powers of two."""
        place = log2(size)
        factor: Real = 1.0
        parts: Iterable[int] = range(len(percent))
        if not is_array(place):  # of one size, the part that it is in alone
            parts = (int(place),) if place < len(percent) else ()
        for i in parts:
            value, above = percent[i], percent[i + 1] if i + 1 < len(percent) else 100
            within = (place >= i) & (place < i + 1)
            factor = where(within, (value + (above - value) * (place - i)) / 100, factor)
        return factor


@record(kw_only=True, eq=False)
class LibraryRelease:
    """The part of a machine that does not depend on the group: the table, and its rows in use.

    Calls are *launched* by the host, or replayed in a CUDA graph without launch time.
    """

    table: Tuning
    generation: GenerationTuning
    host: HostTuning
    choice: CollectiveChoice
    launched: bool = True
    _last: list[tuple[Group, LinkMachine, RankSpread]] = field(factory=list, init=False)

    @classmethod
    def from_table(
        cls,
        choice: CollectiveChoice,
        table: Tuning | None,
        generation: str,
        *,
        launched: bool = True,
    ) -> LibraryRelease | None:
        """Return the rows of a *table*, None if it lacks one of them."""
        if table is None:
            return None
        row = next((g for g in table.generations if block_name(g) == generation), None)
        host = next((h for h in table.hosts if block_name(h) == choice.host), None)
        if row is None or host is None or not _rows(table).keys() >= PROTOCOLS:
            return None
        return cls(table=table, generation=row, host=host, choice=choice, launched=launched)

    def find_machine(self) -> Machine | None:
        """Return the machine described in the study, None if it describes none."""
        choice = self.choice
        if choice.channels is None:
            return None
        intra = choice.channel_bandwidth
        if intra is None:
            if choice.links is None:
                return None
            intra = choice.links * self.generation.payload / choice.channels
        inter = choice.network_channel_bandwidth
        return Machine(
            table=self.table,
            generation=self.generation,
            host=self.host,
            channels=choice.channels,
            intra=intra,
            inter=intra if inter is None else inter,
            card_latency=choice.card_latency,
            collnet=choice.collnet,
        )

    def group_machine(self, group: Group) -> tuple[LinkMachine, RankSpread]:
        """Return the machine from the links of *group*, and the spread of its ranks.

        The last machine is cached, because all pairs are estimated on one group before the next
        group.
        """
        if not self._last or self._last[0][0] is not group:
            self._last[:] = [(group, self.on_links(group), RankSpread.from_group(group))]
        return self._last[0][1:]

    def on_links(self, group: Group) -> LinkMachine:
        """Return the machine from the links of *group*.

        A tree over two nodes sends the buffer once in each direction, a ring nearly twice.
        """
        inside = host_levels(group)
        step = _rows(self.table)[_STEP]
        node: Real = INFINITY
        network: Real = INFINITY
        near: Real = 0.0
        far: Real = 0.0
        flags: Mask = True
        owned: Real = 1.0
        reduces = True
        for i, (members, link) in enumerate(zip(group.shape, group.links, strict=True)):
            crossed = members > 1
            rate = where(crossed, link.bandwidth * owned, INFINITY)
            if i < inside:
                node = minimum(node, rate)
                time = step.pcie if getattr(link.level, "kind", "") == "pcie" else step.nvlink
                near = maximum(near, where(crossed, link.latency / _step_seconds(time), 0.0))
            else:
                network = minimum(network, rate)
                far = maximum(far, where(crossed, link.latency / _step_seconds(step.network), 0.0))
                flags = flags & ((crossed ^ True) | bool(getattr(link.level, "low_latency", True)))
                reduces = reduces and bool(getattr(link.level, "in_network", False))
            owned = owned * group.fewest[i]
        first = group.links[0].bandwidth
        nodes = prod(group.shape[inside:], start=1.0)
        trees = minimum(node, network * where(nodes <= 2, 2.0, 1.0))
        channels = maximum(minimum(node, first) / self.generation.payload, 2.0)
        return LinkMachine(
            table=self.table,
            generation=self.generation,
            host=self.host,
            channels=channels,
            intra=minimum(node, first) / channels,
            inter=minimum(network, _LONGEST) / channels,
            card_latency=0.0,
            collnet=reduces and len(group.links) > inside,
            ring=minimum(_ring_rate(group.flat, node, network), _LONGEST),
            tree=minimum(trees, _LONGEST),
            near=near,
            far=far,
            node=minimum(node, first),
            flags=flags,
            launched=self.launched,
        )


_LONGEST = 1e18  # B/s: of a group of one rank, which crosses nothing


def _ring_rate(flat: Link, node: Real, network: Real) -> Real:
    """Return the bandwidth in B/s of a ring over all ports, limited by the slowest boundary."""
    return minimum(flat.bandwidth, minimum(node, network))


def _step_seconds(time: Real | None) -> Real:
    return INFINITY if time is None else time


def machine(choice: CollectiveChoice) -> Machine | None:
    """Return the machine described in *choice*, None if it is incomplete."""
    release = LibraryRelease.from_table(choice, choice.tuning, choice.generation)
    return None if release is None else release.find_machine()
