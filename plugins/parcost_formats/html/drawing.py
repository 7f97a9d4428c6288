"""Pictures without a browser: SVG, and PNG rendered from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from parcost import Diagnostic, MissingExtraError, SpecError
from parcost_formats.html.specification import (
    legend_entry_width,
    legend_style,
    specification,
    theme,
)

if TYPE_CHECKING:
    from parcost.contract.entries import ChartData

_WIDTH = 760  # of a drawing, in pixels, without its axes
_NOTE = 110  # characters of a line of a note
_GAP = 32
_SCALE = 2.0  # pixels of an image for each of a drawing
_VERSION = "6.4"  # of Vega-Lite, which the page has as well
_MARK = re.compile(
    r'<(path|line|text|rect|image)( [^>]*aria-label="([^"]*)" role="graphics-symbol"[^>]*?)(/?)>'
)
_SIZE = re.compile(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"')
_ID = re.compile(r'\bid="([^"]+)"')


def svg(charts: Sequence[tuple[str, ChartData]]) -> str:
    """Return one SVG of all *charts* below each other; each title has the name of its study.

    Raises:
        SpecError: There is no chart, or the library that draws is not installed.
    """
    if not charts:
        message = "there is nothing to draw: no report has such a picture"
        raise SpecError([Diagnostic("nothing-to-draw", message)])
    several = len({study for study, _ in charts}) > 1
    drawn = [_draw(chart, study if several else "") for study, chart in charts]
    if len(drawn) == 1:
        return _with_own_ids(drawn[0], 0) + "\n"
    sizes = [tuple(map(float, match.groups())) for match in map(_SIZE.match, drawn) if match]
    tops = [0.0, *accumulate(height + _GAP for _, height in sizes)]
    width, height = max(width for width, _ in sizes), tops[-1] - _GAP
    parts = [
        one.replace("<svg ", f'<svg y="{top:g}" ', 1) for one, top in zip(drawn, tops, strict=False)
    ]
    head = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    back = f'<rect width="{width:g}" height="{height:g}" fill="white"/>'
    body = "".join(_with_own_ids(part, number) for number, part in enumerate(parts))
    return f'<svg xmlns="http://www.w3.org/2000/svg" version="1.1" {head}>{back}{body}</svg>\n'


def png(charts: Sequence[tuple[str, ChartData]]) -> bytes:
    """Return one image of all *charts*.

    Raises:
        SpecError: There is no chart, or the library that draws is not installed.
    """
    image: bytes = _library().svg_to_png(svg(charts), scale=_SCALE)
    return image


def _library() -> Any:
    try:
        import vl_convert
    except ImportError:
        message = "pictures need vl-convert, which is not installed"
        raise MissingExtraError(message, "pictures") from None
    return vl_convert


def _draw(chart: ChartData, study: str) -> str:
    spec = specification(chart, _WIDTH)
    rows = [{**row, "description": chart.description(row)} for row in chart.rows]
    shown = study.encode("utf-8", "backslashreplace").decode()  # a file name may be no UTF-8
    title = f"{shown}: {chart.title}" if study and shown not in chart.title else chart.title
    notes = [line for note in chart.notes for line in wrap(note, _NOTE)]
    spec |= {"data": {"values": rows}, "title": {"text": title, "subtitle": notes}}
    look = theme("light")
    look["legend"] |= legend_style(legend_entry_width(chart), _WIDTH)
    made: str = _library().vegalite_to_svg(
        spec, vl_version=_VERSION, config=look, allowed_base_urls=[]
    )
    return _MARK.sub(_with_title, made)


def _with_title(mark: re.Match[str]) -> str:
    """Return an SVG mark with its description as ``<title>``, which viewers show on hover."""
    tag, attributes, description, closed = mark.groups()
    title = f"<title>{description}</title>"
    return f"<{tag}{attributes}>{title}" + (f"</{tag}>" if closed else "")


def _with_own_ids(drawn: str, number: int) -> str:
    """Return an SVG whose ids are unique on the page and reproducible."""
    for place, name in enumerate(dict.fromkeys(_ID.findall(drawn))):
        drawn = drawn.replace(f'id="{name}"', f'id="p{number}-{place}"')
        drawn = drawn.replace(f"url(#{name})", f"url(#p{number}-{place})")
    return drawn
