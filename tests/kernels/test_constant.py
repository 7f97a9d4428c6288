"""Kernel time at a constant rate, against numbers worked by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Study, Work
from parcost_plugins.kernels.constant import ConstantKernels
from parcost_plugins.vocabulary import FusedAttention, Gemm, Stream

StudyWith = Callable[..., Study]


def seconds(operator: object, study: Study) -> float:
    priced = ConstantKernels().price(operator, study)
    assert priced is not None
    return priced.value


def test_only_flops_and_bytes_count(study_with: StudyWith) -> None:
    study = study_with(
        "model = constant, gemm_efficiency = 75 %, memory_efficiency = 50 %,"
        "attention_forward_efficiency = 50 %, attention_backward_efficiency = 45 %"
    )
    product = Gemm(name="p", m=1793, n=7, k=13, pass_="W", count=(1.0,), batch=3)
    assert seconds(product, study) == pytest.approx(
        2 * 3 * 1793 * 7 * 13 / (989e12 * 0.75), rel=1e-12
    )
    for pass_, efficiency in (("F", 0.5), ("R", 0.5), ("B", 0.45)):
        core = FusedAttention(name="c", flops=1e12, pass_=pass_, count=(1.0,))
        assert seconds(core, study) == pytest.approx(1e12 / (989e12 * efficiency), rel=1e-12)
    copy = Stream(name="s", bytes_=1e9, pass_="F", count=(1.0,))
    assert seconds(copy, study) == pytest.approx(1e9 / (3.35e12 * 0.5), rel=1e-12)


def test_a_non_operator_is_not_priced(study_with: StudyWith) -> None:
    assert ConstantKernels().price(object(), study_with()) is None


def test_a_layer_and_the_head_of_llama_3_70b() -> None:
    # 8 ranks, 8192 tokens; products at 0.75, attention at 0.5 and 0.45 of 989e12
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.models.llama3_70b
        cluster { devices = 64 }
        layout { tp = 8, pp = 4, sequence_parallel = on }
        training { sequence = 8192, global_batch = 32 sequences }
        kernels {
          model = constant, gemm_efficiency = 75 %, memory_bound = off
          attention_forward_efficiency = 50 %, attention_backward_efficiency = 45 %
        }
        """
    )
    works = [
        (plugin.name, term)
        for plugin, term in scenario.studies()[0].contributions("terms")
        if isinstance(term, Work) and plugin.name == "kernels.operator_times"
    ]

    def layer(passes: str, *, core: bool) -> float:
        return sum(
            w.seconds * w.count[0] / 20
            for _, w in works
            if w.pass_ in passes and (w.name == "attention core") == core
        )

    assert layer("F", core=False) == pytest.approx(2.36245e-3, rel=1e-5)
    assert layer("F", core=True) == pytest.approx(0.27794e-3, rel=2e-5)
    assert layer("BW", core=False) == pytest.approx(2 * 2.36245e-3, rel=1e-5)
    assert layer("BW", core=True) == pytest.approx(2.5 * 0.27794e-3 * 0.5 / 0.45, rel=2e-5)
    head = {w.pass_: w.seconds for _, w in works if w.name == "head"}
    assert head["F"] == pytest.approx(2.9009e-3, rel=2e-5)
    assert head["B"] + head["W"] == pytest.approx(5.8019e-3, rel=2e-5)
