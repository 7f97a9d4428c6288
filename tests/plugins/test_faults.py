"""A faulty plugin is named, the report is marked incomplete, and nothing is lost."""

from __future__ import annotations

import itertools
import re
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import (
    Check,
    Collective,
    Figure,
    Formula,
    Library,
    Memory,
    Once,
    PluginError,
    Report,
    Schedule,
    Work,
    block,
    hookimpl,
)
from parcost.contract.page import Paper
from parcost.plugins.discovery import load
from parcost_apps.batch.entries import entry_of
from parcost_formats.rendering.report_page import report_page
from parcost_formats.rendering.text import draw
from parcost_formats.rendering.view import View

pytestmark = pytest.mark.slow

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 8, zero = 1, sequence_parallel = on }
training { sequence = 2048, global_batch = 8 sequences }
"""


def evaluate_with(*plugins: tuple[str, Any]) -> Report:
    session = parcost.Session(load(*plugins))
    return session.load_text(SPEC)[0].evaluate()


def faults(report: Report) -> list[str]:
    return [f"plugin {f.plugin} {f.hook}: {f.message}" for f in report.result.faults]


def test_a_plugin_that_raises_is_named_and_costs_only_its_own_terms() -> None:
    def broken() -> Any:
        raise KeyError("warp")

    good, bad = evaluate_with(), evaluate_with(("warp", SimpleNamespace(terms=hookimpl(broken))))
    assert faults(bad) == ["plugin `warp` terms: raised KeyError: 'warp'"]
    assert bad.exit_code == 3
    assert bad.result.outcome is not None
    assert not bad.result.outcome.complete
    assert bad.result.figure("step_time") == good.result.figure("step_time")


def test_a_calculation_that_raises_is_named_in_a_study_without_a_step() -> None:
    def broken() -> Any:
        raise KeyError("warp")

    session = parcost.Session(load(("warp", SimpleNamespace(calculations=hookimpl(broken)))))
    (scenario,) = session.load_text("let nodes = 8\n")
    report = scenario.evaluate()
    assert faults(report) == ["plugin `warp` calculations: raised KeyError: 'warp'"]
    assert [d.message for d in report.diagnostics] == ["no value uses `let nodes`"]
    assert report.exit_code == 3


def test_a_plugin_that_returns_something_else_is_named() -> None:
    plugin = SimpleNamespace(terms=hookimpl(lambda: ["ten seconds"]))
    bad = evaluate_with(("warp", plugin))
    assert faults(bad) == [
        "plugin `warp` terms: returned str where Work or Edge or Once is expected"
    ]
    assert bad.exit_code == 3


def test_a_plugin_that_repeats_a_name_is_named_with_the_owner() -> None:
    def again() -> list[Once]:
        formula = Formula(text="1 s")
        return [Once(name="optimizer update", seconds=1.0, when="end", formula=formula)]

    bad = evaluate_with(("warp", SimpleNamespace(terms=hookimpl(again))))
    (said,) = faults(bad)
    assert said.startswith(
        "plugin `warp` terms: repeats the name `optimizer update`, which plugin "
    )
    assert bad.exit_code == 3
    assert bad.result.figure("step_time") == evaluate_with().result.figure("step_time")


@pytest.mark.parametrize("seconds", ["ten", -1.0, float("nan"), None, np.array([1.0, -1.0])])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    def strange() -> list[Once]:
        formula = Formula(text="?")
        return [Once(name="strange", seconds=seconds, when="end", formula=formula)]

    bad = evaluate_with(("warp", SimpleNamespace(terms=hookimpl(strange))))
    (said,) = faults(bad)
    assert said.startswith("plugin `warp` terms: gave the term `strange` seconds = ")
    assert bad.exit_code == 3


@block("layout", label="none")
class OtherLayout:
    """A block that the vocabulary has already."""


def test_two_plugins_may_not_declare_one_block() -> None:
    twin = SimpleNamespace(blocks=hookimpl(lambda: [OtherLayout]))
    bad = evaluate_with(("twin", twin))
    (line,) = faults(bad)
    assert line.startswith("plugin `twin` blocks: provides the block `layout`, which plugin `")
    assert line.endswith("provides already; the plugin is left out")
    assert bad.exit_code == 3
    assert bad.result.figure("step_time") == evaluate_with().result.figure("step_time")


def test_a_class_that_is_no_block_is_refused() -> None:
    (line,) = faults(evaluate_with(("twin", SimpleNamespace(blocks=hookimpl(lambda: [dict])))))
    assert "returned the class dict, which is not declared with" in line


def test_an_algorithm_that_takes_for_ever_is_an_error_and_not_a_time() -> None:
    class Stuck(Collective):
        name, source = "stuck", "a test"
        operations = frozenset({"reduce_scatter", "all_gather", "all_reduce"})

        def seconds(self, *_: Any) -> float:
            return float("inf")

    text = SPEC.replace("{ devices = 8 }", "{ devices = 16 }").replace("= 8 seq", "= 16 seq")
    session = parcost.Session(
        load(("stuck", SimpleNamespace(collectives=hookimpl(lambda: [Stuck()]))))
    )
    report = session.load_text(text + "collectives { data = stuck }\n")[0].evaluate()
    assert report.exit_code == 1
    (said,) = (d for d in report.diagnostics if d.id == "cannot-run")
    assert "no finite time for" in said.message


def test_an_algorithm_that_cannot_run_is_refused_before_it_is_priced() -> None:
    text = (
        SPEC.replace("cluster { devices = 8 }", "cluster { devices = 24 }")
        .replace(
            "layout { tp = 8, zero = 1, sequence_parallel = on }",
            "layout { dp = 24, zero = 1 }\ncollectives { data = halving_doubling }",
        )
        .replace("global_batch = 8", "global_batch = 24")
    )
    report = parcost.load_text(text)[0].evaluate()
    assert report.exit_code == 1
    assert [d.id for d in report.diagnostics] == ["collective-unable"]
    assert report.result.outcome is None


def test_a_plugin_can_be_switched_off_and_misspelt() -> None:
    session = parcost.Session(load(without=["optimizer"]))
    report = session.load_text(SPEC)[0].evaluate()
    assert report.result.outcome is not None
    assert not any("optimizer update" in line.name for line in report.result.outcome.ledger)
    with pytest.raises(PluginError, match="no plugin is called `optimiser`; did you mean"):
        load(without=["optimiser"])


def test_every_answer_is_stamped_with_plugin_and_distribution() -> None:
    def mine() -> list[Work]:
        formula = Formula(text="1 ms", source="by hand")
        return [Work(name="mine", seconds=1e-3, pass_="F", formula=formula)]

    report = evaluate_with(("mine", SimpleNamespace(terms=hookimpl(mine))))
    assert report.result.outcome is not None
    owners = {line.name: line.plugin for line in report.result.outcome.ledger if line.plugin}
    assert owners["mine"].name == "mine"
    built_in = next(p for name, p in owners.items() if name != "mine")
    assert (built_in.distribution, built_in.version) == ("parcost", parcost.version.__version__)


def test_a_step_that_is_faster_than_the_peak_is_not_believed() -> None:
    session = parcost.Session(
        load(without=["kernels.operator_times", "tensor_parallel", "frameworks.host"])
    )
    report = session.load_text(SPEC)[0].evaluate()
    (fast,) = (d for d in report.diagnostics if d.id == "faster-than-peak")
    # MFU is the least time over that of the step, however short both are
    step, least = (float(n) for n in re.findall(r"([\d.e+-]+) s\b", fast.message))
    (mfu,) = re.findall(r"MFU would be (\d+) %", fast.message)
    assert float(mfu) == pytest.approx(100 * least / step, rel=0.02)
    assert step < 1.0
    assert report.exit_code == 1


STRANGE = np.ones(3)
SWEEP = SPEC.replace("tp = 8", "tp = [2, 4]")
SHAPES = {
    "terms": lambda: Once(name="odd", seconds=STRANGE, when="end", formula=Formula(text="?")),
    "memory": lambda: Memory(name="odd", bytes_=STRANGE, formula=Formula(text="?")),
    "checks": lambda: Check(id="odd", holds=STRANGE > 0, subject="", message="odd"),
    "outcome_checks": lambda: Check(id="odd", holds=STRANGE > 0, subject="", message="odd"),
    "figures": lambda: Figure(
        name="odd", title="odd", value=STRANGE, unit="s", formula=Formula(text="?")
    ),
}


@pytest.mark.parametrize("hook", SHAPES)
@pytest.mark.parametrize("text, wanted", [(SPEC, "one number is"), (SWEEP, "the sweep has 2")])
def test_an_array_of_another_length_is_a_fault_of_its_plugin(
    hook: str, text: str, wanted: str
) -> None:
    plugin = ("warp", SimpleNamespace(**{hook: hookimpl(lambda: [SHAPES[hook]()])}))
    report = parcost.Session(load(plugin)).load_text(text)[0].evaluate()
    entry = entry_of(report, "full")
    assert entry.exit_code == 3
    assert not entry.rejected
    (said,) = entry.faults
    assert said.startswith(f"plugin `warp` failed in `{hook}`: gave `odd` ")
    assert f"of shape (3,), where {wanted}" in said
    if hook in ("terms", "memory"):
        figure = parcost.load_text(text)[0].evaluate().result.figure("step_time")
        assert np.all(report.result.figure("step_time") == figure)


@pytest.mark.parametrize("method", ["limits", "for_study"])
def test_a_schedule_that_raises_is_named_with_its_plugin(method: str) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("warp")

    own = {"name": "warped", "order": broken, method: broken}
    schedule = type("Warped", (Schedule,), own)()
    plugin = ("warp", SimpleNamespace(schedules=hookimpl(lambda: [schedule])))
    text = SPEC.replace("tp = 8", "pp = 2, tp = 4") + "schedule { kind = warped }\n"
    (scenario,) = parcost.Session(load(plugin)).load_text(text)
    with pytest.raises(
        PluginError, match=f"plugin `warp` failed in `schedules`: `{method}` .*KeyE"
    ):
        scenario.evaluate()


@pytest.mark.parametrize("found", [None, "1f1b"])
def test_a_schedule_that_is_none_for_a_study_is_named_with_its_plugin(found: Any) -> None:
    own = {"name": "warped", "order": lambda *_: [], "for_study": lambda *_: found}
    schedule = type("Warped", (Schedule,), own)()
    plugin = ("warp", SimpleNamespace(schedules=hookimpl(lambda: [schedule])))
    text = SPEC.replace("tp = 8", "pp = 2, tp = 4") + "schedule { kind = warped }\n"
    (scenario,) = parcost.Session(load(plugin)).load_text(text)
    with pytest.raises(
        PluginError,
        match=r"plugin `warp` failed in `schedules`: `for_study` returned .* where a schedule is",
    ):
        scenario.evaluate()


class Broken(Collective):
    """An algorithm that fails, or has no time, for one operation."""

    name, source = "broken", "a test"
    operations = frozenset({"all_reduce", "all_gather", "reduce_scatter"})

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def seconds(self, operation: str, n: Any, group: Any) -> Any:  # noqa: ARG002
        if self.answer is None:
            raise KeyError("warp")
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "raised KeyError: 'warp'"),
        ("soon", "is 'soon', where seconds"),
        (-1.0, "is -1.0, where seconds of at least 0 are expected"),
    ],
)
def test_an_algorithm_that_fails_is_left_out_and_named(answer: Any, said: str) -> None:
    library = Library(name="ours", source="us", algorithms={"all_reduce": ("broken", "ring")})
    hooks = {"collectives": lambda: [Broken(answer)], "libraries": lambda: [library]}
    plugin = ("odd", SimpleNamespace(**{name: hookimpl(do) for name, do in hooks.items()}))
    text = SPEC.replace("= 8 seq", "= 16 seq").replace("{ devices = 8 }", "{ devices = 16 }")
    (plain,) = parcost.load_text(text + "collectives { data = ring }\n")
    (scenario,) = parcost.Session(load(plugin)).load_text(text + "collectives { library = any }\n")
    report = scenario.evaluate()
    assert report.exit_code == 3
    (fault,) = {
        str(f) for f in report.result.faults if f.hook == "collectives" and "all_r" in str(f)
    }
    assert fault.startswith(
        "plugin `odd` failed in `collectives`: `seconds` of `broken` for all_re"
    )
    assert said in fault
    assert report.result.figure("step_time") <= plain.evaluate().result.figure("step_time")
    (named,) = parcost.Session(load(plugin)).load_text(text + "collectives { data = broken }\n")
    with pytest.raises(PluginError, match="plugin `odd` failed in `collectives`: `seconds` of"):
        named.evaluate()


class FormerSchedule:
    """A schedule of the first version of the contract, without a class to derive from."""

    name = "former"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[Any]:  # noqa: ARG002
        return []


class FormerCollective:
    """An algorithm of the first version."""

    name, operations, source = "former", frozenset({"all_reduce"}), "a test"

    def seconds(self, *_: Any) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("hook", "thing", "base"),
    [("schedules", FormerSchedule, "Schedule"), ("collectives", FormerCollective, "Collective")],
)
def test_a_plugin_of_the_former_contract_gets_one_line_that_says_what_changed(
    hook: str, thing: type, base: str
) -> None:
    (fault,) = load(("old", SimpleNamespace(**{hook: hookimpl(lambda: [thing()])}))).broken
    assert str(fault).startswith(f"plugin `old` failed in `{hook}`: returned {thing.__name__}")
    assert f"does not derive from `{base}`; docs/plugins.md" in fault.message


@pytest.mark.parametrize("version", [*range(parcost.API_VERSION), parcost.API_VERSION + 1])
def test_a_plugin_of_another_version_of_the_contract_is_left_out(version: int) -> None:
    module = ModuleType("new")

    @hookimpl
    def terms() -> list[Once]:
        return []

    vars(module).update(PARCOST_API=version, terms=terms)
    (fault,) = load(("new", module)).broken
    assert f"needs version {version} of the contract" in fault.message
    vars(module)["PARCOST_API"] = parcost.API_VERSION
    assert load(("new", module)).broken == ()


def screen_with(*plugins: tuple[str, Any], full: bool = False, text: str = SPEC) -> str:
    """Return the page of *text* for reading, in one line."""
    session = parcost.Session(load(*plugins))
    report = session.load_text(text)[0].evaluate()
    assert report.exit_code == 3
    items = report_page(report, View(kind="full" if full else "screen"))
    return " ".join(draw(items, Paper(width=80)).split())


@pytest.mark.parametrize("hook", ["checks", "outcome_checks"])
@pytest.mark.parametrize("full", [False, True])
def test_a_study_with_a_rule_that_fails_is_not_judged(hook: str, full: bool) -> None:
    def broken() -> Any:
        raise KeyError("warp")

    page = screen_with(("r", SimpleNamespace(**{hook: hookimpl(broken)})), full=full)
    assert "Not checked: a rule of plugin `r` failed." in page
    assert "KeyError: 'warp'" in page
    for words in ("ignoring the memory limit", "Invalid", "Valid, fits in memory"):
        assert words not in page


def test_a_rule_that_refuses_still_counts_where_another_fails() -> None:
    def broken() -> Any:
        raise KeyError("warp")

    plugin = ("r", SimpleNamespace(outcome_checks=hookimpl(broken)))
    page = screen_with(plugin, text=SPEC.replace("tp = 8, zero = 1", "tp = 1, dp = 8, zero = 0"))
    assert "Does not fit in memory. stage 0 needs" in " ".join(page.split())
    assert "ignoring the memory limit" in page


@pytest.mark.parametrize("hook", ["terms", "memory"])
@pytest.mark.parametrize("full", [False, True])
def test_a_step_that_lacks_a_part_is_incomplete(hook: str, full: bool) -> None:
    def broken() -> Any:
        raise KeyError("warp")

    page = screen_with(("r", SimpleNamespace(**{hook: hookimpl(broken)})), full=full)
    assert f"Incomplete: plugin `r` failed in `{hook}`." in page
    assert "Valid, fits in memory" not in page


def test_a_sweep_with_a_rule_that_fails_is_not_judged() -> None:
    def broken() -> Any:
        raise KeyError("warp")

    plugin = ("r", SimpleNamespace(outcome_checks=hookimpl(broken)))
    page = screen_with(plugin, text=SPEC.replace("tp = 8", "tp = [4, 8]"))
    assert "Not checked: a rule of plugin `r` failed." in page
    assert "points are valid and fit in memory" not in page


def test_a_sweep_that_lacks_a_part_is_incomplete() -> None:
    def broken() -> Any:
        raise KeyError("warp")

    plugin = ("r", SimpleNamespace(terms=hookimpl(broken)))
    page = screen_with(plugin, text=SPEC.replace("tp = 8", "tp = [4, 8]"))
    assert (
        "Incomplete: plugin `r` failed in `terms`; 2 of 2 points are valid and fit in memory."
        in " ".join(page.split())
    )


def test_a_generator_without_an_end_is_a_fault() -> None:
    plugin = SimpleNamespace(terms=hookimpl(lambda: itertools.repeat(None)))
    bad = evaluate_with(("warp", plugin))
    assert faults(bad) == [
        "plugin `warp` terms: returned more than 100,000 items: a generator without an end?"
    ]
    assert bad.exit_code == 3
