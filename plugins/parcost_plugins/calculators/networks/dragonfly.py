"""Dragonflies: groups connected by few long links."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Real, Sheet, block_name
from parcost.numeric import divides
from parcost_plugins.calculators.networks.requirements import missing_attributes
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.vocabulary import Network

_SOURCE = "Kim, Dally, Scott, Abts 2008; each link counted once"


def geometry(network: Network) -> Iterator[Figure | Check]:
    """Yield the links of a dragonfly and its throughput by traffic pattern.

    The network inside a group is assumed to carry all traffic that the group injects. It is a
    clique of routers in a dragonfly, and leaf and spine switches in a dragonfly+.
    """
    links = global_links(network)
    if network.groups is None or links is None:
        yield from missing_attributes(network, "groups")
        yield from missing_attributes(network, *([] if links is not None else ["global_links"]))
        return
    yield from _rules(network, network.groups)
    sheet = Sheet(
        block_name(network),
        source=_SOURCE,
        G=network.groups,
        H=links,
        P=network.devices,
        B=(network.bandwidth, "B/s"),
        B_port=(network.port, "B/s"),
    )
    yield sheet("devices_per_group", "devices of a group", "", "P / G")
    yield sheet("links", "global links", "", "G H / 2", note="each has two ends")
    yield sheet(
        "global_bandwidth",
        "sum of the bandwidth of both ends of all global links",
        "B/s",
        "G H B",
        note="twice the capacity in one direction",
    )
    yield sheet(
        "crossing",
        "links across the bisection",
        "%",
        "floor(G^2 / 4) / (G max(G - 1, 1) / 2), of all links",
    )
    yield sheet("bisection", "bisection bandwidth, one direction", "B/s", "links crossing B")
    yield sheet(
        "bisection_bidirectional",
        "bisection bandwidth, both directions",
        "B/s",
        "2 bisection",
    )
    yield sheet(
        "links_per_group_needed",
        "global links that a group needs to reach every other group",
        "",
        "G - 1",
    )
    yield sheet("groups_reached", "other groups that a group reaches directly", "", "min(H, G - 1)")
    yield from _throughput(sheet)
    yield from _size_limit(sheet, network)
    yield from _paths(sheet, network)


def _size_limit(sheet: Sheet, network: Network) -> Iterator[Figure]:
    """Yield the size of the largest dragonfly with such routers, if the network has their links."""
    if network.routers is not None and network.links_per_router is not None:
        sheet.symbols |= {"a": network.routers, "h": network.links_per_router}
        yield sheet("most_groups", "groups of the largest such dragonfly", "", "a h + 1")
        yield sheet(
            "balanced_per_router",
            "devices (and global links) per router in a balanced network",
            "",
            "a / 2",
        )


def global_links(network: Network) -> Real | None:
    """Return the global links of one group, None if they are unknown."""
    if network.global_links is not None:
        return network.global_links
    if network.routers is None or network.links_per_router is None:
        return None
    return network.routers * network.links_per_router


def _rules(network: Network, g: Real) -> Iterator[Check]:
    yield RULES.check(
        "network-groups",
        g > 1,
        f"{block_name(network)}.groups",
        label=block_name(network),
        groups=g,
    )
    yield RULES.check(
        "network-groups-divide",
        divides(g, network.devices),
        f"{block_name(network)}.groups",
        devices=network.devices,
        groups=g,
    )


def _throughput(sheet: Sheet) -> Iterator[Figure]:
    """Yield the throughput per device as a share of its port, while all devices send."""
    sheet.symbols["r"] = sheet.formula("H B / (P / G B_port), what leaves a group, of what enters")
    for name, title, text, note in (
        (
            "uniform",
            "uniform traffic",
            "min(1, H >= max(G - 1, 1) ? r G / max(G - 1, 1) : r / 2)",
            "minimal routes, or over other groups where there is no direct link",
        ),
        (
            "adversarial",
            "each group to one other, minimal routing",
            "H >= max(G - 1, 1) ? min(1, r / max(G - 1, 1)) : 0",
            "0 where some groups have no link between them",
        ),
        (
            "valiant",
            "any traffic, by way of a random group",
            "min(1, r / 2)",
            "every message takes two global links",
        ),
    ):
        yield sheet(name, f"throughput of a port, {title}", "%", text, note=note)


def _paths(sheet: Sheet, network: Network) -> Iterator[Figure]:
    yield sheet("hops", "switches on a minimal route", "", "3, local, global and local")
    yield sheet(
        "valiant_hops", "switches on a route over a random group", "", "5, by way of a random group"
    )
    yield sheet(
        "path_latency",
        "latency of a minimal route",
        "s",
        "2 t_port + 3 t_switch + t_cable",
        t_port=(network.port_latency, "s"),
        t_switch=(network.switch_latency, "s"),
        t_cable=(network.cable_latency, "s"),
    )
