"""Rows in groups, with their scores: the data of every format."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from attrs import Factory, frozen

from parcost.language.numbers import percent
from parcost_measured.validation.evaluation import Prediction, RowResult
from parcost_measured.validation.frameworks import year_of
from parcost_measured.validation.hardware import entry_of
from parcost_measured.validation.intervals import Coverage, Kind, Ranges, Ratio, coverage_of, ranges
from parcost_measured.validation.rows import Flaw, RunRow, count_unread
from parcost_measured.validation.scores import (
    Score,
    chance,
    count_pairs,
    group_by,
    quantile,
    rates,
    regret,
    score,
    weights_of,
)
from parcost_measured.validation.study import StudyText
from parcost_plugins.vocabulary import Framework

#: Minimum number of layouts of one job for a ranking.
FEWEST_LAYOUTS = 3
#: Repeats of a layout agree within this share; layouts further apart differ.
NOISE = 0.03
#: Minimum number of rows in a group to report that a constant MFU predicts better.
FEWEST_ROWS = 8
_WORST = 3  # rows that a group names
#: Speedup of a data type over 16 bits.
_WIDER = {"fp8": 2.0, "mxfp8": 2.0, "nvfp4": 4.0, "mxfp4": 4.0}


@frozen(kw_only=True, eq=False)
class ScoredRow:
    """A row with its prediction, and the prediction of the constant-MFU baseline."""

    row: RunRow
    written: StudyText
    prediction: Prediction
    baseline: float  # seconds of a step

    @property
    def error(self) -> float:
        """The relative error of the step time."""
        return self.prediction.step_time / self.row.measured.step_time_s - 1.0

    @property
    def ratio(self) -> float:
        """Measured over predicted step time."""
        return self.row.measured.step_time_s / self.prediction.step_time

    @property
    def baseline_error(self) -> float:
        """The relative error of the baseline's step time."""
        return self.baseline / self.row.measured.step_time_s - 1.0

    @property
    def memory_error(self) -> float | None:
        """The relative error of the memory; None if it was not measured."""
        measured = self.row.measured.memory_gb
        return None if measured is None else self.predicted_memory / (measured * 1e9) - 1.0

    @property
    def predicted_memory(self) -> float:
        """The predicted memory in bytes of the counter that was measured, or of the device if none
        is named.
        """
        counters, counter = self.prediction.counters, memory_basis(self.row).split()[0]
        return counters.get(counter, counters.get("device", self.prediction.memory))

    @property
    def memory_interval(self) -> tuple[float, float] | None:
        """The interval of the memory of the counter that was measured."""
        interval, scale = self.prediction.memory_interval, self.prediction.memory or 1.0
        if interval is None:
            return None
        low, high = (end * self.predicted_memory / scale for end in interval)
        return low, high

    @property
    def memory_ratio(self) -> float | None:
        """Measured over predicted memory; None if it was not measured."""
        measured = self.row.measured.memory_gb
        predicted = self.predicted_memory
        return None if measured is None or not predicted else measured * 1e9 / predicted

    @property
    def step_in_interval(self) -> bool | None:
        """Whether the measured step time lies in its interval; None without an interval."""
        return _is_within(self.row.measured.step_time_s, self.prediction.step_interval)

    @property
    def memory_held(self) -> bool | None:
        """Whether the measured memory lies in its interval; None if it was not measured."""
        measured = self.row.measured.memory_gb
        return None if measured is None else _is_within(measured * 1e9, self.memory_interval)


def _is_within(value: float, ends: tuple[float, float] | None) -> bool | None:
    return None if ends is None else ends[0] <= value <= ends[1]


@frozen(kw_only=True)
class SummaryGroup:
    """Rows with a common property, and their scores."""

    dimension: str
    name: str
    step: Score
    baseline: Score
    memory: Score | None
    rejected: int
    held: Coverage | None  # by the intervals of the step time
    memory_held: Coverage | None
    worst: Sequence[str]  # ids of the rows with the largest errors


@frozen(kw_only=True)
class Ranking:
    """Layouts of one job (model, batch, devices, source), and the quality of their predicted order.

    *pairs* are pairs of layouts whose measured times differ by more than the noise; *ordered* are
    those predicted in the right order.
    """

    source: str
    name: str
    layouts: int
    regret: float
    chance: float  # regret of any of them
    ordered: int
    pairs: int


@frozen(kw_only=True)
class ProfileAge:
    """A profile of a framework: its years, the run that checks it, and the rows that ran it.

    *newer* are the rows after its years; *step* is the error of all its rows, None without rows.
    """

    name: str
    first_year: int | None
    last_year: int | None
    checked: str
    rows: int
    newer: int
    step: Score | None

    @property
    def warning(self) -> str:
        """The warning that rows are newer than the profile, "" if none is."""
        if not self.newer:
            return ""
        return (
            f"`{self.name}` describes releases up to {self.last_year}, and {self.newer:,} of its "
            f"{self.rows:,} rows are newer"
        )


def profile_ages(
    rows: Sequence[ScoredRow], frameworks: Mapping[str, Framework]
) -> list[ProfileAge]:
    """Return the age of each profile of *frameworks*, by name, with the rows that ran it."""
    found = []
    by_name = group_by(rows, lambda one: one.written.framework)
    for name, framework in sorted(frameworks.items()):
        members, last = by_name.get(name, []), framework.last_year
        years = [year_of(one.row) for one in members]
        found.append(
            ProfileAge(
                name=name,
                first_year=framework.first_year,
                last_year=last,
                checked=framework.checked,
                rows=len(members),
                newer=sum(last is not None and year is not None and year > last for year in years),
                step=score([one.error for one in members]),
            )
        )
    return found


@frozen(kw_only=True, eq=False)
class Summary:
    """All results: groups by dimension, the ranking, and rows that could not be scored."""

    rows: Sequence[ScoredRow]
    groups: Sequence[SummaryGroup]
    rankings: Sequence[Ranking]
    memory: Sequence[tuple[str, Score]]
    left_out: Mapping[str, Ranges]
    unmodelled: Sequence[Flaw]
    flaws: Sequence[Flaw]
    unknown: Mapping[str, int]
    adapters: Sequence[ScoredRow] = ()  # in no other group, and in no fit
    unread: Mapping[str, int] = Factory(dict)  # fields of `extra`, by number of rows
    profiles: Sequence[ProfileAge] = ()

    @property
    def all_rows(self) -> list[ScoredRow]:
        """All rows with a score, those with adapters at the end."""
        return [*self.rows, *self.adapters]

    def groups_by(self, dimension: str) -> list[SummaryGroup]:
        """Return the groups of one dimension."""
        return [group for group in self.groups if group.dimension == dimension]

    @property
    def all(self) -> SummaryGroup | None:
        """All rows together."""
        return next(iter(self.groups_by("all")), None)

    @property
    def regret(self) -> float | None:
        """The mean regret of the best predicted layouts."""
        found = [one.regret for one in self.rankings]
        return sum(found) / len(found) if found else None

    @property
    def chance(self) -> float | None:
        """The mean regret of layouts picked by chance."""
        found = [one.chance for one in self.rankings]
        return sum(found) / len(found) if found else None

    @property
    def pairs(self) -> float | None:
        """The share of pairs in the right order, over all groups of layouts."""
        return ordered_share(self.rankings)

    @property
    def worse(self) -> list[SummaryGroup]:
        """The groups of enough rows in which a constant MFU predicts better."""
        return [
            group
            for group in self.groups
            if group.dimension not in APART
            and group.step.n >= FEWEST_ROWS
            and group.baseline.mape < group.step.mape
        ]

    def value(self, quantity: str, metric: str, name: str) -> float | None:
        """Return one figure of the group called *name*; None if it does not exist."""
        if metric in ("regret", "pairs"):
            return self.regret if metric == "regret" else self.pairs
        group = next((group for group in self.groups if group.name == name), None)
        if group is None:
            return None
        if metric == "rejected":
            return group.rejected / group.step.n
        if metric in ("coverage", "half-width"):
            held = group.held if quantity == "step" else group.memory_held
            if held is None:
                return None
            return held.share if metric == "coverage" else held.half_width
        found = group.step if quantity == "step" else group.memory
        return None if found is None else float(getattr(found, metric))

    def worst(self, most: int) -> list[ScoredRow]:
        """Return at most *most* rows with the largest errors, spread evenly over sources."""
        rows = self.rows or self.adapters
        sources = group_by(rows, lambda one: one.row.source_key).values()
        each = -(-most // max(1, len(sources)))
        found = [one for members in sources for one in largest_errors(members, each)]
        return largest_errors(found, most)

    def mean_over(self, dimension: str) -> tuple[float, float] | None:
        """Return the mean over groups of the MAPE, and of the baseline's MAPE."""
        found = self.groups_by(dimension)
        if not found:
            return None
        own = sum(group.step.mape for group in found) / len(found)
        return own, sum(group.baseline.mape for group in found) / len(found)


def ordered_share(rankings: Sequence[Ranking]) -> float | None:
    """Return the share of pairs in the right order; None without pairs."""
    pairs = sum(one.pairs for one in rankings)
    return sum(one.ordered for one in rankings) / pairs if pairs else None


def largest_errors(rows: Sequence[ScoredRow], most: int) -> list[ScoredRow]:
    """Return the *most* rows with the largest step time errors, largest first."""
    return sorted(rows, key=lambda one: (-abs(one.error), one.row.id))[:most]


def _nodes(row: RunRow) -> str:
    if row.nodes is None:
        return "not stated"
    for most in (1, 8, 64, 512):
        if row.nodes <= most:
            return "1" if most == 1 else f"{_ABOVE[most]} to {most}"
    return "over 512"


_ABOVE = {8: 2, 64: 9, 512: 65}


def device_class(row: RunRow) -> str:
    """Return the class of device of *row*."""
    return row.hardware.gpu_class or row.hardware.gpu


#: Dimensions of groups: a name, and a function from a row to its group, None to leave it out.
#: `once` has all rows, weighted so that repeats of a configuration count once.
DIMENSIONS: Mapping[str, Callable[[RunRow, str], str | None]] = {
    "all": lambda _row, _framework: "all",
    "once": lambda _row, _framework: "once",
    "core": lambda row, _framework: "core" if row.core else None,
    "source": lambda row, _framework: row.source_key,
    "device": lambda row, _framework: device_class(row),
    "nodes": lambda row, _framework: _nodes(row),
    "model": lambda row, _framework: "MoE" if row.is_sparse else "dense",
    "precision": lambda row, _framework: row.numbers,
    "framework": lambda _row, framework: framework,
}


#: Groups of rows that are in no other one: of step times that were not measured, and of adapters.
APART = ("adapters", "composed")


def summarize(
    cases: Sequence[RowResult],
    flaws: Sequence[Flaw],
    unknown: Mapping[str, int],
    families: Mapping[str, str] | None = None,
    frameworks: Mapping[str, Framework] | None = None,
) -> Summary:
    """Return the summary of *cases*, and of the flaws of other rows.

    *families* are the families of devices by name, *frameworks* the frameworks of the catalogue.
    Excluded rows are only in their own group.
    """
    cases = [case for case in cases if case.prediction or not case.placed.row.synthetic]
    evaluated = [case for case in cases if case.prediction is not None]
    absurd = [case for case in evaluated if excess(case)]
    kept = [case for case in evaluated if not excess(case)]
    by_group = group_by(kept, lambda case: case.placed.row.group_apart)
    rows = _with_baseline(by_group.get("", []))
    apart = {name: _with_baseline(by_group.get(name, [])) for name in APART}
    groups = [
        _group(dimension, name, found)
        for dimension, key in DIMENSIONS.items()
        for name, found in _group_rows(rows, key).items()
        if name is not None
    ]
    groups += [_group(name, name, found) for name, found in apart.items() if found]
    groups += [
        _group("adapters", name, found)
        for name, found in _group_rows(apart["adapters"], DIMENSIONS["device"]).items()
        if name is not None
    ]
    found_flaws = [*flaws, *(case.flaw("absurd", excess(case)) for case in absurd)]
    return Summary(
        rows=rows,
        groups=groups,
        rankings=_rankings(rows),
        memory=_memory(rows),
        left_out=ranges_of(rows, families or {}),
        unmodelled=[
            case.flaw("unmodelled", case.reason) for case in cases if case.prediction is None
        ],
        flaws=found_flaws,
        unknown=unknown,
        adapters=apart["adapters"],
        unread=count_unread(one.row for one in (*rows, *apart["adapters"])),
        profiles=profile_ages(rows, frameworks or {}),
    )


def _group_rows(
    rows: Sequence[ScoredRow], key: Callable[[RunRow, str], str | None]
) -> dict[str | None, list[ScoredRow]]:
    found = group_by(rows, lambda scored: key(scored.row, scored.written.framework))
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), str(item[0]))))


def _speed(case: RowResult) -> float:
    """Return the measured model FLOP/s per device."""
    assert case.prediction is not None
    return case.prediction.model_flops / case.placed.row.measured.step_time_s


def excess(case: RowResult) -> str:
    """Return the reason why a step time is impossible (above the device's peak); "" if it is
    possible.
    """
    assert case.prediction is not None
    row, speed = case.placed.row, _speed(case)
    peak = case.prediction.peak * _WIDER.get(row.numbers or "", 1.0)
    if not peak or speed <= peak:
        return ""
    return (
        f"a step of {row.measured.step_time_s:g} s is an MFU of {percent(speed / peak, 0)}: "
        f"{speed / 1e12:.4g} TFLOP/s of a peak of {peak / 1e12:.4g}"
    )


def _with_baseline(cases: Sequence[RowResult]) -> list[ScoredRow]:
    """Return the rows with the prediction of a constant rate per class of device and precision."""
    classes: list[Hashable] = [
        (device_class(case.placed.row), case.placed.row.numbers) for case in cases
    ]
    fitted = rates([_speed(case) for case in cases], classes)
    rows = []
    for case, kind in zip(cases, classes, strict=True):
        assert case.prediction is not None
        assert case.written is not None
        rows.append(
            ScoredRow(
                row=case.placed.row,
                written=case.written,
                prediction=case.prediction,
                baseline=case.prediction.model_flops / fitted[kind],
            )
        )
    return rows


def _group(dimension: str, name: str, rows: Sequence[ScoredRow]) -> SummaryGroup:
    once = dimension == "once"
    weights = weights_of([one.row.configuration for one in rows]) if once else None
    step = score([one.error for one in rows], weights)
    baseline = score([one.baseline_error for one in rows], weights)
    assert step is not None
    assert baseline is not None
    return SummaryGroup(
        dimension=dimension,
        name=name,
        step=step,
        baseline=baseline,
        memory=score([e for one in rows if (e := one.memory_error) is not None]),
        rejected=sum(not one.prediction.fits for one in rows),
        held=_coverage(
            (one.step_in_interval, one.prediction.step_interval, one.prediction.step_time)
            for one in rows
        ),
        memory_held=_coverage(
            (one.memory_held, one.memory_interval, one.predicted_memory) for one in rows
        ),
        worst=[one.row.id for one in largest_errors(rows, _WORST)],
    )


def _coverage(
    judged: Iterable[tuple[bool | None, tuple[float, float] | None, float]],
) -> Coverage | None:
    """Return the share of values in their intervals, and half their median width, if any."""
    found = [
        (held, half_width(ends, predicted))
        for held, ends, predicted in judged
        if held is not None and ends
    ]
    return coverage_of([held for held, _ in found], [width for _, width in found])


def half_width(ends: tuple[float, float], predicted: float) -> float:
    """Return half the width of an interval, as a share of the prediction."""
    return (ends[1] - ends[0]) / 2 / predicted


def ranges_of(rows: Sequence[ScoredRow], families: Mapping[str, str]) -> Mapping[str, Ranges]:
    """Return the ranges of measured / predicted; *families* are the families of devices by name."""
    steps = [(one, one.ratio) for one in rows]
    memories = [(one, ratio) for one in rows if (ratio := one.memory_ratio) is not None]
    found = {}
    for figure, pairs in (("step_time", steps), ("memory", memories)):
        ratios = [
            Ratio(model=one.row.model.name, kind=_kind(one, families), value=ratio)
            for one, ratio in pairs
        ]
        if (known := ranges(ratios, figure)) is not None:
            found[figure] = known
    return found


def _kind(one: ScoredRow, families: Mapping[str, str]) -> Kind:
    model = "experts" if one.row.is_sparse else "dense"
    return model, families.get(device_of(one.row), ""), one.written.framework


def device_of(row: RunRow) -> str:
    """Return the catalogue device of *row*."""
    entry = entry_of(row.hardware)
    return "" if entry is None else entry.device


def _rankings(rows: Sequence[ScoredRow]) -> list[Ranking]:
    """Return the rankings of jobs with enough layouts whose repeats agree."""
    found = []
    for key, members in group_by(rows, _job).items():
        repeats = [
            alike
            for alike in group_by(members, _layout).values()
            if _spread([one.row.measured.step_time_s for one in alike]) <= NOISE
        ]
        if len(repeats) < FEWEST_LAYOUTS:
            continue
        predicted = [quantile([one.prediction.step_time for one in r], 0.5) for r in repeats]
        measured = [quantile([one.row.measured.step_time_s for one in r], 0.5) for r in repeats]
        ordered, pairs = count_pairs(predicted, measured, NOISE)
        found.append(
            Ranking(
                source=members[0].row.source_key,
                name=", ".join(map(str, key)),
                layouts=len(repeats),
                regret=regret(predicted, measured),
                chance=chance(measured),
                ordered=ordered,
                pairs=pairs,
            )
        )
    return found


def _spread(seconds: Sequence[float]) -> float:
    return max(seconds) / min(seconds) - 1.0


def _job(one: ScoredRow) -> tuple[Hashable, ...]:
    """Return the key of comparable layouts: all properties of the job except its layout."""
    row = one.row
    return (
        row.source_key,
        row.model.name,
        f"{row.model.layers} layers",
        f"sequence {row.model.seq}",
        f"{row.hardware.gpus} {row.hardware.gpu}",
        f"batch {row.batch.global_}",
        row.precision,
        f"recompute {row.recompute}",
    )


def _layout(one: ScoredRow) -> tuple[Hashable, ...]:
    p = one.row.parallel
    degrees = (p.tp, p.pp, p.cp, p.dp, p.vp, p.ep, p.zero_stage_or_fsdp)
    return (*degrees, p.sequence_parallel, one.row.batch.micro, one.row.schedule)


def memory_basis(row: RunRow) -> str:
    """Return the kind of measured memory in *row*: allocated, reserved, or of the whole device."""
    said = row.extra.get("memory_basis")
    if isinstance(said, str):
        return said
    text = row.notes.lower()
    if "nvidia-smi" in text:
        return "device"
    if row.extra.get("peak_memory_gib") is not None or "reserved" in text:
        return "reserved"
    return "allocated" if "allocated" in text else "not stated"


def _memory(rows: Sequence[ScoredRow]) -> list[tuple[str, Score]]:
    measured = [one for one in rows if one.memory_error is not None]
    found = []
    for basis, members in sorted(group_by(measured, lambda one: memory_basis(one.row)).items()):
        scored = score([e for one in members if (e := one.memory_error) is not None])
        if scored is not None:
            found.append((basis, scored))
    return found
