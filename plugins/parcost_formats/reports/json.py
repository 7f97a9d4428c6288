"""Reports as data, whole: ``--format json``; see :mod:`parcost_formats.rendering.report_data`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper
from parcost_formats.rendering.escapes import escape_json
from parcost_formats.rendering.json_header import header


class Json(Exporter):
    """One document: every report, then every file that has none."""

    name = "json"
    reads: Part = "full"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the document piece by piece, so that a long batch is not held in memory."""
        rejected = []
        yield _text(header()).removesuffix("\n}") + ',\n  "reports": ['
        separator = ""
        for entry in entries:
            if entry.rejected:
                rejected.append(entry.data())
                continue
            yield separator + "\n    " + _text(entry.data()).replace("\n", "\n    ")
            separator = ","
        yield ("\n  " if separator else "") + '],\n  "rejected": '
        yield _text(rejected).replace("\n", "\n  ") + "\n}\n"


def _text(value: object) -> str:
    return escape_json(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


@hookimpl
def exporters() -> list[Json]:
    """Return the exporter of JSON."""
    return [Json()]
