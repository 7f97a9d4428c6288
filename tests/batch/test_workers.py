"""Workers that die, that are others than expected, or that are engines of elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from importlib.metadata import EntryPoint
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from parcost.contract.entries import Entry
from parcost.plugins.selection import PluginSelection
from parcost_apps.batch import executors
from parcost_apps.batch import worker as worker_module
from parcost_apps.batch.cache import Cache
from parcost_apps.batch.executors import Engine, ExecutorError, UnknownExecutorError
from parcost_apps.batch.files import Spec
from parcost_apps.batch.fingerprints import Environment, Question
from parcost_apps.batch.run import BatchRun
from parcost_apps.batch.worker import Task, VersionMismatchError, Worker, answers
from parcost_apps.cli import main

pytestmark = pytest.mark.slow

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  {{ devices = 16 }}
layout   {{ tp = 2, zero = 1, sequence_parallel = on }}
training {{ sequence = 2048, global_batch = {batch} sequences }}
"""
ENVIRONMENT = Environment()
QUESTION = Question({}, None, "data")

# What a worker does first: evaluating some files is the end of it, once or each time.
DEADLY = """
import os, signal
from parcost.engine.scenario import Scenario
real = Scenario.evaluate
def evaluate(scenario, *progress):
    if scenario.path in {deadly!r} and not os.path.exists({once!r}):
        {mark}
        os.kill(os.getpid(), signal.SIGKILL)
    return real(scenario, *progress)
Scenario.evaluate = evaluate
"""

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    monkeypatch.chdir(tmp_path)
    for i in range(24):
        Path(f"s{i:02}.par").write_text(SPEC.format(batch=32 * (i + 1)), encoding="utf-8")
    return [Spec(f"s{i:02}.par") for i in range(24)]


@pytest.fixture
def expected(specs: list[Spec]) -> list[str]:
    return [entry.text for entry in BatchRun(QUESTION, ENVIRONMENT).entries(specs)]


def deadly(paths: list[str], once: str = "") -> Engine:
    """Return an engine whose workers die of *paths*; where the file *once* is not there yet."""
    mark = f"open({once!r}, 'w').close()" if once else "pass"
    code = DEADLY.format(deadly=set(paths), once=once, mark=mark)
    return Engine(
        lambda: ProcessPoolExecutor(2, get_context("spawn"), initializer=exec, initargs=(code, {})),
        workers=2,
    )


def run(specs: list[Spec], engine: Engine, **options: Any) -> list[Entry]:
    return list(BatchRun(QUESTION, ENVIRONMENT, engine=engine, **options).entries(specs))


@posix
def test_a_worker_that_dies_once_costs_nothing(specs: list[Spec], expected: list[str]) -> None:
    found = run(specs, deadly(["s05.par", "s17.par"], once="died"))
    assert Path("died").exists()
    assert [entry.text for entry in found] == expected


@posix
def test_a_spec_that_ends_its_worker_is_rejected_and_no_other_is_lost(
    specs: list[Spec], expected: list[str]
) -> None:
    found = run(specs, deadly(["s05.par", "s17.par"]))
    assert [entry.path for entry in found] == [spec.path for spec in specs]
    lost = {entry.path: entry for entry in found if entry.rejected}
    assert lost.keys() == {"s05.par", "s17.par"}
    entry = lost["s05.par"]
    assert entry.exit_code == 3
    assert entry.reasons[0].startswith("the worker that evaluated `s05.par` was killed: ")
    assert "error[worker-died]" in entry.problems[0].line
    kept = [entry.text for entry in found if not entry.rejected]
    assert kept == [text for i, text in enumerate(expected) if i not in (5, 17)]


@posix
def test_workers_that_only_die_end_the_run(specs: list[Spec]) -> None:
    with pytest.raises(ExecutorError, match="workers are killed repeatedly"):
        run(specs, deadly([spec.path for spec in specs]))


def test_what_was_done_before_the_end_is_kept(specs: list[Spec], tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", ENVIRONMENT, pytest.fail)
    entries = BatchRun(QUESTION, ENVIRONMENT, cache, executors.processes(2)).entries(specs)
    first = next(entries)
    assert isinstance(entries, Iterator)
    entries.close()  # type: ignore[attr-defined]
    again = cache.find(specs[0], QUESTION)
    assert again is not None
    assert [entry.text for entry in again] == [first.text]


def threads() -> Engine:
    return Engine(lambda: ThreadPoolExecutor(4), workers=4)


def test_an_engine_of_threads_gives_the_same(specs: list[Spec], expected: list[str]) -> None:
    assert [entry.text for entry in run(specs, threads())] == expected


def test_only_a_window_of_the_files_is_under_way(specs: list[Spec]) -> None:
    handed_over: list[int] = []

    class Counting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            handed_over.append(len(args[1]))
            return super().submit(fn, *args, **kwargs)

    files = [Spec(f"{folder}/{spec.path}") for folder in (".",) * 40 for spec in specs]
    entries = BatchRun(
        QUESTION, ENVIRONMENT, engine=Engine(lambda: Counting(1), workers=1)
    ).entries(files)
    next(entries)
    assert sum(handed_over) <= 5 * 16
    entries.close()  # type: ignore[attr-defined]


def test_workers_of_another_version_are_refused(specs: list[Spec], tmp_path: Path) -> None:
    task = Task(
        question=QUESTION,
        selection=PluginSelection(),
        expected="another",
        folder=str(tmp_path),
        keep=False,
    )
    with pytest.raises(VersionMismatchError, match="another version"):
        answers(task, specs)


def test_a_worker_works_where_the_names_of_files_start(
    specs: list[Spec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    task = Task(
        question=QUESTION,
        selection=PluginSelection(),
        expected=ENVIRONMENT.digest,
        folder=str(tmp_path),
        keep=False,
    )
    (answer,) = answers(task, specs[:1])
    assert not answer.entries[0].rejected
    assert Path.cwd() == tmp_path / "elsewhere"


STALLED = """
from parcost import Formula, Once, hookimpl

@hookimpl
def terms():
    formula = Formula(text="stall", inputs={{}}, source="here")
    return [Once(name="stall", seconds={seconds}, when="end", formula=formula)]
"""


def test_a_worker_reads_a_plugin_anew_that_was_edited(specs: list[Spec], tmp_path: Path) -> None:
    def step() -> float:
        selection = PluginSelection(files=[str(file)])
        task = Task(
            question=QUESTION,
            selection=selection,
            expected=Environment(selection).digest,
            folder=str(tmp_path),
            keep=False,
        )
        (answer,) = answers(task, specs[:1])
        return float(json.loads(answer.entries[0].text)["results"][0]["step_seconds"])

    file = tmp_path / "stalled.py"
    file.write_text(STALLED.format(seconds=1.0), encoding="utf-8")
    first = step()
    file.write_text(STALLED.format(seconds=3.0), encoding="utf-8")
    assert step() == pytest.approx(first + 2.0)


def test_an_engine_that_takes_no_more_work_ends_the_run(specs: list[Spec]) -> None:
    class Closed(ThreadPoolExecutor):
        def submit(self, *_: Any, **__: Any) -> Any:
            raise ConnectionError("gone home")

    with pytest.raises(ExecutorError, match="accepts no more tasks: ConnectionError: gone home"):
        run(specs, Engine(lambda: Closed(1)))


def offer_engine(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    class Point(EntryPoint):
        def load(self) -> Any:
            return make

    point = Point("mine", "some.module:make", executors.GROUP)
    monkeypatch.setattr(executors, "entry_points", lambda **_: [point])


def test_a_plugin_offers_an_engine_by_name(
    specs: list[Spec], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses: list[str] = []

    def make(address: str) -> Executor:
        addresses.append(address)
        return ThreadPoolExecutor(2)

    offer_engine(monkeypatch, make)
    found = run(specs, executors.find_engine("mine://here:1"))
    assert [entry.text for entry in found] == expected
    assert addresses == ["here:1"]


class LostEngine(ThreadPoolExecutor):
    """Nobody answers, and it cannot even be shut down."""

    why = "they moved"

    def submit(self, *_: Any, **__: Any) -> Any:
        return Future()

    def shutdown(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("nobody there")

    def failure(self) -> str:
        return self.why


@pytest.mark.usefixtures("specs")
def test_an_engine_that_is_gone_is_named_and_no_exporter_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    offer_engine(monkeypatch, lambda _: LostEngine())
    for format_ in ("json", "csv"):
        assert main(["eval", ".", "--format", format_, "--executor", "mine://here"]) == 3
        error = "error: the executor `mine://here` is gone: they moved\n"
        assert capsys.readouterr().err == error


def test_what_is_raised_as_entries_are_made_is_no_failure_of_the_exporter(
    specs: list[Spec], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong(LostEngine):
        def failure(self) -> str:
            raise OSError("no such question")

    offer_engine(monkeypatch, lambda _: Wrong())
    arguments = ["eval", *[spec.path for spec in specs], "--format", "json"]
    assert main([*arguments, "--executor", "mine://here"]) == 3
    said = "does not report whether it is available: OSError: no such question"
    assert capsys.readouterr().err == f"error: the executor `mine://here` {said}\n"

    def broken(*_: Any) -> Any:
        raise ValueError("a defect")
        yield

    monkeypatch.setattr(BatchRun, "entries", broken)
    assert main(arguments) == 3
    said = capsys.readouterr().err
    assert "internal error: ValueError: a defect" in said
    assert "exporter" not in said


@posix
def test_ctrl_c_ends_the_wait_for_an_engine_that_says_nothing(specs: list[Spec]) -> None:
    program = """import signal, sys, threading, time
from concurrent.futures import Executor, Future
from importlib.metadata import EntryPoint
from parcost_apps.batch import executors
from parcost_apps.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
class Silent(Executor):
    def submit(self, *_, **__):
        main_thread = threading.main_thread().ident
        threading.Timer(0.5, signal.pthread_kill, (main_thread, signal.SIGINT)).start()
        self.submit = lambda *_, **__: Future()
        return Future()
    def shutdown(self, *_, **__):
        raise ConnectionError("nobody there")
class Point(EntryPoint):
    def load(self):
        return lambda _: Silent()
executors.entry_points = lambda **_: [Point("mine", "some.module:make", executors.GROUP)]
sys.exit(main(sys.argv[1:]))"""
    arguments = ["eval", specs[0].path, "--executor", "mine://here"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        _, said = child.communicate(timeout=120)
    assert (child.returncode, said.strip()) == (130, b"interrupted")


def test_a_failing_engine_factory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> Executor:
        raise OSError("nobody there")

    offer_engine(monkeypatch, refuse)
    with pytest.raises(ExecutorError, match="`mine://x` cannot be used: OSError: nobody there"):
        executors.find_engine("mine://x").start()
    offer_engine(monkeypatch, lambda _: "an engine")
    with pytest.raises(ExecutorError, match="returned str, which is not an executor"):
        executors.find_engine("mine://x").start()
    with pytest.raises(UnknownExecutorError, match="did you mean `mine`"):
        executors.find_engine("mina://x")


def test_a_spec_is_forgotten_once_it_is_done_and_the_catalogue_is_not(specs: list[Spec]) -> None:
    worker = Worker(ENVIRONMENT)
    worker.answer(specs[0], QUESTION, keep=False)
    kept = len(worker.session.loader)
    for spec in specs:
        worker.answer(spec, QUESTION, keep=False)
    assert len(worker.session.loader) == kept > 0


def test_imports_are_forgotten_before_they_become_a_burden(
    specs: list[Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_MOST_FILES", 10)
    worker = Worker(ENVIRONMENT)
    for spec in specs:
        own = Path(f"of_{spec.path}")
        own.write_text("let unused = 1\n", encoding="utf-8")
        path = Path(spec.path)
        path.write_text(f'use "{own}"\n{path.read_text(encoding="utf-8")}', encoding="utf-8")
        (entry,) = worker.answer(spec, QUESTION, keep=False).entries
        assert entry.exit_code == 0
        assert len(worker.session.loader) <= 10 + 2  # and what one spec imports


def test_a_file_that_was_a_spec_of_the_batch_may_be_imported_by_the_next(
    specs: list[Spec],
) -> None:
    worker = Worker(ENVIRONMENT)
    alone = worker.answer(specs[1], QUESTION, keep=False).entries
    Path("own.par").write_text(f'use "{specs[0].path}"\n', encoding="utf-8")
    first, again, own = (
        worker.answer(spec, QUESTION, keep=False).entries
        for spec in (specs[0], specs[1], Spec("own.par"))
    )
    assert [entry.text for entry in again] == [entry.text for entry in alone]
    assert own[0].data()["results"] == first[0].data()["results"]


def test_a_worker_killed_during_its_answer_blocks_no_reader() -> None:
    """The half of an answer stands in the pipe, and whoever reads it waits for the rest."""
    engine = executors.processes(1)
    pool: Any = engine.start()
    pool.submit(time.sleep, 60)
    reader, results = pool._executor_manager_thread, pool._result_queue
    os.write(results._writer.fileno(), b"\0\0")
    pool.shutdown(wait=False, cancel_futures=True)
    engine.stop()
    reader.join(20)
    assert not reader.is_alive()


SIGNALLED = """
import os, signal, time
from multiprocessing import popen_spawn_posix
from parcost_apps.batch.executors import Pool, processes

spawn = popen_spawn_posix.util.spawnv_passfds

def interrupted(*arguments):
    number = spawn(*arguments)
    if "spawn_main" in str(arguments):
        os.kill(os.getpid(), signal.SIGTERM)  # before the worker has its first task
        time.sleep(0.01)
    return number

def end(*_):
    raise KeyboardInterrupt

if __name__ == "__main__":
    popen_spawn_posix.util.spawnv_passfds = interrupted
    signal.signal(signal.SIGTERM, end)
    pool = Pool(processes(1))
    try:
        pool.submit(os.getpid)
    except KeyboardInterrupt:
        print("interrupted")
    pool.close(whole=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_while_a_worker_is_started_waits_until_it_has_what_it_reads(
    tmp_path: Path,
) -> None:
    """Else it begins, finds the end of its data where that should be, and says so at length."""
    script = tmp_path / "script.py"
    script.write_text(SIGNALLED)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
