"""The HTML page: one file with the report, its pictures and the script that draws them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import frozen

from parcost.contract.entries import ChartData, Entry
from parcost.contract.forms import Form, InputChoice, WebPage
from parcost.contract.page import Heading, Item, Line, Table
from parcost.language.errors import MissingExtraError
from parcost.language.escapes import escape_line
from parcost_formats.html.specification import (
    legend_entry_width,
    specification,
    theme,
)

_FOLDER = Path(__file__).parent
_LIBRARIES = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
_DIGITS = 7  # of a number that is drawn
_MOST_ROWS = 500  # of a table
_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


@frozen(kw_only=True)
class Picture:
    """A chart on the page: *id* is unique there, and *drawing* is its Vega-Lite specification.

    *rows* are the rows of the table below it, and *left* counts the rows that the table omits.
    """

    id: str
    chart: ChartData
    drawing: str
    rows: list[list[str]]
    left: int


@frozen(kw_only=True)
class PageReport:
    """A report on the page, or the error of a file without a report."""

    id: str
    title: str
    path: str
    reasons: list[str]
    items: list[tuple[str, Item]]
    pictures: list[Picture]


def page(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the page, piece by piece as reports are evaluated.

    Raises:
        MissingExtraError: The library that fills the template is not installed.
    """
    template = _environment().get_template("page.html")
    scripts = [_read(f"assets/{name}") for name in _LIBRARIES] + [_read("page.js")]
    yield from template.generate(
        parts=(_part(f"r{number}", entry) for number, entry in enumerate(entries, 1)),
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        style=_read("page.css"),
        themes=_themes(),
    )


def live_page(title: str) -> WebPage:
    """Return a page that requests its form and its reports from a server.

    Raises:
        MissingExtraError: The library that fills the template is not installed.
    """
    scripts = [_read(f"assets/{name}") for name in _LIBRARIES]
    scripts += [_read("page.js"), _read("live.js")]
    text = (
        _environment()
        .get_template("live.html")
        .render(title=title, scripts=scripts, style=_read("page.css"), themes=_themes())
    )
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return WebPage(text=text, policy=policy)


def inputs(form: Form) -> str:
    """Return the form as HTML inputs."""
    switches = [InputChoice(text="on"), InputChoice(text="off")]
    template = _environment().get_template("form.html")
    return str(template.render(parts=form.parts, search=form.search, switches=switches))


def reports(entries: Iterable[Entry], name: str) -> str:
    """Return reports as HTML; all element ids begin with *name*."""
    template = _environment().get_template("report.html")
    return str(template.render(parts=[_part(f"{name}{n}", e) for n, e in enumerate(entries, 1)]))


def _environment() -> Any:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        message = "the page needs Jinja, which is not installed"
        raise MissingExtraError(message, "pictures") from None
    return Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8").strip()


def _themes() -> str:
    return _json({name: theme(name) for name in ("light", "dark")})


def _hash(script: str) -> str:
    """Return the hash of a script, as in a Content-Security-Policy."""
    return "sha256-" + b64encode(sha256(script.encode()).digest()).decode()


def _json(value: Any) -> str:
    """Return data as JSON that is safe inside a ``<script>`` element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def _part(id: str, entry: Entry) -> PageReport:
    pictures = [] if entry.rejected else [_picture(id, n, c) for n, c in _number_charts(entry)]
    items = [] if entry.rejected else [(_kind(item), item) for item in entry.page()]
    return PageReport(
        id=id,
        title=escape_line(entry.name or entry.path),
        path=escape_line(entry.path),
        reasons=[escape_line(reason) for reason in entry.reasons],
        items=[(kind, item) for kind, item in items if kind != "title"],
        pictures=pictures,
    )


def _number_charts(entry: Entry) -> Iterator[tuple[int, ChartData]]:
    return enumerate(entry.charts(), 1)


def _picture(report: str, number: int, chart: ChartData) -> Picture:
    names = list(chart.columns.values())
    return Picture(
        id=f"{report}-{number}-{chart.name}",
        chart=chart,
        drawing=_json(
            {
                "spec": {**specification(chart, "container"), "data": {}},
                "count": len(chart.rows),
                "legend": legend_entry_width(chart),
                "fields": _fields(chart),
                "columns": [[title, name] for title, name in chart.columns.items()],
            }
        ),
        rows=[[_cell(row.get(name)) for name in names] for row in chart.rows[:_MOST_ROWS]],
        left=max(len(chart.rows) - _MOST_ROWS, 0),
    )


def _fields(chart: ChartData) -> dict[str, Any]:
    """Return the rows as columns; one with many equal values is stored as values and indices."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for row in chart.rows for name in row):
        values = [_short(row.get(name)) for row in chart.rows]
        distinct = dict.fromkeys((type(value), value) for value in values)
        if len(distinct) * 2 < len(values):
            at = {key: n for n, key in enumerate(distinct)}
            pool = [value for _, value in distinct]
            found[name] = {"values": pool, "at": [at[type(v), v] for v in values]}
        else:
            found[name] = {"values": values}
    return found


def _short(value: Any) -> Any:
    """Return a float rounded to the digits that a picture shows."""
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _kind(item: Item) -> str:
    match item:
        case Heading(level=1):
            return "title"
        case Heading():
            return "heading"
        case Line():
            return "line"
        case Table():
            return "table"
