"""Dragonflies: groups that reach one another over few long links."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Real, called
from parcost.numeric import floor, maximum, minimum, where
from parcost_plugins.networks.saying import Sayer, lacks
from parcost_plugins.vocabulary import Network

_SOURCE = "Kim, Dally, Scott, Abts 2008; each link counted once"


def geometry(network: Network) -> Iterator[Figure | Check]:
    """Yield the links of a dragonfly and the throughput that patterns of traffic reach.

    The clique of routers in a group of a dragonfly, or the leaves and spines in one of a
    dragonfly+, are taken to carry all that the group injects.
    """
    links = global_links(network)
    if network.groups is None or links is None:
        yield from lacks(network, "groups")
        yield from lacks(network, *([] if links is not None else ["global_links"]))
        return
    g, b, port = network.groups, network.bandwidth, network.port
    hosts = network.devices / g
    yield from _rules(network, g, hosts)
    say = Sayer(network, _SOURCE)
    given = {
        "G": (g, ""),
        "H": (links, ""),
        "P": (network.devices, ""),
        "B": (b, "B/s"),
        "B_port": (port, "B/s"),
    }
    all_links = g * links / 2
    half = floor(g / 2)
    crossing = half * (g - half) / (g * maximum(g - 1, 1.0) / 2)
    yield say("devices_per_group", "devices of a group", hosts, "", "P / G", given)
    yield say("links", "global links", all_links, "", "G H / 2", given, "each has two ends")
    yield say(
        "global_bandwidth",
        "bandwidth of all ends of global links",
        g * links * b,
        "B/s",
        "G H B",
        given,
        "both ends of every link: twice what the links carry in one direction",
    )
    yield say("crossing", "links that cross a half cut", crossing, "%", "of all links", given)
    bisection = all_links * crossing * b
    text = "G H / 2 x floor(G / 2) ceil(G / 2) / (G (G - 1) / 2) x B"
    yield say(
        "bisection", "bandwidth between two halves, one direction", bisection, "B/s", text, given
    )
    yield say(
        "bisection_bidirectional",
        "the same in both directions",
        2 * bisection,
        "B/s",
        "2 x " + text,
        given,
    )
    yield say(
        "links_per_group_needed",
        "global links with which a group reaches every other",
        g - 1,
        "",
        "G - 1",
        given,
    )
    yield say(
        "groups_reached",
        "other groups that a group reaches straight",
        minimum(links, g - 1),
        "",
        "min(H, G - 1)",
        given,
    )
    yield from _throughput(say, given, links * b / (hosts * port), links, g)
    if network.routers is not None and network.links_per_router is not None:
        most = network.routers * network.links_per_router + 1
        balanced = network.routers / 2
        routers = {"a": (network.routers, ""), "h": (network.links_per_router, "")}
        yield say("most_groups", "groups of the largest such dragonfly", "", "a h + 1", routers)
        yield say(
            "balanced_per_router",
            "devices, and global links, per router where it is balanced",
            balanced,
            "",
            "a / 2",
            routers,
        )
    yield from _paths(say, network)


def global_links(network: Network) -> Real | None:
    """Return the global links of one group, None where nothing says how many."""
    if network.global_links is not None:
        return network.global_links
    if network.routers is None or network.links_per_router is None:
        return None
    return network.routers * network.links_per_router


def _rules(network: Network, g: Real, hosts: Real) -> Iterator[Check]:
    yield Check(
        id="network-groups",
        holds=g > 1,
        subject=f"{called(network)}.groups",
        message="`{label}` has {groups} group, and nothing to join",
        inputs={"label": called(network), "groups": g},
        help="a dragonfly has two groups or more",
    )
    yield Check(
        id="network-groups-divide",
        holds=hosts == floor(hosts),
        subject=f"{called(network)}.groups",
        message="{devices} devices do not divide into {groups} groups",
        inputs={"devices": network.devices, "groups": g},
        severity="warning",
    )


def _throughput(
    say: Sayer, given: dict[str, tuple[Real, str]], ratio: Real, links: Real, g: Real
) -> Iterator[Figure]:
    """Yield what a device gets of its port where all send at once.

    *ratio* is H B / (P / G B_port): what leaves a group, of what its devices inject.
    """
    others = maximum(g - 1, 1.0)
    straight = links >= others
    for name, title, value, text, note in (
        (
            "uniform",
            "uniform traffic",
            where(straight, minimum(1.0, ratio * g / others), minimum(1.0, ratio / 2)),
            "min(1, r G / (G - 1)) where H >= G - 1, else min(1, r / 2), r = H B / (P / G B_port)",
            "straight routes, or by way of others where they do not exist",
        ),
        (
            "adversarial",
            "each group to one other, straight",
            where(straight, minimum(1.0, ratio / others), 0.0),
            "min(1, H B / (P / G B_port) / (G - 1)) where H >= G - 1, else 0",
            "0 where some groups have no link between them",
        ),
        (
            "valiant",
            "any traffic, by way of a random group",
            minimum(1.0, ratio / 2),
            "min(1, H B / (2 P / G B_port))",
            "every message takes two global links",
        ),
    ):
        yield say(name, f"throughput of a port, {title}", value, "%", text, given, note)


def _paths(say: Sayer, network: Network) -> Iterator[Figure]:
    for name, hops in (("hops", 3.0), ("valiant_hops", 5.0)):
        yield say(name, "switches on a way", hops, "", "local, global, local; twice by Valiant", {})
    latency = 2 * network.port_latency + 3 * network.switch_latency + network.cable_latency
    yield say(
        "path_latency",
        "latency of a straight way",
        "s",
        "2 t_port + 3 t_switch + t_cable",
        {
            "t_port": (network.port_latency, "s"),
            "t_switch": (network.switch_latency, "s"),
            "t_cable": (network.cable_latency, "s"),
        },
    )
