"""Parameter counts of the catalogue's models equal the published totals exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
import parcost_specs
from parcost import Real

from ..rows import try_each

# The parameters that the published checkpoints hold: a tied head once, buffers not.
TOTALS = {
    "baichuan2_13b": 13_896_668_160,
    "baichuan2_7b": 7_505_973_248,
    "bloom_176b": 176_247_271_424,
    "bloom_1b1": 1_065_314_304,
    "bloom_1b7": 1_722_408_960,
    "bloom_3b": 3_002_557_440,
    "bloom_560m": 559_214_592,
    "bloom_7b1": 7_069_016_064,
    "chatglm3_6b": 6_243_584_000,
    "codellama_13b": 13_016_028_160,
    "codellama_34b": 33_743_970_304,
    "codellama_7b": 6_738_546_688,
    "deepseek_coder_1_3b": 1_346_471_936,
    "deepseek_coder_33b": 33_342_991_360,
    "deepseek_coder_6_7b": 6_740_512_768,
    "deepseek_llm_7b": 6_910_365_696,
    "deepseek_moe_16b": 16_375_728_128,
    "deepseek_v2": 235_741_434_880,
    "deepseek_v2_lite": 15_706_484_224,
    "deepseek_v3": 671_026_419_200,
    "ernie45_21b_a3b": 21_825_437_888,
    "falcon_7b": 6_921_720_704,
    "gemma2_27b": 27_227_128_320,
    "gemma2_2b": 2_614_341_888,
    "gemma2_9b": 9_241_705_984,
    "gemma3_1b": 999_885_952,
    "gemma3_270m": 268_098_176,
    "gemma3_27b_text": 27_009_346_304,
    "gemma_2b": 2_506_172_416,
    "gemma_7b": 8_537_680_896,
    "glm45": 352_797_829_024,
    "glm45_air": 106_852_251_264,
    "glm4_9b": 9_399_951_360,
    "gpt2_large": 774_030_080,
    "gpt2_medium": 354_823_168,
    "gpt2_small": 124_439_808,
    "gpt2_xl": 1_557_611_200,
    "gpt3_175b": 174_604_259_328,
    "gpt_j_6b": 6_050_882_784,
    "gpt_neox_20b": 20_554_567_680,
    "gpt_oss_120b": 116_829_156_672,
    "gpt_oss_20b": 20_914_757_184,
    "hunyuan_a13b": 80_393_183_232,
    "internlm2_7b": 7_737_708_544,
    "kimi_k2": 1_026_408_232_448,
    "ling_1t": 999_705_328_640,
    "llama1_13b": 13_015_864_320,
    "llama1_33b": 32_528_943_616,
    "llama1_65b": 65_285_660_672,
    "llama1_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama2_7b": 6_738_415_616,
    "llama31_405b": 405_853_388_800,
    "llama31_70b": 70_553_706_496,
    "llama31_8b": 8_030_261_248,
    "llama32_1b": 1_235_814_400,
    "llama32_3b": 3_212_749_824,
    "llama33_70b": 70_553_706_496,
    "llama3_70b": 70_553_706_496,
    "llama3_8b": 8_030_261_248,
    "minimax_m2": 228_689_764_864,
    "ministral_8b": 8_019_808_256,
    "mistral_7b": 7_241_732_096,
    "mistral_7b_v0_2": 7_241_732_096,
    "mistral_7b_v0_3": 7_248_023_552,
    "mistral_nemo_12b": 12_247_782_400,
    "mistral_small_24b": 23_572_403_200,
    "mixtral_8x22b": 140_620_634_112,
    "mixtral_8x7b": 46_702_792_704,
    "moonlight_16b_a3b": 15_960_110_208,
    "mpt_30b": 29_957_200_896,
    "mpt_7b": 6_649_286_656,
    "mt_nlg_530b": 529_581_506_560,
    "olmo2_13b": 13_716_198_400,
    "olmo2_1b": 1_484_916_736,
    "olmo2_32b": 32_234_279_936,
    "olmo2_7b": 7_298_617_344,
    "olmo3_7b": 7_298_011_136,
    "open_llama_3b": 3_426_473_600,
    "opt_125m": 125_239_296,
    "opt_13b": 12_853_473_280,
    "opt_1_3b": 1_315_758_080,
    "opt_2_7b": 2_651_596_800,
    "opt_30b": 29_974_540_288,
    "opt_6_7b": 6_658_473_984,
    "phi1_5": 1_418_270_720,
    "phi2": 2_779_683_840,
    "phi35_mini": 3_821_079_552,
    "phi3_medium": 13_960_238_080,
    "phi3_mini": 3_821_079_552,
    "phi4": 14_659_507_200,
    "phi4_mini": 3_836_021_760,
    "pythia_12b": 11_846_072_320,
    "pythia_160m": 162_322_944,
    "pythia_1_4b": 1_414_647_808,
    "pythia_1b": 1_011_781_632,
    "pythia_2_8b": 2_775_208_960,
    "pythia_410m": 405_334_016,
    "pythia_6_9b": 6_857_302_016,
    "pythia_70m": 70_426_624,
    "qwen15_0_5b": 463_987_712,
    "qwen15_14b": 14_167_290_880,
    "qwen15_1_8b": 1_836_828_672,
    "qwen15_32b": 32_512_218_112,
    "qwen15_4b": 3_950_369_280,
    "qwen15_72b": 72_287_920_128,
    "qwen15_7b": 7_721_324_544,
    "qwen15_moe_a2_7b": 14_315_784_192,
    "qwen25_0_5b": 494_032_768,
    "qwen25_14b": 14_770_033_664,
    "qwen25_1_5b": 1_543_714_304,
    "qwen25_32b": 32_763_876_352,
    "qwen25_3b": 3_085_938_688,
    "qwen25_72b": 72_706_203_648,
    "qwen25_7b": 7_615_616_512,
    "qwen35_27b": 26_895_998_464,
    "qwen35_35b_a3b": 34_660_610_688,
    "qwen3_0_6b": 596_049_920,
    "qwen3_14b": 14_768_307_200,
    "qwen3_1_7b": 1_720_574_976,
    "qwen3_235b_a22b": 235_093_634_560,
    "qwen3_30b_a3b": 30_532_122_624,
    "qwen3_32b": 32_762_123_264,
    "qwen3_4b": 4_022_468_096,
    "qwen3_8b": 8_190_735_360,
    "qwen3_coder_480b_a35b": 480_154_875_392,
    "qwen3_next_80b_a3b": 79_674_391_296,
    "r1_distill_qwen_1_5b": 1_777_088_000,
    "seed_oss_36b": 36_151_104_512,
    "smollm2_135m": 134_515_008,
    "smollm2_1_7b": 1_711_376_384,
    "smollm2_360m": 361_821_120,
    "smollm3_3b": 3_075_098_624,
    "stablelm2_1_6b": 1_644_515_328,
    "starcoder2_15b": 15_957_889_024,
    "starcoder2_3b": 3_030_371_328,
    "starcoder2_7b": 7_173_923_840,
    "starcoder_15b": 15_517_456_384,
    "tinyllama_1_1b": 1_100_048_384,
    "yi_34b": 34_388_917_248,
    "yi_6b": 6_061_035_520,
}

# Embedding and head once each, all norms, the router, shared experts and those that are visited.
ACTIVE = {
    "deepseek_v2_lite": 2_661_150_208,
    "deepseek_v3": 37_552_297_472,
    "gpt_oss_120b": 5_711_982_912,
    "gpt_oss_20b": 4_187_440_704,
    "kimi_k2": 32_861_500_928,
    "mixtral_8x7b": 12_879_925_248,
    "moonlight_16b_a3b": 2_914_776_192,
    "qwen15_moe_a2_7b": 2_689_173_504,
    "qwen3_235b_a22b": 22_190_763_520,
    "qwen3_30b_a3b": 3_353_032_704,
    "qwen3_next_80b_a3b": 3_874_929_408,
    "qwen35_35b_a3b": 3_454_988_928,
}

# Names that say a size: what the shape makes of it, within what a name rounds.
NAMED = {
    "bert_base": 0.109e9,
    "bert_large": 0.334e9,
    "chinchilla_70b": 12 * 8192**2 * 80 + 32_000 * 8192,  # without relative positions
    "deepseek_v3_mtp": 671.026e9 + 11.6e9,
    "gpt3_125m": 125e6,
    "gpt3_13b": 13e9,
    "gpt3_1_3b": 1.3e9,
    "gpt3_2_7b": 2.7e9,
    "gpt3_350m": 0.356e9,
    "gpt3_6_7b": 6.7e9,
    "gpt3_760m": 760e6,
    "llama4_maverick": 400e9,
    "llama4_scout": 108e9,
    "megatron_1t": 1008e9,
    "opt_175b": 175e9,
    "opt_66b": 66e9,
    "palm_540b": 540.35e9,
    "palm_62b": 62.5e9,
    "palm_8b": 8.63e9,
}

STUDY = """
use catalog.devices.b200
use catalog.fabrics.hgx_b200
use catalog.models.{model}
use catalog.precisions.bf16
device roomy extends b200 {{ memory = 100 TB }}
cluster {{ device = roomy, devices = {devices} }}
layout {{ {layout} }}
training {{ sequence = 512, global_batch = 128 sequences }}
"""


def parameters(model: str, *, devices: int = 1, layout: str = "tp = 1") -> Real:
    text = STUDY.format(model=model, devices=devices, layout=layout)
    report = parcost.load_text(text)[0].evaluate()
    return report.result.figure("parameters")


@pytest.mark.slow
def test_every_model_of_the_catalogue_has_a_total() -> None:
    folder = Path(parcost_specs.__file__).parent / "models"
    assert {p.stem for p in folder.glob("*.par")} == set(TOTALS) | set(NAMED)


@pytest.mark.parametrize("model", TOTALS)
def test_a_model_has_its_published_number_of_parameters(model: str) -> None:
    assert parameters(model) == TOTALS[model]


@try_each("model", TOTALS)
def test_the_header_of_the_file_says_the_same_number(model: str) -> None:
    path = Path(parcost_specs.__file__).parent / "models" / f"{model}.par"
    text = path.read_text(encoding="utf-8")
    assert f"{TOTALS[model]:,}" in text or "extends" in text


@pytest.mark.parametrize("model", ACTIVE)
def test_a_token_meets_the_parameters_that_the_publisher_counts(model: str) -> None:
    report = parcost.load_text(STUDY.format(model=model, devices=1, layout="tp = 1"))[0].evaluate()
    assert report.result.figure("active_parameters") == ACTIVE[model]


@pytest.mark.parametrize("model", NAMED)
def test_a_model_has_the_size_of_its_name(model: str) -> None:
    assert parameters(model) == pytest.approx(NAMED[model], rel=0.02)


@try_each("layout", ["tp = 8", "pp = 8", "tp = 2, pp = 2, zero = 3", "zero = 1"])
def test_a_layout_does_not_change_how_many_there_are(layout: str) -> None:
    assert parameters("llama3_70b", devices=8, layout=layout) == TOTALS["llama3_70b"]
    assert parameters("llama32_1b", devices=8, layout=layout) == TOTALS["llama32_1b"]
