"""A spec reads specs of its project, and what is shown of a file is shown of specs only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import SpecError

pytestmark = pytest.mark.slow

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
"""
Run = Callable[..., Any]

SECRET = "PASSWORD = hunter2"


def secrets(folder: Path) -> None:
    for name in (".env", ".git/config", "notes.txt", "par"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{SECRET}\n")


@pytest.mark.parametrize("name", [".env", ".git/config", "notes.txt", "par", "./sub/../.env"])
def test_an_import_is_a_spec(run: Run, name: str) -> None:
    """Lines of any file of the project stood in diagnostics."""
    secrets(Path())
    Path("sub").mkdir()
    Path("a.par").write_text(f'use "{name}"\n' + SPEC)
    for command in (("eval",), ("check",), ("check", "--format", "json"), ("show",)):
        done = run(*command, "a.par")
        assert done.code == 2
        assert "not-a-spec" in done.text
        assert "hunter2" not in done.text


def test_a_link_called_a_spec_is_none(run: Run) -> None:
    secrets(Path())
    Path("specs").mkdir()
    Path("specs/link.par").symlink_to("../.env")
    Path("a.par").write_text('use "specs/link.par"\n' + SPEC)
    for arguments in (["a.par"], ["specs"], ["specs/link.par"], ["specs/*.par"]):
        done = run("check", *arguments)
        assert done.code == 2
        assert "is a link to `.env`, which is not a spec" in done.text
        assert "hunter2" not in done.text


def test_a_link_out_of_the_project_is_not_followed(run: Run, tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere" / "theirs.par"
    outside.parent.mkdir()
    outside.write_text(SECRET)
    Path("specs").mkdir()
    Path("specs/link.par").symlink_to(outside)
    Path("specs/folder").symlink_to(outside.parent)
    Path("a.par").write_text('use "specs/link.par"\n' + SPEC)
    for arguments in (["a.par"], ["specs"], ["specs/*.par"], ["**/theirs.par"]):
        done = run("check", *arguments)
        assert done.code == 2
        assert ("import-escapes" if arguments == ["a.par"] else "link-escapes") in done.text
        assert "hunter2" not in done.text


def test_a_link_inside_of_the_project_is_followed(run: Run) -> None:
    Path("specs").mkdir()
    Path("a.par").write_text(SPEC)
    Path("specs/link.par").symlink_to("../a.par")
    assert run("check", "specs").code == 0


def test_a_folder_that_is_named_may_be_a_link(run: Run, tmp_path: Path) -> None:
    """The user names it, and it is where the specs are."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.par").write_text(SPEC)
    Path("specs").symlink_to(tmp_path / "elsewhere")
    for name in ("specs", "specs/*.par", "specs/a.par"):
        assert run("check", name).code == 0


def test_a_spec_knows_no_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hunter2")
    monkeypatch.setenv("HOME", str(Path("home").absolute()))
    Path("home").mkdir()
    Path("home/b.par").write_text(SECRET)
    for target in ("$TOKEN.par", "${TOKEN}.par", "%TOKEN%.par", "~/b.par"):
        Path("a.par").write_text(f'use "{target}"\n' + SPEC)
        done = run("check", "a.par")
        assert done.code == 2
        assert "missing-file" in done.text
        assert "hunter2" not in done.text
    for expression in ("env(TOKEN)", 'env("TOKEN")', "$TOKEN", "TOKEN", 'read("home/b.par")'):
        Path("a.par").write_text(SPEC.replace("8192", expression))
        done = run("check", "a.par")
        assert done.code == 2
        assert "hunter2" not in done.text


def test_a_spec_loads_no_plugin(run: Run) -> None:
    Path("evil.py").write_text("open('ran', 'w')\n")
    Path("a.par").write_text('requires plugin "evil"\n' + SPEC)
    assert run("eval", "a.par").code == 2
    assert not Path("ran").exists()


@pytest.mark.parametrize("alias", ["", " as {}"])
def test_imports_that_branch_are_read_once(tmp_path: Path, alias: str) -> None:
    """Each file that imports the next two doubled the time: 40 levels never ended."""
    for i in range(40):
        for side in "ab":
            inner = [f'use "{i + 1}{to}.par"{alias.format(to)}' for to in "ab"] if i < 39 else []
            text = "\n".join([*inner, f"let v{i}{side} = {i + 1}"])
            (tmp_path / f"{i}{side}.par").write_text(text + "\n")
    (tmp_path / "spec.par").write_text('use "0a.par"\n' + SPEC.replace("tp = 2", "tp = v0a + 1"))
    session = parcost.Session()
    for _ in range(2):
        (scenario,) = session.load(tmp_path / "spec.par")
        assert scenario.evaluate().exit_code == 0
    (tmp_path / "39b.par").write_text("let v39b = \n")
    with pytest.raises(SpecError):
        session.load(tmp_path / "spec.par")[0].evaluate()


def test_imports_nest_only_so_deep(tmp_path: Path) -> None:
    """200 files deep it was an internal error."""
    for i in range(300):
        (tmp_path / f"{i}.par").write_text(f'use "{i + 1}.par"\n' if i < 299 else "let a = 1\n")
    (tmp_path / "spec.par").write_text('use "0.par"\n' + SPEC)
    with pytest.raises(SpecError) as caught:
        parcost.load(tmp_path / "spec.par")[0].evaluate()
    assert "circular-import" in {d.id for d in caught.value.diagnostics}


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
@pytest.mark.parametrize("named", ["x.par", "user.par"])
def test_links_in_a_circle_are_named_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """Such a file was said not to exist, or not to be a path."""
    for link, to in {"x.par": "y.par", "y.par": "z.par", "z.par": "x.par"}.items():
        (tmp_path / link).symlink_to(to)
    (tmp_path / "user.par").write_text('use "x.par"\n' + SPEC)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        parcost.load(named)[0].evaluate()
    said = " ".join(d.message for d in caught.value.diagnostics)
    assert "links form a circle: x.par -> y.par -> z.par -> x.par" in said


def test_a_cycle_has_the_folders_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "part").mkdir()
    (tmp_path / "job.par").write_text('use "part/job.par" as part\n' + SPEC)
    (tmp_path / "part" / "job.par").write_text('use "../job.par" as whole\n')
    with pytest.raises(SpecError) as caught:
        parcost.load(tmp_path / "job.par")[0].evaluate()
    (found,) = [d for d in caught.value.diagnostics if d.id == "circular-import"]
    assert found.message == "a file imports itself: job.par -> part/job.par -> job.par"
