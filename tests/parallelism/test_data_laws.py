"""Laws of data parallelism and memory that hold for a whole model, and advice that computes."""

from __future__ import annotations

from typing import Any

import pytest

import parcost
from parcost import Outcome, Study

from ..evaluation import details_of
from ..rows import try_each

_TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 4096, global_batch = 256 sequences }
plan { }
"""


def study_and_outcome(**values: Any) -> tuple[Study, Outcome]:
    (scenario,) = parcost.load_text(_TEXT)
    study = scenario.replace({k.replace("__", "."): v for k, v in values.items()}).studies()[0]
    assert study.legal()
    outcome = study.evaluate()
    assert study.faults == []
    return study, outcome


def details(**values: Any) -> dict[str, Any]:
    study, outcome = study_and_outcome(**values)
    return {f.name: f.value for _, f in details_of(study, outcome)}


@pytest.mark.slow
def test_a_larger_micro_batch_saves_more_and_reduces_the_same() -> None:
    one, two = details(), details(training__micro_batch=2)
    assert two["activation_memory"] == pytest.approx(2 * one["activation_memory"])
    assert two["dp_volume"] == one["dp_volume"]


def test_twice_the_replicas_hold_half_the_optimizer() -> None:
    here, more = details(), details(cluster__devices=128)
    assert more["optimizer_memory"] == pytest.approx(here["optimizer_memory"] / 2)
    assert more["activation_memory"] == here["activation_memory"]
    assert more["gradient_bytes"] == here["gradient_bytes"]
    assert more["gradient_chunk"] == pytest.approx(here["gradient_chunk"] / 2)


@pytest.mark.slow
def test_twice_the_tensor_ranks_halve_the_smallest_message_of_a_ring() -> None:
    two, four = details(), details(layout__tp=4)
    # norms are held by every rank; 32 replicas become 16
    assert four["gradient_bytes"] == pytest.approx(two["gradient_bytes"] / 2, rel=1e-3)
    assert four["gradient_chunk"] == pytest.approx(two["gradient_chunk"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", ["on", "off"])
def test_the_next_zero_stage_holds_no_more_and_recomputing_keeps_less(overlap: str) -> None:
    held = [
        study_and_outcome(layout__zero=zero, overlap__gradients=overlap)[1].memory_bytes
        for zero in range(4)
    ]
    assert held == sorted(held, reverse=True)
    kept = [details(training__recompute=r)["activation_memory"] for r in ("none", "selective")]
    kept.append(details(training__recompute="full")["activation_memory"])
    assert kept == sorted(kept, reverse=True)


@try_each("zero", range(4))
def test_a_reduction_shows_no_more_than_it_takes_and_no_less_than_nothing(zero: int) -> None:
    _, outcome = study_and_outcome(layout__zero=zero)
    for line in outcome.ledger:
        assert line.exposed >= 0
        assert line.hidden >= 0
    busy: dict[str, float] = {}
    for line in outcome.ledger:
        if line.kind != "bubble":
            busy[line.resource] = busy.get(line.resource, 0.0) + line.exposed + line.hidden
    assert outcome.step_seconds >= max(busy.values()) * (1 - 1e-12)


def test_a_stage_that_drains_early_shows_what_its_slack_does_not_cover() -> None:
    # stage s ends s (t_B + t_W) before the step: only the first has no slack
    _, outcome = study_and_outcome(layout__pp=4, layout__tp=1, overlap__gradients="off")
    shown = {
        line.name: line.exposed
        for line in outcome.ledger
        if line.name.startswith("gradient reduce-scatter") and line.exposed
    }
    assert len(shown) == 1
    assert "stage 0" in next(iter(shown))


def test_chunks_without_overlap_reduce_after_the_last_pass_of_their_device() -> None:
    # 16 layers of 109,060,096 parameters and half of an embedding of 128,256 x 4096, in fp32
    size = 4 * (16 * 109_060_096 + 262_668_288)
    cut = {"layout__pp": 2, "schedule__kind": "interleaved", "schedule__chunks": 4}
    for overlap in ("off", "on"):
        _, outcome = study_and_outcome(**cut, overlap__gradients=overlap)
        lines = [x for x in outcome.ledger if x.name.startswith("gradient reduce-scatter")]
        hidden = sum(line.hidden for line in lines)
        if overlap == "on":
            assert hidden > 0.01
        else:
            assert hidden == pytest.approx(0.0, abs=1e-12)
            assert sum(line.times * line.term.bytes_ for line in lines) == size


def test_trainer_keeps_whole_gradients_up_to_the_last_micro_batch() -> None:
    """Rank 16 on seven matrices of 32 layers: 41,943,040 trained parameters, in fp32."""
    text = """
use catalog.devices.a100_sxm_40g
use catalog.fabrics.dgx_a100
use catalog.models.llama3_8b
use catalog.precisions.bf16_fsdp
use catalog.frameworks.transformers
cluster { devices = 4 }
layout { zero = 3 }
adapters { rank = 16 }
training { sequence = 2048, global_batch = 32 sequences, recompute = full }
"""
    (scenario,) = parcost.load_text(text)
    outcome = scenario.studies()[0].evaluate()
    held = {line.name: line.bytes_ for line in outcome.memory_lines}
    assert held["gradients"] == 4 * 41_943_040
    sent = [x for x in outcome.ledger if x.name == "gradient reduce-scatter"]
    assert sum(line.times * line.term.bytes_ for line in sent) == 4 * 41_943_040  # once


def sections(study: Study, outcome: Outcome) -> dict[str, Any]:
    asked = study.plugins.ask("sections", study=study, outcome=outcome, brief=False)
    found = {section.title: section for _, section in asked}
    assert study.faults == []
    return found


@pytest.mark.slow
def test_the_least_stage_that_is_as_fast_as_any_that_fits_is_taken() -> None:
    study, outcome = study_and_outcome()
    section = sections(study, outcome)["ZeRO stages"]
    assert [row[0] for row in section.rows] == ["ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 3"]
    steps = [float(row[5][0]) for row in section.rows]
    fits = [row[2] == "yes" for row in section.rows]
    fastest = min(s for s, f in zip(steps, fits, strict=True) if f)
    best = next(
        z for z, (s, f) in enumerate(zip(steps, fits, strict=True)) if f and s <= 1.01 * fastest
    )
    assert section.notes[0].startswith(f"use ZeRO {best}:")
    for zero, row in enumerate(section.rows):
        assert row[1][0] == study_and_outcome(layout__zero=zero)[1].memory_bytes


@pytest.mark.slow
def test_a_model_that_no_stage_fits_has_to_be_cut() -> None:
    study, outcome = study_and_outcome(h100_sxm__memory=2**30)
    assert sections(study, outcome)["ZeRO stages"].notes == [
        "no stage fits: also use tensor or pipeline parallelism"
    ]


@pytest.mark.slow
def test_a_study_says_what_it_calls_as_fast_and_what_hidden() -> None:
    study, outcome = study_and_outcome(targets__as_fast=1, targets__exposed=1)
    found = sections(study, outcome)
    # any stage that fits will do then, and any share of the gradient reduction that is hidden
    fitting = [row[0] for row in found["ZeRO stages"].rows if row[2] == "yes"]
    (note,) = found["ZeRO stages"].notes
    assert note == f"use {fitting[0]}: no other stage that fits is more than 100 % faster"
    rows = {row[0]: row for row in found["Checklist of data parallelism"].rows}
    assert rows["share of the gradient reduction that is hidden"][2] == "yes"


@pytest.mark.slow
def test_what_may_be_exposed_may_be_all_of_it() -> None:
    """Without overlap all of the reduction is exposed, which is as much as the target says."""
    study, outcome = study_and_outcome(overlap__gradients="off", targets__exposed=1)
    rows = {row[0]: row for row in sections(study, outcome)["Checklist of data parallelism"].rows}
    assert rows["share of the gradient reduction that is hidden"][1:] == ((0.0, "%"), "yes", "")


@pytest.mark.slow
def test_one_replica_has_no_stages_and_no_checklist() -> None:
    study, outcome = study_and_outcome(cluster__devices=2, layout__zero=0)
    titles = set(sections(study, outcome))
    assert not {"ZeRO stages", "Checklist of data parallelism"} & titles


@pytest.mark.slow
def test_the_checklist_says_what_does_not_hold() -> None:
    study, outcome = study_and_outcome(overlap__gradients="off", overlap__bucket=1e5)
    rows = {row[0]: row for row in sections(study, outcome)["Checklist of data parallelism"].rows}
    assert rows["transfer time of a bucket exceeds its latency"][2] == "no"
    assert rows["gradient reduction overlaps with backward"][1:3] == ("off", "no")
    assert rows["bytes per reduced gradient"][2] == "no"
    assert rows["micro-batches per gradient reduction"][1] == 8


def test_a_communicator_takes_294_mib_in_a_ring_of_16_channels() -> None:
    study, _ = study_and_outcome()
    lines = {m.name: m for _, m in study.contributions("memory")}
    # tp, the ranks that hold the same, and all ranks, which add up the norm of the gradients
    assert lines["communicators"].bytes_ == 3 * 16 * 2 * 9.1875 * 2**20


@pytest.mark.parametrize(("zero", "shards"), [(0, 1), (1, 8)])
def test_stages_that_stand_twice_add_their_gradients_up(zero: int, shards: int) -> None:
    study, _ = study_and_outcome(
        layout__tp=2, layout__pp=4, layout__zero=zero, schedule__kind="chimera"
    )
    found = [t for _, t in study.contributions("terms") if "between copies" in t.name]
    held = sum(p.elements * p.count[1] for p in study.parameters)
    middle = next(t for t in found if t.count[1])
    assert middle.bytes_ == pytest.approx(held * 4 / shards)
    once, _ = study_and_outcome(layout__pp=4, layout__zero=zero)
    assert not [t for _, t in once.contributions("terms") if "between copies" in t.name]


def test_copies_on_two_nodes_have_the_whole_port_between_them() -> None:
    """2 x 1/2 of the gradients at 45 GB/s, as two replicas on two nodes have; 85 % are of NVLink.

    A start of 20 + 1.4 x 8.4 us, and two steps of 1.4 x 14 us.
    """
    study, _ = study_and_outcome(
        cluster__devices=32, layout__tp=8, layout__pp=4, layout__zero=0, schedule__kind="dualpipe"
    )
    found = [t for _, t in study.contributions("terms") if "between copies" in t.name]
    held = sum(p.elements * p.count[1] for p in study.parameters)
    middle = next(t for t in found if t.count[1])
    assert middle.seconds == pytest.approx(31.76e-6 + 2 * 19.6e-6 + held * 4 / 45e9)


def test_ends_on_two_nodes_have_the_whole_port_between_them() -> None:
    (scenario,) = parcost.load_text(
        _TEXT.replace("llama3_8b", "gemma_2b").replace("tp = 2", "tp = 8")
    )
    (study,) = scenario.replace({"cluster.devices": 16, "layout.pp": 2}).studies()
    (term,) = (
        t for _, t in study.contributions("terms") if t.name == "shared embedding all-reduce"
    )
    shared = 256_000 * 2048 / 8 * 4
    assert term.seconds == pytest.approx(31.76e-6 + 2 * 19.6e-6 + shared / 45e9)


@pytest.mark.parametrize(("kind", "chunks"), [("zb_v", 2), ("dualpipe", 1), ("interleaved", 2)])
def test_a_device_sends_the_bytes_that_it_holds(kind: str, chunks: int) -> None:
    # replicas add up every parameter of the pipeline: once, or twice where stages are copied
    found = details(
        layout__pp=4,
        layout__tp=1,
        layout__zero=0,
        schedule__kind=kind,
        schedule__chunks=chunks,
        training__micro_batch=1,
    )
    copies = 2 if kind == "dualpipe" else 1
    every = 8_030_261_248 * 4 * copies  # the embedding and the head stand apart
    # 16 replicas: 2 x 15/16 of it by each, on 16 devices of every stage
    assert found["dp_volume_total"] == pytest.approx(2 * 15 / 16 * every * 16)
