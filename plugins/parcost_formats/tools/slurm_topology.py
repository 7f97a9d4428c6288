"""``topology.conf`` of Slurm as fabric levels: a tree of switches, or blocks of nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from parcost import ImportedKey, record
from parcost_formats.tools.file_importer import error_at
from parcost_formats.tools.hostlist import HostListError, expand, whole_number
from parcost_formats.tools.tables import table

_FIELD = re.compile(r"(\w+)=(\S*)")
_SPELLINGS = {
    "switchname": "SwitchName",
    "blockname": "BlockName",
    "nodes": "Nodes",
    "switches": "Switches",
}


@record
class TopologyLine:
    """The fields of a line, in lower case, and its place."""

    fields: Mapping[str, str]
    start: int
    end: int


@record
class LevelSize:
    """A level and its size: it joins *units* units of the level below; *line* states it."""

    name: str
    units: int
    key: str
    line: TopologyLine
    assumption: str = ""


def read_lines(text: str) -> list[TopologyLine]:
    """Return the lines with fields; comments are left out."""
    return list(_lines(text))


def _lines(text: str) -> Iterator[TopologyLine]:
    at = 0
    for line in text.splitlines(keepends=True):
        plain = line.partition("#")[0].rstrip()
        fields = {key.lower(): value for key, value in _FIELD.findall(plain)}
        if fields:
            start = at + len(plain) - len(plain.lstrip())
            yield TopologyLine(fields, start, at + len(plain))
        at += len(line)


def levels(lines: Sequence[TopologyLine]) -> tuple[list[LevelSize], list[ImportedKey]]:
    """Return the levels of a topology from the nodes outwards, and the unused fields.

    Raises:
        FileError: The topology contradicts itself.
    """
    switches = [line for line in lines if "switchname" in line.fields]
    blocks = [line for line in lines if "blockname" in line.fields]
    if switches and blocks:
        later = max(switches[0], blocks[0], key=lambda line: line.start)
        message = (
            "switches (plugin topology/tree) and blocks (plugin topology/block) cannot be combined"
        )
        raise error_at(later, f"{message}: a cluster uses one of them")
    found = _tree(switches) if switches else _blocks(blocks, lines)
    ignored = [
        ImportedKey(
            name="LinkSpeed",
            start=one.start,
            end=one.end,
            reason="a weight, not the rate of a link",
        )
        for one in switches
        if "linkspeed" in one.fields
    ]
    return found, ignored


def _names(line: TopologyLine, field: str) -> list[str]:
    try:
        names = expand(line.fields[field], table("slurm")["limits"]["hosts"])
    except HostListError as error:
        raise error_at(line, str(error)) from None
    if not names:
        raise error_at(line, f"{_SPELLINGS[field]} has no name")
    return names


def _tree(switches: Sequence[TopologyLine]) -> list[LevelSize]:
    """Return the levels of a tree: switches by their height above the nodes."""
    by_name: dict[str, TopologyLine] = {}
    for line in switches:
        for name in _names(line, "switchname"):
            if name in by_name:
                raise error_at(line, f"the switch `{name}` is defined twice")
            by_name[name] = line
    units: dict[int, list[tuple[int, TopologyLine]]] = {}
    heights: dict[str, int] = {}
    for name, line in by_name.items():
        height = _height(name, by_name, heights, [])
        field = "nodes" if "nodes" in line.fields else "switches"
        units.setdefault(height, []).append((len(_names(line, field)), line))
    names = table("slurm")["levels"].get(str(len(units)))
    return [
        _level(names[height - 1] if names else f"level_{height}", height, units[height])
        for height in sorted(units)
    ]


def _height(
    name: str, by_name: Mapping[str, TopologyLine], heights: dict[str, int], path: list[str]
) -> int:
    """Return the number of switches from *name* down to a node, *name* included."""
    line = by_name[name]
    if name in heights:
        return heights[name]
    if name in path:
        raise error_at(line, f"the switch `{name}` is below itself")
    if "nodes" in line.fields:
        if "switches" in line.fields:
            raise error_at(line, f"the switch `{name}` has both nodes and switches")
        heights[name] = 1
        return 1
    if "switches" not in line.fields:
        raise error_at(line, f"the switch `{name}` has neither nodes nor switches")
    below = _names(line, "switches")
    for other in below:
        if other not in by_name:
            raise error_at(line, f"the switch `{other}` is not in the file")
    inner = {_height(other, by_name, heights, [*path, name]) for other in below}
    if len(inner) > 1:
        raise error_at(line, f"the switches below `{name}` are on different levels")
    heights[name] = 1 + inner.pop()
    return heights[name]


def _level(name: str, height: int, units: Sequence[tuple[int, TopologyLine]]) -> LevelSize:
    """Return a level of switches; unequal switches take the most common size."""
    counts = Counter(count for count, _ in units)
    size = max(counts, key=lambda count: (counts[count], count))
    line = next(line for count, line in units if count == size)
    why = ""
    if len(counts) > 1:
        why = f"the most frequent number; switches connect {min(counts)} to {max(counts)}"
    return LevelSize(name, size, "Nodes" if height == 1 else "Switches", line, why)


def _blocks(blocks: Sequence[TopologyLine], lines: Sequence[TopologyLine]) -> list[LevelSize]:
    """Return the levels of a block topology: blocks, and the groups in ``BlockSizes``."""
    for line in blocks:
        _names(line, "blockname")
    counts = [(len(_names(line, "nodes")), line) for line in blocks if "nodes" in line.fields]
    if not counts:
        raise error_at(lines[0], "no block has nodes")
    inner = _level("block", 1, counts)
    planned = next((line for line in lines if "blocksizes" in line.fields), None)
    if planned is None:
        outer = len(blocks)
        return (
            [inner] if outer < 2 else [inner, LevelSize("network", outer, "BlockName", blocks[0])]
        )
    sizes = _sizes(planned)
    base = LevelSize("block", sizes[0], "BlockSizes", planned)
    if inner.units != sizes[0]:
        why = f"the blocks have {inner.units} nodes, but the planned size is {sizes[0]}"
        base = LevelSize("block", sizes[0], "BlockSizes", planned, why)
    found = [base]
    for number, (below, size) in enumerate(pairwise(sizes), 1):
        name = "aggregate" if number == 1 else f"aggregate_{number}"
        found.append(LevelSize(name, size // below, "BlockSizes", planned))
    groups = -(-len(blocks) * sizes[0] // sizes[-1])
    if groups > 1:
        found.append(LevelSize("network", groups, "BlockName", blocks[0]))
    return found


def _sizes(line: TopologyLine) -> list[int]:
    """Return the sizes of blocks, each a multiple of the one before it."""
    text = line.fields["blocksizes"]
    sizes = [number for part in text.split(",") if (number := whole_number(part))]
    if len(sizes) != text.count(",") + 1:
        raise error_at(line, f"`{text[:40]}` are not sizes of blocks")
    for below, size in pairwise(sizes):
        if size <= below or size % below:
            raise error_at(line, f"{size} is not a larger multiple of {below}")
    return sizes
