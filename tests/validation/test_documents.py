"""The page on measured runs has every field, format and figure; that on accuracy is current."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from parcost.plugins.discovery import load
from parcost_measured.validation.command import command
from parcost_measured.validation.frameworks import all_frameworks, profile_of
from parcost_measured.validation.rows import PRECISIONS, RunRow, read_files, shipped_runs
from parcost_measured.validation.selection import METRICS, paths

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
ACCURACY = ROOT / "docs" / "accuracy.md"
MARK = "<!-- above: `parcost validate --format md`; below: by hand -->\n"


def test_every_field_is_documented() -> None:
    assert [path for path in paths() if f"`{path}`" not in PAGE] == []


def test_every_precision_and_figure_is_documented() -> None:
    assert [name for name in (*PRECISIONS, *METRICS) if f"`{name}`" not in PAGE] == []


def test_every_word_for_recomputation_is_documented() -> None:
    words = fields(RunRow).recompute.metadata["words"]
    assert [word for word in words if f"`{word}`" not in PAGE] == []


def test_every_option_of_its_own_is_documented() -> None:
    for name in ("--select", "--write-specs", "--fail-over", "--worst"):
        assert name in PAGE
        assert any(name in option.opts for option in command.params)


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [
        [cell.replace("\\*", "").strip() for cell in line.strip("| ").split("|")] for line in lines
    ]


def test_the_readme_has_the_errors_of_the_page() -> None:
    """Its table has the rows of "By source" with 4 runs or more, after the one of all."""
    page = ACCURACY.read_text(encoding="utf-8")
    (every,) = [row for row in _rows(page) if row[0] == "all rows" and len(row) == 8]
    sources = _rows(page.partition("## By source")[2].partition("## By device")[0])[2:]
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## How accurate it is")[2]
    shown = _rows(readme.partition("## From Python")[0])[2:]
    expected = [every, *(row for row in sources if int(row[1]) >= 4)]
    assert [row[1:] for row in shown] == [[row[i] for i in (1, 2, 4, 6)] for row in expected]


def test_the_readme_has_the_figures_of_the_page() -> None:
    page = ACCURACY.read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## How accurate it is")[2]
    sentences = " ".join(readme.partition("## From Python")[0].split())
    (experts,) = [row for row in _rows(page) if row[0] == "MoE" and len(row) == 8]
    ranking = _rows(page.partition("| regret |")[2])
    (ranked,) = [row for row in ranking if row[0] == "all" and len(row) == 7]
    (half_width,) = re.findall(r"step time hold .* half-width of ([\d.]+) %", page)
    assert f"For MoE models the error is {experts[2]}" in sentences
    assert f"median half-width is {half_width} %" in sentences
    assert f"takes {ranked[3]} longer than the best measured one; {ranked[6]} of pairs" in sentences
    (every,) = [row for row in _rows(page) if row[0] == "all rows" and len(row) == 8]
    assert (every[7], "Two runs that completed are predicted not to fit" in sentences) == (
        "2",
        True,
    )


@pytest.mark.slow
def test_the_page_on_accuracy_is_what_the_command_prints(
    validate: Callable[..., Any], golden: Callable[[Path, str], None]
) -> None:
    """``pytest --update`` writes it again."""
    by_hand = ACCURACY.read_text(encoding="utf-8").partition(MARK)[2]
    found = validate("--format", "md")
    assert found.exit_code == 0
    golden(ACCURACY, f"{found.stdout}\n{MARK}{by_hand}")


def test_every_profile_names_a_row_that_ran_it_or_says_that_none_did() -> None:
    plugins = load()
    shipped = shipped_runs(plugins)
    assert shipped is not None
    ran = defaultdict(set)
    for one in read_files([shipped]).placed:
        ran[profile_of(one.row).framework].add(one.row.id)
    frameworks = all_frameworks(plugins)
    assert len(frameworks) == len(list((ROOT / "specs/parcost_specs/frameworks").glob("*.par")))
    for name, framework in frameworks.items():
        if framework.checked == "no open row":
            assert not ran[name], name
        else:
            assert framework.checked in ran[name], name
        assert None not in (framework.first_year, framework.last_year), name
