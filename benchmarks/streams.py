"""Rates of streaming kernels in the catalogue against measured kernels, by device and operator.

    python benchmarks/streams.py [TABLE.jsonl] [--folds N] [--fit]

Prints the mean error of the time of each operator, by device. With --folds the constants are
fitted again without every N-th shape, and scored on those; with --fit what all rows say is
printed, to be written into the catalogue by hand.

A row says in `runs` what was timed: a table of `parcost_plugins.physics.elementwise`, an
implementation and a pass, or one kernel that moves so many tensors. `elements` are those of a
tensor, `element` its bytes. Rows whose `clock` is `events` were timed with events around calls
from Python, and hold what that adds; those of `device` do not.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import parcost
import parcost_specs
from parcost_plugins.physics import elementwise
from parcost_plugins.physics.elementwise import Passes, Traffic
from parcost_plugins.vocabulary import Cluster, KernelChoice
from parcost_plugins.vocabulary.operators import STREAM_KINDS

TABLE = Path(parcost_specs.__file__).parent / "measured" / "streams.jsonl"
TABLES: Mapping[str, Mapping[str, Passes]] = {
    "norms": elementwise.NORMS,
    "gated": elementwise.GATED,
    "rotary": elementwise.ROTARY,
    "softmax": elementwise.SOFTMAX,
    "loss": elementwise.LOSS,
}
# No copy on an H100 moves more than 0.905 of the bandwidth that its data sheet has.
CEILING = 0.93

Constants = dict[str, float]


class Row(NamedTuple):
    """One measured row: kernels, bytes by kind of kernel, and seconds."""

    device: str
    name: str
    shape: str
    events: bool
    kernels: float
    moved: dict[str, float]
    seconds: float


def rows(path: Path) -> list[Row]:
    """Return the rows of a table."""
    return [_row(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _row(raw: Mapping[str, object]) -> Row:
    elements, element = float(str(raw["elements"])), float(str(raw["element"]))
    kernels, moved, named = 0.0, defaultdict[str, float](float), "one kernel"
    for run in raw["runs"]:  # type: ignore[attr-defined]
        if run[0] == "kernel":
            traffic = Traffic(1, run[1])
        else:
            traffic = getattr(TABLES[run[0]][run[1]], run[2])
            named = f"{run[0]}, {run[1]}"
        kernels += traffic.kernels
        moved[traffic.kind] += float(traffic.bytes_(element)) * elements
    return Row(
        str(raw["device"]),
        named,
        f"{raw['device']} {raw['shape']}",
        raw["clock"] == "events",
        kernels,
        dict(moved),
        float(str(raw["time_us"])) * 1e-6,
    )


def catalogue(devices: Sequence[str]) -> tuple[Constants, Constants]:
    """Return the constants of the catalogue, and the memory bandwidth of each device."""
    found: Constants = {"clock": 0.0}
    bandwidths: Constants = {}
    for name in devices:
        (scenario,) = parcost.load_text(
            f"use catalog.devices.{name}\nuse catalog.models.llama3_8b\n"
            "use catalog.precisions.bf16\nfabric none { level all { bandwidth = 1 GB/s "
            "per_direction, latency = 0 s } }\ncluster { devices = 1 }\n"
            "training { sequence = 1, global_batch = 1 sequences }"
        )
        (study,) = scenario.studies()
        device, choice = study[Cluster].device, study[KernelChoice]
        found[name] = float(device.memory_efficiency)
        bandwidths[name] = float(device.memory_bandwidth)
        found["start"] = float(choice.start)
        for kind in STREAM_KINDS[1:]:
            found[kind] = float(getattr(choice, f"{kind}_efficiency"))
    return found, bandwidths


def seconds(row: Row, constants: Constants, bandwidths: Constants) -> float:
    """Return the prediction of the constants for a row."""
    rate = bandwidths[row.device] * constants[row.device]
    moved = sum(b / constants.get(kind, 1.0) for kind, b in row.moved.items())
    return moved / rate + row.kernels * constants["start"] + row.events * constants["clock"]


def fit_constants(table: Sequence[Row], start: Constants, bandwidths: Constants) -> Constants:
    """Return the constants with the least sum of relative errors."""
    names = [*dict.fromkeys(row.device for row in table), "start", "clock"]
    names += sorted({kind for row in table for kind in row.moved} - {"plain"})
    constants = dict(start)
    constants["clock"] = constants["clock"] or constants["start"]

    def logarithms() -> NDArray[np.float64]:
        return np.log([seconds(row, constants, bandwidths) for row in table])

    measured = np.log([row.seconds for row in table])
    for _ in range(30):
        base = logarithms()
        slopes = np.empty((len(table), len(names)))
        for at, name in enumerate(names):
            before = constants[name]
            constants[name] = before * 1.001
            slopes[:, at] = (logarithms() - base) / np.log(1.001)
            constants[name] = before
        residual = measured - base
        weights = 1.0 / np.maximum(np.abs(residual), 0.03)  # least absolute errors
        left = (slopes * weights[:, None]).T @ slopes + 1e-6 * np.eye(len(names))
        step = np.linalg.solve(left, (slopes * weights[:, None]).T @ residual)
        for name, by in zip(names, step, strict=True):
            constants[name] *= float(np.exp(np.clip(by, -0.3, 0.3)))
            if name not in ("start", "clock"):
                constants[name] = min(constants[name], CEILING if name in bandwidths else 1.0)
    return constants


def errors(table: Sequence[Row], constants: Constants, bandwidths: Constants) -> list[float]:
    """Return predicted over measured time less one, row by row."""
    return [seconds(row, constants, bandwidths) / row.seconds - 1.0 for row in table]


def report(title: str, table: Sequence[Row], found: Sequence[float]) -> None:
    """Print mean errors by device and operator."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row, error in zip(table, found, strict=True):
        for key in ((row.device, row.name), (row.device, "all"), ("all", "all")):
            groups[key].append(error)
    print(f"{title}\n{'device':14} {'operator':26} {'n':>4} {'MAPE':>6} {'mean':>6}")
    for (device, name), values in sorted(groups.items()):
        mape, mean = fmean(map(abs, values)), fmean(values)
        print(f"{device:14} {name:26} {len(values):4} {100 * mape:6.1f} {100 * mean:+6.1f}")


def streams(path: Path, folds: int, *, fit: bool) -> None:
    """Score the catalogue; leave shapes out in *folds* parts; *fit* to all rows."""
    table = rows(path)
    start, bandwidths = catalogue(sorted({row.device for row in table}))
    # What events add is a matter of the measurement, and no constant of the catalogue.
    whole = fit_constants(table, start, bandwidths)
    report(
        "the catalogue's constants",
        table,
        errors(table, {**start, "clock": whole["clock"]}, bandwidths),
    )
    if folds:
        left: list[tuple[Row, float]] = []
        parts = [int(sha256(row.shape.encode()).hexdigest(), 16) % folds for row in table]
        for part in range(folds):
            rest = [row for row, at in zip(table, parts, strict=True) if at != part]
            out = [row for row, at in zip(table, parts, strict=True) if at == part]
            constants = fit_constants(rest, start, bandwidths)
            left += zip(out, errors(out, constants, bandwidths), strict=True)
        report(
            f"shapes left out, {folds} parts",
            [row for row, _ in left],
            [error for _, error in left],
        )
    if fit:
        for name, value in whole.items():
            micro = name in ("start", "clock")
            print(f"{name:26} {value * 1e6:.2f} us" if micro else f"{name:26} {value:.3f}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", nargs="?", type=Path, default=TABLE)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--fit", action="store_true")
    given = parser.parse_args()
    streams(given.table, given.folds, fit=given.fit)


if __name__ == "__main__":
    main()
