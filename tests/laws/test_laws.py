"""Laws of whole steps over the vocabulary: more bandwidth is never slower, more work never faster.

The specs are those of the generator; a law is checked where a spec may run and has a step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from spec_generator import Generator

import parcost
from parcost import Outcome, Scenario, SpecError, Study
from parcost.contract.schema import Curve, block_name, block_type
from parcost.contract.study import Call
from parcost.engine.evaluation import duration_check
from parcost.engine.session import Session
from parcost.engine.study import SpecStudy
from parcost.language.units import FLOPS, RATE
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.vocabulary import CollectiveChoice, Model

GENERATOR = Generator()
SESSION = Session(GENERATOR.plugins)
SLACK = 1e-9

#: Numbers of a model of which twice as much is not more work, and why.
NOT_WORK = {
    "heads": "the size of a head follows from it: the same matrices, cut into more heads",
    "dense_first": "layers with an MLP in the place of experts",
    "moe_every": "layers with an MLP in the place of experts",
    "full_every": "fewer layers with full attention",
    "experts": "a token visits as many, and ranks with more of them share the tokens more evenly",
}
#: Work of a step by attribute; of a model, by its label.
WORK = (
    "training.global_batch",
    "training.sequence",
    *(
        name
        for name, field in block_type(Model).fields.items()
        if field.kind == "quantity" and name not in NOT_WORK
    ),
)


def step(scenario: Scenario) -> float | None:
    """Return the seconds of the only step of a scenario, None where it may not run.

    Without the figures of a report, which take longer than a step.
    """
    try:
        (study,) = scenario.studies()
        if not (study.legal() and duration_check(study).holds):
            return None
        return float(study.evaluate().step_seconds)
    except SpecError:
        return None


def step_of_report(scenario: Scenario) -> float | None:
    """Return :func:`step` from a report, whose figures estimate collectives too."""
    (result,) = scenario.evaluate().results
    return None if result.outcome is None else float(result.outcome.step_seconds)


def steps(
    seed: int, numbers: range, seconds_of: Callable[[Scenario], float | None] = step
) -> Iterator[tuple[str, Scenario, Study, float]]:
    """Yield the specs that have a step and may run, with what was set and how long it takes."""
    for number in numbers:
        case = GENERATOR.random(seed=seed, number=number)
        try:
            (scenario,) = SESSION.load_text(case.text)
            study = scenario.first
            seconds = seconds_of(scenario) if study.trains and not scenario.axes else None
        except SpecError:
            continue
        if seconds is not None:
            yield f"{number}: {case.base} {case.set}", scenario, study, seconds


def rates(study: Study) -> Mapping[str, float]:
    """Return every rate that the blocks of a study say, by path."""
    found: dict[str, float] = {}

    def look(block: Any, path: str) -> None:
        for name, field in block_type(type(block)).fields.items():
            value = getattr(block, name)
            if field.kind == "children":
                for child in value:
                    look(child, f"{path}.{block_name(child)}")
            elif field.dimension in (RATE, FLOPS) and not isinstance(value, (Curve, NoneType)):
                found[f"{path}.{name}"] = value

    for schema, blocks in study.blocks.items():
        if block_type(schema).kind in ("device", "fabric", "offload"):
            for block in blocks:
                look(block, block_name(block))
    return found


def slower_with_more_bandwidth(seed: int, numbers: range) -> Iterator[str]:
    for what, scenario, study, seconds in steps(seed, numbers):
        if study[CollectiveChoice].tuning is not None:  # it says how long, whatever the fabric
            continue
        every = rates(study)
        doubled = [{path: 2.0 * rate} for path, rate in every.items()]
        for values in (*doubled, {path: 2.0 * rate for path, rate in every.items()}):
            after = step(scenario.replace(values))
            if after is not None and after > seconds * (1 + SLACK):
                yield f"{after / seconds:.6f} with twice {', '.join(values)}; {what}"


def slower_along_a_fine_sweep(seed: int, numbers: range) -> Iterator[str]:
    """Yield the steps that grow from one point of a sweep to the next, an eighth faster."""
    for what, scenario, study, seconds in steps(seed, numbers):
        if study[CollectiveChoice].tuning is not None:
            continue
        for path, rate in rates(study).items():
            swept = {path: [rate * 1.125**i for i in range(1, 25)]}
            try:
                rows = scenario.replace(swept).evaluate().rows()
            except SpecError:
                continue
            times = [seconds, *itertools.takewhile(bool, (row["step_time"] for row in rows))]
            for i, (before, after) in enumerate(itertools.pairwise(times), 1):
                if after > before * (1 + SLACK):
                    yield f"{after / before:.6f} with {path} times {1.125**i:.3f}; {what}"


SWEPT = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
use catalog.fabrics.hgx_h100
use catalog.models.{model}
device h100_sxm {{ memory = 10 TB }}
cluster {{ devices = 256 }}
fabric hgx_h100 {{ level network {{ bandwidth = {bandwidth} per_direction }} }}
layout {{ {layout} }}
training {{ micro_batch = 1, {training} }}
"""


def times_by_network(model: str, layout: str, training: str, gbps: range) -> list[float]:
    swept = [f"{rate} Gbps" for rate in gbps]
    text = SWEPT.format(
        model=model, layout=layout, training=training, bandwidth=f"[{', '.join(swept)}]"
    )
    (scenario,) = parcost.load_text(text)
    (result,) = scenario.evaluate().results
    assert result.outcome is not None
    return [float(seconds) for seconds in result.outcome.step_seconds]


@pytest.mark.parametrize(
    ("model", "layout", "training"),
    [
        (
            "mixtral_8x7b",
            "tp = 8, pp = 2, zero = 1, sequence_parallel = on",
            "sequence = 8192, global_batch = 128 sequences, recompute = full",
        ),
        (
            "llama3_8b",
            "tp = 4, zero = 3",
            "sequence = 4096, global_batch = 256 sequences, recompute = selective",
        ),
    ],
)
def test_a_faster_network_never_lengthens_a_step_where_the_node_becomes_the_limit(
    model: str, layout: str, training: str
) -> None:
    """From 200 Gbps to 2 Tbps: traffic of a ring over both levels is busy on each of them."""
    seconds = times_by_network(model, layout, training, range(200, 2000, 25))
    assert all(b <= a * (1 + SLACK) for a, b in itertools.pairwise(seconds))
    assert seconds[-1] < 0.95 * seconds[0]


def faster_with_more_work(seed: int, numbers: range) -> Iterator[str]:
    for what, scenario, study, seconds in steps(seed, numbers):
        (training,) = (
            b
            for s, found in study.blocks.items()
            for b in found
            if block_type(s).kind == "training"
        )
        for name in WORK:
            if name == "layers" and training.model.parameters is not None:
                continue  # the same parameters in more layers are no more work
            path = name if "." in name else f"{block_name(training.model)}.{name}"
            block = training if "." in name else training.model
            value = getattr(block, name.rpartition(".")[2])
            if not value or isinstance(value, bool):
                continue
            more = {path: 2 * value}
            after = step(scenario.replace(more))
            if after is not None and after < seconds * (1 - SLACK):
                # A larger model may have its gradients in more buckets, and more of them hide:
                # without overlap it is not faster.
                alone = {"overlap.gradients": "off", "overlap.parameters": "off"}
                one, both = (step(scenario.replace(alone | each)) for each in ({}, more))
                if one is None or both is None or both < one * (1 - SLACK):
                    yield f"{after / seconds:.6f} with twice {path}; {what}"


def below_their_bounds(seed: int, numbers: range, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the collectives of steps that take less than nothing can beat."""
    asked: list[tuple[Study, str, Any, Any, str, Call]] = []
    plain = SpecStudy.collective

    def collective(
        self: SpecStudy, operation: str, n: Any, group: Any, algorithm: str = "auto"
    ) -> Call:
        call = plain(self, operation, n, group, algorithm)
        asked.append((self, operation, n, group, algorithm, call))
        return call

    monkeypatch.setattr(SpecStudy, "collective", collective)
    priced = 0
    for what, *_ in steps(seed, numbers, step_of_report):
        for study, operation, n, group, algorithm, call in asked:
            if algorithm == "nccl":  # the library's own prediction, by its own table
                continue
            bound = plain(study, operation, n, group, "lower_bound").seconds
            shares = np.asarray(call.seconds) / np.maximum(bound, 1e-300)  # details ask for arrays
            if np.any((bound > 0) & (shares < 1 - SLACK)):
                name = group if isinstance(group, str) else group.name
                yield f"{np.min(shares):.6f} {operation} in {name} by {call.algorithm}; {what}"
        priced += len(asked)
        asked.clear()
    if not priced:
        yield "no collective was estimated"


@pytest.mark.slow
def test_more_bandwidth_is_never_slower() -> None:
    assert not list(slower_with_more_bandwidth(23, range(250)))


@pytest.mark.slow
def test_more_bandwidth_is_never_slower_along_fine_sweeps() -> None:
    assert not list(slower_along_a_fine_sweep(26, range(25)))


@pytest.mark.slow
def test_more_work_is_never_faster() -> None:
    assert not list(faster_with_more_work(24, range(250)))


@pytest.mark.slow
def test_no_collective_of_a_step_beats_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(below_their_bounds(25, range(500), monkeypatch))


@pytest.mark.slow
def test_the_laws_see_a_step_that_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A law that nothing can break says nothing: here seconds shrink as they grow."""
    plain = SpecStudy.evaluate

    def upside_down(self: SpecStudy) -> Outcome:
        outcome = plain(self)
        return evolve(outcome, step_seconds=1 / outcome.step_seconds)

    monkeypatch.setattr(SpecStudy, "evaluate", upside_down)
    assert any(slower_with_more_bandwidth(20, range(12)))
    assert any(faster_with_more_work(21, range(20)))


@pytest.mark.slow
def test_the_laws_see_a_collective_that_beats_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "phases", lambda *_: [])
    assert any("by ring" in line for line in below_their_bounds(23, range(100), monkeypatch))
