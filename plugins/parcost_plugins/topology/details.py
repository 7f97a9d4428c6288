"""Figures of a placement: the link of each parallel degree, and the load of stage boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from parcost import Edge, Figure, Group, Outcome, Real, Section, Sheet, Study, hookimpl
from parcost.numeric import all_of, any_of
from parcost_plugins.physics.exchange import rail_share
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Yield node bandwidths, the links of the groups, and the headroom of stage boundaries."""
    if brief:
        return
    yield from _machine(study)
    for _, group in study.contributions("groups"):
        if not all_of(group.ranks == 1):
            yield from _group(group)
            yield from _rail(group)
    yield from _boundary(study, outcome)


@hookimpl
def sections(study: Study) -> Iterator[Section]:
    """Yield the share of traffic that stays within a rail, if the fabric has rails."""
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
            title="Traffic that stays on its rail",
            columns=("group", "level", "to the next node", "to all ranks", "route"),
            rows=rows,
            notes=["traffic to another rail leaves its leaf at the oversubscribed bandwidth"],
        )


def _rails(group: Group) -> Iterator[tuple[int, Any]]:
    """Yield the rail levels that *group* crosses, each with its index."""
    for at, link in enumerate(group.links):
        level: Any = link.level
        if at and level is not None and level.kind == "rail" and any_of(group.shape[at] > 1):
            yield at, level


def _members(group: Group, at: int) -> Real:
    """Return the number of members in a unit of the level below *at*."""
    return prod(group.shape[:at], start=1.0)


def _rail(group: Group) -> Iterator[Figure]:
    """Yield the share of an all-to-all that stays within the rails of a level."""
    sheet = Sheet()
    for at, level in _rails(group):
        share = "1, as the device on the other rail forwards the data"
        symbols: dict[str, Real] = {}
        if not level.pxn:
            share = "a / u, a is 1 if members have the same positions in their units of u"
            u = _members(group, at)
            symbols = {"a": rail_share(group, at) * u, "u": u}
        yield sheet(
            f"{group.name}_on_{level.label}",
            f"share of {group.name} over `{level.label}` that stays on a rail",
            "%",
            share,
            symbols,
            note="in an all-to-all; a ring joins devices of the same position",
        )


def _machine(study: Study) -> Iterator[Figure]:
    """Yield the bandwidths of a node: the first level, and the ports out of it."""
    node, *outer = tiers(study[Cluster])
    sheet = Sheet(B=(node.rate, "B/s"), ports=node.ports)
    achieved = "achieved, one direction"
    yield sheet(
        "device_bandwidth",
        f"bandwidth of a device over `{node.name}`",
        "GB/s",
        "ports B",
        note=achieved,
    )
    if not outer or node.level.kind == "torus":  # which is not a node with ports of its own
        return
    port = outer[0]
    sheet.symbols |= {"B_port": (port.rate, "B/s"), "k": port.ports, "devices": port.below}
    here = f"`{node.name}`"
    ports = f"bandwidth of all ports of {here}"
    for name, title, text, note in (
        ("port_bandwidth", f"bandwidth of a port of {here}, one direction", "B_port", "achieved"),
        ("node_bandwidth", f"{ports}, one direction", "k devices B_port", "achieved"),
        (
            "node_bandwidth_bidirectional",
            f"{ports}, both directions",
            "2 node_bandwidth",
            "no collective uses both directions at the same time",
        ),
        (
            "device_share",
            f"bandwidth of a device out of {here}, if all devices communicate",
            "k B_port",
            achieved,
        ),
    ):
        yield sheet(name, title, "GB/s", text, note=note)
    yield sheet(
        "node_ratio",
        f"bandwidth of a device, `{node.name}` / `{port.name}`",
        "",
        "device_bandwidth / device_share",
        note="both in one direction",
    )


def _group(group: Group) -> Iterator[Figure]:
    """Yield the bandwidth of a ring over a group; the note names its slowest level."""
    flat = group.flat
    sheet = Sheet(B=(flat.explain_bandwidth(), "B/s"), P=group.ranks)
    yield sheet(
        f"{group.name}_bandwidth",
        f"bandwidth of a ring of {group.name}",
        "GB/s",
        "B, of a ring over all ranks",
        note=f"slowest level: `{flat.name}`; all ports, one direction",
    )
    yield sheet(f"{group.name}_ranks", f"ranks of {group.name}", "", "P")
    outer = {f"g{i}": members for i, members in enumerate(group.shape[1:], 1)}
    yield sheet(
        f"{group.name}_units",
        f"number of `{group.links[0].name}` units that {group.name} spans",
        "",
        f"{' '.join(outer) or '1'}, largest number of one group",
        outer,
    )


def _boundary(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the average bandwidth that a stage boundary needs, and the available one."""
    cut = outcome.pipeline
    hop = next((line.term for line in outcome.ledger if isinstance(line.term, Edge)), None)
    if hop is None:
        return
    link = study.group("pp").hop
    sheet = Sheet(
        m=cut.micro_batches,
        v=cut.chunks,
        n=(hop.bytes_, "B"),
        T=(outcome.step_seconds, "s"),
        B=(link.explain_bandwidth(), "B/s"),
    )
    yield sheet(
        "pp_sustained",
        "bandwidth that a boundary between stages needs",
        "GB/s",
        "m v n / T",
        note="of one rank, in one direction, mean over the step",
    )
    yield sheet(
        "pp_headroom",
        f"bandwidth of `{link.name}` / bandwidth that a boundary needs",
        "",
        "pp_sustained > 0 ? B / pp_sustained : infinity",
    )
