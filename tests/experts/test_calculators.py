"""Dispatches and placements by themselves."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parcost_plugins.parallelism.expert.assignment import best_assignment

from ..evaluation import result
from ..rows import try_each

SMALL = """dispatch small {
  ranks = 64, experts = 128, tokens = 64, token = 2 KiB
  bandwidth = 50 GB/s per_direction, message = 0.5 us
}"""


@try_each(
    "figure, expected, rel",
    [
        ("experts_per_rank", 2, 0),
        ("peers", 40.00584897, 1e-9),
        ("density", 0.635, 1e-3),
        ("bytes_per_rank", 131_072, 0),
        ("bytes", 8_388_608, 0),
        ("imbalance", 1.2974, 1e-4),
        ("busiest_tokens", 83, 1e-3),
        ("receive_seconds", 3.4e-6, 1e-3),
        ("message_seconds", 40.00584897 * 0.5e-6, 1e-9),
    ],
)
def test_sixty_four_tokens_on_sixty_four_devices(figure: str, expected: float, rel: float) -> None:
    assert result(SMALL).figure(f"small.{figure}") == pytest.approx(expected, rel=rel)


def test_drawing_finds_as_many_peers() -> None:
    draw = np.random.default_rng(3)
    reached = [len(set(draw.integers(0, 64, 64)) - {0}) for _ in range(4000)]
    assert result(SMALL).figure("small.peers") == pytest.approx(np.mean(reached), rel=0.01)


def test_two_experts_a_token_in_eight_ranks_exchange_seven_times_the_stream() -> None:
    found = result("dispatch d { ranks = 8, experts = 8, tokens = 1000, top_k = 2, token = 1 B }")
    assert found.figure("d.training_bytes") == 7 * 1000


def test_a_dispatch_of_deepseek_v3() -> None:
    found = result(
        """dispatch d {
          ranks = 64, experts = 256, tokens = 4096, top_k = 8, token = 7168 B
          units = 8, unit_limit = 4, bandwidth = 50 GB/s per_direction
        }"""
    )
    assert found.figure("d.sent_bytes") == pytest.approx(231.2e6, rel=1e-3)
    assert found.figure("d.outer_bytes") == pytest.approx(102.8e6, rel=1e-3)
    assert found.figure("d.outer_seconds") == pytest.approx(2.06e-3, rel=3e-3)
    # two experts in each of four nodes, each on any of eight ranks
    assert found.figure("d.ranks_per_token") == pytest.approx(4 * 8 * (1 - (7 / 8) ** 2), rel=1e-12)


def test_drawing_as_deepseek_v3_routes_finds_as_many_ranks() -> None:
    """The four nodes whose two best scores sum to most, then the eight best experts there."""
    scores = np.random.default_rng(11).random((4000, 8, 32))
    best = np.sort(scores, axis=2)[:, :, -2:].sum(axis=2)
    shut = np.argsort(best, axis=1)[:, :4]
    np.put_along_axis(scores, shut[:, :, None], -1.0, axis=1)
    experts = np.argsort(scores.reshape(4000, 256), axis=1)[:, -8:]
    ranks = [len(set(row // 4)) for row in experts]
    found = result(
        """dispatch d {
          ranks = 64, experts = 256, tokens = 1, top_k = 8, token = 1 B, units = 8, unit_limit = 4
        }"""
    )
    assert found.figure("d.ranks_per_token") == pytest.approx(np.mean(ranks), rel=0.01)


def test_a_capacity_factor_leaves_places() -> None:
    found = result(
        """dispatch d {
          ranks = 8, experts = 8, tokens = 4096, top_k = 2, token = 1 B, capacity_factor = 1.25
        }"""
    )
    assert found.figure("d.capacity") == 1280


def test_the_busiest_rank_and_a_taper_bound_the_time() -> None:
    even = "ranks = 64, experts = 64, tokens = 64, token = 1 KiB, bandwidth = 1 GB/s per_direction"
    alone = result(f"dispatch d {{ {even} }}")
    assert alone.figure("d.straggler") == pytest.approx(1.2974, abs=5e-5)
    tapered = result(f"dispatch d {{ {even}, units = 8, taper = 8 }}")
    # seven of eight tokens cross links of an eighth of the bandwidth
    assert tapered.figure("d.straggler") == pytest.approx(1.2974 * 7, rel=1e-4)
    messages = result(f"dispatch d {{ {even}, message = 1 ms }}")
    assert messages.figure("d.straggler") == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("attributes", "id"),
    [
        ("ranks = 3, experts = 8", "dispatch-experts"),
        ("ranks = 4, experts = 8, top_k = 9", "dispatch-visits"),
        ("ranks = 4, experts = 8, units = 3", "dispatch-units"),
    ],
)
def test_a_dispatch_that_cannot_be(attributes: str, id: str) -> None:
    found = result(f"dispatch d {{ {attributes}, tokens = 4, token = 1 B }}")
    assert [d.id for d in found.diagnostics] == [id]
    assert not found.legal


@settings(max_examples=min(40, settings().max_examples), deadline=None)
@given(
    st.integers(1, 5).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=n, max_size=n
        )
    )
)
def test_no_assignment_is_worth_more(rows: list[list[int]]) -> None:
    worth = np.array(rows, dtype=float)
    size = len(worth)
    found = best_assignment(worth)
    assert sorted(found) == list(range(size))
    best = max(sum(worth[i, p[i]] for i in range(size)) for p in permutations(range(size)))
    assert sum(worth[i, j] for i, j in enumerate(found)) == best


def test_experts_go_where_their_tokens_come_from() -> None:
    found = result(
        """placement p {
          baseline = listed, token = 1000 B, bandwidth = 1 GB/s per_direction
          exchange_share = 50 %
          source a { tokens = [10, 90, 10, 90] }
          source b { tokens = [90, 10, 90, 10] }
        }"""
    )
    assert found.figure("p.local_share") == 0.9
    # as listed, a holds the first two: 100 of its 200 stay, and so of b
    assert found.figure("p.baseline_local_share") == 0.5
    assert found.figure("p.global_load_removed") == pytest.approx(0.8)
    assert found.figure("p.seconds_before") == pytest.approx(100 * 1e-6)
    assert found.figure("p.seconds") == pytest.approx(20 * 1e-6)
    assert found.figure("p.speedup") == pytest.approx(5)
    assert found.figure("p.gain") == pytest.approx(1 / (1 - 0.5 * 0.8) - 1)
    (section,) = found.sections
    assert section[1].rows == [("a", "1, 3"), ("b", "0, 2")]


@try_each(
    "attributes, figure, expected",
    [
        ("baseline_remote = 80 %, local_share = 80 %", "global_load_removed", 0.75),
        ("groups = 8, local_share = 80 %", "global_load_removed", 1 - 0.2 / 0.875),
        ("before = 55 us, after = 12 us", "speedup", 4.583333333),
        (
            "before = 55 us, after = 12 us, throughput_gain = 8 %",
            "implied_share",
            0.0947459087,
        ),
    ],
)
def test_claims_about_a_placement(attributes: str, figure: str, expected: float) -> None:
    found = result(f"placement p {{ {attributes} }}")
    assert found.figure(f"p.{figure}") == pytest.approx(expected, rel=1e-9)


@try_each(
    "attributes, id",
    [
        ("", "placement-unknown"),
        ("local_share = 80 %", "placement-baseline"),
        ("source a { tokens = [1, 2] }\n source b { tokens = [1] }", "placement-experts"),
        ("source a { tokens = [1] }\n source b { tokens = [1] }", "placement-divides"),
        ("source a { tokens = [0, 0] }\n source b { tokens = [0, 0] }", "placement-empty"),
    ],
)
def test_a_placement_that_says_too_little(attributes: str, id: str) -> None:
    found = result(f"placement p {{ {attributes} }}")
    assert [d.id for d in found.diagnostics] == [id]
