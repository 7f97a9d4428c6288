"""The evaluation of a file: its rules, and a line for each study. It may take long.

An evaluation runs in a separate thread and session, on a copy of the texts. If the text changes
meanwhile, it ends at the next study or point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from queue import SimpleQueue
from threading import Event, Thread

from attrs import Factory, define

from parcost.binding.modules import Buffer
from parcost.engine.scenario import Scenario
from parcost.engine.session import Session
from parcost.language import numbers
from parcost.language.diagnostics import Diagnostic
from parcost.numeric import all_of
from parcost.records import record
from parcost.report.report import Report
from parcost.report.result import Expectation, Result
from parcost_apps.batch.scenarios import only_defines
from parcost_apps.check.problems import Suppressions, is_error, key, problems
from parcost_apps.editor.analysis import MOST_STUDIES
from parcost_formats.rendering.full_report import approval, invalid_reason, runs
from parcost_formats.rendering.rejection import Rejection, attempt
from parcost_formats.rendering.studies import head, headline_figures, sweep_summary

MOST_POINTS = 2_000  # of a sweep that is evaluated while one types
_FIGURES = 3  # of a line
_MOST_JOBS = 500  # of one session


class StoppedEvaluationError(Exception):
    """The text has changed since the evaluation began."""


@record(eq=False)
class StudyVerdict:
    """The line shown above a study; *name* is "" for a file without studies."""

    name: str
    text: str


@record(eq=False)
class FileEvaluation:
    """The results of a file: its problems, its studies, its claims by text, its figures."""

    diagnostics: Sequence[Diagnostic]
    verdicts: Sequence[StudyVerdict] = ()
    claims: Mapping[str, str] = {}
    figures: Sequence[str] = ()


def evaluate_file(
    session: Session, path: str, is_stopped: Callable[[], bool] = lambda: False
) -> FileEvaluation:
    """Evaluate all studies of the file at *path*.

    Raises:
        StoppedEvaluationError: *is_stopped* returned True.
    """
    found: dict[tuple[object, ...], Diagnostic] = {}
    verdicts: list[StudyVerdict] = []
    claims: dict[str, str] = {}
    figures: dict[str, None] = {}
    switched_off = Suppressions()
    loaded = attempt(path, partial(session.load, path, keep=False))
    try:
        for scenario in [loaded] if isinstance(loaded, Rejection) else loaded[:MOST_STUDIES]:
            if is_stopped():
                raise StoppedEvaluationError
            of_study, _ = problems(path, scenario)
            of_study = switched_off.take(path, scenario, of_study)
            found |= {key(d): d for d in of_study if key(d) not in found}
            if isinstance(scenario, Rejection):
                break
            name = scenario.name if scenario.study is not None else ""
            report = _report(scenario, of_study, is_stopped)
            if isinstance(report, Report):
                for result in report.results:
                    claims |= {" ".join(c.text.split()): _claim(c) for c in result.expectations}
                    figures |= dict.fromkeys(f.name for _, f in result.figures)
            verdicts += [StudyVerdict(name, _line(report))] if report is not None else []
    finally:
        if any(d.id == "circular-import" for d in found.values()):
            session.loader.forget_files()
    unused = [diagnostic for _, diagnostic in switched_off.unused_warnings(session)]
    return FileEvaluation([*found.values(), *unused], verdicts, claims, list(figures))


def _report(
    scenario: Scenario, found: Sequence[Diagnostic], is_stopped: Callable[[], bool]
) -> Report | str | None:
    """Return the report of a study, or an error text instead; None for a file of definitions."""
    if only_defines(scenario):
        return None
    errors = [d for d in found if is_error(d)]
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        return f"error: {errors[0].message}{more}"
    points = prod(len(values) for _, values in scenario.axes)
    if points > MOST_POINTS:
        return f"a sweep of {points:,} points: `parcost eval` evaluates it"

    def progress(_: int, __: int) -> None:
        if is_stopped():
            raise StoppedEvaluationError

    report = attempt(scenario.path, lambda: scenario.evaluate(progress))
    if is_stopped():
        raise StoppedEvaluationError
    if isinstance(report, Rejection):
        return f"error: {report.diagnostics[0].message}"
    return report


def _line(report: Report | str) -> str:
    if isinstance(report, str):
        return report
    if report.axes:
        return sweep_summary(report, ())
    (result,) = report.results
    figures = headline_figures(result, ())[:_FIGURES] if result.legal else ()
    listed = ", ".join(f"{head(f)} {numbers.quantity(f.value, f.unit)}" for f in figures)
    return "; ".join(filter(None, (listed, _verdict(result))))


def _verdict(result: Result) -> str:
    if not runs(result):
        return invalid_reason(result)
    failed = [claim for claim in result.expectations if not all_of(claim.holds)]
    if failed:
        return f"not as expected: {failed[0].text}"
    return approval(result).lower() if result.outcome is not None else ""


def _claim(claim: Expectation) -> str:
    holds = "holds" if all_of(claim.holds) else "fails"
    outcome = f": {claim.outcome}" if claim.outcome else ""
    predicted = numbers.quantity(claim.figure.value, claim.figure.unit)
    return f"Predicted: {predicted}. The claim {holds}{outcome}"


# --- in a thread --------------------------------------------------------------------------


@define(eq=False)
class EvaluationJob:
    """A file to evaluate with some texts; *done* is called in the thread."""

    path: str
    buffers: Mapping[str, Buffer]
    done: Callable[[FileEvaluation | None], None]
    stop: Event = Factory(Event)


class Evaluator:
    """A thread that evaluates files one after another, with a session of its own."""

    def __init__(self, make_session: Callable[[], Session]) -> None:
        self._jobs: SimpleQueue[EvaluationJob] = SimpleQueue()
        self._make_session = make_session
        Thread(target=self._run, name="evaluator", daemon=True).start()

    def submit(self, job: EvaluationJob) -> None:
        """Add a file to the queue of evaluations."""
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            self._serve(self._make_session())

    def _serve(self, session: Session) -> None:
        """Evaluate a limited number of files; caches of plugins are freed with the session."""
        for _ in range(_MOST_JOBS):
            job = self._jobs.get()
            if job.stop.is_set():
                continue
            session.loader.buffers = job.buffers
            found = attempt(job.path, partial(_evaluation, session, job))
            job.done(None if isinstance(found, Rejection) else found)


def _evaluation(session: Session, job: EvaluationJob) -> FileEvaluation | None:
    try:
        return evaluate_file(session, job.path, job.stop.is_set)
    except StoppedEvaluationError:
        return None
