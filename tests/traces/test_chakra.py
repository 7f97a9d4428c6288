"""Chakra traces: read back by a decoder of their own, and replayed to the end."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import parcost
from parcost import SpecError, StepTrace, timed_communications
from parcost_apps.timeline.step_trace import step_trace
from parcost_formats.traces.chakra import files
from parcost_formats.traces.chakra.files import save_traces
from parcost_formats.traces.chakra.schema import messages

ROOT = Path(__file__).parents[2]
SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
model small {{
  layers = 4, hidden = 1024, heads = 8, kv_heads = 8, ffn = 4096, vocabulary = 32000{more}
}}
cluster  {{ devices = 8 }}
layout   {{ {layout} }}
training {{ sequence = 1024, global_batch = 8 sequences }}
schedule {{ {schedule} }}
collectives {{ library = nccl_text_book }}
"""
DENSE = "tp = 2, pp = 2, zero = 1, sequence_parallel = on"


def trace(layout: str = DENSE, schedule: str = "kind = one_f_one_b", more: str = "") -> StepTrace:
    text = SPEC.format(layout=layout, schedule=schedule, more=more)
    (scenario,) = parcost.load_text(text)
    (result,) = scenario.evaluate().results
    assert result.outcome is not None, [d.message for d in result.diagnostics]
    return step_trace(result.study, result.outcome, name="a b", path="a.par", at={})


def check_times(found: StepTrace, ranks: Any, chakra_traces: ModuleType) -> None:
    """Replay the ranks to their end: in the step time, or later with one transfer at a time."""
    times = chakra_traces.replay(ranks, at_once=True)
    assert max(times.values()) == pytest.approx(found.seconds, rel=1e-9)
    times = chakra_traces.replay(ranks, at_once=False)
    assert max(times.values()) >= found.seconds * (1 - 1e-9)


@pytest.mark.slow
def test_a_small_job_is_replayed_in_the_time_of_the_report(
    tmp_path: Path, chakra_traces: ModuleType
) -> None:
    found = trace()
    save_traces(found, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "comm_group.json",
        *(f"a_b.{rank}.et" for rank in range(8)),
    }
    ranks, groups = chakra_traces.read(tmp_path)
    chakra_traces.check(ranks, groups)
    check_times(found, ranks, chakra_traces)
    # tp varies fastest, then dp, then pp: 0 and 1 share a layer, 0 and 2 hold the same parameters.
    assert {tuple(row) for row in groups.values()} >= {(0, 1), (0, 2), (6, 7), (5, 7)}


def test_a_message_goes_to_the_same_rank_of_the_next_stage(
    tmp_path: Path, chakra_traces: ModuleType
) -> None:
    save_traces(trace(), tmp_path)
    ranks, _ = chakra_traces.read(tmp_path)
    sent = [n.attrs for n in ranks[1] if n.type == chakra_traces.SEND]
    assert {(a["comm_src"], a["comm_dst"]) for a in sent} == {(1, 5)}
    assert len(sent) == 4  # micro-batches: 8 sequences on 2 replicas
    # with sequence parallelism a rank sends half of 1024 tokens of 1024 elements of 2 bytes
    assert {a["comm_size"] for a in sent} == {1024 * 1024 * 2 / 2}


def test_sizes_are_those_that_simulators_expect(tmp_path: Path, chakra_traces: ModuleType) -> None:
    save_traces(trace(), tmp_path)
    ranks, groups = chakra_traces.read(tmp_path)
    calls = [n for n in ranks[0] if n.type == chakra_traces.COLL]
    tensor = [n for n in calls if groups[n.attrs["pg_name"]] == [0, 1]]
    whole = 1024 * 1024 * 2  # hidden states of a micro-batch
    by_type = {
        kind: {n.attrs["comm_size"] for n in tensor if n.attrs["comm_type"] == kind}
        for kind in (chakra_traces.ALL_GATHER, chakra_traces.REDUCE_SCATTER)
    }
    # an all-gather has the share of a rank, a reduce-scatter all that a rank has before it
    assert by_type[chakra_traces.ALL_GATHER] == {whole / 2}
    assert by_type[chakra_traces.REDUCE_SCATTER] == {whole}
    # for each of 4 micro-batches: two in either pass of two layers, and that of the embedding
    scattered = [n for n in tensor if n.attrs["comm_type"] == chakra_traces.REDUCE_SCATTER]
    assert len(scattered) == 4 * (2 * 2 + 2 * 2 + 1)
    data = [n for n in calls if groups[n.attrs["pg_name"]] == [0, 2]]
    assert {n.attrs["comm_type"] for n in data} == {
        chakra_traces.ALL_GATHER,
        chakra_traces.REDUCE_SCATTER,
    }


@pytest.mark.slow
def test_an_exchange_with_exposed_passes_is_traced_once(
    tmp_path: Path, chakra_traces: ModuleType
) -> None:
    """Two layers on a stage, two exchanges in each pass of eight micro-batches, whole each time.

    Two of eight passes expose their exchange, so that a half of two calls does not hide.
    """
    more = ", experts = 8, top_k = 2, expert_ffn = 1024"
    found = {}
    for hide in ("none", "pair"):
        text = SPEC.format(layout="pp = 2, ep = 4, dp = 4", schedule="", more=more)
        text = text.replace("8 sequences", "32 sequences")
        routing = f"routing {{ distribution = balanced, hide = {hide} }}"
        (scenario,) = parcost.load_text(text + routing)
        (result,) = scenario.evaluate().results
        step = step_trace(result.study, result.outcome, name=hide, path="a.par", at={})
        (tmp_path / hide).mkdir()
        save_traces(step, tmp_path / hide)
        ranks, groups = chakra_traces.read(tmp_path / hide)
        chakra_traces.check(ranks, groups)
        check_times(step, ranks, chakra_traces)
        found[hide] = sorted(
            (n.name, n.attrs["comm_size"])
            for n in ranks[0]
            if n.type == chakra_traces.COLL and n.name.startswith(("expert disp", "expert comb"))
        )
    assert len(found["none"]) == 8 * 2 * 4
    assert found["pair"] == found["none"]
    # 1024 tokens to 2 experts, of 1024 elements of 2 bytes; the way there adds metadata
    combined = {size for name, size in found["pair"] if name == "expert combine"}
    assert combined == {1024 * 2 * 1024 * 2}


def test_nodes_have_what_readers_need(tmp_path: Path, chakra_traces: ModuleType) -> None:
    found = trace()
    save_traces(found, tmp_path)
    version, about = chakra_traces.metadata(tmp_path / "a_b.3.et")
    assert version == "0.0.4"
    assert (about["rank"], about["pipeline_device"], about["study"]) == (3, 0, "a b")
    assert about["step_seconds"] == found.seconds
    ranks, _ = chakra_traces.read(tmp_path)
    flops = 0
    for one in ranks[0]:
        assert one.micros >= one.seconds * 1e6 * (1 - 1e-9)
        assert one.micros < one.seconds * 1e6 + 1
        flops += one.attrs.get("num_ops", 0)
    assert flops == pytest.approx(float(found.outcome.flops), rel=1e-6)  # type: ignore[attr-defined]


LAYOUTS = {
    "zero 3": ("zero = 3", "kind = one_f_one_b", ""),
    "interleaved": (DENSE, "kind = interleaved, chunks = 2", ""),
    "both ways": ("pp = 2, zero = 1", "kind = chimera", ""),
    "pairs": (DENSE, "kind = dualpipe", ""),
    "tied": ("pp = 2, tp = 2", "kind = interleaved, chunks = 2", "\n  tied = on"),
    "experts": (
        "tp = 2, pp = 2, ep = 2, sequence_parallel = on",
        "kind = zb_h1",
        "\n  experts = 4, top_k = 2",
    ),
    "ring": ("cp = 4, pp = 2, zero = 1", "kind = gpipe", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_rank_of_a_layout_agrees_with_the_others(
    name: str, tmp_path: Path, chakra_traces: ModuleType
) -> None:
    found = trace(*LAYOUTS[name])
    save_traces(found, tmp_path)
    ranks, groups = chakra_traces.read(tmp_path)
    chakra_traces.check(ranks, groups)
    check_times(found, ranks, chakra_traces)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4))
def test_shipped_steps_run_to_their_end(
    start: int, tmp_path: Path, chakra_traces: ModuleType
) -> None:
    seen = 0
    for path in sorted((ROOT / "specs" / "examples").glob("*.par"))[start::4]:
        for report in parcost.evaluate(str(path)):
            for result in report.results:
                outcome = result.outcome
                if outcome is None or result.swept:
                    continue
                cut, members = outcome.pipeline, result.study.group("pp").members
                assert members is not None
                if cut.stages * cut.micro_batches > 40 or len(members()) * cut.stages > 8:
                    continue
                found = step_trace(result.study, outcome, name="x", path=str(path), at={})
                folder = tmp_path / str(seen)
                folder.mkdir()
                save_traces(found, folder)
                ranks, groups = chakra_traces.read(folder)
                chakra_traces.check(ranks, groups)
                check_times(found, ranks, chakra_traces)
                seen += 1
    assert seen


def test_some_ranks_alone(tmp_path: Path, chakra_traces: ModuleType) -> None:
    from attrs import evolve

    save_traces(evolve(trace(), ranks=[5, 0, 5]), tmp_path)
    ranks, groups = chakra_traces.read(tmp_path)
    assert list(ranks) == [0, 5]
    assert [0, 1] in groups.values()  # whole groups, also of ranks without a file
    with pytest.raises(SpecError) as caught:
        save_traces(evolve(trace(), ranks=[8]), tmp_path)
    assert caught.value.diagnostics[0].message == "`a b` has no rank 8"
    assert caught.value.diagnostics[0].help == "it has 8 ranks: 0 to 7"


def test_too_many_nodes_are_refused_with_the_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_NODES", 100)
    with pytest.raises(SpecError) as caught:
        save_traces(trace(), tmp_path)
    (problem,) = caught.value.diagnostics
    assert " x 8 = " in problem.message
    assert "100 is the limit of nodes" in str(problem.help)
    monkeypatch.setattr(files, "_MOST_NODES", 10)
    with pytest.raises(SpecError, match="64 passes on 8 ranks"):
        save_traces(trace(), tmp_path)


def test_without_protobuf_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    messages.cache_clear()
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    try:
        with pytest.raises(SpecError) as caught:
            messages()
    finally:
        messages.cache_clear()
    assert "pip install 'parcost[chakra]'" in str(caught.value.diagnostics[0].help)


def test_a_formula_says_which_collectives_it_is_the_time_of() -> None:
    found = trace("cp = 4, pp = 2, zero = 1", "kind = gpipe")
    calls = {
        (one.term.name, call.operation): call
        for one in found.slices(0)
        if one.term is not None
        for call, _ in timed_communications(one.term.formula)
    }
    ring = calls["KV ring", "point_to_point"]
    assert ring.group.members is not None
    assert ring.group.members()[0] == [0, 1, 2, 3]
