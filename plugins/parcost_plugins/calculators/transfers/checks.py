"""Rules of transfers: ranks, links, algorithm and size."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Collective, Group, Study, block_name
from parcost.numeric import any_of, divides, floor_log2
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.calculators.transfers.estimate import DIVIDED, candidates
from parcost_plugins.calculators.transfers.place import level, level_names, ranks
from parcost_plugins.vocabulary import Transfer


def description_checks(study: Study, transfer: Transfer) -> Iterator[Check]:
    """Require that a spec states ranks, links and size of a transfer once, without ambiguity."""
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
        yield RULES.check(
            "transfer-algorithm",
            False,
            subject,
            help="these do: " + ", ".join(f"`{other}`" for other in offered),
            name=name,
            operation=operation,
        )
        return
    if transfer.pieces is not None:
        cutting = [
            k.name for k in study.algorithms(operation) if k.cut(transfer.pieces) is not None
        ]
        yield RULES.check(
            "transfer-pieces",
            name in cutting,
            f"{block_name(transfer)}.pieces",
            help="name a pipelined one: " + ", ".join(f"`{c}`" for c in sorted(cutting))
            if cutting
            else "this operation has no pipelined algorithm; `chunks` splits it into several calls",
            name=name,
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
    yield RULES.check(
        "transfer-unable",
        able,
        f"{block_name(transfer)}.algorithm",
        help="the nearest are {below} and {above}"
        if power
        else "`auto` chooses an algorithm that supports them",
        name=algorithm.name,
        operation=transfer.operation,
        ranks=group.ranks,
        local=group.shape[0],
        needs=needs,
        below=below,
        above=2 * below,
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
        yield RULES.check("total-or-shard", False, subject, inputs=inputs)
    if operation not in DIVIDED and said == "shard":
        yield RULES.check("shard-of-whole", False, subject, inputs=inputs)


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
    yield RULES.check(
        "transfer-links",
        len(ways) == 1,
        f"{name}.{ways[-1] if ways else 'bandwidth'}",
        name=name,
        ways=" and ".join(f"a `{w}`" for w in ways) or "none",
    )
    if transfer.level:
        known = level_names(study)
        yield RULES.check(
            "transfer-level",
            level(study, transfer) is not None,
            f"{name}.level",
            help="levels are " + (", ".join(f"`{k}`" for k in known) or "in a `fabric` block"),
            level=transfer.level,
        )
    yield RULES.check(
        "transfer-network",
        (transfer.nodes <= 1) | (transfer.network_bandwidth is not None),
        f"{name}.nodes",
        nodes=transfer.nodes,
    )


def _layout_check(transfer: Transfer) -> Check:
    """Require that a transfer over a group of the layout does not describe ranks itself."""
    given = {
        "ranks": transfer.ranks is not None,
        "ranks_per_node": transfer.ranks_per_node is not None,
        "nodes": any_of(transfer.nodes != 1),
        "network_bandwidth": transfer.network_bandwidth is not None,
        "congestion": any_of(transfer.congestion != 1),
    }
    said = [name for name, is_given in given.items() if is_given]
    return RULES.check(
        "transfer-group",
        not said,
        f"{block_name(transfer)}.{said[0] if said else 'group'}",
        group=transfer.group,
        said=" and ".join(f"`{name}`" for name in said),
    )


def _ranks(transfer: Transfer) -> Iterator[Check]:
    name, P = block_name(transfer), ranks(transfer)
    if P is None:
        yield Check(
            id="transfer-ranks",
            holds=False,
            subject=f"{name}.ranks",
            message="`{name}` needs a number of ranks",
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
            help="remove one of them",
        )
    nodes = transfer.nodes
    yield RULES.check(
        "transfer-nodes",
        divides(nodes, P),
        f"{name}.nodes",
        P=P,
        nodes=nodes,
        below=P - P % nodes,
        above=P - P % nodes + nodes,
    )
    if transfer.dimensions:
        product = 1
        for size in transfer.dimensions:
            product *= size
        yield RULES.check(
            "transfer-dimensions",
            float(product) == P,
            f"{name}.dimensions",
            sizes=" x ".join(map(str, transfer.dimensions)),
            product=product,
            P=P,
        )
