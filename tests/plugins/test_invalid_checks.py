"""A rule that answers neither yes nor no, or cannot say so, is a fault of whoever made it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Check, Report, SpecError, Study, hookimpl
from parcost.plugins.discovery import Plugins, load
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space
from parcost_apps.search.report import faults, rank_layouts
from parcost_plugins.vocabulary import Layout

pytestmark = pytest.mark.slow

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 4, zero = 1, sequence_parallel = on }
training { sequence = 4096, global_batch = 64 sequences, recompute = full }
"""
SWEPT = TEXT.replace("tp = 4", "tp = [2, 4]")
HOOKS = ("checks", "outcome_checks", "calculations")
NAN = float("nan")


class Unspeakable:
    def __format__(self, _: str) -> str:
        raise GeneratorExit


FAULTY: dict[str, tuple[dict[str, Any], str]] = {
    "nan": ({"holds": NAN}, "holds = nan, which is neither true nor false"),
    "a word": ({"holds": "no"}, "holds = 'no', which is neither true nor false"),
    "a number": ({"holds": 0.0}, "holds = 0.0, which is neither"),
    "nothing": ({"holds": None}, "holds = None, which is neither"),
    "a list": ({"holds": [False]}, "holds = [False], which is neither"),
    "numbers": ({"holds": np.array(NAN)}, "holds = array(nan), which is neither"),
    "objects": ({"holds": np.array(None)}, "holds = array(None, dtype=object), which"),
    "severity": ({"severity": "fatal"}, "severity = 'fatal', which is not error or warning"),
    "severities": ({"severity": ["error"]}, "severity = ['error'], which is not"),
    "id": ({"id": 7}, "`7` 7 where text is expected"),
    "subject": ({"subject": None}, "None where text is expected"),
    "message": ({"message": b"no"}, "b'no' where text is expected"),
    "no input": ({"message": "{tp} no"}, "words that cannot be formatted: KeyError: 'tp'"),
    "no help": ({"help": "{tp}"}, "words that cannot be formatted: KeyError: 'tp'"),
    "format": ({"message": "{x:zz}", "inputs": {"x": 1.5}}, "cannot be formatted: ValueError: "),
    "inputs": ({"inputs": None}, "words that cannot be formatted: AttributeError: "),
    "empty": ({"message": "{x}", "inputs": {"x": np.ones(0)}}, "cannot be formatted: IndexError: "),
    "input": ({"message": "{x}", "inputs": {"x": Unspeakable()}}, "be formatted: GeneratorExit"),
}


def check(**words: Any) -> Check:
    return Check(**{"id": "odd", "holds": False, "subject": "", "message": "no", **words})


def with_(hook: str, **words: Any) -> Plugins:
    return load(("odd", SimpleNamespace(**{hook: hookimpl(lambda: [check(**words)])})))


def evaluate_text(text: str, plugins: Plugins | None) -> Report:
    return parcost.load_text(text, plugins=plugins)[0].evaluate()


def search_text(plugins: Plugins) -> Iterator[str]:
    """Yield what a search tells of plugins."""
    (scenario,) = parcost.load_text(TEXT, plugins=plugins)
    try:
        found = search(space(scenario, {"layout.tp": [2, 4]}, ["tp"]), SearchRequest())
    except SpecError as error:
        yield from (d.message for d in error.diagnostics if d.id == "plugin-failed")
    else:
        assert not found.proven
        yield from faults(found, rank_layouts(found))


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("case", FAULTY)
def test_an_undecided_check_is_a_named_fault_and_exit_code_3(case: str, hook: str) -> None:
    words, said = FAULTY[case]
    for text in (TEXT, SWEPT):
        report = evaluate_text(text, with_(hook, **words))
        found = {(f.plugin.name, f.hook, f.message) for r in report.results for f in r.faults}
        ((plugin, where, message),) = found
        assert (plugin, where) == ("odd", hook)
        assert said in message
        assert report.exit_code == 3


@pytest.mark.parametrize("hook", ["checks", "outcome_checks"])
def test_no_point_of_a_sweep_is_good_by_it(hook: str) -> None:
    for row in evaluate_text(SWEPT, with_(hook, holds="yes")).rows():
        assert not row["feasible"]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("case", ["nan", "a word", "severity", "no input"])
def test_a_search_tells_it(case: str, hook: str) -> None:
    words, said = FAULTY[case]
    assert any(
        f"`odd` failed in `{hook}`: " in one and said in one
        for one in search_text(with_(hook, **words))
    )


@pytest.mark.parametrize("holds", [True, np.True_, np.array(True), np.ones(1, dtype=bool)])
def test_what_holds_needs_no_words(holds: Any) -> None:
    report = evaluate_text(SWEPT, with_("checks", holds=holds, message="{nothing}"))
    assert report.exit_code == 0


def test_the_message_of_a_check_is_formatted_for_every_point() -> None:
    def checks(study: Study) -> list[Check]:
        tp = study[Layout].tp
        return [
            check(
                holds=tp != 4,
                message="tp = {tp:d} is {half:.1f}",
                inputs={"tp": tp, "half": tp / 2},
            )
        ]

    report = evaluate_text(SWEPT, load(("odd", SimpleNamespace(checks=hookimpl(checks)))))
    assert [row["reason"] for row in report.rows()] == ["", "tp = 4 is 2.0"]
    assert report.exit_code == 0
