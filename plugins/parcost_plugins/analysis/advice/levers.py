"""Changes of the step time by another setting, by twice as fast hardware, or by another order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from parcost import Chart, Curve, Outcome, Section, Study, block_name, formula
from parcost.numeric import is_array
from parcost_plugins.analysis.advice.changes import Change, Effect
from parcost_plugins.physics.run_choices import HIDING, tensor_overlap
from parcost_plugins.vocabulary import Cluster, KernelChoice, Overlap, Training
from parcost_plugins.vocabulary.framework import CUDA_GRAPHS
from parcost_plugins.vocabulary.offers import has

if TYPE_CHECKING:
    from parcost_plugins.analysis.advice.reach import Attempt

_MOST_BARS = 20
_BAR_HEIGHT = 22
_LEAD = 3  # rows on the report of one screen
_OF_THE_JOB = (KernelChoice, Overlap)  # blocks of settings; the others are of the machine
_LEAST = 0.001  # of the step; what changes it less is not listed


class Gain(NamedTuple):
    """A change and the resulting step time; *setting* is False for a change of hardware."""

    title: str
    seconds: float
    change: float
    setting: bool


def gains(tried: Sequence[tuple[str, Change]], found: Sequence[Effect]) -> list[Gain]:
    """Return the step time with each change of a block."""
    return [
        Gain(title, effect.seconds, effect.time, isinstance(change.block, _OF_THE_JOB))
        for (title, change), effect in zip(tried, found, strict=True)
    ]


def gains_of_settings(made: Sequence[Attempt], before: Outcome) -> list[Gain]:
    """Return the step time with each change of the spec."""
    return [
        Gain(
            attempt.title,
            float(attempt.outcome.step_seconds),
            float(attempt.outcome.step_seconds / before.step_seconds - 1.0),
            setting=True,
        )
        for attempt in made
        if not is_array(attempt.outcome.step_seconds, before.step_seconds)
    ]


def section(
    tried: Sequence[Gain], orders: Sequence[Change] = (), effects: Sequence[Effect] = ()
) -> Section:
    """Return the changes that help, and the best of other *orders* of the degrees.

    The two best settings and the best hardware improvement come first, for the short report.
    """
    kept = [gain for gain in tried if gain.change <= -_LEAST]
    slower = sum(gain.change >= _LEAST for gain in tried)
    small = len(tried) - len(kept) - slower
    notes = [_remainder_text(small)] if small else []
    if slower:
        notes.append(
            f"{slower} other change{' makes' if slower == 1 else 's make'} the step slower"
        )
    if orders:
        best, effect = min(zip(orders, effects, strict=True), key=lambda pair: pair[1].seconds)
        if effect.time <= -_LEAST:
            title = f'layout.order = "{best.value}"'
            kept.append(Gain(title, effect.seconds, effect.time, setting=True))
        else:
            count = len(orders)
            notes.append(
                "1 other value of `layout.order` was tried; it is not faster"
                if count == 1
                else f"{count} other values of `layout.order` were tried; none is faster"
            )
    return Section(
        title="Levers",
        columns=("with", "step", "change"),
        rows=[(gain.title, (gain.seconds, "s"), (gain.change, "%")) for gain in _ranking(kept)],
        notes=notes,
        chart=chart(kept),
        lead=_LEAD,
    )


def chart(kept: Sequence[Gain]) -> Chart | None:
    """Return bars of the seconds that each change saves, longest first; None if there are none."""
    gains = sorted(kept, key=lambda gain: gain.change)[:_MOST_BARS]
    if not gains:
        return None
    more = len(kept) - len(gains)
    return Chart(
        name="levers",
        title="Step time saved by each change",
        place=50,
        notes=[
            "Each change alone. Orange: a setting changed. Blue: hardware twice as fast.",
            *([f"The first {len(gains)} of {len(kept)}."] if more else []),
        ],
        spec={"height": _BAR_HEIGHT * len(gains), **_SPEC},
        columns={
            "title": "with",
            "kind": "of",
            "seconds": "step",
            "change": "change",
            "formula": "formula",
        },
        rows=[_bar(gain, place) for place, gain in enumerate(gains)],
    )


def _bar(gain: Gain, place: int) -> dict[str, Any]:
    before = gain.seconds / (1.0 + gain.change)
    change = formula(
        "T / T_0 - 1", T=(gain.seconds, "s"), T_0=(before, "s"), source="evaluated with the change"
    )
    return {
        "title": gain.title,
        "place": place,
        "kind": "setting" if gain.setting else "machine",
        "seconds": (gain.seconds, "s"),
        "percent": 100.0 * gain.change,
        "change": (gain.change, "%"),
        "formula": change,
    }


_SPEC: Mapping[str, Any] = {
    "mark": "bar",
    "encoding": {
        "y": {
            "field": "title",
            "type": "nominal",
            "sort": {"field": "place", "op": "min"},
            "axis": {"title": None, "ticks": False, "domain": False},
        },
        "x": {
            "field": "percent",
            "type": "quantitative",
            "axis": {"title": "change of the step (%)", "orient": "top"},
        },
        "color": {
            "field": "kind",
            "type": "nominal",
            "scale": {"domain": ["setting", "machine"], "range": ["#E69F00", "#0072B2"]},
            "legend": {"title": None},
        },
    },
}


def _ranking(kept: Sequence[Gain]) -> list[Gain]:
    """Return the rows of the short report first, then the others; each part by step time."""
    by_step = sorted(kept, key=lambda gain: gain.seconds)
    settings = [gain for gain in by_step if gain.setting]
    machine = [gain for gain in by_step if not gain.setting]
    most = _LEAD - 1 if machine else _LEAD
    first = [*settings[:most], *machine][:_LEAD]
    return [*first, *(gain for gain in by_step if gain not in first)]


def _remainder_text(small: int) -> str:
    changes = "1 other change moves" if small == 1 else f"{small} other changes move"
    return f"{changes} the step time by less than 0.1 %"


def improvements(study: Study) -> list[tuple[str, Change]]:
    """Return the hardware improvements to try, as text and as a change."""
    return list(_improvements(study))


def _improvements(study: Study) -> Iterator[tuple[str, Change]]:
    device, overlap, kernels = study[Cluster].device, study[Overlap], study[KernelChoice]
    precision = study[Training].precision
    for type_ in (precision.compute, precision.narrow):
        peak = getattr(device, type_, None)  # the narrow type may be "none"
        if peak is not None:
            yield f"{type_} peak x 2", Change(device, type_, 2.0 * peak)
    yield "memory bandwidth x 2", Change(device, "memory_bandwidth", 2.0 * device.memory_bandwidth)
    if device.power_cap is not None and device.power is not None:
        lifted = f"no power cap: {block_name(device)}.power_cap = {device.power:g} W"
        yield lifted, Change(device, "power_cap", device.power)
    if device.host_bandwidth is not None:
        host = device.host_bandwidth
        yield "bandwidth to the host x 2", Change(device, "host_bandwidth", 2.0 * host)
    framework = study[Training].framework
    yield "time of the host for a kernel / 2", Change(framework, "issue", framework.issue / 2.0)
    captured = kernels.cuda_graphs or framework.cuda_graphs
    more = CUDA_GRAPHS[CUDA_GRAPHS.index(captured) + 1 :]
    for graphs in more if framework.graph_issue is not None else ():
        yield f"CUDA graphs: kernels.cuda_graphs = {graphs}", Change(kernels, "cuda_graphs", graphs)
    for level in study[Cluster].fabric.levels:
        rate = level.bandwidth
        faster = Curve(rate.sizes, rate.seconds / 2.0) if isinstance(rate, Curve) else rate * 2.0
        yield f"bandwidth of `{block_name(level)}` x 2", Change(level, "bandwidth", faster)
        yield f"latency of `{block_name(level)}` / 2", Change(level, "latency", level.latency / 2.0)
    for attribute, hides in HIDING.items():
        if not hides(study) and has(study, f"overlap.{attribute}", "on"):
            yield f"overlap.{attribute} = on", Change(overlap, attribute, True)
    if tensor_overlap(study) == "off" and has(study, "overlap.tensor", "on"):
        yield "overlap.tensor = on", Change(overlap, "tensor", "on")
