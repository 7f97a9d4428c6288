"""What a step asks of each level, and the bandwidth that would do, by trying bandwidths."""

from __future__ import annotations

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric site {{
  level node {{ size = 8 devices, bandwidth = 360 GB/s per_direction, latency = 2 us }}
  level network {{ bandwidth = {network} per_direction, latency = 10 us }}
}}
cluster {{ devices = 32 }}
layout {{ tp = 2, zero = 1, sequence_parallel = on }}
training {{ sequence = 8192, global_batch = {batch} sequences, recompute = full }}
overlap {{ gradients = {overlap}, parameters = {overlap} }}
"""


def result(
    network: str = "12.5 GB/s", overlap: str = "on", batch: int = 32, more: str = ""
) -> parcost.Result:
    text = SPEC.format(network=network, overlap=overlap, batch=batch)
    return parcost.load_text(text + more)[0].evaluate().result


def rows(result: parcost.Result, title: str) -> list[tuple[object, ...]]:
    return [tuple(row) for _, s in result.sections if s.title == title for row in s.rows]


@pytest.mark.parametrize("overlap", ["on", "off"])
def test_the_bandwidth_that_would_do_is_the_least_that_does(overlap: str) -> None:
    """Within 1 % of a link without limit: just above it is, just below it is not."""
    needed = result(overlap=overlap).figure("needed_bandwidth.network")
    endless = result("1e12 GB/s", overlap).figure("step_time")
    enough = result(f"{needed * 1.001 / 1e9:.9f} GB/s", overlap).figure("step_time")
    short = result(f"{needed * 0.99 / 1e9:.9f} GB/s", overlap).figure("step_time")
    assert enough <= endless * 1.01 * (1 + 1e-9)
    assert short > endless * 1.01


@pytest.mark.slow
def test_the_slack_to_an_unlimited_link_may_be_set() -> None:
    lax = result(more="targets { slack = 5 % }").figure("needed_bandwidth.network")
    strict = result(more="targets { slack = 0.1 % }").figure("needed_bandwidth.network")
    assert lax < result().figure("needed_bandwidth.network") < strict


def test_the_ratio_is_of_busy_seconds_of_the_ledger() -> None:
    found = result()
    assert found.outcome is not None
    lines = [x for x in found.outcome.ledger if x.kind in ("work", "once", "send_recv")]
    busy = sum(x.exposed + x.hidden for x in lines if x.resource == "network")
    compute = sum(x.exposed + x.hidden for x in lines if x.resource in ("compute", "hbm"))
    assert found.figure("communication_to_computation.network") == pytest.approx(busy / compute)


def test_waiting_for_the_slowest_rank_is_no_computation() -> None:
    name = "communication_to_computation.network"
    assert result(more="jitter { deviation = 1 s }").figure(name) == result().figure(name)


def test_more_work_for_the_same_gradients_asks_less_of_the_network() -> None:
    few, many = (result(batch=b).figure("communication_to_computation.network") for b in (16, 64))
    assert many == pytest.approx(few / 4, rel=0.02)


def test_the_ridge_is_the_peak_over_what_a_device_has_of_the_level() -> None:
    assert result().figure("ridge.network") == pytest.approx(989e12 / 12.5e9)


@pytest.mark.slow
def test_the_table_names_levels_from_the_fastest() -> None:
    table = rows(result(), "Compute and communication by level")
    assert [row[0] for row in table] == ["node", "network"]


POD = """
use catalog.devices.h100_sxm
use catalog.fabrics.superpod_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 1024 }
layout { tp = 8, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 128 sequences, recompute = full }
overlap { gradients = off, parameters = off }
"""


@pytest.mark.slow
def test_the_level_with_the_time_is_the_level_to_buy() -> None:
    # 128 replicas on four leaves of 32 nodes: each of a rail's ports carries the gradients
    # from node to node, and the 32 ports of a leaf share what crosses the spine.
    found = parcost.load_text(POD)[0].evaluate().result
    busy = {row[0]: row[1][0] for row in rows(found, "Compute and communication by level")}
    helps = {row[0]: row[2][0] for row in rows(found, "Levers")}
    assert busy["leaf"] > 0.1 > busy.get("spine", 0.0)
    assert helps["bandwidth of `leaf` x 2"] < -0.1
    assert abs(helps.get("bandwidth of `spine` x 2", 0.0)) < 0.1


@pytest.mark.slow
def test_levels_are_called_by_lines_that_a_study_may_draw() -> None:
    ratio = result().figure("communication_to_computation.network")

    def label(lines: str) -> object:
        table = rows(result(more=f"targets {{ {lines} }}"), "Compute and communication by level")
        return next(row[4] for row in table if row[0] == "network")

    assert label(f"compute_bound = {ratio * 1.01}") == "compute-bound"
    below = f"compute_bound = {ratio * 0.9}"
    assert label(f"{below}, near_ridge = {ratio * 1.01}") == "near the ridge point"
    below += f", near_ridge = {ratio * 0.95}"
    assert label(f"{below}, communication_bound = {ratio * 1.01}") == "communication-bound"
    assert label(f"{below}, communication_bound = {ratio * 0.99}") == "strongly communication-bound"


@pytest.mark.slow
def test_transfers_are_listed_with_their_exposure() -> None:
    by_name = {row[0]: row for row in rows(result(overlap="off"), "Communication of a step")}
    assert by_name["parameter all-gather"][-1] == "critical"
    # tp = 2 of 8.03e9 parameters, nearly all of them split: each rank gathers half in bf16.
    assert by_name["parameter all-gather"][2][0] == pytest.approx(2 * 8.03e9 / 2, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schedule", "sent"),
    [
        # an end of two stages sends one way: 6 activations, or 6 gradients
        ("kind = one_f_one_b", 6),
        # four virtual stages: both devices send over two boundaries one way, over one the other
        ("kind = interleaved, chunks = 2", 3 * 6),
    ],
)
def test_calls_of_stages_are_the_messages_that_the_device_sends(schedule: str, sent: int) -> None:
    text = f"""
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.gpt2_small
use catalog.precisions.bf16
cluster {{ devices = 2 }}
layout {{ pp = 2 }}
schedule {{ {schedule} }}
training {{ sequence = 1024, global_batch = 6 sequences, micro_batch = 1 }}
"""
    found = parcost.load_text(text)[0].evaluate().result
    table = {row[0]: row for row in rows(found, "Communication of a step")}
    assert table["activation send/recv"][3] == sent


@pytest.mark.slow
def test_a_link_inside_the_node_is_no_bottleneck_of_a_small_exchange() -> None:
    table = {row[0]: row for row in rows(result(), "Compute and communication by level")}
    assert table["network"][4] in ("near the ridge point", "compute-bound", "communication-bound")
    assert table["node"][4] == "compute-bound"
