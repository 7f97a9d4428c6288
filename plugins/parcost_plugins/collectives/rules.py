"""Rules of algorithms named in a study: they must be able to run on its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from parcost import Check, Group, Study, block_name, hookimpl
from parcost.numeric import any_of, floor_log2
from parcost_plugins.collectives.rulebook import RULES
from parcost_plugins.physics.context import algorithm
from parcost_plugins.physics.run_choices import scatters, shards_states
from parcost_plugins.vocabulary import Cluster, CollectiveChoice, Compression, Layout


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return a rule for each role with a named algorithm."""
    choice = study.get(CollectiveChoice)
    if choice is None:
        return
    yield from _table_checks(study, choice)
    for role in _USES:
        name = getattr(choice, role)
        if name != "auto":
            yield from _algorithm_checks(study, role, name)


def _table_checks(study: Study, choice: CollectiveChoice) -> Iterator[Check]:
    """Require that a named table has a row for the device's generation."""
    if choice.tuning is None and choice.generation == "unknown":
        return
    device = study[Cluster].device
    table = choice.tuning or device.tuning
    if table is None:
        return
    row = device.generation if choice.generation == "unknown" else choice.generation
    rows = [block_name(one) for one in table.generations]
    yield RULES.check(
        "tuning-row",
        row in rows,
        "collectives.tuning" if choice.generation == "unknown" else "collectives.generation",
        table=block_name(table),
        row=row,
        rows=", ".join(f"`{one}`" for one in rows),
    )


def _algorithm_checks(study: Study, role: str, name: str) -> Iterator[Check]:
    """Require that the algorithm supports the operations of *role*, and runs on its group."""
    group_name = _GROUPS[role]
    if group_name not in [group.name for _, group in study.contributions("groups")]:
        return  # a dense model has no groups of experts
    group = study.group(group_name)
    below = 2.0 ** floor_log2(group.ranks)
    for operation in _USES[role](study):
        found = next(iter(study.candidates(operation, name)), None)
        if found is None:
            yield _operation_check(study, role, name, operation, group)
            continue
        able = found.able(operation, group)
        if able is True:
            continue
        remedy = found.remedy(group, block_name(study[Cluster].fabric))
        power = operation in found.powers_of_two
        yield RULES.check(
            "collective-unable",
            able | (group.ranks <= 1),
            f"collectives.{role}",
            help=_help(power=power, remedy=bool(remedy)),
            name=name,
            operation=operation,
            ranks=group.ranks,
            group=group_name,
            local=group.shape[0],
            needs=found.needs(operation),
            below=below,
            above=2 * below,
            remedy=remedy,
        )


def _operation_check(study: Study, role: str, name: str, operation: str, group: Group) -> Check:
    """Return the rule that the named algorithm supports *operation*, on more than one rank."""
    does = sorted(study.plugins.offers("collectives")[name][1].operations)
    others = sorted(known.name for known in study.candidates(operation))
    return RULES.check(
        "collective-operation",
        group.ranks <= 1,
        f"collectives.{role}",
        name=name,
        operation=operation,
        group=group.name,
        does=" and ".join(f"`{one}`" for one in does),
        others=", ".join(f"`{one}`" for one in others),
    )


def _help(*, power: bool, remedy: bool) -> str:
    if remedy:
        return (
            "`{remedy}` declares that the switches reduce; `auto` chooses an algorithm that does "
            "not need it"
        )
    return (
        "the nearest are {below} and {above}"
        if power
        else "`auto` chooses one that supports this group"
    )


def _tensor(study: Study) -> tuple[str, ...]:
    return _SHARES if study[Layout].sequence_parallel else ("all_reduce",)


def _data(study: Study) -> tuple[str, ...]:
    """Return the data-parallel operations on gradients and parameters, after compression."""
    method = study[Compression].method
    reduced = "reduce_scatter" if scatters(study) else "all_reduce"
    if method == "power_sgd":
        reduced = "all_reduce"
    elif method not in ("none", "fp16", "bf16"):  # what is packed is added up after it arrives
        reduced = "all_gather"
    needed = [reduced, *(["all_gather"] if shards_states(study) else [])]
    names = [group.name for _, group in study.contributions("groups")]
    further = [name for name in ("replicate", "workers") if name in names]
    if any(any_of(study.group(name).ranks > 1) for name in further):
        needed.append("all_reduce")
    return tuple(dict.fromkeys(needed))


def _context(study: Study) -> tuple[str, ...]:
    return _CONTEXT[algorithm(study)]


_SHARES = ("all_gather", "reduce_scatter")
_CONTEXT: Mapping[str, tuple[str, ...]] = {
    "ring": ("point_to_point",),
    "all_gather": _SHARES,
    "ulysses": ("all_to_all",),
    "hybrid": ("all_to_all", "point_to_point"),
}
_GROUPS = {"tensor": "tp", "data": "dp_cp", "pipeline": "pp", "context": "cp", "expert": "ep"}
_USES: Mapping[str, Callable[[Study], tuple[str, ...]]] = {
    "tensor": _tensor,
    "data": _data,
    "pipeline": lambda _: ("point_to_point",),
    "context": _context,
    "expert": lambda _: ("all_to_all",),
}
