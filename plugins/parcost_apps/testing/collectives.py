"""The contract of a collective: bounds, monotonicity, edge cases, arrays, and explanations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pytest

from parcost.contract.collective_formulas import explain
from parcost.contract.groups import Group, Link
from parcost.contract.study import Collective
from parcost.records import frozen

#: The bytes that the busiest port must carry, of n, by operation (Chan et al. 2007).
_LEAST = {
    "all_reduce": lambda n, P: 2 * n * (P - 1) / P,
    "all_gather": lambda n, P: n * (P - 1) / P,
    "reduce_scatter": lambda n, P: n * (P - 1) / P,
    "scatter": lambda n, P: n * (P - 1) / P,
    "gather": lambda n, P: n * (P - 1) / P,
    "all_to_all": lambda n, P: n * (P - 1) / P,
    "broadcast": lambda n, P: n * np.minimum(P - 1, 1),
    "reduce": lambda n, P: n * np.minimum(P - 1, 1),
    "point_to_point": lambda n, P: n * np.minimum(P - 1, 1),
}
_ROUNDING = 1e-9
_SIZES = (0.0, 1.0, 1e3, 1e6, 3e9)


@frozen
class PlainLink(Link):
    """A link with a latency and a bandwidth: ``rounds * latency + bytes / bandwidth``."""

    name: str = "node"
    latency: Any = 2e-6
    bandwidth: Any = 100e9

    def seconds(self, rounds: Any, bytes_: Any) -> Any:
        """Return the time in seconds of *rounds* messages in sequence."""
        return rounds * self.latency + bytes_ / self.bandwidth


def one_level(ranks: Any, link: Link | None = None) -> Group:
    """Return a group of *ranks* on one switch."""
    return Group(name="ranks", ranks=ranks, shape=(ranks,), links=(link or PlainLink(),))


def two_levels(near: Any, far: Any, links: Sequence[Link] = ()) -> Group:
    """Return a group of *far* nodes with *near* ranks each."""
    both = tuple(links) or (PlainLink("node", 2e-6, 400e9), PlainLink("network", 8e-6, 50e9))
    return Group(name="ranks", ranks=near * far, shape=(near, far), links=both)


class CollectiveContract:
    """Tests of one algorithm, for each operation that it has.

    *algorithm* is the object that the hook returns. *groups* are the groups to try; if ``able`` is
    false, the time must be infinite. An algorithm that reduces in the network has ``in_network =
    True``, because the lower bounds of ports do not apply.
    """

    algorithm: ClassVar[Collective]
    groups: ClassVar[Sequence[Group]] = (
        *(one_level(float(ranks)) for ranks in (1, 2, 3, 4, 8, 16, 72)),
        *(two_levels(float(near), float(far)) for near, far in ((1, 2), (4, 2), (8, 3), (8, 16))),
    )
    in_network: ClassVar[bool] = False

    def test_it_has_a_name_and_operations(self) -> None:
        """The name is an identifier that a spec can write, and the operations exist."""
        assert self.algorithm.name.isidentifier()
        assert self.algorithm.operations, "no operation"
        assert set(self.algorithm.operations) <= set(_LEAST), "an operation that does not exist"

    def test_it_runs_somewhere_and_has_no_time_elsewhere(self) -> None:
        """Where ``able`` is false the time is infinite, and ``needs`` has the reason."""
        for operation in self.algorithm.operations:
            runs = [bool(np.all(self.algorithm.able(operation, g))) for g in self.groups]
            assert any(runs), f"{operation} runs on no group that is tried"
            for group, able in zip(self.groups, runs, strict=True):
                seconds = self.algorithm.seconds(operation, 1e6, group)
                assert bool(np.isfinite(seconds)) == able, (operation, group.shape)
            if not all(runs):
                assert self.algorithm.needs(operation), f"{operation}: needs() gives no reason"

    def test_a_rank_by_itself_waits_for_nothing(self) -> None:
        """A group of one rank takes no time."""
        group = one_level(1.0)
        for operation in self.algorithm.operations:
            for n in _SIZES if bool(np.all(self.algorithm.able(operation, group))) else ():
                assert self.algorithm.seconds(operation, n, group) == 0, (operation, n)

    def test_it_beats_no_lower_bound(self) -> None:
        """The time is at least one latency plus the bytes of the busiest port over its rate."""
        for operation, group, n in self._calls():
            if self.in_network or operation == "point_to_point":
                continue
            links = group.links
            rate = sum(link.bandwidth for link in links)  # all levels may be busy at once
            latency = min(link.latency for link in links)
            least = _LEAST[operation](n, group.ranks) / rate
            bound = max(float(least), float(latency) * (group.ranks > 1))
            seconds = self.algorithm.seconds(operation, n, group)
            assert seconds >= bound * (1 - _ROUNDING), (operation, group.shape, n)

    def test_more_bytes_take_no_less_time(self) -> None:
        """The time of a call does not fall with its bytes."""
        for operation in self.algorithm.operations:
            for group in self.groups:
                times = [self.algorithm.seconds(operation, n, group) for n in _SIZES]
                assert times == sorted(times), (operation, group.shape)

    def test_a_slower_link_takes_no_less_time(self) -> None:
        """The time does not fall with a larger latency or a smaller bandwidth."""
        for operation, n in product(self.algorithm.operations, _SIZES):
            for ranks in (2.0, 8.0, 16.0):
                plain = self.algorithm.seconds(operation, n, one_level(ranks))
                for link in (PlainLink(latency=4e-6), PlainLink(bandwidth=50e9)):
                    slower = self.algorithm.seconds(operation, n, one_level(ranks, link))
                    assert slower >= plain * (1 - _ROUNDING), (operation, n, ranks)

    def test_arrays_are_their_numbers(self) -> None:
        """Arrays of ranks and of bytes give the same times as each element alone."""
        ranks = np.array([2.0, 4.0, 8.0, 16.0])
        sizes = np.array(_SIZES)[:, None]
        for operation in self.algorithm.operations:
            found = self.algorithm.seconds(operation, sizes, one_level(ranks))
            found = np.broadcast_to(found, (sizes.size, ranks.size))
            for i, j in product(range(sizes.size), range(ranks.size)):
                one = self.algorithm.seconds(
                    operation, float(sizes[i, 0]), one_level(float(ranks[j]))
                )
                assert found[i, j] == pytest.approx(one, rel=_ROUNDING), (operation, ranks[j])

    def test_what_it_explains_comes_to_its_time(self) -> None:
        """A closed form or phases, if there are any, give the same seconds on one switch."""
        for operation in self.algorithm.operations:
            group = one_level(8.0)
            if not bool(np.all(self.algorithm.able(operation, group))):
                continue
            seconds = self.algorithm.seconds(operation, 1e6, group)
            phases = self.algorithm.phases(operation, 1e6, group)
            explained = self.algorithm.closed_form(operation, group) or phases is not None
            shown = explain(operation, 1e6, group, self.algorithm, seconds)
            if explained:
                assert shown.is_expression, f"{operation}: neither form nor phases give its time"
                assert shown.value == pytest.approx(seconds, rel=_ROUNDING)

    def _calls(self) -> Iterator[tuple[str, Group, float]]:
        for operation, group, n in product(self.algorithm.operations, self.groups, _SIZES):
            if bool(np.all(self.algorithm.able(operation, group))):
                yield operation, group, n
