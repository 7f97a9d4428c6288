"""Batches in shards, and their merge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .batch_specs import ALL, FORMATS, Run, files, many_specs

pytestmark = pytest.mark.slow


def run_shards(run: Run, count: int, *options: str) -> list[str]:
    """Write the specs in so many shards, and return their names."""
    names = [f"{number}.jsonl" for number in range(1, count + 1)]
    for number, name in enumerate(names, start=1):
        run("eval", "specs", *options, "--shard", f"{number}/{count}", "--out", name)
    return names


@pytest.mark.parametrize(
    "format_", [*FORMATS, "table --compare", "table --full", "md --figures=mfu"]
)
def test_shards_joined_are_what_one_run_writes(run: Run, format_: str) -> None:
    files(ALL)
    name, *options = format_.split()
    whole = run("eval", "specs", "--format", name, *options).out
    names = run_shards(run, 10, "--format", name, *options)  # of eight files: two are empty
    done = run("merge", *reversed(names), "--out", "all")
    assert (done.code, done.err) == (0, "10 shards joined\n")
    assert Path("all").read_text() == whole
    assert run("merge", *names).out == whole


def test_shards_of_points_are_joined_in_any_format_of_points(run: Run) -> None:
    duckdb = pytest.importorskip("duckdb")
    files(ALL)
    names = run_shards(run, 3, "--format", "parquet")
    assert "`--format parquet` writes files: add --out FILE" in run("merge", *names).err
    assert run("merge", *names, "--out", "all.parquet").code == 0
    run("eval", "specs", "--format", "parquet", "--out", "whole.parquet")
    joined, whole = (duckdb.sql(f"from '{n}.parquet'").fetchall() for n in ("all", "whole"))
    assert joined == whole
    assert (
        run("merge", *names, "--format", "csv").out == run("eval", "specs", "--format", "csv").out
    )
    rejected = run("merge", *names, "--format", "json")
    assert (rejected.code, rejected.out) == (2, "")
    assert "`--format json` needs shards with `full`, but these have `points`" in rejected.err


def test_shards_that_are_not_the_whole_of_one_run_are_not_joined(run: Run) -> None:
    files(many_specs(4))
    one, two, three, four = run_shards(run, 4, "--format", "csv")

    def refusal(*paths: str) -> str:
        done = run("merge", *paths, "--out", "all")
        assert (done.code, done.out) == (2, "")
        assert not Path("all").exists()
        return str(done.err)

    assert "shards 2, 4 of 4 are missing" in refusal(one, three)
    assert "shard 4 of 4 is missing" in refusal(one, two, three)
    Path("again.jsonl").write_bytes(Path(two).read_bytes())
    assert "are both shard 2/4" in refusal(one, two, "again.jsonl", three, four)
    for other in (["--format", "csv", "--set", "layout.pp=1"], ["--format", "parquet"]):
        run("eval", "specs", *other, "--shard", "2/4", "--out", two)
        assert f"`{two}` belongs to another run than `{one}`" in refusal(one, two, three, four)
    Path(three).write_text(Path(three).read_text()[:-30])
    assert f"`{three}`" in refusal(three)
    run("eval", "specs", "--format", "jsonl", "--out", four)
    assert f"`{four}` is not a complete shard" in refusal(four)
    for text in ("hello\n", "[1]\n", "{\n"):
        Path("other.txt").write_text(text)
        said = " ".join(refusal("other.txt").split())
        assert "checksum, is missing; `parcost eval --shard 1/4 --out FILE` writes shards" in said
        assert "JSON" not in said
    assert "error[missing-file]: there is no file" in refusal("none.jsonl")


def test_a_shard_that_was_edited_is_not_joined(run: Run) -> None:
    files(many_specs(4))
    names = run_shards(run, 2, "--format", "jsonl")
    second = Path(names[1])
    written = second.read_text()

    def refusal(text: str) -> None:
        assert text != written
        second.write_text(text)
        done = run("merge", *names, "--out", "all")
        assert (done.code, done.out) == (2, "")
        assert "`2.jsonl` is shard 2/2, but it was truncated or changed" in done.err
        assert not Path("all").exists()

    lines = written.splitlines(keepends=True)
    refusal("".join(lines[:1] + lines[2:]))
    refusal("".join([*lines[:-1], lines[-2], lines[-1]]))
    refusal(written.replace("s003", "s004", 1))
    refusal(re.sub(r'"format": ?"jsonl"', '"format":"json"', written))
    second.write_text(re.sub(r'"number": ?2', '"number": 1', written))
    assert "is shard 1/2, but it was truncated or changed" in run("merge", names[1]).err
    second.write_text(re.sub(r'"kind": ?"\w+"', '"kind": "poster"', written))
    assert "the checksum line of `2.jsonl` is damaged" in run("merge", *names).err


def test_a_sealed_shard_without_entries_is_not_joined(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost_apps.eval import shards
    from parcost_apps.eval.shards import Shard

    class Stranger:
        text = "[]"

    monkeypatch.setattr(shards, "entry_head", lambda _: {"path": "a.par"})
    shard = Shard(number=1, of=1, run="1", format="csv", part="points")
    Path("1.jsonl").write_text("".join(shard.lines([Stranger()])))  # type: ignore[list-item]
    done = run("merge", "1.jsonl")
    assert (done.code, done.out) == (2, "")
    assert "line 1 of `1.jsonl` is not an entry: KeyError: 'name'" in done.err
