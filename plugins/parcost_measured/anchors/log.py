"""Training logs: the median step time, the memory, and the settings of the run.

    iteration 30/ 100 | elapsed time per iteration (ms): 4102.3 | global batch size: 256 | ...

Warm-up steps, skipped steps, and steps with NaN or another batch size are not measurements. They
are reported with their lines, and the other lines are used.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import isfinite, prod
from statistics import median
from typing import Any

from attrs import evolve, frozen

from parcost import ImportedBlock, ImportedKey, ImportedValue, ImportProblem, Translation
from parcost.language.writer import provenance
from parcost_measured.validation.hardware import ENTRIES
from parcost_plugins.vocabulary.anchor import write_settings

_LINE = re.compile(r"[^\r\n]+")
_CONTENT = re.compile(r"\d|\.{3}")  # of every line that says something: a number, or an argument
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_ARGUMENT = re.compile(r"(?:^|[\s:])([a-z][a-z0-9_]+) \.{3,} (\S+)\s*$")
_RANK = re.compile(r"\[(?:default|rank)(\d+)\]:")  # of torchrun and torchtitan
_LOST = re.compile(r"\b(?:loss|grad[ _]norm)['\"]?\s*[:=]\s*['\"]?(?:nan|-?inf)\b", re.IGNORECASE)
_WARM_UP = "a step after a start"
_WHOLE = 10**9  # in place of the number of a step, of a whole run
_DIGITS = 10  # more than a degree has
_LONGEST = 20_000  # characters of a line that are searched


@cache
def table() -> Mapping[str, Any]:
    """Return the table of log line patterns."""
    place = files("parcost_measured.anchors") / "measured_runs.toml"
    return tomllib.loads(place.read_text(encoding="utf-8"))


@frozen(kw_only=True)
class LogLine:
    """A line of a log without color codes: its number, and its place in the text."""

    number: int
    text: str
    start: int
    end: int


@frozen(kw_only=True)
class LoggedStep:
    """A step in a log: seconds, or tokens/s per device; a *reason* excludes it from the median."""

    line: LogLine
    value: float
    step: int
    tool: str
    batch: int | None = None
    total: int | None = None
    reason: str = ""


@frozen(kw_only=True)
class Fact:
    """A setting in a log: a path, its value, and a flag if it identifies the job."""

    path: str
    value: str
    of_job: bool
    line: LogLine


def has_steps(text: str) -> bool:
    """Return whether a text has a step, or the summary of a run."""
    known = table()
    return any(re.search(one["line"], text) for one in (*known["steps"], *known["summary"]))


def read_log(label: str, name: str, text: str) -> Translation:
    """Return the anchor of a log, with the *label*."""
    lines = list(_lines(text))
    facts = [fact for line in lines for fact in _facts(line)]
    steps = [*_distinct(step for line in _of_one_rank(lines) if (step := _step(line)))]
    is_rate = bool(steps) and _pattern(steps[0].tool).get("tokens", False)
    if not steps:
        steps = _summaries(lines)
        if not steps:
            message = "the log has no step with its time"
            return Translation(problems=[ImportProblem(message=message, end=min(len(text), 1))])
    steps = _mark_invalid(steps, facts)
    kept = [one for one in steps if not one.reason]
    if not kept:
        first = steps[0]
        message = f"all steps of the log are excluded: line {first.line.number}: {first.reason}"
        return Translation(
            problems=[ImportProblem(message=message, start=first.line.start, end=first.line.end)]
        )
    settings, job = _attributes(facts, kept)
    found = median(one.value for one in kept)
    how = f"{name}: median of {len(kept)} of {len(steps)} steps that {kept[0].tool} logged"
    place: dict[str, Any] = {"start": kept[0].line.start, "end": kept[0].line.end}
    measured = provenance("measured", how)
    value = (
        ImportedValue(
            name="tokens_per_second_per_device",
            value=f"{found:.6g}{measured}",
            key=kept[0].tool,
            **place,
        )
        if is_rate
        else ImportedValue(
            name="step_time", value=f"{found:.6g} s{measured}", key=kept[0].tool, **place
        )
    )
    values = [value, *_memory(lines)]
    values.append(ImportedValue(name="steps", value=str(len(kept)), **place))
    if settings:
        values.append(
            ImportedValue(name="settings", value=f'"{write_settings(settings)}"', **place)
        )
    if job:
        values.append(ImportedValue(name="job", value=f'"{write_settings(job)}"', **place))
    return Translation(
        blocks=[ImportedBlock(kind="anchor", label=label, settings=values)],
        unknown=[*_excluded_steps(steps)],
        ignored=[*_warm_up(steps)],
    )


def _lines(text: str) -> Iterator[LogLine]:
    """Yield the lines of a text that may hold a fact; each redraw of a progress bar is one line."""
    number, at = 1, 0
    for match in _LINE.finditer(text):
        number += text.count("\n", at, match.start())
        at = match.start()
        if not _CONTENT.search(match.group()):
            continue
        plain = _COLOR.sub("", match.group()[:_LONGEST])
        yield LogLine(number=number, text=plain, start=match.start(), end=match.end())


def _of_one_rank(lines: Sequence[LogLine]) -> Iterator[LogLine]:
    """Yield the lines of the first rank that logs steps, and the lines without a rank."""
    first: str | None = None
    for line in lines:
        match = _RANK.search(line.text)
        if match is None:
            yield line
        elif first in (None, match.group(1)):
            if first is None and _step(line) is not None:
                first = match.group(1)
            yield line


def _distinct(steps: Iterable[LoggedStep]) -> Iterator[LoggedStep]:
    """Yield the steps, without earlier redraws of the same step."""
    before: LoggedStep | None = None
    for one in steps:
        if before is not None and (one.step, one.tool, one.total) != (
            before.step,
            before.tool,
            before.total,
        ):
            yield before
        before = one
    if before is not None:
        yield before


# --- steps --------------------------------------------------------------------------------


def _pattern(tool: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(one for one in table()["steps"] if one["tool"] == tool)
    return found


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _group(pattern: str | None, text: str) -> str | None:
    match = _compile(pattern).search(text) if pattern else None
    return None if match is None else match.group(1)


def _step(line: LogLine) -> LoggedStep | None:
    """Return the step in a line, None if it has none."""
    for one in table()["steps"]:
        said, step = _group(one["line"], line.text), _group(one["step"], line.text)
        if said is None or step is None:
            continue
        value, reason = _number(said), ""
        if value <= 0 or not isfinite(value):
            reason = f"its time is {said}"
        elif _LOST.search(line.text):
            reason = "loss or gradient norm is not a number"
        for what, pattern in one.get("void", {}).items():
            if not reason and _compile(pattern).search(line.text):
                reason = f"it has {what}"
        if not reason and one.get("inverse"):
            value = 1 / value
        batch, total = _group(one.get("batch"), line.text), _group(one.get("total"), line.text)
        return LoggedStep(
            line=line,
            value=value * one.get("scale", 1.0),
            step=int(step),
            tool=one["tool"],
            batch=None if batch is None else int(batch),
            total=None if total is None else int(total),
            reason=reason,
        )
    return None


def _number(text: str) -> float:
    try:
        return float(text.rstrip(".,").replace(",", ""))
    except ValueError:
        return float("nan")


def _summaries(lines: Sequence[LogLine]) -> list[LoggedStep]:
    """Return the whole run as one step: its mean time, including warm-up and evaluation."""
    found = []
    for line in lines:
        for one in table()["summary"]:
            said = _group(one["line"], line.text)
            if said is not None and 0 < _number(said) < float("inf"):
                found.append(
                    LoggedStep(line=line, value=1 / _number(said), step=_WHOLE, tool=one["tool"])
                )
    return found[-1:]


def _mark_invalid(steps: Sequence[LoggedStep], facts: Sequence[Fact]) -> list[LoggedStep]:
    """Return the steps; steps that are no valid measurements get a reason."""
    tool = Counter(one.tool for one in steps).most_common(1)[0][0]
    whole = Counter(one.total for one in steps).most_common(1)[0][0]
    batch = Counter(one.batch for one in steps if not one.reason).most_common(1)
    usual = batch[0][0] if batch else None
    changed = _last_change(facts)
    judged = []
    for one in steps:
        reason = one.reason
        if one.tool != tool:
            reason = reason or f"most steps are of {tool}"
        elif one.total != whole:
            reason = (
                reason or f"a progress bar of {one.total} steps next to one of {whole}: evaluation"
            )
        elif changed is not None and one.line.start < changed.line.start:
            reason = reason or f"`{changed.path}` changed at line {changed.line.number}"
        elif one.batch != usual:
            reason = reason or f"a batch of {one.batch}, while most steps have {usual}"
        judged.append(evolve(one, reason=reason))
    return [*_without_warm_up(judged)]


def _without_warm_up(steps: Sequence[LoggedStep]) -> Iterator[LoggedStep]:
    """Yield the steps; the warm-up steps after each start get a reason."""
    starts: list[list[LoggedStep]] = [[]]
    for one in steps:
        before = next((other for other in reversed(starts[-1]) if not other.reason), None)
        if before is not None and not one.reason and one.step <= before.step:
            starts.append([])
        starts[-1].append(one)
    most = table()["limits"]["warm_up"]
    for start in starts:
        kept = [one for one in start if not one.reason]
        early = [one for one in kept if one.step < kept[0].step + most]
        dropped = {id(one) for one in early[: max(1, len(kept) // 2)]} if kept[1:] else set()
        if len(kept) == 1 and (len(starts) > 1 or kept[0].step <= most):
            dropped = {id(kept[0])}
        for one in start:
            yield evolve(one, reason=_WARM_UP) if id(one) in dropped else one


def _excluded_steps(steps: Sequence[LoggedStep]) -> Iterator[ImportedKey]:
    """Yield the excluded lines, except warm-up steps."""
    excluded = [one for one in steps if one.reason and one.reason != _WARM_UP]
    most = table()["limits"]["most_listed"]
    for one in excluded[:most]:
        line = one.line
        yield ImportedKey(
            name=f"line {line.number}", start=line.start, end=line.end, reason=one.reason
        )
    if len(excluded) > most:
        name = f"{len(excluded) - most} more lines"
        yield ImportedKey(name=name, reason="steps excluded for the same reasons")


def _warm_up(steps: Sequence[LoggedStep]) -> Iterator[ImportedKey]:
    for one in steps:
        if one.reason == _WARM_UP:
            line = one.line
            yield ImportedKey(
                name=f"line {line.number}",
                start=line.start,
                end=line.end,
                reason=_WARM_UP,
            )


# --- the run ------------------------------------------------------------------------------


def _facts(line: LogLine) -> Iterator[Fact]:
    """Yield the settings in a line."""
    known = table()
    if (match := _ARGUMENT.search(line.text)) is not None:
        yield from _argument(line, *match.groups())
        return
    for one in known["facts"]:
        if (match := _compile(one["line"]).search(line.text)) is not None:
            for path, value in zip(one["settings"], match.groups(), strict=True):
                yield Fact(path=path, value=value.replace(",", ""), of_job=False, line=line)
    if (match := _compile(known["mesh"]["line"]).search(line.text)) is not None:
        yield from _mesh(line, *match.groups())
    said = _group(known["devices"]["line"], line.text)
    device = next((e.device for e in ENTRIES if said and re.search(e.pattern, said)), None)
    if device is not None:
        yield Fact(path="device", value=device, of_job=True, line=line)


def _argument(line: LogLine, name: str, value: str) -> Iterator[Fact]:
    """Yield the setting that an argument of Megatron-LM states, if it is in the table."""
    known = table()["arguments"]
    if value == "True":
        for path, word in known["switches"].get(name, {}).items():
            yield Fact(path=path, value=word, of_job=True, line=line)
    for of_job in (False, True):
        path = known["job" if of_job else "settings"].get(name)
        if path is None:
            continue
        words = known["words"].get(path, {})
        spelled = words.get(value, value if value.isdecimal() else "")
        if spelled:
            yield Fact(path=path, value=spelled, of_job=of_job, line=line)


def _mesh(line: LogLine, names: str, sizes: str) -> Iterator[Fact]:
    known = table()["mesh"]
    dimensions = [name.strip(" '\"") for name in names.split(",")]
    degrees = [int(size) for size in sizes.split(",") if 0 < len(size.strip()) < _DIGITS]
    if len(dimensions) != len(degrees):
        return
    found = {known[n]: k for n, k in zip(dimensions, degrees, strict=True) if n in known}
    pairs = zip(dimensions, degrees, strict=True)
    found["layout.dp"] = prod(k for n, k in pairs if n.startswith("dp"))
    found["cluster.devices"] = prod(degrees)
    for path in ("layout.tp", "layout.pp", "layout.cp"):
        found.setdefault(path, 1)  # a mesh has no dimensions of one
    for path, degree in found.items():
        yield Fact(path=path, value=str(degree), of_job=False, line=line)


def _last_change(facts: Sequence[Fact]) -> Fact | None:
    """Return the last setting that contradicts an earlier line, or None."""
    known: dict[str, str] = {}
    changed = None
    for fact in facts:
        if known.setdefault(fact.path, fact.value) != fact.value:
            known[fact.path], changed = fact.value, fact
    return changed


def _attributes(
    facts: Sequence[Fact], kept: Sequence[LoggedStep]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the settings of the run, and the values that identify its job."""
    settings = {fact.path: fact.value for fact in facts if not fact.of_job}
    job = {fact.path: fact.value for fact in facts if fact.of_job}
    if kept[0].batch is not None:
        settings["training.global_batch"] = str(kept[0].batch)
    if "training.global_batch" in settings:
        settings["training.global_batch"] += " sequences"
    if settings.get("layout.tp") == "1":
        settings.pop("layout.sequence_parallel", None)
    chunks = settings.pop("schedule.chunks", None)
    if chunks is not None and settings.get("layout.pp", "1") != "1":
        settings["schedule.kind"] = "one_f_one_b" if chunks == "1" else "interleaved"
        settings["schedule.chunks"] = chunks
    return settings, job


def _memory(lines: Sequence[LogLine]) -> Iterator[ImportedValue]:
    """Yield the peak memory over all ranks in the log."""
    for name in ("allocated", "reserved"):
        found: tuple[float, LogLine] | None = None
        for line in lines:
            for one in table()["memory"]:
                said = _group(one["line"], line.text) if one["attribute"] == name else None
                size = _number(said or "nan") * one["scale"]
                if size > 0 and isfinite(size) and (found is None or size > found[0]):
                    found = size, line
        if found is not None:
            yield ImportedValue(
                name=name,
                value=f"{found[0] / 2**30:.6g} GiB",
                key=name,
                start=found[1].start,
                end=found[1].end,
            )
