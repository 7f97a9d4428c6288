"""Execution traces of MLCommons Chakra: ``parcost timeline --format chakra --out FOLDER``.

There is a file for each rank, ``NAME.RANK.et``, and ``comm_group.json`` with the ranks of each
group: the workload format of astra-sim. Protobuf, which the extra ``chakra`` installs, encodes
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from parcost import Diagnostic, SpecError, StepTrace, TimelineFileExporter, hookimpl
from parcost_formats.rendering.cells import cell


class Chakra(TimelineFileExporter):
    """A file for each rank of a job."""

    name = "chakra"
    folder = True
    reads_ranks = True

    def save(self, traces: Iterable[StepTrace], path: Path) -> None:
        """Write the files of the only step into the folder at *path*.

        Raises:
            SpecError: There are several steps, or none, or too many nodes.
        """
        from parcost_formats.traces.chakra.files import save_traces

        found = list(traces)
        first = found[0]
        if len(found) > 1:
            names = ", ".join(map(_title, found[:5]))
            message = f"a folder of Chakra traces has one step, but there are {len(found)}: {names}"
            help = "choose one with `--study` or `--set`"
            raise SpecError([Diagnostic("trace-steps", message, help=help, place=first.path)])
        if first.part:
            message = f"pipeline `{first.part}` has no ranks or bytes, so it has no Chakra traces"
            help = "write `--format perfetto`, or a study with `training`"
            raise SpecError([Diagnostic("trace-ranks", message, help=help, place=first.path)])
        save_traces(first, path)


def _title(trace: StepTrace) -> str:
    at = ", ".join(f"{name} = {cell(value)}" for name, value in trace.at.items())
    return f"`{trace.part or trace.name}`" + (f" at {at}" if at else "")


@hookimpl
def timeline_exporters() -> list[Chakra]:
    """Return the exporter of execution traces."""
    return [Chakra()]
