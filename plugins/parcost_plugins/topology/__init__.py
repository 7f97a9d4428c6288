"""Groups of ranks on the nested levels of a fabric.

``layout.order`` says which degree varies fastest over neighbouring devices. A degree is
whatever the default order names, so that a layout with further degrees needs nothing
here. Placement depends on the product of the degrees before it, its *stride*, alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import attrs

from parcost import Group, Real, Study, hookimpl
from parcost_plugins.topology.placement import place, tiers
from parcost_plugins.vocabulary import Cluster, Layout


@hookimpl
def groups(study: Study) -> Iterator[Group]:
    """Place the group of every degree."""
    cluster, layout = study[Cluster], study[Layout]
    levels = tiers(cluster)
    stride: Real = 1.0
    for name in placed(layout.order):
        size = getattr(layout, name)
        yield place(name, stride=stride, size=size, levels=levels, devices=cluster.devices)
        stride = stride * size


def degrees() -> list[str]:
    """Return the names of the degrees of a layout, in the default order."""
    default: str = attrs.fields(cast("Any", Layout)).order.default
    return default.split("-")


def placed(order: str) -> list[str]:
    """Return the degrees as *order* places them; those that it leaves out come last.

    >>> placed("pp-tp-dp"), placed("dp-typo")
    (['pp', 'tp', 'dp'], ['dp', 'tp', 'pp'])
    """
    known = degrees()
    named = [name for name in dict.fromkeys(order.split("-")) if name in known]
    return [*named, *(name for name in known if name not in named)]
