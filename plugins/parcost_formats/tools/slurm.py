"""Files of Slurm and of launchers: ``topology.conf``, hostfiles, the environment of a job.

They state sizes: devices of a node, nodes of a switch or of a block. Bandwidth and latency are
listed as missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from parcost import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportFile,
    ImportProblem,
    Translation,
    hookimpl,
    record,
)
from parcost_formats.tools.file_importer import FileError, FileImporter, error_at
from parcost_formats.tools.hostlist import HostListError, expand, whole_number
from parcost_formats.tools.slurm_topology import (
    LevelSize,
    TopologyLine,
    levels,
    read_lines,
)
from parcost_formats.tools.tables import is_listed, table

TOOL = "slurm"
FABRIC = "slurm"
_PLUGINS = {"SwitchName": "topology/tree", "BlockName": "topology/block"}
_TOPOLOGY = re.compile(r"^[ \t]*(?:SwitchName|BlockName)=", re.IGNORECASE | re.MULTILINE)
_VARIABLE = re.compile(r"^(?:export\s+)?(SLURM\w*)=(.*)$", re.MULTILINE)
_HOST = re.compile(r"^[ \t]*([\w.\-]+)(?:[ \t]+slots\s*=\s*(\d+)\b.*|:(\d+)|)[ \t]*$")


class SlurmFile(FileImporter):
    """Topologies, hostfiles and environments."""

    name = TOOL
    title = str(table(TOOL)["title"])
    source = str(table(TOOL)["source"])

    def recognizes(self, name: str, text: str) -> bool:  # noqa: ARG002
        """Return whether the text has switches, blocks, slots, or variables of Slurm.

        A script that uses such variables is not such a file.
        """
        if text.startswith("#!"):
            return False
        slots = re.search(r"^[ \t]*[\w.\-]+[ \t]+slots\s*=\s*\d", text, re.MULTILINE)
        return bool(_TOPOLOGY.search(text) or slots or _VARIABLE.search(text))

    def read_file(self, file: ImportFile) -> Translation:
        """Return the levels and the devices that a file has."""
        if _TOPOLOGY.search(file.text):
            return _topology(file.text)
        return _environment(file.text) if _VARIABLE.search(file.text) else _hosts(file.text)


def _topology(text: str) -> Translation:
    """Return the fabric levels and the device count of a file."""
    lines = read_lines(text)
    sizes, ignored = levels(lines)
    first = next(one for one in lines if {"switchname", "blockname"} & one.fields.keys())
    key = "SwitchName" if "switchname" in first.fields else "BlockName"
    fact = ImportedValue(
        name="TopologyPlugin", value=_PLUGINS[key], key=key, start=first.start, end=first.end
    )
    blocks = [ImportedBlock(kind="level", label="node")]
    blocks += [_level(one, number) for number, one in enumerate(sizes)]
    why = (
        "a hostfile or SLURM_GPUS_ON_NODE has it: import it first, or write `level node {{ size }}`"
    )
    missing = [ImportedKey(name="level node: size", reason=why), _rates("node")]
    missing += [_rates(one.name) for one in sizes]
    fabric = ImportedBlock(kind="fabric", label=FABRIC, blocks=blocks)
    return Translation(blocks=[fabric], ignored=ignored, missing=missing, facts=[fact])


def _level(one: LevelSize, number: int) -> ImportedBlock:
    size = ImportedValue(
        name="size",
        value=f"{one.units} {'nodes' if number == 0 else 'units'}",
        key=one.key,
        start=one.line.start,
        end=one.line.end,
        assumption=one.assumption,
    )
    return ImportedBlock(kind="level", label=one.name, settings=(size,))


def _rates(level: str) -> ImportedKey:
    """Return the missing values of a level: bandwidth and latency."""
    why = f"write `level {level} {{ bandwidth = ... per_direction, latency = ... }}`"
    return ImportedKey(name=f"level {level}: bandwidth, latency", reason=why)


@record
class Host:
    """A host in a file, and the number of its devices."""

    name: str
    slots: int
    line: TopologyLine


def _hosts(text: str) -> Translation:
    """Return the device count of a hostfile."""
    hosts = list(_read_hosts(text))
    if not hosts:
        message = "no switches, blocks, hosts with slots or variables of Slurm were found"
        raise FileError(message, 0, len(text))
    first = hosts[0]
    for host in hosts:
        if host.slots != first.slots:
            message = f"`{host.name}` has {host.slots} slots, and `{first.name}` {first.slots}"
            raise error_at(host.line, f"{message}: nodes are of one size")
    place: dict[str, Any] = {"start": first.line.start, "end": hosts[-1].line.end}
    node = ImportedValue(
        name="size",
        value=f"{first.slots} devices",
        key="slots",
        start=first.line.start,
        end=first.line.end,
    )
    devices = ImportedValue(
        name="devices", value=f"{len(hosts)} * {first.slots}", key="slots", **place
    )
    return _cluster(node, devices, len(hosts))


def _read_hosts(text: str) -> Iterator[Host]:
    """Yield the hosts of a file; slots of repeated hosts are added.

    Raises:
        FileError: A line is not a host, or a host has no slots.
    """
    found: dict[str, Host] = {}
    at = 0
    for line in text.splitlines(keepends=True):
        plain = line.partition("#")[0].rstrip()
        place = TopologyLine({}, at, at + len(plain))
        at += len(line)
        if not plain.strip():
            continue
        match = _HOST.match(plain)
        if match is None:
            raise error_at(place, "a host with its slots is expected: `node1 slots=8`")
        name, slots = match[1], whole_number(match[2] or match[3] or "1")
        if not slots:
            raise error_at(place, f"the slots of `{name}` are not a number of at least 1")
        before = found.get(name)
        found[name] = Host(name, slots + (before.slots if before else 0), place)
    yield from found.values()


def _environment(text: str) -> Translation:
    """Return the device count of a job, from its environment."""
    values = {
        match[1]: (match[2].strip().strip("'\""), match.start(), match.end())
        for match in _VARIABLE.finditer(text)
    }
    read = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_GPUS_ON_NODE", "SLURM_NTASKS_PER_NODE")
    numbers = {name: _number(name, *values[name]) for name in read if name in values}
    problems = list(_contradictions(values, numbers))
    if problems:
        return Translation(problems=problems)
    nodes_key = next((name for name in read[:2] if name in numbers), "")
    each_key = next((name for name in read[2:] if name in numbers), "")
    if not nodes_key or not each_key:
        lacking = f"{read[0]} and {read[2]}" if not nodes_key else f"{read[2]} or {read[3]}"
        raise FileError(f"the device count of a job is unknown without {lacking}")
    nodes, each = numbers[nodes_key], numbers[each_key]
    why = "" if each_key == read[2] else "a task for each device"
    _, start, end = values[each_key]
    place: dict[str, Any] = {"key": each_key, "start": start, "end": end, "assumption": why}
    node = ImportedValue(name="size", value=f"{each} devices", **place)
    _, start, end = values[nodes_key]
    count = ImportedValue(
        name="devices",
        value=f"{nodes} * {each}",
        key=nodes_key,
        start=start,
        end=end,
        assumption=why,
    )
    found = _cluster(node, count, nodes)
    beside = {*read, "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NTASKS"} - {nodes_key, each_key}
    ignored = [
        ImportedKey(name=name, start=start, end=end, reason="agrees with the others")
        if name in beside
        else ImportedKey(name=name, start=start, end=end)
        for name, (_, start, end) in values.items()
        if name in beside or is_listed(name, table(TOOL)["ignored"]["keys"])
    ]
    names = {nodes_key, each_key, *(key.name for key in ignored)}
    unknown = [
        ImportedKey(name=name, start=start, end=end)
        for name, (_, start, end) in values.items()
        if name not in names
    ]
    return Translation(blocks=found.blocks, ignored=ignored, unknown=unknown, missing=found.missing)


def _number(name: str, text: str, start: int, end: int) -> int:
    number = whole_number(text)
    if not number:
        raise FileError(f"{name} is not a number of at least 1", start, end)
    return number


def _contradictions(
    values: dict[str, tuple[str, int, int]], numbers: dict[str, int]
) -> Iterator[ImportProblem]:
    """Yield an error for variables that disagree on the nodes of a job."""
    nodes = numbers.get("SLURM_JOB_NUM_NODES", numbers.get("SLURM_NNODES"))
    each = numbers.get("SLURM_NTASKS_PER_NODE")
    for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        if name not in values or nodes is None:
            continue
        text, start, end = values[name]
        try:
            count = len(expand(text, table(TOOL)["limits"]["hosts"]))
        except HostListError as error:
            yield ImportProblem(message=str(error), start=start, end=end)
            continue
        if count != nodes:
            message = f"{name} has {count} nodes, but the job has {nodes}"
            yield ImportProblem(message=message, start=start, end=end)
    if "SLURM_NTASKS" in values and nodes is not None and each is not None:
        text, start, end = values["SLURM_NTASKS"]
        if whole_number(text) != nodes * each:
            message = (
                f"SLURM_NTASKS is {text[:20]}, but {nodes} nodes x {each} tasks = {nodes * each}"
            )
            yield ImportProblem(message=message, start=start, end=end)


def _cluster(node: ImportedValue, devices: ImportedValue, nodes: int) -> Translation:
    """Return the device count of a job, and the fabric level of its nodes."""
    level = ImportedBlock(kind="level", label="node", settings=(node,))
    fabric = ImportedBlock(kind="fabric", label=FABRIC, blocks=(level,))
    missing: Sequence[ImportedKey] = [_rates("node")]
    if nodes > 1:
        why = (
            f"the network of {nodes} nodes: import a topology.conf after this file, or write "
            "`level network { bandwidth = ... per_direction, latency = ... }`"
        )
        missing = [*missing, ImportedKey(name="level network", reason=why)]
    cluster = ImportedBlock(kind="cluster", settings=(devices,))
    return Translation(blocks=[fabric, cluster], missing=missing)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of files of Slurm."""
    return [SlurmFile()]
