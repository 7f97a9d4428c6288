"""The cache of a batch: what is evaluated again, and what is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from .batch_specs import (
    ALL,
    BIGGER,
    DEFINITIONS,
    FORMATS,
    GOOD,
    USING,
    Run,
    cache_entries,
    files,
    many_specs,
    process,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format_", FORMATS)
def test_a_cached_answer_is_printed_in_the_same_bytes(
    run: Run, evaluations: list[str], format_: str
) -> None:
    files(ALL)
    fresh = run("eval", "specs", "--format", format_, "--no-cache")
    first = run("eval", "specs", "--format", format_)
    evaluations.clear()
    again = run("eval", "specs", "--format", format_)
    assert evaluations == []
    assert fresh.out == first.out == again.out
    assert fresh.code == first.code == again.code == 2
    assert fresh.err == first.err
    summary, _, note = again.err.rstrip("\n").rpartition("; ")
    assert summary + "\n" == fresh.err
    assert note == "8 of them unchanged, from the cache"


def test_nothing_is_imported_for_what_is_known(run: Run) -> None:
    files(many_specs(2))
    first = run("eval", "specs", "--format", "jsonl").out
    code = (
        "import sys; from parcost_apps.cli import main; main(sys.argv[1:]);"
        "print([m for m in sys.modules if m.startswith(('parcost_', 'numpy', 'lark',"
        "'parcost.binding', 'parcost.engine', 'parcost.search'))], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "eval", "specs", "--format", "jsonl"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == first
    expected = {
        "parcost_apps": "batch cli eval options",
        "parcost_apps.batch": "cache files fingerprints formats run saved_entries worker",
        "parcost_apps.cli": "colors group interrupts messages output_files pages process streams "
        "threads",
        "parcost_apps.eval": "command",
        "parcost_apps.options": "jobs",
        "parcost_formats": "rendering reports",
        "parcost_formats.rendering": "json_header rejection view",
        "parcost_formats.reports": "jsonl",
    }
    modules = {f"{package}.{name}" for package, names in expected.items() for name in names.split()}
    assert set(eval(done.stderr.splitlines()[-1])) == modules | expected.keys()


def test_only_what_changed_is_evaluated_again(run: Run, evaluations: list[str]) -> None:
    files({"a.par": GOOD, "b.par": GOOD, "g.par": USING, "lib/site.par": DEFINITIONS})
    run("eval", "specs", "--format", "csv")

    def again(*options: str) -> list[str]:
        evaluations.clear()
        run("eval", "specs", "--format", "csv", *options)
        return [Path(path).name for path in evaluations]

    assert again() == []
    files({"b.par": BIGGER})
    assert again() == ["b.par"]
    files({"b.par": GOOD})
    assert again() == []  # known from before
    files({"lib/site.par": DEFINITIONS.replace("96 GB", "94 GB")})
    assert again() == ["g.par"]
    os.utime("specs/a.par", (1, 1))
    assert again() == []
    everything = ["a.par", "b.par", "g.par"]
    assert again("--set", "layout.zero=0") == everything
    assert again("--set", "layout.zero=0") == []
    assert again("--without", "analysis.advice") == everything
    assert again("--no-cache") == everything
    assert again("--cache", "elsewhere") == everything
    assert again("--cache", "elsewhere") == []


def test_a_copy_of_a_tree_knows_its_own_imports(
    run: Run, evaluations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files({"g.par": USING, "lib/site.par": DEFINITIONS}, "one/specs")
    files({"g.par": USING, "lib/site.par": DEFINITIONS}, "two/specs")
    files({"lib/site.par": DEFINITIONS.replace("96 GB", "94 GB")}, "three/specs")
    files({"g.par": USING}, "three/specs")
    for folder, known in (("one", False), ("two", True), ("three", False)):
        evaluations.clear()
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            run("eval", "specs")
        assert (evaluations == []) is known, folder


def test_a_missing_import_is_looked_for_again(run: Run) -> None:
    files({"g.par": USING, "a.par": GOOD})
    assert run("eval", "specs").code == 2
    files({"lib/site.par": DEFINITIONS})
    assert run("eval", "specs").code == 0


def test_a_failed_plugin_is_called_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from parcost import hookimpl
    from parcost.plugins import discovery

    def terms() -> Any:
        raise RuntimeError("out of coffee")

    files({"a.par": GOOD, "b.par": GOOD})
    load = discovery.load
    broken = SimpleNamespace(terms=hookimpl(terms))
    with monkeypatch.context() as patch:
        patch.setattr(discovery, "load", lambda **given: load(("mine", broken), **given))
        assert run("eval", "specs").code == 3
    assert run("eval", "specs").code == 0


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_empty])
def test_a_damaged_answer_is_evaluated_again(
    run: Run, evaluations: list[str], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    files(many_specs(3))
    first = run("eval", "specs", "--format", "jsonl")
    assert len(cache_entries(tmp_path)) == 3
    for path in cache_entries(tmp_path):
        damage(path)
    evaluations.clear()
    again = run("eval", "specs", "--format", "jsonl")
    assert (again.out, again.err, len(evaluations)) == (first.out, first.err, 3)
    evaluations.clear()
    run("eval", "specs", "--format", "jsonl")
    assert evaluations == []


def test_a_misplaced_answer_is_evaluated_again(
    run: Run, evaluations: list[str], tmp_path: Path
) -> None:
    files(many_specs(3))
    first = run("eval", "specs", "--format", "jsonl")
    kept = [*cache_entries(tmp_path), *(tmp_path / "caches").glob("parcost/facts/*")]
    assert len(kept) > 3
    contents = [path.read_bytes() for path in kept]
    for path, content in zip(kept, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    evaluations.clear()
    again = run("eval", "specs", "--format", "jsonl")
    assert (again.code, again.out, again.err) == (0, first.out, first.err)
    assert len(evaluations) == 3


def test_an_unusable_cache_is_one_warning_and_ignored(run: Run, tmp_path: Path) -> None:
    files(many_specs(3))
    (tmp_path / "caches").write_text("in the way")
    done = run("eval", "specs", "--format", "jsonl")
    assert done.code == 0
    assert len(done.out.splitlines()) == 3
    assert done.err.count("note: the cache in") == 1
    assert "; results that cannot be cached are computed again in the next run" in done.err


def test_a_cache_on_a_full_disk_is_one_warning_and_ignored(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(many_specs(3))
    replace = Path.replace

    def full(path: Path, target: Any) -> Path:
        if "caches" in path.parts:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        done = run("eval", "specs", "--format", "jsonl", "--out", "all.jsonl")
    assert done.code == 0
    assert done.err.count("cannot be written: No space left on device; results that") == 1
    assert len(Path("all.jsonl").read_text().splitlines()) == 3
    assert cache_entries(tmp_path) == []


def test_unused_answers_are_removed_after_a_month(run: Run, tmp_path: Path) -> None:
    files(many_specs(3))
    run("eval", "specs")
    old = time.time() - 40 * 86400
    for path in [*cache_entries(tmp_path), tmp_path / "caches" / "parcost" / "pruned"]:
        os.utime(path, (old, old))
    Path("specs/s002.par").unlink()
    run("eval", "specs")
    assert len(cache_entries(tmp_path)) == 2


def test_one_spec_is_evaluated_and_not_remembered(run: Run, tmp_path: Path) -> None:
    files({"a.par": GOOD})
    run("eval", "specs/a.par")
    assert cache_entries(tmp_path) == []
    run("eval", "specs/a.par", "--cache", "here")
    assert len(list(Path("here").glob("??/*"))) == 1


@pytest.mark.usefixtures("run")
def test_runs_at_the_same_time_share_a_cache() -> None:
    files(many_specs(6))
    runs = [process("eval", "specs", "--format", "jsonl", "--cache", "here") for _ in range(3)]
    outs = [one.communicate() for one in runs]
    assert [one.returncode for one in runs] == [0, 0, 0]
    assert len({out for out, _ in outs}) == 1
    assert len(outs[0][0].splitlines()) == 6
    left = [path.name for path in Path("here").rglob(".*")]
    assert left == []


@pytest.mark.parametrize("command", [("check",), ("eval", "--format", "jsonl", "--no-cache")])
def test_a_warning_of_several_files_is_printed_once(run: Run, command: tuple[str, ...]) -> None:
    line = "overlap { tensor = off, chunks = 4 }\n"
    files({path: text + line for path, text in many_specs(3).items()})
    done = run(*command, "specs")
    said = done.out if command == ("check",) else done.err
    assert said.count("has no effect") == (1 if command == ("check",) else 2)
    assert said.count("--> specs/") == 1
    assert "the same in 2 more files: specs/s001.par, specs/s002.par" in said
