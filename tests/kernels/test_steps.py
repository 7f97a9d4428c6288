"""Kernels that make elements one by one: by hand, and against measured ones."""

from __future__ import annotations

import json
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

TABLE = Path(parcost_specs.__file__).parent / "measured" / "experts.jsonl"
TABLES: Mapping[str, Passes] = {
    "weighed": elementwise.WEIGHED["traced"],
    "weighed_sum": Passes(elementwise.WEIGHED_SUM, elementwise.WEIGHED_SUM),
    "clamped": elementwise.CLAMPED,
    "clamped_joined": elementwise.CLAMPED_JOINED,
    "bias_product": elementwise.EXPERT_BIAS_PRODUCT,
    "bias_sum": elementwise.EXPERT_BIAS_SUM,
    "bias_joined": elementwise.EXPERT_BIAS_JOINED,
}


def price(study: Study, traffic: Traffic, elements: float, times: float = 1.0) -> float:
    operator = Stream(
        name="",
        bytes_=float(traffic.bytes_(2.0)) * elements,
        kernels=times * traffic.kernels,
        kind=traffic.kind,
        steps=traffic.steps * elements,
        step_kind=traffic.step_kind,
        pass_="F",
        count=(1.0,),
    )
    priced = TiledKernels().price(operator, study)
    assert priced is not None
    return float(priced.value)


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        # 132 multiprocessors, 13.2 ns an element: 1e9 elements take 0.1 s, their 4 GB 1.2 ms.
        (1e9, 0.1),
        (2e9, 0.2),
    ],
)
def test_elements_take_their_time_on_each_multiprocessor(
    elements: float, expected: float, study_with: StudyWith
) -> None:
    study = study_with("strided_time = 13.2 ns, start = 0 s, memory_efficiency = 1")
    traffic = Traffic(1, 2, steps=1, step_kind="strided")
    assert price(study, traffic, elements) == pytest.approx(expected)


def test_bytes_count_where_they_take_longer(study_with: StudyWith) -> None:
    study = study_with("strided_time = 1e-3 ns, start = 2 us, memory_efficiency = 1")
    traffic = Traffic(1, 2, steps=1, step_kind="strided")
    assert price(study, traffic, 1e9) == pytest.approx(4e9 / 3.35e12 + 2e-6)


def test_measured_kernels_of_experts_are_met(study_with: StudyWith) -> None:
    """Constants are of 65,536 tokens of 2880; the other shapes are not."""
    study, errors = study_with(), []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        taken = 0.0
        for name, pass_, *top in row["runs"]:
            if top:
                passes = elementwise.copies("eager", float(top[0]))[name == "combined"]
            else:
                passes = TABLES[name]
            times = 1.0 if name == "bias_joined" else row["experts"]
            taken += price(study, getattr(passes, pass_), row["elements"], times)
        if "65536" not in row["shape"]:
            errors.append(taken / (row["time_us"] * 1e-6) - 1)
    assert len(errors) == 40
    assert fmean(map(abs, errors)) < 0.15
    assert abs(fmean(errors)) < 0.10
