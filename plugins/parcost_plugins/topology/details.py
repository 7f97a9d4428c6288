"""Figures of a placement: which link each degree uses, and how much of it a stage needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from parcost import Edge, Figure, Formula, Group, Outcome, Real, Section, Study, hookimpl
from parcost.numeric import INFINITY, all_of, any_of, maximum, where
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster
from parcost_plugins.vocabulary.exchange import rail_share


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield what a node and its ports carry, the links of the groups, and their headroom."""
    yield from _machine(study)
    for _, group in study.contributions("groups"):
        if not all_of(group.ranks == 1):
            yield from _group(group)
            yield from _rail(group)
    yield from _boundary(study, outcome)


@hookimpl
def sections(study: Study) -> Iterator[Section]:
    """Say which traffic stays on a rail, where the fabric has rails."""
    if study.get(Cluster) is None:
        return
    rows: list[tuple[Any, ...]] = []
    links: list[Any] = []
    for _, group in study.contributions("groups"):
        if group.name == "job" or any(group.links is known for known in links):
            continue  # the same ranks under another name
        links.append(group.links)
        for at, level in _rails(group):
            straight = rail_share(group, at)
            alike = all_of(straight * _members(group, at) == 1)
            rows.append(
                (
                    group.name,
                    level.label,
                    (1.0 if alike else 0.0, "%"),
                    (1.0, "%") if level.pxn else (straight, "%"),
                    "inside the node first (PXN)" if level.pxn else "straight",
                )
            )
    if rows:
        yield Section(
            title="Traffic that stays on a rail",
            columns=("group", "level", "to the next node", "to all ranks", "messages go"),
            rows=rows,
            notes=["what leaves its rail goes up from its leaf, by what oversubscription leaves"],
        )


def _rails(group: Group) -> Iterator[tuple[int, Any]]:
    """Yield the levels that are rails and that *group* crosses, with their places."""
    for at, link in enumerate(group.links):
        level: Any = getattr(link, "level", None)
        if at and level is not None and level.kind == "rail" and any_of(group.shape[at] > 1):
            yield at, level


def _members(group: Group, at: int) -> Real:
    """Return the members of a unit of the level below *at*."""
    return prod(group.shape[:at], start=1.0)


def _rail(group: Group) -> Iterator[Figure]:
    """Yield what stays on the rails of a level when every rank sends to every other."""
    for at, level in _rails(group):
        yield _figure(
            f"{group.name}_on_{level.label}",
            f"of what {group.name} sends over `{level.label}`, on a rail",
            1.0 if level.pxn else rail_share(group, at),
            "%",
            "1 / u" if not level.pxn else "1, by way of the device on the other rail",
            {"u": (_members(group, at), "")},
            "in an exchange of all ranks with all; a ring joins devices of the same place",
        )


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
