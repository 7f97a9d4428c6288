"""Bars beside the causes of the default screen, in blocks or in ASCII."""

from __future__ import annotations

from parcost import Report
from parcost.contract.page import Paper
from parcost_formats.rendering.screen import page
from parcost_formats.rendering.text import draw
from parcost_formats.rendering.view import View


def test_bars_are_as_long_as_their_causes_and_ascii_where_needed(report: Report) -> None:
    items = page(report, View(kind="screen"))
    plain = draw(items, Paper(width=80))
    blocks = draw(items, Paper(width=80, unicode=True))
    assert plain.isascii()
    outcome = report.result.outcome
    assert outcome is not None
    causes = sorted(outcome.seconds_by_cause.items(), key=lambda pair: -pair[1])
    longest = causes[0][1]
    plain_bars, block_bars = (text.partition("by cause")[2] for text in (plain, blocks))
    for cause, seconds in causes[:3]:
        (line, *_) = [
            line for line in plain_bars.splitlines() if line.strip().startswith(f"{cause} ")
        ]
        assert abs(line.count("#") - 28 * seconds / longest) <= 0.5
        (block, *_) = [
            line for line in block_bars.splitlines() if line.strip().startswith(f"{cause} ")
        ]
        assert block.count("█") == line.count("#")
    assert len(plain.splitlines()) <= 44
