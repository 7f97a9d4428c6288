"""Entries: one report, or one file without a report, as plain data for formats.

A report refers to its study and to plugins. An entry is the plain data of the pages of a report. It
can come from another process or an earlier run. An entry has only the parts that a format reads.
For example, a page needs advice, which evaluates many variants of the study; a table of numbers
does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from attrs import field

from parcost.contract.page import Column, Heading, Item, Line, Row, Table
from parcost.records import frozen

Part = Literal["data", "full", "points", "page", "charts"]
PARTS: tuple[Part, ...] = get_args(Part)


@frozen(kw_only=True)
class Problem:
    """One diagnostic as printed text: in colour, and in one line if it makes the entry fail.

    A *shown* problem is also on the page of the entry.
    """

    text: str
    line: str = ""
    shown: bool = False


@frozen(kw_only=True, eq=False)
class ChartData:
    """A chart as plain data, to be drawn.

    *rows* have a number, a flag or a text in each field. *columns* are the fields that a reader
    sees, by title; their numbers are formatted with units.
    """

    name: str
    title: str
    notes: Sequence[str]
    spec: Mapping[str, Any]
    columns: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]

    def description(self, row: Mapping[str, Any]) -> str:
        """Return the visible columns of *row* with their titles, in one line."""
        named = ((title, row.get(name)) for title, name in self.columns.items())
        shown = (
            f"{title}: {value}" if title else str(value)
            for title, value in named
            if value not in (None, "")
        )
        return "; ".join(shown)


@frozen(kw_only=True, eq=False)
class Entry:
    """A report; or a rejected file, which has *reasons* instead of a *name*.

    *faults* are the failures of plugins. *missing* are figures that the user requested but the
    report does not have, each with a hint. *text* is JSON; *part* names its content:

    - ``data``: the data of ``--format json``, without the sections;
    - ``full``: the same with the sections, such as advice;
    - ``points``: a list of flat mappings, one for each point of a sweep. Numbers are in base units,
      and their names end in the unit;
    - ``page``: headings, lines and tables, returned by :meth:`page`;
    - ``charts``: the default screen and pictures, returned by :meth:`page` and :meth:`charts`.
    """

    path: str
    name: str | None = None
    exit_code: int = 0
    reasons: Sequence[str] = ()
    problems: Sequence[Problem] = ()
    faults: Sequence[str] = ()
    missing: Sequence[tuple[str, str]] = ()
    part: Part
    text: str = field(repr=False)
    remembered: bool = False

    @property
    def rejected(self) -> bool:
        """Whether the entry is a file that could not be evaluated."""
        return self.name is None

    def data(self) -> Any:
        """Return *text* as plain data."""
        return json.loads(self.text)

    def charts(self) -> list[ChartData]:
        """Return the pictures of the report, to be drawn."""
        return [ChartData(**chart) for chart in self.data()["charts"]]

    def page(self) -> list[Item]:
        """Return the page of the report, to be drawn."""
        items: list[Item] = []
        data = self.data()
        for kind, *rest in data["page"] if self.part == "charts" else data:
            if kind == "heading":
                items.append(Heading(*rest))
            elif kind == "line":
                items.append(Line(*rest))
            else:
                columns, rows = rest
                items.append(Table([Column(*c) for c in columns], [Row(*r) for r in rows]))
        return items
