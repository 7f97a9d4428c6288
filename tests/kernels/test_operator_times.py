"""From operators to work: what is estimated, by which model, and what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from parcost import Formula, KernelModel, Operator, Study, Work, formula, hookimpl
from parcost_plugins.vocabulary import Gemm, Stream

from ..rows import try_each

StudyWith = Callable[..., Study]


def work(study: Study) -> dict[tuple[str, str], Work]:
    return {
        (term.name, term.pass_): term
        for plugin, term in study.contributions("terms")
        if plugin.name == "kernels.operator_times" and isinstance(term, Work)
    }


def test_every_operator_becomes_work(study_with: StudyWith) -> None:
    study = study_with()
    found = work(study)
    assert len(found) == len(study.operators)
    for operator in study.operators:
        priced = found[operator.name, operator.pass_]
        assert tuple(priced.count) == tuple(operator.count)
        assert priced.flops == operator.flops
        assert priced.host == operator.host
        assert priced.window is None
        streams = isinstance(operator, Stream)
        assert priced.resource == ("hbm" if streams else "compute")
        assert priced.bytes_ == (operator.bytes_ if streams else 0)


def test_products_count_two_flops_per_multiplication(study_with: StudyWith) -> None:
    found = work(study_with())["head", "F"]
    assert found.flops == 2 * 4096 * 128_256 * 4096


@pytest.mark.slow
def test_streams_can_be_left_out(study_with: StudyWith) -> None:
    study = study_with("memory_bound = off")
    found = work(study)
    assert found
    assert not any(term.resource == "hbm" for term in found.values())


@pytest.mark.slow
def test_the_study_chooses_the_model(study_with: StudyWith) -> None:
    class Second(KernelModel):
        name = "one_second"

        def price(self, operator: object, study: Study) -> Formula:  # noqa: ARG002
            return formula("t", t=(1.0, "s"))

    offered = SimpleNamespace(kernels=hookimpl(lambda: [Second()]))
    found = work(study_with("model = one_second", ("second", offered)))
    assert {term.seconds for term in found.values()} == {1.0}


def test_an_operator_without_a_price_is_a_fault(study_with: StudyWith) -> None:
    class Scan(Operator):
        name, pass_, count = "selective scan", "F", (1.0,)

    offered = SimpleNamespace(operators=hookimpl(lambda study: [Scan()]))  # noqa: ARG005
    study = study_with("", ("state_space", offered))
    work(study)
    (fault,) = study.faults
    assert fault.plugin.name == "kernels.operator_times"
    assert "kernel model `tiled` cannot estimate the Scan `selective scan`" in fault.message


def test_formulas_name_their_numbers(study_with: StudyWith) -> None:
    found = work(study_with())
    product = found["MLP down projection", "W"].formula
    assert {symbol: value for symbol, (value, _) in product.inputs.items() if symbol in "MNK"} == {
        "M": 4096,
        "N": 14_336,
        "K": 4096,
    }
    for term in found.values():
        assert term.formula.source
        assert term.formula.inputs


def test_a_device_without_a_peak_in_the_type_is_refused(study_with: StudyWith) -> None:
    study = study_with(device="v100_sxm2_32g")
    found = [c for _, c in study.contributions("checks") if c.id == "no-peak" and not c.holds]
    assert [c.subject for c in found] == ["recipe.compute"]
    assert found[0].message.format(**found[0].inputs) == "device `v100_sxm2_32g` has no bf16 peak"
    assert found[0].help == "choose a type that it has: fp32, fp16"


@try_each("compute", ["fp32", "tf32", "bf16", "fp16"])
def test_products_run_at_the_peak_of_the_type(study_with: StudyWith, compute: str) -> None:
    peaks = {"fp32": 67e12, "tf32": 494.5e12, "bf16": 989e12, "fp16": 989e12}
    study = study_with("model = constant, gemm_efficiency = 50 %", compute=compute)
    products = [op for op in study.operators if isinstance(op, Gemm)]
    found = work(study)
    assert products
    for product in products:
        seconds = found[product.name, product.pass_].seconds
        assert seconds == pytest.approx(product.flops / (peaks[compute] * 0.5), rel=1e-12)
