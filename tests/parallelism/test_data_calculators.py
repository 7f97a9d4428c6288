"""Calculators of data parallelism, figure by figure, worked out by hand from round numbers."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import pytest

import parcost
from parcost_plugins.calculators.data.layers import timeline
from parcost_plugins.vocabulary import FsdpSketch

from ..rows import try_each


def answers(text: str) -> tuple[dict[str, Any], dict[str, parcost.Section]]:
    """Return the figures of a text without their label, and its sections."""
    (scenario,) = parcost.load_text(text)
    study = scenario.studies()[0]
    found = [answer for _, answer in study.contributions("calculations")]
    assert study.faults == []
    figures = {f.name.split(".")[1]: f.value for f in found if isinstance(f, parcost.Figure)}
    return figures, {s.title: s for s in found if isinstance(s, parcost.Section)}


def texts(text: str, name: str) -> list[str]:
    """Return the formulas of a figure."""
    (scenario,) = parcost.load_text(text)
    found = [answer for _, answer in scenario.first.contributions("calculations")]
    figures = [f for f in found if isinstance(f, parcost.Figure)]
    return [f.formula.text for f in figures if f.name.split(".")[1] == name]


def assert_figures(found: dict[str, Any], expected: dict[str, float]) -> None:
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


# --- buckets ------------------------------------------------------------------------------

# Three quarters of 600 MB, twice, at 10 GB/s take 90 ms; in one message at 20 GB/s 45 ms.
BUCKETS = """buckets b {{
  gradients = 600 MB, ranks = 4, bandwidth = 10 GB/s per_direction, overhead = 2 ms
  whole_bandwidth = 20 GB/s per_direction, step = 300 ms, {} }}"""


def test_three_buckets_under_a_long_backward_pass() -> None:
    found, _ = answers(BUCKETS.format("count = 3, backward = 150 ms, contention = 0.5"))
    N = sqrt(90.0)  # of 90 ms / (0.5 x 2 ms)
    assert_figures(
        found,
        {
            "bucket": 200e6,
            "volume_time": 0.09,
            "transfer_time": 0.03,
            "bucket_time": 0.032,
            "communication": 0.096,
            "slower": 0.096 / 0.045 - 1,
            "share": 0.64,
            "exposed": 0.032,
            "hidden": 0.064,
            "efficiency": 1.0,
            "hidden_by_share": 0.64 * 0.096,
            "cost": 0.032 + 0.048,
            "achieved": 0.3 + 0.08,
            "needs_backward": 0.096,
            "most_count": 30.0,
            "bound_count": sqrt(75.0),
            "contended_count": N,
            "best_count": N,
            "best_cost": 0.002 + 0.09 / N + 0.5 * (N * 0.002 + 0.09),
            "crossover": 20e6 / 1.5,  # 2 ms at 10 GB/s, of which each byte is sent 1.5 times
        },
    )


def test_three_buckets_under_a_short_backward_pass() -> None:
    """The wire is the limit: what does not fit under two thirds of 50 ms shows."""
    found, _ = answers(BUCKETS.format("count = 3, backward = 50 ms"))
    assert_figures(
        found,
        {
            "share": 1.92,
            "exposed": 0.096 - 0.1 / 3,
            "hidden": 0.1 / 3,
            "efficiency": 50 / 96,
            "hidden_by_share": 0.096,
            "cost": 0.096 - 0.1 / 3,
            "most_count": 1.0,
            "bound_count": 5.0,
            "contended_count": inf,
            "best_count": 5.0,
            "best_cost": 5 * 0.002 + 0.09 - 4 / 5 * 0.05,
        },
    )


@pytest.mark.parametrize(("count", "least"), [(1, 0.0), (2, 0.094)])
def test_one_bucket_needs_no_backward_pass_to_hide_under(count: int, least: float) -> None:
    found, _ = answers(BUCKETS.format(f"count = {count}, backward = 150 ms"))
    best = (0.09 / 0.002) ** 0.5  # 90 ms of bytes, and 2 ms for each bucket
    assert_figures(
        found,
        {"needs_backward": least, "launch_count": best, "best_count": best, "most_count": 30.0},
    )


def test_a_wire_that_is_busy_throughout_backward_is_no_limit_yet() -> None:
    """A quarter of a second of overhead and three of bytes are the second of backward."""
    found, _ = answers(
        "buckets b { gradients = 3 GB, factor = 1, bandwidth = 4 GB/s per_direction\n"
        "overhead = 250 ms, backward = 1 s }"
    )
    assert_figures(
        found, {"most_count": 1.0, "bound_count": 2.0, "best_count": 1.0, "best_cost": 1.0}
    )


def test_the_timeline_of_buckets_says_when_each_is_full_and_travels() -> None:
    _, sections = answers(BUCKETS.format("count = 3, backward = 60 ms"))
    rows = [(row[0], *(cell[0] for cell in row[1:])) for row in sections["Timeline, b"].rows]
    # full every 20 ms, 32 ms each on the wire
    expected = [(1, 0.02, 0.02, 0.052), (2, 0.04, 0.052, 0.084), (3, 0.06, 0.084, 0.116)]
    assert [x for row in rows for x in row] == pytest.approx([x for row in expected for x in row])


@try_each("count, rows", [(1, None), (2, 2), (64, 64), (65, None)])
def test_a_timeline_is_shown_of_as_many_buckets_as_can_be_read(
    count: int, rows: int | None
) -> None:
    _, sections = answers(BUCKETS.format(f"count = {count}, backward = 60 ms"))
    shown = sections.get("Timeline, b")
    assert (len(shown.rows) if shown else None) == rows


# --- exchanges ----------------------------------------------------------------------------

EXCHANGE = """exchange e {{
  elements = 1000, ranks = {ranks}, size = 4 B, bandwidth = 100 B/s per_direction
  period = 7, fragments = 3, scale = 2 B, block = 16, {method} }}"""


@try_each(
    "method, each",
    [
        ("none", 4.0),
        ("fp16", 2.0),
        ("bf16", 2.0),
        ("int8", 1.0 + 2 / 16),
        ("int4", 0.5 + 2 / 16),
        ("one_bit", 0.125 + 2 / 16),
        # two factors of rank 2 for 10 x 20 elements
        ("power_sgd, rank = 2, rows = 10, columns = 20", 4 * 2 * 30 / 200),
    ],
)
def test_five_ranks_send_eight_fifths_of_what_is_compressed(method: str, each: float) -> None:
    found, _ = answers(EXCHANGE.format(ranks=5, method=f"method = {method}"))
    sent = 1.6 * each
    assert_figures(
        found,
        {
            "gradients": 4000.0,
            "chunk": 200 * each,
            "message": 1000 * each,
            "ratio": 4 / each,
            "per_element": sent,
            "plain_per_element": 6.4,
            "gain": 4 / each,
            "volume": 1000 * sent,
            "total": 5000 * sent,
            "limit": 2000 * each,
            "per_step": sent / 7,
            "peak": 1000 * sent / 3,
            "time": 10 * sent,
            "limit_time": 20 * each,
        },
    )
    assert "break_even" not in found
    (text,) = texts(EXCHANGE.format(ranks=5, method=f"method = {method}"), "limit")
    assert text == "2 n c, without the factor (P - 1) / P"
    # of five matrices: 6 r n_r n_c + 2 n_r r^2
    assert found.get("flops") == (5 * (2400 + 80) if "sgd" in method else None)


def test_five_ranks_gather_what_the_other_four_kept() -> None:
    top_k = "method = top_k, density = 1 %, value = 4 B, index = 8 B"
    found, _ = answers(EXCHANGE.format(ranks=5, method=top_k))
    assert_figures(
        found,
        {
            "message": 120.0,
            "ratio": 4 / 0.12,
            "per_element": 0.48,
            "gain": 6.4 / 0.48,
            "volume": 480.0,
            "total": 2400.0,
            "limit": 600.0,
            "per_step": 0.48 / 7,
            "peak": 160.0,
            "time": 4.8,
            "limit_time": 6.0,
            "break_even": 6.4 / (4 * 12),
        },
    )
    assert texts(EXCHANGE.format(ranks=5, method=top_k), "limit") == ["P n c"]


def test_two_ranks_send_what_is_compressed_once() -> None:
    found, _ = answers(EXCHANGE.format(ranks=2, method="method = fp16"))
    assert_figures(found, {"per_element": 2.0, "plain_per_element": 4.0, "gain": 2.0})
    found, _ = answers(EXCHANGE.format(ranks=2, method="method = top_k, index = 8 B"))
    assert_figures(found, {"gain": 4.0 / 0.12, "break_even": 4.0 / 12.0})


@pytest.mark.parametrize("method", ["none", "top_k"])
def test_one_rank_sends_nothing_and_gains_nothing(method: str) -> None:
    found, _ = answers(EXCHANGE.format(ranks=1, method=f"method = {method}"))
    assert "gain" not in found
    assert found["volume"] == found["plain_per_element"] == 0.0
    assert found.get("break_even") == (1.0 if method == "top_k" else None)


# --- ZeRO stages --------------------------------------------------------------------------

ZERO = """
precision odd {{
  compute = bf16, weights = 2 B, gradients = 3 B, optimizer = 7 B, activation = 2 B
  reduction = 5 B, gather = 11 B, update_traffic = 1 B
}}
zero z {{ parameters = 100, precision = odd, ranks = {ranks}, micro_batches = 3, {more} }}"""


@pytest.mark.parametrize(
    ("more", "held", "sent"),
    [
        ("", [12, 5 + 7 / 5, 2 + 10 / 5, 12 / 5], [10, 5 + 11, 3 * 5 + 11, 3 * (5 + 22)]),
        (
            "accumulate = whole",
            [12, 5 + 7 / 5, 5 + 7 / 5, 9 / 5 + 3],
            [10, 5 + 11, 5 + 11, 5 + 3 * 22],
        ),
        (
            "reshard = off",
            [12, 5 + 7 / 5, 2 + 10 / 5, 12 / 5],
            [10, 5 + 11, 3 * 5 + 11, 3 * (5 + 11)],
        ),
    ],
)
def test_five_ranks_share_out_what_a_stage_shards(
    more: str, held: list[float], sent: list[float]
) -> None:
    found, sections = answers(ZERO.format(ranks=5, more=more))
    memory = [100 * n for n in held]
    traffic = [80 * n for n in sent]
    for stage in range(4):
        assert found[f"memory_{stage}"] == pytest.approx(memory[stage])
        assert found[f"traffic_{stage}"] == pytest.approx(traffic[stage])
        assert found[f"against_replicas_{stage}"] == pytest.approx(traffic[stage] / 800)
    rows = sections["ZeRO stages, z"].rows
    assert [row[0] for row in rows] == ["ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
    assert [row[1][0] for row in rows] == pytest.approx(memory)
    assert [row[2][0] for row in rows] == pytest.approx(traffic)
    assert [row[3] for row in rows] == pytest.approx([n / 800 for n in traffic])


def test_two_ranks_are_compared_with_replicas() -> None:
    found, _ = answers(ZERO.format(ranks=2, more=""))
    assert [found[f"against_replicas_{z}"] for z in range(4)] == pytest.approx([1, 1.6, 2.6, 8.1])


@pytest.mark.slow
def test_one_rank_has_no_replicas_to_be_compared_with() -> None:
    found, sections = answers(ZERO.format(ranks=1, more=""))
    assert not [name for name in found if name.startswith("against")]
    assert [row[3] for row in sections["ZeRO stages, z"].rows] == [1.0] * 4


# --- layers -------------------------------------------------------------------------------


def sketch(forward: float, backward: float, gather: float, reduce: float, **more: Any) -> Any:
    given = {"layers": 2, "reshard": True, "keep_last": False, **more}
    return FsdpSketch(forward=forward, backward=backward, gather=gather, reduce=reduce, **given)


@try_each(
    "given, expected",
    [
        (  # everything hides but the first gathers and the last reduction
            sketch(5.0, 7.0, 3.0, 2.0),
            {
                "gather 0": [(0, 3), (16, 19)],
                "gather 1": [(3, 6), (13, 16)],
                "forward 0": [(3, 8)],
                "forward 1": [(8, 13)],
                "backward 1": [(16, 23)],
                "backward 0": [(23, 30)],
                "reduce 1": [(23, 25)],
                "reduce 0": [(30, 32)],
            },
        ),
        (  # the wire is the limit
            sketch(1.0, 1.0, 6.0, 4.0),
            {
                "gather 0": [(0, 6), (19, 25)],
                "gather 1": [(6, 12), (13, 19)],
                "forward 0": [(6, 7)],
                "forward 1": [(12, 13)],
                "backward 1": [(19, 20)],
                "backward 0": [(25, 26)],
                "reduce 1": [(25, 29)],
                "reduce 0": [(29, 33)],
            },
        ),
        (  # backward starts with what forward has left
            sketch(5.0, 7.0, 3.0, 2.0, keep_last=True),
            {
                "gather 0": [(0, 3), (13, 16)],
                "gather 1": [(3, 6)],
                "forward 0": [(3, 8)],
                "forward 1": [(8, 13)],
                "backward 1": [(13, 20)],
                "backward 0": [(20, 27)],
                "reduce 1": [(20, 22)],
                "reduce 0": [(27, 29)],
            },
        ),
        (
            sketch(5.0, 7.0, 3.0, 9.0, reshard=False),
            {
                "gather 0": [(0, 3)],
                "gather 1": [(3, 6)],
                "forward 0": [(3, 8)],
                "forward 1": [(8, 13)],
                "backward 1": [(13, 20)],
                "backward 0": [(20, 27)],
                "reduce 1": [(20, 29)],
                "reduce 0": [(29, 38)],
            },
        ),
    ],
)
def test_two_streams_of_two_layers(given: Any, expected: dict[str, list[Any]]) -> None:
    found: dict[str, list[Any]] = {}
    for event in timeline(given):
        found.setdefault(f"{event.what} {event.layer}", []).append((event.start, event.end))
    assert found == expected


FSDP = """fsdp f {{
  layers = {layers}, forward = 5 s, backward = 7 s, gather = 3 s, reduce = 2 s, {more} }}"""


@pytest.mark.parametrize(
    ("more", "backward", "again", "text"),
    [
        ("", 3 + 3 * 7 + 9, 4, "AG + (L - 1) max(BW, AG + RS) + BW + RS"),
        ("keep_last = on", 3 * 7 + 9, 3, "(L - 1) max(BW, AG + RS) + BW + RS"),
        ("reshard = off", 3 * 7 + 9, 0, "(L - 1) max(BW, RS) + BW + RS"),
    ],
)
def test_four_layers_and_their_traffic(more: str, backward: int, again: int, text: str) -> None:
    found, _ = answers(FSDP.format(layers=4, more=more))
    assert texts(FSDP.format(layers=4, more=more), "backward_time") == [text]
    assert_figures(
        found,
        {
            "forward_time": 23,
            "backward_time": backward,
            "time": 23 + backward,
            "exposed": 23 + backward - 4 * 12,
            "traffic": (4 + again) * 3 + 4 * 2,
            "collectives": 8 + again,
        },
    )


@try_each(
    "layers, more, rows, notes",
    [
        (13, "keep_last = on", 64, []),
        (16, "reshard = off", 64, []),
        (13, "", 64, ["1 more rows"]),
        (20, "", 64, ["36 more rows"]),
        (100, "", 64, ["436 more rows"]),
    ],
)
def test_a_timeline_says_how_many_events_follow(
    layers: int, more: str, rows: int, notes: list[str]
) -> None:
    _, sections = answers(FSDP.format(layers=layers, more=more))
    section = sections["Timeline, f"]
    assert (len(section.rows), section.notes) == (rows, notes)
    assert section.rows[0] == ("gather", 0, (0.0, "s"), (3.0, "s"))
    if layers == 100:  # a gather and a layer of forward in turns
        assert {row[0] for row in section.rows} == {"gather", "forward"}
