"""Rates of kernels in the catalogue against measured kernels, by device and kernel.

    python benchmarks/kernels.py [TABLE.jsonl ...] [--folds N] [--devices] [--fit]

Prints the mean error of the time of each kernel, over configurations that count once. With
--folds the rates are fitted again without every N-th shape, and scored on those; with --devices
products of a device are estimated at the median rate of other families of its vendor; with --fit
what all rows say is printed, to be written into the catalogue by hand.

A row of attention has device, kernel, kernel_version, dtype, batch, heads, head_dim,
head_dim_v, seq_q, seq_k, causal, window, direction, and time_us or tflops. FLOPs are those of
the scores that no mask leaves out: forward 2 b h k s (d + v), backward 2 b h k s (3 d + 2 v).

A row of products has device, dtype, time_us, and products: [m, n, k, how many in one kernel]
of each that the time is of. Their shapes are estimated by the model of the catalogue; what is
fitted is one factor on its rate for each device and type. Of a weight gradient that is added to a
sum, `sum` has the bytes of an element of that. Products are `apart` where each of a group is a
kernel of its own, and `held` where the device was at its power limit.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

import parcost
import parcost_specs
from parcost import Study
from parcost_measured.calibration.kernels import KERNELS, RECIPES, SHORTEST, TYPES
from parcost_plugins.kernels.tiled import TiledKernels
from parcost_plugins.vocabulary import AttentionKernel, Device, Gemm

MEASURED = Path(parcost_specs.__file__).parent / "measured"
TABLES = [MEASURED / "attention.jsonl", MEASURED / "products.jsonl"]
DEVICES = {
    "A100-SXM4-80GB": "a100_sxm_80g",
    "H100-SXM5-80GB": "h100_sxm",
    "H100": "h100_sxm",
    "H200": "h200_sxm",
    "H800": "h800_sxm",
    "B200": "b200",
    "GB200": "gb200",
    "GB200 or GB300": "gb200",
    "GB300": "gb300",
    "MI300X": "mi300x",
    "MI355X": "mi355x",
    "A100-SXM": "a100_sxm_80g",
    "A100-80GB-SXM": "a100_sxm_80g",
    "MI210": "mi210",
    "MI300X/MI325X": "mi300x",
    "MI350X/MI355X": "mi355x",
    "B300 SXM6 AC": "b300",
    "H200 NVL": "h200_nvl",
    "H800-SXM": "h800_sxm",
    "H800-SXM, driver 560.35.05": "h800_sxm",
    "h100_sxm": "h100_sxm",  # rows of `benchmarks/measure` have names of the catalogue
    "h200_sxm": "h200_sxm",
}
# Rows whose text says one of these leave something out that a rate depends on.
VAGUE = ("not named", "not printed", "assumed", "low confidence", "not name the device")
# Below as many tokens, rows with this note hold gaps between kernels.
GAPS, GAPS_BELOW = "Short sequences include little work per launch", 2048
# Of kernels that were measured forward and backward together only: forward over backward, as
# FlashAttention 2 on H100, where both were measured.
RATIO = 1.08


@frozen
class Row:
    """One configuration and its seconds."""

    device: str
    kernel: str
    type: str
    shape: tuple[Any, ...]
    direction: str
    size: float
    keys: float
    forward: float  # FLOPs
    backward: float
    seconds: float
    version: tuple[Any, ...]


@frozen
class Rates:
    """Constants of one kernel: shares of the peak by size of head, and fills."""

    sizes: tuple[float, ...]
    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    forward_fill: float
    backward_fill: float

    def seconds(self, row: Row, peak: float) -> float:
        """Return the time of a row at these rates."""
        forward = float(np.interp(row.size, self.sizes, self.forward))
        backward = float(np.interp(row.size, self.sizes, self.backward))
        first = row.forward / (peak * forward) * (1 + self.forward_fill / row.keys)
        return first + row.backward / (peak * backward) * (1 + self.backward_fill / row.keys)


def rows(path: Path) -> list[Row]:
    """Return the rows that may carry a fit, the newest release of each configuration."""
    newest: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for line in path.read_text(encoding="utf-8").splitlines():
        row = _row(json.loads(line))
        if row is not None:
            key = (row.device, row.kernel, row.type, row.shape, row.direction)
            newest[key].append(row)
    found = []
    for same in newest.values():
        last = max(row.version for row in same)
        seconds = [row.seconds for row in same if row.version == last]
        found.append(evolve(same[0], seconds=float(np.exp(fmean(np.log(seconds))))))
    return found


def _row(raw: dict[str, Any]) -> Row | None:
    name = raw["device"].partition(" (")[0]
    device, kernel = DEVICES.get(name), KERNELS.get(raw["kernel"])
    type_, notes = TYPES.get(raw["dtype"]), raw.get("notes") or ""
    version = raw.get("kernel_version") or ""
    text = " ".join((raw["device"], version, raw["dtype"], notes))
    if device is None or kernel is None or type_ is None or raw["seq_q"] is None:
        return None
    if any(word in text for word in VAGUE) or "deterministic" in text:
        return None
    if GAPS in notes and raw["seq_q"] < GAPS_BELOW:
        return None
    window, backward = raw.get("window"), raw["direction"] == "backward"
    if window and type_ == "fp8" and backward:
        return None  # it computes what the window leaves out as well
    if kernel == "aiter" and "a16" in version:
        return None  # sums of 16 bits, which no framework asks for by itself
    keys = _keys(raw["seq_k"], window, causal=raw["causal"])
    query, value = raw["head_dim"], raw["head_dim_v"]
    pairs = 2.0 * raw["batch"] * raw["heads"] * raw["seq_q"] * keys
    flops = {
        "forward": (pairs * (query + value), 0.0),
        "backward": (0.0, pairs * (3 * query + 2 * value)),
        "both": (pairs * (query + value), pairs * (3 * query + 2 * value)),
    }[raw["direction"]]
    time = raw.get("time_us")
    shape = (raw["batch"], raw["heads"], raw.get("kv_heads"), query, value)
    release = re.search(r"(?:backend|cuDNN) (\d{5})", version)
    return Row(
        device=device,
        kernel=kernel,
        type=type_,
        shape=(*shape, raw["seq_q"], raw["seq_k"], raw["causal"], window, raw["dtype"]),
        direction=raw["direction"],
        size=(query + value) / 2,
        keys=keys,
        forward=flops[0],
        backward=flops[1],
        seconds=time * 1e-6 if time else sum(flops) / (raw["tflops"] * 1e12),
        version=(int(release[1]) if release else 0, raw.get("year") or 0, version),
    )


def _keys(length: float, window: float | None, *, causal: bool) -> float:
    """Return the keys that a query attends to on average."""
    if not causal:
        return float(length)
    width = min(window or length, length)
    return width - width * (width - 1) / (2 * length)


def device(name: str) -> Device:
    """Return a device of the catalogue."""
    (scenario,) = parcost.load_text(f"use catalog.devices.{name}\n")
    return scenario.studies()[0][Device]


def peak(of: Device, type_: str) -> float:
    """Return the FLOP/s that shares are of."""
    return float(of.fp8 if type_ == "fp8" else of.bf16)  # type: ignore[arg-type]


def shipped_rates(kernel: AttentionKernel) -> Rates:
    """Return the constants of the catalogue for a kernel."""
    heads = kernel.heads
    return Rates(
        sizes=tuple(float(head.size) for head in heads),
        forward=np.array([head.forward for head in heads]),
        backward=np.array([head.backward for head in heads]),
        forward_fill=float(kernel.forward_fill),
        backward_fill=float(kernel.backward_fill),
    )


def fit(measured: Sequence[Row], peaks: dict[str, float]) -> Rates:
    """Return the rates with the least error, robust against outliers.

    Damped least squares on the logarithm of times; rates without rows keep their initial value.
    """
    sizes = tuple(sorted({row.size for row in measured}))
    together = all(row.direction == "both" for row in measured)
    n = len(sizes)
    start = np.log(np.concatenate([np.full(2 * n, 0.4), [250.0, 400.0]]))

    def rates(x: NDArray[np.float64]) -> Rates:
        forward, fill = np.exp(x[:n]), float(np.exp(x[2 * n]))
        if together:
            return Rates(sizes, forward, forward / RATIO, fill, fill)
        return Rates(sizes, forward, np.exp(x[n : 2 * n]), fill, float(np.exp(x[2 * n + 1])))

    def errors(x: NDArray[np.float64]) -> NDArray[np.float64]:
        found = rates(x)
        logs = [np.log(found.seconds(row, peaks[row.device]) / row.seconds) for row in measured]
        return np.array([*logs, *(0.02 * (x - start))])

    x, weights = start, np.ones(len(measured) + len(start))
    for _ in range(30):
        here = errors(x)
        weights[: len(measured)] = 1 / np.sqrt(1 + (here[: len(measured)] / 0.05) ** 2) ** 0.5
        slopes = np.array([(errors(x + step) - here) / 1e-5 for step in 1e-5 * np.eye(len(x))]).T
        move, *_ = np.linalg.lstsq(slopes * weights[:, None], -here * weights, rcond=None)
        x = x + np.clip(move, -1, 1)
    return rates(x)


def fold(shape: tuple[Any, ...], folds: int) -> int:
    """Return in which fold a shape is left out: all its rows in one."""
    return int(sha256(repr(shape[:8]).encode()).hexdigest(), 16) % folds


def left_out(measured: Sequence[Row], peaks: dict[str, float], folds: int) -> Iterator[float]:
    """Yield the error of each row at rates that were fitted without its shape."""
    for part in range(folds):
        out = [row for row in measured if fold(row.shape, folds) == part]
        rest = [row for row in measured if fold(row.shape, folds) != part]
        if out and rest:
            found = fit(rest, peaks)
            yield from (found.seconds(row, peaks[row.device]) / row.seconds - 1 for row in out)


#: The efficiency of a device that products of a recipe run at.
EFFICIENCIES = {
    "bf16": "matmul_efficiency",
    "fp8_current": "fp8_matmul_efficiency",
    "fp8_blockwise": "block_matmul_efficiency",
    "mxfp8": "block_matmul_efficiency",
    "nvfp4": "fp4_matmul_efficiency",
}


@frozen
class Products:
    """Products that were measured together, and their predictions with the catalogue's rates."""

    device: str
    recipe: str
    shape: tuple[tuple[int, ...], ...]
    seconds: float
    predicted: float
    grouped: bool = False

    @property
    def kind(self) -> str:
        """What its score counts with."""
        if self.grouped:
            return "grouped"
        return "dense" if self.recipe == "bf16" else "narrow"


def products(path: Path, *, devices: bool = False) -> list[Products]:
    """Return the products of a table, the fastest kernel of each shape.

    With *devices* at rates of other families, where their vendor has any in the tables.
    """
    fastest: dict[tuple[Any, ...], float] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        name = DEVICES.get(raw["device"].partition(" (")[0])
        recipe = next((r for word, r in RECIPES.items() if raw["dtype"].startswith(word)), None)
        seconds = raw["time_us"] * 1e-6
        if name is None or recipe is None or seconds < SHORTEST * len(raw["products"]):
            continue
        held, sums = raw.get("held", False), raw.get("sum", 0)
        grouped, apart = "group" in raw["kernel"], raw.get("apart", False)
        shape = tuple(map(tuple, raw["products"]))
        key = (name, recipe, shape, held, sums, apart, grouped)
        fastest[key] = min(seconds, fastest.get(key, seconds))
    studies: dict[tuple[Any, ...], Study] = {}
    found = []
    for (name, recipe, shape, *conditions, grouped), seconds in fastest.items():
        key = (name, recipe, *conditions)
        if key not in studies:
            share = other_families(name, recipe) if devices else None
            if devices and share is None:
                continue
            studies[key] = study_of(name, recipe, *conditions, share=share)
        _, sums, apart = conditions
        predicted = sum(
            product_seconds(studies[key], *each, weights=bool(sums), expert=apart) for each in shape
        )
        found.append(Products(name, recipe, shape, seconds, predicted, grouped))
    return found


def other_families(name: str, recipe: str) -> float | None:
    """Return the median share of the peak of devices of its vendor that are of other families."""
    own, kind = device(name), EFFICIENCIES[recipe]
    others = [device(other) for other in sorted(set(DEVICES.values()))]
    shares = [
        share
        for other in others
        if other.library == own.library and other.generation != own.generation
        if (share := getattr(other, kind)) is not None
    ]
    return float(np.median(shares)) if shares else None


def study_of(
    device: str,
    recipe: str,
    held: bool = False,
    sums: int = 0,
    apart: bool = False,
    share: float | None = None,
) -> Study:
    """Return a study of linear layers in the type of a recipe.

    The device has power to spare, or what it *held* by the catalogue, and its best product a
    *share* of the peak. A sum of gradients has *sums* bytes. Experts may run *apart*.
    """
    own = [] if held else ["sustained = 1", "narrow_sustained = 1"]
    own += [f"{EFFICIENCIES[recipe]} = {share}"] if share is not None else []
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.{device}
        use catalog.fabrics.hgx_h100
        use catalog.precisions.{recipe}
        use catalog.models.llama3_8b
        device alone extends {device} {{ {", ".join(own)} }}
        precision own extends {recipe} {{ {f"gradients = {sums} B" if sums else ""} }}
        cluster {{ device = alone, devices = 1 }}
        training {{ precision = own, sequence = 4096, global_batch = 8 sequences }}
        kernels {{ grouped_experts = {"off" if apart else "on"} }}
        """
    )
    return scenario.studies()[0]


def product_seconds(
    study: Study,
    m: int,
    n: int,
    k: int,
    batch: int,
    *,
    weights: bool = False,
    expert: bool = False,
) -> float:
    """Return the time of products; *weights* marks those added to a gradient sum."""
    product = Gemm(
        name="p",
        m=float(m),
        n=float(n),
        k=float(k),
        batch=float(batch),
        pass_="W" if weights else "F",
        role="expert" if expert else "linear",
        count=(1.0,),
    )
    priced = TiledKernels().price(product, study)
    if priced is None:
        raise TypeError("the model of kernel time knows no products")
    return float(priced.value)


def product_errors(rows: Sequence[Products], folds: int) -> Iterator[float]:
    """Yield the error of each row; with *folds*, at a rate fitted without its shape."""
    ratios = np.array([row.predicted / row.seconds for row in rows])
    parts = np.array([fold((row.shape,), folds) if folds else -1 for row in rows])
    for ratio, part in zip(ratios, parts, strict=True):
        rest = ratios[parts != part]
        yield ratio / (np.median(rest) if len(rest) else 1.0) - 1


def report(title: str, errors: Iterable[float]) -> None:
    """Print one line: rows, mean error, signed mean, greatest error, in percent."""
    found = 100 * np.array(list(errors))
    if len(found):
        mean, signed, most = np.abs(found).mean(), found.mean(), np.abs(found).max()
        print(f"{title:36} {len(found):5} {mean:7.1f} {signed:+7.1f} {most:7.1f}")


def main() -> None:
    """Score, or fit, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", type=Path, default=TABLES)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--devices", action="store_true")
    parser.add_argument("--fit", action="store_true")
    options = parser.parse_args()
    print(f"{'':36} {'rows':>5} {'MAPE':>7} {'mean':>7} {'worst':>7}   %")
    for table in options.tables:
        first = json.loads(table.read_text(encoding="utf-8").partition("\n")[0])
        if "products" in first:
            _products(table, options)
        else:
            _attention(table, options)


def _products(table: Path, options: argparse.Namespace) -> None:
    groups: dict[tuple[str, str], list[Products]] = defaultdict(list)
    for row in products(table, devices=options.devices):
        groups[row.device, row.recipe].append(row)
    errors: list[float] = []
    kinds: dict[str, list[float]] = defaultdict(list)
    for (name, recipe), measured in sorted(groups.items()):
        if options.fit:
            factor = np.median([row.predicted / row.seconds for row in measured])
            print(f"{name} {recipe}: {factor:.3f} times the rate of the catalogue")
        these = list(product_errors(measured, options.folds))
        report(f"{name} {recipe}", these)
        errors += these
        for row, error in zip(measured, these, strict=False):
            kinds[row.kind].append(error)
    for kind, these in sorted(kinds.items()):
        report(f"{kind} products", these)
    report("all products", errors)


def _attention(table: Path, options: argparse.Namespace) -> None:
    known: dict[str, Device] = {}
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows(table):
        if row.device not in known:
            known[row.device] = device(row.device)
        rates = known[row.device].attention
        groups[rates.label if rates else row.device, row.kernel, row.type].append(row)
    errors: list[float] = []
    for (label, name, type_), measured in sorted(groups.items()):
        peaks = {row.device: peak(known[row.device], type_) for row in measured}
        if options.fit:
            found = fit(measured, peaks)
            print(label, name, type_, found)
            these = [found.seconds(row, peaks[row.device]) / row.seconds - 1 for row in measured]
        elif options.folds:
            these = list(left_out(measured, peaks, options.folds))
        else:
            rates = known[measured[0].device].attention
            kernel = rates.find(name, type_) if rates else None
            if kernel is None:
                print(f"{label} has no rate of {name} in {type_}: {len(measured)} rows")
                continue
            said = shipped_rates(kernel)
            these = [said.seconds(row, peaks[row.device]) / row.seconds - 1 for row in measured]
        report(f"{label} {name} {type_}", these)
        errors += these
    report("all attention", errors)


if __name__ == "__main__":
    main()
