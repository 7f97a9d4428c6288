"""Arrays give what their elements give, and sizes scale as they must."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from parcost import Study

from ..rows import mark_most

StudyOf = Callable[..., Study]

NUMBERS = {
    "operators": ("m", "n", "k", "batch", "flops", "bytes_"),
    "parameters": ("elements", "total"),
    "flops": ("per_token",),
    "memory": ("bytes_",),
}


def contributions(study: Study, hook: str) -> Sequence[Any]:
    return [c for plugin, c in study.contributions(hook) if plugin.name.startswith("model.")]


@pytest.mark.parametrize("hook", mark_most(NUMBERS))
@pytest.mark.parametrize(
    "training",
    [
        "flash_attention = on",
        "flash_attention = off, dropout = on, recompute = selective",
        "recompute = full",
    ],
)
def test_a_sweep_over_ranks_and_micro_batches(study_of: StudyOf, hook: str, training: str) -> None:
    points = [(tp, b) for tp in (1, 2, 4, 8, 16) for b in (1, 2)]
    layout = "tp = {}, pp = 2, sequence_parallel = on, vocabulary_multiple = 128"
    swept = study_of(
        "llama3_70b",
        layout=layout.format([1, 2, 4, 8, 16]),
        training=f"{training}, micro_batch = [1, 2]",
    )
    for i, (tp, b) in enumerate(points):
        alone = study_of(
            "llama3_70b", layout=layout.format(tp), training=f"{training}, micro_batch = {b}"
        )
        pairs = zip(contributions(alone, hook), contributions(swept, hook), strict=True)
        for one, many in pairs:
            assert one.name == many.name
            for number in NUMBERS[hook]:
                if hasattr(one, number):
                    got = np.broadcast_to(getattr(many, number), len(points))[i]
                    assert got == pytest.approx(getattr(one, number), rel=1e-12)


def test_doubling_the_micro_batch_doubles_activations_and_leaves_parameters(
    study_of: StudyOf,
) -> None:
    one, two = (study_of("llama3_8b", training=f"micro_batch = {b}") for b in (1, 2))
    for once, twice in zip(contributions(one, "memory"), contributions(two, "memory"), strict=True):
        assert twice.bytes_ == 2 * once.bytes_
    for once, twice in zip(one.parameters, two.parameters, strict=True):
        assert twice.elements == once.elements


def test_scalars_stay_plain_floats(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 8, pp = 2, vocabulary_multiple = 128")
    for hook, numbers in NUMBERS.items():
        for term in contributions(study, hook):
            for number in numbers:
                assert isinstance(getattr(term, number, 0.0), (float, int)), (term, number)
