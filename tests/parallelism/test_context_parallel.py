"""Context parallelism: what goes round, what hides, what is held, when it is free."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parcost
from parcost import Memory, Result, Study, Work
from parcost.engine.rules import diagnose
from parcost_plugins.physics.attention_mask import (
    attended_tokens,
    attended_tokens_of_busiest,
    attended_tokens_of_busiest_pair,
)
from parcost_plugins.physics.context import blocks_of_keys
from parcost_plugins.vocabulary import Training

from ..evaluation import details_of
from ..rows import mark_most, try_each

# Llama-3.1 405B has 128 query heads and 8 key and value heads of 128 in each of 126 layers.
S = 131_072

Spec = Callable[..., str]


def spec(
    layout: str = "cp = 16",
    context: str = "",
    *,
    model: str = "use catalog.models.llama31_405b",
    sequence: int = S,
    latency: str = "0 s",
    rate: str = "50 GB/s",
    efficiency: str = "50.05055 %",  # 495 TFLOP/s
    devices: int = 16,
    training: str = "",
    node: int = 16,
) -> str:
    return f"""
    use catalog.devices.h100_sxm
    use catalog.precisions.bf16
    device roomy extends h100_sxm {{ memory = 100 TB }}
    {model}
    fabric wire {{
      level node {{ size = {node} devices, bandwidth = {rate} per_direction, latency = {latency} }}
      level net {{ bandwidth = 10 GB/s per_direction, latency = 0 s }}
    }}
    cluster {{ device = roomy, devices = {devices} }}
    layout {{ {layout} }}
    context {{ {context} }}
    overlap {{ multiprocessors = 0 }}
    training {{ sequence = {sequence}, global_batch = {devices} sequences, {training} }}
    kernels {{
      model = constant, memory_bound = off
      attention_forward_efficiency = {efficiency}, attention_backward_efficiency = {efficiency}
    }}
    """


def study(*args: object, **options: object) -> Study:
    (scenario,) = parcost.load_text(spec(*args, **options))  # type: ignore[arg-type]
    return scenario.studies()[0]


def result(*args: object, **options: object) -> Result:
    (scenario,) = parcost.load_text(spec(*args, **options))  # type: ignore[arg-type]
    return scenario.evaluate().results[0]


def work(of: Study) -> dict[tuple[str, str], Work]:
    assert not of.faults
    return {
        (term.name, term.pass_): term
        for plugin, term in of.contributions("terms")
        if plugin.name == "context_parallel" and isinstance(term, Work)
    }


def memory_terms(of: Study) -> dict[str, Memory]:
    return {
        term.name: term
        for plugin, term in of.contributions("memory")
        if plugin.name == "context_parallel"
    }


def lines(of: Result, name: str) -> tuple[float, float]:
    """Exposed and hidden seconds of a layer and micro-batch, in all passes that have *name*."""
    found = [line for line in of.outcome.ledger if line.name == name and line.pass_ == "F"]
    layers = 126 * of.outcome.pipeline.micro_batches
    return (
        float(sum(line.exposed for line in found)) / float(layers),
        float(sum(line.hidden for line in found)) / float(layers),
    )


# --- A ring ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rank_by_itself_exchanges_nothing() -> None:
    of = result("tp = 8, cp = 1", devices=8)
    for name in ("volume_per_layer_forward", "volume", "buffer", "send", "seconds", "exposed"):
        assert of.figure(f"cp_{name}") == 0.0


def test_llama_3_1_sends_503_mb_per_layer_round_a_ring_of_16() -> None:
    of = result()
    assert of.figure("cp_block") == pytest.approx(33.55e6, abs=0.005e6)
    assert of.figure("cp_volume_per_layer_forward") == pytest.approx(503.3e6, abs=0.05e6)
    assert of.figure("cp_volume_per_layer_backward") == 2 * of.figure("cp_volume_per_layer_forward")
    ring = work(study())["KV ring", "F"]
    assert ring.seconds == pytest.approx(15 * 33_554_432 / 50e9, rel=1e-12)


def test_a_tensor_parallel_rank_sends_its_heads() -> None:
    of = result("cp = 16, tp = 8", devices=128, node=128)
    assert of.figure("cp_block") == pytest.approx(4.19e6, abs=0.005e6)


def test_gradients_in_fp32_make_backward_three_times_forward() -> None:
    of = result("cp = 16", "gradients = 4 B")
    assert of.figure("cp_volume_per_layer_backward") == 3 * of.figure("cp_volume_per_layer_forward")
    backward = work(study("cp = 16", "gradients = 4 B"))["KV and gradient ring", "B"]
    assert backward.seconds == pytest.approx(3 * 15 * 33_554_432 / 50e9, rel=1e-12)


@try_each("cp", [2, 4, 8, 16])
@try_each("rate", [2e9, 10e9, 200e9])
def test_each_step_takes_the_longer_of_work_and_send(cp: int, rate: float) -> None:
    of = result(f"cp = {cp}", rate=f"{rate / 1e9:g} GB/s", sequence=16_384)
    tokens = 16_384 / cp
    # half of a block is masked, on every rank and in every step
    block = 2 * tokens**2 * 128 * 128 / 495e12
    send = 2 * tokens * 8 * 128 * 2 / rate
    exposed, hidden = lines(of, "KV ring")
    assert exposed == pytest.approx((cp - 1) * max(send - block, 0.0), rel=1e-6, abs=1e-12)
    assert exposed + hidden == pytest.approx((cp - 1) * send, rel=1e-9)


@pytest.mark.slow
def test_without_a_double_buffer_every_block_is_waited_for() -> None:
    of = result("cp = 16", "double_buffer = off")
    exposed, hidden = lines(of, "KV ring")
    assert exposed == pytest.approx(15 * 33_554_432 / 50e9, rel=1e-9)
    assert hidden == 0
    assert of.figure("step_time") > result().figure("step_time")


@pytest.mark.slow
def test_a_ring_is_free_from_2475_tokens_on() -> None:
    # 2 (k / a) F / B, k / a = 1/8 (of Llama 3 70B), 495 TFLOP/s, 50 GB/s
    model = "use catalog.models.llama3_70b"
    of = result("cp = 8", model=model, devices=8)
    assert of.figure("cp_free_from") == pytest.approx(2475, rel=1e-6)
    below = result("cp = 8", model=model, devices=8, sequence=8 * 2464)
    above = result("cp = 8", model=model, devices=8, sequence=8 * 2480)
    assert below.figure("cp_exposed") > 0
    assert below.figure("cp_overlap") > 1
    # only gradients still show in backward, whose blocks are twice as long and whose work is 2.5
    assert above.figure("cp_overlap") < 1
    assert lines(above, "KV ring")[0] == 0


def test_latency_is_to_be_hidden_as_well() -> None:
    model = "use catalog.models.llama3_70b"
    of = result("cp = 8", model=model, devices=8, latency="20 us", sequence=32_768)
    free = of.figure("cp_free_from")
    # at that many tokens sending takes as long as working
    send = 20e-6 + 2 * free * 8 * 128 * 2 / 50e9
    assert send == pytest.approx(2 * free**2 * 64 * 128 / 495e12, rel=1e-6)
    assert free > 2475


def test_one_share_of_the_sequence_makes_the_slowest_rank_2c_minus_1_over_c_slower() -> None:
    for cp in (2, 4, 8):
        even, uneven = study(f"cp = {cp}"), study(f"cp = {cp}", "balance = contiguous")
        assert not [name for name, _ in work(even) if name.startswith("imbalance")]
        core = {
            t.pass_: t.seconds
            for _, t in uneven.contributions("terms")
            if isinstance(t, Work) and t.name == "attention core"
        }
        for pass_ in ("F", "B"):
            extra = work(uneven)["imbalance of attention core", pass_].seconds
            assert (core[pass_] + extra) / core[pass_] == pytest.approx((2 * cp - 1) / cp)


@try_each(
    "training, sequence, windowed",
    [
        ("", 64, False),
        ("", 64, True),
        ("document = 8", 64, False),  # as long as a share, which is then as busy as any other
        ("document = 16", 64, False),
        ("document = 16", 64, True),
        ("documents = [24, 8, 32]", 64, False),
        ("documents = [24, 8, 32]", 64, True),
    ],
)
def test_the_busiest_rank_is_the_one_of_which_most_pairs_are_not_masked(
    training: str, sequence: int, windowed: bool
) -> None:
    window = 12
    model = f"""use catalog.models.mistral_7b
    model short extends mistral_7b {{ window = {window} }}"""
    of = study(
        "cp = 8", model=model, sequence=sequence, devices=8, training=f"model = short, {training}"
    )
    lengths = of[Training].documents or (int(of[Training].document or sequence),)
    ends = np.cumsum(lengths * (sequence // sum(lengths)))
    within = [i - max((0, *(e for e in ends if e <= i))) for i in range(sequence)]
    # a token meets half of itself and all that is before it, as far as the window reaches
    met = [min(i + 0.5, window if windowed else sequence) for i in within]
    ranks = np.reshape(met, (8, -1)).mean(axis=1)
    mean = attended_tokens(of[Training], windowed=windowed)
    most = attended_tokens_of_busiest(of[Training], 8.0, windowed=windowed)
    assert mean == pytest.approx(np.mean(met))
    assert most == pytest.approx(ranks.max())
    several = attended_tokens_of_busiest(of[Training], np.array([1.0, 8.0, 2.0]), windowed=windowed)
    assert several[0] == pytest.approx(mean)
    assert several[1] == most


@pytest.mark.parametrize("chunked", ["on", "off"])
@pytest.mark.parametrize("window", [4, 8, 12, 40])
@pytest.mark.parametrize("training", ["", "document = 16", "documents = [32, 16, 16]"])
def test_two_parts_of_each_document_even_out_but_for_the_start_of_a_window(
    training: str, window: int, chunked: str
) -> None:
    """Counted token by token: rank r of 4 has parts r and 7 - r of each document."""
    model = f"""use catalog.models.mistral_7b
    model short extends mistral_7b {{ window = {window}, chunked = {chunked} }}"""
    of = study("cp = 4", model=model, sequence=64, devices=4, training=f"model = short, {training}")
    lengths = of[Training].documents or [int(of[Training].document or 64)]
    met = np.zeros(4)
    for length in lengths:
        part = length // 8
        for token in range(length):
            first = token - token % window if chunked == "on" else max(token - window, 0)
            rank = min(token // part, 7 - token // part)
            met[rank] += min(token - first + 0.5, window)
    most = attended_tokens_of_busiest_pair(of[Training], 4.0, windowed=True)
    assert most == pytest.approx(met.max() * 4 / sum(lengths))
    whole = attended_tokens_of_busiest_pair(of[Training], 4.0, windowed=False)
    assert whole == pytest.approx(attended_tokens(of[Training], windowed=False))
    swept = attended_tokens_of_busiest_pair(of[Training], np.array([1.0, 4.0]), windowed=True)
    assert swept[0] == pytest.approx(attended_tokens(of[Training], windowed=True))
    assert swept[1] == most


def test_blocks_that_a_window_masks_take_no_kernel() -> None:
    """Of 8 ranks' blocks a window of an eighth of a part meets one, and every eighth token two."""
    model = """use catalog.models.mistral_7b
    model short extends mistral_7b { window = 512 }"""
    ring, whole = (
        study("cp = 8", f"algorithm = {kind}", model=model, sequence=65_536, devices=8,
              training="model = short")
        for kind in ("ring", "all_gather")
    )  # fmt: skip
    mean = attended_tokens(ring[Training], windowed=True)
    assert blocks_of_keys(ring, windowed=True) == pytest.approx(1 + mean / 4096)
    assert blocks_of_keys(ring, windowed=False) == 8
    assert blocks_of_keys(whole, windowed=True) == 1


def test_documents_of_a_share_and_windows_within_one_leave_hardly_an_imbalance() -> None:
    for more, excess in (
        ({"training": "document = 8192"}, 0.0),
        # all but the first share have a window of 4096 for each token, and that a little less
        ({"model": "use catalog.models.mistral_7b"}, 1 / (1 - 4096 / (2 * 65_536)) - 1),
    ):
        of = study("cp = 8", "balance = contiguous", sequence=65_536, devices=8, **more)
        (extra,) = (t for (name, p), t in work(of).items() if "imbalance" in name and p == "F")
        core = extra.formula.inputs["t"][0]
        assert extra.seconds == pytest.approx(excess * core, rel=1e-9, abs=1e-15)


def test_a_ring_hides_under_attention_of_its_own_kind_of_layer() -> None:
    of = result(
        "cp = 8, ep = 8",
        model="use catalog.models.gpt_oss_20b",
        sequence=16_384,
        devices=8,
        efficiency="39 %",
    )
    ledger = {(line.name, line.pass_): line for line in of.outcome.ledger}
    for pass_, ring in (("F", "KV ring"), ("B", "KV and gradient ring")):
        for suffix in ("", " in a window"):
            core = ledger["attention core" + suffix, pass_]
            sent = ledger[ring + (f", attention core{suffix}" if suffix else ""), pass_]
            times = 12 * of.outcome.pipeline.micro_batches
            assert sent.times == core.times == times
            # with a window, the busiest rank has 128 keys a token, and the mean 1/256 less
            busiest = core.term.seconds / (1 - 128 / 2 / 16_384 if suffix else 1)
            exposed = max(0.0, sent.term.seconds - 7 / 8 * busiest)
            assert sent.exposed == pytest.approx(times * exposed, rel=1e-9)
    assert ledger["KV ring, attention core in a window", "F"].exposed > 0
    assert ledger["KV ring", "F"].exposed == 0


@pytest.mark.parametrize("algorithm", ["ring", "all_gather"])
def test_compressed_keys_and_values_are_projected_up_where_they_arrive(algorithm: str) -> None:
    sizes = {"sequence": 16_384, "devices": 8}
    model = "use catalog.models.deepseek_v2_lite"
    latent, whole = (
        result("cp = 8", f"algorithm = {algorithm}, latent = {switch}", model=model, **sizes)
        for switch in ("on", "off")
    )
    # 7 blocks of 2048 tokens in 27 layers, from 512 to 16 heads of 128 + 128: forward, again in
    # backward, and the gradients of inputs and of weights
    more = 7 * 27 * 4 * 2 * 2048 * 512 * 16 * 256
    micro_batches = latent.outcome.pipeline.micro_batches
    executed = latent.outcome.flops - whole.outcome.flops
    assert executed == pytest.approx(more * micro_batches, rel=1e-9)  # of one device
    kept = memory_terms(latent.study)["projected keys and values"].bytes_
    tokens = 16_384 if algorithm == "all_gather" else 2048
    assert kept == tokens * 16 * (192 + 128) * 2
    assert memory_terms(latent.study)["gradients of projected keys and values"].bytes_ == kept
    assert "projected keys and values" not in memory_terms(whole.study)


def test_a_ring_by_blocks_executed_step_by_step_is_even_with_shares_from_either_end() -> None:
    """Count the pairs of query and key that no mask hides, rank by rank and step by step."""
    cp, chunk = 4, 8
    starts = {r: [r * chunk, (2 * cp - 1 - r) * chunk] for r in range(cp)}
    tokens = {r: [s + i for s in both for i in range(chunk)] for r, both in starts.items()}
    for step in range(cp):
        pairs = {sum(q >= k for q in tokens[r] for k in tokens[(r - step) % cp]) for r in range(cp)}
        assert len(pairs) == 1
        mine = pairs.pop()
        # half of a block, and half of the diagonal more in the first step
        assert mine == 2 * chunk**2 + (chunk if step == 0 else 0)


def test_recomputed_layers_pass_blocks_round_again() -> None:
    found = work(study("cp = 16", training="recompute = full"))
    assert found["KV ring", "R"].seconds == found["KV ring", "F"].seconds
    assert ("KV ring", "R") not in work(study())


def test_compressed_keys_and_values_are_smaller_to_send() -> None:
    model = """model m {
      layers = 2, hidden = 1024, heads = 16, head_dim = 128, vocabulary = 1024
      kv_lora = 512, q_lora = 0, nope_dim = 128, rope_dim = 64, v_dim = 128
    }"""
    whole = result("cp = 4", model=model, devices=4)
    small = result("cp = 4", "latent = on", model=model, devices=4)
    tokens = S / 4
    assert whole.figure("cp_block") == tokens * 16 * (128 + 64 + 128) * 2
    assert small.figure("cp_block") == tokens * (512 + 64) * 2


# --- Gathering, trading, both -------------------------------------------------------------------


def test_a_gather_collects_the_keys_and_values_of_the_whole_sequence() -> None:
    of = study("cp = 16", "algorithm = all_gather")
    gather = work(of)["KV all-gather", "F"]
    n = 2 * S * 8 * 128 * 2
    assert gather.bytes_ == n
    # 20 us until kernels run, and 8.4 of NCCL's call: the link has no latency
    assert gather.seconds == pytest.approx(28.4e-6 + 15 / 16 * n / 50e9, rel=1e-9)
    assert gather.window is None
    assert memory_terms(of)["gathered keys and values"].bytes_ == n
    assert set(work(of)) == {
        ("KV all-gather", "F"),
        ("KV all-gather", "B"),
        ("KV gradient reduce-scatter", "B"),
    }


HEADS_64 = (
    "model m { layers = 4, hidden = 8192, heads = 64, kv_heads = 8, vocabulary = 1024, ffn = 1024 }"
)


def test_ulysses_sends_528_mb_per_layer() -> None:
    of = result("cp = 8", "algorithm = ulysses", model=HEADS_64, devices=8)
    assert of.figure("cp_volume_per_layer_forward") == pytest.approx(528.5e6, abs=0.05e6)
    found = work(study("cp = 8", "algorithm = ulysses", model=HEADS_64, devices=8))
    assert set(found) == {("heads all-to-all", "F"), ("heads all-to-all", "B")}
    assert found["heads all-to-all", "F"].seconds == pytest.approx(528.5e6 / 50e9, rel=1e-4)
    assert found["heads all-to-all", "F"].window is None


@pytest.mark.slow
def test_a_ring_sends_less_below_1_plus_a_over_k_ranks() -> None:
    ratios = {}
    for cp in (2, 4, 8):
        of = result(f"cp = {cp}", model=HEADS_64, devices=cp)
        assert of.figure("cp_crossover") == 9
        ratios[cp] = of.figure("cp_ring_over_ulysses")
    assert all(ratio == pytest.approx(cp / 9) for cp, ratio in ratios.items())
    equal = "model m { layers = 4, hidden = 8192, heads = 64, vocabulary = 1024, ffn = 1024 }"
    assert result("cp = 2", model=equal, devices=2).figure("cp_ring_over_ulysses") == 1


def test_a_hybrid_trades_within_a_node_and_rings_between_nodes() -> None:
    found = work(study("cp = 16", "algorithm = hybrid, ulysses = 8", model=HEADS_64, node=8))
    tokens = S / 16
    # two parts pass one block of a share of the heads, as large as without the trade
    block = tokens * 2 * 8 * 128 * 2
    assert found["KV ring", "F"].seconds == pytest.approx(block / 10e9, rel=1e-9)
    assert found["KV ring", "F"].resource == "net"
    assert found["KV ring", "F"].share == 0.5
    traded = tokens * (2 * 64 + 2 * 8) * 128 * 2 * 7 / 8
    assert found["heads all-to-all", "F"].seconds == pytest.approx(traded / 50e9, rel=1e-9)
    assert found["heads all-to-all", "F"].resource == "node"


# --- Memory -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_ring_holds_two_blocks_and_one_without_a_double_buffer() -> None:
    block = 33_554_432
    double, single = memory_terms(study()), memory_terms(study("cp = 16", "double_buffer = off"))
    assert {name: term.bytes_ for name, term in double.items()} == {
        "KV block": block,
        "KV double buffer": block,
        "gradients of a KV block": block,
        "KV gradient double buffer": block,
        # 4 B for each of 128 outputs and a statistic, of 128 heads and 8192 tokens
        "attention output in fp32": 4 * 8192 * 128 * (128 + 1),
    }
    assert double.keys() - single.keys() == {"KV double buffer", "KV gradient double buffer"}
    assert result().figure("cp_buffer") == 2 * block
    assert double["KV double buffer"].once_per_device


def test_nothing_goes_round_where_a_sweep_trades_all_for_heads() -> None:
    swept = memory_terms(
        study("cp = [1, 2, 4, 8]", "algorithm = ulysses", model=HEADS_64, devices=8)
    )
    assert all(np.all(np.asarray(term.bytes_) == 0) for term in swept.values())
    assert memory_terms(study("cp = 8", "algorithm = ulysses", model=HEADS_64, devices=8)) == {}


def test_the_ring_buffer_of_128k_tokens_in_fp8() -> None:
    # 2 buffers x (K, V) x 16,384 tokens x 8192 x 1 B
    model = "model m { layers = 4, hidden = 8192, heads = 64, vocabulary = 1024, ffn = 1024 }"
    of = result("cp = 8", "key_value = 1 B", model=model, devices=8)
    assert of.figure("cp_buffer") == pytest.approx(0.536870912e9, rel=1e-12)
    assert of.figure("cp_buffer_share") == pytest.approx(0.536870912e9 / 100e12, rel=1e-12)


# --- Everything else ------------------------------------------------------------------------------


def test_work_per_token_divides_by_the_degree() -> None:
    def totals(cp: int) -> tuple[float, float]:
        of = study(f"cp = {cp}, pp = 1", devices=16)
        flops = sum(op.flops * sum(op.count) for op in of.operators if not hasattr(op, "bytes_"))
        kept = sum(
            term.bytes_ * sum(term.count)
            for plugin, term in of.contributions("memory")
            if plugin.name.startswith("model") and term.per_micro_batch
        )
        return float(flops), float(kept)

    flops, kept = totals(1)
    for cp in (2, 4, 16):
        assert totals(cp) == (pytest.approx(flops / cp), pytest.approx(kept / cp))


@pytest.mark.slow
def test_sequence_parallelism_adds_no_device_and_context_parallelism_does() -> None:
    # 8 x 4 x 2: 64 devices; without the context-parallel degree 32
    of = result("tp = 8, pp = 2, cp = 4", devices=64, node=64)
    assert of.figure("model_parallel_devices") == 64
    plain = result("tp = 8, pp = 2, sequence_parallel = on", devices=64, node=64)
    assert plain.figure("model_parallel_devices") == 16


@pytest.mark.slow
def test_the_regime_is_a_note() -> None:
    model = "use catalog.models.llama3_70b"

    def notes(sequence: int, context: str = "") -> str:
        of = result("cp = 8", context, model=model, devices=8, sequence=sequence)
        (section,) = [s for _, s in of.sections if s.title == "Context parallelism"]
        return " ".join(section.notes)

    assert "hidden: 4096 tokens per rank; 2475 are enough" in notes(32_768)
    assert "exposed: 1024 tokens per rank; 2475 are needed; cp = 3 has enough" in notes(8192)
    assert "without a double buffer" in notes(32_768, "double_buffer = off")


def test_one_rank_exchanges_nothing() -> None:
    alone = study("cp = 1", devices=1)
    assert work(alone) == {}
    assert memory_terms(alone) == {}
    swept = work(study("cp = [1, 2, 4]"))
    assert np.broadcast_to(swept["KV ring", "F"].seconds, 3)[0] == 0


@pytest.mark.parametrize(
    "context",
    mark_most(["", "balance = contiguous", "algorithm = all_gather", "algorithm = ulysses"], 4),
)
def test_arrays_cost_what_their_elements_cost(context: str) -> None:
    swept = study("cp = [2, 4, 8]", context)
    for i, cp in enumerate((2, 4, 8)):
        alone = study(f"cp = {cp}", context)
        for key, term in work(alone).items():
            many = work(swept)[key]
            for attribute in ("seconds", "bytes_", "share"):
                got = np.broadcast_to(getattr(many, attribute), 3)[i]
                assert got == pytest.approx(getattr(term, attribute), rel=1e-9)
        for name, buffer in memory_terms(alone).items():
            got = np.broadcast_to(memory_terms(swept)[name].bytes_, 3)[i]
            assert got == pytest.approx(buffer.bytes_)


# --- Rules ----------------------------------------------------------------------------------------


def failures(of: Study) -> list[tuple[str, str, str | None]]:
    found = [
        check
        for plugin, check in of.contributions("checks")
        if plugin.name == "context_parallel" and not np.all(check.holds)
    ]
    said = [(check.id, diagnose(check, of)) for check in found]
    return [(id_, d.message, d.help) for id_, d in said]


def test_a_sequence_divides_into_two_shares_for_each_rank() -> None:
    # 500 tokens of either half and 16 devices have the common divisors 1, 2 and 4
    assert failures(study("cp = 16", sequence=1000)) == [
        (
            "context-divides-sequence",
            "a sequence of 1000 tokens is not divisible by 32 parts: each of the cp ranks has two parts, one from either end",
            "take 992 or 1024 tokens, or cp = 4",
        )
    ]
    assert failures(study("cp = 8", "balance = contiguous", sequence=1000, devices=8)) == []


def test_heads_divide_by_the_ranks_that_trade_for_them() -> None:
    ((id_, message, hint),) = failures(study("cp = 16", "algorithm = ulysses"))
    assert (id_, message) == (
        "ulysses-kv-heads",
        "8 KV heads of a tensor-parallel rank are not divisible by the all-to-all group of 16 ranks (Ulysses)",
    )
    assert hint == (
        "groups of 8 ranks are possible; `context.algorithm = ring` has no such limit, and "
        "`hybrid` runs a ring over such groups"
    )
    ((id_, _, _),) = failures(
        study("cp = 12", "algorithm = ulysses", devices=12, sequence=12 * 1024)
    )
    assert id_ == "ulysses-heads"
    swept = failures(study("cp = [2, 16]", "algorithm = ulysses"))
    assert [id_ for id_, *_ in swept] == ["ulysses-kv-heads"]


def test_a_hybrid_has_a_degree_between_a_ring_and_ulysses() -> None:
    for u in (1, 3, 16):
        ids = [id_ for id_, *_ in failures(study("cp = 16", f"algorithm = hybrid, ulysses = {u}"))]
        assert ids[0] == "hybrid-degree"
    assert failures(study("cp = 16", "algorithm = hybrid, ulysses = 4")) == []


@pytest.mark.slow
def test_words_of_another_algorithm_are_refused() -> None:
    assert failures(study("cp = 16", "ulysses = 4"))[0][:2] == (
        "ulysses-without-hybrid",
        "`ulysses = 4` is the group size of a hybrid, but the algorithm is `ring`",
    )
    assert failures(study("cp = 16", "latent = on"))[0][0] == "latent-without-mla"
    mla = "use catalog.models.deepseek_v2_lite"
    traded = study("cp = 16", "latent = on, algorithm = ulysses", model=mla)
    assert failures(traded)[0][0] == "latent-under-ulysses"
    unfused = study("cp = 16", training="flash_attention = off")
    assert failures(unfused)[0][0] == "context-needs-fused"


def test_partners_beyond_the_fast_domain_are_warned_of_with_the_price() -> None:
    of = study("tp = 8, cp = 2", devices=16, node=8)
    ((id_, message, _),) = failures(of)
    # 2 x 65,536 tokens x 128 x 2 B is 33.6 MB: at 10 and at 50 GB/s
    assert (id_, message) == (
        "tp-cp-wider-than-fast-domain",
        (
            "tp 8 x cp 2 = 16 ranks reach beyond one `node`: sending a block of keys and values "
            "takes 3.36 ms, and would take 0.671 ms inside"
        ),
    )
    (check,) = [c for _, c in of.contributions("checks") if c.id == id_]
    assert check.severity == "warning"
    assert failures(study("tp = 8, cp = 2", devices=16, node=16)) == []


# --- Whatever the machine ------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=min(25, settings().max_examples), deadline=None)
@given(
    rate=st.floats(0.5, 900.0),
    latency=st.just(0.0) | st.floats(1e-3, 100.0),
    cp=st.sampled_from([2, 4, 8]),
    context=st.sampled_from(
        ["", "double_buffer = off", "algorithm = all_gather", "balance = contiguous"]
    ),
    sequence=st.sampled_from([8192, 65_536]),
)
def test_exposed_time_is_neither_negative_nor_more_than_was_sent(
    rate: float, latency: float, cp: int, context: str, sequence: int
) -> None:
    of = result(
        f"cp = {cp}", context, rate=f"{rate} GB/s", latency=f"{latency} us", sequence=sequence
    )
    exposed, sent, step = (of.figure(name) for name in ("cp_exposed", "cp_seconds", "step_time"))
    assert 0 <= exposed <= sent * (1 + 1e-12)
    # nor is a step shorter than what any resource is busy
    assert step >= sent * (1 - 1e-12)
    alone = of.outcome.ideal_seconds - exposed
    assert step >= alone * (1 - 1e-12)


@try_each("tp, heads", [(2, 4), (8, 1), (16, 1), (32, 1)])
def test_ranks_beyond_the_kv_heads_pass_copies_on(tp: int, heads: int) -> None:
    # Llama 3.1 405B has 8 of them: from 8 ranks on, each has one whole head to pass on.
    of = study(f"tp = {tp}, cp = 2", devices=64)
    found = [term.bytes_ for (_, pass_), term in work(of).items() if pass_ == "F"]
    # keys and values of 128 elements of 2 B, of half of the sequence
    assert set(found) == {S / 2 * heads * 2 * 128 * 2}


@pytest.mark.slow
def test_megatron_gathers_keys_and_values_of_windows() -> None:
    """Gemma 3 27B: 8 of 16 KV heads of 128 on a rank, K and V of 32,768 tokens in 2 B."""
    text = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.gemma3_27b_text
use catalog.models.llama3_8b
use catalog.precisions.bf16
use catalog.frameworks.megatron_core
cluster { devices = 8 }
layout { tp = 2, cp = 4, sequence_parallel = on }
training { model = MODEL, sequence = 32768, global_batch = 1 sequences, recompute = full }
"""
    buffer = 2 * 32_768 * 8 * 128 * 2
    (scenario,) = parcost.load_text(text.replace("MODEL", "gemma3_27b_text"))
    study = scenario.studies()[0]
    assert study.legal()
    figures = {f.name: f.value for _, f in details_of(study, study.evaluate())}
    assert figures["cp_volume_per_layer_forward"] == buffer * 3 / 4  # three quarters arrive
    assert figures["cp_volume_per_layer_backward"] == 2 * buffer * 3 / 4
    names = {term.name for _, term in study.contributions("terms")}
    assert "KV all-gather" in names
    assert "KV ring" not in names
    (ring,) = scenario.replace({"context.algorithm": "ring"}).studies()
    failed = {
        c.id
        for _, c in ring.contributions("checks")
        if not np.all(c.holds) and c.severity == "error"
    }
    assert failed == {"context-with-windows"}
    (plain,) = parcost.load_text(text.replace("MODEL", "llama3_8b"))
    assert "KV ring" in {term.name for _, term in plain.studies()[0].contributions("terms")}
