"""Counts of the scheduler in a script, compared with the counts of the launcher.

    #SBATCH --nodes=4
    srun torchrun --nnodes=2 --nproc_per_node=8 train.py

Example of a conflict: ``srun`` starts ``torchrun`` on four nodes, and ``torchrun`` waits for two.
Only counts that the script states as constants are compared. A job of ``--nodes=5-8`` has one of
these sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from attrs import evolve

from parcost import ImportedKey, ImportFile, ImportProblem, Translation
from parcost_formats.tools.shell.launches import launcher_options, launches
from parcost_formats.tools.shell.script_files import read_script_file
from parcost_formats.tools.shell.scripts import HETEROGENEOUS, Script, ShellField, count_at_end

_DEVICES = ("--gpus-per-node", "--gres")
#: Options that count the processes of a launcher, of which each node has one.
_AGENTS = ("nnodes", "num_machines")
#: Options of the scheduler whose values are numbers, and what they count.
_COUNTED = {"--nodes": "nodes", "--ntasks": "tasks", "--ntasks-per-node": "tasks"}
#: Options of launchers with the same names, without colons too.
_PLAIN = {*_COUNTED, *(key.lstrip("-") for key in _COUNTED), "N", "n", "ntasks_per_node"}
#: Sizes of a job: ``4``, ``5-8``, ``2-8:2``, and several of them after commas.
_SIZES = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?::([0-9]{1,18}))?)?")
_TEMPLATE = ("$", "{", "<")  # start a variable, which another program replaces


class _Count(NamedTuple):
    """The constant *number* of an option, with its *text* for a message, and its place.

    A count of nodes may be any of several *sizes*, of which *number* is the largest.
    """

    number: int
    text: str
    start: int
    end: int
    sizes: Sequence[range]

    @property
    def value(self) -> str:
        """The text of the value."""
        return self.text.partition("=")[2]

    def holds(self, number: int) -> bool:
        """Return whether the count may be *number*."""
        return any(number in one for one in self.sizes)


def check_reserved_nodes(file: ImportFile, found: Translation) -> Translation:
    """Return *found* with errors where a launch contradicts the ``#SBATCH`` lines of its script."""
    if "#SBATCH" not in file.text or HETEROGENEOUS in file.text or found.problems:
        return found
    script = read_script_file(file)
    starts = [*launches(script)]
    unread = [*_unread_counts(script.scheduler)] if starts else []
    if errors := [one for one in unread if isinstance(one, ImportProblem)]:
        return Translation(problems=errors)
    notes = [one for one in unread if isinstance(one, ImportedKey)]
    notes += _replaced_counts(script) if starts else ()
    found = evolve(found, missing=[*found.missing, *notes])
    reserved = _counts(script.scheduler, "#SBATCH ")
    for launch in starts:
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
    """Compare the nodes of a launch with those of the job; *by_tasks* is true if ``srun`` starts
    it.
    """
    nodes, agents = reserved.get("--nodes"), _first(counts, *_AGENTS)
    own = _first(counts, "nodes", "N") if by_tasks else None
    if nodes is not None and own is not None and own.number > nodes.number:
        why = f"srun asks for {own.number} nodes, but the job has {nodes.number}"
        yield from _contradiction(nodes, own, why)
        return
    tasks = _first(counts, "ntasks_per_node") or reserved.get("--ntasks-per-node")
    total = _first(counts, "ntasks", "n") or reserved.get("--ntasks")
    if nodes is None or agents is None:
        return
    each, possible = 1, set[int]()
    place, arithmetic = nodes, f"the job has {nodes.value} nodes"
    if by_tasks and total is None and tasks is not None and tasks.number > 1:
        each, place = tasks.number, tasks
        started = "" if "-" in nodes.value else f" = {nodes.number * each}"
        arithmetic = f"srun starts {nodes.value} * {each}{started} of them"
    if by_tasks and own is not None:  # a loop may start it on each node
        possible |= {own.number * (tasks.number if tasks is not None and total is None else 1)}
    if total is not None and by_tasks:
        possible |= {total.number}
    each_node, rest = divmod(agents.number, each)
    if agents.number not in possible and (rest or not nodes.holds(each_node)):
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
        if field.unread or field.assumption:
            continue
        number = None if key in _PLAIN or "," in field.text else count_at_end(field)
        sizes = (
            _sizes(key, field.text) if key in _PLAIN else [range(number or 0, (number or 0) + 1)]
        )
        if key in _PLAIN and sizes:
            number = max(one[-1] for one in sizes)
        if number is not None:
            dashes = "-" if prefix == "--" and len(key) == 1 else prefix
            text = f"{dashes}{key}={_value(field.text) if key in _PLAIN else number}"
            found[key] = _Count(number, text, field.start, field.end, sizes)
    return found


def _unread_counts(scheduler: Mapping[str, ShellField]) -> Iterator[ImportProblem | ImportedKey]:
    """Yield an error for each count that is not a number, and a note for each variable."""
    for key, what in _COUNTED.items():
        field = scheduler.get(key)
        if field is None or _sizes(key, field.text):
            continue
        name, start, end = f"#SBATCH {key}={_value(field.text)}", field.start, field.end
        if any(one in field.text for one in _TEMPLATE):
            reason = "the scheduler does not expand variables, and this one is not read"
            yield ImportedKey(name=name, start=start, end=end, reason=reason)
        else:
            message = f"`{name}` cannot be read as a number of {what}"
            yield ImportProblem(message=message, start=start, end=end)


def _replaced_counts(script: Script) -> Iterator[ImportedKey]:
    """Yield a note for each count that a later line replaces by another one."""
    for key, field in script.repeated:
        last = script.scheduler[key].text
        if key in (*_COUNTED, *_DEVICES) and field.text != last:
            name, reason = (
                f"#SBATCH {key}={field.text}",
                f"a later line has {last}, and the last line counts",
            )
            yield ImportedKey(name=name, start=field.start, end=field.end, reason=reason)


def _sizes(key: str, text: str) -> Sequence[range]:
    """Return the values that a count may have; none if it is not a number, or has several tasks.

    >>> _sizes("--nodes", "2-8:2,16"), _sizes("--nodes", "4:8"), _sizes("--ntasks", "2-8")
    ([range(2, 9, 2), range(16, 17)], [], [])
    """
    found = []
    for part in _value(text).split(","):
        match = _SIZES.fullmatch(part)
        least, most, step = (int(one or 0) for one in match.groups()) if match else (0, 0, 0)
        one = range(least, (most or least) + 1, step or 1)
        if not one or not least:
            return []
        found.append(one)
    several = len(found) > 1 or len(found[0]) > 1
    return [] if several and key not in ("--nodes", "nodes", "N") else found


def _value(text: str) -> str:
    return text.strip("\"'")


def _first(counts: Mapping[str, _Count], *names: str) -> _Count | None:
    return next((counts[name] for name in names if name in counts), None)
