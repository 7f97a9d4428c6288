"""Stages on two devices in a spec: the gradients that the copies exchange; hops by device."""

from __future__ import annotations

from typing import Any

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
fabric two_levels {{
  level node {{ size = 2 devices, bandwidth = 100 GB/s per_direction, latency = 0 s }}
  level net  {{ bandwidth = 10 GB/s per_direction, latency = 0 s }}
}}
model equal {{ layers = 16, hidden = 1024, parameters = 1.6 G }}
cluster  {{ devices = {devices} }}
layout   {{ pp = 4, zero = {zero}, order = "tp-cp-pp-dp" }}
training {{ sequence = 1024, global_batch = {batch} sequences }}
schedule {{ {schedule} }}
"""


def outcome(schedule: str, *, dp: int = 1, zero: int = 0, m: int = 8) -> Any:
    text = SPEC.format(devices=4 * dp, zero=zero, batch=m * dp, schedule=schedule)
    (scenario,) = parcost.load_text(text)
    found = scenario.evaluate().result.outcome
    assert found is not None
    return found


def exchanged(found: Any) -> float:
    (line,) = [x for x in found.ledger if x.name == "gradients of copies"]
    return float(line.term.bytes_)


@pytest.mark.parametrize("schedule", ["kind = dualpipe", "kind = chimera"])
def test_copies_exchange_the_gradients_of_a_stage(schedule: str) -> None:
    # A ring of two sends each copy's 0.4 G gradients of 4 bytes once.
    assert exchanged(outcome(schedule)) == 0.4e9 * 4
    assert exchanged(outcome(schedule, dp=2, zero=1)) == 0.4e9 * 4 / 2


def test_schedules_with_one_copy_exchange_nothing() -> None:
    for schedule in ("kind = one_f_one_b", "kind = dualpipe_v, chunks = 2"):
        names = {x.name for x in outcome(schedule).ledger}
        assert "gradients of copies" not in names


def test_two_directions_hold_the_state_twice() -> None:
    def state(found: Any) -> float:
        return sum(x.bytes_ for x in found.memory_lines if x.name == "optimizer state")

    assert state(outcome("kind = dualpipe")) == 2 * state(outcome("kind = one_f_one_b"))


@pytest.mark.parametrize(
    "schedule, hops",
    [
        # Devices 0 and 1 share a node, and 2 and 3 do. Every micro-batch crosses 3 boundaries
        # each way where stages are in a line; there and back where chunks are a V, so that
        # the first device is reached by the second one; and round where they are dealt.
        ("kind = one_f_one_b", {(0, 1): 16, (1, 2): 16, (2, 3): 16}),
        ("kind = zb_v, chunks = 2", {(0, 1): 32, (1, 2): 32, (2, 3): 32}),
        ("kind = interleaved, chunks = 2", {(0, 1): 32, (1, 2): 32, (2, 3): 32, (0, 3): 16}),
        ("kind = dualpipe", {(0, 1): 16, (1, 2): 16, (2, 3): 16}),
    ],
)
def test_messages_go_between_the_devices_that_hold_neighbouring_stages(
    schedule: str, hops: dict[tuple[int, int], int]
) -> None:
    found = outcome(schedule)
    (order,) = [order for _, order in found.pipelined.plan.orders]
    sent: dict[tuple[int, int], int] = {}
    for device in order.sent:
        for route, count in device.items():
            sent[route] = sent.get(route, 0) + count
    assert sent == hops


def test_a_hop_is_as_slow_as_the_boundary_that_it_crosses() -> None:
    found = outcome("kind = zb_v, chunks = 2")
    near, far = 1024 * 1024 * 2 / 100e9, 1024 * 1024 * 2 / 10e9
    assert list(found.pipelined.hop) == pytest.approx([near, far, near])
