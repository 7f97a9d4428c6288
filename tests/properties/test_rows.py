"""Counts by what is counted: an answer depends on stages only where it has to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import (
    CountsByStructure,
    Formula,
    Once,
    Study,
    hookimpl,
    map_counts,
    occurs,
    stage_counts,
    sum_counts,
)
from parcost.binding.binder import Binder
from parcost.contract.queries import READS, STRUCTURES, Reads
from parcost.contract.schema import block_type
from parcost.plugins.discovery import load
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space
from parcost.search.variants import Choice, Variants
from parcost_plugins.vocabulary import Layout, ScheduleChoice

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
model m {
  layers = 16, hidden = 2304, heads = 8, kv_heads = 4, head_dim = 256, ffn = 9216
  vocabulary = 64_000, window = 1024, full_every = 2, experts = 8, top_k = 2, dense_first = 1
}
cluster { devices = 64 }
layout { tp = 2, pp = 2, zero = 1 }
schedule { kind = interleaved, chunks = 2 }
training { sequence = 2048, global_batch = 256 sequences, recompute = selective }
"""


def study() -> Study:
    """Return the study of the spec."""
    (scenario,) = parcost.load_text(SPEC)
    return scenario.first


def variants(base: Study) -> Variants:
    """Return the study under other numbers of stages and chunks."""
    axes = [("layout.pp", Layout, "pp"), ("schedule.chunks", ScheduleChoice, "chunks")]
    choices = [
        Choice(
            name=name,
            schema=schema,
            label=vars(base[schema])["label"],
            attribute=attribute,
            values=[2, 4],
        )
        for name, schema, attribute in axes
    ]
    assert block_type(Layout).kind == "layout"
    return Variants(base, choices)


def test_counts_of_structures_are_those_of_the_first_and_say_that_they_were_read() -> None:
    row = CountsByStructure([(4, 4), (2, 2, 2, 2)], rank=2)
    reads = Reads()
    token = READS.set(reads)
    try:
        assert sum_counts(row) == 8
        assert occurs(row)
        assert row == CountsByStructure([(4, 4), (2, 2, 2, 2)], rank=2)
        assert not reads.axes
        assert (len(row), row[1], list(row)) == (2, 4, [4, 4])
        assert reads.axes == {STRUCTURES}
    finally:
        READS.reset(token)
    assert not occurs(CountsByStructure([(0, 0), (0,)], rank=2))
    assert len({row, CountsByStructure([(4, 4), (2, 2, 2, 2)], rank=2)}) == 1


def test_totals_that_differ_are_an_array_over_structures() -> None:
    total = sum_counts(CountsByStructure([(1, 0), (1, 1, 1, 0)], rank=3))
    assert isinstance(total, np.ndarray)
    assert total.shape == (2, 1, 1)
    assert total.ravel().tolist() == [1, 3]


def test_counts_are_combined_stage_by_stage() -> None:
    first = CountsByStructure([(1.0, 0.0), (1.0, 0.0, 0.0)], rank=1)
    last = CountsByStructure([(0.0, 1.0), (0.0, 0.0, 1.0)], rank=1)
    both = map_counts(max, first, last, 0.5)
    assert isinstance(both, CountsByStructure)
    assert both.each == ((1.0, 1.0), (1.0, 0.5, 1.0))
    assert map_counts(min, (1, 5), 3) == (1, 3)


@pytest.mark.slow
def test_answers_by_row_are_those_by_stage_under_all_stages() -> None:
    base = study()
    several = variants(base)
    for hook, at in product(
        ("operators", "parameters", "terms", "memory"), product((0, 1), (0, 1))
    ):
        pp, chunks = ((2, 4)[i] for i in at)
        alone = base.with_blocks(
            {
                Layout: (_with(base[Layout], pp=pp),),
                ScheduleChoice: (_with(base[ScheduleChoice], chunks=chunks),),
            }
        )
        among = _count_rows(several.study_of(at), hook)
        assert among == _count_rows(alone, hook)
        assert among


def _with(block: Any, **values: Any) -> Any:
    return type(block)(**{**vars(block), **values})


def _count_rows(study: Study, hook: str) -> list[tuple[str, Any]]:
    """Return the name without stages, which differ between structures, and the count of each."""
    answers = [a for _, a in study.contributions(hook) if hasattr(a, "count")]
    return [(a.name.partition(", stage")[0], a.count) for a in answers]


@stage_counts
def _failure(_: Study) -> tuple[float, ...]:
    raise ZeroDivisionError


@stage_counts
def _words(_: Study) -> Any:
    return ("many",)


@stage_counts
def _three(_: Study) -> tuple[float, ...]:
    return (1.0, 1.0, 1.0)


FAILURES: dict[Callable[..., Any], str] = {
    _failure: "raised ZeroDivisionError",
    _words: "gave the term `own` count = ['many'], which is neither a count nor a list with a count "
    "for each virtual stage",
    _three: "`own` has counts for 3 virtual stages, but the pipeline has 4",
}


@pytest.mark.parametrize("row", FAILURES)
def test_counts_that_fail_are_a_fault_of_their_plugin(row: Callable[..., Any]) -> None:
    @hookimpl
    def terms(study: Study) -> Iterator[Once]:
        count = study.query(row)
        yield Once(name="own", seconds=1.0, formula=Formula(text="t"), when="end", count=count)

    plugins = load(("other", SimpleNamespace(terms=terms)))
    legal = SPEC.replace("zero = 1", "zero = 1, sequence_parallel = on")
    (scenario,) = parcost.load_text(legal, plugins=plugins)
    (result,) = scenario.evaluate().results
    assert [fault.message for fault in result.faults] == [FAILURES[row]]
    axes = {"layout.pp": [2, 4], "layout.zero": [0, 1]}
    found = search(space(scenario, axes, list(axes)), SearchRequest(budget_seconds=1e9))
    assert sum(FAILURES[row] in fault for fault in found.faults) == 1


def test_a_sweep_is_bound_once_for_each_number_of_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[Binder] = []
    bind = Binder.bind
    monkeypatch.setattr(Binder, "bind", lambda self: (bound.append(self), bind(self))[1])
    text = SPEC.replace("tp = 2, pp = 2", "tp = [1, 2, 4, 8], pp = [1, 2, 4]")
    text = text.replace("schedule { kind = interleaved, chunks = 2 }", "")
    (scenario,) = parcost.load_text(text)
    results = scenario.evaluate().results
    run = sum(len(result.study.axes[0][1]) for result in results)
    assert run >= 3
    assert run + sum(len(result.infeasible) for result in results) == 12
    assert len(bound) == 1 + 3  # to see the axes, and for each number of stages
