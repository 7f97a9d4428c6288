"""The files of Chakra execution traces: one for each rank, and a file with all groups.

A file has messages of protobuf, each after its length as a varint: the metadata, then every node.
Most of a node is the same on all ranks of a device. It is encoded once, and the fields of a rank
are appended: protobuf fields may be in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

from parcost import Communication, Diagnostic, Group, SpecError, StepTrace, __version__
from parcost_formats.traces.chakra.nodes import StageMessages, TraceNode, device_nodes
from parcost_formats.traces.chakra.schema import (
    COLLECTIVE,
    COLLECTIVES,
    COMPUTE,
    SEND,
    VERSION,
    messages,
)

_MICROSECONDS = 1e6
_ROUNDING = 1e-9
_MOST_NODES = 10_000_000  # of all files together, some 2 GB
_GROUPS = "comm_group.json"
_LONGEST_NAME = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


def save_traces(trace: StepTrace, folder: Path) -> None:
    """Write the files of *trace* into a *folder*.

    Raises:
        SpecError: The job has too many nodes, or protobuf is not installed.
    """
    messages()  # before any work
    places = _RankPlaces.from_trace(trace)
    ranks = _ranks(trace, len(places.at))
    groups = _GroupNumbers()
    by_device: dict[int, list[int]] = {}
    for rank in ranks:
        by_device.setdefault(places.at[rank][0], []).append(rank)
    name = _UNSAFE.sub("_", trace.name)[:_LONGEST_NAME] or "step"
    _check_passes(trace, by_device)
    between = StageMessages.from_trace(trace)
    for device, own in sorted(by_device.items()):
        nodes = device_nodes(trace, device, between)
        _check_nodes(trace, nodes, device, len(ranks))
        encoded = [_encode(node) for node in nodes]
        for rank in own:
            with (folder / f"{name}.{rank}.et").open("wb") as file:
                file.write(_with_length(_metadata(trace, rank, device)))
                for node, common in zip(nodes, encoded, strict=True):
                    file.write(_with_length(common + _own(node, rank, places, groups)))
    with (folder / _GROUPS).open("w", encoding="utf-8") as file:
        json.dump(groups.lists, file)


class _RankPlaces(NamedTuple):
    """The pipeline device of each rank, and the ranks of its pipeline by device."""

    at: Mapping[int, tuple[int, Sequence[int]]]

    @classmethod
    def from_trace(cls, trace: StepTrace) -> _RankPlaces:
        """Return the pipeline device and the peers of all ranks of a job.

        Raises:
            SpecError: The plugin that places groups lists no ranks.
        """
        members = trace.study.group("pp").members
        if members is None:
            message = f"no plugin lists the ranks of the pipelines of `{trace.name}`"
            raise SpecError([Diagnostic("trace-ranks", message, place=trace.path)])
        return cls({rank: (d, row) for row in members() for d, rank in enumerate(row)})


def _ranks(trace: StepTrace, count: int) -> Sequence[int]:
    """Return the ranks to write: the user's choice, or all."""
    if not trace.ranks:
        return range(count)
    beyond = [rank for rank in trace.ranks if rank >= count]
    if beyond:
        message = f"`{trace.name}` has no rank {beyond[0]}"
        help = f"it has {count:,} ranks: 0 to {count - 1:,}"
        raise SpecError([Diagnostic("trace-ranks", message, help=help, place=trace.path)])
    return sorted(set(trace.ranks))


def _check_passes(trace: StepTrace, by_device: Mapping[int, Sequence[int]]) -> None:
    """Reject a trace with more passes than the limit of nodes, before any node is built."""
    passes = trace.passes()
    least = sum(len(passes[d]) * len(own) for d, own in by_device.items())
    if least > _MOST_NODES:
        _reject(trace, f"{least:,} passes on {sum(map(len, by_device.values())):,} ranks")


def _check_nodes(trace: StepTrace, nodes: Sequence[TraceNode], device: int, ranks: int) -> None:
    """Reject a trace over the node limit, assuming that all ranks have as many nodes as
    this one.
    """
    if len(nodes) * ranks > _MOST_NODES:
        product = f"{len(nodes):,} x {ranks:,} = {len(nodes) * ranks:,} nodes"
        _reject(trace, f"{product}: nodes of a rank of device {device} x number of ranks")


def _reject(trace: StepTrace, what: str) -> None:
    message = f"the traces of `{trace.name}` have {what}"
    help = f"{_MOST_NODES:,} is the limit of nodes: use fewer micro-batches, or select `--ranks`"
    raise SpecError([Diagnostic("trace-size", message, help=help, place=trace.path)])


# --- Groups ---------------------------------------------------------------------------------


class _GroupNumbers:
    """Numbers process groups from 1 on; simulators use 0 for all ranks of the job."""

    def __init__(self) -> None:
        self.lists: dict[str, Sequence[int]] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._rows: dict[int, tuple[Group, Mapping[int, tuple[int, ...]]]] = {}

    def row(self, group: Group, rank: int) -> tuple[int, ...]:
        """Return the ranks of the process group of *rank*."""
        if id(group) not in self._rows:
            assert group.members is not None
            rows = [tuple(row) for row in group.members()]
            self._rows[id(group)] = group, {member: row for row in rows for member in row}
        return self._rows[id(group)][1].get(rank, (rank,))

    def number(self, row: tuple[int, ...]) -> int:
        """Return the number of a process group."""
        if row not in self._numbers:
            self._numbers[row] = number = len(self._numbers) + 1
            self.lists[str(number)] = row
        return self._numbers[row]


# --- Messages of protobuf ---------------------------------------------------------------------


def _metadata(trace: StepTrace, rank: int, device: int) -> bytes:
    """Return the metadata message of a file."""
    made = messages()
    about = made.metadata(version=VERSION)
    for name, text in (
        ("generator", f"parcost {__version__}"),
        ("study", _plain(trace.name)),
        ("path", _plain(trace.path)),
    ):
        about.attr.append(made.attribute(name=name, string_val=text))
    for name, number in (("rank", rank), ("pipeline_device", device)):
        about.attr.append(made.attribute(name=name, int64_val=number))
    about.attr.append(made.attribute(name="step_seconds", double_val=trace.seconds))
    return bytes(about.SerializeToString())


def _encode(node: TraceNode) -> bytes:
    """Return the part of a node that is the same on every rank of a device, as protobuf bytes."""
    made = messages()
    found = made.node(
        id=node.number,
        name=_plain(node.name),
        type=node.kind,
        data_deps=node.after,
        duration_micros=_micros(node.seconds),
    )
    add = found.attr.append
    add(made.attribute(name="is_cpu_op", bool_val=False))
    add(made.attribute(name="seconds", double_val=node.seconds))
    if node.kind == COMPUTE:
        add(made.attribute(name="num_ops", int64_val=round(node.flops)))
        add(made.attribute(name="tensor_size", uint64_val=round(node.bytes_)))
    else:
        add(made.attribute(name="comm_size", int64_val=max(round(node.bytes_), 1)))
    if node.kind == COLLECTIVE:
        assert node.call is not None
        add(made.attribute(name="comm_type", int64_val=COLLECTIVES[node.call.operation]))
    elif node.kind != COMPUTE:
        add(made.attribute(name="comm_tag", int32_val=node.tag))
    return bytes(found.SerializeToString())


def _own(node: TraceNode, rank: int, places: _RankPlaces, groups: _GroupNumbers) -> bytes:
    """Return the part of a node that depends on the *rank*: its process group, or its peers."""
    if node.kind == COMPUTE:
        return b""
    made = messages()
    found = made.node()
    if node.kind == COLLECTIVE:
        assert node.call is not None
        name = str(groups.number(groups.row(node.call.group, rank)))
        found.attr.append(made.attribute(name="pg_name", string_val=name))
        return bytes(found.SerializeToString())
    peer = _peer(node, rank, places, groups)
    source, target = (rank, peer) if node.kind == SEND else (peer, rank)
    found.attr.append(made.attribute(name="comm_src", int32_val=source))
    found.attr.append(made.attribute(name="comm_dst", int32_val=target))
    return bytes(found.SerializeToString())


def _peer(node: TraceNode, rank: int, places: _RankPlaces, groups: _GroupNumbers) -> int:
    """Return the peer rank of a message: on another stage, or next in a ring."""
    call: Communication | None = node.call
    if call is None:
        return places.at[rank][1][node.peer]
    row = groups.row(call.group, rank)
    step = 1 if node.kind == SEND else -1
    return row[(row.index(rank) + step) % len(row)]


def _micros(seconds: float) -> int:
    """Return the time in microseconds, rounded up to an integer, so that only zero gives zero.

    >>> _micros(0.0), _micros(1e-9), _micros(2e-6), _micros(2.5e-6)
    (0, 1, 2, 3)
    """
    return ceil(seconds * _MICROSECONDS * (1.0 - _ROUNDING))


def _with_length(message: bytes) -> bytes:
    """Return a message prefixed with its length as a varint.

    >>> _with_length(b"ab"), len(_with_length(bytes(300)))
    (b'\\x02ab', 302)
    """
    return b"".join([*_varint(len(message)), message])


def _varint(number: int) -> Iterator[bytes]:
    while number > 127:
        yield bytes([number & 127 | 128])
        number >>= 7
    yield bytes([number])


def _plain(text: str) -> str:
    """Return a text that can be encoded in UTF-8; invalid characters are replaced."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
