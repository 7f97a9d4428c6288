"""Ranges of measured / predicted, with their coverage on left-out models.

Runs have kinds: dense or MoE model, then family of devices, then framework. The range of a kind is
the shortest that contains a given share of its logarithms. It always contains 1, which is the
prediction itself. Errors of one model are correlated, so a kind with few models also uses runs of
the enclosing kind. For m models, its own runs have the weight m / (m + 10), and other runs the
rest.

The share is chosen so that ranges cover left-out models as often as the interval states. Folds are
sets of models, and each fold is compared with the ranges from the other folds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import accumulate
from math import exp, log
from typing import TypeAlias, TypeVar

from attrs import frozen

from parcost.language.numbers import percent
from parcost.language.writer import block_lines
from parcost_measured.validation.scores import group_by, quantile

#: Share of measured values that an interval should contain.
COVERAGE = 0.9
FOLDS = 8
FEWEST_RUNS = 10  # of a kind that has a range of its own
BORROWED = 10  # models whose weight the runs of the enclosing kind have
FEWEST_OF_DEVICE = 5  # runs by which its efficiencies are known
_SHARES = [percent / 100 for percent in range(80, 100)]  # that are tried

T = TypeVar("T")
Kind = tuple[str, str, str]
#: Common properties of runs, from the broadest kind to the narrowest.
LEVELS: Mapping[str, Sequence[tuple[bool, bool, bool]]] = {
    "step_time": ((True, False, False), (True, True, False), (True, True, True)),
    "memory": ((False, False, False),),
}
_ANY: Kind = ("any", "", "")


@frozen(kw_only=True)
class Ratio:
    """The ratio measured / predicted of one run of *model*.

    *kind* is dense or experts, the family of the device, and the framework.
    """

    model: str
    kind: Kind
    value: float

    @property
    def fold(self) -> int:
        """The fold of the model, by a hash of its name."""
        return int(sha256(self.model.encode()).hexdigest(), 16) % FOLDS


@frozen(kw_only=True)
class Range:
    """The range of one kind, as factors of the prediction."""

    kind: Kind
    runs: int
    models: int
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the width of the range, as a share of the prediction."""
        return (self.high - self.low) / 2

    def holds(self, ratio: float) -> bool:
        """Return whether a ratio measured / predicted lies in the range."""
        return self.low <= ratio <= self.high


@frozen(kw_only=True)
class Coverage:
    """The share of *n* runs inside their intervals, and half the median relative width."""

    n: int
    share: float
    half_width: float


@frozen(kw_only=True)
class Ranges:
    """The ranges of all kinds of runs, and their coverage in cross-validation."""

    share: float
    by_kind: Mapping[Kind, Range]
    left_out: Coverage


def coverage_of(held: Sequence[bool], half_widths: Sequence[float]) -> Coverage | None:
    """Return the coverage of runs by their intervals; None without runs.

    It is the share of runs inside their intervals, and half the median relative width.

    >>> coverage_of([True, True, False, True], [0.1, 0.2, 0.1, 0.4])
    Coverage(n=4, share=0.75, half_width=0.15000000000000002)
    """
    if not held:
        return None
    return Coverage(n=len(held), share=sum(held) / len(held), half_width=quantile(half_widths, 0.5))


def shortest_range(
    values: Sequence[float], share: float, weights: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the ends of the shortest range that holds a *share* of sorted *values*.

    >>> shortest_range([1.0, 4.0, 5.0, 6.0, 9.0], 0.6)
    (4.0, 6.0)
    >>> shortest_range([1.0, 4.0, 5.0, 6.0, 9.0], 0.6, [5.0, 1.0, 1.0, 1.0, 2.0])
    (1.0, 4.0)
    """
    heavy = [1.0] * len(values) if weights is None else weights
    until = list(accumulate(heavy))
    asked, before = min(share, 1.0) * until[-1] * (1 - 1e-9), 0.0
    found: list[tuple[float, float, float]] = []
    for start, weight in zip(values, heavy, strict=True):
        end = bisect_left(until, before + asked)
        if end >= len(values):
            break
        found.append((values[end] - start, start, values[end]))
        before += weight
    _, low, high = min(found)
    return low, high


@frozen
class _Sample:
    """The runs of one kind, with weighted runs of the enclosing kinds.

    Logarithms of ratios, sorted, with their weights; *runs* and *models* are the counts of this
    kind only.
    """

    kind: Kind
    logs: Sequence[float]
    weights: Sequence[float]
    runs: int
    models: int


Levels: TypeAlias = Sequence[tuple[bool, bool, bool]]


def _samples(ratios: Sequence[Ratio], levels: Levels) -> list[_Sample]:
    """Return the runs by kind, the broadest kinds first."""
    found: dict[Kind, _Sample] = {}
    for level in levels:
        kinds: dict[Kind, list[Ratio]] = {}
        for one in ratios:
            kinds.setdefault(_common(one.kind, level), []).append(one)
        for kind, members in kinds.items():
            around = _narrowest_kind(found, kind, levels)
            if around is None or len(members) >= FEWEST_RUNS:
                found[kind] = _sample(kind, members, around)
    return list(found.values())


def _sample(kind: Kind, members: Sequence[Ratio], around: _Sample | None) -> _Sample:
    """Return the runs of a kind with weights; small samples shrink to the kind *around* them."""
    models = len({one.model for one in members})
    own = 1.0 if around is None else models / (models + BORROWED)
    weighed = [(log(one.value), own / len(members)) for one in members]
    if around is not None:
        weighed += [
            (value, (1 - own) * weight)
            for value, weight in zip(around.logs, around.weights, strict=True)
        ]
    logs, weights = zip(*sorted(weighed), strict=True)
    return _Sample(kind=kind, logs=logs, weights=weights, runs=len(members), models=models)


def ranges_at(share: float, samples: Sequence[_Sample]) -> dict[Kind, Range]:
    """Return the range of each kind that holds a *share* of its runs."""
    found: dict[Kind, Range] = {}
    for one in samples:
        ends = shortest_range(one.logs, share, one.weights)
        low, high = min(1.0, exp(ends[0])), max(1.0, exp(ends[1]))
        found[one.kind] = Range(kind=one.kind, runs=one.runs, models=one.models, low=low, high=high)
    return found


def _common(kind: Kind, level: tuple[bool, bool, bool]) -> Kind:
    first, second, third = (
        one if counts else other for one, other, counts in zip(kind, _ANY, level, strict=True)
    )
    return first, second, third


def _narrowest_kind(found: Mapping[Kind, T], kind: Kind, levels: Levels) -> T | None:
    """Return the value in *found* for the narrowest kind that contains *kind*, or None."""
    for level in reversed(levels):
        if one := found.get(_common(kind, level)):
            return one
    return None


@frozen
class _Fold:
    """The runs of the models in one fold, and the runs of all other models by kind."""

    members: Sequence[Ratio]
    others: Sequence[_Sample]


def _folds(ratios: Sequence[Ratio], levels: Levels) -> list[_Fold]:
    return [
        _Fold(members, _samples([one for one in ratios if one.fold != fold], levels))
        for fold, members in group_by(ratios, lambda one: one.fold).items()
    ]


def cross_validate(
    share: float, folds: Sequence[_Fold], levels: Levels
) -> Iterator[tuple[Ratio, Range]]:
    """Yield each run with its range from the other folds, if these give a range."""
    for fold in folds:
        others = ranges_at(share, fold.others)
        for one in fold.members:
            if (found := _narrowest_kind(others, one.kind, levels)) is not None:
                yield one, found


def ranges(ratios: Sequence[Ratio], figure: str) -> Ranges | None:
    """Return the ranges of a figure; None if all models are in one fold."""
    levels = LEVELS[figure]
    folds, samples = _folds(ratios, levels), _samples(ratios, levels)
    best: Ranges | None = None
    for share in _SHARES:
        pairs = list(cross_validate(share, folds, levels))
        held = coverage_of(
            [found.holds(one.value) for one, found in pairs],
            [found.half_width for _, found in pairs],
        )
        if held is None:
            return None
        if best is None or _coverage_error(held) < _coverage_error(best.left_out):
            best = Ranges(share=share, by_kind=ranges_at(share, samples), left_out=held)
    return best


def _coverage_error(held: Coverage) -> tuple[int, float]:
    """Return the difference between the coverage and the stated one in whole runs, and the
    half-width.

    A difference of less than one run is ignored, so that narrower ranges are preferred.
    """
    return int(abs(held.share - COVERAGE) * held.n), held.half_width


# --- as a file of the catalogue -------------------------------------------------------------

_SOURCE = (
    '@measured("ranges of measured / predicted; '
    'coverage from cross-validation with whole models left out")'
)
_JOBS = '@measured("measured / predicted of published runs by job, without composed runs")'
_HEAD = """\
# Errors of predictions for the open runs; `parcost validate --intervals FILE` wrote this file.
# Cross-validation in {folds} folds of models: {shares}.
# Low and high are factors of the prediction.
use catalog.families.other

"""


def to_block(
    label: str,
    ranges_of: Mapping[str, Ranges],
    devices: Mapping[str, int],
    spreads: Mapping[str, Mapping[str, str]],
) -> str:
    """Return the catalogue file *label*, with ranges and the number of runs of each device.

    *spreads* are the attributes of job spreads, by kind of model.
    """
    shares = "; ".join(
        f"the {figure.replace('_', ' ')} of {percent(one.left_out.share)} of "
        f"{one.left_out.n:,} runs is inside its interval, median half-width "
        f"{percent(one.left_out.half_width)}"
        for figure, one in ranges_of.items()
    )
    known = sorted(device for device, runs in devices.items() if runs >= FEWEST_OF_DEVICE)
    head = {
        "coverage": f"{100 * COVERAGE:g} %",
        "others": "other",
        "devices": f'"{" ".join(known)}"',
    }
    inner: list[str] = []
    for figure, one in ranges_of.items():
        for found in _distinct_ranges(one.by_kind, LEVELS[figure]):
            heading = f"observed {_label(figure, found.kind)} {_SOURCE}"
            inner += block_lines(heading, _observed_attributes(figure, found).items())
    for model, attributes in spreads.items():
        heading = f"job_spread jobs_{model} {_JOBS}"
        inner += block_lines(heading, {"model": model, **attributes}.items())
    text = _HEAD.format(folds=FOLDS, shares=shares)
    return text + "\n".join([*block_lines(f"accuracy {label} {_SOURCE}", head.items(), inner), ""])


def _distinct_ranges(found: Mapping[Kind, Range], levels: Levels) -> Iterator[Range]:
    """Yield the ranges of kinds that differ from the range of the enclosing kind."""
    kept: dict[Kind, Range] = {}
    for one in found.values():
        around = _narrowest_kind(kept, one.kind, levels)
        if around is None or (around.low, around.high) != (one.low, one.high):
            kept[one.kind] = one
            yield one


def _label(figure: str, kind: Kind) -> str:
    return "_".join([figure, *filter(None, kind)])


def _observed_attributes(figure: str, found: Range) -> Mapping[str, str]:
    model, family, framework = found.kind
    texts = {"family": family, "framework": framework}
    return {
        "figure": figure,
        "model": model,
        **{name: f'"{text}"' for name, text in texts.items() if text},
        "runs": str(found.runs),
        "models": str(found.models),
        "low": f"{found.low:.3f}",
        "high": f"{found.high:.3f}",
    }
