"""Context parallelism of one small model, number by number: what is sent, held, said, rejected.

A tensor-parallel rank has 6 of 12 heads and 3 of 6 key and value heads of 64. With five sequences
in a micro-batch and 2048 tokens of each on a rank, keys and values are 10,240 x 2 x 3 x 64
elements, of 3 B, and their gradients of 5 B. Links carry 10 GB/s in a node, and 1 GB/s beyond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Study, Work
from parcost.engine.rules import diagnose
from parcost_plugins.parallelism.context.exchange import exchange
from parcost_plugins.parallelism.context.figures import _regime_text

from ..evaluation import details_of
from ..rows import try_each

SPEC = """
device plain {{
  memory = 800 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}}
fabric wire {{
  level node {{
    size = {node} devices, bandwidth = {rate} per_direction, latency = {latency}
  }}
  level net {{ bandwidth = 1 GB/s per_direction, latency = {latency} }}
}}
precision mixed {{
  compute = bf16, weights = 2 B, gradients = 4 B, optimizer = 12 B, activation = 2 B
  update_traffic = 0 B, norm_traffic = 0 B
}}
model small {{
  layers = 6, hidden = 768, heads = 12, ffn = 1024, vocabulary = 1024, {model}
}}
kernels {{
  model = constant, memory_bound = off
  gemm_efficiency = 0.5, attention_forward_efficiency = 0.5, attention_backward_efficiency = 0.5
}}
overlap {{ gradients = off, parameters = off, tensor = off, multiprocessors = 0 }}
memory {{ usable = 1, context = 0 B, communicator = 0 B, fragmentation = 0 }}
cluster {{ devices = {devices} }}
layout {{ {layout} }}
context {{ key_value = 3 B, gradients = 5 B, {context} }}
training {{
  sequence = {sequence}, micro_batch = 5, global_batch = {batch} sequences, {training}
}}
"""
KV_HEADS = "kv_heads = 6"
TOKENS = 5 * 2048
BLOCK = TOKENS * 3 * 128 * 3
GRADIENTS = TOKENS * 3 * 128 * 5
TRADED = TOKENS * 2 * (6 + 3) * 64  # elements of queries, keys, values and outputs
CP_3 = {"layout": "tp = 2, cp = 3, pp = 2", "sequence": 6144, "devices": 12}
CP_6 = {"layout": "tp = 2, cp = 6, pp = 2", "sequence": 12_288, "devices": 24}


def study(**more: Any) -> Study:
    values = {
        "node": 100,
        "rate": "10 GB/s",
        "latency": "0 s",
        "model": KV_HEADS,
        "devices": 12,
        "layout": "",
        "context": "",
        "sequence": 6144,
        "batch": 10,
        "training": "",
    }
    (scenario,) = parcost.load_text(SPEC.format(**{**values, **more}))
    return scenario.studies()[0]


def own_terms(of: Study, hook: str) -> list[Any]:
    found = [x for plugin, x in of.contributions(hook) if plugin.name == "context_parallel"]
    assert not of.faults
    return found


def work(of: Study) -> dict[tuple[str, str], Any]:
    """Return seconds, bytes and the share that may hide of each term."""
    return {
        (t.name, t.pass_): (t.seconds, t.bytes_, None if t.window is None else t.share)
        for t in own_terms(of, "terms")
        if isinstance(t, Work) and not t.name.startswith("imbalance")
    }


def memory_terms(of: Study) -> dict[str, Any]:
    return {term.name: term for term in own_terms(of, "memory")}


def assert_terms(found: dict[Any, Any], expected: dict[Any, Any]) -> None:
    assert set(found) == set(expected)
    for name, (*numbers, share) in expected.items():
        assert found[name][:2] == pytest.approx(tuple(numbers), rel=1e-12), name
        assert found[name][2] == (share if share is None else pytest.approx(share)), name


# --- what is sent -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_ring_of_three_passes_two_blocks_and_their_gradients() -> None:
    of = study(**CP_3, latency="1 ms")
    both = BLOCK + GRADIENTS
    assert_terms(
        work(of),
        {
            ("KV ring", "F"): (2 * (1e-3 + BLOCK / 1e10), 2 * BLOCK, 2 / 3),
            ("KV and gradient ring", "B"): (2 * (2e-3 + both / 1e10), 2 * both, 2 / 3),
        },
    )


def test_a_gather_of_three_brings_two_blocks_and_adds_gradients_up() -> None:
    of = study(**CP_3, context="algorithm = all_gather", training="recompute = full")
    gather = (2 * BLOCK / 1e10, 3 * BLOCK, None)
    assert_terms(
        work(of),
        {
            ("KV all-gather", "F"): gather,
            ("KV all-gather", "R"): gather,
            ("KV all-gather", "B"): gather,
            ("KV gradient reduce-scatter", "B"): (2 * GRADIENTS / 1e10, 3 * GRADIENTS, None),
        },
    )


def test_layers_of_either_reach_gather_alike() -> None:
    """Every third of six layers attends to all tokens, the others within a window."""
    more = {"layout": "cp = 3", "devices": 3, "batch": 15}
    model = f"{KV_HEADS}, window = 512, full_every = 3"
    of = study(**more, model=model, context="algorithm = all_gather")
    sent = [t for t in own_terms(of, "terms") if not t.name.startswith("imbalance")]
    assert {tuple(t.count) for t in sent} == {(6.0,)}
    ring = study(**more, model=model)
    counts = {t.name: tuple(t.count) for t in own_terms(ring, "terms") if t.pass_ == "F"}
    assert counts == {
        "KV ring": (2.0,),
        "KV ring, attention core in a window": (4.0,),
        "imbalance of attention core in a window": (4.0,),
    }


def test_three_ranks_trade_two_thirds_of_four_tensors() -> None:
    of = study(**CP_3, context="algorithm = ulysses", training="recompute = full")
    forward = (TRADED * 3 * 2 / 3 / 1e10, TRADED * 3, None)
    name = "heads all-to-all"
    assert_terms(
        work(of),
        {
            (name, "F"): forward,
            (name, "R"): forward,
            (name, "B"): (TRADED * 5 * 2 / 3 / 1e10, TRADED * 5, None),
        },
    )


def test_two_parts_of_three_trade_within_and_pass_a_block_between() -> None:
    of = study(**CP_6, context="algorithm = hybrid, ulysses = 3")
    assert_terms(
        work(of),
        {
            ("heads all-to-all", "F"): (TRADED * 3 * 2 / 3 / 1e10, TRADED * 3, None),
            ("heads all-to-all", "B"): (TRADED * 5 * 2 / 3 / 1e10, TRADED * 5, None),
            ("KV ring", "F"): (BLOCK / 1e10, BLOCK, 1 / 2),
            ("KV and gradient ring", "B"): (
                (BLOCK + GRADIENTS) / 1e10,
                BLOCK + GRADIENTS,
                1 / 2,
            ),
        },
    )


def test_parts_that_are_wider_than_a_node_trade_over_both_levels() -> None:
    """Four of eight ranks, two to a node: half of each message leaves the node, at 1 GB/s."""
    of = study(
        layout="cp = 8",
        devices=8,
        node=2,
        sequence=8192,
        model="kv_heads = 12",
        context="algorithm = hybrid, ulysses = 4",
    )
    widths = 4 * 12 * 64  # of which each of the four tensors has a quarter
    n = 5 * 1024 * widths * 3 / 4
    seconds, bytes_, _ = work(of)["heads all-to-all", "F"]
    assert bytes_ == 4 * n
    assert seconds == pytest.approx(4 * n / 2 / 1e9)
    resources = {t.name: t.resource for t in own_terms(of, "terms")}
    assert resources == dict.fromkeys(
        ("heads all-to-all", "KV ring", "KV and gradient ring"), "net"
    )
    block = 5 * 1024 * 2 * 12 * 64 * 3
    assert work(of)["KV ring", "F"][0] == pytest.approx(block / 1e9)


def test_compressed_keys_travel_without_their_heads() -> None:
    latent = "kv_lora = 96, q_lora = 0, nope_dim = 48, rope_dim = 16, v_dim = 80"
    of = study(**CP_3, model=latent, context="latent = on, double_buffer = off")
    block = TOKENS * (96 + 16) * 3
    assert work(of)["KV ring", "F"][1] == 2 * block
    projected = TOKENS * 6 * (64 + 80) * 2
    assert {name: term.bytes_ for name, term in memory_terms(of).items()} == {
        "KV block": block,
        "gradients of a KV block": TOKENS * (96 + 16) * 5,
        "attention output in fp32": 4 * TOKENS * 6 * (80 + 1),
        "projected keys and values": projected,
        "gradients of projected keys and values": projected,
    }
    whole = study(**CP_3, model=latent, context="algorithm = all_gather, latent = on")
    assert memory_terms(whole)["projected keys and values"].bytes_ == 3 * projected
    traded = study(**CP_3, model=latent, context="algorithm = ulysses")
    widths = 6 * (64 + 64 + 80 + 80)
    assert work(traded)["heads all-to-all", "F"][1] == TOKENS * widths * 3


def test_keys_that_are_copied_for_their_group_travel_as_the_copies() -> None:
    own = "flash_attention = on, framework = own\n}\nframework own {\n  repeats_keys = on"
    for training, heads in (("", 3), (own, 6)):  # of each of two ranks
        found = work(study(**CP_3, training=training))["KV ring", "F"]
        assert found[1] == 2 * TOKENS * heads * 2 * 64 * 3


def test_parts_stand_on_the_innermost_levels() -> None:
    """Eight ranks, two to a node: of parts of four, two nodes each; of two, one each."""
    sizes: dict[str, Any] = {"layout": "cp = 8", "devices": 8, "node": 2, "sequence": 8192}
    for ulysses, inner, outer, names in (
        (4, (2, 2), (1, 2), {"net"}),
        (2, (2, 1), (1, 4), {"node"}),
    ):
        found = exchange(study(**sizes, context=f"algorithm = hybrid, ulysses = {ulysses}"))
        assert (found.trading, found.rounds) == (ulysses, 8 / ulysses)
        assert (found.inner.ranks, found.inner.shape, found.inner.fewest) == (
            ulysses,
            inner,
            inner,
        )
        assert (found.outer.ranks, found.outer.shape) == (8 / ulysses, outer)
        assert {link.name for link in (found.inner.flat, found.inner.pair, found.inner.hop)} == (
            names
        )
    ring = exchange(study(**sizes))
    assert ring.outer is ring.all_ranks
    assert ring.rounds == 8


# --- what is held -------------------------------------------------------------------------

FORWARD, BACKWARD = ("forward",), ("backward", "end_of_backward")


def test_buffers_are_of_one_layer_and_of_their_pass() -> None:
    found = memory_terms(study(**CP_3))
    both = FORWARD + BACKWARD
    assert {name: (term.bytes_, term.moments) for name, term in found.items()} == {
        "KV block": (BLOCK, both),
        "gradients of a KV block": (GRADIENTS, BACKWARD),
        "KV double buffer": (BLOCK, both),
        "KV gradient double buffer": (GRADIENTS, BACKWARD),
        "attention output in fp32": (4 * TOKENS * 6 * 65, FORWARD),
    }
    hybrid = memory_terms(study(**CP_6, context="algorithm = hybrid, ulysses = 3"))
    assert {name: term.bytes_ for name, term in hybrid.items()} == {
        name: term.bytes_ for name, term in found.items()
    }
    assert {tuple(term.count) for term in found.values()} == {(1.0, 1.0)}
    assert all(term.once_per_device for term in found.values())
    gathered = memory_terms(study(**CP_3, context="algorithm = all_gather"))
    assert {name: (term.bytes_, term.moments) for name, term in gathered.items()} == {
        "gathered keys and values": (3 * BLOCK, both),
        "gathered gradients of keys and values": (3 * GRADIENTS, BACKWARD),
    }


def test_stages_without_attention_hold_no_buffers() -> None:
    of = study(**CP_3 | {"layout": "tp = 2, cp = 3, pp = 2 }\nschedule { stages = [6, 0]"})
    assert {tuple(term.count) for term in memory_terms(of).values()} == {(1.0, 0.0)}


def test_attention_that_writes_its_scores_holds_buffers_on_every_stage() -> None:
    """It is rejected, and worked out all the same."""
    of = study(**CP_3, training="flash_attention = off")
    assert {term.count for term in memory_terms(of).values()} == {1.0}


@pytest.mark.parametrize("context", ["", "algorithm = all_gather"])
def test_one_rank_of_a_sweep_holds_no_buffers(context: str) -> None:
    of = study(layout="cp = [1, 2, 3]", devices=6, context=context)
    for term in memory_terms(of).values():
        assert [bytes_ > 0 for bytes_ in np.asarray(term.bytes_)] == [False, True, True]


# --- what is shown ------------------------------------------------------------------------


def figure_values(**more: Any) -> dict[str, Any]:
    of = study(**more)
    outcome = of.evaluate()
    found = details_of(of, outcome)
    figures = {f.name: f.value for plugin, f in found if plugin.name == "context_parallel"}
    assert not of.faults
    return {**figures, "step": outcome.step_seconds, "ledger": outcome.ledger}


# Attention of a layer: 4 b s^2 / c a d / 2 FLOP at 50 TFLOP/s, of all blocks.
CORE = 4 * 5 * 6144 * 2048 * 6 * 64 / 2 / 50e12


@pytest.mark.slow
def test_figures_of_a_ring_of_three() -> None:
    found = figure_values(**CP_3, latency="1 ms")
    assert found["model_parallel_devices"] == 12
    assert found["cp_tokens"] == 2048
    assert found["cp_block"] == BLOCK
    assert found["cp_volume_per_layer_forward"] == 2 * BLOCK
    assert found["cp_volume_per_layer_backward"] == 2 * (BLOCK + GRADIENTS)
    # three layers of a stage and two micro-batches
    assert found["cp_volume"] == pytest.approx(3 * 2 * (4 * BLOCK + 2 * GRADIENTS))
    assert found["cp_buffer"] == 2 * BLOCK
    assert found["cp_buffer_share"] == pytest.approx(2 * BLOCK / (800 * 2**30))
    assert found["cp_send"] == pytest.approx(1e-3 + BLOCK / 1e10)
    assert found["cp_work"] == pytest.approx(CORE / 3)
    assert found["cp_overlap"] == pytest.approx((1e-3 + BLOCK / 1e10) / (CORE / 3))
    # two key and value heads of 64 in a ring against queries and outputs of six, 2/3 of which go
    assert found["cp_ring_over_ulysses"] == pytest.approx(2 * 2 * 3 / (2 * (6 + 3) * 2 / 3))
    assert found["cp_crossover"] == 3.0
    # X^2 f = alpha + X n, on five sequences of 3 heads
    X = found["cp_free_from"]
    works = X * X * CORE / 3 / 2048**2
    assert works == pytest.approx(1e-3 + X * BLOCK / 2048 / 1e10)
    lines = [line for line in found["ledger"] if "ring" in line.name]
    assert found["cp_exposed"] == pytest.approx(sum(line.exposed for line in lines))
    every = sum(line.exposed + line.hidden for line in lines)
    assert found["cp_seconds"] == pytest.approx(every)
    assert 0 < found["cp_exposed"] < every


@pytest.mark.parametrize(
    ("more", "forward", "backward"),
    [
        ({**CP_3, "context": "algorithm = all_gather"}, 2 * BLOCK, 2 * (BLOCK + GRADIENTS)),
        (
            {**CP_3, "context": "algorithm = ulysses"},
            TRADED * 3 * 2 / 3,
            TRADED * 5 * 2 / 3,
        ),
        (
            {**CP_6, "context": "algorithm = hybrid, ulysses = 3"},
            BLOCK + TRADED * 3 * 2 / 3,
            BLOCK + GRADIENTS + TRADED * 5 * 2 / 3,
        ),
    ],
)
def test_volumes_of_a_layer(more: dict[str, Any], forward: float, backward: float) -> None:
    found = figure_values(**more)
    assert found["cp_volume_per_layer_forward"] == pytest.approx(forward)
    assert found["cp_volume_per_layer_backward"] == pytest.approx(backward)
    assert found["cp_volume"] == pytest.approx(3 * 2 * (forward + backward))


def test_recomputed_layers_exchange_their_blocks_once_more() -> None:
    found = figure_values(**CP_3, training="recompute = full")
    assert found["cp_volume"] == pytest.approx(3 * 2 * (6 * BLOCK + 2 * GRADIENTS))


def test_attention_without_blocks_works_on_none() -> None:
    found = figure_values(**CP_3, training="flash_attention = off")
    assert (found["cp_work"], found["cp_overlap"]) == (0.0, float("inf"))


@pytest.mark.slow
def test_uneven_attention_is_work_and_no_traffic() -> None:
    even, uneven = figure_values(**CP_3), figure_values(**CP_3, context="balance = contiguous")
    extra = [x for x in uneven["ledger"] if x.name.startswith("imbalance")]
    assert sum(line.exposed for line in extra) > 0
    assert uneven["cp_seconds"] == pytest.approx(even["cp_seconds"])


def test_a_buffer_is_held_of_two_ranks_and_more() -> None:
    found = figure_values(layout="cp = [1, 2, 3]", devices=6, model="kv_heads = 12", batch=30)
    blocks = [5 * 6144 / cp * 2 * 12 * 64 * 3 for cp in (1, 2, 3)]
    assert list(found["cp_buffer"]) == [0.0, 2 * blocks[1], 2 * blocks[2]]


def regime(**more: Any) -> tuple[list[str], list[str]]:
    of = study(**more)
    asked = of.plugins.ask("sections", study=of, outcome=of.evaluate(), brief=False)
    (section,) = (s for plugin, s in asked if plugin.name == "context_parallel")
    return [str(row[0]) for row in section.rows], list(section.notes)


WAITS = "attention waits for the gather or all-to-all, so that it is exposed"
GROWS = "send time grows with the tokens per rank, compute time with their square: longer blocks hide more"


@pytest.mark.slow
def test_the_regime_says_what_may_hide() -> None:
    short, rows = ["tokens of a sequence on a rank", "exposed in a step"], 5
    for algorithm in ("all_gather", "ulysses"):
        found = regime(**CP_3, context=f"algorithm = {algorithm}")
        assert found == (short, [WAITS])
    names, notes = regime(**CP_3)
    assert (len(names), notes[0], len(notes)) == (rows, GROWS, 2)
    names, notes = regime(**CP_6, context="algorithm = hybrid, ulysses = 3")
    assert (len(names), notes[:2], len(notes)) == (rows, [WAITS, GROWS], 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "said"),
    [
        ("40 GB/s", "hidden: 2048 tokens per rank; 1875 are enough"),
        ("30 GB/s", "exposed: 2048 tokens per rank; 2500 are needed; cp = 2 has enough"),
        ("15 GB/s", "exposed: 2048 tokens per rank; 5000 are needed; cp = 1 has enough"),
        (
            "10 GB/s",
            "exposed: 2048 tokens per rank; 7500 are needed; the whole sequence has fewer",
        ),
    ],
)
def test_the_regime_names_a_degree_that_has_enough_tokens(rate: str, said: str) -> None:
    """A token's block of 5760 B at 10 GB/s is 576 ns, and X tokens work 76.8 X^2 ps."""
    _, notes = regime(**CP_3, rate=rate)
    assert notes == [GROWS, said]


def test_as_many_tokens_as_are_needed_are_enough() -> None:
    said = _regime_text(exchange(study(**CP_3)), 2048.0, 2048.0)
    assert said == "hidden: 2048 tokens per rank; 2048 are enough"


# --- what is rejected ----------------------------------------------------------------------


def failures(**more: Any) -> dict[str, Any]:
    of = study(**more)
    return {c.id: diagnose(c, of) for c in own_terms(of, "checks") if not np.all(c.holds)}


@try_each(
    "cp, sequence, more, parts",
    [
        (2, 1002, {}, 4),
        (2, 1004, {}, None),
        (2, 1001, {"context": "balance = contiguous"}, 2),
        (2, 1002, {"context": "balance = contiguous"}, None),
        (2, 1002, {"context": "algorithm = ulysses"}, None),
        (2, 1001, {"context": "algorithm = ulysses"}, 2),
        (2, 1002, {"model": "causal = off"}, None),
        ("[1, 2]", 1002, {}, 4),
        ("[1, 3]", 1001, {}, 6),
        (1, 1001, {}, None),
    ],
)
def test_a_sequence_divides_into_shares(
    cp: Any, sequence: int, more: dict[str, Any], parts: int | None
) -> None:
    found = failures(layout=f"cp = {cp}", devices=6, sequence=sequence, batch=30, **more)
    if parts is None:
        assert found == {}
        return
    twice = parts != 2
    (complaint,) = found.values()
    below, above = sequence // parts * parts, (sequence // parts + 1) * parts
    why = ": each of the cp ranks has two parts, one from either end" if twice else ""
    assert complaint.message == (
        f"a sequence of {sequence} tokens is not divisible by {parts} parts{why}"
    )
    assert complaint.help is not None
    tokens, _, ranks = complaint.help.partition(", or cp = ")
    assert tokens == f"take {below} or {above} tokens"
    assert bool(ranks) == (not isinstance(cp, str))  # a sweep has no single way out
    for other in ranks.split(" or ") if ranks else ():
        assert sequence % (int(other) * parts // cp) == 0


@try_each("cp, u, legal", [(4, 1, False), (4, 2, True), (4, 3, False), (4, 4, False), (6, 2, True)])
def test_a_hybrid_trades_within_a_part_of_the_ranks(cp: int, u: int, legal: bool) -> None:
    context = f"algorithm = hybrid, ulysses = {u}"
    sizes = {"layout": f"cp = {cp}", "devices": cp, "sequence": 12_288, "batch": 30}
    assert ("hybrid-degree" not in failures(**sizes, context=context)) == legal
    swept = {**sizes, "layout": f"cp = [1, {cp}]"}
    assert ("hybrid-degree" not in failures(**swept, context=context)) == legal


@pytest.mark.slow
def test_heads_divide_by_those_that_trade() -> None:
    sizes = {"layout": "cp = 4", "devices": 4, "context": "algorithm = ulysses"}
    assert set(failures(**sizes, model="kv_heads = 12")) == set()
    assert set(failures(**sizes, model="kv_heads = 6")) == {"ulysses-kv-heads"}
    sizes |= {"layout": "cp = 8", "devices": 8}
    assert set(failures(**sizes, model="kv_heads = 12")) == {"ulysses-heads"}


def test_words_belong_to_their_algorithm_and_model() -> None:
    latent = "kv_lora = 96, q_lora = 0, nope_dim = 48, rope_dim = 16, v_dim = 80"
    assert set(failures(**CP_3, context="ulysses = 1")) == set()
    assert set(failures(**CP_3, context="ulysses = 2")) == {"ulysses-without-hybrid"}
    assert set(failures(**CP_3, context="latent = on")) == {"latent-without-mla"}
    assert set(failures(**CP_3, context="latent = on", model=latent)) == set()
    traded = "latent = on, algorithm = ulysses"
    assert set(failures(**CP_3, context=traded, model=latent)) == {"latent-under-ulysses"}
    assert set(failures(**CP_3, context="algorithm = ulysses", model=latent)) == set()


def test_scores_are_written_only_where_no_blocks_arrive() -> None:
    off = "flash_attention = off"
    assert set(failures(**CP_3, training=off)) == {"context-needs-fused"}
    swept = study(layout="cp = [1, 2]", devices=6, batch=30, training=off)
    (check,) = (c for c in own_terms(swept, "checks") if c.id == "context-needs-fused")
    assert list(check.holds) == [True, False]


def test_partners_beyond_a_node_are_warned_of_with_both_times() -> None:
    """A block of 11.8 MB takes 12.8 ms beyond the node, and 2.18 ms inside."""
    sizes = {**CP_3, "layout": "tp = 2, cp = 3", "devices": 6, "latency": "1 ms"}
    (found,) = failures(**sizes, node=2).values()
    assert found.message == (
        "tp 2 x cp 3 = 6 ranks reach beyond one `node`: sending a block of keys and values takes "
        "12.8 ms, and would take 2.18 ms inside"
    )
    assert found.notes == ("a block has 11.25 MiB, and takes 5.87 times as long",)
    (check,) = (c for c in own_terms(study(**sizes, node=2), "checks") if not c.holds)
    shown = {name: check.inputs[name] for name in ("n", "there", "inside", "slower")}
    there, inside = 1e-3 + BLOCK / 1e9, 1e-3 + BLOCK / 1e10
    assert shown == pytest.approx(
        {
            "n": BLOCK / 2**20,
            "there": there * 1e3,
            "inside": inside * 1e3,
            "slower": there / inside,
        },
        rel=1e-12,
    )
    assert failures(**sizes, node=6) == {}
    two = {"layout": "tp = 2, cp = 2", "devices": 4}
    assert set(failures(**two, node=2)) == {"tp-cp-wider-than-fast-domain"}
    assert failures(layout="cp = 3", devices=3, node=1, batch=15) == {}
    swept = study(layout="tp = [1, 2], cp = 3", devices=6, node=2, batch=30)
    (check,) = (c for c in own_terms(swept, "checks") if c.id == "tp-cp-wider-than-fast-domain")
    assert list(check.holds) == [True, False]
