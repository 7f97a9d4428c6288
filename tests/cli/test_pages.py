"""How a page is laid out, and that every manner of drawing it says the same."""

from __future__ import annotations

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import parcost
from parcost import Formula, Work, formula, symbols_of
from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Table
from parcost.report.formulas import substitute
from parcost_apps.explain import explanation
from parcost_formats.rendering import markdown, text
from parcost_formats.rendering.report_page import report_page
from parcost_formats.rendering.text import draw

from ..rows import try_each

words = st.text("abcdefgh ", min_size=0, max_size=60)
cells = st.one_of(words, st.sampled_from(["12.5", "1,234.50", "a_long_name_without_a_blank_in_it"]))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 5))
    columns = [
        Column(
            draw(words),
            draw(st.sampled_from(["left", "right"])),
            flexible=draw(st.booleans()),
        )
        for _ in range(count)
    ]
    rows = draw(
        st.lists(
            st.builds(
                Row,
                st.lists(cells, min_size=count, max_size=count),
                indent=st.integers(0, 3),
                rule=st.booleans(),
            ),
            max_size=5,
        )
    )
    return Table(columns, rows)


def text_lines(text: str) -> list[str]:
    return sorted(re.sub(r"[\s─━=-]+", "", text))


@pytest.mark.slow
@given(table=tables(), width=st.integers(1, 120))
def test_a_table_loses_no_character_however_narrow(table: Table, width: int) -> None:
    """On paper too narrow for columns, cells are lines that repeat or omit their titles."""
    cells = "".join(cell for row in table.rows for cell in row.cells)
    titles = "".join(column.title for column in table.columns)
    found = Counter(text_lines(text.draw([table], Paper(width=width))))
    assert Counter(text_lines(cells)) <= found
    if width >= 40 * len(table.columns):
        assert found == Counter(text_lines(cells + titles))


@pytest.mark.slow
@given(table=tables())
def test_a_table_of_flexible_columns_fits_the_page(table: Table) -> None:
    flexible = Table([Column(c.title, c.align, flexible=True) for c in table.columns], table.rows)
    for line in text.draw([flexible], Paper(width=120)).splitlines():
        assert len(line) <= 120


@given(table=tables(), width=st.integers(20, 120))
def test_a_terminal_shows_the_lines_of_the_plain_page(table: Table, width: int) -> None:
    items: list[Item] = [Heading("title", 1, aside="a.par"), table, Line("more", "bad")]
    coloured = text.draw(items, Paper(width=width, color=True, unicode=True))
    bare = re.sub(r"\x1b\[[\d;]*m", "", coloured)
    assert bare == text.draw(items, Paper(width=width, unicode=True))


def test_a_long_title_is_wrapped() -> None:
    title = "a.par -> a.par with layout.tp = 2, layout.pp = 4"  # 48 columns
    drawn = text.draw([Heading(title, 1)], Paper(width=40)).splitlines()
    assert drawn == ["a.par -> a.par with layout.tp = 2,", "  layout.pp = 4", "=" * 40, ""]


def test_a_blank_cell_with_less_room_than_its_indent_ends() -> None:
    table = Table([Column("", flexible=True), Column("b")], [Row((" ", "x" * 20), indent=3)])
    assert text.draw([table], Paper(width=1)).split() == ["b", "-" * 22, "x" * 20]


def test_columns_line_up() -> None:
    table = Table(
        (Column("name"), Column("s", "right")),
        [Row(("a", "1.5")), Row(("bcd", "20.25"), indent=1), Row(("all", "21.75"), rule=True)],
    )
    assert text.draw([table], Paper()) == (
        "  name      s\n  -----------\n  a       1.5\n   bcd  20.25\n  -----------\n  all   21.75\n"
    )


def test_a_wide_table_leaves_out_optional_columns_and_says_so() -> None:
    columns = [Column("name"), *(Column(f"figure{i}", optional=True) for i in range(8))]
    drawn = text.draw([Table(columns, [Row(["x" * 10] * 9)])], Paper(width=60))
    assert max(map(len, drawn.splitlines())) <= 60
    assert "figure3" in drawn.partition("not shown:")[0]
    assert "figure7" in drawn.partition("not shown:")[2]


def test_one_blank_line_is_as_much_as_there_is() -> None:
    drawn = text.draw([Heading("a", 1), Heading("b"), Line("c"), Heading("d")], Paper(width=3))
    assert drawn == "a\n===\n\nb\n\n  c\n\nd\n\n"


def test_ascii_paper_gets_ascii() -> None:
    items: list[Item] = [Line("3 ± 1 µs × 2 ≤ 9"), Heading("–", 1)]
    assert text.draw(items, Paper()).isascii()
    assert "±" in text.draw(items, Paper(unicode=True))


@pytest.mark.parametrize("color", [True, False])
def test_control_characters_never_reach_the_page(color: bool) -> None:
    hostile = "\x1b]0;owned\x07 \u202egnp.exe \x9b31m"
    items: list[Item] = [
        Heading(hostile, 1, aside=hostile),
        Line(hostile),
        Table((Column(hostile),), [Row((hostile,))]),
    ]
    drawn = re.sub(r"\x1b\[[\d;]*m", "", draw(items, Paper(color=color, unicode=True)))
    assert drawn.count("owned") == 5
    assert all(c.isprintable() or c == "\n" for c in drawn)


def test_markdown_takes_nothing_for_markup() -> None:
    drawn = markdown.draw(
        [Heading("a_b", 1), Table((Column("x"),), [Row(("<script>|`*_[a](b)",))])]
    )
    assert "# a\\_b" in drawn
    assert "\\<script\\>\\|\\`\\*\\_\\[a\\](b)" in drawn


@try_each(
    "text, numbers",
    [
        ("2 s b h e / t", "2 x 8,192 x 1 x 4,096 x 2 B / 8"),
        ("(t - 1) alpha + n (t - 1) / t", "(8 - 1) x 1 us + 1 MiB x (8 - 1) / 8"),
        ("alpha[node] + 2 alpha", "3 us + 2 x 1 us"),
        ("2 tb + t, of both", "2 x 3 + 8"),
    ],
)
def test_numbers_take_the_place_of_whole_symbols(text: str, numbers: str) -> None:
    inputs = {
        "s": (8192, ""),
        "b": (1, ""),
        "h": (4096, ""),
        "e": (2, "B"),
        "t": (8, ""),
        "n": (2.0**20, "B"),
        "alpha": (1e-6, "s"),
        "alpha[node]": (3e-6, "s"),
        "tb": 3.0,
    }
    of_text = formula(text, {symbol: inputs[symbol] for symbol in symbols_of(text)})
    assert substitute(of_text) == numbers


def page_of(scenario: parcost.Scenario) -> str:
    return text.draw(report_page(scenario.evaluate()), Paper(width=200))


def test_a_page_has_the_headlines_of_a_calculation_and_what_claims_name() -> None:
    (scenario,) = parcost.load_text(
        "pipeline p { stages = 4, micro_batches = 8 }\nexpect { p.idle >= 0 s }"
    )
    page = page_of(scenario)
    shown = [name for name in ("p: bubble / step time", "p: idle time") if name in page]
    assert shown == ["p: bubble / step time", "p: idle time"]
    assert "p: busy time" not in page
    left = len(scenario.evaluate().result.figures) - page.count(" p: ")
    assert f"`parcost figures` lists {left} more" in page


def test_a_sweep_has_columns_for_headlines_and_what_claims_name() -> None:
    (scenario,) = parcost.load_text(
        "pipeline p { stages = 4, micro_batches = [8, 16] }\nexpect { p.idle >= 0 s }"
    )
    page = page_of(scenario)
    assert "p.bubble" in page
    assert "p.idle" in page
    assert "p.busy" not in page
    assert {"p.bubble", "p.idle", "p.busy"} <= set(scenario.evaluate().rows()[0])


@pytest.mark.parametrize(
    ("hidden", "where"),
    [
        (0.0, "none: the term runs serially"),
        (2.0, "with the pass of another micro-batch, which the schedule runs at the same time"),
    ],
)
def test_what_a_schedule_hides_under_another_pass_does_not_hide_nowhere(
    hidden: float, where: str
) -> None:
    term = Work(name="w", seconds=1.0, pass_="F", formula=Formula(text="given"))
    line: Any = SimpleNamespace(term=term, hidden=hidden)
    assert explanation._describe_overlap(line) == where


def test_words_are_not_cut_where_rows_can_be_stacked_or_columns_moved() -> None:
    columns = [Column("operation"), *(Column(head, flexible=True) for head in ("algorithm", "why"))]
    row = Row(("all_reduce", "hierarchical_overlapped", "communication waits"))
    for width in (30, 44, 50, 80):
        drawn = draw([Table(columns, [row])], Paper(width=width))
        assert {"all_reduce", "hierarchical_overlapped", "communication"} <= set(drawn.split())
        assert max(map(len, drawn.splitlines())) <= max(width, 36)


def test_a_bar_has_its_color_only_where_there_is_color() -> None:
    row = Row(("compute", "████"), bar_color="#0072B2")
    table = Table([Column(), Column()], [row])
    drawn = draw([table], Paper(color=True, unicode=True))
    assert "compute  \x1b[38;5;31m████\x1b[0m" in drawn
    assert "\x1b" not in draw([table], Paper())
