"""Dispatches and placements of sizes that differ in every factor, and all ways to place them."""

from __future__ import annotations

from itertools import combinations, permutations
from math import comb, log, pi, sqrt
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Figure, Section
from parcost_plugins.parallelism.expert import dispatch, placement
from parcost_plugins.parallelism.expert.assignment import best_assignment

from ..rows import mark_most, try_each


def answers(calculator: Any, text: str) -> list[Any]:
    (study,) = parcost.load_text(text)[0].studies()
    return list(calculator.calculations(study))


def figures(calculator: Any, text: str) -> dict[str, Any]:
    found = [answer for answer in answers(calculator, text) if isinstance(answer, Figure)]
    return {figure.name.partition(".")[2]: figure.value for figure in found}


def largest_by_hand(count: int) -> float:
    """Return the mean of the largest of *count* normal deviates, by the law of extreme values."""
    root = sqrt(2 * log(count))
    return root - (log(log(count)) + log(4 * pi)) / (2 * root) + 0.5772156649015329 / root


#: 6 ranks of 3 units send 5 tokens of 7 B to 3 of 12 experts.
DISPATCH = """dispatch d {
  ranks = 6, experts = 12, tokens = 5, top_k = 3, token = 7 B, units = 3
  bandwidth = 11 B/s per_direction, message = 2 s, taper = 4, capacity_factor = 1.3
}"""


def test_a_dispatch() -> None:
    units = 3 * (1 - comb(8, 3) / comb(12, 3))
    ranks = 6 * (1 - comb(10, 3) / comb(12, 3))
    missed = comb(10, 3) / comb(12, 3)
    peers = 5 * (1 - missed**5)
    # 90 copies fall on 6 ranks: 15 each, and a variance of 15 x 5 / 6
    lam = 1 + largest_by_hand(6) * sqrt(12.5) / 15
    receive = lam * 15 * 7 / 11
    crossing = receive * 4 * 2 / 3
    assert figures(dispatch, DISPATCH) == pytest.approx(
        {
            "experts_per_rank": 2,
            "bytes_per_rank": 105,
            "sent_bytes": 105 * 5 / 6,
            "bytes": 630,
            "training_bytes": 4 * 105 * 5 / 6,
            "units_per_token": units,
            "ranks_per_token": ranks,
            "outer_bytes": 5 * units * 2 / 3 * 7,
            "outer_seconds": 5 * units * 2 / 3 * 7 / 11,
            "peers": peers,
            "density": peers / 5,
            "imbalance": lam,
            "busiest_tokens": lam * 15,
            "capacity": 2,  # 1.3 times 5 x 3 / 12, whole
            "message_seconds": 2 * peers,
            "receive_seconds": receive,
            "seconds": crossing + 2 * peers,
            "straggler": (crossing + 2 * peers) / (105 / 11 + 2 * peers),
        },
        rel=1e-12,
    )


def test_a_dispatch_that_says_less() -> None:
    limited = figures(dispatch, DISPATCH.replace("units = 3", "units = 3, unit_limit = 1"))
    assert limited["units_per_token"] == 1
    assert limited["outer_bytes"] == pytest.approx(5 * 2 / 3 * 7)
    loose = figures(dispatch, DISPATCH.replace("taper = 4", "taper = 1"))
    assert loose["seconds"] == pytest.approx(loose["receive_seconds"] + loose["message_seconds"])
    # at 3 / 2 the two thirds that cross take as long as all do
    even = figures(dispatch, DISPATCH.replace("taper = 4", "taper = 1.5"))
    assert even["seconds"] == pytest.approx(loose["seconds"])
    alone = figures(dispatch, "dispatch d { ranks = 1, experts = 12, tokens = 5, token = 7 B }")
    zero = ("sent_bytes", "training_bytes", "peers", "density", "outer_bytes", "message_seconds")
    assert {name: alone[name] for name in zero} == dict.fromkeys(zero, 0)
    assert alone["imbalance"] == 1
    pair = figures(dispatch, "dispatch d { ranks = 2, experts = 2, tokens = 1, token = 7 B }")
    # half of the tokens go to the only other rank
    assert pair["density"] == pair["peers"] == 0.5
    assert {"outer_seconds", "seconds", "straggler", "capacity"}.isdisjoint(alone)


def test_every_expert_may_be_visited() -> None:
    every = DISPATCH.replace("top_k = 3", "top_k = 12")
    assert all(check.holds for check in answers(dispatch, every) if hasattr(check, "holds"))
    assert figures(dispatch, every)["peers"] == 5
    for attribute in ("experts = 13", "units = 4", "experts = 6, top_k = 7"):
        name = attribute.partition(" ")[0]
        text = DISPATCH.replace(f"{name} = {12 if name == 'experts' else 3}", attribute)
        text = text.replace("top_k = 3, ", "") if "top_k = 7" in text else text
        failed = [c for c in answers(dispatch, text) if hasattr(c, "holds") and not c.holds]
        assert len(failed) == 1, attribute


# --- Placements ---------------------------------------------------------------------------------

TOKENS = ((7, 1, 30, 2, 11, 5), (3, 17, 8, 2, 9, 23), (1, 4, 6, 40, 13, 9))
SOURCES = "\n".join(f"source s{i} {{ tokens = {list(row)} }}" for i, row in enumerate(TOKENS))


def stay(home: tuple[int, ...]) -> int:
    """Return the tokens that stay in their group, where *home* has the group of each expert."""
    return sum(TOKENS[group][expert] for expert, group in enumerate(home))


def crossing(home: tuple[int, ...]) -> int:
    """Return what the busiest group sends or receives, counted token by token."""
    sent, received = [0] * 3, [0] * 3
    for group, row in enumerate(TOKENS):
        for expert, tokens in enumerate(row):
            if home[expert] != group:
                sent[group] += tokens
                received[home[expert]] += tokens
    return max(sent + received)


LISTED = (0, 0, 1, 1, 2, 2)
BEST = max(set(permutations(LISTED)), key=stay)
ALL = sum(map(sum, TOKENS))


@pytest.mark.parametrize(
    ("baseline", "before", "tokens"),
    [
        ("baseline = listed", 1 - stay(LISTED) / ALL, crossing(LISTED)),
        # what knows nothing keeps one token in three, and groups are taken to be alike
        ("baseline = blind", 2 / 3, ALL / 3 * 2 / 3),
        ("baseline_remote = 75 %", 3 / 4, ALL / 3 * 3 / 4),
    ],
)
def test_a_placement_is_the_best_of_all(baseline: str, before: float, tokens: float) -> None:
    text = f"""placement p {{
      {baseline}, token = 5 B, bandwidth = 20 B/s per_direction, exchange_share = 40 %
      throughput_gain = 10 %
      {SOURCES}
    }}"""
    local = stay(BEST) / ALL
    after = crossing(BEST) / 4
    saved = 1 - after / (tokens / 4)
    assert figures(placement, text) == pytest.approx(
        {
            "local_share": local,
            "baseline_local_share": 1 - before,
            "global_load_removed": 1 - (1 - local) / before,
            "seconds_before": tokens / 4,
            "seconds": after,
            "speedup": tokens / 4 / after,
            "gain": 1 / (1 - 0.4 * saved) - 1,
            "implied_share": (1 - 1 / 1.1) / saved,
        },
        rel=1e-12,
    )
    (table,) = [answer for answer in answers(placement, text) if isinstance(answer, Section)]
    assert table.rows == [
        (f"s{g}", ", ".join(str(e) for e in range(6) if BEST[e] == g)) for g in range(3)
    ]


def test_measured_times_count_in_place_of_worked_out_ones() -> None:
    text = f"placement p {{ token = 5 B, bandwidth = 20 B/s per_direction, before = 9 s, after = 4 s\n{SOURCES} }}"
    found = figures(placement, text)
    assert (found["seconds_before"], found["seconds"]) == (9, 4)
    half = text.replace(", after = 4 s", "")
    assert figures(placement, half)["seconds"] == crossing(BEST) / 4
    for without in ("token = 5 B", "bandwidth = 20 B/s per_direction"):
        other = "token = 5 B" if "band" in without else "bandwidth = 20 B/s per_direction"
        assert "seconds" not in figures(placement, f"placement p {{ {other}\n{SOURCES} }}")


@try_each(
    "attributes, legal",
    [
        ("before = 9 s", False),
        ("after = 9 s", False),
        ("before = 9 s, after = 4 s", True),
        ("local_share = 50 %", False),
        ("local_share = 50 %, groups = 2", True),
        ("local_share = 50 %, baseline_remote = 50 %", True),
        ("source a { tokens = [1] }", True),
        ("source a { tokens = [0] }", False),
        ("source a { tokens = [1, 0, 0] }\nsource b { tokens = [0, 0, 0] }", False),
        ("source a { tokens = [1, 0] }\nsource b { tokens = [0, 0] }", True),
    ],
)
def test_a_placement_says_enough(attributes: str, legal: bool) -> None:
    found = answers(placement, f"placement p {{ {attributes} }}")
    checks = [answer for answer in found if hasattr(answer, "holds")]
    assert all(check.holds for check in checks) is legal
    assert any(isinstance(answer, Figure) for answer in found) is legal


def test_brute_force_meets_as_many_units() -> None:
    met = [len({expert // 4 for expert in chosen}) for chosen in combinations(range(12), 3)]
    found = figures(dispatch, DISPATCH)["units_per_token"]
    assert found == pytest.approx(sum(met) / len(met), rel=1e-12)


@pytest.mark.parametrize("size", mark_most([1, 2, 3, 5, 8, 13, 40], 4))
def test_no_assignment_of_many_is_worth_more(size: int) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    draw = np.random.default_rng(size)
    for _ in range(5):
        worth = draw.integers(0, 50, (size, size)).astype(float)
        found = best_assignment(worth)
        assert sorted(found) == list(range(size))
        rows, columns = optimize.linear_sum_assignment(worth, maximize=True)
        assert worth[range(size), found].sum() == worth[rows, columns].sum()
