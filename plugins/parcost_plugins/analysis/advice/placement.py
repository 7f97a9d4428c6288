"""Other orders of the degrees over the devices, each evaluated as a change of the study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import evolve

from parcost import Study
from parcost.numeric import all_of
from parcost_plugins.analysis.advice.changes import Change
from parcost_plugins.vocabulary import Cluster, Layout

_DEGREES = ("tp", "cp", "dp", "pp")


def orders(study: Study) -> list[Change]:
    """Return the valid orders that move one degree above 1 to another place.

    There are none if all devices are on one level, where the order has no effect.
    """
    layout, cluster = study[Layout], study[Cluster]
    first = cluster.fabric.levels[0]
    if len(cluster.fabric.levels) == 1 or (first.size or 0) >= cluster.devices:
        return []
    named = layout.order.split("-")
    if set(named) - set(_DEGREES):
        return []  # the order places experts as well
    used = [name for name in named if not all_of(getattr(layout, name) == 1)]
    changes = [Change(layout, "order", "-".join(order)) for order in _reorderings(used)]
    return [change for change in changes if _is_legal(study, change)]


def _reorderings(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the orders in which one name is moved, without duplicates.

    >>> list(_reorderings(["tp", "dp"]))
    [('dp', 'tp')]
    """
    seen = {tuple(names)}
    for name in names:
        others = [other for other in names if other != name]
        for place in range(len(names)):
            order = (*others[:place], name, *others[place:])
            if order not in seen:
                seen.add(order)
                yield order


def _is_legal(study: Study, change: Change) -> bool:
    layout: Any = study[Layout]
    layout = evolve(layout, order=change.value)
    return all_of(study.with_blocks({Layout: (layout,)}).legal())
