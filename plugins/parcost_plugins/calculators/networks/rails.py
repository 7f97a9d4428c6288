"""An all-to-all over nodes with rails: direct, or in two levels through the node."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Group, Sheet, Study, block_name
from parcost_plugins.physics.exchange import AlphaBeta
from parcost_plugins.vocabulary import Level, RailExchange

_SOURCE = "NCCL 2.12 release notes: PXN; DeepEP: two-level dispatch"


def exchange(study: Study, given: RailExchange) -> Iterator[Figure]:
    """Yield times, messages and bytes of the direct and of the two-level exchange.

    In the direct exchange, blocks for other nodes leave through the port of their device, mostly to
    other rails. In the two-level exchange a device first sends to each neighbour the blocks for its
    rail. Both use the same algorithms as in a step.
    """
    n, group = given.bytes_per_rank, _group(given)
    sheet = Sheet(
        block_name(given),
        source=_SOURCE,
        n=(n, "B"),
        g=given.per_node,
        k=given.nodes,
        B_1=(given.inside, "B/s"),
        B_2=(given.outside, "B/s"),
        alpha=(given.message, "s"),
    )
    sheet.symbols["P"] = sheet.formula("g k")
    direct = study.collective("all_to_all", n, group, "pairwise").formula
    two_levels = study.collective("all_to_all", n, group, "hierarchical").formula
    yield sheet("direct_seconds", "time of a direct exchange with every rank", "s", direct)
    yield sheet(
        "two_level_seconds",
        "time of an exchange in two levels, first inside the node, then along the rail",
        "s",
        two_levels,
    )
    for name, title, unit, text in (
        (
            "pipelined_seconds",
            "time of an exchange in two levels, node and rail overlapped",
            "s",
            "max(n (g - 1) / g / B_1, n (P - g) / P / B_2) + (g + k - 2) alpha",
        ),
        (
            "direct_messages",
            "messages that a device sends out of its node, direct exchange",
            "",
            "P - g",
        ),
        ("two_level_messages", "messages that a device sends along its rail", "", "k - 1"),
        ("direct_message_bytes", "bytes of one message, direct exchange", "MB", "n / P"),
        ("two_level_message_bytes", "bytes of one message along the rail", "MB", "n / k"),
        ("port_bytes", "bytes through a port, in each direction", "MB", "n (P - g) / P"),
        ("inside_bytes", "bytes inside the node, direct exchange", "MB", "n (g - 1) / P"),
        ("pxn_bytes", "bytes inside the node, in two levels", "MB", "n (g - 1) / g"),
        (
            "crossing_bytes",
            "bytes to other rails, through other leaf switches, direct exchange",
            "MB",
            "n (P - g) / P (g - 1) / g",
        ),
        ("on_rail", "share of the bytes through the port that stays on the rail", "%", "1 / g"),
    ):
        yield sheet(name, title, unit, text)


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
