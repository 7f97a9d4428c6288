"""Predicted over measured: a histogram of errors in characters, a scatter plot in SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10

from attrs import frozen

from parcost.language.escapes import escape_line
from parcost_plugins.validation.summary import ScoredRow

_STEP = 0.1  # of an error, the width of a bar
_MOST = 1.0  # beyond which errors share the last bar
_LENGTH = 40  # of the longest bar, in characters


@frozen
class Bar:
    """How many rows have an error from one to another."""

    title: str
    rows: int
    length: int


def histogram(errors: Sequence[float]) -> list[Bar]:
    """Return bars of a tenth each from the lowest error to the highest; beyond +100 % is one.

    >>> [(bar.title, bar.rows) for bar in histogram([-0.15, -0.12, 0.05])]
    [('-20 to -10 %', 2), ('-10 to 0 %', 0), ('0 to +10 %', 1)]
    """
    if not errors:
        return []
    places = [min(floor(error / _STEP + 1e-9), round(_MOST / _STEP)) for error in errors]
    counts = dict.fromkeys(range(min(places), max(places) + 1), 0)
    for place in places:
        counts[place] += 1
    most = max(counts.values())
    return [
        Bar(_title(place), count, -(-count * _LENGTH // most)) for place, count in counts.items()
    ]


def _title(place: int) -> str:
    low, high = round(100 * place * _STEP), round(100 * (place + 1) * _STEP)
    return (
        f"over {_signed_text(low)} %"
        if low >= 100 * _MOST
        else f"{_signed_text(low)} to {_signed_text(high)} %"
    )


def _signed_text(value: int) -> str:
    return f"{value:+d}" if value else "0"


_LABEL = "predicted over measured seconds of a step"
_UPRIGHT = 'transform="rotate(-90)" text-anchor="middle"'
_SIDE, _MARGIN = 480, 56
_COLOURS = ("#3b6fb6", "#d1605e", "#5a9e6f", "#b07aa1", "#e08f3c", "#6aa9a9", "#8c6d4f", "#777777")


def scatter(rows: Sequence[ScoredRow]) -> str:
    """Return an SVG of seconds predicted over seconds measured, both on logarithmic axes."""
    if not rows:
        return ""
    seconds = [
        value for one in rows for value in (one.row.measured.step_time_s, one.prediction.step_time)
    ]
    low, high = floor(log10(min(seconds))), floor(log10(max(seconds))) + 1

    def place(value: float) -> float:
        return (log10(value) - low) / (high - low) * _SIDE

    whole = _SIDE + 2 * _MARGIN
    parts = [
        f'<svg viewBox="0 0 {whole} {whole}" role="img" aria-label="{_LABEL}">',
        f'<g transform="translate({_MARGIN},{_MARGIN})">',
        f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#999"/>',
    ]
    for decade in range(low, high + 1):
        at, title = place(10.0**decade), f"{10.0**decade:g} s"
        down = _SIDE - at
        parts += [
            f'<line x1="{at:.1f}" y1="0" x2="{at:.1f}" y2="{_SIDE}" stroke="#ddd"/>',
            f'<line x1="0" y1="{down:.1f}" x2="{_SIDE}" y2="{down:.1f}" stroke="#ddd"/>',
            f'<text x="{at:.1f}" y="{_SIDE + 18}" text-anchor="middle">{title}</text>',
            f'<text x="-6" y="{down + 4:.1f}" text-anchor="end">{title}</text>',
        ]
    parts.append(f'<line x1="0" y1="{_SIDE}" x2="{_SIDE}" y2="0" stroke="#333"/>')
    sources = list(dict.fromkeys(one.row.source_key for one in rows))
    for one in rows:
        colour = _COLOURS[sources.index(one.row.source_key) % len(_COLOURS)]
        x, y = place(one.row.measured.step_time_s), place(one.prediction.step_time)
        title = escape(escape_line(f"{one.row.id}: {100 * one.error:+.1f} %"))
        parts.append(
            f'<circle cx="{x:.1f}" cy="{_SIDE - y:.1f}" r="2.5" fill="{colour}" '
            f'fill-opacity="0.6"><title>{title}</title></circle>'
        )
    parts += [
        f'<text x="{_SIDE / 2}" y="{_SIDE + 40}" text-anchor="middle">measured</text>',
        f'<text {_UPRIGHT} x="{-_SIDE / 2}" y="-42">predicted</text>',
    ]
    for number, source in enumerate(sources):
        colour = _COLOURS[number % len(_COLOURS)]
        y = 16 + 15 * number
        parts += [
            f'<circle cx="12" cy="{y - 4}" r="4" fill="{colour}"/>',
            f'<text x="20" y="{y}">{escape(escape_line(source))}</text>',
        ]
    return "\n".join([*parts, "</g>", "</svg>"])
