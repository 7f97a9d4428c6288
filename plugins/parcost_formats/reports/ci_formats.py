"""Problems and claims in the formats of continuous integration: GitHub, JUnit and SARIF.

All take diagnostics as plain data (:func:`parcost_formats.rendering.diagnostics.as_data`). JUnit
follows the Jenkins schema, and SARIF is version 2.1.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from types import MappingProxyType
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from parcost import __version__, record
from parcost.language.escapes import escape_line, escape_lines
from parcost_formats.rendering.escapes import escape_json

Problem = Mapping[str, Any]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_CHECK = "check"


@record(kw_only=True)
class CheckedClaim:
    """A claim or a check of a file: it passes unless it has a *failure*."""

    file: str
    name: str
    study: str = ""
    line: int | None = None
    failure: str = ""
    detail: str = ""
    is_error: bool = False


def cases_of(file: str, problems: Sequence[Problem]) -> list[CheckedClaim]:
    """Return a test case for each error of a file, or a single case that passes."""
    found = [
        CheckedClaim(
            file=str(problem["file"] or file),
            name=str(problem["id"]),
            line=problem["line"],
            failure=str(problem["message"]),
            detail=detail(problem),
        )
        for problem in problems
        if problem["severity"] == "error"
    ]
    return found or [CheckedClaim(file=file, name=_CHECK)]


def detail(problem: Problem) -> str:
    """Return the notes and the help of a problem."""
    notes = [f"note: {note}" for note in problem["notes"]]
    return "\n".join([*notes, *([f"help: {problem['help']}"] if problem["help"] else [])])


def junit(cases: Iterable[CheckedClaim]) -> str:
    """Return cases as JUnit XML: a suite for each file.

    Characters that XML cannot hold are escaped.
    """
    by_file: dict[str, list[CheckedClaim]] = {}
    for case in cases:
        by_file.setdefault(case.file, []).append(case)
    every = [case for found in by_file.values() for case in found]
    root = Element("testsuites", {"name": "parcost", **_counts(every)})
    for file, found in by_file.items():
        suite = SubElement(root, "testsuite", {"name": escape_line(file), **_counts(found)})
        for case in found:
            names = (file.removesuffix(".par").replace("/", "."), case.study)
            attributes = {
                "classname": escape_line(".".join(filter(None, names))),
                "name": escape_line(case.name),
                "file": escape_line(file),
                **({"line": str(case.line)} if case.line else {}),
            }
            one = SubElement(suite, "testcase", attributes)
            if case.failure:
                tag = "error" if case.is_error else "failure"
                said = {"type": tag, "message": escape_line(case.failure)}
                SubElement(one, tag, said).text = escape_lines(case.detail)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _counts(cases: Sequence[CheckedClaim]) -> dict[str, str]:
    failed = sum(bool(case.failure) and not case.is_error for case in cases)
    errors = sum(bool(case.failure) and case.is_error for case in cases)
    return {"tests": str(len(cases)), "failures": str(failed), "errors": str(errors)}


def sarif(problems: Iterable[Problem], texts: Mapping[str, Problem] = MappingProxyType({})) -> str:
    """Return problems as a SARIF log, with a rule for each id; *texts* are properties of rules.

    A problem with a ``reason`` is one that its spec switches off.
    """
    found = list(problems)
    ids = list(dict.fromkeys(str(problem["id"]) for problem in found))
    driver = {
        "name": "parcost",
        "semanticVersion": __version__,
        "rules": [{"id": id, **texts.get(id, {})} for id in ids],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, ids) for problem in found],
    }
    document = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return escape_json(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _result(problem: Problem, ids: Sequence[str]) -> dict[str, Any]:
    text = "\n".join(filter(None, (str(problem["message"]), detail(problem))))
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(str(problem["file"]))}}
    if problem["line"] is not None:
        place["region"] = {
            "startLine": problem["line"],
            "startColumn": problem["column"],
            "endLine": problem["end_line"],
            "endColumn": problem["end_column"],
        }
    print_ = f"{problem['id']} {problem['file']} {problem['message']}"
    reason = problem.get("reason")
    suppression = {"kind": "inSource", "justification": reason}
    return {
        "ruleId": problem["id"],
        "ruleIndex": ids.index(str(problem["id"])),
        "level": problem["severity"],
        "message": {"text": text},
        "locations": [{"physicalLocation": place}] if problem["file"] else [],
        "partialFingerprints": {
            "parcost/v1": sha256(print_.encode("utf-8", "replace")).hexdigest()[:32]
        },
        **({"suppressions": [suppression]} if reason else {}),
    }


def _uri(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"))


def github(problem: Problem) -> str:
    """Return a problem as an annotation of a pull request.

    >>> from parcost.language.diagnostics import Diagnostic
    >>> from parcost_formats.rendering.diagnostics import as_data
    >>> github(as_data(Diagnostic("missing-file", "no file `a`", place="a.par")))
    '::error file=a.par,title=missing-file::no file `a`'
    """
    properties = {
        "file": problem["file"],
        "line": problem["line"],
        "endLine": problem["end_line"],
        "col": problem["column"],
        "endColumn": problem["end_column"],
        "title": problem["id"],
    }
    parts = [problem["message"], *(f"note: {note}" for note in problem["notes"])]
    parts += [f"help: {problem['help']}"] if problem["help"] else []
    listed = ",".join(
        f"{k}={_escape(escape_line(str(v)), ':,')}" for k, v in properties.items() if v
    )
    return f"::{problem['severity']} {listed}::{_escape(escape_lines(chr(10).join(parts)))}"


def _escape(text: str, also: str = "") -> str:
    """Return *text* with the characters escaped that would end a workflow command."""
    for character in ("%", "\r", "\n", *also):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
