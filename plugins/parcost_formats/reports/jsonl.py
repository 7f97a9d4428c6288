"""Reports as lines of JSON: ``--format jsonl``, for batches of any length.

One line for each study, and one for each file without a report. A line has the same content as its
entry in ``--format json``, without ``sections``: advice evaluates a study many times, which is too
slow for a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper
from parcost.language.json_encoding import encode
from parcost_formats.rendering.json_header import header


class JsonLines(Exporter):
    """A line per study, as soon as it is known."""

    name = "jsonl"
    reads: Part = "data"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the lines."""
        head = encode(header()).removesuffix("}") + ","
        for entry in entries:
            yield head + entry.text.removeprefix("{") + "\n"


@hookimpl
def exporters() -> list[JsonLines]:
    """Return the exporter of lines of JSON."""
    return [JsonLines()]
