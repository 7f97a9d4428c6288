"""Lower bounds of traffic on a network: at each port, each leaf, and the bisection."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Real, Sheet, block_name, formula
from parcost_plugins.calculators.networks.dragonfly import global_links
from parcost_plugins.vocabulary import Network

_SOURCE = "fluid model: bytes over bandwidth of every cut"


def bounds(network: Network, bisection: Real) -> Iterator[Figure]:
    """Yield the minimum time of the traffic on *network*, and its ratio to the compute time.

    If the network does not reduce, each device sends at least ``2 (D - 1) / D n`` in an all-reduce.
    Across the bisection, n bytes pass in each direction, because each half needs the sum of the
    other.
    """
    n = network.all_reduce
    sheet = Sheet(
        block_name(network),
        source=_SOURCE,
        B=(network.port, "B/s"),
        o=network.oversubscription,
        phi=network.leaving,
        x=network.exposed,
        n=(n, "B"),
        D=network.ranks,
        B_bisection=(bisection, "B/s"),
        E=(_total_port_bandwidth(network), "B/s"),
        C=(network.compute, "s"),
    )
    if n is not None:
        volume = sheet.formula("2 (D - 1) / D n")
    elif network.volume is not None:
        volume = sheet.formula("V", V=(network.volume, "B"))
    else:
        return
    yield sheet("volume", "bytes that a device sends", "GB", volume)
    sheet.symbols["V"] = (volume, "B")
    yield sheet("port_seconds", "time through the port of a device", "s", "V / B")
    yield sheet("leaf_seconds", "time out of a leaf switch", "s", "phi V o / B")
    yield sheet("seconds", "time through port and leaf switch", "s", "max(V, phi V o) / B")
    yield sheet(
        "slowdown",
        "slowdown of the step by oversubscription",
        "",
        "1 + x (max(phi o, 1) - 1)",
    )
    if n is not None:
        yield sheet("bisection_seconds", "time across the bisection", "s", "ratio(n, B_bisection)")
    yield sheet(
        "bound",
        "lower bound of the time, for any algorithm",
        "s",
        "seconds" if n is None else "max(seconds, bisection_seconds)",
    )
    yield sheet(
        "whole_machine_seconds",
        "bytes of one device / bandwidth of all link ends",
        "s",
        "V / E",
        note="often quoted, but not a limit: each device has its own port",
    )
    if network.compute is not None:
        yield sheet("of_compute", "lower bound / compute time", "%", "bound / C")
        yield sheet("of_step", "lower bound / step without overlap", "%", "bound / (bound + C)")


def _total_port_bandwidth(network: Network) -> Formula:
    """Return the total bandwidth of all ports, or of all global links of a dragonfly, in B/s."""
    groups, links = network.groups, global_links(network)
    if not network.kind.startswith("dragonfly") or groups is None or links is None:
        return formula("D B", D=network.devices, B=(network.port, "B/s"))
    return formula("G H B", G=groups, H=links, B=(network.bandwidth, "B/s"))
