"""Layers of different kinds, wherever they are dealt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parcost import Study
from parcost_plugins.physics.partition import LayerKind, kinds, recomputed_layers, select_counts

from ..rows import try_each

StudyOf = Callable[..., Study]

SHAPE = "hidden = 64, heads = 4, ffn = 128, vocabulary = 100"


def test_deepseek_v3_starts_with_three_dense_layers(study_of: StudyOf) -> None:
    study = study_of(
        "deepseek_v3",
        layout="pp = 4",
        extra="schedule { stages = [2, 20, 20, 19] }",
    )
    found = kinds(study)
    assert select_counts(found, moe=False) == (2, 1, 0, 0)
    assert select_counts(found, moe=True) == (0, 19, 20, 19)


def test_every_second_layer_of_llama_4_maverick_has_experts(study_of: StudyOf) -> None:
    found = kinds(study_of("llama4_maverick", layout="pp = 4"))
    assert select_counts(found, moe=True) == (6, 6, 6, 6)
    # every fourth layer attends to all tokens, and those have experts: 3, 7, 11, ...
    assert select_counts(found, windowed=False) == (3, 3, 3, 3)
    assert select_counts(found, moe=True, windowed=False) == (3, 3, 3, 3)


def test_gemma_2_alternates_from_a_windowed_layer_on(study_of: StudyOf) -> None:
    found = kinds(study_of("gemma2_2b", layout="pp = 2", extra="schedule { stages = [13, 13] }"))
    assert select_counts(found, windowed=True) == (7, 6)
    assert select_counts(found, windowed=False) == (6, 7)


def test_dense_layers_may_be_listed(study_of: StudyOf) -> None:
    mixture = f"layers = 8, {SHAPE}, experts = 4, dense_layers = [0, 3, 7]"
    found = kinds(study_of(f"model m {{ {mixture} }}", layout="pp = 2"))
    assert select_counts(found, moe=False) == (2, 1)
    assert select_counts(found, moe=True) == (2, 3)


def test_layers_that_predict_stand_on_the_last_stage_with_experts(study_of: StudyOf) -> None:
    study = study_of("deepseek_v3_mtp", layout="pp = 2", extra="schedule { stages = [31, 30] }")
    assert select_counts(kinds(study)) == (31, 31)
    assert select_counts(kinds(study), moe=True) == (28, 31)


@try_each(
    "how, expected",
    [
        ("every = 1", (7, 9, 9, 7)),
        ("every = 2", (4, 4, 5, 3)),  # layers 0, 2, ...: 0-6 has 4, 7-15 has 4, 16-24 has 5
        ("every = 3", (3, 3, 3, 2)),  # 0 3 6 | 9 12 15 | 18 21 24 | 27 30
        ("every = 3, first = 2", (2, 3, 3, 2)),  # 2 5 | 8 11 14 | 17 20 23 | 26 29: torchtitan's
        ("layers = 3", (3, 3, 3, 3)),
        ("layers = 3, every = 2", (2, 1, 2, 1)),  # of 0 1 2 | 7 8 9 | 16 17 18 | 25 26 27
    ],
)
def test_a_share_of_the_layers_is_recomputed(
    study_of: StudyOf, how: str, expected: tuple[int, ...]
) -> None:
    study = study_of(
        "llama3_8b",
        layout="pp = 4",
        training="recompute = full",
        extra=f"schedule {{ stages = [7, 9, 9, 7] }}\nrecompute {{ {how} }}",
    )
    assert recomputed_layers(study) == expected


def test_without_full_recomputation_no_layer_is(study_of: StudyOf) -> None:
    assert recomputed_layers(study_of("llama3_8b", extra="recompute { norms = on }")) == (0,)


@pytest.mark.slow
@settings(max_examples=min(15, settings().max_examples), deadline=None)
@given(
    stages=st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(lambda s: sum(s) > 2),
    first=st.integers(0, 3),
    moe_every=st.integers(1, 3),
    full_every=st.integers(0, 4),
)
def test_every_layer_is_counted_once_in_its_place(
    study_of: StudyOf, stages: list[int], first: int, moe_every: int, full_every: int
) -> None:
    first = min(first, sum(stages))
    study = study_of(
        f"""model m {{ {SHAPE}, layers = {sum(stages)}, experts = 4, dense_first = {first}
        moe_every = {moe_every}, window = 32, full_every = {full_every} }}""",
        layout="pp = 4",
        extra=f"schedule {{ stages = {stages} }}",
    )
    expected: dict[LayerKind, list[int]] = {}
    layers = iter(range(sum(stages)))
    for stage, count in enumerate(stages):
        for _ in range(count):
            layer = next(layers)
            moe = layer >= first and (layer - first) % moe_every == moe_every - 1
            full = full_every > 0 and layer % full_every == full_every - 1
            expected.setdefault(LayerKind(moe, not full, False), [0] * 4)[stage] += 1
    assert {kind: list(counts) for kind, counts in kinds(study).items()} == expected
