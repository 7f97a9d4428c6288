"""Counts by what is counted: an answer depends on stages only where it has to."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Formula, Once, StageCounts, Study, hookimpl
from parcost.contract.queries import READS, Reads
from parcost.contract.schema import block_type
from parcost.engine.study import contribution
from parcost.plugins.discovery import load
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space
from parcost.search.variants import Choice, Variants
from parcost_plugins.vocabulary import Layout, ScheduleChoice
from parcost_plugins.vocabulary.partition import layers, map_stages, on_first, on_last

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

#: Plugins that still read the number of stages, by hook. The list may only become shorter.
READERS = {
    "operators": set[str](),
    "parameters": set[str](),
    "terms": {"data_parallel", "data_parallel.zero", "optimizer", "pipeline", "tensor_parallel"},
    "memory": {"memory.overheads", "memory.state"},
}


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


def readers(hook: str) -> set[str]:
    """Return the plugins whose answers to *hook* depend on the number of stages."""
    several = variants(study())
    found = set()
    for position, plugin in enumerate(several.base.plugins.implementers(hook)):
        reads = Reads()
        token = READS.set(reads)
        try:
            several.study_of((0, 0)).query(contribution, hook, position)
        finally:
            READS.reset(token)
        if reads.axes:
            found.add(plugin.name)
    return found


def test_a_row_is_how_many_there_are_in_all_and_says_how_many_on_each_stage() -> None:
    row = StageCounts(16, layers)
    assert sum(row) == 16
    assert any(row)
    assert not any(StageCounts(0, layers))
    assert row.for_study(study()) == (4, 4, 4, 4)
    assert row == StageCounts(16, layers)
    assert row != StageCounts(16, on_first)
    assert len({row, StageCounts(16, layers), StageCounts(16, layers, 1)}) == 2


def test_rows_of_rows_are_counted_stage_by_stage() -> None:
    both = map_stages(max, StageCounts(1.0, on_first), StageCounts(1.0, on_last))
    assert isinstance(both, StageCounts)
    assert both.for_study(study()) == (1.0, 0.0, 0.0, 1.0)
    assert map_stages(min, StageCounts(16, layers), 3).for_study(study()) == (3, 3, 3, 3)  # type: ignore[attr-defined]
    assert map_stages(min, (1, 5), 3) == (1, 3)


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


def test_plugins_that_read_the_number_of_stages_are_no_more_than_those_known() -> None:
    found = {hook: readers(hook) for hook in READERS}
    assert found == READERS


def _failure(_: Study) -> tuple[float, ...]:
    raise ZeroDivisionError


def _words(_: Study) -> Any:
    return ("many",)


def test_a_count_that_fails_is_a_fault_of_its_plugin() -> None:
    @hookimpl
    def terms() -> list[Once]:
        return [
            Once(name=name, seconds=1.0, formula=Formula(text="given"), when="end", count=row)
            for name, row in (
                ("a", StageCounts(1, _failure)),
                ("b", StageCounts(1, _words)),
                ("c", StageCounts(16, layers)),
            )
        ]

    plugins = load(("other", SimpleNamespace(terms=terms)))
    (scenario,) = parcost.load_text(SPEC, plugins=plugins)
    found = scenario.first
    own = [term for plugin, term in found.contributions("terms") if plugin.name == "other"]
    assert [(term.name, term.count) for term in own] == [("c", (4, 4, 4, 4))]
    assert [f"{fault.message}" for fault in found.faults] == [
        "gave `a`, which has a count that raised ZeroDivisionError",
        "gave `b`, which counts ('many',), which is not a number for each virtual stage",
    ]


@pytest.mark.slow
def test_a_search_names_each_term_of_a_row_that_fails_once() -> None:
    @hookimpl
    def terms() -> list[Once]:
        rows = {"a": _failure, "b": _words, "c": _failure, "d": _three}
        return [
            Once(
                name=name,
                seconds=1.0,
                formula=Formula(text="given"),
                when="end",
                count=StageCounts(1, row),
            )
            for name, row in rows.items()
        ]

    plugins = load(("other", SimpleNamespace(terms=terms)))
    legal = SPEC.replace("zero = 1", "zero = 1, sequence_parallel = on")
    (scenario,) = parcost.load_text(legal, plugins=plugins)
    axes = {"layout.pp": [2, 4], "layout.zero": [0, 1]}
    result = search(space(scenario, axes, list(axes)), SearchRequest(budget_seconds=1e9))
    for message in (
        "gave `a`, which has a count that raised ZeroDivisionError",
        "gave `b`, which counts ('many',), which is not a number for each virtual stage",
        "gave `c`, which has a count that raised ZeroDivisionError",
        "`d` has counts for 3 virtual stages, but the pipeline has 4",
    ):
        assert sum(message in fault for fault in result.faults) == 1, message


def _three(_: Study) -> tuple[float, ...]:
    return (1.0, 1.0, 1.0)
