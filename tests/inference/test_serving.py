"""Latency, throughput and memory of a model that serves, against rooflines by hand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import parcost
from parcost import Formula

from ..evaluation import result

LLAMA3_70B = 70_553_706_496
TABLE = 128_256 * 8192  # the embedding, of which a token reads one row
MATRICES = 80 * 855_638_016 + 128_256 * 8192  # of the layers, and the head
COPIES = 161 * 8192  # norms, which each of 8 ranks has
READ = LLAMA3_70B - TABLE + 7 * COPIES  # by 8 ranks in a pass

SERVING = """
use catalog.devices.h100_sxm
use catalog.models.llama3_70b
fabric wire {{ level net {{ bandwidth = 360 GB/s per_direction, latency = 1 us }} }}
memory {{ usable = 1, context = 0 B }}
serving chat {{
  fabric = wire, compute = bf16, weights = 2 B, activation = 2 B
  matmul_efficiency = 1, memory_efficiency = 1
  tp = 8, {more}
}}
"""


def chat(more: str, figure: str, text: str = SERVING) -> float:
    value = result(text.format(more=more)).figure(f"chat.{figure}")
    assert isinstance(value, float)
    return value


# --- worked examples ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_token_of_a_70b_model_takes_8_milliseconds_at_full_bandwidth() -> None:
    more = "context = 0, longest = 1, all_reduce = 15 us"
    by_hand = 2 * READ / (8 * 3.35e12)
    assert by_hand == pytest.approx(5.187e-3, abs=5e-7)
    assert chat(more, "weights_seconds") == pytest.approx(by_hand)
    assert chat(more, "all_reduces") == 160
    alone = SERVING.replace("llama3_70b", "llama3_8b").replace("tp = 8", "tp = 1")
    assert chat(more, "all_reduces", alone) == 0
    assert chat(more, "communication_seconds") == pytest.approx(2.4e-3)
    assert chat(more, "decode_seconds") == pytest.approx(by_hand + 2.4e-3)
    slower = SERVING.replace("memory_efficiency = 1", "memory_efficiency = 80 %")
    assert chat(more, "decode_seconds", slower) == pytest.approx(by_hand / 0.8 + 2.4e-3)


def test_a_prompt_of_4096_tokens_is_583_teraflop() -> None:
    """Logits of its last token alone: those of all 4096 would be another 8.6 teraflop."""
    assert chat("prompt = 4096", "prefill_flops") == pytest.approx(5.8274e14, abs=5e9)
    core = 2 * 64 * 128 * 4096 * 80  # causal
    by_hand = 4096 * (2 * (MATRICES - TABLE) + core) + 2 * TABLE
    assert chat("prompt = 4096", "prefill_flops") == pytest.approx(by_hand)
    assert chat("prompt = 4096", "prefill_compute_seconds") == pytest.approx(by_hand / (8 * 989e12))


def test_a_token_attends_to_the_cache_of_its_sequence() -> None:
    """Each of 64 heads of size 128 has a product with 2000 keys, and one with their values."""
    more = "batch = 32, context = 2000, longest = 4000"
    by_hand = 32 * (2 * MATRICES + 4 * 64 * 128 * 2000 * 80)
    assert chat(more, "compute_seconds") == pytest.approx(by_hand / (8 * 989e12))


def test_a_model_of_stated_size_serves_as_fast_as_its_bytes_are_read() -> None:
    plan = (
        "model plan {{ parameters = 70 G, layers = 80, hidden = 8192, heads = 64, kv_heads = 8 }}"
    )
    text = SERVING.replace("use catalog.models.llama3_70b", plan)
    more = "context = 0, longest = 1, all_reduce = 15 us"
    assert chat(more, "weights_seconds", text) == pytest.approx(70e9 * 2 / (8 * 3.35e12))
    assert chat(more, "kv_bytes_per_token", text) == 2 * 80 * 8 * 128 * 2
    core = 2 * 8192 * 4096 * 80  # the mean token of 4096 sees half of them, twice 2 FLOPs for each
    assert chat("prompt = 4096", "prefill_flops", text) == pytest.approx(4096 * (140e9 + core))


@pytest.mark.parametrize(("model", "bytes_"), [("llama31_405b", 516_096), ("llama3_70b", 327_680)])
def test_keys_and_values_of_one_token(model: str, bytes_: int) -> None:
    text = SERVING.replace("llama3_70b", model).replace("tp = 8", "tp = 16")
    assert chat("batch = 1", "kv_bytes_per_token", text) == bytes_


DEEPSEEK_V3 = """
model latent_moe {{
  layers = 61, hidden = 7168, heads = 128, ffn = 18432, vocabulary = 129_280
  kv_lora = 512, q_lora = 1536, head_dim = 128, nope_dim = 128, rope_dim = 64, v_dim = 128
  experts = 256, top_k = 8, expert_ffn = 2048, shared_experts = 1, dense_first = 3
  router_bias = on
}}
"""


def test_compressed_keys_and_values_of_one_token_of_deepseek_v3() -> None:
    text = SERVING.replace("use catalog.models.llama3_70b\n", DEEPSEEK_V3)
    text = text.replace("tp = 8", "tp = 32")
    assert chat("batch = 1", "kv_bytes_per_token", text) == 70_272


def test_every_rank_holds_all_of_a_compressed_cache() -> None:
    text = SERVING.replace("use catalog.models.llama3_70b\n", DEEPSEEK_V3)
    for tp in (32, 64):
        more = "batch = 2, context = 1000, longest = 1000"
        found = chat(more, "kv_memory", text.replace("tp = 8", f"tp = {tp}"))
        assert found == 2 * 1000 * 70_272


def test_products_take_longer_than_weights_beyond_295_sequences() -> None:
    assert chat("batch = 1", "crossover_batch") == pytest.approx(295.2, abs=0.05)
    assert chat("batch = 250, context = 0, longest = 1", "weights_seconds") > chat(
        "batch = 250, context = 0, longest = 1", "compute_seconds"
    )
    assert chat("batch = 350, context = 0, longest = 1", "weights_seconds") < chat(
        "batch = 350, context = 0, longest = 1", "compute_seconds"
    )


# --- one node with a model known by its size -----------------------------------------------

ROUND = """
device card {{
  memory = 80 GB, memory_bandwidth = 3.35 TB/s, bf16 = 989 TFLOPS dense, multiprocessors = 132
  matmul_efficiency = 1, memory_efficiency = 1
}}
fabric wire {{ level net {{ bandwidth = 360 GB/s per_direction, latency = 1 us }} }}
model seventy {{ layers = 80, hidden = 8192, heads = 64, kv_heads = 8, parameters = 70 G }}
memory {{ usable = 1, context = 0 B }}
serving chat {{ fabric = wire, compute = bf16, weights = 2 B, activation = 2 B, tp = 8 {more} }}
"""


@pytest.mark.slow
def test_a_nominal_70b_model_on_eight_cards_of_80_gb() -> None:
    assert chat("", "weights", ROUND) == 140e9
    assert chat("", "capacity", ROUND) == 640e9
    assert chat("", "weights_memory", ROUND) == 140e9 / 8
    assert chat("", "weights_seconds", ROUND) == pytest.approx(5.223880597e-3, rel=1e-9)


def test_a_slow_all_reduce_in_every_layer_would_take_far_longer_than_serving_does() -> None:
    found = chat(", all_reduce = 1.8 ms", "communication_seconds", ROUND)
    assert found == pytest.approx(2 * 80 * 1.8e-3)  # two in every layer


# --- parallel degrees ----------------------------------------------------------------------


def test_decode_reads_weights_and_the_whole_cache() -> None:
    more = "batch = 32, context = 2000, longest = 4000, all_reduce = 0 s"
    cache = 32 * 2000 * 327_680
    by_hand = (2 * READ + cache) / (8 * 3.35e12)
    assert chat(more, "decode_seconds") == pytest.approx(by_hand)
    assert chat(more, "tokens_per_second") == pytest.approx(32 / by_hand)
    assert chat(more, "tokens_per_second_per_device") == pytest.approx(4 / by_hand)


@pytest.mark.parametrize("tied", ["off", "on"])
def test_a_token_reads_the_vocabulary_once_tied_or_not(tied: str) -> None:
    """Llama 3 8B: 8.03 G parameters, of which the embedding is 525 M; tied, it is the head."""
    text = SERVING.replace("llama3_70b", "llama3_8b").replace("tp = 8", "tp = 1")
    text += f"model llama3_8b {{{{ tied = {tied} }}}}\n"
    layers = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096
    by_hand = 2 * (layers + 128_256 * 4096) / 3.35e12
    more = "context = 0, longest = 1"
    assert chat(more, "weights_seconds", text) == pytest.approx(by_hand, rel=1e-9)
    parameters = layers + (1 if tied == "on" else 2) * 128_256 * 4096
    assert chat(more, "weights", text) == 2 * parameters


def test_learned_positions_are_looked_up() -> None:
    text = SERVING + "model llama3_70b {{ positions = 4096 }}\n"
    more = "context = 0, longest = 1"
    assert chat(more, "weights_seconds", text) == chat(more, "weights_seconds")
    assert chat(more, "weights", text) == chat(more, "weights") + 2 * 4096 * 8192


@pytest.mark.slow
def test_the_context_grows_while_an_answer_is_made() -> None:
    more = "prompt = 1000, output = 500, all_reduce = 0 s"
    assert chat(more, "cache_seconds") == pytest.approx(1250 * 327_680 / (8 * 3.35e12))
    assert chat(more, "kv_memory") == 1500 * 327_680 / 8
    whole = chat(more, "prefill_seconds") + 499 * chat(more, "decode_seconds")
    assert chat(more, "request_seconds") == pytest.approx(whole)


def test_ranks_beyond_the_kv_heads_hold_copies() -> None:
    more = "batch = 4, context = 1000, longest = 1000"
    at_8 = chat(more, "kv_memory")
    assert at_8 == 4 * 1000 * 327_680 / 8
    wider = SERVING.replace("tp = 8", "tp = 16")
    assert chat(more, "kv_memory", wider) == at_8
    assert chat(more, "cache_seconds", wider) == pytest.approx(chat(more, "cache_seconds"))
    kv = 80 * 2 * 8192 * 1024  # their projections, of which 16 ranks have two copies
    read = READ + 8 * COPIES + kv
    assert chat(more, "weights_seconds", wider) == pytest.approx(2 * read / (16 * 3.35e12))


def test_narrow_weights_and_a_narrow_cache_are_read_in_half_the_time() -> None:
    more = "batch = 8, context = 1000, longest = 1000"
    narrow = SERVING.replace("weights = 2 B", "weights = 1 B, kv = 1 B")
    assert chat(more, "weights_seconds", narrow) == chat(more, "weights_seconds") / 2
    assert chat(more, "cache_seconds", narrow) == chat(more, "cache_seconds") / 2
    assert chat(more, "kv_bytes_per_token", narrow) == 327_680 / 2


def test_an_all_reduce_of_a_token_is_one_of_the_fabric() -> None:
    n = 16 * 8192 * 2
    ring = chat("batch = 16, collective = ring", "all_reduce_seconds")
    assert ring == pytest.approx(14 * 1e-6 + 2 * 7 / 8 * n / 360e9)
    assert chat("batch = 16", "all_reduce_seconds") <= ring
    assert chat("batch = 1", "all_reduce_seconds") < 20e-6


def test_an_all_reduce_of_one_token_takes_fifteen_microseconds_by_the_table_of_nccl() -> None:
    table = """use catalog.tunings.nccl_2_30
collectives {{ tuning = nccl_2_30, generation = hopper, links = 18, channels = 16 }}
"""
    seconds = chat("batch = 1, collective = nccl", "all_reduce_seconds", table + SERVING)
    # 6.6 us and fourteen steps of 0.6 us, and 16 KiB at the bandwidth of the protocol.
    assert 15.0e-6 < seconds < 15.3e-6


def test_one_device_sends_nothing() -> None:
    text = SERVING.replace("fabric = wire, ", "").replace("tp = 8, ", "")
    text = text.replace("llama3_70b", "llama3_8b")
    assert chat("batch = 4", "communication_seconds", text) == 0
    assert chat("batch = 4", "devices", text) == 1


def test_stages_share_a_token_and_make_as_many_batches_at_once() -> None:
    more = "batch = 8, context = 1000, longest = 1000, all_reduce = 0 s"
    flat = SERVING.format(more=more)
    staged = SERVING.replace("tp = 8", "tp = 8, pp = 2").format(more=more)
    one, two = result(flat), result(staged)
    hop = 1e-6 + 8 * 8192 * 2 / 360e9
    assert two.figure("chat.decode_seconds") == pytest.approx(
        one.figure("chat.decode_seconds") + hop
    )
    assert two.figure("chat.tokens_per_second") == pytest.approx(
        2 * 8 / two.figure("chat.decode_seconds")
    )
    assert two.figure("chat.kv_memory") == one.figure("chat.kv_memory")  # two batches, half each
    assert (one.figure("chat.devices"), two.figure("chat.devices")) == (8, 16)
    assert two.figure("chat.tokens_per_second_per_device") == pytest.approx(
        two.figure("chat.tokens_per_second") / 16
    )
    alone = SERVING.replace("tp = 8", "tp = 8, pp = 2, batches = 1").format(more=more)
    assert result(alone).figure("chat.kv_memory") == one.figure("chat.kv_memory") / 2
    assert result(alone).figure("chat.tokens_per_second") == pytest.approx(
        8 / two.figure("chat.decode_seconds")
    )


def test_the_largest_batch_fills_what_weights_leave() -> None:
    found = result(SERVING.format(more="context = 8000, longest = 8000"))
    communicator = 294 * 2**20  # of the 8 ranks
    room = 81_559 * 2**20 - found.figure("chat.weights_memory") - communicator
    assert found.figure("chat.largest_batch") == room // (8000 * 327_680 / 8)
    largest = int(found.figure("chat.largest_batch"))
    for batch, errors in ((largest, 0), (largest + 1, 1)):
        text = SERVING.format(more=f"context = 8000, longest = 8000, batch = {batch}")
        assert len(result(text).diagnostics) == errors


def test_a_host_that_issues_kernels_one_by_one_bounds_a_token() -> None:
    graph = chat("batch = 1", "decode_seconds")
    assert 0.003 < graph < 0.02
    # 80 layers of 10 kernels: less than the weights take to read, and more
    hidden = chat("batch = 1, kernels_per_layer = 10, issue = 1 us", "decode_seconds")
    assert hidden == graph
    waited = chat("batch = 1, kernels_per_layer = 10, issue = 50 us", "decode_seconds")
    assert waited == pytest.approx(80 * 10 * 50e-6)
    framework = "framework ours {{ issue = 40 us }}\n"
    assert chat("batch = 1, kernels_per_layer = 10", "decode_seconds", framework + SERVING) == (
        pytest.approx(80 * 10 * 40e-6)
    )


def test_a_price_gives_the_cost_of_a_million_tokens() -> None:
    text = SERVING + "price {{ device_hour = 3 USD/h }}\n"
    found = result(text.format(more="batch = 64, context = 1000, longest = 1000"))
    per_second = 8 * 3 / 3600
    assert found.figure("chat.cost_per_million_tokens") == pytest.approx(
        per_second / found.figure("chat.tokens_per_second") * 1e6
    )


def test_efficiencies_are_those_of_training_by_default() -> None:
    text = SERVING.replace("matmul_efficiency = 1, memory_efficiency = 1\n", "")
    more = "batch = 1, prompt = 4096"
    assert chat(more, "weights_seconds", text) == pytest.approx(
        chat(more, "weights_seconds") / 0.896
    )
    # The best product, other shapes, and what 700 W hold of that rate.
    flops = chat(more, "prefill_flops")
    core = 80 * 2 * 4096 * 4096 * 8192  # 2 products over half of the keys, 2 FLOPs each
    products = (flops - core) / (8 * 989e12 * 0.803 * 0.92 * 0.86)
    assert chat(more, "prefill_compute_seconds", text) == pytest.approx(
        products + core / (8 * 596.1e12), rel=1e-4
    )


def test_attention_of_a_prompt_runs_at_the_rate_of_its_kernel_in_16_bits() -> None:
    text = SERVING.replace("matmul_efficiency = 1, memory_efficiency = 1\n", "")
    kernels = "kernels {{ attention_forward_efficiency = 50 % }}\n"
    for compute in ("bf16", "fp8"):
        given = kernels + text.replace("compute = bf16", f"compute = {compute}")
        found = result(given.format(more="batch = 1, prompt = 32768"))
        parts = found_parts(found)
        assert parts["core"].value == 0.5 * 989e12
        core, rest = 80 * 2 * 32768**2 * 8192, parts["peak"].value
        seconds = (found.figure("chat.prefill_flops") - core) / rest + core / (0.5 * 989e12)
        assert found.figure("chat.prefill_compute_seconds") == pytest.approx(seconds / 8, rel=1e-4)


def found_parts(found: parcost.Result) -> Mapping[str, Formula]:
    (figure,) = [
        figure
        for _, figure in (*found.figures, *found.details)
        if figure.name == "chat.prefill_compute_seconds"
    ]
    return figure.formula.parts


@pytest.mark.parametrize(
    ("degrees", "groups"),
    [("tp = 8", 1), ("tp = 4, pp = 2", 3), ("tp = 1, pp = 2", 1)],
)
def test_each_group_of_ranks_has_a_communicator(degrees: str, groups: int) -> None:
    """Ranks of a layer, stages, and all devices where neither of these is all."""
    budget = "context = 1 GB, communicator = 100 MB"
    text = SERVING.replace("tp = 8", degrees).replace("context = 0 B", budget)
    found = result(text.format(more="batch = 1, context = 100, longest = 100"))
    weights, cache = found.figure("chat.weights_memory"), found.figure("chat.kv_memory")
    assert found.figure("chat.memory") - weights - cache == pytest.approx(1e9 + groups * 1e8)


@pytest.mark.slow
def test_a_sweep_of_batches_gives_what_each_point_gives_alone() -> None:
    text = SERVING.format(more="batch = [1, 16, 256], context = 1000, longest = 1000")
    rows = parcost.load_text(text)[0].evaluate().rows()
    for batch, row in zip((1, 16, 256), rows, strict=True):
        more = f"batch = {batch}, context = 1000, longest = 1000"
        for name in ("decode_seconds", "tokens_per_second", "kv_memory", "all_reduce_seconds"):
            assert row[f"chat.{name}"] == pytest.approx(chat(more, name), rel=1e-12)


def test_the_table_names_what_bounds_each_phase() -> None:
    found = result(SERVING.format(more="prompt = 4096, batch = 8"))
    ((_, section),) = found.sections
    bounds = {row[0]: row[-1] for row in section.rows}
    assert bounds == {"prefill": "compute", "decode": "memory bandwidth"}


@pytest.mark.slow
def test_a_sweep_of_degrees_reaches_beyond_a_node_as_each_point_does_alone() -> None:
    nodes = SERVING.replace(
        "level net",
        "level node {{ size = 8 devices, bandwidth = 360 GB/s per_direction, latency = 1 us }}\n"
        "  level net",
    )
    swept = nodes.replace("tp = 8", "tp = [4, 8, 16], pp = [1, 2]").format(more="batch = 8")
    rows = parcost.load_text(swept)[0].evaluate().rows()
    points = [(tp, pp) for tp in (4, 8, 16) for pp in (1, 2)]
    for (tp, pp), row in zip(points, rows, strict=True):
        text = nodes.replace("tp = 8", f"tp = {tp}, pp = {pp}")
        for name in ("decode_seconds", "prefill_seconds", "kv_memory", "largest_batch"):
            assert row[f"chat.{name}"] == pytest.approx(chat("batch = 8", name, text), rel=1e-12)


@pytest.mark.slow
def test_serving_stands_beside_a_training_job_and_leaves_it_alone() -> None:
    job = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric wire { level net { bandwidth = 360 GB/s per_direction, latency = 1 us } }
cluster { devices = 8 }
layout { tp = 2, zero = 1 }
training { sequence = 8192, micro_batch = 1, global_batch = 64 sequences }
"""
    serving = "serving chat { fabric = wire, compute = bf16, weights = 2 B, activation = 2 B }\n"
    alone, both = result(job), result(job + serving)
    assert both.figure("step_time") == alone.figure("step_time")
    assert both.figure("memory") == alone.figure("memory")
    assert both.figure("chat.weights") == 2 * 8_030_261_248
