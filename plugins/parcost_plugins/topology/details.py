"""Figures of a placement: which link each degree uses, and how much of it a stage needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from parcost import Edge, Figure, Formula, Group, Outcome, Real, Study, hookimpl
from parcost.numeric import INFINITY, all_of, maximum, where
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield what a node and its ports carry, the links of the groups, and their headroom."""
    yield from _machine(study)
    for _, group in study.contributions("groups"):
        if not all_of(group.ranks == 1):
            yield from _group(group)
    yield from _boundary(study, outcome)


def _machine(study: Study) -> Iterator[Figure]:
    """Yield the bandwidths of a node: the first level, and the ports out of it."""
    node, *outer = tiers(study[Cluster])
    inputs: dict[str, tuple[Any, str]] = {"B": (node.rate, "B/s"), "ports": (node.ports, "")}
    yield _figure(
        "device_bandwidth",
        f"out of a device, over `{node.name}`",
        node.rate * node.ports,
        "GB/s",
        "ports B",
        inputs,
        "achieved, one direction",
    )
    if not outer or node.level.kind == "torus":  # which is no node with ports of its own
        return
    port = outer[0]
    ports = port.ports * port.below
    out = {"B": (port.rate, "B/s"), "ports": (ports, ""), "devices": (port.below, "")}
    total = port.rate * ports
    for name, title, value, text, note in (
        ("port_bandwidth", "a port of", port.rate, "B", "achieved, one direction"),
        ("node_bandwidth", "all ports of", total, "ports B", "achieved, one direction"),
        (
            "node_bandwidth_bidirectional",
            "all ports of",
            2 * total,
            "2 ports B",
            "both directions together; no collective uses more than one of them at a time",
        ),
        (
            "device_share",
            "a device's share of the ports of",
            port.rate * port.ports,
            "ports B / devices",
            "while all of its neighbours communicate as well",
        ),
    ):
        yield _figure(name, f"{title} `{node.name}`", value, "GB/s", text, out, note)
    yield _figure(
        "node_ratio",
        f"`{node.name}` beside `{port.name}`, for one device",
        node.rate * node.ports / (port.rate * port.ports),
        "",
        "B_inside / B_outside",
        {},
        "both in one direction",
    )


def _group(group: Group) -> Iterator[Figure]:
    """Yield the slowest link of a group, which is named in the note."""
    flat = group.flat
    over = f"over `{flat.name}`, one direction"
    given = {"B": (flat.bandwidth, "B/s"), "alpha": (flat.latency, "s")}
    yield _figure(
        f"{group.name}_bandwidth",
        f"slowest link of {group.name}",
        flat.bandwidth,
        "GB/s",
        "B of a ring over all ranks",
        given,
        over,
    )
    units = prod(group.shape[1:], start=1.0)
    yield _figure(f"{group.name}_ranks", f"ranks of {group.name}", group.ranks, "", "as placed", {})
    yield _figure(
        f"{group.name}_units",
        f"units of `{group.links[0].name}` that {group.name} takes part in",
        units,
        "",
        "most that one group spans",
        {},
    )


def _boundary(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield what a boundary between stages needs all through the step, and what it has."""
    cut = outcome.pipeline
    hop = next((line.term for line in outcome.ledger if isinstance(line.term, Edge)), None)
    if hop is None:
        return
    link = study.group("pp").hop
    sent = cut.micro_batches * cut.chunks * hop.bytes_
    needed = sent / outcome.step_seconds
    given = {
        "m": (cut.micro_batches, ""),
        "v": (cut.chunks, ""),
        "n": (hop.bytes_, "B"),
        "T": (outcome.step_seconds, "s"),
        "B": (link.bandwidth, "B/s"),
    }
    note = "of one rank, one direction, spread over the step"
    yield _figure(
        "pp_sustained", "a boundary of stages needs", needed, "GB/s", "m v n / T", given, note
    )
    headroom = where(needed > 0, link.bandwidth / maximum(needed, 1e-300), INFINITY)
    yield _figure(
        "pp_headroom",
        f"`{link.name}` over what a boundary needs",
        headroom,
        "",
        "B / (m v n / T)",
        given,
    )


def _figure(
    name: str,
    title: str,
    value: Real,
    unit: str,
    text: str,
    inputs: Mapping[str, tuple[Any, str]],
    note: str = "",
) -> Figure:
    formula = Formula(text=text, inputs=dict(inputs))
    return Figure(name=name, title=title, value=value, unit=unit, formula=formula, note=note)
