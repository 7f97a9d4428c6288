"""Bars of errors and places of dots, worked out by hand."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from parcost_plugins.validation.picture import histogram, scatter


def test_bars_of_a_tenth_each() -> None:
    """The longest has 40 characters, and one of three is 13.3 of them, counted up."""
    errors = [-0.2, 0.05, 0.0, 0.09, 0.3, 1.0, 2.5]
    bars = {bar.title: (bar.rows, bar.length) for bar in histogram(errors)}
    assert [*bars][:4] == ["-20 to -10 %", "-10 to 0 %", "0 to +10 %", "+10 to +20 %"]
    assert [*bars][-2:] == ["+90 to +100 %", "over +100 %"]
    assert len(bars) == 13
    assert {title: found for title, found in bars.items() if found != (0, 0)} == {
        "-20 to -10 %": (1, 14),
        "0 to +10 %": (3, 40),
        "+30 to +40 %": (1, 14),
        "over +100 %": (2, 27),
    }
    assert [bar.title for bar in histogram([0.99])] == ["+90 to +100 %"]
    assert histogram([]) == []


def run(id: str, source: str, measured: float, predicted: float) -> Any:
    return SimpleNamespace(
        row=SimpleNamespace(
            id=id, source_key=source, measured=SimpleNamespace(step_time_s=measured)
        ),
        prediction=SimpleNamespace(step_time=predicted),
        error=predicted / measured - 1,
    )


def numbers(pattern: str, text: str) -> list[tuple[Any, ...]]:
    return re.findall(pattern, text)


def test_dots_on_logarithmic_axes() -> None:
    """From 10 to 1000 s on 480 px, 240 a decade: 100 s are at 240, and 10^1.5 s at 120."""
    root = 10**1.5
    text = scatter([run("a", "one", 100.0, root), run("b", "two", root, 10 * root)])
    assert scatter([]) == ""
    assert 'viewBox="0 0 592 592"' in text
    dots = numbers(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="2.5" fill="(#\w+)"', text)
    assert dots == [("240.0", "360.0", "#3b6fb6"), ("120.0", "120.0", "#d1605e")]
    vertical = numbers(r'<line x1="([\d.]+)" y1="0" x2="([\d.]+)" y2="480" stroke="#ddd"', text)
    assert vertical == [("0.0", "0.0"), ("240.0", "240.0"), ("480.0", "480.0")]
    level = numbers(r'<line x1="0" y1="([\d.]+)" x2="480" y2="([\d.]+)" stroke="#ddd"', text)
    assert level == [("480.0", "480.0"), ("240.0", "240.0"), ("0.0", "0.0")]
    titles = numbers(r'x="([\d.]+)" y="498" text-anchor="middle">([^<]+)<', text)
    assert titles == [("0.0", "10 s"), ("240.0", "100 s"), ("480.0", "1000 s")]
    beside = numbers(r'x="-6" y="([\d.]+)" text-anchor="end">([^<]+)<', text)
    assert beside == [("484.0", "10 s"), ("244.0", "100 s"), ("4.0", "1000 s")]
    legend = numbers(
        r'cx="12" cy="(\d+)" r="4" fill="(#\w+)"/>\n<text x="20" y="(\d+)">(\w+)', text
    )
    assert legend == [("12", "#3b6fb6", "16", "one"), ("27", "#d1605e", "31", "two")]
    assert "<title>a: -68.4 %</title>" in text
    assert '<text x="240.0" y="520" text-anchor="middle">measured</text>' in text
    assert 'x="-240.0" y="-42">predicted</text>' in text


def test_colours_come_again_after_eight_sources() -> None:
    text = scatter([run(f"r{n}", f"s{n}", 2.0, 3.0) for n in range(10)])
    dots = numbers(r'r="2.5" fill="(#\w+)"', text)
    assert len(set(dots)) == 8
    assert dots[8:] == dots[:2]
    assert numbers(r'r="4" fill="(#\w+)"', text) == dots
