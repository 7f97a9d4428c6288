"""Claims and errors as JUnit XML: ``--format junit``. A case is a claim, or a study without one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper

if TYPE_CHECKING:
    from parcost_formats.reports.ci_formats import CheckedClaim

_CLAIM = "expectation"


class JUnit(Exporter):
    """JUnit XML: a test suite for each file, and a test case for each claim."""

    name = "junit"
    reads: Part = "data"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the whole document in one piece, because it begins with the counts."""
        from parcost_formats.reports.ci_formats import junit

        yield junit(case for entry in entries for case in _cases(entry))


def _cases(entry: Entry) -> Iterator[CheckedClaim]:
    from parcost_formats.reports.ci_formats import CheckedClaim, cases_of

    found: Any = entry.data()
    if entry.rejected:
        yield from cases_of(entry.path, found["diagnostics"])
        return
    for result in found["results"]:
        problems = [d for d in result["diagnostics"] if d["id"] != _CLAIM]
        claims = {d["message"]: d for d in result["diagnostics"] if d["id"] == _CLAIM}
        for fault in result["faults"]:
            yield CheckedClaim(
                file=entry.path,
                study=str(entry.name),
                name=str(fault["hook"]),
                failure=str(fault["message"]),
                is_error=True,
            )
        errors = [d for d in problems if d["severity"] == "error"]
        if errors or not result["expectations"]:
            for case in cases_of(entry.path, problems):
                yield CheckedClaim(
                    file=case.file,
                    study=str(entry.name),
                    name=case.name,
                    line=case.line,
                    failure=case.failure,
                    detail=case.detail,
                )
        for claim in result["expectations"]:
            problem = next((d for m, d in claims.items() if f"`{claim['claim']}`" in m), None)
            yield CheckedClaim(
                file=entry.path,
                study=str(entry.name),
                name=str(claim["claim"]),
                line=problem["line"] if problem else None,
                failure=str(problem["message"]) if problem else "",
                detail=f"predicted: {claim['predicted']}",
            )


@hookimpl
def exporters() -> list[JUnit]:
    """Return the exporter of JUnit."""
    return [JUnit()]
