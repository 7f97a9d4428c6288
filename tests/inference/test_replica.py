"""What one replica holds, visits and sends, from parameters and layers of round numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost_plugins.inference import replica
from parcost_plugins.inference.replica import Replica
from parcost_plugins.vocabulary import (
    Cluster,
    KernelChoice,
    Layout,
    ScheduleChoice,
    Serving,
    Training,
)

SPEC = """
use catalog.devices.h100_sxm
fabric wire {{ level net {{ bandwidth = 360 GB/s per_direction, latency = 1 us }} }}
model m {{
  layers = 4, hidden = 64, heads = 8, ffn = 128, vocabulary = 1000, norm = layer
  {more}
}}
serving chat {{
  fabric = wire, compute = bf16, weights = 2 B, activation = 2 B, prompt = 100
  tp = 2, pp = 2, attention_replicas = {replicas}
  {serving}
}}
"""
MOE = "experts = 8, top_k = 2, expert_ffn = 32"


def make_replica(more: str = "", serving: str = "", replicas: int = 1) -> Replica:
    (scenario,) = parcost.load_text(SPEC.format(more=more, serving=serving, replicas=replicas))
    study = scenario.first
    return Replica.from_serving(study, study[Serving])


def test_the_stand_in_trains_nothing() -> None:
    plain, ahead = make_replica(), make_replica("prediction_layers = 1")
    assert ahead.study[Training].model.prediction_layers == 0
    assert ahead.dense == plain.dense
    layout = plain.study[Layout]
    assert (layout.tp, layout.pp, layout.dp, layout.ep, layout.etp) == (2, 2, 1, 1, 1.0)
    training = plain.study[Training]
    assert (training.sequence, training.global_batch, training.micro_batches) == (100, 1, 1)
    precision = training.precision
    assert (precision.weights, precision.gradients, precision.optimizer) == (2, 0, 0)
    assert (precision.activation, precision.update_traffic) == (2, 0)
    schedule = plain.study[ScheduleChoice]
    assert (schedule.chunks, schedule.stages, schedule.assignment) == (1, (), "even")
    assert (schedule.count_embedding, schedule.count_head) == (False, False)
    assert (plain.ranks, plain.devices, plain.study[Cluster].devices) == (2, 4, 4)


def test_the_experts_of_replicas_lie_on_their_ranks() -> None:
    found = make_replica(MOE, "ep = 4", 4)
    layout = found.study[Layout]
    assert (found.ranks, found.devices, found.study[Cluster].devices) == (8, 16, 16)
    assert (layout.dp, layout.ep, layout.etp) == (4, 4, 2.0)
    assert found.study[Training].global_batch == 4
    # 4 layers of 8 experts with gate, up and down of 64 x 32
    assert found.expert == 4 * 8 * 3 * 64 * 32


class Stub(SimpleNamespace):
    """A study of three parameters on two stages, an expert's among them."""

    def __getitem__(self, kind: type) -> Any:
        return self.blocks[kind]


def stub(**said: Any) -> Any:
    """Return a replica of two ranks of tensor parallelism and three of attention."""
    model: dict[str, Any] = {"layers": 10, "experts": 8, "top_k": 2, "shared_experts": 1}
    model |= {"parallel_residual": False, "window": 0}
    serving: dict[str, Any] = {
        "tp": 2,
        "attention_replicas": 3,
        "pp": 2,
        "ep": 1,
        "compute": "bf16",
    }
    serving |= {"matmul_efficiency": None, "memory_efficiency": None}
    kernels: dict[str, Any] = {
        "gemm_efficiency": None,
        "memory_efficiency": None,
        "shape_efficiency": 0.5,
    }
    for block in (model, serving, kernels):
        block.update({name: said.pop(name) for name in [*said] if name in block})
    device = SimpleNamespace(
        bf16=1000.0, fp8=2000.0, memory_bandwidth=300.0, memory_efficiency=0.9,
        matmul_efficiency=0.8, fp8_matmul_efficiency=0.6,
    )  # fmt: skip

    def parameters(elements: float, total: float, *count: float, expert: bool = False) -> Any:
        return SimpleNamespace(elements=elements, total=total, count=count, expert=expert)

    def flops(kind: str, per_token: float) -> Any:
        return SimpleNamespace(kind=kind, per_token=per_token)

    study = Stub(
        blocks={KernelChoice: SimpleNamespace(**kernels)},
        parameters=[
            parameters(5.0, 10.0, 1, 3),
            parameters(7.0, 20.0, 4, 0),
            parameters(2.0, 9.0, 1, 1, expert=True),
        ],
        flops=[flops("matmul", 3.0), flops("attention", 50.0), flops("matmul", 4.0)],
    )
    made = SimpleNamespace(**serving, device=device, model=SimpleNamespace(**model))
    return Replica(serving=made, study=study)  # type: ignore[arg-type]


def test_what_a_replica_holds_and_computes() -> None:
    found = stub()
    assert (found.ranks, found.devices) == (6, 12)
    assert (found.dense, found.expert) == (10 * 4 + 20 * 4, 9 * 2)
    assert found.device_parameters == 5 * 1 + 7 * 4 + 2  # of 35 and 17
    assert (found.flops, found.attention_flops) == (7.0, 50.0)


@pytest.mark.parametrize(
    ("said", "rate"),
    [
        ({}, 1000 * 0.8 * 0.5 * 0.9 * 0.75),
        ({"compute": "fp8"}, 2000 * 0.6 * 0.5 * 0.7 * 0.75),
        ({"gemm_efficiency": 0.7}, 700),
        ({"gemm_efficiency": 0.7, "matmul_efficiency": 0.3}, 300),
    ],
)
def test_the_peak_of_a_product(
    said: dict[str, Any], rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "clock", lambda *_: 0.75)
    held = {"bf16": 0.9, "fp8": 0.7}
    monkeypatch.setattr(replica, "held_share", lambda *given: held[given[-1]])
    assert stub(**said).peak == pytest.approx(rate)


def test_the_bandwidth_of_the_memory() -> None:
    assert stub().bandwidth == pytest.approx(270)
    assert stub(memory_efficiency=0.5).bandwidth == pytest.approx(150)


def test_the_share_of_experts_that_tokens_visit() -> None:
    """A token misses 3 of 4: three groups of two leave 0.75^6 unvisited."""
    assert stub().visited_share(2.0) == pytest.approx(1 - 0.75**6)
    assert stub(top_k=8).visited_share(1.0) == 1.0
    assert stub(top_k=9).visited_share(2.0) == 1.0
    assert stub(experts=0).visited_share(2.0) == 1.0
    assert stub().visited_share(np.array([0.0, 1.0])) == pytest.approx([0.0, 1 - 0.75**3])


@pytest.mark.parametrize(
    ("said", "often"),
    [
        ({"experts": 0}, 20),
        ({"experts": 0, "parallel_residual": True}, 10),
        ({}, 20 - 6),  # experts of six layers are whole on their rank
        ({"ep": 1, "shared_experts": 0}, 14),
        ({"ep": 2}, 20),  # those that every token visits are not
        ({"ep": 2, "shared_experts": 0}, 14),
    ],
)
def test_the_all_reduces_of_a_token(
    said: dict[str, Any], often: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "kinds", lambda _: "kinds")
    monkeypatch.setattr(
        replica,
        "select_counts",
        lambda _, moe=False, windowed=False: [4, 2] if moe else [3, windowed],
    )
    found = stub(**said)
    assert found.all_reduces == often
    assert found.expert_layers == (0.0 if said.get("experts") == 0 else 6.0)
    assert (found.windowed_layers, stub(window=512).windowed_layers) == (0.0, 4.0)
