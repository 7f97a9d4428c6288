"""Rules of placement: a valid order, a large enough fabric, and tp in the fast domain."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from parcost import Check, Mask, Real, Study, hookimpl
from parcost.numeric import all_of, any_of, ceil_div, maximum, minimum
from parcost_plugins.physics.partition import stages
from parcost_plugins.topology import kinds
from parcost_plugins.topology.decomposition import (
    OPTIONAL,
    Decomposition,
    degrees,
    has_experts,
)
from parcost_plugins.topology.placement import place
from parcost_plugins.topology.rulebook import RULES
from parcost_plugins.topology.tiers import Tier, tiers
from parcost_plugins.vocabulary import Cluster, CollectiveChoice, Layout, PlausibleRange, Training


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of placement."""
    yield from _order(study)
    yield from _same_stages(study)
    levels = tiers(study[Cluster])
    yield from kinds.rules(levels)
    yield from _level_checks(study[Cluster], levels)
    yield from _plausibility_checks(study[PlausibleRange], levels)
    yield from _fast_domain(study)


def _order(study: Study) -> Iterator[Check]:
    """Require that the order names every degree above 1 once, and no other word."""
    layout, known = study[Layout], degrees()
    sizes = {name: stages(study) if name == "pp" else getattr(layout, name) for name in known}
    named = layout.order.split("-") if layout.order else []
    used = [name for name in known if not all_of(sizes[name] == 1)]
    left_out = [name for name in used if name not in named]
    wrong = {
        "leaves out": left_out,
        "repeats": [name for name in (*known, *OPTIONAL) if named.count(name) > 1],
        "contains names that are not degrees:": [n for n in named if n not in (*known, *OPTIONAL)],
    }
    complaints = [f"{what} {_list_text(names)}" for what, names in wrong.items() if names]
    holds: Mask = len(complaints) == (1 if left_out else 0)
    for name in left_out:  # which a sweep may do without somewhere
        holds = holds & (sizes[name] == 1)
    yield RULES.check(
        "order-names",
        holds,
        "layout.order",
        order=layout.order,
        complaints=" and ".join(complaints),
        near=_nearest_order(named, used),
    )


def _same_stages(study: Study) -> Iterator[Check]:
    """Require that the dense part and the experts of a stage use the same ranks."""
    layout, pp = study[Layout], stages(study)
    if all_of(pp == 1) or not has_experts(study):
        return
    cut = Decomposition.from_study(study)
    yield RULES.check(
        "order-of-experts",
        (pp == 1) | (cut.dense == cut.experts),
        "layout.order",
        order=layout.order,
        dense=cut.dense,
        experts=cut.experts,
    )


def _list_text(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _nearest_order(named: list[str], used: list[str]) -> str:
    """Return the valid order closest to *named* that places the degrees *used*.

    >>> _nearest_order(["tp", "pd", "pp"], ["tp", "dp"]), _nearest_order(["pp"], ["tp", "dp"])
    ('tp-dp-pp', 'pp-tp-dp')
    """
    known = [*degrees(), *OPTIONAL]
    missing = [name for name in used if name not in named]
    mended: list[str] = []
    for name in dict.fromkeys(named):
        close = get_close_matches(name, missing, n=1, cutoff=0.5) if name not in known else [name]
        mended += close
        missing = [other for other in missing if other not in close]
    return "-".join([*mended, *(name for name in used if name not in mended)])


def _level_checks(cluster: Cluster, levels: tuple[Tier, ...]) -> Iterator[Check]:
    """Require that the levels have sizes and connect all devices."""
    *inner, last = levels
    endless = [tier.name for tier in inner if tier.level.size is None and not tier.level.dimensions]
    yield RULES.check(
        "level-without-size", not endless, "cluster.fabric", level=endless[0] if endless else ""
    )
    if (last.level.size is None and not last.level.dimensions) or endless:
        return
    yield RULES.check(
        "fabric-small",
        last.capacity >= cluster.devices,
        "cluster.devices",
        notes=["size of level `{last}`: {size}, in units of {below} devices"],
        capacity=last.capacity,
        devices=cluster.devices,
        last=last.name,
        below=last.below,
        size=last.capacity / last.below,
        needed=ceil_div(cluster.devices, last.below),
    )


def _plausibility_checks(known: PlausibleRange, levels: Sequence[Tier]) -> Iterator[Check]:
    """Warn of implausible links, from confusions of bits and bytes or us and s."""
    for tier in levels:
        outermost = tier is levels[-1] and len(levels) > 1
        most = known.network_bandwidth if outermost else known.device_bandwidth
        written = tier.rate * tier.level.collisions / tier.level.efficiency
        rate = written * minimum(tier.ports, 1.0)
        yield RULES.check(
            "implausible-bandwidth",
            rate <= most,
            f"{tier.name}.bandwidth",
            factor=most / rate,
            level=tier.name,
            rate=rate / 1e9,
            most=most / 1e9,
            written=written / 1e9,
        )
        latency = tier.level.latency
        yield RULES.check(
            "implausible-latency",
            latency <= known.latency,
            f"{tier.name}.latency",
            factor=latency / known.latency,
            level=tier.name,
            latency=latency,
            most=known.latency,
        )


def _fast_domain(study: Study) -> Iterator[Check]:
    """Warn if tensor-parallel groups extend beyond the first level, with the additional time.

    The warning has the time of one all-reduce of an activation, compared with a first level that is
    large enough.
    """
    cluster, group = study[Cluster], study.group("tp")
    stays: Mask = True
    for g in group.shape[1:]:
        stays = stays & (g <= 1)
    if all_of(stays):
        return
    first, *_ = tiers(cluster)
    tp, training = study[Layout].tp, study[Training]
    choice = study.get(CollectiveChoice)
    algorithm = choice.tensor if choice else "auto"
    s, b, h = training.sequence, training.micro_batch, training.model.hidden
    bytes_ = s * b * h * training.precision.activation
    large_enough = place("tp", [(1.0, tp)], [first], tp)
    there = study.collective("all_reduce", bytes_, group, algorithm)
    inside = study.collective("all_reduce", bytes_, large_enough, algorithm)
    inner = f"the {first.capacity:g} devices of level `{first.name}`"
    cross = f"{'do not divide' if _is_cut(tp, first.capacity) else 'reach beyond'} {inner}"
    advice = f"choose a tp that divides {first.capacity:g}, and place `tp` first in `layout.order`"
    if all_of(tp <= first.capacity) and not _is_cut(tp, first.capacity):
        cross = f"are spread over {inner} and others, because `layout.order` places others first"
        advice = "place `tp` first in `layout.order`"
    yield RULES.check(
        "tp-wider-than-fast-domain",
        stays,
        "layout.tp",
        notes=[
            "the activation is sequence {s} x micro_batch {b} x hidden {h} x {e} B = {n:.4g} MiB",
            "algorithm: {how_there} out to level `{outermost}`, {how_inside} inside one `{level}`",
        ],
        factor=there.seconds / maximum(inside.seconds, sys.float_info.min),
        reads=["layout.tp"],
        tp=tp,
        cross=cross,
        advice=advice,
        cap=first.capacity,
        level=first.name,
        there=there.seconds * 1e3,
        inside=inside.seconds * 1e3,
        how_there=there.algorithm,
        how_inside=inside.algorithm,
        s=s,
        b=b,
        h=h,
        e=training.precision.activation,
        n=bytes_ / 2**20,
        outermost=[
            link.name
            for link, members in zip(group.links, group.shape, strict=True)
            if any_of(members > 1)
        ][-1],
    )


def _is_cut(ranks: Real, capacity: Real) -> bool:
    """Return whether unit boundaries split groups that would fit in a unit."""
    left = capacity % ranks  # all of it, where the groups are larger
    return all_of((left != 0) & (left != capacity))
