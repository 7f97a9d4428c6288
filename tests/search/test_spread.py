"""Searches in pieces: by processes, and by a real cluster that loses a worker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost.batch.executors import Engine, ExecutorError, named, processes
from parcost.batch.keys import Environment
from parcost.cli import main
from parcost.search.found import Found
from parcost.search.run import Wish, search
from parcost.search.space import space
from parcost.search.spread import Quest, spread

SPEC = """
use catalog.devices.h100_sxm
use catalog.devices.h200_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { device = [h100_sxm, h200_sxm], devices = 32, fabric = hgx_h100 }
training { sequence = 4096, global_batch = 64 sequences }
search { most_memory = 70 GiB }
"""
NAMES = ["tp", "pp", "chunks", "micro_batch", "schedule", "zero", "recompute", "gradients"]


@pytest.fixture
def quest(tmp_path: Path) -> Quest:
    path = tmp_path / "spec.par"
    path.write_text(SPEC, encoding="utf-8")
    (scenario,) = parcost.load(path)
    given = {name: list(values) for name, values in scenario.axes}
    given["schedule.kind"] = ["one_f_one_b", "interleaved", "zb_h1", "dualpipe"]
    return Quest(
        path=str(path),
        study=scenario.name,
        overrides={},
        given=given,
        names=NAMES,
        wish=Wish(keep=5, budget_seconds=1e9),
    )


def local(quest: Quest) -> Found:
    (scenario,) = parcost.load(quest.path)
    return search(space(scenario, quest.given, quest.names), quest.wish)


def elsewhere(quest: Quest, engine: Engine, told: Any = lambda _: None) -> Found:
    (scenario,) = parcost.load(quest.path)
    whole = space(scenario, quest.given, quest.names)
    return spread(whole, quest, Environment(), engine, told=told)


def said(found: Found) -> Mapping[str, Any]:
    """Return all of a result but how long it took."""
    names = ("size", "legal", "large", "refused", "limits", "gap", "looked", "structures")
    return {
        **{name: getattr(found, name) for name in names},
        "best": [(x.values, x.cost, x.seconds, x.bytes_) for x in found.best],
        "front": [(x.values, x.cost, x.seconds, x.bytes_) for x in found.front],
    }


def test_two_processes_find_the_same_to_the_bit(quest: Quest) -> None:
    alone = local(quest)
    assert alone.gap == 0
    assert len(alone.best) == 5
    assert len(alone.front) > 1
    assert alone.limits["memory <= 70 GiB"] > 0
    assert said(elsewhere(quest, processes(2))) == said(alone)


def test_a_process_that_is_killed_costs_nothing_but_time(quest: Quest) -> None:
    from multiprocessing import active_children

    alone, killed = local(quest), []

    def kill(told: str) -> None:
        children = active_children()
        if not told.startswith("0 ") and children and not killed and children[0].pid:
            killed.append(children[0].pid)
            os.kill(children[0].pid, signal.SIGKILL)

    assert said(elsewhere(quest, processes(2), kill)) == said(alone)
    assert killed


def test_a_cluster_that_loses_a_worker_finds_the_same_to_the_bit(
    cluster: Any, quest: Quest
) -> None:
    alone, killed = local(quest), []

    def kill(told: str) -> None:
        if not told.startswith("0 ") and not killed:
            killed.append(told)
            cluster.workers[0].kill()

    engine = Engine(named(f"dask://{cluster.address}").start, workers=2)
    assert said(elsewhere(quest, engine, kill)) == said(alone)
    assert cluster.workers[0].wait(30) != 0


def test_a_part_that_fails_again_and_again_ends_the_search(quest: Quest) -> None:
    from concurrent.futures import Future, ThreadPoolExecutor

    class Deadly(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(MemoryError("no room"))
            return future

    with pytest.raises(
        ExecutorError, match="a part of the space failed 3 times, the last by MemoryError: no room"
    ):
        elsewhere(quest, Engine(Deadly, workers=2))


def test_the_command_says_the_same(quest: Quest, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["search", quest.path, "--axes", "tp,zero,recompute", "--format", "json"]
    found = []
    for extra in ([], ["--jobs", "2"]):
        assert main([*arguments, *extra]) == 0
        found.append(json.loads(capsys.readouterr().out))
    for data in found:
        data.pop("seconds")
        data.pop("replayed")
    assert found[0] == found[1]


@pytest.mark.parametrize("more", [["--out", "points.csv"], ["--sample", "5"]])
def test_points_and_samples_are_of_one_process(
    quest: Quest, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    assert main(["search", quest.path, "--jobs", "2", *more]) == 2
    assert "go without `--out` and `--sample`" in capsys.readouterr().err
