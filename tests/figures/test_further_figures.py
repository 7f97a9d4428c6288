"""Figures of a step that are made on demand, on a study of round numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Formula, Study, Work
from parcost.plugins.discovery import load

from ..evaluation import details_of

Bind = Callable[..., Study]


def work(pass_: Any, seconds: float, **more: Any) -> Work:
    name = f"{pass_} {more.get('resource', '')}"
    return Work(name=name, seconds=seconds, pass_=pass_, formula=Formula(text="given"), **more)


def values(study: Study) -> dict[str, Any]:
    outcome = study.evaluate()
    known: dict[str, Any] = {"study": study, "outcome": outcome, "brief": True}
    shown = study.plugins.ask("figures", study.faults, **known)
    found = {
        figure.name: figure.value
        for plugin, figure in (*shown, *details_of(study, outcome))
        if plugin.name == "analysis.figures"
    }
    assert study.faults == []
    return found


def pipeline(bind: Bind) -> Study:
    # Four stages, two replicas of eight micro-batches; hops take no time.
    return bind(
        {"layout.pp": 4, "training.global_batch": 16, "wire.net.bandwidth": 1e30},
        terms=[work("F", 1.0), work("B", 2.0)],
    )


def test_a_pipeline_is_counted(bind: Bind) -> None:
    found = values(pipeline(bind))
    assert found["operations"] == 4 * 8
    assert found["micro_batches"] == 8
    assert found["micro_batches_in_flight"] == 4
    assert (found["pipeline_stages"], found["layers_dealt"]) == (4, 8)
    assert found["layers_per_stage"] == found["layers_per_virtual_stage"] == 2.0


@pytest.mark.slow
def test_both_directions_of_a_device_are_alive_at_once(bind: Bind) -> None:
    """DualPipe keeps one micro-batch more than there are stages, on every device."""
    study = bind(
        {"layout.pp": 4, "training.global_batch": 16, "schedule.kind": "dualpipe"},
        schedules=[load().offers("schedules")["dualpipe"][1]],
        terms=[work("F", 1.0), work("B", 1.0), work("W", 1.0)],
    )
    assert values(study)["micro_batches_in_flight"] == 4 + 1
    outcome = study.evaluate()
    assert outcome.device_alive == [5] * 4
    asked = study.plugins.ask("sections", study.faults, study=study, outcome=outcome, brief=False)
    (table,) = [section for _, section in asked if section.title == "Memory by stage"]
    assert [row[-1] for row in table.rows] == [5] * 4


def test_the_busiest_device_may_never_idle_while_others_do(bind: Bind) -> None:
    """Two stages of 6 s and 2 s a micro-batch: the first works all the time, 8 x 6 s."""
    study = bind(
        {"layout.pp": 2, "cluster.devices": 2, "training.global_batch": 8, "wire.net.latency": 0},
        terms=[work("F", 1.0, count=(3.0, 1.0)), work("B", 1.0, count=(3.0, 1.0))],
    )
    outcome = study.evaluate()
    found = {
        f.name: f for _, f in study.plugins.ask("figures", study=study, outcome=outcome, brief=True)
    }
    assert outcome.device_seconds == [48.0, 16.0]
    assert found["bubble"].value == 0.0
    assert "busiest device" in found["bubble"].note
    assert found["bubble_average"].value == pytest.approx((0.0 + 32.0) / 48.0 / 2.0)


def test_the_layout_says_what_it_takes(bind: Bind) -> None:
    found = values(pipeline(bind))
    assert (found["replica_devices"], found["replicas"], found["batch_share"]) == (4, 2, 0.5)
    assert "nodes" not in found  # one level that joins everything: there are no nodes


def test_idle_and_sending_are_not_work(bind: Bind) -> None:
    study = bind(
        {"layout.pp": 4, "training.global_batch": 16, "wire.net.bandwidth": 1e30},
        terms=[work("F", 1.0), work("B", 2.0), work("B", 1.0, resource="net")],
    )
    found = values(study)
    step = 11 * 4.0
    assert found["idle_time"] == pytest.approx(3 * 4.0)
    assert found["communication_time"] == pytest.approx(8 * 1.0)
    assert found["bubble"] == pytest.approx(12 / step)
    assert found["scaling_efficiency"] == pytest.approx(24 / step)
    assert found["communication_overhead"] == pytest.approx(8 / 24)
    assert found["equivalent_devices"] + found["lost_devices"] == pytest.approx(8)
    assert found["equivalent_devices"] == pytest.approx(8 * 24 / step)


def test_passes_and_samples_are_figures(bind: Bind) -> None:
    found = values(pipeline(bind))
    assert (found["forward_time"], found["backward_time"]) == (8.0, 16.0)
    assert found["pipeline_time"] == pytest.approx(33.0)
    assert found["samples_per_second"] == pytest.approx(16 / 33.0)
    assert found["tokens_per_step"] == 16 * 1024


def test_sequence_parallelism_shares_the_norms_out(bind: Bind) -> None:
    plain = bind({"layout.tp": 4}, terms=[work("F", 1.0)])
    shared = bind({"layout.tp": 4, "layout.sequence_parallel": "on"}, terms=[work("F", 1.0)])
    assert values(plain)["norm_share"] == 1.0
    assert values(shared)["norm_share"] == 0.25
