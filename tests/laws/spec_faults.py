"""What a spec may never do: make a plugin fail, give a number that is none, have no finite time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from parcost import Figure, Report, SpecError
from parcost.contract.plugin import Plugin
from parcost.engine.rules import rules
from parcost.engine.session import Session
from parcost.language.diagnostic_text import render
from parcost.report.result import Result

MOST_SECONDS = 2.0
_NEVER_NEGATIVE = ("s", "B", "FLOP", "B/s", "FLOP/s", "USD", "J", "g")


class SlowError(KeyboardInterrupt):
    """A spec takes longer than any may; no guard of plugins takes it for their failure."""


def fault(
    session: Session, text: str, *, depth: int = 2, seconds: float = 10.0 * MOST_SECONDS
) -> str:
    """Return what goes wrong with a spec other than a diagnostic, "" if nothing does."""
    start = time.process_time()
    try:
        with alarm(5 * seconds):
            found = next(iter(faults(session, text, depth=depth)), "")
    except SlowError:
        return f"hang: more than {5 * seconds:g} s"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
        return describe(error)
    spent = time.process_time() - start
    return found or (f"slow: {spent:.1f} s" if spent > seconds else "")


def faults(
    session: Session, text: str, *, depth: int = 2, when_bound: Callable[[], None] | None = None
) -> Iterator[str]:
    """Yield what is wrong with the reports of a spec: of figures, details (1) and sections (2).

    *when_bound* is called once a study is bound, before it is evaluated.
    """
    try:
        scenarios = session.load_text(text, "spec.par")
    except SpecError as error:
        str(error)
        return
    for scenario in scenarios:
        try:
            if when_bound is not None:
                _ = scenario.first
                when_bound()
            report = scenario.evaluate()
            yield from wrong(report, depth=depth)
            if depth:
                report.rows()
                yield from _views(report)
        except SpecError as error:
            for diagnostic in error.diagnostics:
                render(diagnostic)
        scenario.release()


def wrong(report: Report, *, depth: int = 2) -> Iterator[str]:
    """Yield what is wrong with a report: plugins that failed, numbers that are none."""
    for result in report.results:
        for diagnostic in result.diagnostics:
            render(diagnostic)
        yield from _numbers(result, (*result.figures, *(result.details if depth else ())))
        if depth > 1:
            _ = result.sections
        for failed in result.faults:
            yield f"fault: {failed.plugin.name}, {failed.hook}: {failed.message}"


def _numbers(result: Result, figures: Sequence[tuple[Plugin, Figure]]) -> Iterator[str]:
    unnumbered = any(d.id == "not-a-number" for d in result.diagnostics)
    for plugin, figure in figures:
        values = np.asarray(figure.value, dtype=float)
        if np.isnan(values).any() and not unnumbered and result.feasible is True:
            yield f"nan: {plugin.name}, {figure.name}"
        if figure.unit in _NEVER_NEGATIVE and (values < 0).any():
            yield f"negative: {plugin.name}, {figure.name}"
    outcome = result.outcome
    if outcome is None:
        return
    for line in outcome.ledger:
        for value in (line.exposed, line.hidden):
            if not (np.asarray(value) >= 0).all():
                yield f"negative: {line.plugin and line.plugin.name}, line {line.name}"
    for held in outcome.memory_lines:
        if not (np.asarray(held.bytes_) >= 0).all():
            yield f"negative: {held.plugin.name}, memory line {held.name}"
    total = sum((np.asarray(line.exposed) for line in outcome.ledger), np.asarray(0.0))
    if not np.allclose(total, outcome.step_seconds, rtol=1e-12, atol=0.0):
        yield "the ledger does not add up"


def _views(report: Report) -> Iterator[str]:
    for result in report.results:
        study = result.study
        if study.axes or not study.trains or not rules(study).holds:
            continue
        for name in ("stages", "ranks"):
            failed: list[Any] = []
            list(
                study.plugins.ask(
                    "sections", failed, taking="name", study=study, name=name, rows=[0]
                )
            )
            for one in failed:
                yield f"fault: {one.plugin.name}, views {name}: {one.message}"


def describe(error: BaseException) -> str:
    """Return an exception with the place in the code that raised it."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = f"{last.tb_frame.f_code.co_qualname}, line {last.tb_lineno}" if last else ""
    return f"{type(error).__name__} in {where}: {str(error)[:200]}"


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise `SlowError` in the main thread after so many seconds of the processor."""

    def ring(_: int, __: FrameType | None) -> None:
        raise SlowError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
