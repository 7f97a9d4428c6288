"""Structures that differ in numbers alone are asked about at once, and are what they are alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import parcost
from parcost import Formula, Once, Study, hookimpl, stage_number
from parcost.numeric import is_array
from parcost.plugins.discovery import load
from parcost.search import scored_parts
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import Space, space
from parcost_plugins.vocabulary import Layout, ScheduleChoice

pytestmark = pytest.mark.slow

TEXT = """
use catalog.devices.h100_sxm
use catalog.devices.b200
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { device = h100_sxm, devices = 32 }
training { sequence = 4096, global_batch = 64 sequences }
"""
#: Layers of four kinds, with scaled low-precision products.
EXPERTS = (
    TEXT.replace("llama3_8b", "llama3_8b as dense").replace(
        "precisions.bf16", "precisions.fp8_delayed"
    )
    + """
model experts {
  layers = 16, hidden = 2304, heads = 8, kv_heads = 8, head_dim = 256, ffn = 9216
  vocabulary = 64_000, window = 1024, full_every = 2, experts = 8, top_k = 2, dense_first = 1
}
"""
).replace("training {", "training { model = experts,")
AXES: dict[str, list[Any]] = {
    "layout.pp": [1, 2, 4],
    "schedule.chunks": [1, 2],
    "schedule.kind": ["one_f_one_b", "interleaved"],
    "layout.tp": [2, 4, 8],
    "layout.zero": [0, 1, 2, 3],
    "layout.sequence_parallel": ["off", "on"],
}


def spaces(
    axes: dict[str, list[Any]] = AXES, text: str = TEXT, **hooks: Any
) -> tuple[Space, Space]:
    """Return a space with its structures together, and the same with each on its own."""
    plugins = load(("own", SimpleNamespace(**{k: hookimpl(v) for k, v in hooks.items()})))
    (scenario,) = parcost.load_text(text, plugins=plugins)
    found = space(scenario, axes, list(axes))
    return found, evolve(found, merges=False)


def best_layouts(whole: Space) -> list[tuple[Any, ...]]:
    """Return what a search lists."""
    found = search(whole, SearchRequest(keep=8, budget_seconds=1e9))
    assert found.proven
    return [(one.values, one.seconds, one.bytes_) for one in (*found.best, *found.front)]


@pytest.mark.parametrize("text", [TEXT, EXPERTS], ids=["dense", "experts"])
def test_no_hook_of_ours_depends_on_the_number_of_stages(text: str) -> None:
    whole, _ = spaces(text=text)
    (group,) = whole.groups()
    assert len(group.structures) > 3
    with np.errstate(all="ignore"):
        apart = {
            (hook, str(plugin))
            for hook in (
                "checks",
                "pipelines",
                "terms",
                "memory",
                "capacities",
                "search_goals",
                "objectives",
            )
            for i, plugin in enumerate(group.variants.base.plugins.implementers(hook))
            if group.variants.common_answers(hook, i) is None
        }
    assert not apart


@pytest.mark.parametrize("text", [TEXT, EXPERTS], ids=["dense", "experts"])
def test_structures_at_once_are_what_they_are_one_by_one(text: str) -> None:
    together, apart = spaces(text=text)
    assert best_layouts(together) == best_layouts(apart)


def test_a_plugin_may_depend_on_the_structure() -> None:
    together, apart = spaces(AXES | {"schedule.kind": ["one_f_one_b", "chimera"]})
    (group,) = together.groups()
    terms = range(group.variants.plugins("terms"))
    with np.errstate(all="ignore"):
        assert any(group.variants.common_answers("terms", i) is None for i in terms)
    assert best_layouts(together) == best_layouts(apart)


def test_a_structure_is_scored_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = AXES | {"schedule.kind": ["one_f_one_b", "chimera"]}
    whole = best_layouts(spaces(axes)[0])
    monkeypatch.setattr(scored_parts, "MOST_LAYOUTS", 16)
    assert best_layouts(spaces(axes)[0]) == whole


def test_devices_are_groups_of_their_own() -> None:
    axes = {"cluster.device": ["h100_sxm", "b200"], **AXES}
    together, apart = spaces(axes)
    assert len(list(together.groups())) == 2
    assert best_layouts(together) == best_layouts(apart)


def by_stages(study: Study) -> float:
    return 1e-3 * study[Layout].pp * study[ScheduleChoice].chunks


@stage_number
def number_by_stages(study: Study) -> float:
    return by_stages(study)


READERS: dict[str, Callable[[Study], float]] = {
    "as a number": by_stages,
    "by a branch": lambda study: 1e-3 if study[Layout].pp > 2 else 2e-3,
    "by a range": lambda study: sum(1e-3 for _ in range(study[Layout].pp)),
    "by the pipeline": lambda study: 1e-3 * study.pipeline.stages,
    "by a query": lambda study: study.query(by_stages),
    "as what broadcasts": lambda study: study.query(number_by_stages),
    "as what a branch takes for one number": lambda study: (
        1e-3 if study.query(number_by_stages) > 2e-3 else 2e-3
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_plugin_may_read_the_number_of_stages_in_any_way(reader: str) -> None:
    def terms(study: Study) -> list[Once]:
        seconds = READERS[reader](study)
        return [Once(name="own", seconds=seconds, formula=Formula(text="own"), when="end")]

    together, apart = spaces(terms=terms)
    assert best_layouts(together) == best_layouts(apart)


def test_what_fails_for_several_numbers_of_stages_alone_is_no_fault() -> None:
    def terms(study: Study) -> list[Once]:
        if is_array(study.query(number_by_stages)):
            raise ValueError("only one by one")
        return [Once(name="own", seconds=1e-3, formula=Formula(text="own"), when="end")]

    together, apart = spaces(terms=terms)
    assert best_layouts(together) == best_layouts(apart)
    assert not together.faults


def test_a_step_of_one_stage_is_exact_also_where_others_block_on_transfers() -> None:
    plugins = load()
    (scenario,) = parcost.load_text(TEXT + "schedule { transfers = blocking }", plugins=plugins)
    axes: dict[str, list[Any]] = {"layout.pp": [1, 2], "layout.tp": [2, 4]}
    whole = space(scenario, axes, list(axes))
    scored: list[tuple[int, bool]] = []
    search(
        whole,
        SearchRequest(budget_seconds=1e9),
        points=lambda s: scored.append((s.pipeline.stages, bool(np.all(s.exact)))),
    )
    assert (1, True) in scored
    assert (1, False) not in scored
    assert (2, False) in scored
