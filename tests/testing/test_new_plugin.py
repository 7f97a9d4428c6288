"""``parcost new-plugin``: what it writes passes its own tests, and what it rejects."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from parcost_apps.cli import main
from parcost_apps.new_plugin.command import KINDS


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python as a user does: with no colours, and without what this process has set."""
    keep = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env=keep,
        check=False,
    )


def write(kind: str, into: Path) -> Path:
    """Write a plugin of a *kind*, and return its folder."""
    assert main(["new-plugin", f"Parcost-own_{kind}", "--kind", kind, "--into", str(into)]) == 0
    return into / f"parcost-own-{kind}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_it_writes_passes_its_own_tests(kind: str, tmp_path: Path) -> None:
    folder = write(kind, tmp_path)
    done = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    passed = int(done.stdout.rpartition("\n")[0].rpartition("\n")[2].partition(" ")[0] or 0)
    assert passed >= 6, done.stdout
    assert "skipped" not in done.stdout

    module = f"parcost_own_{kind}"
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"] == {"parcost": {f"own_{kind}": module}}
    readme = (folder / "README.md").read_text(encoding="utf-8")
    (command,) = [line for line in readme.splitlines() if line.startswith("parcost ")]
    installed = Path(sys.executable).with_name("parcost")
    used = run(folder, str(installed), *command.split()[1:], "--plugin", f"{module}.py")
    assert used.returncode == 0, used.stderr
    assert used.stdout


@pytest.mark.slow
def test_what_it_writes_has_its_types_and_its_form(tmp_path: Path) -> None:
    """All kinds at once, as mypy reads the whole of parcost for each of them."""
    modules = [str(path) for kind in KINDS for path in write(kind, tmp_path).glob("*.py")]
    assert len(modules) == len(KINDS)
    for tool in (("ruff", "check"), ("ruff", "format", "--check"), ("mypy", "--strict", *modules)):
        checked = run(tmp_path, "-m", *tool)
        assert checked.returncode == 0, checked.stdout


def test_every_file_is_named_for_the_plugin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-plugin", "disk-cache", "--into", str(tmp_path)]) == 0
    names = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert all(path.is_file() for path in names)
    inside = {path.relative_to(tmp_path / "parcost-disk-cache").as_posix() for path in names}
    assert inside == {
        ".github/workflows/tests.yml",
        ".gitignore",
        "README.md",
        "parcost_disk_cache.py",
        "pyproject.toml",
        "study.par",
        "tests/test_parcost_disk_cache.py",
    }
    assert not [path for path in names if "$" in path.read_text(encoding="utf-8")]
    assert "class DiskCache:" in (tmp_path / "parcost-disk-cache/parcost_disk_cache.py").read_text()


@pytest.mark.parametrize(
    "name, why",
    [
        ("Disk Cache", "not a name of a plugin; use lower-case letters, digits and hyphens, such as `disk-cache`"),
        ("../evil", "such as `evil`"),
        ("9", "is not a name of a plugin"),
        ("a" * 50, "is not a name of a plugin"),
        ("class", "is a keyword of Python"),
        ("memory", "`memory` is an installed plugin"),
        ("layout", "`layout` is a block of the language"),
        ("ring", "is the name of one of the collectives of plugin"),
        ("plugins", "is part of a package of parcost"),
        ("$module", "is not a name of a plugin"),
    ],
)  # fmt: skip
def test_a_name_that_no_plugin_can_have_is_refused(
    name: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-plugin", name, "--into", str(tmp_path)]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_a_folder_in_use_is_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "parcost-disk-cache"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine", encoding="utf-8")
    assert main(["new-plugin", "disk-cache", "--into", str(tmp_path)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    arguments: Any = ["new-plugin", "disk-cache", "--into", str(tmp_path / "file" / "below")]
    assert main(arguments) == 2
    assert "Traceback" not in capsys.readouterr().err
