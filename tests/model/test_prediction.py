"""Layers that predict further tokens: parameters, FLOPs, operators and memory by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Study
from parcost_plugins.model import prediction

StudyOf = Callable[..., Study]

MODEL = """
model m {{
  layers = 4, hidden = 64, heads = 8, ffn = 128, vocabulary = 1000
  norm = {norm}, tied = {tied}, prediction_layers = {ahead}
}}
"""


@pytest.fixture(scope="module")
def made(study_of: StudyOf) -> Callable[..., Study]:
    """Return a study of 64 wide layers on two stages of two tensor-parallel ranks."""

    def make(
        norm: str = "layer", tied: str = "off", ahead: int = 2, layout: str = "tp = 2, pp = 2"
    ) -> Study:
        model = MODEL.format(norm=norm, tied=tied, ahead=ahead)
        return study_of(model, layout=layout, sequence=128, devices=4)

    return make


def parameters(study: Study) -> dict[str, tuple[Any, ...]]:
    return {
        p.name: (p.elements, p.total, [*p.count], p.replicated)
        for p in prediction.parameters(study)
    }


def test_what_two_layers_ahead_hold(made: Callable[..., Study]) -> None:
    """Two inputs of 64 to one; three norms with weights and biases; a copy of the embedding."""
    study = made()
    assert parameters(study) == {
        "prediction projection": (2 * 64 * 64 / 2, 2 * 64 * 64, [0, 2], False),
        "prediction norms": (3 * 2 * 64, 3 * 2 * 64, [0, 2], True),
        "embedding, for prediction": (500 * 64, 0.0, [0, 1], False),
    }
    (flops,) = prediction.flops(study)
    assert flops.per_token == 2 * 2 * 2 * 64 * 64
    operators: Any = [*prediction.operators(study)]
    streams = {(o.name, o.pass_): (o.bytes_, [*o.count]) for o in operators if hasattr(o, "bytes_")}
    # a row of bf16 in and out, and the gradient read, added and written
    assert streams["embedding, for prediction", "F"] == (128 * 64 * 2 * 2, [0, 2])
    assert streams["embedding, for prediction", "W"] == (128 * 64 * 2 * 3, [0, 2])
    assert streams["prediction norms", "F"][1] == [0, 6]
    gemm = next(o for o in operators if (o.name, o.pass_) == ("prediction projection", "F"))
    assert (gemm.m, gemm.n, gemm.k, [*gemm.count]) == (128, 32, 128, [0, 2])
    (kept,) = prediction.memory(study)
    assert kept.bytes_ == 5 * 2 * 128 * 64
    assert [*kept.count] == [0, 2]  # type: ignore[misc]


@pytest.mark.slow
def test_where_there_is_no_copy_of_the_embedding(made: Callable[..., Study]) -> None:
    tied, together = made(tied="on", norm="rms"), made(layout="tp = 4")
    assert "embedding, for prediction" not in parameters(tied)
    assert parameters(tied)["prediction norms"][:2] == (3 * 64, 3 * 64)
    assert "embedding, for prediction" not in parameters(together)
    assert parameters(together)["prediction projection"] == (2 * 64 * 64 / 4, 8192, [2], False)


def test_a_model_that_predicts_the_next_token_alone(made: Callable[..., Study]) -> None:
    study = made(ahead=0)
    for hook in (prediction.parameters, prediction.flops, prediction.operators, prediction.memory):
        assert [*hook(study)] == []
