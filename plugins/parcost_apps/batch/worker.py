"""The evaluation of files for a batch, in this process or in a worker.

A worker gets the names of files and reads them itself. The names must be valid for the worker, and
it must have the same parcost and plugins; a mismatch is an error. It keeps its session between
tasks, so imports are parsed once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, field

from parcost.language.errors import ParcostError
from parcost.records import define, frozen
from parcost.system.garbage import collect_rarely
from parcost_apps.batch.cache import CachedResult, pack
from parcost_apps.batch.files import Spec
from parcost_apps.batch.fingerprints import Environment, Imports, Question
from parcost_apps.cli.process import allow_changes
from parcost_formats.rendering.rejection import FAULT, Rejection, attempt

if TYPE_CHECKING:
    from parcost.contract.entries import Entry
    from parcost.engine.scenario import Scenario
    from parcost.engine.session import Session
    from parcost.plugins.discovery import Plugins
    from parcost.plugins.selection import PluginSelection
    from parcost.report.report import Report

_MOST_FILES = 200  # that specs import, and a session keeps
_STRANGER = (
    "a worker runs another version of Python, numpy, parcost or a plugin; install the same "
    "versions, and restart it"
)


class VersionMismatchError(ParcostError):
    """A worker runs another version of parcost, or other plugins."""


@frozen(kw_only=True, eq=False)
class Task:
    """A task of a worker. Names of files are relative to *folder*.

    *expected* is the environment of the caller. With *keep*, results are packed for a cache.
    """

    question: Question
    selection: PluginSelection
    expected: str
    folder: str
    keep: bool


@define(eq=False)
class Worker:
    """A session that evaluates files, with the environment that its results depend on."""

    environment: Environment
    session: Session = field(init=False)
    _imports: Imports = field(init=False)

    def __attrs_post_init__(self) -> None:
        from parcost.plugins.discovery import load

        selection = self.environment.selection
        self._initialize_worker(load(without=selection.without, files=selection.files))

    def _initialize_worker(self, plugins: Plugins) -> None:
        from parcost.engine.session import Session

        self.session = Session(plugins)
        self._imports = Imports(self.session.loader, self.environment.packages)

    def answer(
        self,
        spec: Spec,
        question: Question,
        *,
        keep: bool,
        progress: Callable[[str], None] | None = None,
    ) -> CachedResult:
        """Evaluate every study of a file; *progress* receives the number of points done."""
        from parcost_apps.batch.entries import entry_of
        from parcost_apps.batch.scenarios import is_skipped, spec_scenarios

        self._release()
        bound = [
            *spec_scenarios(spec, self.session, overrides=question.overrides, study=question.study)
        ]
        view = evolve(question.view, kind=question.view.kind_among(len(bound)))
        entries: list[Entry] = []
        first: Scenario | None = None
        for number, scenario in enumerate(bound, 1):
            if isinstance(scenario, Rejection):
                entries.append(entry_of(scenario, question.part, view))
                continue
            first = first or scenario
            if not is_skipped(scenario, spec):
                steps = _steps(progress, spec.path, number, len(bound))
                report = attempt(scenario.path, partial(scenario.evaluate, steps))
                entries.append(entry_of(report, question.part, view))
                if not isinstance(report, Rejection):
                    _break_cycles(scenario, report)
        if not keep or first is None or any(entry.exit_code == FAULT for entry in entries):
            return CachedResult(entries)
        return self._pack_result(spec, question, first, entries)

    def _release(self) -> None:
        """Start a new session if the loader holds too many imported files."""
        if len(self.session.loader) > _MOST_FILES:
            self._initialize_worker(self.session.plugins)

    def _pack_result(
        self, spec: Spec, question: Question, scenario: Scenario, entries: Sequence[Entry]
    ) -> CachedResult:
        """Return the result in its cached form; it has no key if its imports cannot be listed."""
        module = scenario.module
        needed = self._imports.find(module, spec.path)
        if needed is None:
            return CachedResult(entries)
        text, found = module.source.text, spec.in_directory
        key = question.key(
            self.environment.digest, spec.path, text, in_directory=found, reading=spec.reading
        )
        return CachedResult(entries, key, pack(needed, entries, key))


def _steps(
    progress: Callable[[str], None] | None, path: str, number: int, studies: int
) -> Callable[[int, int], None] | None:
    """Return a callback that reports the points done of study *number*; None if not wanted."""
    if progress is None:
        return None
    study = f", study {number:,} of {studies:,}" if studies > 1 else ""

    def step(done: int, points: int) -> None:
        point = f", {done:,} of {points:,} points done" if points > 1 else ""
        progress(f"{path}{study}{point}")

    return step


def _break_cycles(scenario: Scenario, report: Report) -> None:
    """Break the reference cycles of a scenario and its report, so that they are freed immediately.

    The garbage collector would take longer than parsing.
    """
    for result in report.results:
        result.study.release()
    scenario.release()


def answers(task: Task, files: Sequence[Spec]) -> list[CachedResult]:
    """Evaluate files in a worker process; its session is reused by later tasks.

    Raises:
        VersionMismatchError: This process runs other code than the caller.
    """
    selection = task.selection
    with _one_at_a_time, _work_in(task.folder):
        worker = _worker(selection)
        if worker.environment.digest != task.expected and selection.files:
            del _workers[selection]  # a file may have been edited, and is read anew
            worker = _worker(selection)
        if worker.environment.digest != task.expected:
            raise VersionMismatchError(_STRANGER)
        return [worker.answer(spec, task.question, keep=task.keep) for spec in files]


_workers: dict[PluginSelection, Worker] = {}
_imported: dict[str, str] = {}  # what the code that is installed was, as it was imported
_one_at_a_time = threading.Lock()  # an engine may run tasks in threads, which share a folder


def _worker(selection: PluginSelection) -> Worker:
    if selection not in _workers:
        worker = Worker(Environment(selection))
        _ = worker.environment.digest  # of the code that has just been imported
        installed = Environment().digest
        if _imported.setdefault("installed", installed) != installed:
            raise VersionMismatchError(_STRANGER)
        _workers[selection] = worker
        collect_rarely()  # for good: a worker does nothing else
    return _workers[selection]


@contextmanager
def _work_in(folder: str) -> Iterator[None]:
    before = str(Path.cwd())
    if folder != before:
        _change_folder(folder)
    try:
        yield
    finally:
        if folder != before:
            _change_folder(before)


def _change_folder(folder: str) -> None:
    with allow_changes():
        os.chdir(folder)
