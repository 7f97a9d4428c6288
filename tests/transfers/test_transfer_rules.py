"""What a transfer may not be, and what is said of it."""

from __future__ import annotations

from typing import Any

import parcost

from ..rows import try_each

OWN = "bandwidth = 450 GB/s per_direction"


def problems(body: str, before: str = "") -> list[Any]:
    (scenario,) = parcost.load_text(f"{before}\ntransfer x {{ {body} }}\n")
    return list(scenario.evaluate().result.diagnostics)


@try_each(
    "id, body, said, hint",
    [
        (
            "total-or-shard",
            f"operation = all_gather, size = 1 MB, ranks = 8, {OWN}",
            "the size of `all_gather` needs the qualifier `total` or `shard`",
            "write `total` after the size",
        ),
        (
            "shard-of-whole",
            f"operation = all_reduce, size = 1 MB shard, ranks = 8, {OWN}",
            "every rank of `all_reduce` has the whole buffer",
            "write the size of the buffer",
        ),
        (
            "transfer-links",
            "operation = all_reduce, size = 1 MB, ranks = 8",
            "needs exactly one source of its bandwidth, but has none",
            "write one of: `bandwidth`",
        ),
        (
            "transfer-links",
            f"operation = all_reduce, size = 1 MB, group = tp, {OWN}",
            "but has a `bandwidth` and a `group`",
            "write one of: `bandwidth`",
        ),
        (
            "transfer-dimensions",
            (
                "operation = all_reduce, size = 1 MB, ranks = 16, kind = torus, "
                f"dimensions = [4, 5], {OWN}"
            ),
            "a torus of 4 x 5 has 20 nodes, but there are 16 ranks",
            "whose product is the number of ranks",
        ),
        (
            "transfer-ranks",
            f"operation = all_reduce, size = 1 MB, {OWN}",
            "`x` needs a number of ranks",
            "write `ranks`",
        ),
        (
            "transfer-ranks",
            (
                f"operation = all_reduce, size = 1 MB, ranks = 60, nodes = 8, ranks_per_node = 8, "
                f"network_bandwidth = 50 GB/s per_direction, {OWN}"
            ),
            "60 ranks are not 8 nodes x 8 = 64",
            "remove one of them",
        ),
        (
            "transfer-nodes",
            (
                f"operation = all_reduce, size = 1 MB, ranks = 60, nodes = 8, "
                f"network_bandwidth = 50 GB/s per_direction, {OWN}"
            ),
            "60 ranks are not divisible by 8 nodes",
            "the nearest numbers of ranks are 56 and 64",
        ),
        (
            "transfer-network",
            f"operation = all_reduce, size = 1 MB, ranks = 16, nodes = 2, {OWN}",
            "a transfer across 2 nodes needs `network_bandwidth`",
            "write `network_bandwidth`",
        ),
        (
            "transfer-level",
            'operation = all_reduce, size = 1 MB, ranks = 8, level = "rack"',
            "the fabric has no level, or several levels, called `rack`",
            "levels are in a `fabric` block",
        ),
        (
            "transfer-algorithm",
            f"operation = broadcast, size = 1 MB, ranks = 8, algorithm = pairwise, {OWN}",
            "`pairwise` does not support `broadcast`",
            "`van_de_geijn`",
        ),
        (
            "transfer-unable",
            (
                f"operation = all_gather, size = 1 MB total, ranks = 6, "
                f"algorithm = halving_doubling, {OWN}"
            ),
            "needs a power of two of ranks",
            "the nearest are 4 and 8",
        ),
        (
            "transfer-unable",
            (
                f"operation = all_reduce, size = 1 MB, ranks = 16, nodes = 2, algorithm = nvls, "
                f"in_network = on, network_bandwidth = 50 GB/s per_direction, {OWN}"
            ),
            "over 16 ranks, 8 on each node: it needs all ranks on one node",
            "`auto`",
        ),
        (
            "transfer-unable",
            f"operation = all_reduce, size = 1 MB, ranks = 8, algorithm = nccl, {OWN}",
            "it needs `tuning` with all of its rows, `generation`, `channels`",
            "`auto`",
        ),
        (
            "transfer-pieces",
            f"operation = broadcast, size = 1 MB, ranks = 8, pieces = 4, {OWN}",
            "`auto` sends its message in one piece",
            "`double_tree`, `ring`",
        ),
        (
            "transfer-dimensions",
            (
                f"operation = all_reduce, size = 1 MB, ranks = 32, kind = torus, "
                f"dimensions = [4, 4], {OWN}"
            ),
            "has 16 nodes, but there are 32 ranks",
            "whose product is the number of ranks",
        ),
    ],
)
def test_invalid_transfers(id: str, body: str, said: str, hint: str) -> None:
    (found,) = problems(body)
    assert found.id == id
    assert said in found.message
    assert found.help is not None
    assert hint in found.help
    assert found.labels, "it points at the attribute"


def test_a_sweep_leaves_out_the_points_that_cannot_run() -> None:
    (scenario,) = parcost.load_text(
        f"transfer x {{ operation = all_gather, size = 1 MB total, ranks = [4, 6, 8], "
        f"algorithm = halving_doubling, {OWN} }}\n"
    )
    (found,) = scenario.evaluate().results
    assert list(found.figure("x.rounds")) == [2.0, 3.0]
    assert [list(point.at.values()) for point in found.infeasible] == [[6.0]]


def test_a_group_of_the_layout_brings_its_own_ranks() -> None:
    (found,) = problems(
        "operation = all_reduce, size = 1 MB, group = tp, ranks = 4",
        "use catalog.fabrics.hgx_h100\nuse catalog.devices.h100_sxm\n"
        "cluster { devices = 64 }\nlayout { tp = 8 }",
    )
    assert found.id == "transfer-group"
    assert "`ranks` would have no effect" in found.message
    assert found.help == "leave `ranks` out, or `group`"


def test_the_qualifier_of_a_size_counts_in_every_place() -> None:
    text = f"transfer x {{ operation = all_gather, size = 1 MB total, ranks = 8, {OWN} }}\n"
    (whole,) = parcost.load_text(text)
    (part,) = parcost.load_text(text, overrides={"x.size": "1 MB shard"})
    assert part.evaluate().result.figure("x.size") == 8e6
    assert whole.evaluate().result.figure("x.size") == 1e6
    (scenario,) = parcost.load_text(text, overrides={"x.size": 2e6})
    found = scenario.evaluate().result
    assert (found.figure("x.size"), list(found.diagnostics)) == (2e6, [])


def test_the_nearest_powers_of_two_are_on_either_side() -> None:
    body = "operation = all_gather, size = 1 MB total, algorithm = halving_doubling"
    (found,) = problems(f"{body}, ranks = 12, {OWN}")
    assert found.help == "the nearest are 8 and 16"
