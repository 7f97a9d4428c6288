"""Diagnostics and failed claims as annotations: ``--format github`` and ``--format sarif``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper


class GitHub(Exporter):
    """Each problem as a workflow command of GitHub Actions."""

    name = "github"
    reads: Part = "data"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the commands."""
        from parcost_formats.reports.ci_formats import github

        for entry in entries:
            for problem in _problems(entry):
                yield github(problem) + "\n"


class Sarif(Exporter):
    """A log of static analysis."""

    name = "sarif"
    reads: Part = "data"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the whole log in one piece, because it begins with the rules."""
        from parcost_formats.reports.ci_formats import sarif

        yield sarif(
            problem for entry in entries for problem in (*_problems(entry), *_suppressions(entry))
        )


def _problems(entry: Entry) -> Iterator[Mapping[str, Any]]:
    found: Any = entry.data()
    if entry.rejected:
        yield from found["diagnostics"]
        return
    for result in found["results"]:
        yield from result["diagnostics"]


def _suppressions(entry: Entry) -> Iterator[Mapping[str, Any]]:
    """Yield the warnings that a spec suppresses."""
    found: Any = entry.data()
    for result in found.get("results", ()):
        yield from result.get("suppressions", ())  # shards of earlier versions have none


@hookimpl
def exporters() -> list[Exporter]:
    """Return the two exporters, GitHub and SARIF."""
    return [GitHub(), Sarif()]
