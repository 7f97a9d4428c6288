"""`parcost docs`: pages of the documentation in a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost_apps.cli.streams import Messages, Results
from parcost_apps.documentation import command as docs

DOCS = Path(__file__).parents[2] / "docs"
Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def do(*arguments: str) -> Any:
        with Messages(), Results():
            code = docs.command.main(list(arguments), standalone_mode=False)
        said = capsys.readouterr()
        return SimpleNamespace(code=code, out=said.out, err=said.err)

    return do


def test_a_page_is_printed_as_its_file(run: Run) -> None:
    for name in ("start/memory", "docs/start/memory.md"):
        done = run(name)
        assert done.code == 0
        assert done.out == (DOCS / "start" / "memory.md").read_text(encoding="utf-8")


def test_the_last_part_of_a_name_is_enough_where_one_page_has_it(run: Run) -> None:
    assert run("roofline").out.startswith("# 1. Roofline\n")
    assert run("rules/index").out.startswith("# The rules\n")
    done = run("memory")
    assert done.code == 2
    assert "3 pages are called `memory`" in done.err
    assert "`start/memory`" in done.err


def test_all_pages_are_listed_with_their_titles(run: Run) -> None:
    out = run().out
    for path in DOCS.rglob("*.md"):
        assert path.relative_to(DOCS).with_suffix("").as_posix() in out
    assert "start/zero" in out
    assert "5. Data parallelism and ZeRO" in out


@pytest.mark.slow
def test_sections_with_all_words_are_found_those_with_titles_first(run: Run) -> None:
    done = run("--search", "pipeline BUBBLE")
    assert done.code == 0
    first, *_, last, more = done.out.splitlines()[2:]
    assert re.fullmatch(r"  \d+ more sections: add words, or name a page before --search", more)
    assert "bubble" in first
    assert "how-to/speed" in first or "start/pipeline" in first or "glossary" in first
    assert "start/pipeline" in done.out
    assert "bubble" not in last
    within = run("start/glossary", "--search", "all-reduce")
    assert {line.split()[0] for line in within.out.splitlines()[2:]} == {"start/glossary"}


def test_a_word_is_not_found_inside_of_another(run: Run) -> None:
    """Every page has `parcost`."""
    pages = run("--search", "cost").out
    assert "Costs of your own" in pages
    assert "ParcostError" not in pages
    assert len(re.findall(r"^  \S", pages, re.MULTILINE)) == 1 + 1 + 20 + 1


@pytest.mark.slow
def test_a_heading_inside_of_a_fence_is_no_section(run: Run) -> None:
    assert "# -*-" not in run("--search", "#").out
    assert "Llama 3 8B on two nodes" not in run("--search", "nodes of eight").out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("rofline",), 2, "did you mean `roofline`?"),
        (("../README",), 2, "there is no page `../README`"),
        (("/etc/passwd",), 2, "there is no page `/etc/passwd`"),
        (("xyzzy\x1b[31m",), 2, "there is no page `xyzzy"),
        (("--search", "zzzq"), 1, "no section has `zzzq`"),
        (("--search", " "), 1, "no section has ``"),
    ],
)
def test_what_is_not_there_is_named(run: Run, arguments: Any, code: int, said: str) -> None:
    done = run(*arguments)
    assert done.code == code
    assert said in done.err
    assert "\x1b" not in done.err
    assert not done.out


def test_an_installation_without_pages_tells_so(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(docs, "_FOLDERS", (tmp_path,))
    done = run()
    assert done.code == 2
    assert "this installation has no documentation" in done.err
