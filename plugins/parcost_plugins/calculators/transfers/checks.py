"""Rules of transfers: ranks, links, algorithm and size."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Collective, Group, Study, block_name
from parcost.numeric import any_of, divides, floor_log2
from parcost_plugins.calculators.transfers.place import level, level_names, ranks
from parcost_plugins.calculators.transfers.pricing import DIVIDED, candidates
from parcost_plugins.vocabulary import Transfer


def description_checks(study: Study, transfer: Transfer) -> Iterator[Check]:
    """Require that ranks, links and size are each stated once, without ambiguity."""
    yield from _size(study, transfer)
    yield from _links(study, transfer)
    if transfer.group == "own":
        yield from _ranks(transfer)
    else:
        yield _layout_check(transfer)


def runs(study: Study, transfer: Transfer, group: Group) -> Iterator[Check]:
    """Require that the algorithm can run on *group*."""
    subject = f"{block_name(transfer)}.algorithm"
    name, operation = transfer.algorithm, transfer.operation
    offered = [known.name for known in reversed(study.algorithms(operation))]
    if name not in ("auto", *offered):
        yield Check(
            id="transfer-algorithm",
            holds=False,
            subject=subject,
            message="`{name}` does not support `{operation}`",
            inputs={"name": name, "operation": operation},
            help="these do: " + ", ".join(f"`{other}`" for other in offered),
        )
        return
    if transfer.pieces is not None:
        cutting = [
            k.name for k in study.algorithms(operation) if k.cut(transfer.pieces) is not None
        ]
        yield Check(
            id="transfer-pieces",
            holds=name in cutting,
            subject=f"{block_name(transfer)}.pieces",
            message="`{name}` sends its message in one piece",
            inputs={"name": name},
            help="name a pipelined one: " + ", ".join(f"`{c}`" for c in sorted(cutting))
            if cutting
            else "this operation has no pipelined algorithm; `chunks` splits it into several calls",
        )
        if name not in cutting:
            return
    if name != "auto":
        (only,) = candidates(study, transfer)
        yield from _algorithm_checks(transfer, group, only)


def _algorithm_checks(transfer: Transfer, group: Group, algorithm: Collective) -> Iterator[Check]:
    able = algorithm.able(transfer.operation, group)
    if able is True:
        return
    needs = algorithm.needs(transfer.operation)
    power = transfer.operation in algorithm.powers_of_two
    below = 2.0 ** floor_log2(group.ranks)
    yield Check(
        id="transfer-unable",
        holds=able,
        subject=f"{block_name(transfer)}.algorithm",
        message="`{name}` cannot do `{operation}` over {ranks} ranks, {local} on each node: "
        "it needs {needs}",
        inputs={
            "name": algorithm.name,
            "operation": transfer.operation,
            "ranks": group.ranks,
            "local": group.shape[0],
            "needs": needs,
            "below": below,
            "above": 2 * below,
        },
        help="the nearest are {below} and {above}" if power else "`auto` takes one that can run",
    )


def shard(study: Study, transfer: Transfer) -> bool:
    """Return whether the size describes one rank's shard."""
    return _size_qualifier(study, transfer) == "shard"


def _size_qualifier(study: Study, transfer: Transfer) -> str | None:
    """Return the qualifier of the size, such as `shard`; None if no spec states the size."""
    origin = study.origin(transfer, "size")
    if origin is None or (origin.how == "set" and not origin.word):
        return None
    return origin.word


def _size(study: Study, transfer: Transfer) -> Iterator[Check]:
    said, operation = _size_qualifier(study, transfer), transfer.operation
    subject = f"{block_name(transfer)}.size"
    inputs = {"operation": operation}
    if operation in DIVIDED and said == "":
        yield Check(
            id="total-or-shard",
            holds=False,
            subject=subject,
            message="the size of `{operation}` must say `total` or `shard`",
            inputs=inputs,
            help="write `total` after it for the whole buffer, `shard` for the part of one rank",
        )
    if operation not in DIVIDED and said == "shard":
        yield Check(
            id="shard-of-whole",
            holds=False,
            subject=subject,
            message="every rank of `{operation}` has the whole buffer, so there is no shard",
            inputs=inputs,
            help="write the size of the buffer",
        )


def _links(study: Study, transfer: Transfer) -> Iterator[Check]:
    own = transfer.bandwidth is not None
    placed = transfer.group != "own"
    ways = [
        name
        for name, given in (
            ("bandwidth", own),
            ("level", bool(transfer.level)),
            ("group", placed),
        )
        if given
    ]
    name = block_name(transfer)
    yield Check(
        id="transfer-links",
        holds=len(ways) == 1,
        subject=f"{name}.{ways[-1] if ways else 'bandwidth'}",
        message="`{name}` needs one source of its bandwidth, and has {ways}",
        inputs={"name": name, "ways": " and ".join(f"a `{w}`" for w in ways) or "none"},
        help="write one of: `bandwidth`, a `level` of the fabric, a `group` of the layout",
    )
    if transfer.level:
        known = level_names(study)
        yield Check(
            id="transfer-level",
            holds=level(study, transfer) is not None,
            subject=f"{name}.level",
            message="no single level of the fabric is called `{level}`",
            inputs={"level": transfer.level},
            help="levels are " + (", ".join(f"`{k}`" for k in known) or "in a `fabric` block"),
        )
    yield Check(
        id="transfer-network",
        holds=(transfer.nodes <= 1) | (transfer.network_bandwidth is not None),
        subject=f"{name}.nodes",
        message="{nodes} nodes need a bandwidth of the network",
        inputs={"nodes": transfer.nodes},
        help="write `network_bandwidth` of one port of a node, per direction",
    )


def _layout_check(transfer: Transfer) -> Check:
    """Require that a transfer over a group of the layout does not describe its own ranks."""
    given = {
        "ranks": transfer.ranks is not None,
        "ranks_per_node": transfer.ranks_per_node is not None,
        "nodes": any_of(transfer.nodes != 1),
        "network_bandwidth": transfer.network_bandwidth is not None,
        "congestion": any_of(transfer.congestion != 1),
    }
    said = [name for name, is_given in given.items() if is_given]
    return Check(
        id="transfer-group",
        holds=not said,
        subject=f"{block_name(transfer)}.{said[0] if said else 'group'}",
        message="the ranks and links of group `{group}` come from the layout and the fabric, "
        "so {said} would have no effect",
        inputs={
            "group": transfer.group,
            "said": " and ".join(f"`{name}`" for name in said),
        },
        help="leave {said} out, or `group`",
    )


def _ranks(transfer: Transfer) -> Iterator[Check]:
    name, P = block_name(transfer), ranks(transfer)
    if P is None:
        yield Check(
            id="transfer-ranks",
            holds=False,
            subject=f"{name}.ranks",
            message="`{name}` needs its number of ranks",
            inputs={"name": name},
            help="write `ranks`, or `nodes` and `ranks_per_node`, or a `group` of the layout",
        )
        return
    if transfer.ranks is not None:
        yield Check(
            id="transfer-ranks",
            holds=transfer.ranks == P,
            subject=f"{name}.ranks",
            message="{ranks} ranks are not {nodes} nodes x {local} = {P}",
            inputs={
                "ranks": transfer.ranks,
                "nodes": transfer.nodes,
                "local": transfer.ranks_per_node,
                "P": P,
            },
            help="leave one of them out",
        )
    nodes = transfer.nodes
    yield Check(
        id="transfer-nodes",
        holds=divides(nodes, P),
        subject=f"{name}.nodes",
        message="{P} ranks are not divisible by {nodes} nodes",
        inputs={"P": P, "nodes": nodes, "below": P - P % nodes, "above": P - P % nodes + nodes},
        help="the nearest numbers of ranks are {below} and {above}",
    )
    if transfer.dimensions:
        product = 1
        for size in transfer.dimensions:
            product *= size
        yield Check(
            id="transfer-dimensions",
            holds=float(product) == P,
            subject=f"{name}.dimensions",
            message="a torus of {sizes} = {product} places does not fit {P} ranks",
            inputs={
                "sizes": " x ".join(map(str, transfer.dimensions)),
                "product": product,
                "P": P,
            },
            help="write dimensions whose product is the number of ranks; for a part of a larger "
            "torus, write the dimensions of the part",
        )
