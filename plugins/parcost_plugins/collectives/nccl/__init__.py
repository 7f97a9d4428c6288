"""NCCL and RCCL: the fastest pair of algorithm and protocol, by the tuning table of the library.

The library predicts ``latency + n / bandwidth`` for each pair from a table of its release, and runs
the fastest. The table is a catalogue block. The device names it, and ``collectives { tuning = ...
}`` overrides it. Channels and bandwidths come from the links of the group.

Each pair is an algorithm, such as ``ring_ll`` or ``tree_simple``: ``auto`` chooses the fastest, and
a report names it. ``nccl`` is the prediction of the library itself on the machine of the study. It
excludes kernel launch times and the skew of ranks.
"""

from __future__ import annotations

from functools import cached_property

from parcost import (
    ClosedForm,
    Collective,
    Formula,
    Group,
    Link,
    Mask,
    Phase,
    Real,
    Study,
    formula,
    hookimpl,
    record,
)
from parcost.numeric import INFINITY, any_of, where
from parcost_plugins.collectives.double_tree import DoubleTree
from parcost_plugins.collectives.nccl.machine import LibraryRelease, Machine
from parcost_plugins.collectives.nccl.pairs import (
    OPERATIONS,
    PairCost,
    fastest_seconds,
    pair_cost,
    pairs,
)
from parcost_plugins.collectives.phases import PhasedAlgorithm
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.physics.exchange import AlphaBeta
from parcost_plugins.vocabulary import (
    Cluster,
    CollectiveChoice,
    KernelChoice,
    Training,
)

_SOURCE = "NCCL, src/graph/tuning.cc, by the table of its release"
#: The names of pairs whose algorithm has a form of its own without a library.
_NAMES = {
    "nvls": "nvls_simple",
    "collnet_direct": "collnet_direct_simple",
    "collnet_chain": "collnet_chain_simple",
    "pat": "pat_simple",
}
#: Algorithms on links with measured points, which already include protocol and ramp.
_BY_POINTS = {"ring_simple": Ring(), "tree_simple": DoubleTree()}


def pair_names(operation: str) -> tuple[str, ...]:
    """Return the names of the pairs that support *operation*."""
    return tuple(_NAMES.get(pair, pair) for pair, has in OPERATIONS.items() if operation in has)


def library_release(study: Study) -> LibraryRelease | None:
    """Return the library's table for *study*, named by `collectives` or by the device."""
    return study.query(_library_release)


def _library_release(study: Study) -> LibraryRelease | None:
    choice, cluster = study.get(CollectiveChoice), study.get(Cluster)
    device = None if cluster is None else cluster.device
    table = getattr(device, "tuning", None)
    generation = getattr(device, "generation", "unknown")
    if choice is not None:
        table = choice.tuning or table
    if table is None:
        return None
    if choice is not None and choice.generation != "unknown":
        generation = choice.generation
    return LibraryRelease.from_table(
        choice or CollectiveChoice(), table, generation, launched=not _replays(study)
    )


def _replays(study: Study) -> bool:
    """Return whether calls are replayed from a CUDA graph of the whole step."""
    training, kernels = study.get(Training), study.get(KernelChoice)
    if training is None:
        return False
    stated = None if kernels is None else kernels.cuda_graphs
    return (stated or training.framework.cuda_graphs) == "iteration"


@record(eq=False)
class Nccl(Collective):
    """NCCL on the machine of a study; without a tuning table and links, it cannot run."""

    release: LibraryRelease | None = None

    name = "nccl"
    operations = frozenset({"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"})
    by_name_only = operations
    source = _SOURCE

    def for_study(self, study: Study) -> Nccl:
        """Return the library with the table and the machine of *study*."""
        return Nccl(library_release(study))

    @cached_property
    def machine(self) -> Machine | None:
        """The machine; its attributes are read only if the library runs on it."""
        return None if self.release is None else self.release.find_machine()

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return whether the study has the inputs that the library needs."""
        return self.machine is not None

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the requirements of the library."""
        return (
            "`tuning` with all of its rows, `generation`, `channels`, and `channel_bandwidth` or "
            "`links`, in `collectives`"
        )

    def choices(self, operation: str, n: Real, group: Group) -> dict[str, Real]:
        """Return the seconds of each pair; infinity if it is not available."""
        if self.machine is None:
            return {}
        return pairs(self.machine, operation, n, group)

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the seconds of the fastest pair."""
        return fastest_seconds(self.choices(operation, n, group))


@record(eq=False)
class LibraryPair(PhasedAlgorithm):
    """One pair of algorithm and protocol on the links of a group; it needs a table to run."""

    pair: str
    name: str
    operations: frozenset[str]
    by_name_only: frozenset[str]  # all of them: a library offers the pair
    release: LibraryRelease | None = None

    source = _SOURCE

    @classmethod
    def of_pair(cls, pair: str) -> LibraryPair:
        """Return the pair of that name, without a table."""
        operations = OPERATIONS[pair]
        return cls(pair, _NAMES.get(pair, pair), operations, operations)

    def for_study(self, study: Study) -> LibraryPair:
        """Return the pair with the table of *study*."""
        release = library_release(study)
        return LibraryPair(self.pair, self.name, self.operations, self.by_name_only, release)

    def able(self, operation: str, group: Group) -> Mask:
        """Return whether the library offers the pair for this group."""
        if group.flat.measured:
            return self.pair in _BY_POINTS
        found = self._cost(operation, 0.0, group)
        return False if found is None else found.runs | (group.ranks <= 1)

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the requirements of the pair."""
        return _NEEDS.get(self.pair, "the `tuning` and `generation` of a device")

    def closed_form(self, operation: str, group: Group) -> ClosedForm | None:
        """Return the time of a ring as one expression, with the start-up of a small message."""
        found = None if group.flat.measured else self._cost(operation, 0.0, group)
        laps = _LAPS.get(operation)
        if found is None or laps is None or not self.pair.startswith("ring"):
            return None
        steps, passed = laps
        near = _near_link(group.links[0], found)
        return ClosedForm(
            f"c + ({steps} - x) s + x alpha + {passed} / B, x steps between nodes",
            _wire_link(group.flat, found),
            {
                "c": (found.call, "s"),
                "x": found.crossings,
                "s": (near.explain_latency(), "s"),
            },
        )

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases: call, steps in a node, and steps between nodes with the bytes."""
        if group.flat.measured and self.pair in _BY_POINTS:
            return list(_BY_POINTS[self.pair].phases(operation, n, group))
        found = self._cost(operation, n, group)
        return [] if found is None else self._phases(found, group)

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the seconds of *operation*; infinity if it cannot run."""
        if group.flat.measured:
            return super().seconds(operation, n, group)
        found = self._cost(operation, n, group)
        able = False if found is None else found.runs | (group.ranks <= 1)
        if found is None or able is False:
            return INFINITY
        return where(able, found.phase_seconds(group), INFINITY)

    def _phases(self, found: PairCost, group: Group) -> list[Phase]:
        one = where(group.ranks > 1, 1.0, 0.0)
        near, wire = _near_link(group.links[0], found), _wire_link(group.flat, found)
        call = AlphaBeta(name="start", latency=found.call, bandwidth=INFINITY)
        return [
            Phase(call, one, 0.0),
            Phase(near, found.steps * one, 0.0),
            Phase(wire, found.crossings * one, found.bytes_ * one, found.reduced * one),
        ]

    def _cost(self, operation: str, n: Real, group: Group) -> PairCost | None:
        if self.release is None:
            return None
        machine, spread = self.release.group_machine(group)
        return pair_cost(self.pair, machine, spread, operation, n)


_NEEDS = {
    "nvls": "ranks on one node, whose level has `in_network = on`",
    "nvls_tree": "several nodes, whose level has `in_network = on`",
    "collnet_direct": "several nodes, and `in_network = on` at every level between them",
    "collnet_chain": "several nodes, and `in_network = on` at every level between them",
    "pat": "one rank on each node",
}


#: Steps and bytes of a ring.
_LAPS = {
    "all_reduce": ("2 (P - 1)", "2 n (P - 1) / P"),
    "all_gather": ("(P - 1)", "n (P - 1) / P"),
    "reduce_scatter": ("(P - 1)", "n (P - 1) / P"),
}


def _near_link(link: Link, found: PairCost) -> AlphaBeta:
    """Return the link for steps in a node, which take latency but transfer no bytes."""
    latency = where(found.steps > 0, found.step, 0.0)
    return AlphaBeta(
        name=str(link.name),
        latency=latency,
        bandwidth=INFINITY,
        level=link.level,
        explain=lambda: (_part(latency, link.latency, link.explain_latency(), "s"), INFINITY),
    )


def _wire_link(flat: Link, found: PairCost) -> AlphaBeta:
    """Return the link for the bytes: *flat* with the latency and the bandwidth of the pair."""
    latency = where(found.crossings > 0, found.crossing, 0.0)
    bandwidth = where(found.bandwidth > 0, found.bandwidth, 1.0)
    return AlphaBeta(
        name=flat.name,
        latency=latency,
        bandwidth=bandwidth,
        level=flat.level,
        explain=lambda: (
            _part(latency, flat.latency, flat.explain_latency(), "s"),
            _part(bandwidth, flat.bandwidth, flat.explain_bandwidth(), "B/s"),
        ),
    )


def _part(value: Real, whole: Real, of: Real | Formula, unit: str) -> Real | Formula:
    """Return *value* as a formula: a factor times *whole*, which is explained by the
    formula *of*.
    """
    if not any_of(value != whole):
        return of
    if not any_of(value > 0):
        return value
    return formula("f v, f by algorithm and protocol", f=value / whole, v=(of, unit))


@hookimpl
def collectives() -> list[Collective]:
    """Return the library, and each of its pairs."""
    return [Nccl(), *(LibraryPair.of_pair(pair) for pair in OPERATIONS)]
