"""Parameter counts of the catalogue's models equal the published totals exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
import parcost_specs
from parcost import Real

TOTALS = {
    "gpt2_small": 124_439_808,
    "gpt2_xl": 1_557_611_200,
    "gpt3_175b": 174_604_259_328,
    "mt_nlg_530b": 529_581_506_560,
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama31_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama31_70b": 70_553_706_496,
    "llama33_70b": 70_553_706_496,
    "llama31_405b": 405_853_388_800,
    "llama32_1b": 1_235_814_400,
    "llama32_3b": 3_212_749_824,
    "codellama_34b": 33_743_970_304,
    "mistral_7b": 7_241_732_096,
    "qwen25_7b": 7_615_616_512,
    "qwen25_72b": 72_706_203_648,
    "gemma_7b": 8_537_680_896,
    "phi3_mini": 3_821_079_552,
}

STUDY = """
use catalog.devices.b200
use catalog.fabrics.hgx_b200
use catalog.models.{model}
use catalog.precisions.bf16
cluster {{ devices = {devices} }}
layout {{ {layout} }}
training {{ sequence = 1024, global_batch = 128 sequences }}
"""


def parameters(model: str, *, devices: int = 1, layout: str = "tp = 1") -> Real:
    text = STUDY.format(model=model, devices=devices, layout=layout)
    report = parcost.load_text(text)[0].evaluate()
    return report.result.figure("parameters")


def test_every_model_of_the_catalogue_has_a_total() -> None:
    folder = Path(parcost_specs.__file__).parent / "models"
    assert {p.stem for p in folder.glob("*.par")} == set(TOTALS)


@pytest.mark.parametrize("model", TOTALS)
def test_a_model_has_its_published_number_of_parameters(model: str) -> None:
    assert parameters(model) == TOTALS[model]


@pytest.mark.parametrize("model", TOTALS)
def test_the_header_of_the_file_says_the_same_number(model: str) -> None:
    path = Path(parcost_specs.__file__).parent / "models" / f"{model}.par"
    text = path.read_text(encoding="utf-8")
    assert f"{TOTALS[model]:,}" in text or "extends" in text


@pytest.mark.parametrize("layout", ["tp = 8", "pp = 8", "tp = 2, pp = 2, zero = 3", "zero = 1"])
def test_a_layout_does_not_change_how_many_there_are(layout: str) -> None:
    assert parameters("llama3_70b", devices=8, layout=layout) == TOTALS["llama3_70b"]
    assert parameters("llama32_1b", devices=8, layout=layout) == TOTALS["llama32_1b"]
