"""A term that no step can have is a fault of whoever made it, alone and in a search."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Check, Edge, Figure, Formula, Memory, Once, SpecError, Study, Work, hookimpl
from parcost.contract.terms import Names
from parcost.plugins.discovery import Plugins, load
from parcost.search.best_first import SearchRequest, search
from parcost.search.result import SearchResult
from parcost.search.space import space
from parcost_plugins.vocabulary import Layout

pytestmark = pytest.mark.slow

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 4, pp = 2, zero = 1 }
training { sequence = 4096, global_batch = 32 sequences }
"""
FORMULA = Formula(text="?")
NAN, INF = float("nan"), float("inf")


def work(**numbers: Any) -> Work:
    return Work(**{"name": "odd", "seconds": 0.01, "pass_": "F", "formula": FORMULA, **numbers})


def once_term(**numbers: Any) -> Once:
    return Once(**{"name": "odd", "seconds": 0.01, "when": "end", "formula": FORMULA, **numbers})


def edge(**numbers: Any) -> Edge:
    return Edge(**{"name": "odd", "seconds": 0.01, "formula": FORMULA, **numbers})


def memory(**numbers: Any) -> Memory:
    return Memory(**{"name": "odd", "bytes_": 1e6, "formula": FORMULA, **numbers})


def check(**numbers: Any) -> Check:
    return Check(**{"id": "odd", "holds": True, "subject": "", "message": "odd", **numbers})


class OwnWork(Work):
    """A kind of work of a plugin's own."""


class OwnMemory(Memory):
    """A kind of memory of a plugin's own."""


def hook_of(term: Any) -> str:
    if isinstance(term, Memory):
        return "memory"
    return "checks" if isinstance(term, Check) else "terms"


def with_(*terms: Any) -> Plugins:
    hook = hook_of(terms[0])
    return load(("odd", SimpleNamespace(**{hook: hookimpl(lambda: list(terms))})))


def evaluate_single(plugins: Plugins | None) -> Any:
    return parcost.load_text(TEXT, plugins=plugins)[0].evaluate().result


def run_search(plugins: Plugins | None, axes: dict[str, list[Any]] | None = None) -> SearchResult:
    (scenario,) = parcost.load_text(TEXT, plugins=plugins)
    axes = axes or {"layout.zero": [0, 1]}
    return search(space(scenario, axes, list(axes)), SearchRequest(keep=3, budget_seconds=1e9))


@cache
def unbroken() -> Any:
    """Return the result without a plugin of a test."""
    return evaluate_single(None)


@cache
def unbroken_search() -> SearchResult:
    return run_search(None)


FAULTY: dict[str, tuple[Callable[[], Any], str]] = {
    "negative count": (lambda: work(count=-1.0), "`odd` count = -1.0"),
    "a negative count": (lambda: work(count=(1.0, -1.0)), "`odd` count = "),
    "count of nan": (lambda: once_term(count=NAN), "`odd` count = nan"),
    "a count of nan": (lambda: memory(count=(1.0, NAN)), "`odd` count = "),
    "infinite count": (lambda: memory(count=INF), "`odd` count = inf"),
    "an infinite count": (lambda: once_term(count=[1.0, INF]), "`odd` count = "),
    "count in words": (lambda: work(count="11"), "`odd` count = "),
    "no count": (lambda: work(count=None), "`odd` count = None"),
    "counts of arrays": (lambda: work(count=(np.ones(2), 1.0)), "`odd` count = "),
    "count of a table": (lambda: work(count=np.ones((2, 2))), "`odd` count = "),
    "too few counts": (lambda: work(count=(1.0,)), "`odd` has counts for 1 virtual stages"),
    "too few counts of memory": (
        lambda: memory(count=(1.0,)),
        "`odd` has counts for 1 virtual stages",
    ),
    "unknown pass": (lambda: work(pass_="X"), "`odd` names `X`"),
    "unknown moment": (lambda: memory(moments=("lunch",)), "`odd` names `lunch`"),
    "unknown when": (lambda: once_term(when="noon"), "`odd` names `noon`"),
    "set of moments": (lambda: memory(moments={"forward"}), "`odd` moments = {'forward'}"),
    "no moments": (lambda: memory(moments=None), "`odd` moments = None"),
    "freed twice": (lambda: memory(per_micro_batch=True, freed_at_b=2.0), "`odd` freed_at_b = 2"),
    "never freed": (lambda: memory(freed_at_b=-0.5), "`odd` freed_at_b = -0.5"),
    "freed nan": (lambda: memory(freed_at_b=NAN), "`odd` freed_at_b = nan"),
    "freed for ever": (lambda: memory(freed_at_b=np.array(INF)), "`odd` freed_at_b = "),
    "boundary below 0": (lambda: edge(boundaries=(-1.0,)), "`odd` a boundary of -1.0"),
    "boundary of nan": (lambda: edge(boundaries=(NAN,)), "`odd` a boundary of nan"),
    "no boundaries": (lambda: edge(boundaries=7.0), "`odd` boundaries = 7.0"),
    "too many boundaries": (
        lambda: edge(boundaries=(0.1, 0.1)),
        "`odd` has times for 2 boundaries",
    ),
    "no such name": (
        lambda: work(resource=Names(("a", "b"), np.array([2]))),
        "`odd` resources at array([2])",
    ),
    "name below 0": (
        lambda: once_term(resource=Names(("a", "b"), np.array(-1))),
        "`odd` resources at array(-1)",
    ),
    "too long": (lambda: work(seconds=np.ones(7)), "`odd` seconds of shape (7,)"),
    "own work too long": (
        lambda: OwnWork(name="odd", seconds=np.ones(7), pass_="F", formula=FORMULA),
        "`odd` seconds of shape (7,)",
    ),
    "too long boundary": (
        lambda: edge(boundaries=(np.ones(7),)),
        "`odd` a boundary of shape (7,)",
    ),
    "a point of no sweep": (lambda: work(seconds=np.ones(1)), "`odd` seconds of shape (1,)"),
    "memory of a table": (lambda: memory(bytes_=np.ones((2, 2))), "`odd` bytes_ of shape (2, 2)"),
    "check too long": (lambda: check(holds=np.ones(7) > 0), "`odd` holds of shape (7,)"),
    "no name": (lambda: work(name=None), "gave a Work the name None"),
    "names": (lambda: memory(name=["a"]), "gave a Memory the name ['a']"),
    "passes": (lambda: work(pass_=["F"]), "`odd` pass_ = ['F']"),
    "whens": (lambda: once_term(when=["end"]), "`odd` when = ['end']"),
    "resources": (lambda: edge(resource=["compute"]), "`odd` resource = ['compute']"),
    "hosts": (lambda: work(host=["x"]), "`odd` host = ['x']"),
    "windows": (lambda: work(window=["x"]), "`odd` window = ['x']"),
    "also in a word": (lambda: work(also="node"), "`odd` also = 'node'"),
    "also no text": (lambda: once_term(also=(3,), also_busy=(1.0,)), "`odd` also = (3,)"),
    "also no share": (lambda: work(also=("node",)), "`odd` also_busy = ()"),
    "also too busy": (lambda: work(also=("x",), also_busy=(1.5,)), "`odd` also_busy = 1.5"),
    "also nan": (lambda: once_term(also=("x",), also_busy=(NAN,)), "`odd` also_busy = nan"),
    "also too long": (
        lambda: work(also=("x",), also_busy=(np.ones(7),)),
        "`odd` a number of also_busy of shape (7,)",
    ),
    "decimals": (lambda: work(seconds=Decimal(1)), "`odd` seconds = "),
    "complex": (lambda: work(seconds=1j), "`odd` seconds = 1j"),
    "complex numbers": (lambda: memory(bytes_=np.array(1j)), "`odd` bytes_ = array(0.+1.j)"),
    "objects": (
        lambda: once_term(seconds=np.array([1], dtype=object)),
        "`odd` seconds = array([1], d",
    ),
    "symbols": (lambda: once_term(seconds=np.array(["1"])), "`odd` seconds = array(['1']"),
}


@pytest.mark.parametrize("case", FAULTY)
def test_an_invalid_term_is_left_out_and_a_fault(case: str) -> None:
    make, said = FAULTY[case]
    plugins = with_(make())
    result = evaluate_single(plugins)
    (fault,) = result.faults
    assert (fault.plugin.name, fault.hook) == ("odd", hook_of(make()))
    assert said in fault.message
    assert result.figure("step_time") == unbroken().figure("step_time")
    assert result.outcome.memory_bytes == unbroken().outcome.memory_bytes


@pytest.mark.parametrize("case", [case for case in FAULTY if case != "check too long"])
def test_a_search_leaves_it_out_as_well_and_proves_nothing(case: str) -> None:
    make, said = FAULTY[case]
    result, without = run_search(with_(make())), unbroken_search()
    assert any("odd" in fault and said in fault for fault in result.faults)
    assert not result.proven
    assert without.proven
    assert [x.values for x in result.best] == [x.values for x in without.best]
    assert [x.seconds for x in result.best] == [x.seconds for x in without.best]


def test_a_search_with_a_rule_of_a_wrong_shape_names_who_made_it() -> None:
    with pytest.raises(SpecError) as error:  # no layout by itself meets a rule that is none
        run_search(with_(check(holds=np.ones(7) > 0)))
    said = [d.message for d in error.value.diagnostics if d.id == "plugin-failed"]
    assert any("`odd` failed in `checks`: gave `odd` holds of shape (7,)" in one for one in said)


@pytest.mark.parametrize("hook", ["figures", "calculations"])
@pytest.mark.parametrize("value", ["7", None, 1j, np.array([1j]), np.array(None), [1.0]])
def test_a_figure_without_a_number_is_left_out_and_a_fault(hook: str, value: Any) -> None:
    figure = Figure(name="odd", title="odd", value=value, unit="", formula=FORMULA)
    plugins = load(("odd", SimpleNamespace(**{hook: hookimpl(lambda: [figure])})))
    result = evaluate_single(plugins)
    assert not [f for _, f in (*result.figures, *result.details) if f.name == "odd"]
    (fault,) = result.faults
    assert (fault.plugin.name, fault.hook) == ("odd", hook)
    assert fault.message == f"gave the figure `odd` value = {value!r}, which is not a number"
    assert result.figure("step_time") == unbroken().figure("step_time")


@pytest.mark.parametrize("numbers", [np.array([1, 2], dtype=object), np.array([1j, 2j])])
def test_numbers_that_are_none_are_left_out_of_a_sweep(numbers: Any) -> None:
    text = TEXT.replace("tp = 4", "tp = [2, 4]")
    plugins = with_(once_term(seconds=numbers))
    report = parcost.load_text(text, plugins=plugins)[0].evaluate()
    good = parcost.load_text(text)[0].evaluate()
    (message,) = {fault.message for result in report.results for fault in result.faults}
    assert message.startswith("gave the term `odd` seconds = array(")
    assert [row["step_time"] for row in report.rows()] == [row["step_time"] for row in good.rows()]


def test_an_array_over_the_layouts_of_a_search_is_one_of_their_number() -> None:
    axes: dict[str, list[Any]] = {"layout.tp": [1, 2, 4], "layout.zero": [0, 1]}
    lengths = set()

    def seen(study: Study) -> list[Work]:
        tp = study[Layout].tp
        lengths.add(np.shape(tp))
        return [work(seconds=0.01 / tp)]

    plugins = load(("odd", SimpleNamespace(terms=hookimpl(seen))))
    assert run_search(plugins, axes).proven
    assert len(lengths) > 1


def test_terms_of_own_kinds_are_added_up_in_a_search_as_alone() -> None:
    def terms(study: Study) -> list[Work]:
        seconds, share = 0.01 * (2 + study[Layout].zero), 0.5 + study[Layout].zero / 2
        on = {"resource": "x", "also": ("y",), "also_busy": (share,)}
        guest = OwnWork(name="c", seconds=seconds, pass_="F", formula=FORMULA, window="", **on)
        hosts = [OwnWork(name=n, seconds=0.01, pass_="F", formula=FORMULA) for n in "ab"]
        return [
            *hosts,
            OwnWork(name="d", seconds=0.3, pass_="F", formula=FORMULA, resource="y"),
            guest,
        ]

    def memory_terms(study: Study) -> list[Memory]:
        size = 1e9 * (1 + study[Layout].zero)
        return [OwnMemory(name=n, bytes_=size, formula=FORMULA) for n in "ab"]

    hooks = SimpleNamespace(terms=hookimpl(terms), memory=hookimpl(memory_terms))
    plugins = load(("odd", hooks))
    best = run_search(plugins).best[0]
    outcome = evaluate_single(plugins).outcome
    assert best.values == {"layout.zero": 1}
    assert (best.seconds, best.bytes_) == (outcome.step_seconds, outcome.memory_bytes)


@pytest.mark.parametrize(
    "count",
    [
        np.ones(2),
        np.array([1, 1]),
        np.float64(1),
        np.int64(1),
        np.array(1.0),
        (np.float64(1), 1),
        [np.array(1.0), 1.0],
        np.ones(2, dtype=np.float32),
    ],
    ids=repr,
)
@pytest.mark.parametrize("make", [work, once_term, memory])
def test_a_count_may_be_a_number_of_any_kind(make: Any, count: Any) -> None:
    plugins = with_(make(count=count))
    single, searched = evaluate_single(plugins), run_search(plugins)
    seconds, best = counted_once(make)
    assert single.figure("step_time") == seconds
    assert not single.faults
    assert searched.best[0].seconds == best
    assert searched.proven


@cache
def counted_once(make: Any) -> tuple[float, float]:
    """Return the step time with a term once on each stage, alone and of the best of a search."""
    plugins = with_(make(count=(1.0, 1.0)))
    return evaluate_single(plugins).figure("step_time"), run_search(plugins).best[0].seconds
