"""Levers, and what the answer rests on: the study again, one value changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import Formula, Section, Study, Work
from parcost.engine.reduce import evaluate
from parcost_plugins.analysis.advice.levers import improvements
from parcost_plugins.vocabulary import Cluster, KernelChoice, Parameters

Bind = Callable[..., Study]


def sections(study: Study) -> dict[str, Section]:
    outcome = evaluate(study)
    asked = study.plugins.ask("sections", study=study, outcome=outcome, brief=False)
    found = {section.title: section for _, section in asked}
    assert study.faults == []
    return found


def forward_work(seconds: Any) -> Work:
    return Work(name="f", seconds=seconds, pass_="F", formula=Formula(text="given"))


def machine(study: Study) -> list[Work]:
    """1 s at the peak, and 2 s that depend on nothing."""
    return [forward_work(1e14 / study[Cluster].device.bf16 + 2.0)]


def parameters(elements: float) -> list[Parameters]:
    return [Parameters(name="p", elements=elements, total=elements, count=(1.0,))]


def helps(study: Study) -> dict[str, tuple[float, float]]:
    rows = sections(study)["Levers"].rows
    return {title: (step, change) for title, (step, _), (change, _) in rows}


@pytest.mark.slow
def test_twice_the_machine_gains_what_it_takes_of_the_step(bind: Bind) -> None:
    # 3 s of work, 1.75 s of all-reduce over 8 ranks, 60 ms of update, at half the bandwidth.
    study = bind(terms=machine, parameters=parameters(1e9 / 4))
    before = 3.0 + 1.75 + 0.015
    assert evaluate(study).step_seconds == pytest.approx(before)
    found = helps(study)
    assert found["bf16 peak x 2"] == (pytest.approx(before - 0.5), pytest.approx(-0.5 / before))
    assert found["bandwidth of `net` x 2"][0] == pytest.approx(before - 0.875)
    assert found["memory bandwidth x 2"][0] == pytest.approx(before - 0.0075)
    assert "latency of `net` / 2" not in found


@pytest.mark.slow
def test_the_strongest_lever_is_first(bind: Bind) -> None:
    study = bind(terms=machine, parameters=parameters(1e9 / 4))
    steps = [step for step, _ in helps(study).values()]
    assert steps == sorted(steps)


@pytest.mark.slow
def test_overlap_that_is_off_is_tried(bind: Bind) -> None:
    values = {"overlap.bucket": 1e8}
    study = bind(values, terms=machine, parameters=parameters(1e9 / 4))
    # Backward is missing here: nothing to hide under, so it is the forward pass that helps.
    assert "overlap.gradients = on" not in helps(study)
    gathered = bind({**values, "layout.zero": 1}, terms=machine, parameters=parameters(1e9 / 4))
    # 0.5 GB are gathered in 0.4375 s, in the 10 buckets of gradients; the first cannot hide.
    step, _ = helps(gathered)["overlap.parameters = on"]
    assert step == pytest.approx(evaluate(gathered).step_seconds - 0.4375 * 9 / 10)


@pytest.mark.slow
def test_a_plugin_without_arrays_is_called_point_by_point(bind: Bind) -> None:
    def scalar(study: Study) -> list[Work]:
        return [forward_work(1.0 if study[Cluster].device.bf16 > 1.5e14 else 2.0)]

    assert helps(bind(terms=scalar))["bf16 peak x 2"] == (1.0, -0.5)


def test_the_study_itself_is_left_alone(bind: Bind) -> None:
    study = bind(terms=machine)
    before = evaluate(study).step_seconds
    sections(study)
    assert study[Cluster].device.bf16 == 1e14
    assert evaluate(study.fresh()).step_seconds == before


def test_an_answer_rests_on_the_weakest_values_that_move_it(bind: Bind) -> None:
    def shaped(study: Study) -> list[Work]:
        return [forward_work(1.0 / study[KernelChoice].shape_efficiency)]

    found = sections(bind(terms=shaped))["Inputs by provenance"]
    ((name, (value, unit), kind, step, _),) = found.rows
    assert (name, value, unit, kind) == ("kernels.shape_efficiency", 0.92, "", "assumed")
    assert step == (pytest.approx(1 / 0.9 - 1), "%")
    assert found.notes[-1] == "inputs with an effect, by provenance: 1 assumed"


def test_a_job_value_without_provenance_is_a_choice(bind: Bind) -> None:
    found = sections(bind(terms=machine))["Inputs by provenance"]
    assert [row[0] for row in found.rows] == ["plain.bf16"]  # of the device, and no other


@pytest.mark.slow
def test_a_device_value_without_provenance_is_the_weakest() -> None:
    text = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
device mine extends h100_sxm { matmul_efficiency = 70 % }
cluster { device = mine, devices = 8 }
layout { tp = 8, zero = 1, sequence_parallel = on }
training { sequence = 2048, global_batch = 8 sequences }
"""
    result = parcost.load_text(text)[0].evaluate().result
    (section,) = [s for _, s in result.sections if s.title == "Inputs by provenance"]
    assert [(row[0], row[2]) for row in section.rows] == [
        ("mine.matmul_efficiency", "no provenance")
    ]


@pytest.mark.slow
def test_each_part_of_the_machine_is_improved_in_turn() -> None:
    text = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
device own extends h100_sxm {
  bf16 = 100 TFLOP/s dense, memory_bandwidth = 3 TB/s, host_bandwidth = 50 GB/s per_direction
  power = 700 W, power_cap = 500 W
}
fabric wires { level net { bandwidth = 7 GB/s per_direction, latency = 5 us } }
framework slow { issue = 6 us, graph_issue = 2 us }
cluster { device = own, devices = 8 }
layout { tp = 2 }
training { framework = slow, sequence = 2048, global_batch = 8 sequences }
"""
    (study,) = parcost.load_text(text)[0].studies()
    found = {title: (change.attribute, change.value) for title, change in improvements(study)}
    assert found == {
        "bf16 peak x 2": ("bf16", 200e12),
        "memory bandwidth x 2": ("memory_bandwidth", 6e12),
        "no power cap: own.power_cap = 700 W": ("power_cap", 700),
        "bandwidth to the host x 2": ("host_bandwidth", 100e9),
        "time of the host for a kernel / 2": ("issue", pytest.approx(3e-6)),
        "CUDA graphs: kernels.cuda_graphs = layer": ("cuda_graphs", "layer"),
        "CUDA graphs: kernels.cuda_graphs = iteration": ("cuda_graphs", "iteration"),
        "bandwidth of `net` x 2": ("bandwidth", 14e9),
        "latency of `net` / 2": ("latency", pytest.approx(2.5e-6)),
        "overlap.tensor = on": ("tensor", "on"),
    }
    free = parcost.load_text(text.replace(", power_cap = 500 W", ""))[0].studies()[0]
    assert {title for title, _ in improvements(free)} == {*found} - {
        "no power cap: own.power_cap = 700 W"
    }


@pytest.mark.slow
def test_a_report_of_one_screen_has_the_levers_of_the_whole_one() -> None:
    (scenario,) = parcost.load_text(
        "use catalog.devices.h100_sxm\n"
        "use catalog.fabrics.hgx_h100\n"
        "use catalog.models.llama3_70b\n"
        "use catalog.precisions.bf16\n"
        "cluster { devices = 64 }\n"
        "layout { tp = 8, pp = 4, zero = 1 }\n"
        "training { sequence = 8192, global_batch = 32 sequences }\n"
    )
    brief, whole = scenario.evaluate().result, scenario.evaluate().result
    (shown,) = (section for _, section in brief.brief_sections if section.title == "Levers")
    (levers,) = (section for _, section in whole.sections if section.title == "Levers")
    assert [row[0] for row in shown.rows] == [row[0] for row in levers.rows]
    for (_, *ours), (_, *theirs) in zip(shown.rows, levers.rows, strict=True):
        assert [n for n, _ in ours] == pytest.approx([n for n, _ in theirs], rel=1e-12)
    titles = {section.title for _, section in whole.sections}
    assert titles > {section.title for _, section in brief.brief_sections}
