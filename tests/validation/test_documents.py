"""The page on measured runs has every field, format and figure; that on accuracy is current."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from parcost_measured.validation.command import command
from parcost_measured.validation.rows import PRECISIONS, RunRow
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


@pytest.mark.slow
def test_the_page_on_accuracy_is_what_the_command_prints(
    validate: Callable[..., Any], golden: Callable[[Path, str], None]
) -> None:
    """``pytest --update`` writes it again."""
    by_hand = ACCURACY.read_text(encoding="utf-8").partition(MARK)[2]
    found = validate("--format", "md")
    assert found.exit_code == 0
    golden(ACCURACY, f"{found.stdout}\n{MARK}{by_hand}")
