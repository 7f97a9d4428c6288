"""A comparison of ZeRO stages.

The study is evaluated with every stage. The recommended stage is the fastest that fits in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Outcome, Real, Section, SpecError, Study
from parcost.numeric import all_of
from parcost_plugins.parallelism.data.volumes import sent_by_stage
from parcost_plugins.physics import memory_limits
from parcost_plugins.vocabulary import Layout, Plan, Targets

_STAGES = (0, 1, 2, 3)


def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the stages for a study of several replicas with ``plan``.

    Each stage is a further evaluation of the whole step, so it is optional.
    """
    layout = study[Layout]
    if study.axes or not layout.dp * layout.cp > 1 or not study.parameters:
        return
    if study.get(Plan) is not None and (compared := _stages(study, outcome)) is not None:
        yield compared


def _stages(study: Study, outcome: Outcome) -> Section | None:
    room = memory_limits(study).most
    rows: list[tuple[Any, ...]] = []
    fitting: list[tuple[float, int]] = []
    for zero in _STAGES:
        made = _cost_at_stage(study, outcome, zero)
        if made is None:
            continue
        changed, result = made
        fits = bool(result.memory_bytes <= room)
        if fits:
            fitting.append((float(result.step_seconds), zero))
        sent, plain = sent_by_stage(changed)
        rows.append(
            (
                f"ZeRO {zero}",
                (result.memory_bytes, "B"),
                "yes" if fits else "no",
                (sent, "B"),
                sent / plain if plain else 1.0,
                (result.step_seconds, "s"),
            )
        )
    if len(rows) < 2:
        return None
    return Section(
        title="ZeRO stages",
        columns=("with", "memory", "fits", "sent by a rank", "over replicas", "step"),
        rows=rows,
        notes=[_recommendation(fitting, study[Targets].as_fast)],
    )


def _recommendation(fitting: list[tuple[float, int]], as_fast: Real) -> str:
    if not fitting:
        return "no stage fits: also use tensor or pipeline parallelism"
    fastest = min(seconds for seconds, _ in fitting)
    least = min(zero for seconds, zero in fitting if seconds <= fastest * (1.0 + as_fast))
    return f"use ZeRO {least}: no other stage that fits is more than {100 * as_fast:g} % faster"


def _cost_at_stage(study: Study, outcome: Outcome, zero: int) -> tuple[Study, Outcome] | None:
    """Return the study and the step at a ZeRO stage, None if that is invalid."""
    if zero == study[Layout].zero:
        return study, outcome
    try:
        changed = study.replace({"layout.zero": zero})
        if not all_of(changed.legal()):
            return None
        result = changed.evaluate()
    except SpecError:
        return None
    return None if changed.faults_beyond(study) else (changed, result)
