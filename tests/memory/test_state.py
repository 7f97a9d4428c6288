"""What is held for every parameter, and what no tensor accounts for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from parcost import Formula, Memory, Outcome, Study, Work
from parcost.engine.reduce import evaluate
from parcost_plugins.vocabulary import Parameters

from ..rows import try_each

Bind = Callable[..., Study]

STATE = ("weights", "gradients", "optimizer state")
SIXTEEN = {"mixed.gradients": 2}  # 2 + 2 + 12 bytes per parameter


def parameters_record(
    elements: float, count: Sequence[float] = (1.0,), place: Any = "layer"
) -> Parameters:
    name = f"{place} {count}"
    return Parameters(name=name, elements=elements, total=elements, count=count, place=place)


def outcome_of(study: Study) -> Outcome:
    outcome = evaluate(study)
    assert study.faults == []
    return outcome


def lines(study: Study) -> dict[str, Any]:
    return {line.name: line.bytes_ for line in outcome_of(study).memory_lines}


def state(study: Study) -> Any:
    return sum(bytes_ for name, bytes_ in lines(study).items() if name.startswith(STATE))


@try_each("zero, gigabytes", [(0, 120.0), (1, 31.40625), (2, 16.640625), (3, 1.875)])
def test_each_zero_stage_shards_one_more_kind_of_state(
    bind: Bind, zero: int, gigabytes: float
) -> None:
    values = {**SIXTEEN, "cluster.devices": 64, "layout.zero": zero}
    values["training.global_batch"] = 64
    assert state(bind(values, parameters=[parameters_record(7.5e9)])) == pytest.approx(
        gigabytes * 1e9
    )


def test_70b_on_tp_8_and_pp_2_without_replicas_take_70_gb_or_78_75(bind: Bind) -> None:
    layout = {"cluster.devices": 16, "layout.tp": 8, "layout.pp": 2, "layout.zero": 1}
    quarter = [parameters_record(70e9 / 16 / 4, (4.0, 4.0))]
    assert state(bind({**layout, **SIXTEEN}, parameters=quarter)) == pytest.approx(70e9)
    assert state(bind(layout, parameters=quarter)) == pytest.approx(78.75e9)


def test_405b_on_64_devices_without_replicas_take_101_gb(bind: Bind) -> None:
    values = {**SIXTEEN, "cluster.devices": 64, "layout.tp": 8, "layout.pp": 8}
    study = bind(values, parameters=[parameters_record(405e9 / 64, (1.0,) * 8)])
    assert state(study) == pytest.approx(101.25e9)
    (verdict,) = [check for _, check in outcome_checks(study) if check.id == "does-not-fit"]
    assert not verdict.holds


def outcome_checks(study: Study) -> list[Any]:
    return list(study.plugins.ask("outcome_checks", study=study, outcome=outcome_of(study)))


def test_the_worked_example_holds_27_25_gb_of_state_on_stage_0(bind: Bind) -> None:
    values = {"cluster.devices": 64, "layout.tp": 8, "layout.pp": 4, "layout.zero": 1}
    study = bind(values, parameters=[parameters_record(2_270_756_864.0, (1.0, 0.0, 0.0, 0.0))])
    assert outcome_of(study).memory_device == 0
    assert state(study) == pytest.approx(27.25e9, abs=5e6)  # 6 + 12 / 2 bytes each


def test_zero_3_holds_two_gathered_layers_the_head_and_one_layers_gradients(bind: Bind) -> None:
    study = bind(
        {"layout.zero": 3},
        parameters=[
            parameters_record(5e8, place="before"),
            parameters_record(1e9, (8.0,)),
            parameters_record(3e8, place="after"),
        ],
    )
    found = lines(study)
    assert outcome_of(study).memory_moment == "backward"
    assert found["gathered layers"] == 2 * 1e9 * 2
    assert found["gathered embedding and head"] == 3e8 * 2
    assert found["unsharded gradients"] == 1e9 * (2 + 4)  # of a layer, more than of the head
    alone = bind(
        {"layout.zero": 3, "cluster.devices": 1}, parameters=[parameters_record(1e9, (8.0,))]
    )
    assert not {"gathered layers", "gathered embedding and head", "unsharded gradients"} & set(
        lines(alone)
    )


@try_each(
    "before, depth, after, gathered, gradients",
    [
        # two layers of 1e9 and the head; copies of the head's gradients leave beside those of a layer
        (3e9, 8, 4e9, 2e9 + 4e9, 2 * 1e9 + 4 * 4e9),
        # the embedding and the first layer, 4e9, are more than two layers, or two and the head
        (3e9, 8, 0.0, 4e9, 6 * 1e9),
        (3e9, 8, 5e8, 4e9, 6 * 1e9),
        # an embedding that is smaller than a layer only takes the place of one
        (5e8, 8, 0.0, 2e9, 6 * 1e9),
        # one layer, with one end beside it
        (3e9, 1, 0.0, 4e9, 6 * 1e9),
        (0.0, 1, 2e9, 3e9, 2 * 1e9 + 4 * 2e9),
    ],
)
def test_zero_3_holds_the_ends_while_they_are_gathered_and_the_largest_gradient(
    bind: Bind, before: float, depth: int, after: float, gathered: float, gradients: float
) -> None:
    ends = [
        parameters_record(n, place=place)
        for n, place in ((before, "before"), (after, "after"))
        if n
    ]
    study = bind(
        {"layout.zero": 3, "small.layers": depth},
        parameters=[parameters_record(1e9, (float(depth),)), *ends],
    )
    found = {term.name: term.bytes_ for _, term in study.contributions("memory")}
    whole = found["gathered layers"] + found.get("gathered embedding and head", 0.0)
    assert whole == pytest.approx(2 * gathered)  # bytes of the gather
    # 2 bytes as backward makes them, and 4 copied for the reduction
    assert found["unsharded gradients"] == pytest.approx(gradients)


@pytest.mark.slow
def test_zero_2_holds_a_bucket_of_whole_gradients(bind: Bind) -> None:
    small = bind({"layout.zero": 2}, parameters=[parameters_record(1e9)])
    assert lines(small)["gradient bucket"] == 1e9  # of 4e9
    large = bind({"layout.zero": 2, "overlap.bucket": 9e9}, parameters=[parameters_record(1e9)])
    assert lines(large)["gradient bucket"] == 4e9
    alone = bind({"layout.zero": 2, "cluster.devices": 1}, parameters=[parameters_record(1e9)])
    assert "gradient bucket" not in lines(alone)


def test_the_next_zero_stage_never_holds_more_state(bind: Bind) -> None:
    held_ = [
        state(bind({"layout.zero": zero}, parameters=[parameters_record(1e9, (8.0,))]))
        for zero in range(4)
    ]
    assert held_ == sorted(held_, reverse=True)


def test_every_communicator_of_more_than_one_rank_has_buffers(bind: Bind) -> None:
    values = {"memory.communicator": 3e8, "memory.context": 1.5e9, "layout.tp": 2}
    found = lines(bind({**values, "layout.pp": 2}))
    assert found["communicators"] == 5 * 3e8  # tp, pp, dp, the job, and tp x pp for the norm
    assert found["driver context and libraries"] == 1.5e9
    found = lines(bind({**values, "cluster.devices": 2}))
    assert found["communicators"] == 3e8  # tp


def test_fragmentation_is_a_share_of_the_activations_alive(bind: Bind) -> None:
    formula = Formula(text="given")
    study = bind(
        {"memory.fragmentation": 0.06, "layout.pp": 4, "training.global_batch": 16},
        parameters=[parameters_record(1e6, (2.0, 2.0, 2.0, 2.0))],
        terms=[Work(name="f", seconds=1.0, pass_="F", formula=formula)],
        memory=[
            Memory(name="kept", bytes_=1e9, formula=formula, per_micro_batch=True),
            Memory(name="logits", bytes_=5e8, formula=formula),
        ],
    )
    found = lines(study)
    assert found["kept"] == 4e9  # the first of four stages has four micro-batches alive
    assert found["fragmentation"] == pytest.approx(0.06 * 4e9)
    outcome = outcome_of(study)
    assert outcome.memory_bytes == pytest.approx(sum(found.values()))
    assert outcome.device_memory[0] == pytest.approx(outcome.memory_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("zero", range(4))
def test_a_sweep_gives_at_every_point_what_that_point_gives_alone(bind: Bind, zero: int) -> None:
    def study(devices: Any) -> Study:
        return bind(
            {"cluster.devices": devices, "layout.zero": zero, "memory.communicator": 1e8},
            parameters=[parameters_record(1e8, (8.0,)), parameters_record(3e8, place="after")],
        )

    together = np.broadcast_to(outcome_of(study([1, 2, 4, 8])).memory_bytes, 4)
    alone = [outcome_of(study(devices)).memory_bytes for devices in (1, 2, 4, 8)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
