"""Timelines as data: ``parcost timeline --format json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from parcost import StepTrace, TimelineExporter, hookimpl
from parcost.contract.page import Paper
from parcost_formats.rendering.escapes import escape_json
from parcost_formats.rendering.json_header import header
from parcost_formats.traces.drawing import data


class TimelineJson(TimelineExporter):
    """One document: the start and the end of every pass of every study."""

    name = "json"

    def write(self, traces: Iterable[StepTrace], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the document, study by study."""
        yield _text(header()).removesuffix("}") + ', "studies": ['
        separator = ""
        for trace in traces:
            yield separator + _text(data(trace))
            separator = ", "
        yield "]}\n"


def _text(value: object) -> str:
    return escape_json(json.dumps(value, ensure_ascii=False))


@hookimpl
def timeline_exporters() -> list[TimelineJson]:
    """Return the exporter of JSON."""
    return [TimelineJson()]
