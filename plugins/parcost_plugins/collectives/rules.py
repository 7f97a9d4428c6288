"""Rules of algorithms that a study names: they have to be able to run where it puts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Check, Mask, Study, called, hookimpl
from parcost.numeric import floor_log2
from parcost_plugins.vocabulary import Cluster, CollectiveChoice, Layout


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return a rule for each role whose algorithm is named."""
    choice = study.get(CollectiveChoice)
    if choice is None:
        return
    roles = {
        "tensor": choice.tensor,
        "data": choice.data,
        "pipeline": choice.pipeline,
        "expert": choice.expert,
    }
    for role, name in roles.items():
        if name != "auto":
            yield from _able(study, role, name)


def _able(study: Study, role: str, name: str) -> Iterator[Check]:
    """Require that the algorithm can run over the ranks of *role*.

    What it cannot do at all is said where it is asked for.
    """
    group_name, operations = _uses(study[Layout], role)
    if group_name not in [group.name for _, group in study.contributions("groups")]:
        return  # a dense model has no groups of experts
    group = study.group(group_name)
    below = 2.0 ** floor_log2(group.ranks)
    for operation in operations:
        found: Any = next((a for a in study.algorithms(operation) if a.name == name), None)
        if found is None or not hasattr(found, "able"):
            continue
        able: Mask = found.able(operation, group)
        if able is True:
            continue
        remedy = getattr(found, "remedy", lambda *_: "")(group, called(study[Cluster].fabric))
        power = operation in getattr(found, "of_powers", ())
        yield Check(
            id="collective-unable",
            holds=able | (group.ranks <= 1),
            subject=f"collectives.{role}",
            message="`{name}` cannot do `{operation}` over the {ranks} ranks of `{group}`, "
            "{local} on each node: it needs {needs}",
            inputs={
                "name": name,
                "operation": operation,
                "ranks": group.ranks,
                "group": group_name,
                "local": group.shape[0],
                "needs": found.needs(operation),
                "below": below,
                "above": 2 * below,
                "remedy": remedy,
            },
            help=_help(power=power, remedy=bool(remedy)),
        )


def _help(*, power: bool, remedy: bool) -> str:
    if remedy:
        return "`{remedy}` says that the switches can; `auto` takes an algorithm that can"
    return "the nearest are {below} and {above}" if power else "`auto` takes one that can"


def _uses(layout: Layout, role: str) -> tuple[str, tuple[str, ...]]:
    """Return the group of *role*, and the operations that it runs."""
    parts = ("all_gather", "reduce_scatter")
    if role == "tensor":
        return "tp", parts if layout.sequence_parallel else ("all_reduce",)
    if role == "data":
        return "dp_cp", parts if layout.zero else ("all_reduce",)
    return ("pp", ("point_to_point",)) if role == "pipeline" else ("ep", ("all_to_all",))
