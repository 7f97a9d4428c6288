"""Transfer blocks: figures against hand arithmetic, by spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parcost_apps.cli import main

from ..evaluation import result
from ..rows import try_each

RING = "latency = 1 us, bandwidth = 450 GB/s per_direction"


def figures(body: str, before: str = "") -> Any:
    """Return the figures of one transfer by name, without its label."""
    found = result(f"{before}\ntransfer x {{ {body} }}\n")
    assert not found.diagnostics, found.diagnostics
    return {f.name.removeprefix("x."): f.value for _, f in found.figures}


def approx(value: float, rel: float = 1e-9) -> Any:
    return pytest.approx(value, rel=rel)


# --- time, rounds, bytes ------------------------------------------------------------------------


def test_a_ring_all_reduce() -> None:
    x = figures(f"operation = all_reduce, size = 1 GB, ranks = 8, algorithm = ring, {RING}")
    assert x["seconds"] == approx(3.902889e-3, 1e-6)
    assert (x["rounds"], x["bytes"]) == (14, 1.75e9)
    assert x["volume"] == 14e9
    assert x["algorithm_bandwidth"] == approx(1e9 / x["seconds"])
    assert x["bus_bandwidth"] == approx(1.75e9 / x["seconds"])
    assert x["latency_seconds"] == approx(14e-6)
    assert x["lower_bound"] == approx(1.75e9 / 450e9)
    assert x["crossover"] == approx(14 * 1e-6 * 450e9 / 1.75)


def test_a_message_meets_its_start_up_at_alpha_times_bandwidth() -> None:
    x = figures(f"operation = point_to_point, size = 1 MB, {RING}")
    assert x["crossover"] == approx(450e3)
    assert x["beta"] == approx(1 / 450e9)
    assert x["seconds"] == approx(1e-6 + 1e6 / 450e9)
    assert x["ranks"] == 2


@try_each(
    "operation, algorithm, ranks, rounds, buffers",
    [
        ("all_reduce", "naive", 8, 14, 14),
        ("all_reduce", "halving_doubling", 8, 6, 1.75),
        ("all_reduce", "ring", 64, 126, 126 / 64),
        ("all_reduce", "ring", 4, 6, 1.5),
        ("broadcast", "naive", 4, 3, 3),
        ("reduce", "tree", 8, 3, 3),
        ("scatter", "tree", 8, 3, 0.875),
        ("gather", "linear", 8, 7, 0.875),
        ("all_to_all", "bruck", 8, 3, 1.5),
    ],
)
def test_bytes_moved_by_an_algorithm(
    operation: str, algorithm: str, ranks: int, rounds: float, buffers: float
) -> None:
    x = figures(
        f"operation = {operation}, algorithm = {algorithm}, ranks = {ranks}, "
        f"size = 1 MB {'total' if operation in ('scatter', 'gather', 'all_to_all') else ''}, {RING}"
    )
    assert x["rounds"] == rounds
    assert x["bytes"] == approx(buffers * 1e6)


@try_each("operation", ["all_gather", "reduce_scatter", "scatter", "gather", "all_to_all"])
def test_a_size_is_of_the_whole_or_of_one_rank_as_it_says(operation: str) -> None:
    both = [
        figures(f"operation = {operation}, ranks = 8, size = 1 MB {word}, {RING}")
        for word in ("total", "shard")
    ]
    assert [x["size"] for x in both] == [1e6, 8e6]
    assert [x["shard"] for x in both] == [1.25e5, 1e6]
    assert both[1]["lower_bound"] == approx(7e6 / 450e9)


def test_two_levels_say_what_each_carries() -> None:
    x = figures(
        "operation = all_reduce, size = 1 GB, nodes = 8, ranks_per_node = 8, "
        "algorithm = hierarchical, bandwidth = 450 GB/s per_direction, "
        "network_bandwidth = 400 Gbps per_direction"
    )
    assert x["seconds"] == approx(8.263889e-3, 1e-6)
    assert (x["ranks"], x["node_rounds"], x["network_rounds"]) == (64, 14, 14)
    assert x["network_bytes"] == approx(1.75e9 / 8)
    assert x["bytes"] == x["node_bytes"] == approx(1.75e9)


@try_each(
    "algorithm, ports, expected",
    [
        ("leader_all_reduce", 8, 41.111111e-3),
        ("hierarchical_overlapped", 8, 4.375e-3),
        ("ring", 8, 4.921875e-3),
        ("ring", 1, 39.375e-3),
    ],
)
def test_ways_over_two_levels(algorithm: str, ports: int, expected: float) -> None:
    x = figures(
        f"operation = all_reduce, size = 1 GB, nodes = 8, ranks = 64, algorithm = {algorithm}, "
        f"bandwidth = 450 GB/s per_direction, network_bandwidth = 50 GB/s per_direction, "
        f"ports = {ports}"
    )
    assert x["seconds"] == approx(expected, 1e-6)


def test_an_exchange_direct_and_in_two_levels() -> None:
    body = (
        "operation = all_to_all, size = 64 MB total, nodes = 8, ranks_per_node = 8, "
        "bandwidth = 450 GB/s per_direction, network_bandwidth = 50 GB/s per_direction, "
    )
    assert figures(f"{body} algorithm = pairwise")["seconds"] == approx(1.12e-3)
    x = figures(f"{body} algorithm = hierarchical")
    assert x["seconds"] == approx(1.2444e-3, 1e-4)
    assert x["network_rounds"] == 7


def test_additions_take_their_time() -> None:
    x = figures(
        "operation = all_reduce, size = 1 GB, ranks = 8, algorithm = ring, "
        "bandwidth = 100 GB/s per_direction, gamma = 1 ps/B"
    )
    assert x["reduction_seconds"] == approx(0.875e-3)
    assert x["seconds"] == approx(17.5e-3 + 0.875e-3)


def test_the_number_of_pieces_of_a_chain_may_be_set() -> None:
    body = f"operation = broadcast, size = 1 GB, ranks = 8, algorithm = ring, {RING}"
    x = figures(f"{body}, pieces = 10")
    assert (x["rounds"], x["bytes"]) == (16, 1.6e9)
    assert figures(body)["seconds"] < x["seconds"]


def test_the_launch_of_the_host_is_added_only_if_given() -> None:
    body = f"operation = all_reduce, size = 1 MB, ranks = 8, chunks = 4, {RING}"
    without, with_ = figures(body), figures(f"{body}, launched = on")
    assert with_["seconds"] - without["seconds"] == approx(4 * 10e-6)


def test_compression_sends_less_and_packs() -> None:
    body = "operation = all_reduce, algorithm = ring, size = 1 GB, ranks = 8, "
    body += "bandwidth = 100 GB/s per_direction"
    x = figures(f"{body}, compression = 4, codec = 500 GB/s")
    assert x["bytes"] == approx(1.75e9 / 4)
    assert x["seconds"] == approx(17.5e-3 / 4 + 2 * 1e9 / 500e9)


def test_many_times() -> None:
    x = figures(
        "operation = all_reduce, size = 1.6 GB, ranks = 8, times = 160, algorithm = ring, "
        "bandwidth = 50 GB/s per_direction"
    )
    assert x["total_seconds"] == approx(8.96)  # 160 times 2.8 GB through 50 GB/s
    assert x["total_bytes"] == approx(448e9)
    assert x["total_volume"] == 8 * x["total_bytes"]


def test_overheads_beyond_the_wire_model_may_be_given() -> None:
    body = f"operation = all_reduce, algorithm = ring, size = 1 GB, ranks = 8, times = 10, {RING}"
    x = figures(f"{body}, skew = 2 ms, setup = 1 s, congestion = 2")
    assert x["seconds"] == approx(14e-6 + 2 * 1.75e9 / 450e9 + 2e-3)
    assert x["total_seconds"] == approx(1 + 10 * x["seconds"])


# --- chunks -------------------------------------------------------------------------------------


def test_chunks_pay_for_worse_bandwidth_and_for_launches() -> None:
    # 90 % of 300 GB/s at 1 GB and 60 % at an eighth of it; both passes of 1 GB
    x = figures(
        "operation = point_to_point, size = 2 GB, chunks = 8, overhead = 5 us, "
        "bandwidth = curve([250 MB, 180 GB/s], [2 GB, 270 GB/s]) per_direction"
    )
    assert x["chunking_cost"] == approx(0.5054, 1e-4)


def test_the_best_number_of_chunks_balances_the_tail_and_the_launches() -> None:
    body = "operation = point_to_point, size = 1 GB, overhead = 5 us, "
    body += "bandwidth = 300 GB/s per_direction"
    x = figures(f"{body}, chunks = 16")
    assert x["best_chunks"] == approx(25.81988897)  # both passes of 500 MB
    assert x["chunk_seconds"] == approx(0.2083333e-3, 1e-6)
    assert x["chunk_size"] == 62.5e6
    assert x["seconds"] == approx(16 * (0.2083333e-3 + 5e-6), 1e-6)
    tails = [figures(f"{body}, chunks = {c}")["exposed_tail"] for c in (25, 26, 16, 32)]
    assert tails[2] / min(tails) == pytest.approx(1.117, abs=1e-3)
    assert tails[3] / min(tails) == pytest.approx(1.023, abs=1e-3)


def test_what_lies_under_compute() -> None:
    x = figures(
        "operation = point_to_point, size = 0 B, latency = 0.215 ms, times = 16, "
        "compute = 200 ms, bandwidth = 1 GB/s per_direction"
    )
    assert x["total_seconds"] == approx(3.44e-3)
    assert x["ratio"] == approx(0.0172)
    assert (x["hidden"], x["exposed"]) == (approx(3.44e-3), 0.0)


# --- bounds and machines ------------------------------------------------------------------------


def test_a_port_of_a_rank_bounds_an_all_reduce_that_the_whole_network_would_not() -> None:
    # 700 GB of gradients on each of 1024 ranks: 28 s by a port of 50 GB/s; 0.11 s across a
    # middle of 6.5 TB/s, each way
    x = figures(
        "operation = all_reduce, size = 700 GB, ranks = 1024, bandwidth = 400 Gbps per_direction, "
        "bisection = 6.5 TB/s per_direction"
    )
    assert x["lower_bound"] == approx(27.97265625)
    assert x["bisection_bound"] == approx(700 / 6500)


def test_a_narrow_middle_bounds_an_exchange() -> None:
    # 64 ranks of 64 MB: 64 MB x 64 / 4 across it
    x = figures(
        "operation = all_to_all, size = 64 MB total, ranks = 64, "
        "bandwidth = 50 GB/s per_direction, bisection = 100 GB/s per_direction"
    )
    assert x["bisection_bound"] == approx(64e6 * 64 / 4 / 100e9)
    assert x["lower_bound"] == x["bisection_bound"]


def test_a_transfer_may_have_a_reducing_switch_or_a_torus() -> None:
    body = "operation = all_reduce, size = 1 GB, bandwidth = 450 GB/s per_direction, "
    assert figures(f"{body} ranks = 8, in_network = on")["seconds"] == approx(1.125 / 450)
    x = figures(f"{body} ranks = 16, kind = torus, dimensions = [4, 4], algorithm = torus")
    assert x["seconds"] == approx(2 * 15 / 16 / 4 / 450)


def test_nccl_tells_the_time_of_every_pair() -> None:
    x = figures(
        "operation = all_reduce, size = 64 KiB, nodes = 16, ranks_per_node = 8, algorithm = nccl, "
        "bandwidth = 450 GB/s per_direction, network_bandwidth = 50 GB/s per_direction",
        "use catalog.tunings.nccl_2_30\ncollectives { tuning = nccl_2_30, generation = hopper, "
        "channels = 16, channel_bandwidth = 24 GB/s per_direction }",
    )
    assert x["ring_ll"] == approx(317.975e-6, 1e-5)
    assert x["seconds"] == x["tree_ll"] == approx(65.908e-6, 1e-5)


FABRIC = """
use catalog.fabrics.hgx_h100
use catalog.devices.h100_sxm
cluster { devices = 64 }
layout { tp = 8 }
"""


@pytest.mark.slow
def test_ranks_may_be_those_of_a_level_or_of_the_layout() -> None:
    body = "operation = all_reduce, size = 1 GB, algorithm = ring, "
    on_level = figures(f'{body} ranks = 8, level = "node"', FABRIC)
    of_group = figures(f"{body} group = tp", FABRIC)
    assert on_level["seconds"] == of_group["seconds"]
    assert of_group["seconds"] == approx(14 * 3.4e-6 + 1.75e9 / (0.82 * 450e9))
    dp = figures("operation = all_gather, size = 1 GB shard, group = dp", FABRIC)
    assert (dp["ranks"], dp["size"]) == (8, 8e9)


def test_measured_points_stand_for_a_bandwidth() -> None:
    body = "operation = point_to_point, bandwidth = curve([1 MB, 20 us], [100 MB, 2 ms]) "
    x = [figures(f"{body} per_direction, size = {s}")["seconds"] for s in ("1 MB", "10 MB", "1 GB")]
    assert x == [approx(20e-6), approx(200e-6), approx(20e-3)]


def test_a_sweep_gives_at_each_point_what_the_point_gives_alone() -> None:
    sizes = ("1 kB", "64 kB", "1 MB", "1 GB")
    body = f"operation = all_reduce, ranks = 12, {RING}, size = "
    swept = figures(f"{body} [{', '.join(sizes)}]")
    for i, size in enumerate(sizes):
        for name, value in figures(body + size).items():
            assert np.broadcast_to(swept[name], 4)[i] == approx(value, 1e-12), name


# --- tables --------------------------------------------------------------------------------------


def tables(body: str) -> dict[str, Any]:
    found = result(f"transfer x {{ {body} }}\n")
    return {section.title: section for _, section in found.sections}


def test_algorithms_are_compared_fastest_first() -> None:
    body = f"operation = all_reduce, size = 1 GB, ranks = 8, compare = algorithms, {RING}"
    section = tables(body)["x: all_reduce by algorithm"]
    times = [row[4][0] for row in section.rows]
    assert times == sorted(times)
    marked = [row[0] for row in section.rows if row[5] == "fastest"]
    assert marked == ["halving_doubling"]
    assert {"ring", "tree", "naive", "lower_bound"} <= {row[0] for row in section.rows}
    assert any("`nvls` is not available here" in note for note in section.notes)


def test_every_operation_has_its_row_in_the_table_of_operations() -> None:
    body = f"operation = all_reduce, size = 1 GB, ranks = 8, compare = operations, {RING}"
    section = tables(body)["x: every operation by algorithm"]
    assert len({row[0] for row in section.rows}) == 9
    ring = next(row for row in section.rows if row[:2] == ("all_gather", "ring"))
    assert ring[2:4] == (7.0, (0.875e9, "B"))


def test_the_fastest_algorithm_depends_on_the_size() -> None:
    body = f"operation = all_reduce, size = 1 GB, ranks = 8, compare = sizes, {RING}"
    section = tables(body)["x: all_reduce by size"]
    names = [row[1] for row in section.rows]
    assert (names[0], names[-1]) == ("recursive_doubling", "halving_doubling")
    size, _, seconds, busy = section.rows[-1]
    assert busy[0] == approx(1.75 * size[0] / seconds[0])


@try_each("P", [2, 3, 4, 8])
def test_the_steps_of_a_ring_leave_every_chunk_everywhere(P: int) -> None:
    body = f"operation = all_reduce, size = 1 GB, ranks = {P}, schedule = on, {RING}"
    section = tables(body)["x: the ring step by step"]
    assert len(section.rows) == 2 * (P - 1)
    held = [[{rank} for _ in range(P)] for rank in range(P)]  # whose parts, by chunk
    for step, *cells in section.rows:
        moved = []
        for rank, cell in enumerate(cells):
            chunk, to = map(int, cell.split(" to "))
            assert to == (rank + 1) % P
            moved.append((to, chunk, set(held[rank][chunk])))
        for to, chunk, parts in moved:
            held[to][chunk] = held[to][chunk] | parts if step.startswith("RS") else parts
    assert all(parts == set(range(P)) for chunks in held for parts in chunks)


def test_advice_says_what_binds_and_what_a_remedy_saves() -> None:
    body = f"operation = all_reduce, ranks = 8, algorithm = ring, advice = on, {RING}, size = "
    (short,) = tables(body + "36 kB").values()
    assert short.notes[0].startswith("latency-bound")
    fused = next(row for row in short.rows if row[0].startswith("fuse 100"))
    # a hundred messages at once: 14 us and 63 kB / 450 GB/s each hundredth
    assert fused[1][0] == approx(14e-6 / 100 + 1.75 * 36e3 / 450e9)
    assert any("recursive_doubling" in row[0] for row in short.rows)
    (long,) = tables(body + "1 GB").values()
    assert long.notes[0].startswith("bandwidth-bound")
    half = next(row for row in long.rows if row[0].startswith("send half"))
    assert half[2][0] == approx(0.875e9 / 450e9)


_SWEPT = """
transfer steady {
  operation = all_reduce, size = 1 GB total, ranks = 8, bandwidth = 50 GB/s per_direction
  latency = 1 us, compare = algorithms, advice = on
}
transfer moving {
  operation = all_reduce, size = 1 GB total, ranks = [8, 16], bandwidth = 50 GB/s per_direction
  latency = 1 us, compare = algorithms
}
"""


@pytest.mark.slow
def test_tables_outlive_a_sweep_of_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A swept transfer has no table, and says so; the other keeps those it asks for."""
    path = tmp_path / "swept.par"
    path.write_text(_SWEPT)
    assert main(["eval", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "steady: all_reduce by algorithm" in printed
    assert "steady: limits and remedies" in printed
    assert "moving: all_reduce by algorithm" not in printed
    assert "`moving` is swept; its tables need one point" in " ".join(printed.split())
