"""An all-to-all over nodes whose devices are on rails: straight, or first inside the node."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Group, Study
from parcost.numeric import maximum
from parcost_plugins.networks.saying import Sayer
from parcost_plugins.vocabulary import Level, RailExchange
from parcost_plugins.vocabulary.exchange import AlphaBeta

_SOURCE = "NCCL 2.12 release notes: PXN; DeepEP: two-level dispatch"


def exchange(study: Study, given: RailExchange) -> Iterator[Figure]:
    """Yield times, messages and bytes of the direct exchange and of that in two levels.

    Straight, all but the blocks for one's own node leave the port, most of them for other
    rails. In two levels a device first hands to each neighbour what is for its rail. Both are
    the algorithms of a step.
    """
    n, g, k = given.bytes_per_rank, given.per_node, given.nodes
    total = g * k
    b1, b2, alpha, o = given.inside, given.outside, given.message, given.oversubscription
    inside, first = n * (g - 1) / total, n * (g - 1) / g
    out = n * (total - g) / total
    say = Sayer(given, _SOURCE)
    letters = {
        "n": (n, "B"),
        "g": (g, ""),
        "k": (k, ""),
        "P": (total, ""),
        "B_1": (b1, "B/s"),
        "B_2": (b2, "B/s"),
        "alpha": (alpha, "s"),
        "o": (o, ""),
    }
    crossing = out * (g - 1) / g
    group = _group(given)
    direct = study.collective("all_to_all", n, group, "pairwise").seconds
    two_levels = study.collective("all_to_all", n, group, "hierarchical").seconds
    start = (g - 1 + k - 1) * alpha
    levels = (first / b1, out / b2)
    for name, title, value, unit, text in (
        (
            "direct_seconds",
            "straight to every rank",
            direct,
            "s",
            "max(n (g - 1) / P / B_1, n (P - g) / P / B_2 x max(1, o (g - 1) / g)) + (P - 1) alpha",
        ),
        (
            "two_level_seconds",
            "first inside the node, then along the rail",
            two_levels,
            "s",
            "n (g - 1) / g / B_1 + n (k - 1) / k / B_2 + (g + k - 2) alpha",
        ),
        (
            "pipelined_seconds",
            "the same, both at once",
            maximum(levels[0], levels[1]) + start,
            "s",
            "the longer of the two",
        ),
        ("direct_messages", "messages that leave a device straight", total - g, "", "P - g"),
        ("two_level_messages", "messages along the rail", k - 1, "", "k - 1"),
        ("direct_message_bytes", "bytes of one, straight", n / total, "MB", "n / P"),
        ("two_level_message_bytes", "bytes of one along the rail", n / k, "MB", "n / k"),
        ("port_bytes", "bytes through a port, either way", out, "MB", "n (P - g) / P"),
        ("inside_bytes", "bytes inside the node, straight", inside, "MB", "n (g - 1) / P"),
        ("pxn_bytes", "bytes inside the node, in two levels", first, "MB", "n (g - 1) / g"),
        (
            "crossing_bytes",
            "bytes straight to other rails, which leave the leaf",
            crossing,
            "MB",
            "n (P - g) / P x (g - 1) / g",
        ),
        ("on_rail", "of the bytes through the port, on the rail", 1 / g, "%", "1 / g"),
    ):
        yield say(name, title, value, unit, text, letters)


def _group(given: RailExchange) -> Group:
    """Return all devices of the nodes, whose ports are on rails."""
    g, k, alpha = given.per_node, given.nodes, given.message
    node = Level(
        label="node",  # type: ignore[call-arg]
        bandwidth=given.inside,
        latency=alpha,
    )
    rail = Level(
        label="rail",  # type: ignore[call-arg]
        bandwidth=given.outside,
        latency=alpha,
        kind="rail",
        oversubscription=given.oversubscription,
    )
    links = (
        AlphaBeta(name="node", latency=alpha, bandwidth=given.inside, level=node),
        AlphaBeta(name="rail", latency=alpha, bandwidth=given.outside, level=rail),
    )
    return Group(name="devices", ranks=g * k, shape=(g, k), links=links)
