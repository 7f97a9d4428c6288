"""The headline numbers, each against its definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parcost import Figure, Formula, Study, Work
from parcost.engine.reduce import evaluate
from parcost.language.units import known_units
from parcost_plugins.vocabulary import ModelFlops, Parameters

Bind = Callable[..., Study]


def work(name: str, pass_: Any, seconds: float, **more: Any) -> Work:
    return Work(name=name, seconds=seconds, pass_=pass_, formula=Formula(text="given"), **more)


def figures(study: Study) -> dict[str, Figure]:
    outcome = evaluate(study)
    found = {
        f.name: f for _, f in study.plugins.ask("figures", study=study, outcome=outcome, brief=True)
    }
    assert study.faults == []
    return found


def values(study: Study) -> dict[str, Any]:
    return {name: figure.value for name, figure in figures(study).items()}


def model_flops(per_token: float) -> ModelFlops:
    return ModelFlops(name="matmul", per_token=per_token, kind="matmul")


def test_tokens_are_those_of_all_replicas(bind: Bind) -> None:
    study = bind({"training.global_batch": 16}, terms=[work("f", "F", 1.0), work("b", "B", 3.0)])
    found = values(study)
    assert found["step_time"] == 8.0  # two micro-batches on each of eight replicas
    assert found["tokens_per_second"] == 16 * 1024 / 8.0
    assert found["tokens_per_second_per_device"] == 16 * 1024 / 8.0 / 8


def test_utilisation_of_llama_3_1_405b_on_16384_devices(bind: Bind) -> None:
    # 2.523956e12 FLOP per token and 16 Mi tokens a step: 400 TFLOP/s on each device, 40.4 %
    # of 989, come to 6.46 s.
    study = bind(
        {
            "cluster.devices": 16384,
            "plain.bf16": 989e12,
            "training.sequence": 8192,
            "training.global_batch": 2048 * 8,
            "training.micro_batch": 1,
        },
        flops=[model_flops(2.523956e12 / 3)],
        terms=[work("f", "F", 6.461 * 8)],
    )
    found = values(study)
    assert found["flops_per_token"] == pytest.approx(2.523956e12)
    assert found["flops_per_device"] == pytest.approx(400e12, rel=1e-3)
    assert found["mfu"] == pytest.approx(0.4044, abs=5e-4)


def test_hardware_utilisation_counts_what_every_stage_executes(bind: Bind) -> None:
    # Two stages; the second runs a head as well, so the busiest executes more than the average.
    study = bind(
        {"layout.pp": 2, "cluster.devices": 2, "training.global_batch": 4},
        flops=[model_flops(1e9)],
        terms=[
            work("layers", "F", 1.0, count=(4.0, 4.0), flops=1e12),
            work("head", "F", 1.0, count=(0.0, 1.0), flops=3e12),
        ],
    )
    found = values(study)
    executed = 4 * (8 * 1e12 + 3e12) / 2
    assert found["hfu"] == pytest.approx(executed / found["step_time"] / 100e12)


@pytest.mark.slow
def test_model_utilisation_is_at_most_that_of_the_hardware(bind: Bind) -> None:
    tokens = 1024.0
    study = bind(
        flops=[model_flops(1e9)],
        terms=[
            work("f", "F", 1.0, flops=2 * 1e9 * tokens),
            work("b", "B", 1.0, flops=2e9 * tokens),
        ],
    )
    found = values(study)
    assert found["mfu"] == pytest.approx(0.75 * found["hfu"])


def test_the_bubble_of_the_makespan_and_over_ideal(bind: Bind) -> None:
    # p = 4, m = 8: overhead 3/8, fraction 3/11.
    study = bind(
        {"layout.pp": 4, "training.global_batch": 16, "wire.net.bandwidth": 1e30},
        terms=[work("f", "F", 1.0), work("b", "B", 2.0)],
    )
    found = values(study)
    assert found["bubble_overhead"] == pytest.approx(3 / 8)
    assert found["bubble"] == found["bubble_of_makespan"] == pytest.approx(3 / 11)


def test_hops_are_no_bubble(bind: Bind) -> None:
    study = bind(
        {"layout.pp": 4, "training.global_batch": 16},
        terms=[work("f", "F", 1.0), work("b", "B", 2.0)],
    )
    found = values(study)
    assert found["bubble_of_makespan"] == pytest.approx(3 / 11)
    assert found["step_time"] > 33.0
    assert found["bubble"] == pytest.approx(9.0 / found["step_time"])


def test_only_communication_that_nothing_hides_counts_as_exposed(bind: Bind) -> None:
    study = bind(
        terms=[
            work("f", "F", 6.0, host="f"),
            work("serial", "F", 2.0, resource="net"),
            work("beside", "F", 3.0, resource="net", window="f"),
            work("disk", "F", 2.0, resource="disk"),
        ]
    )
    assert values(study)["exposed_communication"] == pytest.approx(2.0 / 10.0)


def test_parameters_are_counted_without_copies_and_shards(bind: Bind) -> None:
    study = bind(
        {"layout.pp": 2},
        parameters=[
            Parameters(name="a", elements=5.0, total=40.0, count=(4.0, 4.0)),
            Parameters(name="b", elements=7.0, total=0.0, count=(0.0, 1.0), place="after"),
        ],
    )
    assert values(study)["parameters"] == 320.0


def test_headroom_is_relative_to_the_usable_share(bind: Bind) -> None:
    held = [Parameters(name="a", elements=1e9, total=1e9, count=(1.0,))]
    found = values(bind({"memory.usable": 0.9}, parameters=held))
    assert found["memory"] == 18e9
    assert found["headroom"] == pytest.approx(0.9 * 80 * 2**30 - 18e9)


def test_every_figure_is_printed_in_a_unit_of_the_language(bind: Bind) -> None:
    for figure in figures(bind(terms=[work("f", "F", 1.0)])).values():
        assert figure.unit == "" or figure.unit in known_units()


def test_every_utilisation_says_its_convention(bind: Bind) -> None:
    found = figures(bind(terms=[work("f", "F", 1.0)]))
    assert found["mfu"].note == (
        "of the dense bf16 peak; attention counted causal, excluding recomputation"
    )
    assert found["hfu"].note == (
        "of the dense bf16 peak; attention counted causal, including recomputation, "
        "mean over devices"
    )


def test_the_masked_half_of_unfused_attention_counts_as_executed_only(
    bind: Bind,
) -> None:
    found = figures(bind({"training.flash_attention": "off"}, terms=[work("f", "F", 1.0)]))
    assert "attention counted causal" in found["mfu"].note
    assert "attention counted including its masked half" in found["hfu"].note


@pytest.mark.parametrize("flash", ["on", "off"])
def test_the_note_of_bidirectional_attention_is_not_causal(bind: Bind, flash: str) -> None:
    changes = {"training.flash_attention": flash, "small.causal": "off"}
    found = figures(bind(changes, terms=[work("f", "F", 1.0)]))
    for name in ("mfu", "hfu"):
        assert "; attention counted in both directions, " in found[name].note


@pytest.mark.slow
def test_a_sweep_gives_at_every_point_what_that_point_gives_alone(bind: Bind) -> None:
    def study(batch: Any) -> Study:
        return bind(
            {"layout.pp": 2, "training.global_batch": batch},
            flops=[model_flops(1e9)],
            terms=[work("f", "F", 1.0, flops=1e12), work("b", "B", 2.0, flops=2e12)],
        )

    together = values(study([8, 16, 40]))
    for i, batch in enumerate((8, 16, 40)):
        for name, alone in values(study(batch)).items():
            assert np.broadcast_to(together[name], 3)[i] == pytest.approx(alone, rel=1e-12)
