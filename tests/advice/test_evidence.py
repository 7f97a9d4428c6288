"""What the answer rests on: values that nobody vouches for."""

from __future__ import annotations

import pytest

import parcost
from parcost_plugins.analysis.advice import evidence

SPEC = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric mine {{
  level node {{ size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us{node} }}
  level network {{ bandwidth = {network}, latency = 14 us{more} }}
}}
cluster {{ devices = 32 }}
layout {{ tp = 2, zero = 1, sequence_parallel = on }}
training {{ sequence = 4096, global_batch = 32 sequences, recompute = full }}
overlap {{ gradients = off, parameters = off }}
"""


def rests_on(
    node: str = "", more: str = "", network: str = "400 Gbps per_direction"
) -> parcost.Section:
    text = SPEC.format(node=node, more=more, network=network)
    result = parcost.load_text(text)[0].evaluate().result
    (section,) = [s for _, s in result.sections if s.title == "Inputs by provenance"]
    return section


@pytest.mark.slow
def test_an_efficiency_that_is_left_out_is_listed_with_what_it_moves() -> None:
    section = rests_on()
    rows = {row[0]: row for row in section.rows}
    assert rows["network.efficiency"][1:3] == ((1.0, ""), "no provenance")
    step = {}
    for written in ("", ", efficiency = 90 %"):
        text = SPEC.format(node="", more=written, network="400 Gbps per_direction")
        step[written] = parcost.load_text(text)[0].evaluate().result.figure("step_time")
    change = step[", efficiency = 90 %"] / step[""] - 1
    assert rows["network.efficiency"][3][0] == pytest.approx(change)
    (note,) = [note for note in section.notes if "no efficiency" in note]
    assert "`network.efficiency`" in note


@pytest.mark.slow
def test_a_written_efficiency_has_no_note() -> None:
    section = rests_on(", efficiency = 80 %", ', efficiency = 1 @assumed("a payload rate")')
    assert not [note for note in section.notes if "no efficiency" in note]


@pytest.mark.slow
def test_measured_times_leave_no_efficiency_out() -> None:
    curve = "curve([1 KiB, 15 us], [1 MiB, 40 us], [1 GiB, 25 ms])"
    names = [row[0] for row in rests_on(network=curve).rows]
    assert "network.efficiency" not in names


def test_an_assumed_batch_is_no_value_to_take_a_tenth_off() -> None:
    text = SPEC.format(node="", more="", network="400 Gbps per_direction")
    batch = 'micro_batches = 1 @assumed("DeepSpeed 0.19: one"), global_batch = '
    study = parcost.load_text(text.replace("global_batch = ", batch))[0].first
    names = {value.name for value in evidence.values_with_provenance(study)}
    assert not {name for name in names if "batch" in name}


@pytest.mark.slow
def test_counts_are_no_values_to_take_a_tenth_off() -> None:
    """118.8 multiprocessors are none, so that who vouches for 132 does not matter."""
    guess = (
        'device guess extends h100_sxm { multiprocessors = 132 @assumed("a guess") }\n'
        "cluster { device = guess, "
    )
    text = SPEC.format(node="", more="", network="400 Gbps per_direction")
    known = "device guess extends h100_sxm { }\ncluster { device = guess, "
    notes = []
    for more in (known, guess):
        result = parcost.load_text(text.replace("cluster { ", more))[0].evaluate()
        notes += [
            s.notes[1] for _, s in result.result.sections if s.title == "Inputs by provenance"
        ]
    assert notes[0] == notes[1]


def test_a_value_fitted_to_runs_is_weaker_than_a_data_sheet_and_stronger_than_an_assumption() -> (
    None
):
    """Of values that matter those of the weakest provenance are listed: assumed, then fitted."""
    vouched = '@vendor("data sheet")'
    spec = f"""
use catalog.models.llama3_8b
device card {{
  memory = 80 GiB {vouched}, memory_bandwidth = 3 TB/s {vouched}, bf16 = 900 TFLOPS dense {vouched}
  multiprocessors = 132 {vouched}, matmul_efficiency = 70 % @fitted("runs"), power = 700 W {vouched}
  memory_efficiency = 90 % @fitted("runs"), library = nccl {vouched}
}}
"""
    names = evidence._WEAKEST_FIRST
    assert names.index("assumed") < names.index("fitted") < names.index("vendor")
    text = SPEC.format(node="", more="", network="400 Gbps per_direction")
    text = text.replace("use catalog.models.llama3_8b", spec.strip())
    text = text.replace("use catalog.devices.h100_sxm\n", "")
    values = {
        v.name: v.kind for v in evidence.values_with_provenance(parcost.load_text(text)[0].first)
    }
    assert values["card.matmul_efficiency"] == "fitted"
    assert values["card.memory_efficiency"] == "fitted"
