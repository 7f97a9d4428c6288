"""``parcost serve`` as a process, asked over HTTP and in Chromium."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from attrs import define

import parcost
from parcost.language.numbers import quantity
from parcost_apps.cli import main

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2 }
training { sequence = 4096, global_batch = 64 sequences }
"""
SLEEPY = """
import time
from parcost import hookimpl

@hookimpl
def checks(study):
    if study.name == "job" and any(b.tp == 4 for k, bs in study.blocks.items() for b in bs
                                   if k.__name__ == "Layout"):
        time.sleep(600)
    return []
"""
#: A job in the background, or one of `nohup`, starts with signals ignored; a terminal's does not.
START = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
from parcost_apps.cli import main
sys.exit(main())"""


@define(eq=False)
class Server:
    """A process of ``parcost serve``, and requests to it."""

    process: subprocess.Popen[str]
    url: str

    def post(self, path: str, body: Any) -> tuple[int, str]:
        host, token = re.fullmatch(r"http://([^/]+)/\?token=(.+)", self.url).groups()  # type: ignore[union-attr]
        connection = HTTPConnection(host, timeout=120)
        headers = {
            "Authorization": f"Bearer {token}",
            "Origin": f"http://{host}",
            "Content-Type": "application/json",
        }
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def end(self, number: int) -> tuple[int, str]:
        self.process.send_signal(number)
        _, messages = self.process.communicate(timeout=30)
        return self.process.returncode, messages


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*arguments: str) -> Server:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, "serve", "--no-browser", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        started.append(Server(process, process.stdout.readline().strip()))
        return started[-1]

    (tmp_path / "job.par").write_text(SPEC, encoding="utf-8")
    (tmp_path / "sleepy.py").write_text(SLEEPY, encoding="utf-8")
    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


def step_time(tmp_path: Path, values: dict[str, str]) -> str:
    scenario = parcost.load(tmp_path / "job.par", overrides=values)[0]
    return quantity(float(scenario.evaluate().result.figure("step_time")), "s")


def test_a_port_in_use_is_bad_input(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "job.par"
    file.write_text(SPEC, encoding="utf-8")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["serve", str(file), "--no-browser", "--port", str(port)]) == 2
    assert f"port {port} of 127.0.0.1 is in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "add `--remote`"),
        (["--host", "example.invalid"], "add `--remote`"),
        (["--host", "0.0.0.0", "--remote"], "means all addresses"),
        (["--host", "example.invalid", "--remote"], "not an address"),
        (["--port", "70000"], "70000"),
        (["--time-limit", "0"], "0"),
        (["--set", "layout.tp=3x"], "there is no unit `x`"),
        (["--study", "other"], "no study called `other`"),
    ],
)
def test_what_cannot_be_served_is_bad_input(
    tmp_path: Path, capsys: Any, arguments: list[str], says: str
) -> None:
    file = tmp_path / "job.par"
    file.write_text(SPEC, encoding="utf-8")
    assert main(["serve", str(file), "--no-browser", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_file_that_is_not_there_is_bad_input(own_missing: str, capsys: Any) -> None:
    assert main(["serve", own_missing, "--no-browser"]) == 2
    assert "there is no file" in capsys.readouterr().err


@pytest.fixture
def own_missing(tmp_path: Path) -> str:
    return str(tmp_path / "missing.par")


@pytest.mark.parametrize("library", ["starlette", "uvicorn"])
def test_a_missing_library_is_named(
    library: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] in (library, "parcost_none")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.startswith("parcost_apps.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)  # type: ignore[arg-type]
    assert main(["serve", "--no-browser"]) == 2
    assert "pip install 'parcost[serve]'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_in_order(serve: Callable[..., Server], name: str) -> None:
    server = serve("job.par")
    assert server.post("/evaluate", {})[0] == 200
    number = getattr(signal, name)
    code, messages = server.end(number)
    assert (code, messages.strip()) == (128 + number, "interrupted")


@pytest.mark.slow
def test_an_example_is_served_where_no_file_is_named(serve: Callable[..., Server]) -> None:
    status, text = serve().post("/evaluate", {})
    assert status == 200
    assert json.loads(text)["diagnostics"] == []


@pytest.mark.slow
def test_an_evaluation_that_never_ends_is_ended(serve: Callable[..., Server]) -> None:
    server = serve("job.par", "--plugin", "sleepy.py", "--time-limit", "4")
    assert json.loads(server.post("/evaluate", {})[1])["diagnostics"] == []
    start = monotonic()
    status, text = server.post("/evaluate", {"set": {"layout.tp": "4"}})
    assert (status, json.loads(text)["diagnostics"][0]["id"]) == (504, "evaluation-out-of-time")
    assert monotonic() - start < 60
    assert json.loads(server.post("/evaluate", {})[1])["diagnostics"] == []


@pytest.mark.slow
def test_a_search_is_stopped_from_the_page(serve: Callable[..., Server]) -> None:
    from threading import Thread

    server = serve()
    found: list[str] = []
    thread = Thread(target=lambda: found.append(server.post("/search", {})[1]))
    thread.start()
    sleep(3)
    assert server.post("/stop", {})[0] == 204
    thread.join(120)
    *_, last = found[0].strip().split("\n\n")
    result = json.loads(last.partition("data: ")[2])
    assert result.get("layouts") or result["diagnostics"][0]["id"] in (
        "out-of-time",
        "search-stopped",
    )


class Page:
    """The page in Chromium."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def open(self, url: str) -> None:
        self.browser.get("about:blank")  # another fragment alone loads nothing
        self.browser.get(url)
        self.wait_for("Evaluated.")

    def by_id(self, id: str) -> Any:
        return self.browser.find_element("id", id)

    def field(self, path: str) -> Any:
        return self.browser.find_element("name", path)

    def wait(self, condition: Callable[[], Any]) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.browser, 60).until(lambda _: condition())

    def wait_for(self, status: str) -> None:
        self.wait(lambda: self.by_id("status").text == status)

    def enter(self, path: str, text: str, status: str = "Evaluated.") -> None:
        from selenium.webdriver.common.keys import Keys

        self.field(path).send_keys(Keys.CONTROL + "a" + Keys.NULL + text + Keys.ENTER)
        expected = f"{path}={text}"
        self.wait(lambda: expected in self.browser.current_url.replace("+", " "))
        self.wait_for(status)

    @property
    def step(self) -> str:
        rows = self.browser.find_elements("css selector", "#report tr")
        return str(next(r for r in rows if r.text.startswith("step time")).text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_page_in_a_browser(browser: Any, serve: Callable[..., Server], tmp_path: Path) -> None:
    server, page = serve("job.par"), Page(browser)
    page.open(server.url)
    assert "token" not in browser.current_url
    assert step_time(tmp_path, {}) in page.step
    page.enter("layout.tp", "4")
    assert step_time(tmp_path, {"layout.tp": "4"}) in page.step
    assert page.field("layout.dp").get_attribute("value") == "2"
    command = page.by_id("command").get_attribute("textContent")
    assert command == "parcost eval job.par --set layout.tp=4"
    link = browser.current_url

    # What is wrong is named at its field, and the last result stays.
    page.enter("layout.tp", "3", "Invalid input; showing the last valid report.")
    assert page.field("layout.tp").get_attribute("aria-invalid") == "true"
    assert "tp = 2 or 4" in page.by_id("problems").text
    assert step_time(tmp_path, {"layout.tp": "4"}) in page.step
    browser.back()
    page.wait_for("Evaluated.")
    assert page.field("layout.tp").get_attribute("value") == "4"
    page.by_id("reset").click()
    page.wait(lambda: step_time(tmp_path, {}) in page.step)

    # A link has the state.
    page.open(link)
    assert step_time(tmp_path, {"layout.tp": "4"}) in page.step
    assert page.field("layout.tp").get_attribute("value") == "4"
    from selenium.webdriver.support.ui import Select

    Select(page.field("cluster.device")).select_by_visible_text("b200")
    page.wait(lambda: "use=catalog.devices.b200" in browser.current_url)
    page.wait_for("Evaluated.")
    page.wait(lambda: browser.find_elements("name", "b200.memory"))
    page.open(browser.current_url)
    assert "b200" in page.by_id("command").get_attribute("textContent")

    # Every input has a label, and nothing was reported.
    unlabelled = "return [...document.querySelectorAll('input, select')].filter((i) => !i.labels.length).length"
    assert browser.execute_script(unlabelled) == 0

    # At first there are the inputs of the file; a text finds any other, and help opens by a key.
    shown = (
        "return [...document.querySelectorAll('.field:not([hidden]) [name]')].map((i) => i.name)"
    )
    page.open(server.url)
    names = browser.execute_script(shown)
    assert "layout.tp" in names
    assert len(names) < 25
    page.by_id("filter").send_keys("loss_chunks")
    assert "loss_chunks" in " ".join(browser.execute_script(shown))
    page.by_id("filter").clear()
    page.by_id("every").click()
    page.wait(lambda: len(browser.execute_script(shown)) > 200)
    page.by_id("every").click()
    tip = page.field("layout.tp").find_element("xpath", "../button[contains(@class, 'tip')]")
    browser.execute_script("arguments[0].focus()", tip)
    described = browser.find_element("id", tip.get_attribute("aria-describedby"))
    assert described.is_displayed()
    assert "tensor" in described.text

    # On a phone nothing is wider than the screen, and the verdict stays in view.
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.open(server.url)
        page.wait(lambda: browser.find_elements("css selector", "figure[data-drawn]"))
        assert browser.execute_script("return document.documentElement.scrollWidth") == 360
        browser.execute_script("document.querySelector('footer').scrollIntoView()")
        top = browser.execute_script(
            "return document.getElementById('summary').getBoundingClientRect().top"
        )
        assert 0 <= top < 100
        assert "step time" in page.by_id("summary").text
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_log("browser") == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_search_in_a_browser(browser: Any, serve: Callable[..., Server], tmp_path: Path) -> None:
    server, page = serve("job.par"), Page(browser)
    page.open(server.url)
    browser.execute_script(
        "document.querySelector('details.search').open = true;"
        "for (const box of document.querySelectorAll('[data-axis]'))"
        "  box.checked = ['layout.tp', 'training.micro_batch'].includes(box.dataset.axis)"
    )
    page.by_id("start").click()
    page.wait(lambda: "Choose a layout" in page.by_id("progress").text)
    rows = browser.find_elements("css selector", "tr.layout")
    assert len(rows) > 2
    first = rows[0].text
    rows[0].find_element("css selector", "button").click()
    page.wait(lambda: "training.micro_batch=" in browser.current_url)
    page.wait_for("Evaluated.")
    fragment = browser.current_url.partition("#")[2]
    values = dict(pair.split("=") for pair in fragment.split("&"))
    assert set(values) == {"layout.tp", "training.micro_batch"}
    assert step_time(tmp_path, values) in page.step
    assert step_time(tmp_path, values) in first
    assert browser.get_log("browser") == []
