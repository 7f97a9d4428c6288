"""Fat trees and rails: the number of switches, and the bandwidth across the top."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Real, Sheet, block_name
from parcost.numeric import any_of, ceil_div, floor, where
from parcost_plugins.calculators.networks.requirements import missing_attributes
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.vocabulary import Network

_SOURCE = "Al-Fares et al. 2008: k-ary fat trees; NVIDIA SuperPOD reference: rails"


def geometry(network: Network) -> Iterator[Figure | Check]:
    """Yield the switches of one tree, or of all rails, and the bisection bandwidth.

    A leaf switch has the share o / (1 + o) of its ports towards devices. Levels above it have full
    bandwidth. Each rail is a separate tree, for the devices with the same index in their nodes.
    """
    if network.radix is None:
        yield from missing_attributes(network, "radix")
        return
    r, o = network.radix, network.oversubscription
    trees = network.per_node if network.kind == "rail" else 1.0
    ends = ceil_div(network.devices, trees)
    down = floor(r * o / (1 + o))
    three = down * r * r / 2
    yield RULES.check(
        "network-too-small",
        ends <= three,
        f"{block_name(network)}.devices",
        radix=r,
        three=three,
        label=block_name(network),
        ends=ends,
    )
    sheet = Sheet(
        block_name(network),
        source=_SOURCE,
        R=r,
        o=o,
        D=network.devices,
        g=trees,
        B=(network.bandwidth, "B/s"),
        B_port=(network.port, "B/s"),
    )
    symbols = sheet.symbols
    symbols["n"] = sheet.formula("ceil(D / g), devices of a tree")
    symbols["d"] = sheet.formula("floor(R o / (1 + o)), downlinks of a leaf")
    yield sheet(
        "levels", "levels of switches", "", "n <= R ? 1 : n <= d R ? 2 : 3, 3 up to d R^2 / 2"
    )
    yield sheet("per_leaf", "devices under a leaf", "", "levels == 1 ? R : d")
    yield sheet("most_two_levels", "devices of two levels", "", "g d R")
    yield sheet("most_three_levels", "devices of three levels", "", "g d R^2 / 2")
    symbols["L"] = sheet.formula("ceil(n / per_leaf), leaves of a tree")
    symbols["u"] = sheet.formula("R - d, uplinks of a leaf")
    symbols["M"] = sheet.formula("levels == 3 ? ceil(2 L u / R) : 0, in the middle of a tree")
    symbols["T"] = sheet.formula("levels == 1 ? 0 : ceil(L u / R), at the top of a tree")
    yield sheet("leaves", "leaf switches", "", "g L")
    yield sheet("spines", "spine switches", "", "g (levels == 3 ? M : T)")
    yield sheet("cores", "core switches", "", "g (levels == 3 ? T : 0)")
    yield sheet("switches", "all switches", "", "leaves + spines + cores")
    yield from _routes(
        sheet, network, levels=where(ends <= r, 1.0, where(ends <= down * r, 2.0, 3.0))
    )


def _routes(sheet: Sheet, network: Network, *, levels: Real) -> Iterator[Figure]:
    """Yield the bisection bandwidth, and the longest route of a tree with *levels*."""
    yield sheet(
        "bisection",
        "bisection bandwidth, one direction",
        "B/s",
        "g (levels == 1 ? n B_port : L u B) / 2"
        if any_of(levels == 1)
        else "g L u B / 2, u uplinks of a leaf",
        note="sum over rails, without traffic between them" if network.kind == "rail" else "",
    )
    yield sheet("hops", "switches on the longest route", "", "2 levels - 1")
    yield sheet(
        "path_latency",
        "latency of the longest route",
        "s",
        "2 t_port + hops t_switch + t_cable",
        t_port=(network.port_latency, "s"),
        t_switch=(network.switch_latency, "s"),
        t_cable=(network.cable_latency, "s"),
        note="cables and switches only, without software",
    )
