"""Networks by themselves: switches, links, bisection, and the bounds that they set.

Steady-state throughput of the fluid model: what a pattern of traffic could reach if it
were routed well for long. Latency and adaptive routing in time are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parcost import Check, Figure, Study, hookimpl
from parcost_plugins.networks import bounds, dragonfly, fat_tree, rails, shared, torus
from parcost_plugins.vocabulary import Network, RailExchange, Sharing

_GEOMETRIES: dict[str, Callable[[Network], Iterator[Figure | Check]]] = {
    "fat_tree": fat_tree.geometry,
    "rail": fat_tree.geometry,
    "dragonfly": dragonfly.geometry,
    "dragonfly_plus": dragonfly.geometry,
    "torus": torus.geometry,
}


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check]:
    """Return what follows from every network, exchange and set of flows that is described."""
    for network in study.all(Network):
        found = list(_GEOMETRIES[network.kind](network))
        yield from found
        for each in found:
            if isinstance(each, Figure) and each.name.endswith(".bisection"):
                yield from bounds.bounds(network, each.value)
    for exchange in study.all(RailExchange):
        yield from rails.exchange(exchange)
    for sharing in study.all(Sharing):
        yield from shared.flows(sharing)
