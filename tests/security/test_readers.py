"""Every reader of files takes regular files of its limit in UTF-8, and says so of all others."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from parcost.system import files
from parcost.system.files import KINDS, Kind

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

ROOT = Path(__file__).parents[2]
LIMITS = {kind.name: kind.limit for kind in KINDS}


def fifo(path: Path) -> None:
    os.mkfifo(path)


def zero_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def door(path: Path) -> None:
    place = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(place)


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def dangling_link(path: Path) -> None:
    path.symlink_to("nobody")


def latin(path: Path) -> None:
    path.write_bytes(b"# caf\xe9\n")


def sparse_file(size: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make


MISSHAPEN = {
    "fifo": fifo,
    "endless": zero_device,
    "folder": folder,
    "socket": door,
    "circle": circle,
    "nowhere": dangling_link,
}
ENDS = {"missing-file", "unreadable-file"}


def ids(text: str) -> set[str]:
    return set(re.findall(r"error\[([\w-]+)\]", text))


# How each reader is given the file `odd`, and the limit of what it reads.
READERS: dict[str, tuple[Callable[[Run, Path], Any], str, str]] = {
    "spec": (lambda run, path: run("eval", str(path)), ".par", "spec"),
    "check": (lambda run, path: run("check", str(path)), ".par", "spec"),
    "fmt": (lambda run, path: run("fmt", str(path)), ".par", "spec"),
    "import": (lambda run, path: run("eval", importing(path)), ".par", "spec"),
    "log": (lambda run, path: run("calibrate", str(path)), ".log", "log of timings"),
    "shard": (lambda run, path: run("merge", str(path)), ".jsonl", ""),
}


def importing(path: Path) -> str:
    Path("importing.par").write_text(f'use "{path}"\n' + SPEC)
    return "importing.par"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("shape", MISSHAPEN)
def test_no_reader_opens_what_is_no_regular_file(run: Run, reader: str, shape: str) -> None:
    read, suffix, _ = READERS[reader]
    path = Path(f"odd{suffix}")
    MISSHAPEN[shape](path)
    done = read(run, path)
    assert done.code == 2
    assert ids(done.text) & {*ENDS, "not-a-spec", "empty-directory", "import-escapes"}


@pytest.mark.parametrize("reader", [name for name, (_, _, kind) in READERS.items() if kind])
def test_no_reader_takes_more_than_its_limit(run: Run, reader: str) -> None:
    read, suffix, kind = READERS[reader]
    path = Path(f"odd{suffix}")
    sparse_file(LIMITS[kind] + 1)(path)
    done = read(run, path)
    assert (done.code, ids(done.text)) == (2, {"file-too-large"})
    assert f"{LIMITS[kind]:,}" in done.text


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_of_text_wants_utf8(run: Run, reader: str) -> None:
    read, suffix, _ = READERS[reader]
    path = Path(f"odd{suffix}")
    latin(path)
    done = read(run, path)
    assert (done.code, ids(done.text)) == (2, {"not-utf8"})
    assert "byte 0xe9 on line 1" in done.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("reader", READERS)
def test_a_forbidden_file_is_an_error(run: Run, reader: str) -> None:
    read, suffix, _ = READERS[reader]
    path = Path(f"odd{suffix}")
    path.write_text(SPEC)
    path.chmod(0)
    done = read(run, path)
    assert (done.code, ids(done.text)) == (2, {"unreadable-file"})


def test_a_file_that_may_not_be_read_is_a_diagnostic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("")

    def deny(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(files.SpecError) as caught:
        files.read_bytes(tmp_path / "a", files.SPEC)
    assert caught.value.diagnostics[0].id == "unreadable-file"


def test_a_line_of_a_shard_has_a_limit(tmp_path: Path) -> None:
    kind = Kind("shard", limit=100, line=10)
    (tmp_path / "a").write_bytes(b"123456789\n12345678901\n")
    lines = files.read_lines(tmp_path / "a", kind)
    assert next(lines) == "123456789\n"
    with pytest.raises(files.SpecError, match=r"line 2 of .* has more than 10 bytes"):
        next(lines)


def test_a_shard_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234\n" * 21)
    lines = files.read_lines(tmp_path / "a", Kind("shard", limit=100, line=10))
    with pytest.raises(files.SpecError, match="has more than 100 bytes"):
        list(lines)


def test_a_file_that_grows_while_it_is_read_keeps_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1" * 101)
    status = os.fstat

    def early(number: int) -> os.stat_result:
        found = list(status(number))
        found[6] = 1  # its size before it grew
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", early)
    with pytest.raises(files.SpecError, match="has more than 100 bytes"):
        files.read_bytes(path, Kind("spec", 100))


def cache_entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "caches" / "parcost").glob("[0-9a-f][0-9a-f]/*"))


@pytest.mark.parametrize("shape", [*MISSHAPEN, "large", "latin"])
def test_whatever_lies_in_the_cache_is_evaluated_again(
    run: Run, tmp_path: Path, shape: str
) -> None:
    Path("specs").mkdir()
    for i in range(2):
        Path(f"specs/{i}.par").write_text(SPEC.replace("8192", str(4096 * (i + 1))))
    first = run("eval", "specs", "--format", "csv")
    kept = [*cache_entries(tmp_path), *(tmp_path / "caches").glob("parcost/facts/*")]
    makers = {**MISSHAPEN, "large": sparse_file(LIMITS["result in the cache"] + 1), "latin": latin}
    for path in kept:
        path.unlink()
        makers[shape](path)
    again = run("eval", "specs", "--format", "csv")
    assert (again.code, again.out) == (0, first.out)
    assert again.err.count("note: ") == (shape not in ("nowhere", "latin"))


def test_one_folder_in_the_place_of_a_result_hinders_no_other(run: Run, tmp_path: Path) -> None:
    """Writing went off for the whole run."""
    Path("specs").mkdir()
    for i in range(3):
        Path(f"specs/{i}.par").write_text(SPEC.replace("8192", str(4096 * (i + 1))))
    run("eval", "specs", "--format", "csv")
    kept = cache_entries(tmp_path)
    assert len(kept) == 3
    for path in kept:
        path.unlink()
    kept[0].mkdir()
    done = run("eval", "specs", "--format", "csv")
    assert done.code == 0
    assert done.err.count("note: the cache in") == 1
    assert [path.is_file() for path in kept] == [False, True, True]
    assert "2 of them unchanged" in run("eval", "specs", "--format", "csv").err


def test_what_else_is_in_the_folder_of_the_cache_is_not_removed(run: Run) -> None:
    """A folder that `--cache` named lost all that was older than a month."""
    old = Path("mine/letters/to_keep.txt")
    old.parent.mkdir(parents=True)
    old.write_text("dear")
    os.utime(old, (0, 0))
    Path("a.par").write_text(SPEC)
    assert run("eval", "a.par", "--cache", "mine").code == 0
    assert old.exists()


def test_stdin_has_a_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, kind in ((("calibrate", "-"), "log of timings"), (("fmt", "-"), "spec")):
        with open("/dev/zero", encoding="utf-8") as zeros:  # noqa: PTH123
            monkeypatch.setattr("sys.stdin", zeros)
            done = run(*arguments)
        assert (done.code, ids(done.text)) == (2, {"file-too-large"})
        assert f"{LIMITS[kind]:,}" in done.text


def test_a_file_of_a_plugin_has_a_limit(run: Run) -> None:
    Path("a.par").write_text(SPEC)
    sparse_file(LIMITS["file of a plugin"] + 1)(Path("big.py"))
    done = run("eval", "a.par", "--plugin", "big.py")
    assert (done.code, ids(done.text)) == (3, {"file-too-large"})  # a plugin that is left out


def opened_elsewhere() -> Iterator[str]:
    reads = re.compile(r"\.read_(?:text|bytes)\(|\bopen\((?![^)]*\"[wx])|os\.open\(")
    for top in ("core", "plugins", "specs", "grammar"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if reads.search(line) and "self._open(" not in line:
                    yield f"{path.relative_to(ROOT).as_posix()}:{number}: {line.strip()}"


def test_files_are_opened_in_one_place() -> None:
    """What is left writes, or reads what was just written or ships with us."""
    allowed = {
        "core/parcost/system/files.py",
        "core/parcost/system/temporary.py",  # opens what it locks
        "core/parcost/system/whole_files.py",  # writes
        "plugins/parcost_apps/batch/cache.py",  # writes
        "plugins/parcost_apps/cli/streams.py",  # opens /dev/null
        "plugins/parcost_apps/cli/__init__.py",  # opens /dev/null
        "core/parcost/binding/sources.py",  # a file inside of a wheel
        "plugins/parcost_apps/documentation/interface.py",  # writes docs/api.md
        "plugins/parcost_apps/documentation/language.py",  # makes docs/language.md
        "plugins/parcost_apps/documentation/command.py",  # ships with us
        "plugins/parcost_apps/server/command.py",  # opens a browser
        "plugins/parcost_apps/editor/server.py",  # a text that an editor opens
        "plugins/parcost_apps/editor/texts.py",  # the same
        "core/parcost/contract/offers.py",  # the same: a rulebook
        "plugins/parcost_apps/testing/plugins.py",  # the code of a plugin that is tested
        "plugins/parcost_measured/anchors/log.py",  # ships with us
        "plugins/parcost_measured/validation/adapters.py",  # ships with us
        "plugins/parcost_measured/validation/frameworks.py",  # ships with us
        "plugins/parcost_measured/validation/names.py",  # ships with us
        "plugins/parcost_plugins/vocabulary/aliases.py",  # ships with us
        "plugins/parcost_plugins/physics/anchor_causes.py",  # ships with us
        "plugins/parcost_formats/html/page.py",  # ships with us
        "plugins/parcost_formats/tools/keys/__init__.py",  # ships with us
        "plugins/parcost_formats/tools/tables/__init__.py",  # ships with us
        "plugins/parcost_apps/new_plugin/command.py",  # ships with us
    }
    found = [one for one in opened_elsewhere() if one.partition(":")[0] not in allowed]
    found = [one for one in found if not one.startswith("grammar/")]
    assert found == []
