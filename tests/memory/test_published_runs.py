"""Published runs that completed fit or are tight; their kept tensors by hand.

Tokens of a micro-batch, widths and counts of layers are those of the papers; bytes are worked out
here from them alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost.report.verdict import verdict
from parcost_plugins.vocabulary import Cluster

from ..rows import try_each

RUNS = Path(__file__).parents[2] / "specs/runs"
GIB = 2.0**30


def memory_of(name: str) -> tuple[str, dict[str, float]]:
    """Return the verdict of a run, and the bytes of each term on its fullest device."""
    (scenario,) = parcost.load(RUNS / f"{name}.par")
    result = scenario.evaluate().result
    assert result.outcome is not None
    found: dict[str, float] = {}
    for line in result.outcome.memory_lines:
        found[line.name] = found.get(line.name, 0.0) + float(line.bytes_)
    return verdict(result), found


@pytest.mark.parametrize(
    ("name", "alive"),
    [
        # Chunks of one layer alive on the second of 16 stages with 8 chunks each. With twice as many
        # micro-batches as stages: 2 (16 - 1 - 1) + 7 x 16 + 1 = 141. With as many: all 8 x 16.
        ("llama31_405b_8k_h100", 141),
        ("llama31_405b_16k_h100", 128),
    ],
)
def test_llama_405b_without_recomputation_is_tight(name: str, alive: int) -> None:
    found, terms = memory_of(name)
    assert found == "tight in memory"
    # 8192 tokens over TP 8, in bf16: gate and up, 53,248 wide each.
    assert terms["MLP gate and up"] == alive * 8192 * 2 * 53_248 * 2 / 8
    # One copy of the attention output, which the core and its projection read.
    assert terms["attention output"] == alive * 8192 * 16_384 * 2 / 8
    assert "attention output in the compute type" not in terms
    assert "stage output" not in terms


def test_deepseek_v3_as_published_is_tight() -> None:
    found, terms = memory_of("deepseek_v3_2048_h800")
    assert found == "tight in memory"
    # DualPipe keeps 17 micro-batches of 4 layers, of 4096 tokens; 8 experts a token, 2048 wide.
    layers = 17 * 4
    # The busiest of 64 ranks has 2 % more tokens than the mean.
    routed = layers * 4096 * 8 * 2 * 2048 * (1 + 4 / 128)
    assert routed < terms["gate and up of routed experts"] < 1.03 * routed
    assert terms["gate and up of shared experts"] == layers * 4096 * 2 * 2048 * (1 + 4 / 128)
    # 128 heads of 128: once, in 12 bits with a factor for 128.
    assert terms["attention output"] == layers * 4096 * 128 * 128 * (1.5 + 4 / 128)
    assert "attention output in the compute type" not in terms


def test_in_wider_types_deepseek_v3_does_not_fit() -> None:
    text = (RUNS / "deepseek_v3_2048_h800.par").read_text(encoding="utf-8")
    text = text.replace("fp8_deepseek", "fp8_blockwise").replace("memory <= 86 GiB", "")
    (scenario,) = parcost.load_text(text)
    assert verdict(scenario.evaluate().result) == "does not fit in memory"


PIPELINE = """
use catalog.devices.a100_sxm_80g
use catalog.fabrics.dgx_a100
use catalog.frameworks.{framework}
use catalog.models.gpt3_6_7b
use catalog.precisions.fp16
cluster {{ devices = 32 }}
layout {{ tp = 4, pp = 4 }}
training {{ sequence = 2048, micro_batch = 2, global_batch = 64 sequences }}
"""


@try_each(
    "framework, kept",
    [
        ("megatron_core", False),
        ("megatron_lm_2023", False),
        ("nemo", False),
        ("megatron_lm_2021", True),
        ("megatron_deepspeed", True),
        ("deepspeed", True),
        ("torchtitan", True),
    ],
)
def test_some_frameworks_keep_what_a_stage_has_sent(framework: str, kept: bool) -> None:
    (scenario,) = parcost.load_text(PIPELINE.format(framework=framework))
    (study,) = scenario.studies()
    found = [term for _, term in study.contributions("memory") if term.name == "stage output"]
    assert bool(found) == kept
    for term in found:
        # Two sequences of 2048 tokens, 4096 wide, in fp16: on every rank, of every stage but the
        # last. DeepSpeed keeps the share that it has sent: a quarter of it.
        shares = 4 if "deepspeed" in framework else 1
        assert term.bytes_ == 2 * 2048 * 4096 * 2 / shares
        assert tuple(term.count) == (1.0, 1.0, 1.0, 0.0)
        assert term.per_micro_batch


NORMS = """
use catalog.devices.a100_sxm_80g
use catalog.fabrics.dgx_a100
use catalog.frameworks.torchtitan_0_1
use catalog.models.llama2_13b
use catalog.precisions.bf16_fsdp
cluster {{ devices = 64 }}
layout {{ zero = 3 }}
training {{ sequence = 4096, micro_batch = 2, global_batch = 128 sequences, {recompute} }}
"""


@pytest.mark.parametrize(
    ("recompute", "layer_inputs", "norm_inputs"),
    [("recompute = none", 0, 0), ("recompute = full", 40, 0)],
)
def test_norms_that_cast_their_input_keep_the_cast_alone(
    recompute: str, layer_inputs: int, norm_inputs: int
) -> None:
    (scenario,) = parcost.load_text(NORMS.format(recompute=recompute))
    outcome = scenario.evaluate().result.outcome
    assert outcome is not None
    lines = {line.name: float(line.bytes_) for line in outcome.memory_lines}
    one = 2 * 4096 * 5120  # elements of the residual stream
    assert lines.get("layer input", 0.0) == layer_inputs * one * 2
    assert lines.get("MLP norm input", 0.0) == norm_inputs * one * 2
    if recompute == "recompute = none":
        # Two norms a layer keep their input in fp32, and what they multiply with the gain in bf16.
        assert lines["norm inputs in fp32 and normed values"] == 40 * 2 * one * (4 + 2)


_V100 = """
use catalog.devices.v100_sxm2_{card}
use catalog.fabrics.jean_zay_v100
use catalog.frameworks.megatron_deepspeed_2021
use catalog.precisions.fp16
model gpt {{
  layers = 24, hidden = 2048, heads = 16, ffn = 8192, gated = off, vocabulary = 50304, tied = on
  norm = layer, biases = on, positions = 2048
}}
cluster {{ devices = 8 }}
layout {{ pp = {pp}, zero = 1 }}
training {{
  sequence = 2048, micro_batch = {sequences}, global_batch = 512 sequences, recompute = full
  flash_attention = off, dropout = on
}}
"""


@pytest.mark.parametrize(
    ("card", "pp", "sequences", "runs"),
    [
        ("16g", 1, 1, True),
        ("16g", 2, 4, True),
        ("16g", 2, 8, False),
        ("16g", 4, 4, True),
        ("16g", 4, 8, False),
        ("16g", 8, 4, True),
        ("16g", 8, 8, False),
        ("32g", 1, 8, True),
        ("32g", 2, 8, True),
        ("32g", 2, 16, False),
        ("32g", 4, 8, True),
    ],
)
def test_layouts_that_ran_out_of_memory(card: str, pp: int, sequences: int, runs: bool) -> None:
    """BigScience, experiments/tr3m-1B3.md: which layouts of 1.3B on eight V100 ran, and which not.

    Its GB are of the first stage: by them 16 sequences on two stages would take 21 of 32 GB.
    """
    (scenario,) = parcost.load_text(_V100.format(card=card, pp=pp, sequences=sequences))
    outcome = scenario.evaluate().result.outcome
    assert outcome is not None
    assert bool(outcome.memory_bytes <= scenario.first[Cluster].device.memory) is runs
