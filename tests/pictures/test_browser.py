"""The page in Chromium: it draws every picture, answers the keyboard and reports no error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parcost_apps.cli import main

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]

NOT_DRAWN = "return [...document.querySelectorAll('figure:not([data-drawn])')].map((f) => f.id)"
MARKS = """return Object.fromEntries([...document.querySelectorAll("figure")].map((figure) => [
  figure.dataset.chart,
  [...figure.querySelectorAll('.role-mark [role="graphics-symbol"]')]
    .map((mark) => mark.getAttribute("aria-label")),
]))"""


@pytest.fixture(scope="module")
def page(spec: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    source, target = folder / "<b>study<!-- .par", folder / "page.html"
    stall = (
        'term stall {\n seconds = 40 ms\n per = step\n when = end\n source = "<i>{{7*7}}</i>"\n}\n'
    )
    source.write_text(spec + stall, encoding="utf-8")
    assert main(["eval", str(source), "--format", "html", "--out", str(target)]) == 0
    return target


def open_page(browser: Any, page: Path) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(page.as_uri())
    WebDriverWait(browser, 60).until(lambda b: not b.execute_script(NOT_DRAWN))


def test_every_picture_is_drawn_and_every_mark_shows_its_formula(browser: Any, page: Path) -> None:
    open_page(browser, page)
    assert browser.get_log("browser") == []
    marks = browser.execute_script(MARKS)
    assert set(marks) == {"step", "memory", "pipeline", "roofline", "levers", "collectives"}
    for name, labels in marks.items():
        assert len(labels) > 5, name
        assert all(label and ("formula: " in label or "terms: " in label) for label in labels), name
    # Eight micro-batches, forward and backward, on four devices: a bar and its number for each.
    assert len(marks["pipeline"]) == 2 * 8 * 4 * 2
    assert any("<i>{{7*7}}</i>" in label for label in marks["step"])
    assert browser.execute_script("return document.querySelectorAll('figure i, h1 b').length") == 0


def test_nothing_is_loaded_beyond_the_page(browser: Any, page: Path) -> None:
    open_page(browser, page)
    loaded = browser.execute_script(
        "return performance.getEntriesByType('resource').map((one) => one.name)"
    )
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_arrow_keys_go_from_mark_to_mark(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    open_page(browser, page)
    figure = browser.find_element("css selector", "figure[data-chart=step]")
    figure.send_keys(Keys.ARROW_RIGHT)
    first = figure.find_element("css selector", ".reading").text
    figure.send_keys(Keys.ARROW_RIGHT)
    second = figure.find_element("css selector", ".reading").text
    assert first.startswith("cause: ")
    assert "formula: " in first
    assert second != first
    figure.send_keys(Keys.ARROW_LEFT)
    assert figure.find_element("css selector", ".reading").text == first


def test_a_mark_under_the_pointer_shows_its_formula(browser: Any, page: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    open_page(browser, page)
    mark = browser.find_element(
        "css selector", 'figure[data-chart=step] .role-mark [role="graphics-symbol"]'
    )
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(browser).move_to_element(mark).perform()
    WebDriverWait(browser, 10).until(
        lambda b: "formula" in b.find_element("id", "vg-tooltip-element").text
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_as_dark_as_its_reader_wants(browser: Any, page: Path, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    open_page(browser, page)
    channels = browser.execute_script(
        "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    label = browser.execute_script(
        "return document.querySelector('.role-axis-title text').getAttribute('fill')"
    )
    is_dark = scheme == "dark"
    assert (sum(channels) < 150) == is_dark
    assert (int(label[1:3], 16) > 128) == is_dark


def test_without_javascript_the_tables_remain(browser: Any, page: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        text = browser.find_element("tag name", "main").text
        assert "Pictures are drawn by JavaScript, which is switched off." in text
        assert len(browser.find_elements("css selector", "figure details table tbody tr")) > 100
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_search_draws_its_map_and_front(browser: Any, spec: str, tmp_path: Path) -> None:
    source, target = tmp_path / "study.par", tmp_path / "search.html"
    source.write_text(spec, encoding="utf-8")
    over = ["--over", "tp=1,2,4", "--over", "pp=1,2,4", "--axes", "tp,pp"]
    command = ["search", str(source), *over, "--format", "html", "--out", str(target)]
    assert main(command) == 0
    open_page(browser, target)
    assert browser.get_log("browser") == []
    marks = browser.execute_script(MARKS)
    assert len([label for label in marks["map"] if "layout.tp: " in label]) >= 9
    assert "front" in marks
