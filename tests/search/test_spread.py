"""Searches in pieces: by processes, and by a real cluster that loses a worker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost.batch.executors import Engine, ExecutorError, named, processes
from parcost.batch.keys import Environment
from parcost.cli import main
from parcost.search import spread as spreading
from parcost.search.found import Found
from parcost.search.piece import joined
from parcost.search.run import Wish, piece, search
from parcost.search.space import space
from parcost.search.spread import Quest, saves_time, spread

pytestmark = pytest.mark.slow

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


def elsewhere(
    quest: Quest, engine: Engine, told: Any = lambda _: None, *, here: bool = False
) -> Found:
    (scenario,) = parcost.load(quest.path)
    whole = space(scenario, quest.given, quest.names)
    return spread(whole, quest, Environment(), engine, told=told, here=here)


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


@pytest.mark.parametrize(
    ("seconds", "left", "workers", "saves"),
    [
        ([], 6, 2, False),  # nothing is known yet
        ([9.0], 5, 2, False),  # nor how much of it each process does again
        ([1.8, 1.8], 4, 2, False),  # of 7.2 s two processes save 3.6 s
        ([14.0, 6.0], 4, 2, False),  # of 24 s they save 12 s, and begin in 5 s + 8 s
        ([6.0, 6.0], 4, 2, True),
        ([14.0, 6.0], 22, 8, True),
        ([6.0, 6.0], 22, 1, False),  # one saves nothing
        ([60.0, 60.0], 1, 8, False),  # nor do eight of the last part
    ],
)
def test_processes_are_started_where_they_save_time(
    seconds: list[float], left: int, workers: int, saves: bool
) -> None:
    assert saves_time(seconds, left, workers) is saves


def test_a_small_space_starts_no_process(quest: Quest) -> None:
    def start() -> Any:
        raise AssertionError("a process was started")

    found = elsewhere(quest, Engine(start, workers=2), here=True)
    assert found.workers == 0
    assert said(found) == said(local(quest))


def test_processes_go_on_where_this_one_stops(
    quest: Quest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreading, "saves_time", lambda seconds, *_: len(seconds) == 1)
    parts: list[str] = []
    found = elsewhere(quest, processes(2), parts.append, here=True)
    assert parts[:2] == ["0 of 6 parts of the space searched", "1 of 6 parts of the space searched"]
    assert found.workers == 2
    assert said(found) == said(local(quest))


def test_what_was_searched_here_is_kept_when_somebody_interrupts(quest: Quest) -> None:
    def told(text: str) -> None:
        if text.startswith("3 "):
            raise KeyboardInterrupt

    found = elsewhere(quest, processes(2), told, here=True)
    assert found.interrupted
    assert 0 < found.looked < found.structures
    assert found.best


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
        out, err = capsys.readouterr()
        assert ("one process searched all" in err) is bool(extra)
        found.append(json.loads(out))
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


@pytest.mark.parametrize("seed", [2, 6, 9, 14, 19, 22, 25, 30, 34])
@pytest.mark.parametrize("limit", ["", "search { longest_step = LIMIT s }"])
def test_however_a_space_is_cut_it_comes_to_the_same_but_for_what_was_replayed(
    seed: int, limit: str, spaces: Callable[[int], Any]
) -> None:
    text, axes = spaces(seed)
    wish = Wish(keep=3, budget_seconds=1e9)
    if limit:  # a time that some layouts keep
        (scenario,) = parcost.load_text(text)
        seconds = search(space(scenario, axes, list(axes)), wish).best[-1].seconds
        text += limit.replace("LIMIT", f"{1.05 * seconds:.6g}")
    (scenario,) = parcost.load_text(text)
    whole = space(scenario, axes, list(axes))
    alone = search(whole, wish)
    for parts in (2, 5):
        pieces = [piece(whole, wish, (i, parts)) for i in range(parts)]
        cut = joined(whole, alone.objective, wish.keep, pieces, 0.0)
        assert said(cut) == said(alone)


@pytest.mark.parametrize("seed", [1, 5, 8, 12, 16, 21, 24, 28, 33, 36])
def test_nothing_that_is_listed_beats_the_front(seed: int, spaces: Callable[[int], Any]) -> None:
    text, axes = spaces(seed)
    (scenario,) = parcost.load_text(text)
    found = search(space(scenario, axes, list(axes)), Wish(keep=5, budget_seconds=1e9))
    front = [(one.seconds, one.bytes_) for one in found.front]
    assert front[0] == (found.best[0].seconds, found.best[0].bytes_)
    for one in found.best:
        at = (one.seconds, one.bytes_)
        assert at in front or any(a <= at[0] and b <= at[1] for a, b in front)
        assert not any(at[0] < a and at[1] < b for a, b in front)


def test_parts_are_bounded_and_counted_by_what_the_first_of_them_is() -> None:
    """On the slow fabric most of a step is communication, and on the other it is products."""
    text = """
    use catalog.devices.h100_sxm
    use catalog.precisions.bf16
    model small { layers = 8, hidden = 1536, heads = 16, ffn = 6144, vocabulary = 32_000 }
    fabric slow {
      level node { size = 8 devices, kind = pcie, bandwidth = 16 GB/s per_direction, latency = 5 us }
      level net { bandwidth = 25 Gbps per_direction, latency = 24 us }
    }
    fabric fast {
      level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us }
      level net { bandwidth = 400 Gbps per_direction, latency = 14 us }
    }
    cluster { fabric = [fast, slow], devices = 64 }
    training { sequence = 2048, global_batch = 96 sequences }
    search { least_mfu = 15 % }
    """
    (scenario,) = parcost.load_text(text)
    axes = {
        **{name: list(values) for name, values in scenario.axes},
        "layout.tp": [1, 2, 4, 8],
        "layout.pp": [1, 2],
        "overlap.tensor": ["off", "pipelined"],
    }
    whole, wish = space(scenario, axes, list(axes)), Wish(keep=3, budget_seconds=1e9)
    alone = search(whole, wish)
    for parts in (2, 4):
        pieces = [piece(whole, wish, (i, parts)) for i in range(parts)]
        cut = joined(whole, alone.objective, wish.keep, pieces, 0.0)
        assert said(cut) == said(alone)
    assert sum(alone.limits.values())
