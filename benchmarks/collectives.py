"""Times of collectives by the tables of libraries against measured calls, by size and source.

    python benchmarks/collectives.py [ROWS.jsonl] [--seed N] [--library NAME] [--fit] [--rows]

Prints the mean error of the time in three classes of size: of the rows that constants are fitted
on, and of the third that is left out, drawn from each source by the seed. With --library
nccl_text_book rows are estimated by rounds and bytes. With --fit the constants that the library
does not count are fitted again on two thirds, and once without each source. With --rows each row is
printed.

A row of 2024 or before ran NCCL 2.20 or older, later ones 2.30. A source that does not say how fast
its network is has it from its longest message: that row is no part of a score.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from attrs import evolve, frozen

import parcost
import parcost_specs
from parcost import Study
from parcost_measured.validation.hardware import ENTRIES

TABLE = Path(parcost_specs.__file__).parent / "measured" / "collectives.jsonl"
PLATEAU = 2.0**33  # bytes, of rows that print the bandwidth of long messages alone
LONG = 16e6
SHORT = 64e3
#: Bounds and steps of the constants that the library does not count.
STARTS = tuple(5e-6 * i for i in range(11))
TWO_RANKS = tuple(0.70 + 0.05 * i for i in range(7))
TABLES = ("nccl_2_20", "nccl_2_30")
OPERATIONS = {"send_recv": "point_to_point"}


@frozen
class Row:
    """A measured call: *network* is the bandwidth of one device, where it is known."""

    id: str
    source: str
    operation: str
    text: str
    size: float
    seconds: float
    sure: bool
    group: tuple[Any, ...]
    unknown: bool
    network: float | None = None

    @property
    def size_class(self) -> str:
        """The class of the size."""
        if self.size >= LONG:
            return "16 MB and more"
        return "64 kB to 16 MB" if self.size >= SHORT else "below 64 kB"


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file whose device the catalogue has."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["collective"].startswith("memcpy"):
            continue
        made = read_row(row)
        if made is not None:
            found.append(made)
    return found


def read_row(row: Mapping[str, Any]) -> Row | None:
    """Return a row with the spec of its machine."""
    ranks, nodes, operation = row["ranks"], row["nodes"], row["collective"]
    size, time = row["message_bytes"], row["time_us"]
    if size is None and row["busbw_GBps"] is None:
        return None
    entry = next(e for e in ENTRIES if re.search(e.pattern, row["gpu"], re.IGNORECASE))
    fabric, level = entry.fabric, entry.level
    local = ranks if level == "domain" else ranks // nodes
    levels = []
    text = f"{row['intranode']} {row['internode']}"
    # The slides have each machine without and with NVLS; others ran what NCCL does by default.
    rings = "GTC" in row["source"] and not re.search("NVLS|SHARP", text)
    reduces = ", in_network = off" if rings else ""
    if "bridges in pairs" in text.lower():
        fabric = "pcie4_nvlink_pairs"
        levels.append(
            "level pair { bandwidth = 600 GB/s bidirectional, efficiency = 78 %"
            + (f", size = {local} devices }}" if local <= 2 else " }")
        )
        if local > 2:
            levels.append(f"level node {{ size = {local // 2} units }}")
        else:
            levels.append("level node { size = 1 units }")
    else:
        levels.append(f"level {level} {{ size = {local} devices{reduces} }}")
    if "EFA" in text:
        levels.append("level network { low_latency = off, efficiency = 85 % }")
    if "SHARP" in text:
        levels.append("level network { in_network = on }")
    network = row["internode_gbps"]
    if size is None:
        size = PLATEAU
        factor = 2 * (ranks - 1) / ranks if operation == "all_reduce" else (ranks - 1) / ranks
        time = size * factor / (row["busbw_GBps"] * 1e9) * 1e6
    release = "nccl_2_20" if row["year"] <= 2024 else "nccl_2_30"
    lines = [
        f"use catalog.devices.{entry.device}",
        f"use catalog.fabrics.{fabric}",
        f"cluster {{ devices = {ranks} }}",
        f"fabric {fabric} {{ {', '.join(levels)} }}",
    ]
    if not entry.device.startswith("mi"):
        lines += [f"use catalog.tunings.{release}", f"collectives {{ tuning = {release} }}"]
    return Row(
        id=row["id"],
        source=row["source"].split(" (")[0],
        operation=OPERATIONS.get(operation, operation),
        text="\n".join(lines),
        size=float(size),
        seconds=time * 1e-6,
        sure=row["confidence"] != "low",
        group=(row["source"], row["gpu"], operation, ranks, nodes),
        unknown=nodes > 1 and level != "domain" and network is None,
        network=None if network is None else network / 8 * 1e9 / row["gpus_per_node"],
    )


class Machines:
    """Studies of rows, by their text."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values
        self.known: dict[Any, Study] = {}

    def seconds(self, row: Row, network: float | None = None) -> float:
        """Return the predicted time of *row*."""
        rate = row.network if network is None else network
        key = (row.text, rate)
        if key not in self.known:
            table = re.search(r"tuning = (\w+)", row.text)
            values = {
                f"{table[1]}.{name}" if table and "." not in name else name: value
                for name, value in self.values.items()
                if table or "." in name
            }
            if rate is not None:
                port = f"{rate} B/s per_direction"
                values[f"{fabric_of(row)}.network.bandwidth"] = port
            (scenario,) = parcost.load_text(row.text, overrides=values)
            self.known[key] = scenario.first
        return float(self.known[key].collective(row.operation, row.size, "job").seconds)


def fabric_of(row: Row) -> str:
    """Return the name of the fabric in the spec of *row*."""
    return row.text.split("use catalog.fabrics.")[1].split("\n")[0]


def with_networks(rows: Sequence[Row], machines: Machines) -> list[Row]:
    """Return rows with the networks that sources do not state, without their longest messages."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    found = []
    for members in groups.values():
        if not members[0].unknown:
            found += members
            continue
        longest = max(members, key=lambda row: row.size)
        low, high = 1e7, 1e12
        for _ in range(40):
            middle = exp((log(low) + log(high)) / 2)
            slow = machines.seconds(longest, middle) > longest.seconds
            low, high = (middle, high) if slow else (low, middle)
        found += [evolve(row, network=high) for row in members if row is not longest]
    return found


def left_out(rows: Sequence[Row], seed: int) -> set[str]:
    """Return the ids of a third of the rows of each source."""
    by_source = defaultdict(list)
    for row in rows:
        by_source[row.source].append(row.id)
    drawn: set[str] = set()
    for source in sorted(by_source):
        ids = sorted(by_source[source])
        random.Random(f"{seed} {source}").shuffle(ids)
        drawn.update(ids[: len(ids) // 3])
    return drawn


def score(rows: Sequence[Row], times: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each class of size."""
    classes = defaultdict(list)
    for row in rows:
        classes[row.size_class].append(times[row.id] / row.seconds - 1)
    for name in ("16 MB and more", "64 kB to 16 MB", "below 64 kB"):
        errors = classes[name]
        if errors:
            mape, middle = fmean(map(abs, errors)), median(map(abs, errors))
            yield (
                f"  {name:16}{len(errors):5}{100 * mape:9.1f} %{100 * middle:9.1f} %"
                f"{100 * fmean(errors):+9.1f} %"
            )


def fit(rows: Sequence[Row]) -> tuple[float, float]:
    """Return `start` and `two_ranks` of the least mean error in logarithms."""
    best = (float("inf"), 0.0, 1.0)
    for two in TWO_RANKS:
        for start in STARTS:
            machines = Machines({"two_ranks": str(two), "start": f"{start} s"})
            error = fmean(min(abs(log(machines.seconds(row) / row.seconds)), 1.0) for row in rows)
            best = min(best, (error, start, two))
    return best[1], best[2]


def main() -> None:
    """Print the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="?", type=Path, default=TABLE)
    parser.add_argument("--seed", type=int, default=24)
    parser.add_argument("--library", default="device")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--rows", action="store_true", dest="each")
    chosen = parser.parse_args()
    machines = Machines({"collectives.library": chosen.library})
    rows = with_networks(read_rows(chosen.rows), machines)
    times = {row.id: machines.seconds(row) for row in rows}
    out = left_out(rows, chosen.seed)
    reductions = [row for row in rows if row.operation == "all_reduce" and row.sure]
    parts = {
        "all-reduces, fitted on": [row for row in reductions if row.id not in out],
        "all-reduces, left out": [row for row in reductions if row.id in out],
        "all-reduces of low confidence": [
            row for row in rows if row.operation == "all_reduce" and not row.sure
        ],
        "messages between two ranks": [
            row for row in rows if row.operation == "point_to_point" and row.sure
        ],
        "messages of low confidence": [
            row for row in rows if row.operation == "point_to_point" and not row.sure
        ],
        "all-to-alls": [row for row in rows if row.operation == "all_to_all"],
    }
    for source in sorted({row.source for row in reductions}):
        parts[f"all-reduces of {source}"] = [row for row in reductions if row.source == source]
    for title, members in parts.items():
        print(f"{title}: rows, mean and median error, signed mean")
        for line in score(members, times):
            print(line)
    if chosen.each:
        for row in rows:
            print(
                f"{row.id:44}{row.size:14.0f}{1e6 * row.seconds:12.1f}{1e6 * times[row.id]:12.1f}"
                f"{100 * (times[row.id] / row.seconds - 1):+8.1f} %"
            )
    if chosen.fit:
        kept = parts["all-reduces, fitted on"]
        print("start and two_ranks, on two thirds:", *fit(kept))
        for source in sorted({row.source for row in kept}):
            print(f"  without {source}:", *fit([row for row in kept if row.source != source]))


if __name__ == "__main__":
    main()
