"""The hooks and the workflow for repositories with specs, run in one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml: Any = pytest.importorskip("yaml")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16

cluster {
  devices = 8
}
layout {
  tp   = 2
  zero = 1
}
training {
  sequence     = 4096
  micro_batch  = 1
  global_batch = 32 sequences
}
expect {
  mfu >= 10 %
}
"""
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/parcost.yml").read_text(encoding="utf-8"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a spec and its first commit; `parcost` is on the path."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "bin"
    place.mkdir()
    command = place / "parcost"
    code = "import sys; from parcost_apps.cli import main; sys.exit(main())"
    command.write_text(f"#!/bin/sh\nexec '{sys.executable}' -P -c '{code}' \"$@\"\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/a.par").write_text(SPEC)
    (tmp_path / "notes.txt").write_text("no spec")
    git("init", "-q", "-b", "main", ".")
    git("add", "specs", "notes.txt")
    git("commit", "-q", "-m", "one")
    return tmp_path


def git(*arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *author, *arguments], check=True, capture_output=True)
    return done.stdout.decode()


def run_hook(hook: Any) -> int:
    """Run a hook on the staged files that it is for, as pre-commit does; return its exit code."""
    staged = git("diff", "--cached", "--name-only", "--diff-filter=ACM").split()
    files = [name for name in staged if re.search(hook["files"], name)]
    return subprocess.run([*hook["entry"].split(), *files], check=False).returncode


def run_steps(folder: Path, **environment: str) -> dict[str, int]:
    """Run the steps of the workflow that are commands, but the installation, until one fails."""
    codes: dict[str, int] = {}
    summary = folder / "summary.md"
    values = {"PATHS": "specs", "FAIL_ON": "", "BASE": "", "GITHUB_STEP_SUMMARY": str(summary)}
    for step in WORKFLOW["jobs"]["parcost"]["steps"]:
        name = step.get("name")
        if "run" not in step or name == "Install" or ("if" in step and not environment.get("BASE")):
            continue
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            env={**os.environ, **values, **environment},
            check=False,
            capture_output=True,
        )
        codes[name] = done.returncode
        if done.returncode:
            break
    return codes


@pytest.mark.parametrize("hook", HOOKS, ids=[hook["id"] for hook in HOOKS])
def test_a_hook_passes_good_specs_and_no_other_files(repository: Path, hook: Any) -> None:
    (repository / "specs/b.par").write_text(SPEC)
    (repository / "notes.txt").write_text("still no spec")
    git("add", "specs", "notes.txt")
    assert run_hook(hook) == 0


def test_the_hook_of_errors_refuses_a_commit(repository: Path) -> None:
    (repository / "specs/a.par").write_text(SPEC.replace("tp   = 2", "tp   = 3"))
    git("add", "specs")
    (check,) = [hook for hook in HOOKS if hook["id"] == "parcost-check"]
    assert run_hook(check) == 1


def test_the_hook_of_the_form_rewrites_a_spec(repository: Path) -> None:
    (repository / "specs/a.par").write_text(SPEC.replace("tp   = 2", "tp=2"))
    git("add", "specs")
    (form,) = [hook for hook in HOOKS if hook["id"] == "parcost-fmt"]
    run_hook(form)
    assert (repository / "specs/a.par").read_text() == SPEC


def test_the_workflow_passes_and_writes_what_changes(repository: Path) -> None:
    (repository / "specs/a.par").write_text(SPEC.replace("tp   = 2", "tp   = 4"))
    assert run_steps(repository, BASE="main") == dict.fromkeys(
        ("Form", "Problems", "Claims", "Changes"), 0
    )
    summary = (repository / "summary.md").read_text()
    assert "1 study differs" in summary
    assert "| layout.tp | 2 | 4 |" in summary


@pytest.mark.parametrize(
    ("change", "limit", "step"),
    [
        (("tp   = 2", "tp=2"), "", "Form"),
        (("tp   = 2", "tp   = 3"), "", "Problems"),
        (("10 %", "99 %"), "", "Claims"),
        (("tp   = 2", "tp   = 4"), "memory < 0 %", "Changes"),
    ],
)
def test_the_workflow_fails_at_what_is_wrong(
    repository: Path, change: tuple[str, str], limit: str, step: str
) -> None:
    (repository / "specs/a.par").write_text(SPEC.replace(*change))
    codes = run_steps(repository, BASE="main", FAIL_ON=limit)
    assert list(codes)[-1] == step
    assert codes[step] == 1


def test_no_input_of_the_workflow_is_part_of_a_script() -> None:
    for step in WORKFLOW["jobs"]["parcost"]["steps"]:
        assert "${{" not in step.get("run", "")
