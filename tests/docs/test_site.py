"""The documentation as a site: all pages are in the navigation, and links lead to headings."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from parcost_apps.cli import main

ROOT = Path(__file__).parents[2]
SETTINGS = yaml.safe_load((ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8"))
#: Pages that the hook of the site takes from outside of `docs`.
OUTSIDE = {
    "index.md": ROOT / "README.md",
    "contributing.md": ROOT / ".github" / "CONTRIBUTING.md",
    "changes.md": ROOT / "CHANGELOG.md",
}
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *OUTSIDE.values()]
_FENCES = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?P<to>[^)#:\s]*)(?:#(?P<anchor>[^)\s]*))?\)")


def navigation(part: Any = None) -> Iterator[str]:
    """Yield the pages of the navigation, in order."""
    for entry in SETTINGS["nav"] if part is None else part:
        (value,) = entry.values() if isinstance(entry, dict) else (entry,)
        if isinstance(value, str):
            yield value
        else:
            yield from navigation(value)


@cache
def text_of(path: Path) -> str:
    """Return a page without what its fences hold."""
    return _FENCES.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> list[str]:
    """Return the anchors of the headings, as Python-Markdown makes them."""
    found: list[str] = []
    for title in re.findall(r"^#{1,6} (.*)$", text_of(path), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        ascii_ = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_).strip().lower())
        found.append(slug if slug not in found else f"{slug}_{found.count(slug)}")
    return found


def test_every_page_is_in_the_navigation_once() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    found = list(navigation())
    assert sorted(found) == sorted({*pages, *OUTSIDE})


def test_every_link_leads_to_a_file_or_a_heading() -> None:
    for path in PAGES:
        for match in _LINK.finditer(text_of(path)):
            target = (path.parent / match["to"]).resolve() if match["to"] else path
            assert target.exists(), f"{path.name}: {match['to']}"
            assert target.is_relative_to(ROOT), f"{path.name}: {match['to']}"
            if match["anchor"]:
                assert match["anchor"] in anchors(target), f"{path.name}: {match.group()}"


def test_nothing_is_loaded_from_another_host() -> None:
    assert SETTINGS["theme"]["font"] is False
    assert SETTINGS["plugins"] == ["search"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site from a copy of the repository, in which a test may break a page."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("needs `pip install 'parcost[docs]'`")
    copy = tmp_path_factory.mktemp("copy") / "parcost"
    for name in ("docs", ".ci", ".github", "examples", "README.md", "CHANGELOG.md", "LICENSE"):
        source = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=ignore)
        else:
            shutil.copy(source, copy / name)
    return copy


def build(copy: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ".ci/mkdocs.yml"]
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        command, cwd=copy, env=settings, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_site_is_built_with_a_search_and_loads_nothing(site: Path) -> None:
    """With a picture that the command of its page makes: JSON, as its file alone counts."""
    page = site / "docs" / "runtime.md"
    text = page.read_text(encoding="utf-8")
    command = "parcost timeline pipeline.par --format json --out bubble.svg"
    try:
        shown = f"{text}\n```sh\n{command}\n```\n\n![Passes](bubble.svg)\n"
        page.write_text(shown, encoding="utf-8")
        done = build(site)
    finally:
        page.write_text(text, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    made = site / "build" / "site"
    assert "mine" in (made / "bubble.svg").read_text(encoding="utf-8")
    assert 'src="bubble.svg"' in (made / "runtime.html").read_text(encoding="utf-8")
    for page in navigation():
        html = (made / page).with_suffix(".html").read_text(encoding="utf-8")
        loaded = re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?:[^\" >]+)", html
        )
        assert loaded == [], page
        assert "par study" not in re.findall(r"language-([^\"]*)", html)
    index = json.loads((made / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"questions.html", "how-to/memory.html", "language.html"} <= places
    assert not any(place.startswith("source/") for place in places)
    assert "num-layers" in (made / "source/docs/how-to/files/train.sh.html").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    "line, said",
    [
        ("[x](nothing.md)", "leads nowhere"),
        ("[x](questions.md#no-such-heading)", "no-such-heading"),
        ("[x](../../outside)", "leads nowhere"),
        ("![x](bubble.svg)", "no command of the page makes the picture bubble.svg"),
    ],
)
def test_a_link_that_leads_nowhere_ends_the_build(site: Path, line: str, said: str) -> None:
    page = site / "docs" / "runtime.md"
    text = page.read_text(encoding="utf-8")
    try:
        page.write_text(f"{text}\n{line}\n", encoding="utf-8")
        done = build(site)
    finally:
        page.write_text(text, encoding="utf-8")
    assert done.returncode == 1
    assert said in done.stderr + done.stdout


GUIDE = ROOT / "docs" / "guide" / "pictures"
_DRAWN = re.compile(r"^parcost (?P<arguments>.* --out (?P<name>\w+\.svg))$", re.MULTILINE)
DRAWN = {
    match["name"]: match["arguments"]
    for section in GUIDE.with_suffix(".md").read_text(encoding="utf-8").split("\n### ")[1:]
    for match in _DRAWN.finditer(section)
}


def test_every_picture_of_the_guide_is_small_and_has_its_command() -> None:
    files = {path.name: path.stat().st_size for path in GUIDE.iterdir()}
    assert files.keys() == DRAWN.keys()
    assert max(files.values()) < 120_000


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_the_picture_of_the_guide_is_what_its_command_draws(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """By the numbers and formulas of its marks: shapes may change with the library that draws."""
    shutil.copytree(ROOT / "docs" / "start" / "specs", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(DRAWN[name])) == 0
    if request.config.getoption("update"):
        shutil.copy(tmp_path / name, GUIDE / name)
    marks = [
        re.findall("<title>(.*?)</title>", path.read_text(encoding="utf-8"))
        for path in (tmp_path / name, GUIDE / name)
    ]
    assert marks[0]
    assert marks[0] == marks[1]
