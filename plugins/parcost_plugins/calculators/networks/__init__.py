"""Networks without a job: switches, links, bisection, and lower bounds of traffic.

Steady-state throughput of a fluid model: an upper bound for a traffic pattern with ideal routing.
Latency and dynamic routing are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Study, hookimpl
from parcost_plugins.vocabulary import Network, RailExchange, Sharing
from parcost_plugins.vocabulary.answers import mark_details

_ASKED: tuple[type, ...] = (Network, RailExchange, Sharing)
_HEADLINES = ("bisection", "bound", "hops", "seconds", "slowdown", "switches", "most_groups")


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check]:
    """Return the figures of all ``network``, ``rail_exchange`` and ``sharing`` blocks."""
    if any(study.all(asked) for asked in _ASKED):
        yield from _calculate(study)


def _calculate(study: Study) -> Iterator[Figure | Check]:
    from parcost_plugins.calculators.networks import (
        bounds,
        dragonfly,
        fat_tree,
        rails,
        sharing,
        torus,
    )

    geometries = {
        "fat_tree": fat_tree.geometry,
        "rail": fat_tree.geometry,
        "dragonfly": dragonfly.geometry,
        "dragonfly_plus": dragonfly.geometry,
        "torus": torus.geometry,
    }
    for network in study.all(Network):
        found = list(geometries[network.kind](network))
        for each in tuple(found):
            if isinstance(each, Figure) and each.name.endswith(".bisection"):
                found += bounds.bounds(network, each.value)
        yield from mark_details(found, *_HEADLINES)
    for exchange in study.all(RailExchange):
        headlines = ("direct_seconds", "two_level_seconds", "pipelined_seconds")
        yield from mark_details(rails.exchange(study, exchange), *headlines)
    for block in study.all(Sharing):
        yield from mark_details(sharing.flows(block), "bound", "seconds", "near", "far")
