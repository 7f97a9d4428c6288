"""Data-sheet values of links and machines, per direction or both, per device or in total."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Formula, Sheet, Study, block_name, formula
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.vocabulary import LinkSheet, MachineSheet


def port_bandwidth(link: LinkSheet) -> Formula | None:
    """Return the payload bandwidth of one port in one direction, None if unknown."""
    if link.bandwidth is not None:
        return formula("B", B=(link.bandwidth, "B/s"))
    if link.lane is None:
        return None
    return formula(
        "lane lanes payload / line, bits of a code that are payload",
        lane=(link.lane, "B/s"),
        lanes=link.lanes,
        payload=link.payload_bits,
        line=link.line_bits,
    )


def all_ports(link: LinkSheet) -> Formula | None:
    """Return the payload bandwidth of all ports together in one direction, None if unknown."""
    one = port_bandwidth(link)
    return None if one is None else formula("ports B", ports=link.ports, B=(one, "B/s"))


def links(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``link`` block, or errors for missing inputs."""
    for link in study.all(LinkSheet):
        one = port_bandwidth(link)
        if one is None:
            yield RULES.check("link-bandwidth", False, block_name(link))
            continue
        yield from _rates(link, one)


def _rates(link: LinkSheet, one: Formula) -> Iterator[Figure]:
    sheet = Sheet(block_name(link), B=(one, "B/s"), ports=link.ports)
    yield sheet("bandwidth", "payload of a port, one direction", "GB/s", one)
    yield sheet("bit_rate", "payload of a port in bits, one direction", "Gbps", "8 B")
    yield sheet(
        "bidirectional",
        "payload of a port, both directions",
        "GB/s",
        "2 B",
        note="as in vendor data sheets",
    )
    yield sheet("total", "all ports, one direction", "GB/s", "ports B")
    yield sheet("total_bidirectional", "all ports, both directions", "GB/s", "2 ports B")
    if link.reference is not None and (other := all_ports(link.reference)) is not None:
        yield sheet(
            "slower",
            f"times slower than `{block_name(link.reference)}`",
            "",
            "other / total",
            other=(other, "B/s"),
            note="one direction each",
        )
    if link.demand is not None:
        sheet.symbols["demand"] = (link.demand, "B/s")
        yield sheet("headroom", "link capacity / demand", "", "total / demand")
        yield sheet("occupied", "share of the link in use", "%", "demand / total")


def machines(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``machine`` block."""
    for machine in study.all(MachineSheet):
        device, compute = machine.device, machine.compute
        peak = getattr(device, compute)
        sheet = Sheet(
            block_name(machine),
            N=machine.devices,
            M=(device.memory, "B"),
            B=(device.memory_bandwidth, "B/s"),
            F=(peak, "FLOP/s"),
        )
        yield sheet("memory", "memory", "GiB", "N M")
        yield sheet("memory_bandwidth", "memory bandwidth", "TB/s", "N B")
        if peak is None:
            yield RULES.check(
                "machine-peak",
                False,
                f"{block_name(machine)}.compute",
                device=block_name(device),
                compute=compute,
            )
            continue
        yield sheet("peak", f"dense {compute} peak", "TFLOPS", "N F")
        yield sheet(
            "sparse_peak",
            f"{compute} peak with 2:4 sparsity",
            "TFLOPS",
            "2 N F",
            note="as in vendor data sheets",
        )
