"""Closed forms of collectives explain their time, and phases do elsewhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Collective, Group, formula
from parcost.contract.collective_formulas import explain
from parcost_plugins.physics.exchange import AlphaBeta

from ..rows import try_each

_SWITCH = SimpleNamespace(in_network=True)  # which reduces


def group(*shape: float) -> Group:
    links = tuple(
        AlphaBeta(name=name, latency=alpha, bandwidth=B, level=_SWITCH)
        for name, alpha, B in (("node", 2e-6, 450e9), ("rail", 5e-6, 50e9))
    )[: len(shape)]
    ranks = 1.0
    for g in shape:
        ranks *= g
    return Group(name="dp", ranks=ranks, shape=shape, links=links)


ALGORITHMS = [
    (algorithm, operation)
    for _, (_, algorithm) in sorted(parcost.plugins.discovery.load().offers("collectives").items())
    for operation in sorted(algorithm.operations)
]


@try_each("shape", [(8.0,), (8.0, 4.0)])
@try_each("algorithm, operation", ALGORITHMS)
def test_an_explanation_comes_to_the_time(
    algorithm: Any, operation: str, shape: tuple[float, ...]
) -> None:
    placed = group(*shape)
    seconds = algorithm.seconds(operation, 1e9, placed)
    found = explain(operation, 1e9, placed, algorithm, seconds)
    assert found.value == pytest.approx(seconds, rel=1e-12)


def test_phases_explain_what_no_closed_form_does() -> None:
    """3 ranks on one node and 2 on another: no closed form knows of both."""
    placed = group(3.0, 2.0)
    uneven = Group(name="dp", ranks=5.0, shape=(3.0, 2.0), links=placed.links, fewest=(2.0, 2.0))
    offered = parcost.plugins.discovery.load().offers("collectives")
    algorithm: Any = offered["hierarchical"][1]
    seconds = algorithm.seconds("all_reduce", 1e9, uneven)
    found = explain("all_reduce", 1e9, uneven, algorithm, seconds)
    assert found.is_expression
    assert found.text.startswith("sum(r alpha + w / B)")
    assert found.value == pytest.approx(seconds, rel=1e-12)
    assert set(found.inputs) >= {"r[node]", "w[rail]", "alpha[rail]", "B[node]"}


class _Direct(Collective):
    """An algorithm of ``alpha + n / B`` that counts who asks for its phases, and has none."""

    name, source, operations = "direct", "a page", frozenset({"all_reduce"})
    asked = 0

    def phases(self, *_: Any) -> Any:
        self.asked += 1
        raise ValueError("no phases")

    def seconds(self, _operation: str, n: float, group: Group) -> float:
        return group.links[0].seconds(1.0, n)


def test_the_time_of_an_algorithm_is_explained_to_readers_alone() -> None:
    """2 us and 1 GB at 450 GB/s; a fault in the phases costs the explanation and no more."""
    algorithm: Any = _Direct()
    placed = group(8.0)
    found = explain("all_reduce", 1e9, placed, algorithm, 2e-6 + 1e9 / 450e9)
    assert formula("2 t", t=found).value == 2 * (2e-6 + 1e9 / 450e9)
    assert algorithm.asked == 0
    assert found.shown == (
        "all_reduce by direct: by the arithmetic of the algorithm, "
        "which cannot be explained: it raised ValueError"
    )
    assert not found.is_expression
    assert found.inputs == {"P": (8.0, ""), "n": (1e9, "B")}
    assert algorithm.asked == 1
