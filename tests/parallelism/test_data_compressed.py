"""Terms of compressed gradients: low-rank factors, signs and exchanges by level."""

from __future__ import annotations

from typing import Any

import pytest

from parcost import Work

from ..rows import try_each
from .data_terms import FOUR, LOW_RANK, Bind, once_terms, ours, parameters_record


def test_low_rank_factors_are_of_each_matrix_that_shrinks(bind: Bind) -> None:
    """Rank 4 of width 1024: matrices of 3072 columns shrink to 2 x 4 x 4096 B, others do not.

    At least 8 times smaller they have to be: 8 x 4 x 4096 < 1024 x 3072, and 8 x 4 x 1064
    is more than 1024 x 40 - as well as 8 x 4 x 1024 x 33 / 32 than 1024 x 33 - as it is.
    """
    matrices, small, vectors = 1024.0 * 3072, 1024.0 * 33, 1024.0
    values = {
        **FOUR,
        **LOW_RANK,
        "compression.minimum_rate": 8,
        "compression.factor": 2,
        "plain.matmul_efficiency": 0.25,
        "small.layers": 5,
    }
    study = bind(
        values,
        parameters=[
            parameters_record(matrices, (5.0,)),
            parameters_record(small, (5.0,)),
            parameters_record(vectors, (10.0,)),
        ],
    )
    rows, columns, whole = 5 * 4 * 2 * 1024, 5 * 4 * 2 * 3072, 4 * (5 * small + 10 * vectors)
    found = once_terms(study)
    sent = rows + columns + whole
    assert found["gradient all-reduce"][:2] == pytest.approx((1.5 * sent / 1e9, sent / 1e9))
    flops = 5 * (6 * 4 * matrices + 2 * 1024 * 4**2)
    (term,) = (t for t in ours(study) if t.name == "gradient compression")
    assert term.formula.inputs["F"] == (flops, "FLOP")
    elements = 5 * matrices + 5 * small + 10 * vectors
    streamed = 20 * elements
    assert found["gradient compression"][:2] == pytest.approx(
        (streamed / 0.5e12 + flops / 25e12, streamed / 1e9)
    )


@pytest.mark.parametrize(("columns", "shrinks"), [(1024.0, False), (1025.0, True)])
def test_a_matrix_that_is_as_small_as_its_factors_is_sent_as_it_is(
    bind: Bind, columns: float, shrinks: bool
) -> None:
    """Rank 256 at a rate of 2: 512 (1024 + w) against 1024 w, the same for w = 1024."""
    values = {**FOUR, **LOW_RANK, "compression.rank": 256, "compression.minimum_rate": 2}
    study = bind(
        {**values, "compression.factor": 1}, parameters=[parameters_record(1024.0 * columns)]
    )
    n = 256 * (1024 + columns) if shrinks else 4 * 1024 * columns
    found = once_terms(study)
    assert found["gradient all-reduce"][1] == pytest.approx(n / 1e9)
    flops = (6 * 256 * 1024 * columns + 2 * 1024 * 256**2) * shrinks
    expected = 20 * 1024 * columns / 0.5e12 + flops / 100e12
    assert found["gradient compression"][0] == pytest.approx(expected)


def test_low_rank_factors_of_experts_are_their_own(bind: Bind) -> None:
    n, of_experts = 1024.0 * 1024, 1024.0 * 2048
    study = bind(
        {**LOW_RANK, "layout.ep": 4},
        parameters=[parameters_record(n), parameters_record(of_experts, expert=True)],
    )
    found = once_terms(study)
    assert found["gradient all-reduce"][1] * 1e9 == pytest.approx(4 * 4 * 2048)
    assert found["gradient all-reduce of experts"][1] * 1e9 == pytest.approx(4 * 4 * 3072)
    flops = 6 * 4 * of_experts + 2 * 1024 * 16
    seconds = 20 * of_experts / 0.5e12 + flops / 100e12
    assert found["gradient compression of experts"][0] == pytest.approx(seconds)


def test_low_rank_factors_are_of_what_a_stage_holds(bind: Bind) -> None:
    n = 1024.0 * 1024
    values = {**FOUR, **LOW_RANK, "layout.pp": 2}
    study = bind(
        values,
        parameters=[
            parameters_record(n, (4.0, 4.0)),
            parameters_record(2 * n, (0.0, 1.0), "after"),
        ],
    )
    found = once_terms(study)
    first, last = 4 * 4 * 4 * 2048, 4 * 4 * 4 * 2048 + 4 * 4 * 3072
    assert found["gradient all-reduce, stage 0"][1] * 1e9 == pytest.approx(first)
    assert found["gradient all-reduce, stage 1"][1] * 1e9 == pytest.approx(last)


def test_one_replica_compresses_nothing(bind: Bind) -> None:
    values = {"cluster.devices": 1, "training.global_batch": 1, "compression.method": "int8"}
    assert (
        once_terms(bind(values, parameters=[parameters_record(1e9)]))["gradient compression"][0]
        == 0.0
    )


@try_each(
    "values, every",
    [
        ({"layout.zero": 1}, False),
        ({"layout.zero": 2}, True),
        ({"layout.zero": 3}, True),
        ({"layout.zero": 3, "sharding.accumulate": "whole"}, False),
    ],
)
def test_reductions_per_micro_batch_are_compressed_there(
    bind: Bind, values: dict[str, Any], every: bool
) -> None:
    study = bind(
        {**FOUR, **values, "compression.method": "int8"}, parameters=[parameters_record(1e9)]
    )
    (found,) = [term for term in ours(study) if term.name == "gradient compression"]
    assert isinstance(found, Work) == every
    assert found.formula.inputs["F"] == (0.0, "FLOP")
    assert found.bytes_ == 12e9


@pytest.mark.slow
def test_levels_are_exchanged_one_by_one_only_where_that_is_faster(bind: Bind) -> None:
    """8 GB among nodes of 2: half at 10 GB/s, and 3/4 of 4 GB at 1 GB/s; or 7/8 at once."""
    text = """
    fabric nodes {
      level node { size = 2 devices, bandwidth = 10 GB/s per_direction, latency = 0 s }
      level net { bandwidth = 1 GB/s per_direction, latency = %s }
    }
    """
    values = {"compression.method": "int8", "compression.scale": 0, "cluster.fabric": "nodes"}
    values["layout.zero"] = 1
    name = "gradient reduce-scatter"
    by_levels = once_terms(bind(values, text % "0 s", parameters=[parameters_record(8e9)]))[name][0]
    assert by_levels == pytest.approx(4 / 10 + 3)
    two = {**values, "cluster.devices": 2, "training.global_batch": 2}
    node = bind(two, text % "0 s", parameters=[parameters_record(8e9)])
    assert once_terms(node)[name][0] == pytest.approx(0.4)
    texts = [term.formula.text.startswith("the faster of") for term in ours(node)]
    assert not any(texts)


def test_the_formula_of_an_exchange_has_the_bytes_of_both_halves(bind: Bind) -> None:
    values = {**FOUR, "compression.method": "int8", "compression.scale": 0}
    terms = {term.name: term for term in ours(bind(values, parameters=[parameters_record(1e9)]))}
    formula = terms["gradient all-reduce"].formula
    assert formula.text == "sum(t)"
    assert [part.inputs["n"] for part in formula.parts.values()] == [(1e9, "B")] * 2


def test_a_single_gradient_is_sent_as_it_is(bind: Bind) -> None:
    found = once_terms(bind({**FOUR, **LOW_RANK}, parameters=[parameters_record(1.0)]))
    assert found["gradient all-reduce"][1] == pytest.approx(4e-9)
