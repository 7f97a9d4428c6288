"""A search with a plugin whose memory and time depend on the pipeline of the study."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Memory, Study, Work, formula, hookimpl
from parcost.numeric import where
from parcost.plugins.discovery import load
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space
from parcost_apps.search.points import Points

SPEC = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
use catalog.fabrics.hgx_h100
cluster { devices = 16 }
training { sequence = 512, global_batch = 16 sequences }
model m { layers = 12, hidden = 3072, heads = 24, vocabulary = 49_152 }
"""


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """A gigabyte, and two where there is a single micro-batch."""
    size = where(study.pipeline.micro_batches > 1, 1.0, 2.0)
    bytes_ = formula("x g", x=size, g=(1e9, "B"), source="a third party")
    yield Memory(name="of ours", cause="ours", bytes_=bytes_, count=(1.0,) * study.pipeline.stages)


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """A second for each micro-batch of a step, on every stage."""
    each = formula("1 + 0 m", m=study.pipeline.micro_batches, source="a third party")
    count = (1.0,) * study.pipeline.stages
    yield Work(name="of ours", cause="ours", seconds=each, pass_="F", count=count)


@pytest.mark.parametrize("more", [{}, pytest.param({"layout.tp": [1, 2]}, marks=pytest.mark.slow)])
def test_a_plugin_may_read_the_micro_batches_of_a_step(more: dict[str, list[Any]]) -> None:
    """A search over one layout or many has the numbers of each layout evaluated alone."""
    plugins = load(("third", SimpleNamespace(memory=memory, terms=terms)))
    (scenario,) = parcost.load_text(SPEC, plugins=plugins)
    axes = {"layout.zero": [0, 1], "layout.pp": [1, 2], **more}
    whole = space(scenario, axes, list(axes))
    lines: list[str] = []
    found = search(
        whole, SearchRequest(objective="step_time"), points=Points(whole, "jsonl", lines.append)
    )
    assert not found.faults
    rows = [json.loads(line) for line in "".join(lines).splitlines()]
    assert len(rows) == found.legal == 4 * len(more.get("layout.tp", [1]))
    for row in rows:
        outcome = scenario.replace({path: row[path] for path in axes}).evaluate().result.outcome
        assert outcome is not None
        assert row["memory_bytes"] == pytest.approx(outcome.memory_bytes, rel=1e-12)
        if row["exact"]:
            assert row["step_time_seconds"] == pytest.approx(outcome.step_seconds, rel=1e-12)
