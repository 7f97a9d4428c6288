"""Problems and claims for continuous integration: JUnit, SARIF and annotations of GitHub."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest

Run = Callable[..., Any]

GOOD = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }
"""
CLAIMS = GOOD + "expect {\n  mfu > 90 %\n  step_time < 10 min\n}\n"
REFUSED = GOOD.replace("32 seq", "30 seq")
SCHEMA_OF_RESULT = {"ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"}


def suites(text: str) -> dict[str, Any]:
    root = ET.fromstring(text)
    assert root.tag == "testsuites"
    return {str(suite.get("name")): suite for suite in root}


@pytest.mark.parametrize("command", ["check", "eval"])
def test_junit_has_a_suite_for_each_file(run_command: Run, command: str) -> None:
    files = {"a": GOOD, "b": REFUSED, "c": "layout {"}
    done = run_command(command, "a.par", "b.par", "c.par", "--format", "junit", **files)
    found = suites(done.out)
    assert list(found) == ["a.par", "b.par", "c.par"]
    counts = {name: (s.get("tests"), s.get("failures")) for name, s in found.items()}
    assert counts["a.par"] == ("1", "0")
    assert counts["b.par"] == ("1", "1")
    assert counts["c.par"][1] != "0"
    (case,) = found["b.par"]
    assert (case.get("name"), case.get("line")) == ("batch-divides", "8")
    (failure,) = case
    assert str(failure.get("message")).startswith("a global batch of 30 is not divisible")
    assert str(failure.text).startswith("help: ")


def test_each_claim_is_a_case(run_command: Run) -> None:
    done = run_command("eval", "a.par", "--format", "junit", a=CLAIMS)
    assert done.code == 1
    bad, good = suites(done.out)["a.par"]
    assert (bad.get("name"), bad.get("line"), len(bad)) == ("mfu > 90 %", "10", 1)
    assert (good.get("name"), len(good)) == ("step_time < 10 min", 0)
    assert bad[0].get("message") == "`mfu > 90 %` is false"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "eval"])
def test_sarif_has_each_problem_at_its_place(run_command: Run, command: str) -> None:
    done = run_command(command, "b.par", "--format", "sarif", b=REFUSED)
    (log,) = json.loads(done.out)["runs"]
    (result,) = log["results"]
    assert set(result) == SCHEMA_OF_RESULT
    assert log["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "batch-divides"
    (location,) = result["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "b.par"
    line = REFUSED.splitlines()[place["region"]["startLine"] - 1]
    start, end = place["region"]["startColumn"], place["region"]["endColumn"]
    assert line[start - 1 : end - 1] == "global_batch = 30 sequences"


def test_claims_that_fail_are_annotations(run_command: Run) -> None:
    done = run_command("eval", "a.par", "--format", "github", a=CLAIMS)
    (line,) = done.out.splitlines()
    assert line.startswith("::error file=a.par,line=10,")
    assert "`mfu > 90 %25` is false" in line


@pytest.mark.slow
def test_a_good_spec_has_neither_problem_nor_annotation(run_command: Run) -> None:
    assert run_command("eval", "a.par", "--format", "github", a=GOOD).out == ""
    document = json.loads(run_command("check", "a.par", "--format", "sarif").out)
    assert document["runs"][0]["results"] == []


@pytest.mark.slow
@pytest.mark.parametrize("format_", ["junit", "sarif"])
def test_no_text_of_a_spec_breaks_a_document(run_command: Run, format_: str) -> None:
    text = GOOD + '\nrequires plugin "]]><x>\x00\x1b&\ufffe"\n'
    done = run_command("check", "a.par", "--format", format_, a=text)
    assert done.code != 0
    if format_ == "junit":
        suites(done.out)
    else:
        json.loads(done.out)
    assert "\x1b" not in done.out
