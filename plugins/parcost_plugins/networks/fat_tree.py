"""Fat trees and rails: how many switches join so many devices, and what crosses the top."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, called
from parcost.numeric import any_of, ceil, ceil_div, floor, where
from parcost_plugins.networks.saying import Sayer, lacks
from parcost_plugins.vocabulary import Network

_SOURCE = "Al-Fares et al. 2008: k-ary fat trees; NVIDIA SuperPOD reference: rails"


def geometry(network: Network) -> Iterator[Figure | Check]:
    """Yield the switches of one tree, or of all rails, and the bandwidth across its middle.

    A leaf has o / (1 + o) of its ports down. Above it nothing is narrowed. Each rail is a
    tree of its own, of the devices with the same place in their nodes.
    """
    complaints = list(lacks(network, "radix"))
    if complaints or network.radix is None:
        yield from complaints
        return
    r, o = network.radix, network.oversubscription
    trees = network.per_node if network.kind == "rail" else 1.0
    ends = ceil_div(network.devices, trees)
    down = floor(r * o / (1 + o))
    two, three = down * r, down * r * r / 2
    levels = where(ends <= r, 1.0, where(ends <= two, 2.0, 3.0))
    up = where(levels == 1, 0.0, r - down)
    per_leaf = where(levels == 1, r, down)
    leaves = ceil_div(ends, per_leaf)
    middle = where(levels == 3, ceil(2 * leaves * up / r), 0.0)
    top = where(levels == 1, 0.0, ceil(where(levels == 3, middle * r / 2, leaves * up) / r))
    yield Check(
        id="network-too-small",
        holds=ends <= three,
        subject=f"{called(network)}.devices",
        message="three levels of switches of radix {radix} join {three}, and `{label}` has {ends}",
        inputs={"radix": r, "three": three, "label": called(network), "ends": ends},
        help="take switches of more ports",
    )
    say = Sayer(network, _SOURCE)
    given = {"R": (r, ""), "o": (o, ""), "d": (down, ""), "n": (ends, ""), "g": (trees, "")}
    yield say("levels", "levels of switches", levels, "", "1 to R, 2 to d R, 3 to d R^2 / 2", given)
    yield say("per_leaf", "devices under a leaf", per_leaf, "", "d = R o / (1 + o)", given)
    yield say("most_two_levels", "devices of two levels", trees * two, "", "g d R", given)
    yield say(
        "most_three_levels", "devices of three levels", trees * three, "", "g d R^2 / 2", given
    )
    yield say("leaves", "leaf switches", trees * leaves, "", "g ceil(n / d)", given)
    spines = where(levels == 3, middle, top)
    cores = where(levels == 3, top, 0.0)
    yield say("spines", "switches above the leaves", trees * spines, "", "links up / ports", given)
    yield say("cores", "switches above those", trees * cores, "", "links up / R", given)
    switches = trees * (leaves + middle + top)
    yield say("switches", "all switches", switches, "", "leaves + spines + cores", given)
    b = network.bandwidth
    across = where(levels == 1, network.port * ends, b * leaves * up) * trees / 2
    yield say(
        "bisection",
        "bandwidth between two halves, one direction",
        across,
        "B/s",
        "g n B_port / 2 of one switch, else g L (R - d) B / 2"
        if any_of(levels == 1)
        else "g L (R - d) B / 2",
        {**given, "L": (leaves, ""), "B": (b, "B/s")},
        "of rails: without what crosses them, which they do not join"
        if network.kind == "rail"
        else "",
    )
    hops = 2 * levels - 1
    yield say("hops", "switches on the longest way", hops, "", "2 levels - 1", given)
    yield say(
        "path_latency",
        "latency of the longest way",
        "s",
        "2 t_port + hops t_switch + t_cable",
        {
            "t_port": (network.port_latency, "s"),
            "hops": (hops, ""),
            "t_switch": (network.switch_latency, "s"),
            "t_cable": (network.cable_latency, "s"),
        },
        "on the wire: what software adds is far more",
    )
