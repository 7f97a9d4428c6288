"""Tori and grids: only neighbours are connected; the longest dimension gives the bisection."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from parcost import Check, Figure, Sheet, block_name
from parcost_plugins.calculators.networks.requirements import missing_attributes
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.vocabulary import Network

_SOURCE = "Dally and Towles 2004, chapter 5"


def geometry(network: Network) -> Iterator[Figure | Check]:
    """Yield the links, the bisection and the paths of a torus, or of a grid without wrap."""
    sizes = network.dimensions
    if not sizes:
        yield from missing_attributes(network, "dimensions")
        return
    total = float(prod(sizes))
    yield RULES.check(
        "network-torus",
        network.devices == total,
        f"{block_name(network)}.devices",
        sizes=" x ".join(map(str, sizes)),
        total=total,
        label=block_name(network),
        devices=network.devices,
    )
    # In a dimension of two, wrap-around adds no second link.
    wraps = [network.wrap and k > 2 for k in sizes]
    _, across, wrapped = min(
        (total / k * (2 if wrap else 1), k, wrap) for k, wrap in zip(sizes, wraps, strict=True)
    )
    sheet = Sheet(
        block_name(network),
        source=_SOURCE,
        P=total,
        K=float(across),
        k=[float(k) for k in sizes],
        r=[1.0 if wrap else 0.0 for wrap in wraps],
        B=(network.bandwidth, "B/s"),
    )
    yield sheet(
        "links",
        "links between neighbours",
        "",
        "sum(P / k (k - 1 + r)), r 1 for a dimension that wraps",
    )
    yield sheet(
        "bisection",
        "bisection bandwidth, one direction",
        "B/s",
        ("2 P B / K" if wrapped else "P B / K") if across > 1 else "0, of one device",
        note="across the longest dimension",
    )
    yield sheet(
        "hops",
        "links on the longest route",
        "",
        "sum(r ? floor(k / 2) : k - 1), r 1 for a dimension that wraps",
    )
    yield sheet(
        "injection",
        "bandwidth of all links of a device, one direction",
        "B/s",
        "sum(k > 1 ? 1 + r : 0) B, r 1 for a dimension that wraps",
        note="of a corner device, without wrap-around links",
    )
