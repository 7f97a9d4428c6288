"""Links that a transfer describes, and several that are crossed at once, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parcost import Curve
from parcost_plugins.calculators.transfers.links import CurveLink, TransferLinks, link
from parcost_plugins.physics.exchange import AlphaBeta

from ..rows import try_each

#: 1 KB in 1 ms and 1 MB in 4 ms: between them half the way in logarithms is twice the time.
CURVE = Curve(sizes=np.array([1e3, 1e6]), seconds=np.array([1e-3, 4e-3]))
MIDDLE = 10**4.5


def measured_link(ports: float = 1.0, curve: Curve = CURVE) -> Any:
    return link("m", latency=0.0, rate=curve, share=ports, level=None)


@try_each(
    "rounds, bytes_, ports, seconds",
    [
        (1, 1e3, 1.0, 1e-3),
        (1, 1e6, 1.0, 4e-3),
        (1, MIDDLE, 1.0, 2e-3),
        (3, 3 * MIDDLE, 1.0, 6e-3),
        (3, 3 * MIDDLE / 2, 0.5, 6e-3),
        (1, 2 * MIDDLE, 2.0, 2e-3),
        (1, 1e7, 1.0, 4e-2),  # the last bandwidth goes on
        (1, 10.0, 1.0, 1e-3),
        (1, 0.0, 1.0, 1e-3),
        (0, 1e6, 1.0, 0.0),
        (0.5, MIDDLE, 1.0, 1e-3),  # no message is longer than all bytes
    ],
)
def test_a_measured_link(rounds: float, bytes_: float, ports: float, seconds: float) -> None:
    found = measured_link(ports).seconds(rounds, bytes_)
    assert found == pytest.approx(seconds, rel=1e-12)
    assert type(found) is float
    many = measured_link(ports).seconds(rounds, np.array([bytes_, bytes_]))
    assert many == pytest.approx([seconds, seconds], rel=1e-12)
    assert measured_link(ports).bandwidth == pytest.approx(ports * 1e6 / 4e-3)


def test_a_message_of_less_than_a_byte() -> None:
    tiny = Curve(sizes=np.array([0.25, 4.0]), seconds=np.array([1e-3, 4e-3]))
    assert measured_link(1.0, tiny).seconds(1, 0.0) == pytest.approx(1e-3)
    assert measured_link(1.0, tiny).seconds(1, 1.0) == pytest.approx(2e-3)


LATE = AlphaBeta(name="late", latency=3.0, bandwidth=100.0)
NARROW = AlphaBeta(name="narrow", latency=0.5, bandwidth=10.0)


def slowest_links(*crossed: Any, links: Any = (LATE, NARROW)) -> TransferLinks:
    return TransferLinks(name="s", links=links, crossed=crossed)


def test_several_links_by_the_worst_of_each() -> None:
    """Two rounds of 200 B in all: 2 x 3 s and 200 / 10 s."""
    both = slowest_links(True, True)
    assert (both.latency, both.bandwidth, both.measured) == (3.0, 10.0, False)
    assert both.seconds(2, 200.0) == pytest.approx(26.0)
    assert slowest_links(True, False).seconds(2, 200.0) == pytest.approx(6.0 + 2.0)
    assert slowest_links(False, True).seconds(2, 200.0) == pytest.approx(1.0 + 20.0)
    nothing = slowest_links(False, False)
    assert (nothing.latency, nothing.bandwidth) == (0.0, np.inf)
    some = slowest_links(np.array([True, False]), np.array([True, True]))
    assert some.seconds(2, 200.0) == pytest.approx([26.0, 21.0])


def test_several_links_of_which_one_is_measured() -> None:
    """Each by its own times: 6 s and 2 s of the late one, 2 ms a message of the other."""
    links = (LATE, measured_link())
    assert slowest_links(True, True, links=links).measured
    assert slowest_links(True, True, links=links).seconds(2, 200.0) == pytest.approx(8.0)
    assert slowest_links(False, True, links=links).seconds(2, 2 * MIDDLE) == pytest.approx(4e-3)
    assert slowest_links(False, False, links=links).seconds(2, 200.0) == 0.0
    fast = (AlphaBeta(name="f", latency=1e-6, bandwidth=1e12), measured_link())
    assert slowest_links(True, True, links=fast).seconds(1, MIDDLE) == pytest.approx(2e-3)
    assert slowest_links(True, False, links=fast).seconds(1, 1e6) == pytest.approx(2e-6)


def test_a_share_of_a_port() -> None:
    made = link("x", latency=2.0, rate=100.0, share=0.25, level=None)
    assert (made.latency, made.bandwidth, made.seconds(3, 50.0)) == (2.0, 25.0, 8.0)
    assert isinstance(measured_link(), CurveLink)
