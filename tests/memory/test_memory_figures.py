"""Memory by what it is for: what state weighs, what a layer saves, what Megatron would say."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import Formula, Memory, Study, Work
from parcost.engine import pipeline_run
from parcost.engine.reduce import evaluate
from parcost_plugins.vocabulary import Parameters

from ..evaluation import details_of
from ..rows import mark_most, try_each

Bind = Callable[..., Study]

RUNS = Path(__file__).parents[2] / "specs" / "runs"
GIVEN = Formula(text="given")
SIXTEEN = {"mixed.gradients": 2}


def details(study: Study) -> dict[str, Any]:
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in details_of(study, outcome)}
    assert study.faults == []
    return found


def memory_values(
    bind: Bind, elements: float, values: dict[str, Any], **more: Any
) -> dict[str, Any]:
    parameters = [Parameters(name="all", elements=elements, total=elements, count=(1.0,))]
    return details(bind({**SIXTEEN, **values}, parameters=parameters, **more))


@try_each(
    "recipe, each",
    [
        ((2, 2, 12), 16),
        ((2, 4, 12), 18),
        ((2, 2, 16), 20),
        ((4, 4, 8), 16),
        ((2, 2, 8), 12),
        ((2, 4, 8), 14),
    ],
)
def test_a_recipe_says_how_many_bytes_a_parameter_takes(
    bind: Bind, recipe: tuple[int, int, int], each: int
) -> None:
    values = {
        f"mixed.{k}": v for k, v in zip(("weights", "gradients", "optimizer"), recipe, strict=True)
    }
    found = memory_values(bind, 1e9, values)
    assert found["bytes_per_parameter"] == each
    assert found["state_total"] == each * 1e9


@try_each("billions, devices", [(13, 3), (65, 13), (540, 108), (7, 2), (175, 35)])
def test_the_state_needs_so_many_devices_of_80_gb(bind: Bind, billions: int, devices: int) -> None:
    found = memory_values(bind, billions * 1e9, {"plain.memory": 80e9})
    assert found["devices_for_state"] == devices


@try_each("zero, largest", [(0, 5.0), (1, 80 / 5.5), (2, 80 / 3.75), (3, 40.0)])
def test_the_largest_model_grows_with_what_is_sharded(
    bind: Bind, zero: int, largest: float
) -> None:
    found = memory_values(bind, 1e9, {"plain.memory": 80e9, "layout.zero": zero})
    assert found["largest_model"] == pytest.approx(largest * 1e9)


def test_what_is_on_the_host_leaves_room_for_a_larger_model(bind: Bind) -> None:
    """On 8 ranks under ZeRO 2, Adam goes: 2 B of weights and 2 / 8 of gradients are left."""
    values = {"plain.memory": 80e9, "layout.zero": 2, "offload.optimizer": 1.0}
    found = memory_values(bind, 1e9, {**values, "offload.update": "device"})
    assert found["largest_model"] == pytest.approx(80e9 / 2.25)


@pytest.mark.slow
@pytest.mark.parametrize(("zero", "largest"), [(2, 80 / 5.5), (3, 80 / 3.75)])
def test_gradients_that_accumulate_whole_are_held_whole(
    bind: Bind, zero: int, largest: float
) -> None:
    values = {"plain.memory": 80e9, "layout.zero": zero, "sharding.accumulate": "whole"}
    values["training.global_batch"] = 16
    assert memory_values(bind, 1e9, values)["largest_model"] == pytest.approx(largest * 1e9)


def test_memory_by_class_adds_up(bind: Bind) -> None:
    study = bind(
        {"layout.pp": 4, "training.global_batch": 16, "memory.context": 1e9},
        parameters=[Parameters(name="all", elements=1e9, total=1e9, count=(2.0,) * 4)],
        memory=[
            Memory(name="kept", bytes_=1e9, formula=GIVEN, per_micro_batch=True, count=(2.0,) * 4),
            Memory(
                name="embedded",
                bytes_=5e8,
                formula=GIVEN,
                per_micro_batch=True,
                count=(1.0, 0.0, 0.0, 0.0),
                tag="ends",
            ),
        ],
        terms=[Work(name="f", seconds=1.0, pass_="F", formula=GIVEN)],
    )
    found = details(study)
    assert found["weights_memory"] == 4e9
    assert found["gradients_memory"] == 8e9
    assert found["optimizer_memory"] == 24e9
    assert found["state_memory"] == 36e9
    assert found["activation_memory"] == 4 * 2.5e9  # four micro-batches on the first stage
    assert found["other_memory"] == 1e9
    total = found["state_memory"] + found["activation_memory"] + found["other_memory"]
    assert total == pytest.approx(evaluate(study).memory_bytes)
    # layers save 2 GB on each of four stages of two layers
    assert found["activation_memory_per_layer"] == pytest.approx(1e9)
    assert found["activation_memory_of_layers"] == pytest.approx(8e9)
    assert found["activation_memory_of_model"] == pytest.approx(8.5e9)


@pytest.mark.slow
def test_every_device_of_a_pipeline_is_listed_at_its_fullest(bind: Bind) -> None:
    study = bind(
        {"layout.pp": 4, "training.global_batch": 16},
        parameters=[Parameters(name="all", elements=1e9, total=1e9, count=(1.0,) * 4)],
        memory=[Memory(name="kept", bytes_=1e9, formula=GIVEN, per_micro_batch=True)],
        terms=[Work(name="f", seconds=1.0, pass_="F", formula=GIVEN)],
    )
    outcome = evaluate(study)
    asked = study.plugins.ask("sections", study=study, outcome=outcome, brief=False)
    (section,) = [s for _, s in asked if s.title == "Memory by stage"]
    assert [row[0] for row in section.rows] == [0, 1, 2, 3]
    assert [row[1][0] for row in section.rows] == [18e9 + n * 1e9 for n in (4, 3, 2, 1)]
    assert [row[3] for row in section.rows] == [4, 3, 2, 1]


@pytest.mark.slow
def test_memory_by_stage_counts_stages_and_not_devices() -> None:
    text = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 32 }
layout { tp = 2, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 4096, global_batch = 32 sequences, recompute = full }
"""
    sections = parcost.load_text(text)[0].evaluate().result.sections
    (section,) = [s for _, s in sections if s.title == "Memory by stage"]
    assert section.columns[0] == "stage"
    assert [row[0] for row in section.rows] == [0, 1, 2, 3]


_GPT3 = """
use catalog.devices.a100_sxm_80g
use catalog.models.gpt3_175b
use catalog.precisions.bf16
fabric f { level net { bandwidth = 100 GB/s per_direction, latency = 1 us } }
"""


def gpt3(text: str) -> dict[str, Any]:
    (scenario,) = parcost.load_text(_GPT3 + text)
    return details(scenario.studies()[0])


@pytest.mark.slow
def test_megatrons_estimate_of_gpt_3_on_tp_8_and_pp_16_is_9840_mib() -> None:
    found = gpt3(
        "model padded extends gpt3_175b { vocabulary = 51200 }\n"
        "cluster { devices = 128 }\n"
        "layout { tp = 8, pp = 16, sequence_parallel = on }\n"
        "training { model = padded, sequence = 2048, global_batch = 64 sequences\n"
        "recompute = selective }\n"
    )
    assert found["megatron_activation_memory"] / 2**20 == pytest.approx(9840.03125)


def test_layers_of_gpt_3_save_2_869_mb_each_and_275_4_gb_together() -> None:
    found = gpt3(
        "model padded extends gpt3_175b { vocabulary = 51200 }\n"
        "cluster { devices = 1 }\n"
        "training { model = padded, sequence = 2048, global_batch = 1 sequences\n"
        "flash_attention = off, dropout = on }\n"
    )
    assert found["activation_memory_per_layer"] == pytest.approx(2_868_903_936)
    assert found["activation_memory_of_layers"] == pytest.approx(275.4147779e9)


# --- Of layers, and not of the ends --------------------------------------------------------------

SMALL = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
model small {{ hidden = 1024, heads = 8, ffn = 4096, vocabulary = 32000, {model} }}
cluster {{ devices = 4 }}
layout {{ pp = {pp} }}
training {{ sequence = 2048, micro_batch = 1, global_batch = 8 sequences }}
routing {{ distribution = balanced }}
"""
TOKENS, HIDDEN, HEADS, FFN, EXPERT = 2048, 1024, 8, 4096, 512
#: Input, both norms' outputs, the sum behind attention, Q, K, V and the output of attention.
ATTENTION = (2 * 8 * HIDDEN + 4 * HEADS) * TOKENS
DENSE = ATTENTION + 2 * 3 * FFN * TOKENS
#: Two of four experts: logits and probabilities, copies in, gate and up, activation.
MIXTURE = ATTENTION + (8 * 4 + 2 * (2 * HIDDEN + 2 * 3 * EXPERT)) * TOKENS


def of_layers(model: str, pp: int) -> float:
    (scenario,) = parcost.load_text(SMALL.format(model=model, pp=pp))
    return scenario.evaluate().result.figure("activation_memory_per_layer")  # type: ignore[return-value]


@pytest.mark.parametrize("pp", mark_most([1, 2, 4], 3))
def test_the_mean_layer_of_a_model_with_experts_in_every_second_one(pp: int) -> None:
    model = f"layers = 4, experts = 4, top_k = 2, expert_ffn = {EXPERT}, moe_every = 2"
    assert of_layers(model, pp) == pytest.approx((DENSE + MIXTURE) / 2, rel=1e-12)


@pytest.mark.parametrize(("layers", "pp"), [(1, 1), (2, 2), (4, 1), (4, 4)])
def test_a_layer_keeps_the_same_however_many_there_are(layers: int, pp: int) -> None:
    assert of_layers(f"layers = {layers}", pp) == pytest.approx(DENSE, rel=1e-12)


def test_the_ends_count_once_beside_the_layers() -> None:
    (scenario,) = parcost.load_text(SMALL.format(model="layers = 4", pp=2))
    result = scenario.evaluate().result
    ends = result.figure("activation_memory_of_model") - result.figure(  # type: ignore[operator]
        "activation_memory_of_layers"
    )
    # token ids, inputs of the final norm and of the head, the softmax in fp32
    assert ends == pytest.approx((8 + 2 * 2 * HIDDEN + 4 * 32000) * TOKENS, rel=1e-12)


def test_the_memory_of_all_stages_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 64 stages each of them computed the terms of all: 18 of 27 s of a full report."""
    (scenario,) = parcost.load(RUNS / "korthikanti_2022_a100.par")[-1:]
    calls: list[int] = []
    computed = pipeline_run.device_lines

    def count(*inputs: Any) -> Any:
        calls.append(1)
        return computed(*inputs)

    monkeypatch.setattr(pipeline_run, "device_lines", count)
    result = scenario.evaluate().results[0]
    stages = [f for _, f in result.details if re.fullmatch(r"stage_\d+_memory", f.name)]
    assert len(stages) == 64
    assert all(f.formula.inputs for f in stages)
    assert len(calls) == 1
