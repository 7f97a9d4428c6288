"""Models of a stated size."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Study
from parcost_plugins.vocabulary import Gemm

StudyOf = Callable[..., Study]

SEVENTY = "model m { layers = 80, parameters = 70 G, hidden = 8192 }"


def test_parameters_are_spread_evenly_over_layers_and_ranks(study_of: StudyOf) -> None:
    study = study_of(SEVENTY, layout="tp = 8, pp = 2", devices=16)
    (held,) = study.parameters
    assert [held.elements * n for n in held.count] == [4.375e9, 4.375e9]
    assert held.total * sum(held.count) == 70e9


@pytest.mark.parametrize("hidden", ["", ", hidden = 8192"])
def test_a_token_takes_six_flops_for_each(study_of: StudyOf, hidden: str) -> None:
    study = study_of(f"model m {{ layers = 80, parameters = 70 G{hidden} }}")
    assert 3 * sum(f.per_token for f in study.flops) == pytest.approx(6 * 70e9, rel=1e-12)
    for pass_ in "FBW":
        run = sum(op.flops * sum(op.count) for op in study.operators if op.pass_ == pass_)
        assert run / 2048 == pytest.approx(2 * 70e9, rel=1e-12)


def test_attention_counts_where_heads_are_given(study_of: StudyOf) -> None:
    study = study_of("model m { layers = 80, parameters = 70 G, hidden = 8192, heads = 64 }")
    attention = [f.per_token for f in study.flops if f.kind == "attention"]
    assert attention == [80 * 2 * 8192 * 2048]


def test_a_layer_has_two_pairs_of_products(study_of: StudyOf) -> None:
    hosts = [
        op.host for op in study_of(SEVENTY).operators if isinstance(op, Gemm) and op.pass_ == "F"
    ]
    assert hosts == [
        "attention, by columns",
        "attention, by rows",
        "MLP, by columns",
        "MLP, by rows",
    ]


def test_a_layer_saves_what_the_model_says(study_of: StudyOf) -> None:
    study = study_of(
        "model m { layers = 80, parameters = 70 G, hidden = 8192, saved = 34 B * hidden }",
        layout="tp = 8",
        training="micro_batch = 2",
    )
    (saved,) = [t for p, t in study.contributions("memory") if p.name == "model.stated_size"]
    assert saved.bytes_ == 34 * 8192 * 2048 * 2 / 8
    assert tuple(saved.count) == (80,)


def test_its_state_is_sixteen_bytes_a_parameter() -> None:
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16_zero_paper
        model m { layers = 80, parameters = 70 G, hidden = 8192 }
        cluster { devices = 16 }
        layout { tp = 8, pp = 2 }
        training { sequence = 4096, global_batch = 16 sequences }
        """
    )
    study = scenario.studies()[0]
    state = sum(t.bytes_ for p, t in study.contributions("memory") if p.name == "memory.state")
    assert state == 70e9
