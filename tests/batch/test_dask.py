"""A batch on a real cluster: a scheduler and two workers, each a process, on loopback."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from parcost.language.errors import MissingExtraError, SpecError
from parcost_apps.batch.executors import Engine, find_engine
from parcost_apps.batch.files import Spec
from parcost_apps.batch.fingerprints import Environment, Question
from parcost_apps.batch.run import BatchRun
from parcost_apps.cli import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("distributed") is None, reason="needs distributed"),
]

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  {{ devices = 16 }}
layout   {{ tp = {tp}, zero = 1, sequence_parallel = on }}
training {{ sequence = 2048, global_batch = {batch} sequences }}
"""
COUNT = 96
QUESTION = Question({}, None, "data")


def text(i: int) -> str:
    return SPEC.format(batch=32 * (i + 1), tp="[1, 2, 4]" if i % 12 == 0 else 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("batch")
    for i in range(COUNT):
        (place / f"s{i:03}.par").write_text(text(i), encoding="utf-8")
    return place


def test_a_batch_is_the_same_to_the_bit_though_a_worker_dies(
    cluster: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    specs = [Spec(path.name) for path in sorted(folder.glob("*.par"))]
    environment = Environment()
    local = [entry.text for entry in BatchRun(QUESTION, environment).entries(specs)]
    engine = Engine(find_engine(f"dask://{cluster.address}").start, workers=2)
    found = []
    for entry in BatchRun(QUESTION, environment, engine=engine).entries(specs):
        found.append(entry.text)
        if len(found) == COUNT // 4:
            cluster.workers[0].kill()
    assert cluster.workers[0].wait(30) != 0
    assert found == local


def test_the_command_line_finds_the_cluster(
    cluster: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    arguments = ["eval", "s00*.par", "--format", "csv"]
    outs: list[Any] = []
    for extra in ([], ["--executor", f"dask://{cluster.address}"]):
        assert main([*arguments, *extra]) == 0
        outs.append(capsys.readouterr())
    assert outs[0] == outs[1]


def test_an_address_without_a_scheduler_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from parcost_apps.executors import dask

    monkeypatch.setattr(dask, "_PATIENCE_SECONDS", 0.5)
    with pytest.raises(SpecError, match="no Dask scheduler answers at"):
        find_engine("dask://127.0.0.1:1").start()


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'parcost\[dask\]'"):
        find_engine("dask://127.0.0.1:1").start()


def test_a_scheduler_that_dies_ends_the_batch_and_is_named(
    cluster: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    from parcost_apps.executors import dask

    monkeypatch.chdir(folder)
    monkeypatch.setattr(dask, "_PATIENCE_SECONDS", 2)
    done = BatchRun._finish

    def finish(run: BatchRun, *arguments: Any) -> Any:
        cluster.processes[0].kill()
        return done(run, *arguments)

    monkeypatch.setattr(BatchRun, "_finish", finish)
    address, out = f"dask://{cluster.address}", tmp_path / "out.json"
    out.write_text("of before")
    assert main(["eval", ".", "--format", "json", "--executor", address, "--out", str(out)]) == 3
    assert f"error: the executor `{address}` is gone: its scheduler" in capsys.readouterr().err
    assert out.read_text() == "of before"
    assert not list(tmp_path.glob(".*.part"))
