"""The schedule of the example distribution, which is not installed here."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import Pipeline
from parcost.contract.pipelines import Times
from parcost.engine.replay import PipelinePlan
from parcost.plugins.discovery import load

ROOT = Path(__file__).parents[2] / "examples" / "parcost-eager-1f1b"
SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster  { devices = 64 }
layout   { tp = 8, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
schedule { kind = [one_f_one_b, eager_1f1b], stages = [21, 21, 21, 17] }
"""


@pytest.fixture(scope="module")
def module() -> Any:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (name,) = project["entry-points"]["parcost"].values()
    spec = importlib.util.spec_from_file_location(name, ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("p, m, hop", [(4, 16, 0), (4, 16, 1), (8, 32, 2), (5, 3, 1)])
def test_eager_1f1b_pays_for_one_way_and_back(p: int, m: int, hop: int, module: Any) -> None:
    cut = PipelinePlan(
        module.EAGER_1F1B, Pipeline(schedule="eager_1f1b", stages=p, micro_batches=m)
    )
    found = cut.timeline(Times([100] * p, [200] * p, [0] * p), hop)
    assert found.seconds == (m + p - 1) * 300 + 2 * (p - 1) * hop


def test_eager_1f1b_keeps_nearly_twice_as_many_alive(module: Any) -> None:
    cut = PipelinePlan(
        module.EAGER_1F1B, Pipeline(schedule="eager_1f1b", stages=8, micro_batches=32)
    )
    assert cut.orders[0][1].alive == [2 * (7 - s) + 1 for s in range(8)]


def test_a_spec_picks_it_by_name_and_sees_cheaper_hops(module: Any) -> None:
    plugins = load(("eager_1f1b", module))
    assert not plugins.broken
    (scenario,) = parcost.load_text(SPEC, plugins=plugins)
    plain, eager = (result.outcome for result in scenario.evaluate().results)
    assert plain is not None
    assert eager is not None
    exposed = [
        sum(line.exposed for line in outcome.ledger if line.kind == "hop")
        for outcome in (plain, eager)
    ]
    assert 0 < exposed[1] < exposed[0]
    assert eager.memory_bytes > plain.memory_bytes
