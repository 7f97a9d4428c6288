"""Ranks by degree: the devices of a layout, and the coordinates of a rank."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Formula, Real, Sheet, Study, block_name
from parcost.numeric import divides, where
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.physics.neighbours import all_divisors
from parcost_plugins.vocabulary import Grid

_DEGREES = ("tp", "cp", "dp", "pp")


def grids(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``grid`` block."""
    for grid in study.all(Grid):
        order = grid.order.split("-")
        if sorted(order) != sorted(_DEGREES):
            yield RULES.check("grid-order", False, f"{block_name(grid)}.order", order=grid.order)
            continue
        yield from _rules(grid)
        yield from _sizes(grid)
        yield from _coordinates(grid, order)
        if grid.machine is not None:
            yield _layouts(grid, grid.machine)


def _devices(grid: Grid) -> Real:
    return grid.tp * grid.cp * grid.pp * grid.dp * (grid.ep if grid.experts == "apart" else 1.0)


def _sizes(grid: Grid) -> Iterator[Figure]:
    sheet = Sheet(
        block_name(grid),
        tp=grid.tp,
        cp=grid.cp,
        pp=grid.pp,
        dp=grid.dp,
        ep=grid.ep,
        node=grid.node,
    )
    apart = grid.experts == "apart"
    yield sheet(
        "devices",
        "devices",
        "",
        "tp cp pp dp ep" if apart else "tp cp pp dp",
        note="expert parallelism adds ranks"
        if apart
        else "expert parallelism uses the same devices",
    )
    yield sheet("replica", "devices of one replica", "", "tp cp pp")
    yield sheet("nodes", "nodes", "", "ceil(devices / node)")
    yield sheet("replica_nodes", "nodes of one replica", "", "ceil(replica / node)")
    yield sheet(
        "fast_domain",
        "devices of a tensor and context parallel group",
        "",
        "tp cp",
        note="they need the fastest links",
    )
    yield sheet("batch_share", "share of the batch that one replica trains on", "", "1 / dp")


def _coordinates(grid: Grid, order: list[str]) -> Iterator[Figure]:
    sheet = Sheet(block_name(grid), rank=grid.rank)
    stride: Real = 1.0
    for name in order:
        degree = getattr(grid, name)
        yield sheet(
            f"{name}_rank",
            f"position of the rank in its {name} group",
            "",
            f"floor(rank / stride) - floor(floor(rank / stride) / {name}) {name}",
            {name: degree},
            stride=stride,
            note=f"order {grid.order}",
        )
        stride = stride * degree


def _layouts(grid: Grid, machine: int) -> Figure:
    """Return the number of layouts (tp, pp, dp) that use the whole machine, with tp in a node."""
    every = all_divisors(machine)
    found: Real = 0.0
    for tp in every:
        left = float(sum(1 for pp in every if machine // tp % pp == 0))
        found = found + where(divides(float(tp), grid.node), left, 0.0)
    counted = Formula(
        text="number of tp that divide a node, times pp that divide the remaining devices",
        inputs={"node": grid.node, "machine": machine},
        value=found,
    )
    title = "layouts of tp, pp and dp that use all devices"
    return Sheet(block_name(grid))("layouts", title, "", counted)


def _rules(grid: Grid) -> Iterator[Check]:
    devices, within = _devices(grid), grid.tp * grid.cp
    yield RULES.check(
        "grid-rank",
        grid.rank < devices,
        f"{block_name(grid)}.rank",
        rank=grid.rank,
        last=devices - 1,
    )
    yield RULES.check(
        "grid-node", within <= grid.node, f"{block_name(grid)}.tp", within=within, node=grid.node
    )
