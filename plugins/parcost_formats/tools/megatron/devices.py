"""The device count, from the launcher or from variables of the script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

from parcost_formats.tools.drafts import Draft, Option, digits
from parcost_formats.tools.megatron.flags import CommandLine, variable_option
from parcost_formats.tools.needs import NODE_SIZE, ask_for_devices, other_nodes
from parcost_formats.tools.shell.scripts import (
    ShellField,
    count_at_end,
    count_nodes,
    count_slots,
)

_NODES = ("nnodes", "nodes", "N", "num-nodes")
_RANKS = ("nproc-per-node", "ntasks-per-node", "gpus-per-node", "num-gpus")
_TOTALS = ("np", "n", "ntasks")  # ranks of all nodes, of mpirun and srun
_VARIABLES = (("WORLD_SIZE",), ("GPUS_PER_NODE", "NNODES"), ("GPUS_PER_NODE", "NUM_NODES"))
_OF_NODE = ("--gpus-per-node", "--gres")
_TASKS = "--ntasks-per-node"  # of the scheduler: devices, unless each task starts several
_STARTERS = ("torchrun", "deepspeed", "nproc-per-node", "num-gpus")
_ROLES = {*_NODES, *_RANKS}


def read_devices(draft: Draft, line: CommandLine) -> None:
    """Set the device count of the cluster, if the file states it; ask if it is not constant."""
    _read_launcher(draft, line)
    ranks, nodes = _first(line.launcher, _RANKS), _first(line.launcher, _NODES)
    if draft.has("cluster.devices"):
        for one in (ranks, nodes):
            if one is not None and one.unread:
                draft.leave(one, one.unread)
        return
    count = _count_nodes(line, nodes)
    unread = next(_unknown_counts(line, nodes), None)
    if unread is not None:
        why = f"`{unread.key} {unread.text}`: {unread.unread}"
        ask_for_devices(partial(draft.ask, option=unread), why, unread.answers, count)
    elif count is not None and count > 1 and nodes is None and line.script is not None:
        field = line.script.scheduler["--nodes"]
        place = Option(name="nodes", key="#SBATCH --nodes", start=field.start, end=field.end)
        why = "the file does not state the devices of a node"
        ask_for_devices(partial(draft.ask, option=place), why, (), count)


def _count_nodes(line: CommandLine, nodes: Option | None) -> int | None:
    """Return the number of nodes of the launcher, or else of the scheduler, if it is known."""
    if nodes is not None:
        known = not nodes.unread and nodes.text.isdecimal() and len(nodes.text) < 9
        return int(nodes.text) if known else None
    return count_nodes(line.script.scheduler) if line.script is not None else None


def _unknown_counts(line: CommandLine, nodes: Option | None) -> Iterator[Option]:
    """Yield the counts of the launcher, or else of variables, whose values are unknown."""
    ranks, total = (_first(line.launcher, names) for names in (_RANKS, _TOTALS))
    stated = [one for one in (ranks, nodes, total) if one is not None]
    yield from (one for one in stated if one.unread)
    if stated or line.script is None:
        return
    variables = line.script.variables
    for names in _VARIABLES:
        for name in names if all(one in variables for one in names) else ():
            for word in line.script.fields(name):
                if word.unread:
                    yield variable_option(name, name, word)


def _read_launcher(draft: Draft, line: CommandLine) -> None:
    launcher = line.launcher
    ranks, nodes = _first(launcher, _RANKS), _first(launcher, _NODES)
    for option in launcher.values():
        if option.name not in _ROLES and option.key.startswith("-"):
            draft.ignore(option, "of the launcher")
    if (ranks or nodes) and _multiply(draft, launcher, ranks, nodes):
        return
    chosen = launcher.get("include") if "deepspeed" in launcher else None
    count = None if chosen is None or chosen.unread else count_slots(chosen.text)
    if chosen is not None and count:
        shown = chosen.evolve(key=f"{chosen.key} {chosen.text[:40]}")
        draft.set("cluster.devices", digits(count), shown)
        return
    total = None if "torchrun" in launcher else _first(launcher, _TOTALS)
    if total is not None and total.text.isdecimal() and len(total.text) < 9:
        shown = total.evolve(key=f"{total.key} {total.text}")
        draft.set("cluster.devices", digits(int(total.text)), shown)
        return
    if line.script is None:
        return
    for names in _VARIABLES:
        found = [line.script.variables.get(name) for name in names]
        fields = [line.script.fields(name) for name, one in zip(names, found, strict=True) if one]
        values = [one[0] for one in fields if len(one) == 1 and one[0].text.isdecimal()]
        if len(values) == len(names) and all(len(one.text) < 9 for one in values):
            count = prod(int(value.text) for value in values)
            option = Option(
                name="WORLD_SIZE",
                key=" * ".join(names),
                start=values[-1].start,
                end=values[-1].end,
                assumption=next((one.assumption for one in values if one.assumption), ""),
            )
            draft.set("cluster.devices", digits(count), option)
            each, *counts = (int(value.text) for value in values)
            if counts and (note := other_nodes(counts[0], each)):
                draft.leave(option.evolve(key=f"{names[0]} {each}"), note, NODE_SIZE)
            return
    starts = any(name in launcher for name in _STARTERS)
    _read_scheduler(draft, line.script.scheduler, _OF_NODE if starts else (*_OF_NODE, _TASKS))


def _read_scheduler(
    draft: Draft, scheduler: Mapping[str, ShellField], of_node: Sequence[str]
) -> None:
    """Set the device count from options of the scheduler, such as ``#SBATCH`` lines.

    The options *of_node* have the devices of a node.
    """
    total = count_at_end(scheduler.get("--gpus"))
    found = next((key for key in of_node if count_at_end(scheduler.get(key))), "")
    each = count_at_end(scheduler.get(found))
    if total is None and each is not None and "--nodes" in scheduler:
        nodes = count_at_end(scheduler["--nodes"])
        total = nodes * each if nodes is not None else None
    else:
        nodes = None
    if total is not None:
        key = next(key for key in ("--gpus", "--nodes") if key in scheduler)
        field = scheduler[key]
        option = Option(name="nodes", key=f"#SBATCH {key}", start=field.start, end=field.end)
        draft.set("cluster.devices", digits(total), option)
        if nodes is not None and each is not None and (note := other_nodes(nodes, each)):
            place = scheduler[found]
            beside = option.evolve(key=f"#SBATCH {found}", start=place.start, end=place.end)
            draft.leave(beside, note, NODE_SIZE)


def _first(launcher: Mapping[str, Option], names: tuple[str, ...]) -> Option | None:
    return next((launcher[name] for name in names if name in launcher), None)


def _multiply(
    draft: Draft, launcher: Mapping[str, Option], ranks: Option | None, nodes: Option | None
) -> bool:
    """Set the device count to nodes times ranks per node; return whether both are known."""
    stated = [option for option in (ranks, nodes) if option is not None]
    for option in stated:
        if option.unread or not option.text.isdecimal() or len(option.text) > 8:
            if not option.unread:  # otherwise it is asked for
                draft.leave(option, f"{option.text[:20] or 'nothing'} is not a number of devices")
            return False
    if ranks is None and "torchrun" not in launcher:
        return False
    count = int(ranks.text) if ranks else 1
    why = (
        "" if ranks and (nodes or "standalone" in launcher) else "one node, the default of torchrun"
    )
    if ranks is None:
        why = "one rank per node, the default of torchrun"
    count *= int(nodes.text) if nodes else 1
    place = nodes or ranks
    assert place is not None
    notes = [option.assumption for option in stated if option.assumption]
    key = " ".join(f"{option.key} {option.text}" for option in stated)
    option = Option(
        name="devices", key=key, start=place.start, end=place.end, assumption="; ".join(notes)
    )
    draft.set("cluster.devices", digits(count), option, why)
    if ranks and (note := other_nodes(int(nodes.text) if nodes else 1, int(ranks.text))):
        draft.leave(ranks.evolve(key=f"{ranks.key} {ranks.text}"), note, NODE_SIZE)
    return True
