"""Links and machines by their data sheets: one direction or both, one device or all."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Real, Study, called
from parcost_plugins.figures.naming import figures_of
from parcost_plugins.vocabulary import LinkSheet, MachineSheet


def per_direction(link: LinkSheet) -> Real | None:
    """Return the payload bandwidth of one port in one direction, if something says it."""
    if link.bandwidth is not None:
        return link.bandwidth
    if link.lane is None:
        return None
    return link.lane * link.lanes * link.payload_bits / link.line_bits


def links(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``link`` block, or what it lacks."""
    for link in study.all(LinkSheet):
        one = per_direction(link)
        if one is None:
            yield Check(
                id="link-bandwidth",
                holds=False,
                subject=called(link),
                message="neither `bandwidth` nor `lane` says how fast the link is",
                help="write `bandwidth = 400 Gbps per_direction`, or `lane` and `lanes`",
            )
            continue
        yield from _rates(link, one)


def _rates(link: LinkSheet, one: Real) -> Iterator[Figure]:
    say = figures_of(link)
    total = one * link.ports
    ports = {"B": (one, "B/s"), "ports": (link.ports, "")}
    yield say("bandwidth", "payload of a port, one direction", one, "GB/s", "of one port")
    yield say("bit_rate", "the same in bits", 8.0 * one, "Gbps", "8 B", B=(one, "B/s"))
    yield say(
        "bidirectional",
        "payload of a port, both directions",
        2.0 * one,
        "GB/s",
        "2 B",
        note="as vendors print it",
        B=(one, "B/s"),
    )
    yield say("total", "all ports, one direction", total, "GB/s", "ports B", **ports)
    yield say(
        "total_bidirectional",
        "all ports, both directions",
        2.0 * total,
        "GB/s",
        "2 ports B",
        **ports,
    )
    if link.reference is not None and (other := per_direction(link.reference)) is not None:
        faster = other * link.reference.ports
        yield say(
            "slower",
            f"times slower than `{called(link.reference)}`",
            faster / total,
            "",
            "total of the other / total, one direction each",
            other=(faster, "B/s"),
            total=(total, "B/s"),
        )
    if link.demand is not None:
        yield say(
            "headroom",
            "times that the link carries what is asked of it",
            total / link.demand,
            "",
            "total / demand",
            total=(total, "B/s"),
            demand=(link.demand, "B/s"),
        )
        yield say(
            "occupied", "share of the link in use", link.demand / total, "%", "demand / total"
        )


def machines(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``machine`` block."""
    for machine in study.all(MachineSheet):
        say = figures_of(machine)
        device, n, compute = machine.device, machine.devices, machine.compute
        count = {"N": (n, "")}
        yield say(
            "memory",
            "memory",
            n * device.memory,
            "GiB",
            "N memory",
            memory=(device.memory, "B"),
            **count,
        )
        yield say(
            "memory_bandwidth",
            "memory bandwidth",
            n * device.memory_bandwidth,
            "TB/s",
            "N bandwidth",
            bandwidth=(device.memory_bandwidth, "B/s"),
            **count,
        )
        peak = getattr(device, compute)
        if peak is None:
            yield Check(
                id="machine-peak",
                holds=False,
                subject=f"{called(machine)}.compute",
                message="`{device}` has no {compute} peak",
                inputs={"device": called(device), "compute": compute},
            )
            continue
        count["peak"] = (peak, "FLOP/s")
        yield say("peak", f"dense {compute} peak", n * peak, "TFLOPS", "N peak", **count)
        yield say(
            "sparse_peak",
            f"{compute} peak with 2:4 sparsity",
            2.0 * n * peak,
            "TFLOPS",
            "2 N peak",
            note="as data sheets print it",
            **count,
        )
