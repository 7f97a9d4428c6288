"""What a killed run leaves, the next one removes; what another one uses, it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parcost.system.temporary import file_beside, temporary_folder
from parcost_apps.cli.output_files import OutputFile
from parcost_apps.fmt import write_atomically

HOLD = """
import sys, tempfile
from pathlib import Path
from parcost.system.temporary import file_beside, temporary_folder
tempfile.tempdir = sys.argv[1]
folder = temporary_folder()
(folder.path / "points.csv").write_text("1")
handle, file = file_beside(Path(sys.argv[1], "out.csv"))
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(place: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(place)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as child:  # type: ignore[call-overload]
        assert child.stdout.readline() == "ready\n"
        try:
            yield child
        finally:
            child.kill()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_what_a_killed_run_left_is_removed_by_the_next(place: Path) -> None:
    with holding(place) as child:
        before = {path.name for path in place.iterdir()}
        assert len(before) == 2
        with temporary_folder():
            file_beside(place / "out.csv")[1].remove()
            assert before <= {path.name for path in place.iterdir()}
        child.kill()
        child.wait()
    assert {path.name for path in place.iterdir()} == before
    target = OutputFile(str(place / "out.csv"))
    with temporary_folder() as folder:
        assert {path for path in place.iterdir() if path.is_dir()} == {folder.path}
        target.put("done")
        target.finish()
    assert [path.name for path in place.iterdir()] == ["out.csv"]


def test_what_is_alike_but_not_ours_stays(place: Path) -> None:
    kept = [
        "parcost-temporary-",
        "parcost-temporary-abcdefgh.d",
        ".out.csv.part",
        ".out.csv.abc.part",
    ]
    kept += [".other.csv.abcdefgh.part", "out.csv.abcdefgh.part"]
    for name in kept:
        (place / name).mkdir()
    (place / "parcost-temporary-abcdefgh").symlink_to(".other.csv.abcdefgh.part")
    (place / ".out.csv.abcdefgh.part").symlink_to("parcost-temporary-")
    before = set(place.iterdir())
    with temporary_folder():
        file_beside(place / "out.csv")[1].remove()
    assert set(place.iterdir()) == before


def test_a_folder_is_for_its_owner_alone(place: Path) -> None:
    with temporary_folder() as folder:
        assert folder.path.parent == place
        assert folder.path.stat().st_mode & 0o077 == 0


def test_a_file_that_is_laid_out_leaves_nothing(place: Path) -> None:
    path = place / "a.par"
    path.write_text("a")
    path.chmod(0o640)
    write_atomically(path, "b")
    assert path.read_text() == "b"
    assert os.stat(path).st_mode & 0o777 == 0o640  # noqa: PTH116
    assert list(place.iterdir()) == [path]
