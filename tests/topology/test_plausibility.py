"""Links that nobody has are warned of: what was meant is often another unit."""

from __future__ import annotations

import pytest

import parcost

STUDY = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric mine {{
  level node {{
    size = 8 devices, bandwidth = {node} per_direction, latency = 3 us, efficiency = 0.8
  }}
  level network {{ bandwidth = {network} per_direction, latency = {latency}, efficiency = 0.9 {more} }}
}}
cluster {{ device = h100_sxm, devices = 64, fabric = mine }}
layout {{ tp = 2, zero = 1, sequence_parallel = on }}
training {{
  model = llama3_8b, precision = bf16
  sequence = 8192, micro_batch = 1, global_batch = 128 sequences
}}
"""


def warnings_by_subject(
    node: str = "450 GB/s", network: str = "400 Gbps", latency: str = "15 us", more: str = ""
) -> dict[str, str]:
    """Return the warnings of plausibility by id, with their help."""
    text = STUDY.format(node=node, network=network, latency=latency, more=more)
    (scenario,) = parcost.load_text(text)
    found = scenario.evaluate().result.diagnostics
    return {d.id: d.help for d in found if d.id.startswith("implausible")}


@pytest.mark.slow
def test_real_hardware_has_no_plausibility_warning() -> None:
    assert warnings_by_subject() == {}
    assert warnings_by_subject(node="1.8 TB/s", network="800 Gbps") == {}
    assert warnings_by_subject(node="1.8 TB/s", network="1.6 Tbps") == {}  # Vera Rubin
    assert warnings_by_subject(latency="60 ms") == {}  # over an ocean


@pytest.mark.parametrize("network", ["400 GB/s", "201 GB/s"])
def test_bytes_where_bits_were_meant(network: str) -> None:
    help_ = warnings_by_subject(network=network)["implausible-bandwidth"]
    written = network.removesuffix(" GB/s")
    assert f"`{written} Gbps per_direction`" in help_


def test_one_port_of_a_node_is_shared_by_its_devices() -> None:
    """4,000 Gb/s of a node of eight are 62.5 GB/s of each."""
    assert warnings_by_subject(network="500 GB/s", more=", ports = 1") == {}
    assert warnings_by_subject(network="500 GB/s", more=", ports = 4") != {}


@pytest.mark.slow
def test_a_node_beyond_any_nvlink() -> None:
    assert "implausible-bandwidth" in warnings_by_subject(node="900 TB/s")


def test_seconds_where_microseconds_were_meant() -> None:
    assert warnings_by_subject(latency="15 s") == {
        "implausible-latency": "for 15 microseconds write `15 us`"
    }


def test_limits_are_the_users_to_raise() -> None:
    text = STUDY.format(node="450 GB/s", network="400 GB/s", latency="15 us", more="")
    text += "plausible { network_bandwidth = 1 TB/s per_direction }\n"
    (scenario,) = parcost.load_text(text)
    assert not scenario.evaluate().result.diagnostics
