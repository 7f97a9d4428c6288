"""Trace events, read as a viewer does."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import SpecError, StepTrace
from parcost.contract.page import Paper
from parcost_apps.cli import main
from parcost_apps.timeline.step_trace import step_trace
from parcost_formats.traces import perfetto
from parcost_formats.traces.perfetto import Perfetto

ROOT = Path(__file__).parents[2]


def document(*traces: StepTrace) -> Any:
    return json.loads("".join(Perfetto().write(traces, Paper())))


def check(events: list[dict[str, Any]]) -> float:
    """Check that threads are in order for numbers and for whole nanoseconds; return the end."""
    threads = defaultdict(list)
    names = set()
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0.0
            threads[event["pid"], event["tid"]].append((event["ts"], event["dur"]))
        elif event["name"] == "thread_name":
            names.add((event["pid"], event["tid"]))
    assert set(threads) == names
    for spans in threads.values():
        for (ts, dur), (after, _) in pairwise(sorted(spans)):
            assert ts + dur <= after
            assert int(ts * 1000) + int(dur * 1000) <= int(after * 1000)
    return max(ts + dur for spans in threads.values() for ts, dur in spans) / 1e6


def test_the_trace_of_a_small_step(two_by_two: StepTrace) -> None:
    found = document(two_by_two)
    events = found["traceEvents"]
    assert check(events) == 11.75
    assert found["otherData"]["steps"][0]["step_seconds"] == 11.75
    titles = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert titles == {
        0: "a: step by term",
        1: "a: device 0, stage 0",
        2: "a: device 1, stage 1",
    }
    threads = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 1]
    assert set(threads) == {
        "passes",
        "compute",
        "node",
        "network",
        "network, once per step",
        "compute, once per step",
        "send",
    }
    (gather, _) = (e for e in events if e["ph"] == "X" and e["name"] == "gather" and e["pid"] == 1)
    assert (gather["ts"], gather["dur"]) == (250000.0, 250000.0)
    args = gather["args"]
    assert (args["micro_batch"], args["chunk"], args["pass"]) == (0, 0, "F")
    assert (args["formula"], args["source"]) == ("given", "by hand")
    memory = [e["args"]["bytes"] for e in events if e["ph"] == "C" and e["pid"] == 1]
    assert max(memory) == 16.0


def test_the_ledger_is_one_line_after_another(two_by_two: StepTrace) -> None:
    lines = [e for e in document(two_by_two)["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
    exposed = [line["args"]["exposed_seconds"] for line in lines]
    assert exposed == [float(line.exposed) for line in two_by_two.ledger]
    assert sum(exposed) == 11.75
    assert [line["ts"] for line in lines[1:]] == [line["ts"] + line["dur"] for line in lines[:-1]]
    (hides,) = (line for line in lines if line["name"] == "sum")
    assert hides["args"]["hidden_seconds"] == 1.0


def test_an_arrow_joins_the_two_ends_of_every_message(two_by_two: StepTrace) -> None:
    events = document(two_by_two)["traceEvents"]
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert len(begins) == 4
    assert {i: (e["pid"], e["ts"]) for i, e in ends.items()} == {
        0: (2, 1.75e6),
        1: (2, 4.75e6),
        2: (1, 5.25e6),
        3: (1, 8.25e6),
    }
    slices = {(e["pid"], e["tid"], e["ts"]): e for e in events if e["ph"] == "X"}
    for i, begin in begins.items():
        assert slices[begin["pid"], begin["tid"], begin["ts"]]["name"].startswith(("F", "B"))
        end = ends[i]
        assert slices[end["pid"], end["tid"], end["ts"]]["cat"] == "pass"
        assert end["bp"] == "e"


def test_several_steps_have_processes_of_their_own(two_by_two: StepTrace) -> None:
    events = document(two_by_two, two_by_two)["traceEvents"]
    assert {e["pid"] for e in events} == set(range(6))
    assert len({e["id"] for e in events if e["ph"] == "s"}) == 8


def test_hostile_text_is_escaped(two_by_two: StepTrace) -> None:
    from attrs import evolve

    name = 'x"}],\x1b[31m\u2028</script>\udcff'
    text = "".join(Perfetto().write([evolve(two_by_two, name=name)], Paper()))
    assert text.isascii()
    assert not set(text) & {"\x1b", "\x7f"}
    assert json.loads(text)["otherData"]["steps"][0]["study"] == name


def test_a_trace_that_no_viewer_opens_is_refused(
    two_by_two: StepTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto, "_MOST_SLICES", 10)
    with pytest.raises(SpecError) as caught:
        document(two_by_two)
    (problem,) = caught.value.diagnostics
    found = two_by_two.slice_count()
    assert f"has {found:,} slices, in 8 passes of 2 devices and 2 micro-batches" in problem.message
    assert "the limit of a trace is 10" in str(problem.help)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["examples", "documents"])
def test_laws_hold_for_every_shipped_step(folder: str) -> None:
    """The end is the step time, device memory is reached, and exposed seconds are the ledger's."""
    seen = 0
    for path in sorted((ROOT / "specs" / folder).glob("*.par")):
        try:
            reports = parcost.evaluate(str(path))
        except SpecError:
            continue  # definitions alone
        for report in reports:
            for result in report.results:
                cut = None if result.outcome is None else result.outcome.pipeline
                if cut is None or result.swept or cut.stages * cut.micro_batches > 1000:
                    continue
                outcome = result.outcome
                assert outcome is not None
                trace = step_trace(
                    result.study, outcome, name=report.name, path=report.path, at=result.at
                )
                assert check(document(trace)["traceEvents"]) == pytest.approx(
                    outcome.step_seconds, rel=1e-9
                )
                for d in range(cut.stages):
                    most = max(bytes_ for _, bytes_ in trace.memory(d))
                    assert most == pytest.approx(outcome.device_memory[d], rel=1e-9)
                exposed = defaultdict(float)
                for one in trace.slices(int(outcome.device)):
                    if one.op is not None and one.term is not None and not one.beside:
                        exposed[one.name, one.term.pass_] += one.end - one.start
                for line in outcome.ledger:
                    if line.kind in ("work", "slowdown") and line.pass_ in tuple("FRBW"):
                        difference = abs(exposed.pop((line.name, line.pass_), 0.0) - line.exposed)
                        assert difference <= 1e-9 * outcome.step_seconds
                assert all(left <= 1e-9 * outcome.step_seconds for left in exposed.values())
                seen += 1
    assert seen > 3


@pytest.mark.slow
def test_the_end_of_the_file_is_the_step_time_of_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = str(ROOT / "specs" / "examples" / "tp_or_pp.par")
    out = tmp_path / "step.json"
    chosen = ["--study", "pp_pcie"]
    assert main(["timeline", spec, *chosen, "--format", "perfetto", "--out", str(out)]) == 0
    assert main(["eval", spec, *chosen, "--format", "json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    end = check(json.loads(out.read_text(encoding="utf-8"))["traceEvents"])
    (result,) = report["results"]
    step = result["figures"]["step_time_seconds"]["value"]
    assert end == pytest.approx(step, rel=1e-9)
