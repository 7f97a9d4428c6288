"""The anchors of a study, each evaluated as the run that was measured.

An anchor is the study of its file with other settings. Values from the command line, a sweep or a
search do not change its prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, log, nan
from statistics import fmean, median
from typing import Any

from attrs import evolve, field

from parcost import (
    Outcome,
    ParcostError,
    SpecError,
    Study,
    block_name,
    block_type,
    percent,
    record,
    spec_text,
)
from parcost.numeric import all_of, array_kind
from parcost_plugins.physics import flops_per_token
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.physics.anchor_causes import (
    CauseFactors,
    choose_factors,
    step_parts,
    table,
)
from parcost_plugins.physics.memory_counters import allocated_memory, reserved_memory
from parcost_plugins.physics.shrinkage import (
    Shrinkage,
    Spread,
    disagree,
    leave_one_out,
    outliers,
    shrink,
)
from parcost_plugins.vocabulary import Adapters, Anchor, Cluster, JobSpread, Training
from parcost_plugins.vocabulary.anchor import read_settings

#: Attributes of a recipe that tell jobs apart.
_RECIPE = ("compute", "narrow", "microscaled", "scale_block")
_ALIKE = 0.01  # relative tolerance of one run's prediction in two specs
_REPEATS = 1.2  # largest ratio of the slowest to the fastest repeat


def _printable_text(text: str) -> str:
    """Return a text of a file with control characters escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@record(kw_only=True)
class Comparison:
    """An anchor and the prediction of its run; one with a *reason* is not used.

    *seconds* is the measured step time, *predicted* the predicted one, split into *parts*. Bytes
    are pairs of measured and predicted values. Runs of one *layout* are repeats.
    """

    name: str
    reason: str = field(default="", converter=_printable_text)
    seconds: float | None = None
    predicted: float = 0.0
    allocated: tuple[float, float] | None = None
    reserved: tuple[float, float] | None = None
    layout: tuple[float, ...] = ()
    parts: Mapping[str, float] = field(factory=dict)

    @property
    def residual(self) -> float | None:
        """The logarithm of measured / predicted seconds; None if no time was measured."""
        return None if self.seconds is None else log(self.seconds / self.predicted)


@record(kw_only=True)
class Anchoring:
    """The anchors of a study, and the corrections that follow from them.

    *reserved* and *allocated* are the mean of measured minus predicted bytes; None if no anchor has
    them. *left_out* is the leave-one-out error of each layout, predicted / measured - 1. *causes*
    are factors by cause, if these have smaller leave-one-out errors.
    """

    compared: Sequence[Comparison]
    step: Shrinkage
    reserved: float | None = None
    allocated: float | None = None
    left_out: Mapping[tuple[float, ...], float] = field(factory=dict)
    causes: CauseFactors | None = None

    @property
    def count(self) -> int:
        """The number of anchors that are used."""
        return sum(not one.reason for one in self.compared)


def find_anchoring(study: Study) -> Anchoring | None:
    """Return the evaluated anchors of *study*, None if there are none."""
    anchors, training = study.all(Anchor), study.get(Training)
    if not anchors or training is None:
        return None
    jobs = job_spread(training)
    if jobs is None:
        return _ignore_all(anchors, f"`{block_name(training.accuracy)}` has no `job_spread`")
    try:
        written = study.as_written()
    except SpecError as error:
        return _ignore_all(anchors, f"the file alone is not a study: {error.first_message}")
    spread = Spread(between=float(jobs.between), within=float(jobs.within))
    found = _without_contradictions([_compare(study, written, one) for one in anchors], spread)
    residuals = _residuals(found)
    others = leave_one_out(list(residuals.values()), spread) if residuals else []
    seconds = _by_layout(found, lambda one: one.seconds)
    parts = {one.layout: one.parts for one in found}
    causes, apart = choose_factors(
        [median(values) for values in seconds.values()],
        [parts[layout] for layout in seconds],
        others,
        spread.within,
    )
    return Anchoring(
        compared=found,
        left_out={one: exp(-far) - 1 for one, far in zip(residuals, apart, strict=True)},
        causes=causes,
        step=shrink(list(residuals.values()), spread),
        reserved=_offset(found, lambda one: one.reserved),
        allocated=_offset(found, lambda one: one.allocated),
    )


def job_spread(training: Training) -> JobSpread | None:
    """Return the spread between jobs with this kind of model (dense or MoE); None if unknown."""
    return training.accuracy.spread_of("experts" if training.model.experts > 1 else "dense")


def _ignore_all(anchors: Sequence[Anchor], reason: str) -> Anchoring:
    compared = [Comparison(name=block_name(one), reason=reason) for one in anchors]
    return Anchoring(compared=compared, step=shrink([], Spread(between=0.0, within=1.0)))


# --- one anchor ---------------------------------------------------------------------------


def _compare(study: Study, written: Study, anchor: Anchor) -> Comparison:
    """Return an anchor and its run, or with the reason why it is not used."""
    name = block_name(anchor)
    swept = [one for one in block_type(Anchor).fields if array_kind(getattr(anchor, one))]
    if swept:
        return Comparison(
            name=name, reason=f"an anchor describes one run, but `{swept[0]}` is swept"
        )
    try:
        run = written.replace(read_settings(anchor.settings))
        if run.axes:
            axes = ", ".join(f"`{path}`" for path, _ in run.axes)
            reason = f"the file sweeps {axes}: write the value of the run in `settings`"
            return Comparison(name=name, reason=reason)
        reason = _contradiction(run, anchor) or _other_job(study, run)
        if reason:
            return Comparison(name=name, reason=reason)
        if not all_of(run.legal()):
            failed = [check for _, check in run.contributions("checks") if not all_of(check.holds)]
            ids = ", ".join(dict.fromkeys(check.id for check in failed))
            return Comparison(name=name, reason=f"the run is invalid: {ids}")
        outcome = run.evaluate()
    except ValueError as error:
        return Comparison(name=name, reason=str(error))
    except ParcostError as error:
        return Comparison(name=name, reason=error.first_message)
    return _comparison(run, outcome, anchor)


def _comparison(run: Study, outcome: Outcome, anchor: Anchor) -> Comparison:
    """Return the measured values of a run beside its prediction."""
    training, devices = run[Training], float(run[Cluster].devices)
    tokens = float(training.global_batch * training.sequence)
    seconds = None if anchor.step_time is None else float(anchor.step_time)
    rate = anchor.tokens_per_second_per_device
    if seconds is None and rate is not None:
        seconds = tokens / (devices * float(rate))
    predicted = float(outcome.step_seconds)
    found = Comparison(
        name=block_name(anchor),
        seconds=seconds,
        predicted=predicted,
        allocated=_pair(anchor.allocated, float(allocated_memory(outcome).value)),
        reserved=_pair(anchor.reserved, float(reserved_memory(run, outcome).value)),
        layout=(predicted, float(outcome.memory_bytes)),
        parts={name: float(part) for name, part in step_parts(outcome).items()},
    )
    apart = None if anchor.predicted is None else float(anchor.predicted)
    if apart is not None and abs(predicted / apart - 1) > _ALIKE:
        reason = (
            f"predicted at {apart:.4g} s by its own spec, but at {predicted:.4g} s here: the file "
            "or the catalogue differs in more than `settings`"
        )
        return evolve(found, reason=reason)
    peak = getattr(run[Cluster].device, training.precision.compute)
    if seconds is not None and training.precision.narrow == "none" and peak:
        mfu = float(flops_per_token(run)) * tokens / (devices * seconds * float(peak))
        if mfu > 1:
            return evolve(found, reason=f"a step of {seconds:.4g} s is an MFU of {percent(mfu, 0)}")
    farthest = table()["limits"]["farthest"]
    if seconds is not None and not predicted / farthest <= seconds <= predicted * farthest:
        factor = f"{seconds / predicted:.3g} times the prediction of {predicted:.4g} s"
        return evolve(
            found, reason=f"a step of {seconds:.4g} s is {factor}: correct its unit, or the job"
        )
    return found


def _pair(measured: Any, predicted: float) -> tuple[float, float] | None:
    return None if measured is None else (float(measured), predicted)


def _contradiction(run: Study, anchor: Anchor) -> str:
    """Return the reason why the run contradicts the `job` of its anchor; "" if it agrees."""
    for path, text in read_settings(anchor.job).items():
        kind, _, name = path.partition(".")
        block = _parts(run).get(kind)
        if block is None or name not in {"", *block_type(type(block)).fields}:
            return f"`job` has `{path}`, which is not an attribute of a model, device or precision"
        value = _text(getattr(block, name)) if name else block_name(block)
        same = value == text or (not name and value.endswith(f"_{text}"))
        if not same and _number(value) != _number(text):
            return f"of another job: `{path}` was {text}, and is {value} here"
    return ""


def _parts(study: Study) -> Mapping[str, Any]:
    """Return the blocks that identify a job: model, device, precision and framework."""
    training, device = study[Training], study[Cluster].device
    return {
        "model": training.model,
        "device": device,
        "precision": training.precision,
        "framework": training.framework,
    }


def _other_job(study: Study, run: Study) -> str:
    """Return the reason why *study* is another job than the run of an anchor; "" if it is the same
    job.
    """
    here, there = _parts(study), _parts(run)
    if trains_model(study) != trains_model(run):
        return "of another job: only one of the two trains adapters"
    if (one := _adapters(study)) != (other := _adapters(run)):
        name = next(name for name in one if one[name] != other[name])
        return f"of another job: `adapters.{name}` was {other[name]}, and is {one[name]} here"
    for kind in ("device", "framework"):
        if block_name(here[kind]) != block_name(there[kind]):
            names = f"`{block_name(there[kind])}`, but here it is `{block_name(here[kind])}`"
            return f"of another {kind}: {names}"
    compared = {"model": tuple(block_type(type(here["model"])).fields), "precision": _RECIPE}
    for kind, attributes in compared.items():
        for name in attributes:
            ours, theirs = getattr(here[kind], name), getattr(there[kind], name)
            if array_kind(ours):
                return f"of another {kind}: `{name}` is swept here"
            if ours != theirs:
                values = f"{_text(theirs)}, and here it is {_text(ours)}"
                return f"of another {kind}: `{name}` was {values}"
    return ""


def _adapters(study: Study) -> Mapping[str, str]:
    """Return the attributes of the adapters of *study* as text; "" without adapters."""
    adapters = study.get(Adapters)
    if adapters is None:
        return {}
    return {name: _text(getattr(adapters, name)) for name in block_type(Adapters).fields}


def _text(value: Any) -> str:
    """Return a value as text of a spec."""
    value = spec_text(value)
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)


def _number(text: str) -> float:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return nan


# --- anchors together -----------------------------------------------------------------------


def _without_contradictions(compared: Sequence[Comparison], spread: Spread) -> list[Comparison]:
    """Return the anchors. Anchors that contradict others get a reason and are not used."""
    found = list(compared)
    for layout, seconds in _by_layout(found, lambda one: one.seconds).items():
        if max(seconds) > _REPEATS * min(seconds):
            ends = f"{min(seconds):.4g} s and {max(seconds):.4g} s"
            found = _reject(found, layout, f"anchors disagree: one layout took {ends}")
    residuals = _residuals(found)
    layouts = list(residuals)
    for i in outliers(list(residuals.values()), spread):
        factor = exp(residuals[layouts[i]] - median(residuals.values()))
        reason = (
            f"anchors disagree: measured / predicted is {factor:.2f} times the value of the others"
        )
        found = _reject(found, layouts[i], reason)
    if disagree(list(_residuals(found).values()), spread):
        ratios = [exp(one) for one in _residuals(found).values()]
        reason = f"anchors disagree: measured / predicted is {min(ratios):.2f} to {max(ratios):.2f}"
        for layout in _residuals(found):
            found = _reject(found, layout, reason)
    return found


def _reject(
    compared: Sequence[Comparison], layout: tuple[float, ...], reason: str
) -> list[Comparison]:
    return [
        evolve(one, reason=reason) if one.layout == layout and not one.reason else one
        for one in compared
    ]


def _by_layout(
    compared: Sequence[Comparison], value: Callable[[Comparison], float | None]
) -> dict[tuple[float, ...], list[float]]:
    """Return the values of used anchors by layout; repeats share a layout."""
    found: dict[tuple[float, ...], list[float]] = {}
    for one in compared:
        number = None if one.reason else value(one)
        if number is not None:
            found.setdefault(one.layout, []).append(number)
    return found


def _residuals(compared: Sequence[Comparison]) -> dict[tuple[float, ...], float]:
    """Return the residual of each layout: the median of its repeats."""
    layouts = _by_layout(compared, lambda one: one.residual)
    return {layout: median(values) for layout, values in layouts.items()}


def _offset(
    compared: Sequence[Comparison],
    memory: Callable[[Comparison], tuple[float, float] | None],
) -> float | None:
    """Return the mean over layouts of measured minus predicted bytes; None without any."""

    def beyond(one: Comparison) -> float | None:
        pair = memory(one)
        return None if pair is None else pair[0] - pair[1]

    layouts = _by_layout(compared, beyond)
    return fmean(sorted(map(median, layouts.values()))) if layouts else None
