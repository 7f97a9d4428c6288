"""The page of HTML: whole without JavaScript, closed to text from outside, and small."""

from __future__ import annotations

import json
import re
from heapq import nlargest
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import parcost
from parcost import Chart, Once, formula, hookimpl
from parcost.contract.page import Paper
from parcost.plugins.discovery import load
from parcost_apps.batch.entries import entry_of
from parcost_formats.html import Html
from parcost_formats.html.drawing import svg
from parcost_formats.rendering.view import View

RUNS = Path(__file__).parents[2] / "specs"
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "{{7*7}}{% raw %}",
    "datum.x + alert(1)",
    "'+alert(1)+'",
    '"]; alert(1); ["',
    "<!--",
    "[link](javascript:alert(1)) **bold**",
)


def page_of(report: Any) -> str:
    return "".join(Html().write([entry_of(report, "charts", View(kind="screen"))], Paper()))


class Reader(HTMLParser):
    """Notes the elements, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def page(report: Any) -> str:
    return page_of(report)


@pytest.mark.slow
def test_tables_hold_all_without_javascript(page: str, charts: Any) -> None:
    texts = set(Reader(page).texts)
    for row in charts["levers"].rows:
        assert row["title"] in texts
    assert "Each part of a bar is a term." in texts
    assert page.count("<noscript>") == 1
    assert page.count("<details>") == len(charts)


@pytest.mark.slow
def test_a_page_asks_for_nothing_beyond_itself(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy[1]
    for tag, attributes in Reader(page).tags:
        assert tag not in {"iframe", "object", "embed", "form", "base"}
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:,")), attributes
        assert not any(name.startswith("on") for name in attributes)


def test_each_picture_takes_the_focus_and_has_a_name(page: str) -> None:
    tags = Reader(page).tags
    ids = {attributes["id"] for _, attributes in tags if "id" in attributes}
    figures = [attributes for tag, attributes in tags if tag == "figure"]
    assert len(figures) == 6
    for figure in figures:
        assert figure["tabindex"] == "0"
        assert figure["aria-labelledby"] in ids
    links = [a["href"] for tag, a in tags if tag == "a"]
    assert {link.removeprefix("#") for link in links if link} <= ids
    assert "prefers-color-scheme: dark" in page


def hostile_report(spec: str) -> Any:
    """Return a report whose terms, causes, resources and charts have hostile names."""

    @hookimpl
    def terms(study: Any) -> list[Once]:  # noqa: ARG001
        return [
            Once(
                name=f"{text} {n}",
                cause=text,
                seconds=formula("s", s=(0.25, "s"), source=text),
                when="end",
            )
            for n, text in enumerate(HOSTILE)
        ]

    @hookimpl
    def charts(study: Any, outcome: Any) -> list[Chart]:  # noqa: ARG001
        return [
            Chart(
                name="hostile",
                title=text,
                notes=[text],
                spec={"mark": "bar", "encoding": {"y": {"field": "a"}, "x": {"field": "b"}}},
                columns={"a": text, "formula": "formula"},
                rows=[{"a": text, "b": (1.0, "s"), "formula": text}],
            )
            for text in HOSTILE[:1]
        ]

    session = parcost.Session(load(("hostile", SimpleNamespace(terms=terms, charts=charts))))
    (scenario,) = session.load_text(spec)
    return scenario.evaluate()


@pytest.fixture(scope="module")
def hostile(spec: str) -> Any:
    return hostile_report(spec)


@pytest.mark.slow
def test_text_from_outside_is_text(hostile: Any, page: str) -> None:
    reader = Reader(page_of(hostile))
    expected = [tag for tag, _ in Reader(page).tags]
    assert {tag for tag, _ in reader.tags} == set(expected)
    assert len([1 for tag, _ in reader.tags if tag == "script"]) == expected.count("script") + 1
    joined = "\n".join(reader.texts)
    for text in HOSTILE:
        assert text in joined


@pytest.mark.slow
def test_data_in_the_page_is_data(hostile: Any) -> None:
    """What stands in an element of data neither ends it nor is part of a specification."""
    drawings = re.findall(
        r'<script type="application/json">(.*?)</script>', page_of(hostile), re.DOTALL
    )
    assert len(drawings) == 7
    for drawing in drawings:
        found = json.loads(drawing)
        spec = {**found["spec"], "encoding": {**found["spec"]["encoding"], "tooltip": []}}
        for text in HOSTILE:
            assert text not in json.dumps(spec)
            assert json.dumps(text)[1:-1] not in json.dumps(spec)


@pytest.mark.slow
def test_a_drawing_of_hostile_text_is_a_drawing(hostile: Any) -> None:
    entry = entry_of(hostile, "charts", View(picture="step"))
    root = ET.fromstring(svg([("a", chart) for chart in entry.charts()]))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "rect", "g", "path", "line", "text", "title", "tspan"}
    titles = [element.text or "" for element in root.iter() if element.tag.endswith("title")]
    for text in HOSTILE:
        assert any(text in title for title in titles)


@pytest.mark.slow
def test_control_characters_are_escaped(spec: str) -> None:
    @hookimpl
    def charts(study: Any, outcome: Any) -> list[Chart]:  # noqa: ARG001
        row = {"a": "\x1b[31mred\u202e", "formula": "\x07"}
        columns = {"a": "a", "formula": "formula"}
        return [Chart(name="bell", title="bell", spec={"mark": "bar"}, columns=columns, rows=[row])]

    session = parcost.Session(load(("bell", SimpleNamespace(charts=charts))))
    text = page_of(session.load_text(spec)[0].evaluate())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", text)


@pytest.mark.slow
def test_a_page_of_the_largest_study_that_ships_is_below_one_and_a_half_megabytes() -> None:
    large = (
        "examples/deepseek_v2.par",
        "examples/mixture_of_experts.par",
        "documents/002_gpt3.par",
    )
    reports = [
        scenario.evaluate()
        for path in (*sorted((RUNS / "runs").glob("*.par")), *(RUNS / name for name in large))
        for scenario in parcost.load(path)
    ]
    assert len(reports) > 20
    largest = {
        (one.path, one.name): one
        for size in (terms, stages)
        for one in nlargest(6, reports, key=size)
    }
    sizes = {name: len(page_of(one).encode()) for name, one in largest.items()}
    assert max(sizes.values()) < 1.5e6, sizes


def terms(report: Any) -> int:
    """Return the number of terms: a page has a row for each."""
    return len(report.results[0].outcome.ledger)


def stages(report: Any) -> int:
    """Return the number of virtual stages: a page draws the passes of each."""
    cut = report.results[0].outcome.pipeline
    return int(cut.stages * cut.chunks)
