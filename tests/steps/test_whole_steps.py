"""Whole steps worked out a second time, from the definitions and without the product.

Everything here is plain arithmetic on one layer, one micro-batch and one message at a time.
The machine is made of round numbers: products run at half of 100 TFLOPS, links carry 1 GB/s
in each direction without latency, and only the optimizer reads memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

import parcost

PEAK = 0.5 * 100e12  # FLOP/s that matrix products and attention reach
LINK = 1e9  # B/s in each direction
MEMORY = 0.5 * 1e12  # B/s that the optimizer reaches

MACHINE = """
device plain {
  memory = 80 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}
fabric wire { level net { bandwidth = 1 GB/s per_direction, latency = 0 s } }
precision mixed {
  compute = bf16, weights = 2 B, gradients = 4 B, optimizer = 12 B, activation = 2 B
  update_traffic = 30 B, norm_traffic = 0 B
}
kernels {
  model = constant, memory_bound = off, memory_efficiency = 0.5
  gemm_efficiency = 0.5, attention_forward_efficiency = 0.5, attention_backward_efficiency = 0.5
}
overlap {
  gradients = off, parameters = off, tensor = off, bucket = 1 TB, multiprocessors = 0
}
memory { usable = 1, context = 0 B, communicator = 0 B, fragmentation = 0 }
"""


def ring(size: float, ranks: int, passes: int = 1) -> float:
    """Return the seconds of a ring over *ranks*: 2 passes for an all-reduce, 1 for a half of it."""
    return passes * size * (ranks - 1) / ranks / LINK


@dataclass
class Stage:
    """Seconds of a micro-batch on one stage, and its parameters on one device."""

    forward: float = 0.0
    backward: float = 0.0  # both gradients, and what is computed again
    parameters: float = 0.0


@dataclass
class DenseStep:
    """A dense decoder: h wide, s tokens, causal attention, a gated MLP of 4 h, untied ends."""

    layers: int
    tp: int = 1
    hidden: int = 1024
    heads: int = 8
    sequence: int = 1024
    vocabulary: int = 1000
    recompute: bool = False

    def layer_parameters(self) -> float:
        """Return the parameters of a layer on one of *tp* devices; norms are whole on each."""
        h = self.hidden
        return (4 * h * h + 3 * h * 4 * h) / self.tp + 2 * h

    def products(self) -> float:
        """Return the forward FLOPs of the matrix products of a layer on one device."""
        s, h = self.sequence, self.hidden
        return 2 * s * (4 * h * h + 3 * h * 4 * h) / self.tp

    def attention(self) -> float:
        """Return the forward FLOPs of scores and values, half of them masked."""
        return 4 * self.sequence**2 * self.hidden / 2 / self.tp

    def reduction(self) -> float:
        """Return the seconds of one all-reduce of a layer's output in 2 bytes."""
        return ring(self.sequence * self.hidden * 2, self.tp, passes=2)

    def divide(self, counts: Sequence[int]) -> list[Stage]:
        """Return what each stage takes, for *counts* layers on them."""
        stages = []
        head = 2 * self.sequence * self.hidden * self.vocabulary / self.tp
        loss = 3 * ring(self.sequence * 4, self.tp, passes=2)  # maximum, sum, target's logit
        for index, layers in enumerate(counts):
            forward = layers * ((self.products() + self.attention()) / PEAK + 2 * self.reduction())
            # Twice the products, 2.5 times attention (scores are computed again), and as many
            # all-reduces as forward.
            backward = layers * (
                (2 * self.products() + 2.5 * self.attention()) / PEAK + 2 * self.reduction()
            )
            if self.recompute:
                backward += forward
            stage = Stage(forward, backward, layers * self.layer_parameters())
            if index == 0:
                stage.forward += self.reduction()  # each device looks up its part of the words
                stage.parameters += self.vocabulary * self.hidden / self.tp
            if index == len(counts) - 1:
                stage.forward += head / PEAK + loss
                stage.backward += 2 * head / PEAK + self.reduction()
                stage.parameters += self.vocabulary * self.hidden / self.tp + self.hidden
            stages.append(stage)
        return stages


def one_f_one_b(stages: Sequence[Stage], micro_batches: int, hop: float) -> list[float]:
    """Return when each stage ends, by playing 1F1B one operation at a time."""
    p = len(stages)
    orders = []
    for s in range(p):
        warm = min(p - 1 - s, micro_batches)
        order = [("F", j) for j in range(warm)]
        for j in range(micro_batches - warm):
            order += [("F", warm + j), ("B", j)]
        orders.append(order + [("B", j) for j in range(micro_batches - warm, micro_batches)])
    return play(stages, orders, hop)


def gpipe(stages: Sequence[Stage], micro_batches: int, hop: float) -> list[float]:
    """Return when each stage ends if all forward passes come first."""
    every = range(micro_batches)
    order = [("F", j) for j in every] + [("B", j) for j in every]
    return play(stages, [order] * len(stages), hop)


def play(
    stages: Sequence[Stage], orders: Sequence[Sequence[tuple[str, int]]], hop: float
) -> list[float]:
    """Return when each stage ends, if every operation waits for its neighbour's and a hop."""
    p = len(stages)
    ends: dict[tuple[str, int, int], float] = {}
    clock, at = [0.0] * p, [0] * p
    while any(at[s] < len(orders[s]) for s in range(p)):
        moved = False
        for s in range(p):
            if at[s] == len(orders[s]):
                continue
            kind, j = orders[s][at[s]]
            before = s - 1 if kind == "F" else s + 1
            needs = (kind, j, before)
            ready = 0.0
            if 0 <= before < p:
                if needs not in ends:
                    continue
                ready = ends[needs] + hop
            takes = stages[s].forward if kind == "F" else stages[s].backward
            clock[s] = max(clock[s], ready) + takes
            ends[kind, j, s] = clock[s]
            at[s] += 1
            moved = True
        assert moved, "the order never ends"
    return clock


def evaluate(text: str) -> parcost.Result:
    (scenario,) = parcost.load_text(MACHINE + text)
    return scenario.evaluate().result


MODEL = """
model small {
  layers = 8, hidden = 1024, heads = 8, vocabulary = 1000, qkv_biases = off
}
cluster { devices = 8 }
"""


@pytest.mark.parametrize("schedule", ["one_f_one_b", "gpipe"])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("counts", [(4, 4), (5, 3), (3, 2, 2, 1)])
def test_tensor_and_pipeline_parallel(
    counts: tuple[int, ...], recompute: bool, schedule: str
) -> None:
    """Megatron-LM's dense step: all-reduces, uneven stages, ZeRO 1, nothing hidden."""
    tp, pp = 2 if len(counts) == 2 else 1, len(counts)
    dp, micro_batches = 8 // (tp * pp), 16 // (8 // (tp * pp))
    result = evaluate(
        MODEL
        + f"""
layout {{ tp = {tp}, pp = {pp}, zero = 1 }}
schedule {{ kind = {schedule}, stages = {list(counts)} }}
training {{
  sequence = 1024 tokens, global_batch = 16 sequences
  recompute = {"full" if recompute else "none"}
}}
"""
    )
    stages = DenseStep(layers=8, tp=tp, recompute=recompute).divide(counts)
    play_schedule = one_f_one_b if schedule == "one_f_one_b" else gpipe
    ends = play_schedule(stages, micro_batches, hop=1024 * 1024 * 2 / LINK)
    # The gradients of a stage leave when it has drained; the optimizer waits for all of them.
    reduced = max(
        end + ring(4 * stage.parameters, dp) for end, stage in zip(ends, stages, strict=True)
    )
    update = max(30 * stage.parameters / dp / MEMORY for stage in stages)
    gather = max(ring(2 * stage.parameters, dp) for stage in stages)
    assert result.figure("step_time") == pytest.approx(reduced + update + gather, rel=1e-9)


def adam(parameters: float, ranks: int) -> float:
    """Return the seconds of the update, its state divided among *ranks*."""
    return 30 * parameters / ranks / MEMORY


def whole_model(model: DenseStep) -> Stage:
    (only,) = model.divide([model.layers])
    return only


def test_sequence_parallel() -> None:
    """All-gather and reduce-scatter take the place of an all-reduce, and cost as much."""
    result = evaluate(
        MODEL
        + """
layout { tp = 4, zero = 0, sequence_parallel = on }
training { sequence = 1024 tokens, global_batch = 8 sequences }
"""
    )
    stage = whole_model(DenseStep(layers=8, tp=4))
    half, h = ring(1024 * 1024 * 2, 4), 1024
    # Each way through the embedding and the head costs one half of an all-reduce: scattered
    # or gathered, forward and backward.
    forward = stage.forward - 2 * half + half + half
    backward = stage.backward - 2 * half + half + half
    # Inputs are kept as shards. They are gathered again for the gradients of weights, while
    # the input gradient of the same product is computed.
    pairs = {3 * h * h: 8, 2 * 4 * h * h: 8, h * 1000: 1}
    again = sum(n * (half - 2 * 1024 * weights / 4 / PEAK) for weights, n in pairs.items())
    norms = ring(4 * (8 * 2 * h + h), 4, passes=2)
    reduced = ring(4 * stage.parameters, 2, passes=2)
    expected = 4 * (forward + backward + again) + norms + reduced + adam(stage.parameters, 1)
    assert result.figure("step_time") == pytest.approx(expected, rel=1e-9)


def test_zero_3() -> None:
    """Weights gathered for either pass, gradients scattered after each micro-batch."""
    result = evaluate(
        MODEL
        + """
layout { zero = 3 }
training { sequence = 1024 tokens, global_batch = 16 sequences }
"""
    )
    stage = whole_model(DenseStep(layers=8))
    # What is used last is still gathered when the backward pass begins with it.
    last = 1000 * 1024 + 1024
    gathered = ring(2 * stage.parameters, 8) + ring(2 * (stage.parameters - last), 8)
    scattered = ring(4 * stage.parameters, 8)
    work = stage.forward + stage.backward
    expected = 2 * (work + gathered + scattered) + adam(stage.parameters, 8)
    assert result.figure("step_time") == pytest.approx(expected, rel=1e-9)


def test_context_parallel_ring() -> None:
    """Keys and values go round three times behind three quarters of the core."""
    result = evaluate(
        MODEL.replace("devices = 8", "devices = 4")
        + """
layout { cp = 4 }
training { sequence = 4096 tokens, global_batch = 2 sequences }
"""
    )
    h, s = 1024, 4096
    model = DenseStep(layers=8, sequence=s)
    core = model.attention() / 4 / PEAK  # a quarter of the sequence, balanced over the ranks
    message = s / 4 * 2 * h * 2 / LINK  # keys and values of a quarter, 2 bytes each
    products = model.products() / 4 / PEAK
    head = 2 * s / 4 * h * 1000 / PEAK
    forward = 8 * (products + core + max(0.0, 3 * message - 3 / 4 * core)) + head
    backward = (
        8 * (2 * products + 2.5 * core + max(0.0, 6 * message - 3 / 4 * 2.5 * core)) + 2 * head
    )
    parameters = whole_model(model).parameters
    expected = 2 * (forward + backward) + ring(4 * parameters, 4, passes=2) + adam(parameters, 1)
    assert result.figure("step_time") == pytest.approx(expected, rel=1e-9)


def test_mixture_of_experts() -> None:
    """Two experts of eight a token, two experts a device, tokens divided evenly."""
    result = evaluate(
        """
model small {
  layers = 4, hidden = 1024, heads = 8, vocabulary = 1000, qkv_biases = off
  experts = 8, top_k = 2, expert_ffn = 512
}
cluster { devices = 4 }
layout { ep = 4 }
routing { distribution = balanced }
training { sequence = 1024 tokens, global_batch = 8 sequences }
"""
    )
    s, h = 1024, 1024
    model = DenseStep(layers=4)
    products = 2 * s * h * (4 * h + 8) + 2 * (2 * s) * h * 3 * 512  # router and experts with it
    exchange = 2 * s * h * 2 * 3 / 4 / LINK  # two copies of each token, three quarters leave
    metadata = 2 * s * 8 * 3 / 4 / LINK  # in a call of their own, whose gradients go back
    counts = 3 * 8 * 4 / LINK  # a number for each expert from each of the others
    head = 2 * s * h * 1000
    read = 24e-6  # the kernel behind the counts, which the host reads before it issues any
    forward = 4 * ((products + model.attention()) / PEAK + 2 * exchange + metadata + counts + read)
    backward = 4 * ((2 * products + 2.5 * model.attention()) / PEAK + 2 * exchange + metadata)
    dense = 4 * (4 * h * h + 2 * h + 8 * h) + 2 * 1000 * h + h
    experts = 4 * 2 * 3 * h * 512  # two of them on each device, no copies elsewhere
    expected = (
        2 * (forward + backward + 3 * head / PEAK)
        + ring(4 * dense, 4, passes=2)
        + adam(dense + experts, 1)
    )
    assert result.figure("step_time") == pytest.approx(expected, rel=1e-9)


def test_latent_attention() -> None:
    """Multi-head latent attention: ranks of 256 and 128, heads of 64 + 32 and 64."""
    result = evaluate(
        """
model small {
  layers = 4, hidden = 1024, heads = 8, vocabulary = 1000, qkv_biases = off
  kv_lora = 128, q_lora = 256, rope_dim = 32, nope_dim = 64, v_dim = 64
}
cluster { devices = 1 }
training { sequence = 1024 tokens, global_batch = 2 sequences }
"""
    )
    s, h, heads = 1024, 1024, 8
    query = h * 256 + 256 * heads * (64 + 32)
    key_value = h * (128 + 32) + 128 * heads * (64 + 64)
    weights = query + key_value + heads * 64 * h + 3 * h * 4 * h
    scores, values = s * s * heads * (64 + 32), s * s * heads * 64  # 2 s^2 n d, half of it masked
    # Backward computes scores once more, and two products of each of the two forward ones.
    core = (scores + values) / PEAK
    core_backward = (3 * scores + 2 * values) / PEAK
    head = 2 * s * h * 1000 / PEAK
    micro_batch = 4 * (3 * 2 * s * weights / PEAK + core + core_backward) + 3 * head
    norms = 2 * h + 256 + 128
    parameters = 4 * (weights + norms) + 2 * 1000 * h + h
    expected = 2 * micro_batch + adam(parameters, 1)
    assert result.figure("step_time") == pytest.approx(expected, rel=1e-9)


def test_memory_of_the_first_stage() -> None:
    """Korthikanti et al. 2022, with fused attention and without dropout, of two micro-batches."""
    result = evaluate(
        MODEL
        + """
layout { tp = 2, pp = 2, zero = 1 }
training { sequence = 1024 tokens, global_batch = 16 sequences }
"""
    )
    s, h, t = 1024, 1024, 2
    # Inputs of two norms, of QKV and of the MLP, 2 bytes each; q, k, v and the core's output,
    # gate, up and their product are divided; one fp32 number a row and head.
    layer = 4 * 2 * s * h + 4 * 2 * s * h / t + 3 * 2 * s * 4 * h / t + 4 * s * 8 / t
    ids = 8 * s
    first, _ = DenseStep(layers=8, tp=2).divide([4, 4])
    state = first.parameters * (2 + 4 + 12 / 2)
    assert result.figure("memory") == pytest.approx(state + 2 * (4 * layer + ids), rel=1e-9)
