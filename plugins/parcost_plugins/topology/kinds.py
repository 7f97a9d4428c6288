"""Rules for the kinds of levels: required attributes, and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from parcost import Check
from parcost.numeric import ceil
from parcost_plugins.topology.rulebook import RULES
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
    """Require that attributes of some kinds of levels are not set for other kinds."""
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
        yield RULES.check(
            "level-kind",
            False,
            f"{tier.name}.{attribute}",
            help=f"it belongs to {' or '.join(f'`kind = {kind}`' for kind in kinds)}",
            attribute=attribute,
            level=tier.name,
            kind=level.kind,
        )


def _torus(tier: Tier) -> Iterator[Check]:
    level = tier.level
    if level.kind != "torus":
        return
    yield RULES.check(
        "torus-dimensions",
        bool(level.dimensions) and min(level.dimensions) >= 1,
        f"{tier.name}.dimensions",
        level=tier.name,
        dimensions=" x ".join(map(str, level.dimensions)) or "left out",
    )
    if level.size is not None and level.dimensions:
        yield RULES.check(
            "torus-size",
            level.size == prod(level.dimensions),
            f"{tier.name}.size",
            level=tier.name,
            dimensions=" x ".join(map(str, level.dimensions)),
            product=prod(level.dimensions),
            size=level.size,
        )


def _rail(tier: Tier, *, first: bool) -> Iterator[Check]:
    if tier.level.kind != "rail":
        return
    yield RULES.check("rail-first", not first, f"{tier.name}.kind", level=tier.name)


def _fat_tree(tier: Tier) -> Iterator[Check]:
    """Require that three levels of switches reach all ports of the level."""
    level, r = tier.level, tier.level.radix
    if r is None or level.kind not in ("rail", "fat_tree"):
        return
    ends = tier.endpoints
    yield RULES.check(
        "fat-tree-full",
        ends <= r * r * r / 4,
        f"{tier.name}.radix",
        notes=["a fat tree of three levels connects radix^3 / 4 ports"],
        level=tier.name,
        ends=ends,
        radix=r,
        most=r * r * r / 4,
        needed=2 * ceil((4 * ends) ** (1 / 3) / 2),
    )


def _dragonfly(tier: Tier) -> Iterator[Check]:
    """Require that every pair of groups has a direct link if routing is minimal."""
    level = tier.level
    if level.kind not in DRAGONFLIES:
        return
    links, others = tier.ports * tier.below, tier.capacity / tier.below - 1
    yield RULES.check(
        "dragonfly-links",
        links >= others if level.routing == "minimal" else True,
        f"{tier.name}.routing",
        links=links,
        level=tier.name,
        others=others,
    )
