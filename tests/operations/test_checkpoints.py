"""How large a checkpoint is, how long it takes, and how long training stands still."""

from __future__ import annotations

import pytest

from ..evaluation import result

JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster {{ devices = 64 }}
layout {{ tp = 8, zero = {zero}, sequence_parallel = on }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 64 sequences }}
checkpoint {{ interval = 1800 s {more} }}
"""
LLAMA3_8B = 8_030_261_248


def test_405_billion_parameters_at_twelve_bytes_take_two_and_a_half_seconds() -> None:
    found = result("checkpoint { size = 405 G * 12 B, storage = 2 TB/s, interval = 1 h }")
    assert found.figure("checkpoint.writing") == pytest.approx(2.43)
    assert found.figure("checkpoint.blocking") == found.figure("checkpoint.writing")
    assert found.figure("goodput") == pytest.approx(3600 / 3602.43)


def test_a_checkpoint_holds_weights_master_and_moments() -> None:
    found = result(JOB.format(zero=1, more=", storage = 100 GB/s"))
    assert found.figure("checkpoint.size") == 14 * LLAMA3_8B
    assert found.figure("checkpoint.shard") == 14 * LLAMA3_8B / 64
    assert found.figure("checkpoint.writing") == pytest.approx(14 * LLAMA3_8B / 100e9)


@pytest.mark.slow
def test_bytes_per_parameter_may_leave_the_weights_out() -> None:
    found = result(JOB.format(zero=1, more=", storage = 100 GB/s, bytes_per_parameter = 12 B"))
    assert found.figure("checkpoint.size") == 12 * LLAMA3_8B


def test_replicas_that_hold_the_same_write_it_once() -> None:
    found = result(JOB.format(zero=0, more=", storage = 100 GB/s"))
    assert found.figure("checkpoint.shard") == 14 * LLAMA3_8B / 8


def test_ranks_that_split_a_sequence_hold_the_same_state() -> None:
    job = JOB.replace("tp = 8, zero", "tp = 4, cp = 2, zero")
    found = result(job.format(zero=0, more=", storage = 100 GB/s"))
    assert found.figure("checkpoint.shard") == 14 * LLAMA3_8B / 4


def test_state_that_is_sharded_inside_a_node_is_written_by_one_node() -> None:
    job = JOB.replace("tp = 8, zero", "zero") + "sharding {{ shard = 8 }}\n"
    found = result(job.format(zero=3, more=", storage = 100 GB/s"))
    assert found.figure("checkpoint.shard") == 14 * LLAMA3_8B / 8


@pytest.mark.slow
def test_the_slowest_of_storage_node_and_host_ends_a_checkpoint() -> None:
    size = 14 * LLAMA3_8B
    for node, host, seconds in (
        ("50 GB/s", "10 GB/s", size / 100e9),  # the storage
        ("5 GB/s", "10 GB/s", size / 8 / 5e9),  # one of eight nodes
        ("50 GB/s", "200 MB/s", size / 64 / 200e6),  # the host of one of 64 shards
    ):
        more = f", storage = 100 GB/s, node_bandwidth = {node}, serialisation = {host}"
        found = result(JOB.format(zero=1, more=more))
        assert found.figure("checkpoint.writing") == pytest.approx(seconds)


def test_only_as_many_nodes_write_as_there_are_shards() -> None:
    more = ", storage = 100 GB/s, node_bandwidth = 1 GB/s, shards = 4"
    found = result(JOB.format(zero=0, more=more))
    assert found.figure("checkpoint.writing") == pytest.approx(14 * LLAMA3_8B / 4 / 1e9)


@pytest.mark.slow
def test_asynchronous_writing_blocks_for_the_copy_to_the_host_only() -> None:
    more = ", storage = 10 GB/s, asynchronous = on"
    found = result(JOB.format(zero=1, more=more))
    copy = 14 * LLAMA3_8B / 64 / 55e9  # PCIe 5.0 x16, as measured
    assert found.figure("checkpoint.blocking") == pytest.approx(copy)
    assert found.figure("checkpoint.writing") == pytest.approx(14 * LLAMA3_8B / 10e9)
    assert found.figure("goodput") == pytest.approx(1800 / (1800 + copy))
    slower = result(JOB.format(zero=1, more=more + ", host_bandwidth = 25 GB/s"))
    assert slower.figure("checkpoint.blocking") == pytest.approx(14 * LLAMA3_8B / 64 / 25e9)


def test_an_asynchronous_optimum_waits_for_the_background_write() -> None:
    text = (
        "reliability { mtbf = 3 h, restart = 5 min }\n"
        "checkpoint { size = 5 TB, shards = 1000, host_bandwidth = 25 GB/s, storage = 10 GB/s\n"
        "  asynchronous = on }"
    )
    found = result(text)
    assert found.figure("checkpoint.daly") < 100
    assert found.figure("checkpoint.interval") == 500  # 5 TB at 10 GB/s


def test_the_step_itself_is_not_changed_by_a_checkpoint() -> None:
    text = JOB.format(zero=1, more=", blocking = 60 s")
    without = text[: text.index("checkpoint {")]
    assert result(text).figure("step_time") == result(without).figure("step_time")
