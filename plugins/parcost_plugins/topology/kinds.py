"""Rules of the kinds of levels: required attributes, and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from parcost import Check
from parcost.numeric import ceil
from parcost_plugins.topology.tiers import DRAGONFLIES, Tier

_SWITCHED = ("switch", "rail", "fat_tree", "ethernet")


def rules(levels: tuple[Tier, ...]) -> Iterator[Check]:
    """Return the rules of the kinds of *levels*."""
    for tier in levels:
        yield from _kind_checks(tier)
        yield from _torus(tier)
        yield from _rail(tier, first=tier is levels[0])
        yield from _fat_tree(tier)
        yield from _dragonfly(tier)


def _kind_checks(tier: Tier) -> Iterator[Check]:
    """Require that attributes of some kinds only are not set for others."""
    level = tier.level
    said = (
        ("dimensions", bool(level.dimensions), ("torus",)),
        ("wrap", not level.wrap, ("torus",)),
        ("pxn", level.pxn, ("rail",)),
        ("routing", level.routing != "adaptive", DRAGONFLIES),
        ("radix", level.radix is not None, ("rail", "fat_tree")),
        ("in_network", level.in_network, _SWITCHED),
    )
    for attribute, given, kinds in said:
        if not given or level.kind in kinds:
            continue
        yield Check(
            id="level-kind",
            holds=False,
            subject=f"{tier.name}.{attribute}",
            message="`{attribute}` does not apply to level `{level}`, whose kind is {kind}",
            inputs={"attribute": attribute, "level": tier.name, "kind": level.kind},
            help=f"it belongs to {' or '.join(f'`kind = {kind}`' for kind in kinds)}",
        )


def _torus(tier: Tier) -> Iterator[Check]:
    level = tier.level
    if level.kind != "torus":
        return
    yield Check(
        id="torus-dimensions",
        holds=bool(level.dimensions) and min(level.dimensions) >= 1,
        subject=f"{tier.name}.dimensions",
        message="level `{level}` is a torus, and its dimensions are {dimensions}",
        inputs={
            "level": tier.name,
            "dimensions": " x ".join(map(str, level.dimensions)) or "left out",
        },
        help="write the number of units along each dimension, such as `dimensions = [16, 16]`",
    )
    if level.size is not None and level.dimensions:
        yield Check(
            id="torus-size",
            holds=level.size == prod(level.dimensions),
            subject=f"{tier.name}.size",
            message="the dimensions {dimensions} of level `{level}` have {product} units, and "
            "its size is {size}",
            inputs={
                "level": tier.name,
                "dimensions": " x ".join(map(str, level.dimensions)),
                "product": prod(level.dimensions),
                "size": level.size,
            },
            help="write `size = {product}`, or leave it out: it follows from the dimensions",
        )


def _rail(tier: Tier, *, first: bool) -> Iterator[Check]:
    if tier.level.kind != "rail":
        return
    yield Check(
        id="rail-first",
        holds=not first,
        subject=f"{tier.name}.kind",
        message="level `{level}` is a rail, and there is no node level inside it",
        inputs={"level": tier.name},
        help="a rail connects the devices with the same index in their nodes: write a level `node` "
        "before it",
    )


def _fat_tree(tier: Tier) -> Iterator[Check]:
    """Require that three levels of switches reach all ports of the level."""
    level, r = tier.level, tier.level.radix
    if r is None or level.kind not in ("rail", "fat_tree"):
        return
    ends = tier.endpoints
    yield Check(
        id="fat-tree-full",
        holds=ends <= r * r * r / 4,
        subject=f"{tier.name}.radix",
        message="level `{level}` connects {ends} ports, and three levels of switches of radix "
        "{radix} connect at most {most}",
        inputs={
            "level": tier.name,
            "ends": ends,
            "radix": r,
            "most": r * r * r / 4,
            "needed": 2 * ceil((4 * ends) ** (1 / 3) / 2),
        },
        notes=["a fat tree of three levels connects radix^3 / 4 ports"],
        help="write `radix = {needed}`",
    )


def _dragonfly(tier: Tier) -> Iterator[Check]:
    """Require that every pair of groups has a direct link if routing is minimal."""
    level = tier.level
    if level.kind not in DRAGONFLIES:
        return
    links, others = tier.ports * tier.below, tier.capacity / tier.below - 1
    yield Check(
        id="dragonfly-links",
        holds=links >= others if level.routing == "minimal" else True,
        subject=f"{tier.name}.routing",
        message="minimal routing needs a global link to every other group: a group of level "
        "`{level}` has {links}, and there are {others} other groups",
        inputs={"links": links, "level": tier.name, "others": others},
        help="write `ports = {others}`, or `routing = adaptive`",
    )
