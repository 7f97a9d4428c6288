"""Measured runs as anchors: training logs, rows of RUNS.jsonl, specs with an `anchor`.

    parcost eval job.par --anchor train.log

A file becomes blocks `anchor`, which correct predictions of the job. `parcost import train.log`
prints them.
"""

from __future__ import annotations

from pathlib import PurePath

from parcost import Importer, Translation, hookimpl
from parcost_measured.anchors.labels import label_of
from parcost_measured.anchors.log import has_steps, read_log, table
from parcost_measured.anchors.rows import has_rows, read_rows


class MeasuredRuns(Importer):
    """Files with measured steps."""

    name = "measured_runs"
    title = str(table()["title"])
    source = str(table()["source"])
    describes = ("anchor",)

    def recognizes(self, name: str, text: str) -> bool:  # noqa: ARG002
        """Return whether the text has steps with their times, or rows of measured runs."""
        return has_rows(text) or has_steps(text)

    def translate(self, name: str, text: str) -> Translation:
        """Return the anchors of a file."""
        label, short = label_of(PurePath(name).stem), PurePath(name).name
        if name.endswith(".par"):
            from parcost_measured.anchors.spec import read_spec

            return read_spec(label, name, text)
        return read_rows(short, text) if has_rows(text) else read_log(label, short, text)


@hookimpl
def importers() -> list[Importer]:
    """Return the importer of measured runs."""
    return [MeasuredRuns()]
