"""A small study of a step, drawn once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import parcost
from parcost import Chart, Report

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 32 }
layout   { tp = 2, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 4096, global_batch = 32 sequences, micro_batch = 1 }
schedule { kind = one_f_one_b }
kernels  { model = roofline }
"""


@pytest.fixture(scope="session")
def spec() -> str:
    return SPEC


@pytest.fixture(scope="session")
def report(spec: str) -> Report:
    (scenario,) = parcost.load_text(spec)
    return scenario.evaluate()


@pytest.fixture(scope="session")
def charts(report: Report) -> Mapping[str, Chart]:
    return {chart.name: chart for _, chart in report.result.charts}


@pytest.fixture(scope="session")
def rows(charts: Mapping[str, Chart]) -> Callable[..., Sequence[Mapping[str, Any]]]:
    """Return the rows of a chart that have these cells."""

    def select(name: str, **cells: Any) -> Sequence[Mapping[str, Any]]:
        return [
            row
            for row in charts[name].rows
            if all(row.get(field) == value for field, value in cells.items())
        ]

    return select
