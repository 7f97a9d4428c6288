"""What a token attends to: windows, packed documents, encoders."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcost import Study
from parcost_plugins.vocabulary import FusedAttention

from ..rows import try_each

StudyOf = Callable[..., Study]

SHAPE = "layers = 4, hidden = 512, heads = 8, ffn = 512, vocabulary = 100"


def attention(study: Study) -> float:
    """Tokens attended to by the mean token, over the layers of the model."""
    (per_token,) = [f.per_token for f in study.flops if f.kind == "attention"]
    return per_token / (2 * 8 * 2 * 64)


def attended_by_hand(lengths: list[int], window: int) -> float:
    """Pairs of tokens that attend to one another, halves of their own counted as in s / 2."""
    pairs = 0.0
    for length in lengths:
        for position in range(length):
            pairs += min(position + 0.5, window) if window else position + 0.5
    return pairs / sum(lengths)


def test_a_causal_token_meets_half_of_its_sequence(study_of: StudyOf) -> None:
    assert attention(study_of(f"model m {{ {SHAPE} }}")) == 4 * 1024


def test_an_encoder_meets_all_of_it(study_of: StudyOf) -> None:
    assert attention(study_of(f"model m {{ {SHAPE}, causal = off }}")) == 4 * 2048


@try_each("window", [1, 128, 1000, 2048, 5000])
def test_a_window_bounds_what_later_tokens_meet(study_of: StudyOf, window: int) -> None:
    study = study_of(f"model m {{ {SHAPE}, window = {window} }}")
    assert attention(study) / 4 == pytest.approx(attended_by_hand([2048], window), abs=0.2)
    w = min(window, 2048)
    assert attention(study) / 4 == w - w * w / (2 * 2048)


def test_every_nth_layer_may_attend_to_all(study_of: StudyOf) -> None:
    study = study_of(f"model m {{ {SHAPE}, window = 512, full_every = 4 }}")
    assert attention(study) == 3 * (512 - 512**2 / 4096) + 1024


def test_packed_documents_meet_their_own_tokens_only(study_of: StudyOf) -> None:
    study = study_of(f"model m {{ {SHAPE} }}", training="documents = [1024, 512, 256, 256]")
    assert attention(study) / 4 == pytest.approx(
        attended_by_hand([1024, 512, 256, 256], 0), rel=1e-12
    )
    squares = 1024**2 + 512**2 + 2 * 256**2
    assert attention(study) / 4 == squares / 2 / 2048


def test_a_window_bounds_long_documents_only(study_of: StudyOf) -> None:
    study = study_of(
        f"model m {{ {SHAPE}, window = 300 }}", training="documents = [1024, 512, 256, 256]"
    )
    assert attention(study) / 4 == pytest.approx(
        attended_by_hand([1024, 512, 256, 256], 300), abs=0.2
    )


def test_equal_documents_may_be_given_by_their_length(study_of: StudyOf) -> None:
    listed = study_of(f"model m {{ {SHAPE} }}", training="documents = [512, 512, 512, 512]")
    said = study_of(f"model m {{ {SHAPE} }}", training="document = 512")
    assert attention(listed) == attention(said) == 4 * 256


@pytest.mark.slow
def test_kernels_run_what_the_definition_counts(study_of: StudyOf) -> None:
    for training in ("", "documents = [1024, 1024]"):
        study = study_of(
            f"model m {{ {SHAPE}, window = 512, full_every = 2 }}",
            layout="tp = 2",
            training=training,
        )
        run = {"F": 0.0, "B": 0.0}
        for op in study.operators:
            if isinstance(op, FusedAttention):
                run[op.pass_] += op.flops * sum(op.count)
        (defined,) = [f.per_token for f in study.flops if f.kind == "attention"]
        assert 2 * run["F"] / 2048 == pytest.approx(defined, rel=1e-12)
        assert run["B"] == pytest.approx(2.5 * run["F"], rel=1e-12)


def test_backward_of_unequal_heads_has_three_products_of_one_size_and_two_of_the_other(
    study_of: StudyOf,
) -> None:
    core = {
        op.pass_: op.flops
        for op in study_of("deepseek_v3").operators
        if isinstance(op, FusedAttention)
    }
    assert core["B"] / core["F"] == (3 * 192 + 2 * 128) / (192 + 128)


def test_context_parallel_ranks_share_the_queries(study_of: StudyOf) -> None:
    whole, half = (
        [op.flops for op in study_of("llama3_8b", layout=f"cp = {cp}").operators] for cp in (1, 2)
    )
    assert sum(half) == pytest.approx(sum(whole) / 2, rel=1e-12)


@try_each("chunk", [1, 512, 1000, 2048, 5000])
def test_a_token_of_a_chunk_meets_those_before_it_in_the_chunk(
    study_of: StudyOf, chunk: int
) -> None:
    study = study_of(f"model m {{ {SHAPE}, window = {chunk}, chunked = on }}")
    pairs = sum(position % chunk + 0.5 for position in range(2048))
    assert attention(study) / 4 == pytest.approx(pairs / 2048, rel=1e-12)


def test_an_encoder_meets_whole_chunks(study_of: StudyOf) -> None:
    study = study_of(f"model m {{ {SHAPE}, window = 1500, chunked = on, causal = off }}")
    assert attention(study) / 4 == pytest.approx((1500**2 + 548**2) / 2048, rel=1e-12)


def test_layers_that_attend_to_all_may_be_listed(study_of: StudyOf) -> None:
    listed = study_of(f"model m {{ {SHAPE}, window = 512, full_layers = [0, 3] }}")
    assert attention(listed) == 2 * (512 - 512**2 / 4096) + 2 * 1024
