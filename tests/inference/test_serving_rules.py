"""What serving requires: degrees that divide, types that the device has, room."""

from __future__ import annotations

import pytest

import parcost

from ..rows import try_each

SERVING = """
use catalog.devices.a100_sxm_80g
use catalog.models.llama3_70b
fabric wire {{ level net {{ bandwidth = 300 GB/s per_direction, latency = 1 us }} }}
serving chat {{ compute = bf16, weights = 2 B, activation = 2 B, {more} }}
"""
MIXTURE = SERVING.replace(
    "use catalog.models.llama3_70b",
    "model mixture {{ layers = 32, hidden = 4096, heads = 32, kv_heads = 8, ffn = 14336\n"
    "  vocabulary = 32000, experts = 8, top_k = 2 }}",
)


@try_each(
    "rule, text, says, helps",
    [
        (
            "serving-no-peak",
            SERVING.replace("compute = bf16", "compute = fp8").format(more="tp = 1"),
            "device `a100_sxm_80g` has no fp8 peak",
            "fp32, tf32, fp16, bf16",
        ),
        (
            "serving-layers",
            SERVING.format(more="tp = 8, pp = 6, fabric = wire"),
            "80 layers are not divisible by pp = 6",
            "pp = 5 or 8",
        ),
        (
            "serving-heads",
            SERVING.format(more="tp = 24, fabric = wire"),
            "64 heads are not divisible by tp = 24",
            "divides 64",
        ),
        (
            "serving-kv-heads",
            SERVING.replace(
                "use catalog.models.llama3_70b",
                "model odd {{ layers = 4, hidden = 1536, heads = 12, kv_heads = 6, vocabulary = 1000 }}",
            ).format(more="tp = 4, fabric = wire"),
            "6 KV heads cannot be divided or replicated evenly over tp = 4 ranks",
            "divides 6, or a multiple of 6",
        ),
        (
            "serving-no-cache",
            SERVING.replace(
                "use catalog.models.llama3_70b", "model plan {{ parameters = 70 G, layers = 80 }}"
            ).format(more="tp = 1"),
            "the size of the KV cache per token is unknown: model `plan` has no heads",
            "`heads`",
        ),
        (
            "serving-no-width",
            SERVING.replace(
                "use catalog.models.llama3_70b",
                "model plan {{ parameters = 70 G, layers = 80, kv_heads = 8, head_dim = 128 }}",
            ).format(more="tp = 8, fabric = wire"),
            "8 devices of a replica exchange activations, but `plan` has no hidden size",
            "write `hidden = ...`",
        ),
        (
            "serving-no-experts",
            SERVING.format(more="tp = 8, ep = 8, fabric = wire"),
            "`llama3_70b` has none",
            "ep = 1",
        ),
        (
            "serving-experts",
            MIXTURE.format(more="ep = 3, fabric = wire"),
            "8 experts are not divisible by ep = 3",
            "divides 8",
        ),
        (
            "serving-expert-ranks",
            MIXTURE.format(more="tp = 2, ep = 8, attention_replicas = 2, fabric = wire"),
            "a stage has tp x attention_replicas = 4 devices, which are not divisible by ep = 8",
            "multiple of 8",
        ),
        (
            "serving-replicas",
            MIXTURE.format(more="tp = 4, ep = 8, attention_replicas = 2.5, fabric = wire"),
            "`attention_replicas` is 2.5",
            "a multiple of tp, or divides it",
        ),
        (
            "serving-no-fabric",
            SERVING.format(more="tp = 8"),
            "a replica has 8 devices, but the block has no fabric",
            "fabric = hgx_h100",
        ),
        (
            "serving-context",
            SERVING.format(more="tp = 8, fabric = wire, context = 2000, longest = 1000"),
            "2000 tokens on average, but `longest` is 1000",
            "at least",
        ),
        (
            "serving-cannot-run",
            SERVING.format(more="tp = 8, fabric = wire, collective = nccl"),
            "algorithm `nccl` does not support an all-reduce of 8 ranks on this fabric",
            "collective = auto",
        ),
        (
            "serving-does-not-fit",
            SERVING.format(more="tp = 2, fabric = wire, batch = 64, prompt = 4096"),
            "65.7 GiB for weights",
            "the largest batch that fits is",
        ),
    ],
)
def test_a_rule_speaks_in_the_words_of_the_spec(
    rule: str, text: str, says: str, helps: str
) -> None:
    report = parcost.load_text(text)[0].evaluate()
    found = {d.id: d for d in report.diagnostics}
    assert rule in found
    assert says in found[rule].message
    assert helps in (found[rule].help or "")
    assert report.exit_code == 1


def test_a_cache_for_sequences_without_tokens_is_refused() -> None:
    """No batch would be too large for it."""
    with pytest.raises(parcost.SpecError, match="`longest` must be above 0"):
        parcost.load_text(SERVING.format(more="tp = 8, fabric = wire, longest = 0"))[0].evaluate()
