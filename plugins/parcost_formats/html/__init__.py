"""Reports as pictures: ``--format html``, ``--format svg`` and ``--format png``.

A page of HTML is one file that needs no network. It draws with Vega-Lite, which is in the page. SVG
and PNG are rendered without a browser, with all pictures below each other. The charts come from
plugins; this package is independent of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from parcost import Exporter, FileExporter, LiveExporter, Rulebook, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper

if TYPE_CHECKING:
    from parcost.contract.entries import ChartData
    from parcost.contract.forms import Form, WebPage


class Html(LiveExporter):
    """One page with the short report and its pictures, of any number of studies."""

    name = "html"
    reads: Part = "charts"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the page piece by piece."""
        from parcost_formats.html.page import page

        yield from page(entries)

    def live_page(self, title: str) -> WebPage:
        """Return the page of a server, without a form and without a report."""
        from parcost_formats.html.page import live_page

        return live_page(title)

    def inputs(self, form: Form) -> str:
        """Return the form as HTML inputs."""
        from parcost_formats.html.page import inputs

        return inputs(form)

    def reports(self, entries: Iterable[Entry], name: str) -> str:
        """Return reports as HTML; all element ids begin with *name*."""
        from parcost_formats.html.page import reports

        return reports(entries, name)


class Svg(Exporter):
    """The charts of studies, as one SVG drawing."""

    name = "svg"
    reads: Part = "charts"
    media_type = "image/svg+xml"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield one SVG drawing with all charts."""
        from parcost_formats.html.drawing import svg

        yield svg(_charts(entries))


class Png(FileExporter):
    """Pictures as pixels."""

    name = "png"
    reads: Part = "charts"

    def save(self, entries: Iterable[Entry], path: Path) -> None:
        """Write one image of all pictures."""
        from parcost_formats.html.drawing import png

        path.write_bytes(png(_charts(entries)))


def _charts(entries: Iterable[Entry]) -> list[tuple[str, ChartData]]:
    """Return the pictures of every report, each with the name of its study."""
    return [
        (entry.name or entry.path, chart)
        for entry in entries
        if not entry.rejected
        for chart in entry.charts()
    ]


@hookimpl
def exporters() -> list[Exporter | FileExporter]:
    """Return the three exporters: HTML, SVG and PNG."""
    return [Html(), Svg(), Png()]


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of the exporters, with a page for each rule."""
    return [Rulebook(name="pictures", file=Path(__file__).with_name("rules.toml"))]
