"""Plugins of others take part in a search like ours, in whatever order they are loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import parcost
from parcost import Formula, Study, Work, hookimpl
from parcost.plugins import Plugins, load
from parcost.search.found import Found
from parcost.search.run import Wish, search
from parcost.search.space import space
from parcost_plugins.vocabulary import Layout, Training

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
training { sequence = 4096, global_batch = 32 sequences }
"""
AXES: dict[str, list[Any]] = {
    "layout.tp": [1, 2, 4],
    "layout.zero": [0, 1, 3],
    "training.recompute": ["none", "selective", "full"],
}


def found(plugins: Plugins | None) -> Found:
    (scenario,) = parcost.load_text(TEXT, plugins=plugins)
    return search(space(scenario, AXES, list(AXES)), Wish(keep=3, budget_seconds=1e9))


@hookimpl
def slow(study: Study) -> list[Work]:
    """Take a second for each micro-batch, but under full recomputation, and at tp 4."""
    if study[Training].recompute == "full":
        return []
    seconds = 1.0 * (study[Layout].tp != 4)
    formula = Formula(text="a second", inputs={})
    return [Work(name="nuisance", seconds=seconds, pass_="F", formula=formula)]


def test_the_terms_of_another_plugin_change_the_winner() -> None:
    without = found(None).best[0]
    assert (without.values["layout.tp"], without.values["training.recompute"]) != (4.0, "none")
    best = found(load(("nuisance", SimpleNamespace(terms=slow)))).best
    for layout in best:
        avoided = layout.values["training.recompute"] == "full" or layout.values["layout.tp"] == 4.0
        assert avoided


def test_the_order_of_plugins_changes_no_bit() -> None:
    usual = load()
    reversed_ = Plugins(tuple(reversed(usual.plugins)))
    for one, other in zip(found(usual).best, found(reversed_).best, strict=True):
        assert (one.seconds, one.bytes_, one.values) == (other.seconds, other.bytes_, other.values)
