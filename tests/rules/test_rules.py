"""Rules of the layout and of the batch: each mistake once, with its arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import Diagnostic, Study
from parcost.engine.rules import diagnose, rules

from ..rows import mark_most, try_each

Bind = Callable[..., Study]


def complaints(study: Study) -> list[Diagnostic]:
    return [diagnose(check, study) for check in rules(study).failed]


def only_failure(study: Study) -> tuple[str, str, str | None]:
    (found,) = complaints(study)
    return found.id, found.message, found.help


def test_a_sound_study_breaks_no_rule(bind: Bind) -> None:
    assert complaints(bind()) == []
    assert complaints(bind({"layout.tp": 2, "layout.pp": 2, "layout.zero": 1})) == []


@try_each(
    "values, said",
    [
        (
            {"cluster.devices": 64, "layout.tp": 8, "layout.pp": 3, "small.layers": 9},
            (
                "devices-divide",
                "64 devices are not divisible by tp 8 x pp 3 = 24",
                "pp = 2 or 4 divides, or take 48 or 72 devices",
            ),
        ),
        (
            {"cluster.devices": 8, "layout.tp": 3},
            (
                "devices-divide",
                "8 devices are not divisible by tp 3 x pp 1 = 3",
                "tp = 2 or 4 divides, or take 6 or 9 devices",
            ),
        ),
        (
            {"layout.tp": 4, "layout.pp": 4},
            (
                "devices-few",
                "tp 4 x pp 4 = 16 devices are needed, but the cluster has 8",
                "take 16 devices or a multiple of them, or pp = 2",
            ),
        ),
        (
            {"cluster.devices": 64, "layout.tp": 8, "layout.pp": 4, "layout.dp": 3}
            | {"training.global_batch": 24},
            (
                "layout-product",
                "tp 8 x pp 4 x dp 3 = 96, but the cluster has 64 devices",
                "write dp = 2, or leave it out: it is computed from the others",
            ),
        ),
        (
            {"training.global_batch": 30},
            (
                "batch-divides",
                "a global batch of 30 is not divisible by micro_batch 1 x dp 8 = 8",
                "take 24 or 32 sequences",
            ),
        ),
        (
            {"training.global_batch": 8, "training.micro_batch": 2},
            (
                "batch-small",
                "a global batch of 8 is less than micro_batch 2 x dp 8 = 16",
                "write a global batch that is a multiple of 16, or use fewer replicas",
            ),
        ),
        (
            {"training.global_batch": 16, "training.micro_batches": 4},
            (
                "batch-product",
                "micro_batches 4 x micro_batch 1 x dp 8 = 32 sequences, but the global batch is 16",
                "write micro_batches = 2, or leave it out: it is computed from the others",
            ),
        ),
        (
            {"overlap.multiprocessors": 100},
            (
                "multiprocessors-taken",
                "collectives take 100 multiprocessors, but the device has 100",
                "write less than 100; 0 if the device has separate engines for collectives",
            ),
        ),
        (
            {"training.global_batch": 100000 / 1024},
            (
                "batch-whole",
                "the global batch is 97.6562 sequences of 1024 tokens, not a whole number",
                "write 96 or 104 sequences",
            ),
        ),
        (
            {"training.global_batch": 100 / 1024},
            (
                "batch-whole",
                "the global batch is 0.0976562 sequences of 1024 tokens, not a whole number",
                "write 8 or 16 sequences",
            ),
        ),
    ],
)
def test_a_mistake_is_reported_once_with_its_arithmetic_and_a_way_out(
    bind: Bind, values: dict[str, Any], said: tuple[str, str, str | None]
) -> None:
    assert only_failure(bind(values)) == said


def test_zero_without_replicas_is_a_warning(bind: Bind) -> None:
    study = bind({"cluster.devices": 2, "layout.tp": 2, "layout.zero": 2})
    (found,) = complaints(study)
    assert found.message == "zero 2 has no effect: only one rank holds each parameter"
    assert rules(study).holds is True


def test_every_rule_points_at_an_attribute_that_there_is(bind: Bind) -> None:
    study = bind()
    for _, check in study.contributions("checks"):
        kind, attribute = check.subject.split(".")
        assert attribute in study.plugins.blocks[kind].fields


def test_in_a_sweep_each_point_is_held_to_the_rules(bind: Bind) -> None:
    study = bind({"layout.tp": [1, 2, 3, 4, 8, 16], "training.global_batch": 8})
    assert list(rules(study).holds) == [True, True, False, True, True, False]
    failing = {check.id: list(check.holds) for check in rules(study).failed}
    assert failing == {
        "devices-divide": [True, True, False, True, True, True],
        "devices-few": [True, True, True, True, True, False],
    }


@pytest.mark.slow
@pytest.mark.parametrize("batch", mark_most([1, 7, 8, 12, 16, 24, 33]))
@pytest.mark.parametrize("tp", [1, 2, 3, 4])
def test_a_sweep_holds_where_each_point_alone_does(bind: Bind, batch: int, tp: int) -> None:
    batches, tps = [1, 7, 8, 12, 16, 24, 33], [1, 2, 3, 4]
    swept = bind({"layout.tp": tps, "training.global_batch": batches})
    axes = {name: list(values) for name, values in swept.axes}
    points = zip(axes["layout.tp"], axes["training.global_batch"], strict=True)
    together = dict(zip(points, rules(swept).holds, strict=True))
    alone = rules(bind({"layout.tp": tp, "training.global_batch": batch})).holds
    assert together[tp, batch] == alone == (8 % tp == 0 and batch % (8 // tp) == 0)


# --- further degrees ------------------------------------------------------------------------


def test_context_parallel_ranks_count_in_the_product(bind: Bind) -> None:
    found = only_failure(bind({"cluster.devices": 64, "layout.tp": 4, "layout.cp": 3}))
    assert found == (
        "devices-divide",
        "64 devices are not divisible by tp 4 x cp 3 x pp 1 = 12",
        "cp = 2 or 4 divides, or take 60 or 72 devices",
    )
    given = {"cluster.devices": 64, "layout.tp": 4, "layout.cp": 2, "layout.dp": 4}
    product = only_failure(bind(given | {"training.global_batch": 32}))
    assert product == (
        "layout-product",
        "tp 4 x cp 2 x pp 1 x dp 4 = 32, but the cluster has 64 devices",
        "write dp = 8, or leave it out: it is computed from the others",
    )


@try_each(
    "assignment, layers, near",
    [
        ("front", 10, "pp = 4"),  # 8 stages of 2 chunks are more than 10 layers
        ("front", 16, "pp = 4 or 8"),
        ("even", 24, "pp = 4"),  # 24 layers are not a multiple of 16
        ("even", 48, "pp = 4 or 8"),
    ],
)
def test_a_nearest_depth_leaves_every_chunk_a_layer(
    bind: Bind, assignment: str, layers: int, near: str
) -> None:
    values = {"cluster.devices": 64, "layout.tp": 8, "layout.pp": 6, "small.layers": layers}
    chosen = {"schedule.chunks": 2, "schedule.assignment": assignment}
    broken = complaints(bind(values | chosen))
    found = {check.id: check for check in broken}["devices-divide"]
    assert found.help is not None
    assert found.help.startswith(f"{near} divides, or ")


def test_experts_that_are_not_there_are_not_split(bind: Bind) -> None:
    found = {c.id: c for c in complaints(bind({"layout.ep": 4}))}["experts-missing"]
    assert found.message == "ep 4 x etp 1 need experts, but the model `small` has none"
    assert found.help == "leave ep and etp out, or write `experts` in the model"


@pytest.mark.parametrize(
    "values, message, help",
    [
        (
            {"layout.tp": 2, "layout.ep": 3},
            "tp 2 x cp 1 x dp 4 = 8 ranks of a stage are not divisible by ep 3 x etp 1 = 3",
            "ep = 2 or 4 divides",
        ),
        (
            {"layout.tp": 2, "layout.ep": 2, "layout.etp": 3},
            "tp 2 x cp 1 x dp 4 = 8 ranks of a stage are not divisible by ep 2 x etp 3 = 6",
            "etp = 2 or 4 divides",
        ),
        (
            {"layout.tp": 2, "layout.ep": 16},
            "tp 2 x cp 1 x dp 4 = 8 ranks of a stage are not divisible by ep 16 x etp 1 = 16",
            "ep = 8 divides",
        ),
    ],
)
def test_the_ranks_of_a_stage_are_cut_whole_among_experts(
    bind: Bind, values: dict[str, object], message: str, help: str
) -> None:
    found = {c.id: c for c in complaints(bind(values))}["experts-ranks"]
    assert (found.message, found.help) == (message, help)
    assert found.notes == ("a stage has tp x cp x dp = etp x ep x edp ranks",)


@try_each(
    "fp8, doubted",
    [
        (1.49, True),
        (1.5, True),
        (1.51, False),
        (2.0, False),
        (2.99, False),
        (3.0, True),
        (3.1, True),
    ],
)
def test_a_narrower_type_is_about_twice_as_fast(fp8: float, doubted: bool) -> None:
    text = f"""
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
device own extends h100_sxm {{
  tf32 = 50 TFLOP/s dense, fp16 = 100 TFLOP/s dense, bf16 = 100 TFLOP/s dense
  fp8 = {100 * fp8} TFLOP/s dense
}}
cluster {{ device = own, devices = 8 }}
training {{ sequence = 2048, global_batch = 8 sequences }}
"""
    found = [d.message for d in parcost.load_text(text)[0].check() if d.id == "sparse-peak"]
    says = f"fp8 at {100 * fp8:g} TFLOPS is {fp8:.3g} times fp16 at 100 TFLOPS: dense peaks differ "
    assert found == doubted * [says + "by a factor of 2, so one of them is sparse"]


DEVICES = sorted(
    path.stem for path in (Path(__file__).parents[2] / "specs/parcost_specs/devices").glob("*.par")
)


@try_each("device", DEVICES)
def test_figures_that_state_their_source_are_not_taken_for_sparse_ones(device: str) -> None:
    text = f"""
use catalog.devices.{device}
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.fp32
cluster {{ devices = 8 }}
training {{ sequence = 2048, global_batch = 8 sequences }}
"""
    (scenario,) = parcost.load_text(text)
    assert "sparse-peak" not in {d.id for d in scenario.check()}
