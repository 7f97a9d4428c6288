"""Serving a mixture of experts: what a batch visits is read, and sent to its ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost_plugins.vocabulary import Serving

from ..rows import try_each

MIXTRAL = 46_702_792_704
ACTIVE = 12_879_925_248
EMBEDDING = 32_000 * 4096  # of which a token reads one row
EXPERTS = 32 * 8 * 3 * 4096 * 14336
COPIES = 65 * 4096 + 32 * 4096 * 8  # norms and routers, which each of 8 ranks has

SERVING = """
use catalog.devices.h100_sxm
model mixture {{
  layers = 32, hidden = 4096, heads = 32, kv_heads = 8, ffn = 14336, vocabulary = 32000
  experts = 8, top_k = 2
}}
fabric wire {{ level net {{ bandwidth = 100 GB/s per_direction, latency = 2 us }} }}
memory {{ usable = 1, context = 0 B }}
serving chat {{
  fabric = wire, compute = bf16, weights = 2 B, activation = 2 B
  matmul_efficiency = 1, memory_efficiency = 1
  {more}
}}
"""


def result(more: str) -> parcost.Result:
    return parcost.load_text(SERVING.format(more=more))[0].evaluate().result


def test_a_lone_token_reads_what_it_visits() -> None:
    found = result("tp = 8, context = 0, longest = 1")
    assert found.figure("chat.weights") == 2 * MIXTRAL
    assert found.figure("chat.experts_hit") == pytest.approx(2)
    # All but the six experts of eight that it does not visit, and but the embedding.
    read = 2 * (MIXTRAL - EXPERTS * 6 / 8 - EMBEDDING)
    assert read == 2 * (ACTIVE - EMBEDDING)
    read += 2 * 7 * COPIES
    assert found.figure("chat.weights_seconds") == pytest.approx(read / (8 * 3.35e12))


@try_each("batch", [1, 4, 32, 1000])
def test_more_tokens_visit_more_experts_by_chance(batch: int) -> None:
    found = result(f"tp = 8, batch = {batch}, context = 0, longest = 1")
    hit = 8 * (1 - (1 - 2 / 8) ** batch)
    assert found.figure("chat.experts_hit") == pytest.approx(hit)
    read = 2 * (MIXTRAL - EXPERTS - EMBEDDING + EXPERTS * hit / 8 + 7 * COPIES)
    assert found.figure("chat.weights_seconds") == pytest.approx(read / (8 * 3.35e12))


def test_products_count_the_experts_of_a_token_alone() -> None:
    found = result("tp = 8, batch = 16, context = 0, longest = 1")
    norms = 65 * 4096
    flops = 16 * 2 * (ACTIVE - EMBEDDING - norms)
    assert found.figure("chat.compute_seconds") == pytest.approx(flops / (8 * 989e12), rel=1e-9)


def test_experts_of_their_own_ranks_are_shared_by_groups_that_attend_apart() -> None:
    more = "tp = 2, ep = 8, batch = 16, context = 1000, longest = 1000"
    found = result(more)
    assert found.figure("chat.devices") == 8  # four groups of two
    dense, held = MIXTRAL - EXPERTS, found.figure("chat.weights_memory") / 2
    # Router and norms are whole on both ranks of a group.
    copied = 65 * 4096 + 32 * 8 * 4096
    assert held == EXPERTS / 8 + (dense - copied) / 2 + copied
    hit = 8 * (1 - (1 - 2 / 8) ** (16 * 4))
    assert found.figure("chat.experts_hit") == pytest.approx(hit)
    assert found.figure("chat.tokens_per_second") == pytest.approx(
        64 / found.figure("chat.decode_seconds")
    )


def test_tokens_go_to_their_experts_and_back() -> None:
    found = result("tp = 1, ep = 8, batch = 64, context = 0, longest = 1")
    n = 64 * 2 * 4096 * 2  # what one rank sends: two copies of each token
    exchange = found.study  # the exchange is that of the fabric
    assert exchange is not None
    seconds = found.figure("chat.communication_seconds")
    floor = 32 * 2 * n * 7 / 8 / 100e9
    assert floor <= seconds <= floor + 32 * 2 * 7 * 2e-6


def test_a_group_of_whole_experts_reduces_twice_in_every_layer() -> None:
    found = result("tp = 8, batch = 1, collective = ring")
    one = 14 * 2e-6 + 2 * 7 / 8 * 4096 * 2 / 100e9
    assert found.figure("chat.all_reduce_seconds") == pytest.approx(one)
    assert found.figure("chat.communication_seconds") == pytest.approx(64 * one)


def test_a_rank_reads_the_whole_projections_that_latent_attention_does_not_split() -> None:
    """DeepSeek-V3 in fp8 on 4 x 8 H200: 0.92 G of 16.2 G dense parameters are on every rank."""
    text = (Path(__file__).parents[2] / "specs/examples/inference_experts.par").read_text("utf-8")
    found = parcost.load_text(text)[0].evaluate().result
    down = 61 * (7168 * 1536 + 7168 * (512 + 64))
    up = 61 * (1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168)
    mlp = 3 * (3 * 7168 * 18_432) + 58 * (3 * 7168 * 2048)  # of the dense layers, and shared
    whole = down + 58 * (7168 + 1) * 256 + 61 * (2048 + 2 * 7168) + 7168  # routers and norms
    experts = 58 * 256 * (3 * 7168 * 2048) / 32 * found.figure("chat.experts_hit") / 256
    read = (up + mlp + 129_280 * 7168) / 4 + whole + experts
    (scenario,) = parcost.load_text(text)[:1]
    bandwidth = read / found.figure("chat.weights_seconds")
    assert bandwidth == pytest.approx(4.8e12 * scenario.first[Serving].device.memory_efficiency)


def test_latent_attention_reads_little_and_computes_much() -> None:
    """128 heads of DeepSeek-V3 share 576 numbers of a token, and each has 1,088 products with them."""
    text = (Path(__file__).parents[2] / "specs/examples/inference_experts.par").read_text("utf-8")
    text = text.replace("tp         = 4", "tp = 1, batch = 64, matmul_efficiency = 1")

    def seconds(context: int) -> float:
        own = text.replace("batch = 64,", f"batch = 64, context = {context}, longest = 8192,", 1)
        study = parcost.load_text(own)[0].replace({"chat.batch": 64})
        return study.evaluate().result.figure("chat.compute_seconds")

    core = 64 * 61 * 8192 * 128 * 2 * (512 + 64 + 512)
    assert seconds(8192) - seconds(0) == pytest.approx(core / 1979e12, rel=1e-3)
