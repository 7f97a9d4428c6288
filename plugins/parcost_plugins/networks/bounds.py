"""What no algorithm beats on a network: every port, every leaf and every half has its limit."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Real
from parcost.numeric import maximum, ratio
from parcost_plugins.networks.dragonfly import global_links
from parcost_plugins.networks.saying import Sayer
from parcost_plugins.vocabulary import Network

_SOURCE = "fluid model: bytes over bandwidth of every cut"


def bounds(network: Network, bisection: Real) -> Iterator[Figure]:
    """Yield the least time of the traffic that *network* describes, and what it is beside work.

    Of an all-reduce, each device sends 2 (D - 1) / D n at least where the network does not
    reduce, and n crosses the middle each way: either half lacks the sum of the other.
    """
    n, ranks = network.all_reduce, network.ranks
    volume = network.volume if n is None else 2 * (ranks - 1) / ranks * n
    if volume is None:
        return
    say = Sayer(network, _SOURCE)
    b, o, phi = network.port, network.oversubscription, network.leaving
    given = {"V": (volume, "B"), "B": (b, "B/s"), "o": (o, ""), "phi": (phi, "")}
    port = volume / b
    leaf = phi * volume * o / b
    yield say("volume", "bytes that a device sends", volume, "GB", "2 (D - 1) / D n", given)
    yield say("port_seconds", "through the port of a device", port, "s", "V / B", given)
    yield say("leaf_seconds", "out of a leaf", "s", "phi V o / B", given)
    seconds = maximum(port, leaf)
    yield say("seconds", "through port and leaf", "s", "max(V, phi V o) / B", given)
    x = network.exposed
    yield say(
        "slowdown",
        "a step beside one on a network without oversubscription",
        1 + x * (maximum(phi * o, 1.0) - 1),
        "",
        "1 + x (max(phi o, 1) - 1)",
        {**given, "x": (x, "")},
    )
    bound = seconds
    if n is not None:
        middle = ratio(n, bisection)
        across = {"n": (n, "B"), "B_bisection": (bisection, "B/s")}
        yield say("bisection_seconds", "across the middle", "s", "n / B_bisection", across)
        bound = maximum(seconds, middle)
    yield say("bound", "no algorithm is faster", bound, "s", "the longest of them", given)
    yield say(
        "whole_machine_seconds",
        "one device's bytes over the bandwidth of all ends",
        volume / _ends(network),
        "s",
        "V / (G H B)",
        given,
        "a figure that is quoted and bounds nothing: every device has a port of its own",
    )
    if network.compute is not None:
        yield from _overhead(say, bound, network.compute)


def _ends(network: Network) -> Real:
    """Return the bandwidth of all ends: of a dragonfly's global links, or of all ports."""
    groups, links = network.groups, global_links(network)
    if not network.kind.startswith("dragonfly") or groups is None or links is None:
        return network.devices * network.port
    return groups * links * network.bandwidth


def _overhead(say: Sayer, bound: Real, compute: Real) -> Iterator[Figure]:
    given = {"T": (bound, "s"), "C": (compute, "s")}
    yield say("of_compute", "the bound beside compute", "%", "T / C", given)
    yield say(
        "of_step",
        "the bound in a step where nothing hides",
        "%",
        "T / (T + C)",
        given,
    )
