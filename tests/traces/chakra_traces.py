"""A reader of Chakra traces and a replay of them, which share nothing with what writes them.

It decodes the wire format of protobuf by hand, with the field numbers of the published
``et_def.proto`` (schema 0.0.4). What MLCommons publishes is too large an install for the fast tests;
``test_chakra_reader`` finds that it reads the same.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

COMP, SEND, RECV, COLL = 4, 5, 6, 7
ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, REDUCE_SCATTER = 0, 2, 6, 7
#: Values of an attribute by field number, with the wire type that each has.
VALUES = {3: "double", 7: "int", 9: "int", 13: "int", 27: "bool", 29: "text"}


class Node(NamedTuple):
    id: int
    name: str
    type: int
    deps: tuple[int, ...]
    micros: int
    attrs: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        return float(self.attrs["seconds"])


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if not byte & 128:
            return number, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield number, value
        elif wire == 1:
            yield number, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            assert wire == 2, wire
            size, at = varint(data, at)
            yield number, data[at : at + size]
            at += size


def packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = varint(data, at)
        yield number


def attribute(data: bytes) -> tuple[str, Any]:
    name, value = "", None
    for number, found in fields(data):
        if number == 1:
            name = found.decode()
        else:
            kind = VALUES[number]
            value = found.decode() if kind == "text" else bool(found) if kind == "bool" else found
    return name, value


def messages(path: Path) -> Iterator[bytes]:
    data, at = path.read_bytes(), 0
    while at < len(data):
        size, at = varint(data, at)
        yield data[at : at + size]
        at += size
        assert at <= len(data)


def metadata(path: Path) -> tuple[str, Mapping[str, Any]]:
    found = list(fields(next(messages(path))))
    (version,) = (value.decode() for number, value in found if number == 1)
    return version, dict(attribute(value) for number, value in found if number == 2)


def node(data: bytes) -> Node:
    id_ = type_ = micros = 0
    name, deps, attrs = "", [], []
    for number, value in fields(data):
        if number == 1:
            id_ = value
        elif number == 2:
            name = value.decode()
        elif number == 3:
            type_ = value
        elif number == 5:
            deps += list(packed(value)) if isinstance(value, bytes) else [value]
        elif number == 7:
            micros = value
        elif number == 10:
            attrs.append(attribute(value))
    assert len(dict(attrs)) == len(attrs), attrs
    return Node(id_, name, type_, tuple(deps), micros, dict(attrs))


def read(folder: Path) -> tuple[dict[int, list[Node]], dict[str, list[int]]]:
    """Return the nodes of every rank, and the ranks of every group."""
    ranks = {}
    for path in folder.glob("*.et"):
        _, *rest = messages(path)
        ranks[int(path.name.split(".")[-2])] = [node(data) for data in rest]
    groups = json.loads((folder / "comm_group.json").read_text(encoding="utf-8"))
    return dict(sorted(ranks.items())), groups


def check(ranks: Mapping[int, Sequence[Node]], groups: Mapping[str, Sequence[int]]) -> None:
    """Check that numbers are unique, that what is waited for exists, and that ranks agree."""
    calls: dict[str, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    sends: dict[tuple[int, int, int], int] = {}
    receives: dict[tuple[int, int, int], int] = {}
    for rank, nodes in ranks.items():
        numbers = {one.id for one in nodes}
        assert len(numbers) == len(nodes)
        for one in nodes:
            assert numbers.issuperset(one.deps)
            assert one.attrs["is_cpu_op"] is False
            if one.type == COLL:
                name = one.attrs["pg_name"]
                assert int(name) > 0
                assert rank in groups[name]
                calls[name][rank].append((one.attrs["comm_type"], one.attrs["comm_size"]))
            elif one.type in (SEND, RECV):
                way = (one.attrs["comm_src"], one.attrs["comm_dst"], one.attrs["comm_tag"])
                assert rank == way[one.type == RECV]
                which = sends if one.type == SEND else receives
                assert way not in which
                which[way] = one.attrs["comm_size"]
    assert sends == receives
    for name, by_rank in calls.items():
        assert set(by_rank) == set(groups[name])
        assert len({tuple(row) for row in by_rank.values()}) == 1, name


def replay(ranks: Mapping[int, Sequence[Node]], *, at_once: bool) -> dict[tuple[int, int], float]:
    """Return when every node ends.

    A collective starts when all of its ranks have come to it, and a receive ends with its send.
    *at_once*: whatever may start does. Else a rank has one node of compute and one collective or
    send at a time, of those that may start the one with the lowest number, as astra-sim has it.
    """
    waits = {(r, n.id): len(set(n.deps)) for r, nodes in ranks.items() for n in nodes}
    by_key = {(r, n.id): n for r, nodes in ranks.items() for n in nodes}
    children = defaultdict(list)
    for (r, i), one in by_key.items():
        for before in set(one.deps):
            children[r, before].append((r, i))
    size = defaultdict(set)
    for (r, _), one in by_key.items():
        if one.type == COLL:
            size[one.attrs["pg_name"]].add(r)
    ready: dict[tuple[int, str], list[int]] = defaultdict(list)
    busy: dict[tuple[int, str], bool] = defaultdict(bool)
    calls: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    count: dict[tuple[int, str], int] = defaultdict(int)
    arrived: dict[tuple[int, int, int], float] = {}
    posted: dict[tuple[int, int, int], tuple[int, int]] = {}
    ends: dict[tuple[int, int], float] = {}
    events: list[tuple[float, int, int]] = []
    nth = {}  # by number where all starts at once: the order of issue is that of time
    for r, nodes in ranks.items():
        for one in sorted(nodes):
            if one.type == COLL:
                key = (r, one.attrs["pg_name"])
                nth[r, one.id] = count[key]
                count[key] += 1
    if not at_once:
        count.clear()

    def lane(one: Node) -> str:
        return "compute" if one.type == COMP else "network"

    def issue(r: int, i: int, now: float) -> None:
        one = by_key[r, i]
        way = tuple(one.attrs.get(f"comm_{x}", 0) for x in ("src", "dst", "tag"))
        if one.type == RECV:
            if way in arrived:
                heapq.heappush(events, (max(now, arrived[way]), r, i))
            else:
                posted[way] = (r, i)
        elif one.type == COLL:
            name = one.attrs["pg_name"]
            if at_once:
                k = nth[r, i]
            else:
                k = count[r, name]
                count[r, name] += 1
            calls[name, k].append((r, i))
            if len(calls[name, k]) == len(size[name]):
                assert len({by_key[c].attrs["comm_type"] for c in calls[name, k]}) == 1
                for c in calls[name, k]:
                    heapq.heappush(events, (now + one.seconds, *c))
        else:
            heapq.heappush(events, (now + one.seconds, r, i))
            if one.type == SEND:
                arrived[way] = now + one.seconds
                if way in posted:
                    heapq.heappush(events, (now + one.seconds, *posted[way]))

    def start(r: int, now: float) -> None:
        for kind in ("compute", "network"):
            while ready[r, kind] and (at_once or not busy[r, kind]):
                i = heapq.heappop(ready[r, kind])
                busy[r, kind] = True
                issue(r, i, now)

    def offer(r: int, i: int, now: float) -> None:
        one = by_key[r, i]
        if one.type == RECV:
            issue(r, i, now)
        else:
            heapq.heappush(ready[r, lane(one)], i)

    todo = deque((key for key, n in waits.items() if not n))
    for r, i in todo:
        offer(r, i, 0.0)
    for r in ranks:
        start(r, 0.0)
    while events:
        now, r, i = heapq.heappop(events)
        ends[r, i] = now
        if by_key[r, i].type != RECV:
            busy[r, lane(by_key[r, i])] = False
        for key in children[r, i]:
            waits[key] -= 1
            if not waits[key]:
                offer(*key, now)
        start(r, now)
    stuck = [by_key[key].name for key in by_key if key not in ends]
    assert not stuck, f"{len(stuck)} nodes never end, such as {stuck[:5]}"
    return ends
