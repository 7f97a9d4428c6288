"""Counts of the scheduler in a script, beside the counts of the program that it launches.

    #SBATCH --nodes=4
    srun torchrun --nnodes=2 --nproc_per_node=8 train.py

Here ``srun`` starts ``torchrun`` on four nodes, and ``torchrun`` waits for two. Only counts that
the script states as constants are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from attrs import evolve

from parcost import ImportedKey, ImportFile, ImportProblem, Translation
from parcost_formats.tools.shell.launches import launcher_options, launches
from parcost_formats.tools.shell.scripts import ShellField, count_at_end, read_script_file

_DEVICES = ("--gpus-per-node", "--gres")
#: Options that count the processes of a launcher, of which each node has one.
_AGENTS = ("nnodes", "num_machines")
_HETEROGENEOUS = "hetjob"  # several sets of options, each for a part of the job


class _Count(NamedTuple):
    """The constant *number* of an option, with its *text* for a message, and its place."""

    number: int
    text: str
    start: int
    end: int


def check_reserved_nodes(file: ImportFile, found: Translation) -> Translation:
    """Return *found* with errors where a launch contradicts the ``#SBATCH`` lines of its script."""
    if "#SBATCH" not in file.text or _HETEROGENEOUS in file.text or found.problems:
        return found
    script = read_script_file(file)
    reserved = _counts(script.scheduler, "#SBATCH ")
    for launch in launches(script):
        words = {word.text.rpartition("/")[2] for word in launch.launcher}
        counts = _counts(launcher_options(launch.launcher), "--")
        problems = [*_check_nodes(reserved, counts, by_tasks="srun" in words)]
        if problems:
            return Translation(problems=sorted(problems, key=lambda one: one.start))
        devices, ranks = _first(reserved, *_DEVICES), _first(counts, "nproc_per_node")
        if devices is None or ranks is None or ranks.number == devices.number:
            continue
        if ranks.number > devices.number:
            why = f"{ranks.number} ranks do not fit on the {devices.number} devices of a node"
            return Translation(problems=[*_contradiction(devices, ranks, why)])
        idle = f"{ranks.text} leaves {devices.number - ranks.number} of them idle on each node"
        note = ImportedKey(name=devices.text, start=devices.start, end=devices.end, reason=idle)
        found = evolve(found, missing=[*found.missing, note])
    return found


def _check_nodes(
    reserved: Mapping[str, _Count], counts: Mapping[str, _Count], *, by_tasks: bool
) -> Iterator[ImportProblem]:
    """Compare the nodes of a launch with those of the job; *by_tasks*: ``srun`` starts it."""
    nodes, agents = reserved.get("--nodes"), _first(counts, *_AGENTS)
    own = _first(counts, "nodes", "N") if by_tasks else None
    if nodes is not None and own is not None and own.number > nodes.number:
        why = f"srun cannot use {own.number} of {nodes.number} nodes"
        yield from _contradiction(nodes, own, why)
        return
    tasks = _first(counts, "ntasks_per_node") or reserved.get("--ntasks-per-node")
    total = _first(counts, "ntasks", "n") or reserved.get("--ntasks")
    if nodes is None or agents is None:
        return
    possible = {nodes.number}
    place, arithmetic = nodes, f"the job has {nodes.number} nodes"
    if by_tasks and total is None and tasks is not None and tasks.number > 1:
        started = nodes.number * tasks.number
        possible, place = {started}, tasks
        arithmetic = f"srun starts {nodes.number} * {tasks.number} = {started} of them"
    if by_tasks and own is not None:  # a loop may start it on each node
        possible |= {own.number * (tasks.number if tasks is not None and total is None else 1)}
    if total is not None and by_tasks:
        possible |= {total.number}
    if agents.number not in possible:
        why = f"`{agents.text}` expects {agents.number} launchers, and {arithmetic}"
        yield from _contradiction(place, agents, why)


def _contradiction(one: _Count, other: _Count, why: str) -> Iterator[ImportProblem]:
    """Yield an error at both places."""
    message = f"`{one.text}` and `{other.text}` contradict each other: {why}"
    for place in (one, other):
        yield ImportProblem(message=message, start=place.start, end=place.end)


def _counts(fields: Mapping[str, ShellField], prefix: str) -> dict[str, _Count]:
    """Return the options whose values are constant numbers."""
    found = {}
    for key, field in fields.items():
        number = None if field.unread or field.assumption else count_at_end(field)
        if number is not None and "," not in field.text:
            dashes = "-" if prefix == "--" and len(key) == 1 else prefix
            found[key] = _Count(number, f"{dashes}{key}={number}", field.start, field.end)
    return found


def _first(counts: Mapping[str, _Count], *names: str) -> _Count | None:
    return next((counts[name] for name in names if name in counts), None)
