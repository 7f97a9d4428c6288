"""Streaming kernels that somebody measured, and what the model says of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import parcost_specs
from parcost import Study
from parcost_plugins.kernels.tiled import TiledKernels
from parcost_plugins.physics import elementwise
from parcost_plugins.physics.elementwise import Passes, Traffic
from parcost_plugins.vocabulary import Stream

StudyWith = Callable[..., Study]

TABLE = Path(parcost_specs.__file__).parent / "measured" / "streams.jsonl"
TABLES: Mapping[str, Mapping[str, Passes]] = {
    "norms": elementwise.NORMS,
    "gated": elementwise.GATED,
    "rotary": elementwise.ROTARY,
    "softmax": elementwise.SOFTMAX,
    "loss": elementwise.LOSS,
}
# What timing with events around calls from Python adds, as fitted with the rates.
EVENTS = 4.05e-6


def traffic_of(run: list[Any]) -> Traffic:
    if run[0] == "kernel":
        return Traffic(1, run[1])
    found: Traffic = getattr(TABLES[run[0]][run[1]], run[2])
    return found


def seconds(row: Mapping[str, Any], study: Study) -> float:
    taken = EVENTS if row["clock"] == "events" else 0.0
    for traffic in map(traffic_of, row["runs"]):
        operator = Stream(
            name="",
            bytes_=float(traffic.bytes_(row["element"])) * row["elements"],
            kernels=traffic.kernels,
            kind=traffic.kind,
            pass_="F",
            count=(1.0,),
        )
        priced = TiledKernels().price(operator, study)
        assert priced is not None
        taken += float(priced.value)
    return taken


OURS = "measured with benchmarks/measure"


@pytest.fixture(scope="module")
def errors(study_with: StudyWith) -> dict[str, list[float]]:
    """Return predicted over measured less one, by device, and apart of what the kit measured."""
    found: dict[str, list[float]] = defaultdict(list)
    studies: dict[str, Study] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        device = row["device"]
        if device not in studies:
            studies[device] = study_with(device=device)
        error = seconds(row, studies[device]) / (row["time_us"] * 1e-6) - 1
        found[f"{device}, kit" if row["source"] == OURS else device].append(error)
    return found


@pytest.mark.slow
def test_measured_streams_are_met_on_each_device(errors: Mapping[str, list[float]]) -> None:
    assert {device: len(rows) for device, rows in errors.items()} == {
        "a100_sxm_80g": 57,
        "a40": 24,
        "b200": 101,
        "gb200": 66,
        "gb300": 66,
        "h100_sxm": 125,
        "h200_sxm": 66,
        "h100_sxm, kit": 191,
        "h200_sxm, kit": 191,
    }
    for device, rows in errors.items():
        # The kit times small kernels too, and operators that compute more than they stream.
        assert fmean(map(abs, rows)) < (0.23 if "kit" in device else 0.13), device
        assert abs(fmean(rows)) < 0.06, device
    published = [e for device, rows in errors.items() if "kit" not in device for e in rows]
    assert fmean(map(abs, published)) < 0.105
