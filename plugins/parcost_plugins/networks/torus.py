"""Tori and grids: neighbours alone are joined, and the longest dimension is the narrowest cut."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from parcost import Check, Figure, called
from parcost_plugins.networks.saying import Sayer, lacks
from parcost_plugins.vocabulary import Network

_SOURCE = "Dally and Towles 2004, chapter 5"


def geometry(network: Network) -> Iterator[Figure | Check]:
    """Yield the links, the bisection and the ways of a torus, or of a grid without wrap."""
    sizes = network.dimensions
    if not sizes:
        yield from lacks(network, "dimensions")
        return
    total = float(prod(sizes))
    yield Check(
        id="network-torus",
        holds=network.devices == total,
        subject=f"{called(network)}.devices",
        message="dimensions {sizes} have {total} places, and `{label}` has {devices} devices",
        inputs={
            "sizes": " x ".join(map(str, sizes)),
            "total": total,
            "label": called(network),
            "devices": network.devices,
        },
        help="devices = {total}",
    )
    say, b = Sayer(network, _SOURCE), network.bandwidth
    # The link that closes a dimension of two is the one that is there already.
    wraps = [network.wrap and k > 2 for k in sizes]
    links = float(
        sum(total / k * (k if wrap else k - 1) for k, wrap in zip(sizes, wraps, strict=True))
    )
    cuts = [
        (total / k * (2 if wrap else 1), k, wrap)
        for k, wrap in zip(sizes, wraps, strict=True)
        if k > 1
    ]
    crossing, across, wrapped = min(cuts, default=(0.0, 1, False))
    ways = [k // 2 if wrap else k - 1 for k, wrap in zip(sizes, wraps, strict=True)]
    given = {"P": (total, ""), "K": (float(max(sizes)), ""), "B": (b, "B/s")}
    yield say("links", "links between neighbours", links, "", "one per device and dimension", given)
    yield say(
        "bisection",
        "bandwidth between two halves, one direction",
        "B/s",
        ("2 P B / K" if wrapped else "P B / K") if cuts else "0, of one device",
        {**given, "K": (float(across), "")},
        "across the longest dimension",
    )
    yield say("hops", "links on the longest way", float(sum(ways)), "", "sum of K / 2", given)
    yield say(
        "injection",
        "bandwidth of all links of a device, one direction",
        sum(2.0 if wrap else 1.0 for k, wrap in zip(sizes, wraps, strict=True) if k > 1) * b,
        "B/s",
        "2 B for each dimension that wraps, 1 B else",
        given,
        "of a corner, where it does not wrap",
    )
