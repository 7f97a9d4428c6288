"""Timelines as a person reads them: ``parcost timeline --format table``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcost import StepTrace, TimelineExporter, hookimpl
from parcost.contract.page import Paper
from parcost_formats.rendering.text import draw
from parcost_formats.traces.drawing import page


class TimelineTable(TimelineExporter):
    """A drawing of the passes of each device, with its fill, steady state and drain."""

    name = "table"

    def write(self, traces: Iterable[StepTrace], paper: Paper) -> Iterator[str]:
        """Yield one page for each timeline."""
        for trace in traces:
            yield draw(list(page(trace, paper.width)), paper)


@hookimpl
def timeline_exporters() -> list[TimelineTable]:
    """Return the drawing exporter."""
    return [TimelineTable()]
