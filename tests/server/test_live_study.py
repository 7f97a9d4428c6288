"""The study of a page: its form, its reports and its problems, compared with the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost.contract.forms import Form, FormInput
from parcost.contract.importers import ImportOptions
from parcost.search.best_first import SearchRequest, search
from parcost.search.layout_search import layout_search
from parcost_apps.server.bodies import FormChange, SearchOrder
from parcost_apps.server.form import block_order, form_of
from parcost_apps.server.live_study import LiveStudy, Subject

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2 }
training { sequence = 4096, global_batch = 64 sequences }
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("live") / "job.par"
    file.write_text(SPEC, encoding="utf-8")
    return str(file)


@pytest.fixture(scope="module")
def live(spec: str) -> LiveStudy:
    return LiveStudy.from_subject(Subject(path=spec))


def by_path(form: Form) -> dict[str, FormInput]:
    return {i.path: i for _, groups in form.parts for group in groups for i in group.inputs}


def form(live: LiveStudy, spec: str, **values: str) -> Form:
    plain = live.session.load(spec)[0]
    changed = live.session.load(spec, {k.replace("__", "."): v for k, v in values.items()})[0]
    return form_of(changed, block_order(plain))


def test_each_attribute_is_an_input_of_its_kind(live: LiveStudy, spec: str) -> None:
    inputs = by_path(form(live, spec))
    tp, device = inputs["layout.tp"], inputs["cluster.device"]
    assert (tp.kind, tp.text, tp.minimum, tp.accepts) == (
        "number",
        "2",
        1,
        "whole number, at least 1",
    )
    assert tp.place.endswith("job.par:7")
    assert (device.kind, device.text) == ("choice", "h100_sxm")
    entries = {choice.text: choice.entry for choice in device.choices}
    assert entries["b200"] == "catalog.devices.b200"
    assert entries["h100_sxm"] == ""  # it is imported
    switch = inputs["layout.sequence_parallel"]
    assert (switch.kind, switch.text, switch.place) == ("switch", "off", "default")
    memory = inputs["h100_sxm.memory"]
    assert (memory.kind, memory.text) == ("text", "81559 MiB")  # without its provenance
    assert inputs["hgx_h100.node.bandwidth"].text == "450 GB/s per_direction"
    kinds = [choice.text for choice in inputs["schedule.kind"].choices]
    assert {"gpipe", "one_f_one_b", "interleaved"} <= set(kinds)
    assert all(i.doc and i.accepts for i in inputs.values())


@pytest.mark.slow
def test_every_input_can_be_set_to_what_it_shows(live: LiveStudy, spec: str) -> None:
    """Paths and texts are those of the language: all of them, set at once, change nothing."""
    inputs = by_path(form(live, spec))
    values = {path: i.text for path, i in inputs.items() if i.text}
    assert len(values) > 300
    uses = {c.entry for i in inputs.values() for c in i.choices if c.text == i.text and c.entry}
    reading = ImportOptions("", tuple(uses))
    again = by_path(form_of(live.session.load(spec, values, reading=reading)[0], {}))
    assert {path: again[path].text for path in values} == values


@pytest.mark.slow
def test_blocks_keep_their_places(live: LiveStudy, spec: str) -> None:
    """In the resolved spec what is set from outside comes first; a form would jump."""
    plain = form(live, spec)
    changed = form(live, spec, recompute__norms="on", layout__tp="4", cluster__devices="16")
    titles = [[group.title for group in groups] for _, groups in plain.parts]
    assert [[group.title for group in groups] for _, groups in changed.parts] == titles
    assert titles[0] == ["cluster", "layout", "training"]
    assert by_path(changed)["layout.tp"].text == "4"
    assert by_path(changed)["layout.dp"].text == "4"  # 16 devices


def test_a_sweep_is_a_text(live: LiveStudy, spec: str) -> None:
    tp = by_path(form(live, spec, layout__tp="[1, 2, 4]"))["layout.tp"]
    assert (tp.kind, tp.text) == ("text", "[1, 2, 4]")


@pytest.mark.slow
def test_a_search_offers_the_axes_of_plugins(live: LiveStudy, spec: str) -> None:
    search = form(live, spec).search
    assert search is not None
    axes = {axis.path: axis.values for axis in search.axes}
    assert axes["layout.tp"] == ["1", "2", "4", "8"]
    assert "mfu" in dict(search.objectives)


@try_each(
    "values, id, paths, help",
    [
        ({"layout.tp": "3x"}, "unknown-unit", ["layout.tp"], "remove the unit"),
        ({"layout.tp": "2 GiB"}, "wrong-dimension", ["layout.tp"], ""),
        ({"layout.tp": "0"}, "out-of-range", ["layout.tp"], ""),
        ({"layout.tp": "tp"}, "circular", ["layout.tp"], ""),
        ({"layout.tp": "8\nuse x"}, "syntax", [], ""),
        ({"layout.nothing": "1"}, "unknown-attribute", [], ""),
        ({"schedule.kind": "gpip"}, "wrong-word", ["schedule.kind"], "gpipe"),
        ({"cluster.device": "b200"}, "unknown-name", ["cluster.device"], "catalog.devices.b200"),
        ({"layout.tp": "(" * 5000}, "", [], ""),
    ],
)
def test_a_wrong_value_has_no_report(
    live: LiveStudy, values: dict[str, str], id: str, paths: list[str], help: str
) -> None:
    answer = live.evaluate(FormChange(values=values))
    assert "report" not in answer
    first = answer["diagnostics"][0]
    if id:
        assert first["id"] == id
        assert [path for path in paths if path not in first["paths"]] == []
        assert help in (first["help"] or "")


@pytest.mark.slow
def test_a_rule_names_the_attribute_and_the_nearest_legal_value(live: LiveStudy) -> None:
    answer = live.evaluate(FormChange(values={"layout.tp": "3"}))
    assert "report" not in answer
    assert answer["form"]
    problems = [d for d in answer["diagnostics"] if "layout.tp" in d["paths"]]
    assert problems
    assert any("2 or 4" in (d["help"] or "") for d in problems)


def test_only_entries_of_catalogues_are_imported(live: LiveStudy) -> None:
    for use in ("catalog.devices.nothing", "catalog.defaults", "catalog.example", "os.path"):
        answer = live.evaluate(FormChange(uses=(use,)))
        assert answer["diagnostics"][0]["id"] == "unknown-import"


def test_the_command_is_quoted(spec: str) -> None:
    hostile = LiveStudy.from_subject(Subject(path=spec, overrides={"layout.tp": "2; rm -rf /"}))
    command = hostile._command("eval", FormChange(values={"layout.pp": "$(id)\x1b"}, uses=("a.b",)))
    assert f"parcost eval {spec} --use a.b --set 'layout.tp=2; rm -rf /'" in command
    assert "--set $'layout.pp=$(id)\\x1b'" in command


def shown_step(html: str) -> str:
    (found,) = re.findall(r">step time</td><td[^>]*>([^<]+)<", html)
    return unescape(found).strip()


def step_time(spec: str, values: dict[str, str]) -> float:
    return float(parcost.load(spec, overrides=values)[0].evaluate().result.figure("step_time"))


@pytest.mark.slow
def test_a_change_gives_what_the_command_line_gives(live: LiveStudy, spec: str) -> None:
    from parcost.language.numbers import quantity

    for values in ({}, {"layout.tp": "8"}, {"layout.tp": "4", "training.recompute": "full"}):
        answer = live.evaluate(FormChange(values=values))
        assert answer["diagnostics"] == []
        assert shown_step(answer["report"]) == quantity(step_time(spec, values), "s")
        assert all(f"--set {path}={text}" in answer["command"] for path, text in values.items())


@pytest.mark.slow
def test_a_device_of_the_catalogue_is_imported(live: LiveStudy) -> None:
    answer = live.evaluate(
        FormChange(values={"cluster.device": "b200"}, uses=("catalog.devices.b200",))
    )
    assert answer["diagnostics"] == []
    assert "--use catalog.devices.b200 --set cluster.device=b200" in answer["command"]
    assert 'name="b200.memory"' in answer["form"]
    plain = live.evaluate(FormChange())
    assert plain["report"] != answer["report"]
    assert 'name="b200.memory"' not in plain["form"]  # nothing of it stays


@pytest.mark.slow
def test_the_downloaded_spec_gives_the_same(live: LiveStudy, spec: str) -> None:
    values = {"layout.tp": "4", "training.micro_batch": "2"}
    answer = live.spec(FormChange(values=values))
    assert answer["name"] == "job.par"
    (again,) = parcost.load_text(answer["text"])
    found = float(again.evaluate().result.figure("step_time"))
    assert found == pytest.approx(step_time(spec, values), rel=1e-12)
    assert live.spec(FormChange(values={"layout.pp": "[1, 2]"})).keys() == {"diagnostics"}


@pytest.mark.slow
def test_a_layout_of_a_search_is_what_it_says(live: LiveStudy, spec: str) -> None:
    """The fastest of all layouts over two axes, found one by one."""
    from parcost.language.numbers import quantity

    reported: list[str] = []
    axes = ("layout.tp", "training.micro_batch")
    answer = live.search(
        SearchOrder(change=FormChange(), axes=axes, budget_seconds=30), reported.append
    )
    assert any("legal" in text for text in reported)
    best = answer["layouts"][0]
    steps = []
    for tp in (1, 2, 4, 8):
        for micro_batch in (1, 2, 4, 8, 16, 32, 64):
            values = {"layout.tp": f"{tp}", "training.micro_batch": f"{micro_batch}"}
            result = parcost.load(spec, overrides=values)[0].evaluate().result
            if result.outcome is not None and bool(result.feasible):
                steps.append(float(result.figure("step_time")))
    assert best["step"] == quantity(min(steps), "s")
    assert step_time(spec, best["values"]) == pytest.approx(min(steps), rel=1e-9)
    assert answer["report"].count('class="drawing"') >= 1


@pytest.mark.slow
def test_a_search_that_is_stopped_has_what_it_found(live: LiveStudy) -> None:
    reported: list[str] = []

    def stop(text: str) -> None:
        reported.append(text)
        if "replayed" in text and "replayed" not in "".join(reported[:-1]):
            raise KeyboardInterrupt

    answer = live.search(SearchOrder(change=FormChange()), stop)
    assert answer["layouts"]


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["2 h", "3601 s"])
def test_a_budget_beyond_that_of_the_page_is_refused_before_the_search(
    live: LiveStudy, budget: str
) -> None:
    reported: list[str] = []
    order = SearchOrder(change=FormChange(values={"search.budget": budget}))
    answer = live.search(order, reported.append)
    (problem,) = answer["diagnostics"]
    assert (problem["id"], problem["paths"], reported) == ("long-budget", ["search.budget"], [])
    assert "3,600 s" in problem["message"]
    assert "parcost search" in problem["help"]


@pytest.mark.slow
def test_a_budget_of_the_page_goes_before_that_of_the_spec(live: LiveStudy) -> None:
    change = FormChange(values={"search.budget": "10 s"})
    answer = live.search(SearchOrder(change=change, budget_seconds=1e9), lambda _: None)
    (problem,) = answer["diagnostics"]
    assert (problem["id"], problem["paths"]) == ("long-budget", [])


@pytest.mark.slow
def test_a_search_of_the_page_ends_by_its_budget(live: LiveStudy, spec: str) -> None:
    """A map wants every layout; the page draws those that were scored when time ran out."""
    whole = layout_search(live.session.load(spec)[0]).space
    scored: dict[bool, int] = {}
    for strict in (False, True):
        seen: list[int] = []
        request = SearchRequest(budget_seconds=1e-9, strict_budget=strict)
        found = search(whole, request, points=lambda part, to=seen: to.append(part.legal.sum()))
        assert found.best
        scored[strict] = sum(seen)
        assert not found.proven
    assert scored[True] < scored[False]
    answer = live.search(SearchOrder(change=FormChange(), budget_seconds=1e-9), lambda _: None)
    assert answer["layouts"]
    assert "No other layout has a lower" not in answer["report"]


HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.mark.slow
def test_text_of_a_spec_is_text_on_the_page(tmp_path: Path) -> None:
    file = tmp_path / "<b>x.par"
    text = SPEC.replace("tp = 2", f'tp = 2 @assumed("{HOSTILE}")\n')
    file.write_text(text, encoding="utf-8")
    live = LiveStudy.from_subject(Subject(path=str(file)))
    page: Any = live.page()
    answer: Any = live.evaluate(FormChange())
    for html in (page["text"], answer["form"], answer["report"]):
        assert HOSTILE not in html
        assert "<b>x" not in html


@pytest.fixture(autouse=True)
def _nothing_is_left(live: LiveStudy) -> Iterator[None]:
    yield
    assert not live.session.plugins.faults


CLAIMED = "expect { step_time = 1 ms +- 1 us }\n"


def live_study(folder: Path, text: str) -> LiveStudy:
    file = folder / "claimed.par"
    file.write_text(text, encoding="utf-8")
    return LiveStudy.from_subject(Subject(path=str(file)))


@pytest.mark.slow
def test_an_error_is_at_the_attribute_that_was_changed(live: LiveStudy) -> None:
    """The layout stands in one line: its other attributes are not wrong."""
    answer = live.evaluate(FormChange(values={"layout.tp": "3"}))
    assert answer["diagnostics"]
    assert {path for d in answer["diagnostics"] for path in d["paths"]} == {"layout.tp"}


@pytest.mark.slow
def test_an_error_of_the_file_is_at_its_attribute_alone(tmp_path: Path) -> None:
    wrong = SPEC.replace("{ tp = 2 }", "{ tp = 3, sequence_parallel = on, zero = 1 }")
    assert wrong != SPEC
    answer = live_study(tmp_path, wrong).evaluate(FormChange())
    paths = {path for d in answer["diagnostics"] for path in d["paths"]}
    assert "layout.tp" in paths
    assert not paths & {"layout.sequence_parallel", "layout.zero"}


@pytest.mark.slow
def test_a_claim_that_fails_is_printed_once_and_below_no_good_verdict(tmp_path: Path) -> None:
    answer = live_study(tmp_path, SPEC + CLAIMED).evaluate(FormChange())
    assert [d["reported"] for d in answer["diagnostics"]] == [True]
    assert answer["report"].count("step_time = 1 ms +- 1 us") == 1
    summary = answer["summary"]
    assert summary["style"] == "bad"
    assert summary["text"] == "Valid, fits in memory; 0 of 1 expectations met."
    assert [text.rpartition(" ")[0].rpartition(" ")[0] for text in summary["figures"]] == [
        "step time",
        "memory",
    ]


@pytest.mark.slow
def test_a_page_has_no_options_of_commands_and_all_that_is_assumed(tmp_path: Path) -> None:
    names = ("dp", "zero", "pp", "tp")
    layout = "\n".join(f'  {name} = 1 @assumed("reason of {name}")' for name in names)
    spec = SPEC[: SPEC.index("layout ")] + f"layout {{\n{layout}\n}}\n"
    spec += "training { sequence = 4096, global_batch = 32 sequences, micro_batch = 1 }\n"
    spec = re.sub(r"devices *= *\d+", "devices = 1", spec)
    answer = live_study(tmp_path, spec).evaluate(FormChange())
    report = answer["report"].partition("<nav")[0]
    assert "--full" not in report
    assert "--section" not in report
    assert [name for name in names if f"reason of {name}" not in report] == []


def test_only_inputs_of_the_file_come_first(live: LiveStudy, spec: str) -> None:
    inputs = by_path(form(live, spec))
    assert inputs["layout.tp"].is_own
    assert inputs["cluster.device"].is_own
    assert not inputs["h100_sxm.memory"].is_own
    assert sum(one.is_own for one in inputs.values()) < 25
