"""What streams over gradients and optimizer state: accumulation, norm, clipping, update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Once, Study
from parcost_plugins.vocabulary import Parameters

from ..rows import try_each

Bind = Callable[..., Study]
StudyWith = Callable[..., Study]

H100 = {"plain.memory_bandwidth": 3.35e12, "plain.memory_efficiency": 0.85}
LLAMA3_8B = 8_030_261_248


def one_billion(study: Study) -> list[Parameters]:  # noqa: ARG001
    return [Parameters(name="matrix", elements=1e9, total=1e9, count=(1.0,))]


def once_term(study: Study, name: str) -> Once:
    (term,) = [term for _, term in study.contributions("terms") if term.name == name]
    assert isinstance(term, Once)
    return term


def test_adam_updates_a_billion_parameters_on_an_h100_in_10_54_ms(bind: Bind) -> None:
    # 30e9 B / (3.35e12 B/s x 0.85)
    term = once_term(bind(H100, parameters=one_billion), "optimizer update")
    assert term.seconds == pytest.approx(10.54e-3, abs=5e-6)
    assert (term.when, term.resource) == ("end", "hbm")


@try_each("zero", [1, 2, 3])
@try_each("name", ["optimizer update", "gradient norm and clipping"])
def test_under_zero_a_rank_streams_over_its_share(bind: Bind, name: str, zero: int) -> None:
    values = {"mixed.norm_traffic": 12}
    whole = once_term(bind(values, parameters=one_billion), name)
    shared = once_term(bind({**values, "layout.zero": zero}, parameters=one_billion), name)
    assert whole.seconds == pytest.approx(8 * shared.seconds)  # 8 replicas
    assert whole.bytes_ == pytest.approx(8 * shared.bytes_)


@pytest.mark.slow
def test_clipping_reads_fp32_gradients_twice_and_writes_them_once(study_with: StudyWith) -> None:
    term = once_term(study_with("memory_efficiency = 50 %"), "gradient norm and clipping")
    assert term.bytes_ == 12 * LLAMA3_8B
    assert term.seconds == pytest.approx(12 * LLAMA3_8B / (3.35e12 * 0.5))
    assert (term.when, term.resource) == ("end", "hbm")


def test_no_clipping_costs_nothing(bind: Bind) -> None:
    values = {"mixed.norm_traffic": 0}
    assert (
        once_term(bind(values, parameters=one_billion), "gradient norm and clipping").seconds == 0
    )


def accumulation(study: Study) -> list[Any]:
    found = [term for _, term in study.contributions("terms")]
    return [term for term in found if term.name.startswith("gradient accumulation")]


def test_a_fused_product_accumulates_for_nothing_and_a_lookup_does_not(
    study_with: StudyWith,
) -> None:
    for kernels in ("fused_accumulation = on", ""):
        (lookup,) = accumulation(study_with(kernels))
        assert lookup.name == "gradient accumulation, embedding"
        # 2 in bf16, 4 and 4 in fp32: each micro-batch adds to the buffer of the fused products
        assert lookup.bytes_ == 10 * 128_256 * 4096


def test_else_each_micro_batch_reads_both_gradients_and_writes_the_sum(
    study_with: StudyWith,
) -> None:
    # 2 read in bf16, 4 read and 4 written in fp32, from the second of 8 micro-batches on
    off = "model = constant, fused_accumulation = off, memory_efficiency = 50 %"
    found = accumulation(study_with(off))
    assert {(term.pass_, term.resource) for term in found} == {("W", "hbm")}
    bytes_ = sum(term.bytes_ * sum(term.count) for term in found)
    assert bytes_ == pytest.approx(10 * LLAMA3_8B * 7 / 8)
    seconds = sum(term.seconds * sum(term.count) for term in found)
    assert seconds == pytest.approx(10 * LLAMA3_8B * 7 / 8 / (3.35e12 * 0.5))


@try_each(
    "values, bytes_",
    [
        # A whole gradient of 2 B is added to 4 B that are read and written; a shard has 4 B too.
        ({}, 10e9),
        ({"layout.zero": 1}, 10e9),
        ({"layout.zero": 2}, 12e9 / 8),
        ({"layout.zero": 3}, 12e9 / 8),
        ({"mixed.weights": 4}, 12e9),  # autocast: the gradient of a weight in fp32
        ({"mixed.weights": 1, "mixed.wide_weights": 2}, 10e9),  # parameters in 8 bits
        ({"mixed.gradients": 2}, 6e9),
    ],
)
@try_each("micro_batches, share", [(1, 0), (2, 1 / 2), (4, 3 / 4)])
def test_a_rank_accumulates_the_gradients_that_it_keeps(
    bind: Bind, values: dict[str, Any], bytes_: float, micro_batches: int, share: float
) -> None:
    off = {
        "kernels.fused_accumulation": "off",
        "kernels.memory_bound": "on",
        "training.global_batch": 8 * micro_batches,
    }
    (added,) = accumulation(bind({**off, **values}, parameters=one_billion))
    assert added.name == "gradient accumulation, matrix"
    assert added.bytes_ == pytest.approx(share * bytes_)
    assert added.seconds == pytest.approx(share * (bytes_ / 1e12 + 1e-6))  # of one kernel


@try_each(
    "framework, values, bytes_",
    [
        # Into a buffer of zeros the first gradient is added as well.
        ("zeroes_gradients = on", {}, 10e9),
        # BF16_Optimizer casts 2 B to 4 B (6 B), and adds those to 4 B (12 B), every time.
        ("", {"mixed.gradient_copies": 2}, 18e9),
        ("fused_accumulation = on", {}, None),
    ],
)
@try_each("micro_batches", [1, 4])
def test_frameworks_differ_in_how_gradients_are_added(
    bind: Bind, framework: str, values: dict[str, Any], bytes_: float | None, micro_batches: int
) -> None:
    given = {"training.framework": "ours", "training.global_batch": 8 * micro_batches, **values}
    given["kernels.memory_bound"] = "on"
    study = bind(given, f"framework ours {{ {framework} }}\n", parameters=one_billion)
    assert [one.bytes_ for one in accumulation(study)] == ([] if bytes_ is None else [bytes_])
