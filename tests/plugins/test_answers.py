"""Answers of plugins that break the contract: each is named, and nothing fails because of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Check, Figure, Formula, Section, hookimpl
from parcost.plugins.discovery import load
from parcost_apps.cli import main
from parcost_formats.rendering.report_data import formula as formula_json

from ..rows import mark_most

LETTERS = "let nodes = 8\n"
STEP = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.gpt2_small
use catalog.precisions.bf16
cluster { devices = 1 }
training { sequence = 256, global_batch = 1 sequences }
"""


def raising() -> Any:
    raise ValueError("no words")


def result_of(hook: str, answer: Callable[[], Any], text: str = LETTERS) -> Any:
    """Return the result of a spec with a plugin `odd` that answers one hook."""
    session = parcost.Session(load(("odd", SimpleNamespace(**{hook: hookimpl(answer)}))))
    return session.load_text(text)[0].evaluate().result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("explain", "complaint"),
    [
        (raising, "the explanation of `width` raised ValueError: no words"),
        (lambda: 7, "explained `width`: gave `width` the formula 7, which is not a Formula"),
        (lambda: Formula("a\x1bb"), "explained `width`: gave `width` a formula that cannot be"),
        (lambda: Formula("2 w", inputs={"w": object()}), "gave the formula of `width` the input"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_an_explanation_that_fails_leaves_the_text(
    explain: Any, complaint: str, *, inside: bool
) -> None:
    own = Formula("by hand", value=7.0, inputs={"k": 3.0}, explain=explain)
    whole = Formula("2 k", value=14.0, inputs={"k": own}) if inside else own

    def figure() -> list[Figure]:
        return [Figure(name="width", title="Width", value=7.0, unit="", formula=whole)]

    result = result_of("calculations", figure)
    assert not result.faults
    assert own.text.startswith(
        "by hand, which cannot be explained: plugin `odd` failed in `calculations`: "
    )
    assert complaint in own.text
    assert json.dumps(own.text) in str(formula_json(whole))
    assert own.inputs == {"k": (3.0, "")}


@pytest.mark.parametrize("cell", mark_most([[float("nan"), None], [0.5], ["a", 1], [[1], 2]], 4))
def test_a_list_in_a_view_holds_whole_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: Any
) -> None:
    plugin = tmp_path / "odd.py"
    plugin.write_text(
        "from parcost import Section, hookimpl\nnan = float('nan')\n"
        "@hookimpl\ndef sections(name):\n"
        f"    return [Section(title='odd one', columns=['a'], rows=[[{cell!r}]]),\n"
        "            Section(title='even one', columns=['a'], rows=[[[1, 2, 3]]])]\n"
    )
    spec = tmp_path / "a.par"
    spec.write_text(STEP)
    assert main(["show", str(spec), "--stages", "--plugin", str(plugin)]) == 3
    printed = capsys.readouterr()
    assert "even one" in printed.out
    assert "odd one" not in printed.out
    assert "failed in `sections`: gave the section 'odd one' the cell [" in printed.err
    assert "where a list of whole numbers is expected" in printed.err


def section(lead: Any) -> Section:
    return Section(title="own", columns=("a",), rows=[("x",)], lead=lead)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "answer", "complaint"),
    [
        (
            "sections",
            section("many"),
            "gave the section 'own' lead = 'many', which is not a number",
        ),
        ("sections", section(-1), "gave the section 'own' lead = -1, which is not a number"),
        (
            "checks",
            Check(id="", holds=False, subject="layout", message="no"),
            "gave a rule the id '' and the message 'no'",
        ),
        (
            "checks",
            Check(id="odd", holds=False, subject="layout", message=""),
            "gave a rule the id 'odd' and the message ''",
        ),
    ],
)
def test_an_answer_without_words_or_counts_is_named(hook: str, answer: Any, complaint: str) -> None:
    result = result_of(hook, lambda: [answer], STEP)
    assert list(result.sections)
    (fault,) = result.faults
    assert str(fault).startswith(f"plugin `odd` failed in `{hook}`: {complaint}")
