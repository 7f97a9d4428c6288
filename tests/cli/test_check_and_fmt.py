"""`parcost check` and `parcost fmt`."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from parcost import hookimpl

from .command_specs import DISAPPOINTED, GOOD, MISTAKEN, UNDIVIDED, Run

pytestmark = pytest.mark.slow


def test_check_finds_everything_without_evaluating(run: Run) -> None:
    done = run("check", "a.par", "b.par", "c.par", a=GOOD, b=MISTAKEN, c=UNDIVIDED)
    assert done.code == 2
    assert "b.par:5:" in done.out
    assert "tp = 3" in done.out
    assert re.fullmatch(
        r"3 studies checked, \d errors\n`parcost rule [a-z-]+` explains the rule\n",
        done.err,
    )


def test_check_of_a_good_spec_says_nothing_on_stdout(run: Run) -> None:
    done = run("check", "a.par", a=GOOD)
    assert (done.code, done.out, done.err) == (
        0,
        "",
        "1 study checked, no errors; `parcost eval` also checks that the job is complete and fits in memory\n",
    )


def test_check_as_data(run: Run) -> None:
    done = run("check", "a.par", "--format", "json", a=MISTAKEN)
    found = json.loads(done.out)["diagnostics"]
    assert done.code == 2
    assert {d["id"] for d in found} >= {"unknown-attribute"}


def test_check_annotates_a_pull_request(run: Run) -> None:
    done = run("check", "a.par", "--format", "github", a=UNDIVIDED)
    assert done.code == 1
    assert re.match(r"::error file=a\.par,line=6,endLine=6,col=\d+,", done.out)
    assert all(line.startswith("::") for line in done.out.splitlines())


UNTIDY = "cluster {devices=8 # eight\n}\n"


def test_fmt_rewrites_a_file_once_and_keeps_its_mode(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.par").write_text(UNTIDY, encoding="utf-8")
    (tmp_path / "a.par").chmod(0o640)
    done = run("fmt", "a.par")
    assert (done.code, done.out, done.err) == (0, "a.par\n", "1 changed, 0 unchanged\n")
    tidy = (tmp_path / "a.par").read_text(encoding="utf-8")
    assert "# eight" in tidy
    assert (tmp_path / "a.par").stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["a.par"]
    assert run("fmt", "a.par").err == "0 changed, 1 unchanged\n"
    assert (tmp_path / "a.par").read_text(encoding="utf-8") == tidy


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_fmt_writes_nothing_with_check_or_diff(run: Run, tmp_path: Path, option: str) -> None:
    done = run("fmt", ".", option, a=UNTIDY)
    assert done.code == 1
    assert "a.par" in done.out
    assert (tmp_path / "a.par").read_text(encoding="utf-8") == UNTIDY
    if option == "--diff":
        assert "-cluster {devices=8 # eight\n" in done.out


def test_fmt_passes_stdin_to_stdout(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UNTIDY.encode())))
    done = run("fmt", "-")
    assert done.code == 0
    assert "devices = 8" in done.out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert run("fmt", "-").code == 2


@pytest.mark.parametrize("options, shown", [([], "layout { tp = = 4 }\n"), (["--check"], "")])
def test_fmt_tells_mistakes_and_changes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], shown: str
) -> None:
    wrong = "layout { tp = = 4 }\n"
    done = run("fmt", *options, "a.par", a=wrong)
    assert (done.code, done.out) == (2, "")
    assert "a.par:1:15" in done.err
    assert (tmp_path / "a.par").read_text(encoding="utf-8") == wrong
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(wrong.encode())))
    done = run("fmt", *options, "-")
    assert (done.code, done.out) == (2, shown)
    assert "<stdin>:1:15" in done.err


def test_fmt_says_what_it_cannot_read_and_goes_on(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.par").write_bytes(b"\xff")
    done = run("fmt", "bad.par", "a.par", a=UNTIDY)
    assert done.code == 2
    assert "not UTF-8" in done.err
    assert done.out == "a.par\n"


def test_check_says_what_eval_says_of_all_but_prices(run: Run) -> None:
    """Rules of a schedule's length, names and units in claims, and plugins that fail."""
    long = GOOD.replace("tp = 2", "tp = 2, pp = 4").replace("= 32 seq", "= 200000 seq")
    done = run("check", "long.par", long=long)
    assert done.code == 1
    assert "error[schedule-length]: 100000 micro-batches on pp 4 are 400000 passes" in done.out
    assert "help: use larger micro-batches, at most 65536 per step" in done.out
    claims = "expect {\n  mfuu >= 1 %\n  memory >= 3 s\n  mfu = 40 %\n}\n"
    done = run("check", "claims.par", claims=GOOD + claims)
    assert done.code == 2
    assert "error[unknown-name]: no figure is called `mfuu`" in done.out
    assert "error[wrong-dimension]: `memory` is measured in B" in done.out
    assert "error[missing-tolerance]: `mfu =` needs a tolerance" in done.out
    assert "error" not in run("check", "hopes.par", hopes=DISAPPOINTED).out


def test_check_tells_rules_beside_claims_that_are_wrong(run: Run) -> None:
    done = run("check", "both.par", both=UNDIVIDED + "expect { mfu = 40 % }\n")
    assert done.code == 2
    assert "error[missing-tolerance]" in done.out
    assert re.search(r"error\[\w+-divide\]", done.out)


def test_check_names_a_plugin_that_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def checks(study: Any) -> list[Any]:
        return [1 / 0 for _ in [study]]

    import parcost_plugins.rules

    monkeypatch.setattr(parcost_plugins.rules, "checks", hookimpl(checks))
    done = run("check", "good.par", good=GOOD)
    assert done.code == 3
    assert "error[plugin-fault]: plugin `rules` of parcost" in done.out
    assert "failed in `checks`: raised ZeroDivisionError" in done.out
