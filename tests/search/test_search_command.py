"""``parcost search``: what it prints, writes and rejects, and how it exits."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import parcost
from parcost.language.errors import SpecError
from parcost.search.best_first import SearchRequest, search
from parcost.search.space import space
from parcost_apps.cli import main
from parcost_apps.search.report import layout_counts
from parcost_plugins.vocabulary import Cluster

pytestmark = pytest.mark.slow

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 64 }
training { sequence = 8192, global_batch = 128 sequences }
"""
NARROW = ("--axes", "tp,zero,recompute", "--over", "tp=1,2,4,8")

Run = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Search a text, and return the exit code, stdout and stderr."""

    def go(text: str, *arguments: str) -> tuple[int, str, str]:
        spec = tmp_path / "spec.par"
        spec.write_text(text)
        code = main(["search", str(spec), *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return go


def search_json(run: Run, text: str, *arguments: str) -> Any:
    code, out, err = run(text, *arguments, "--format", "json")
    assert code == 0, err
    return json.loads(out)


# --- what the spec says -------------------------------------------------------------------


def test_sweeps_are_axes_and_the_block_names_the_others(run: Run) -> None:
    text = SPEC + 'layout { tp = [2, 4] }\nsearch { axes = "zero", top = 3 }\n'
    data = search_json(run, text)
    assert data["points"] == 2 * 4
    assert set(data["best"][0]["values"]) == {"layout.tp", "layout.zero"}
    assert all(type(value) is int for value in data["best"][0]["values"].values())


def test_flags_go_before_the_block(run: Run) -> None:
    text = SPEC + 'search { axes = "tp", objective = mfu, top = 1 }\n'
    data = search_json(run, text, "--axes", "zero", "--objective", "step_time", "--top", "2")
    assert (data["objective"], data["points"]) == ("step_time", 4)


def test_mfu_finds_what_step_time_finds_at_one_size(run: Run) -> None:
    by_time = search_json(run, SPEC, *NARROW)["best"][0]
    by_mfu = search_json(run, SPEC, *NARROW, "--objective", "mfu")["best"][0]
    assert by_time["values"] == by_mfu["values"]
    assert 0.2 < by_mfu["objective"] < 0.7


@pytest.mark.parametrize(
    ("limit", "meets"),
    [
        ("most_memory = 30 GiB", lambda best: best["memory_bytes"] <= 30 * 2**30),
        ("longest_step = 6 s", lambda best: best["step_seconds"] <= 6),
        (
            "least_tokens_per_second = 200_000",
            lambda best: 128 * 8192 / best["step_seconds"] >= 200_000,
        ),
        (
            "deadline = 30 day, tokens = 500 G",
            lambda best: 500e9 / (128 * 8192) * best["step_seconds"] <= 30 * 86400,
        ),
    ],
)
def test_every_layout_that_is_listed_meets_a_limit(
    run: Run, limit: str, meets: Callable[[Any], bool]
) -> None:
    data = search_json(run, SPEC + f"search {{ {limit} }}\n", *NARROW)
    assert data["best"]
    assert all(meets(best) for best in data["best"])
    assert all(meets(point) for point in data["front"])


def test_the_short_page_shows_the_front_on_request(run: Run) -> None:
    pages = [run(SPEC, *NARROW, *more)[1] for more in ((), ("--front",))]
    assert ["Pareto front of step time and memory" in page for page in pages] == [False, True]
    first, second = (re.sub(r"\(.*? layouts/s\)", "", " ".join(page.split())) for page in pages)
    assert second.startswith(first.partition("Reproduce")[0])


def test_a_limit_costs_exactly_the_layouts_that_break_it(run: Run) -> None:
    every = search_json(run, SPEC, *NARROW, "--top", "100")["best"]
    roomy = [x for x in every if x["memory_bytes"] <= 40 * 2**30]
    some = search_json(run, SPEC + "search { most_memory = 40 GiB }\n", *NARROW, "--top", "100")
    fastest = {x["values"]["layout.tp"]: x["step_seconds"] for x in some["best"]}
    assert sum(some["limits"].values()) > 0
    for kept in roomy:
        assert fastest[kept["values"]["layout.tp"]] == kept["step_seconds"]


def test_the_fewest_devices_that_meet_a_deadline_are_found(run: Run) -> None:
    text = SPEC.replace("devices = 64", "devices = [16, 32, 64, 128]")
    steps = {}
    for devices in (16, 32, 64, 128):
        one = search_json(run, text, *NARROW, "--over", f"cluster.devices={devices}")
        steps[devices] = one["best"][0]["step_seconds"]
    deadline = (steps[32] + steps[64]) / 2  # 64 devices do, 32 do not
    text += f"search {{ objective = fewest_devices, longest_step = {deadline} s }}\n"
    best = search_json(run, text, *NARROW)["best"][0]
    assert best["objective"] == best["values"]["cluster.devices"] == 64
    assert best["step_seconds"] == pytest.approx(steps[64], rel=1e-12)


def test_a_deadline_needs_tokens(run: Run) -> None:
    code, _, err = run(SPEC + "search { deadline = 30 day }\n", *NARROW)
    assert code == 1
    assert "write `deadline = 30 day, tokens = 15 T`" in err
    assert "spec.par:7:10" in err
    assert "none of 48 layouts is legal: `deadline-lacks` rejects all of them" in err
    assert "no other value of a single axis helps" not in err


# --- what is printed ----------------------------------------------------------------------


def test_every_layout_of_the_table_has_its_mfu_and_headroom(run: Run) -> None:
    _, out, _ = run(SPEC, *NARROW, "--full")
    (header,) = [line for line in out.splitlines() if "headroom" in line]
    assert header.split() == ["MFU", "step", "memory", "headroom", "layout"]
    for best in search_json(run, SPEC, *NARROW)["best"]:
        (scenario,) = parcost.load_text(SPEC)
        again = scenario.replace(best["values"]).evaluate().result
        assert best["mfu"] == pytest.approx(again.figure("mfu"), rel=1e-12)
        assert best["step_seconds"] == again.figure("step_time")
        left = scenario.first[Cluster].device.memory - best["memory_bytes"]
        assert best["headroom_bytes"] == pytest.approx(left, rel=1e-12)


def test_a_choice_without_effect_is_printed_once(run: Run) -> None:
    """Fused attention keeps no scores, so recomputing them selectively changes nothing."""
    code, out, _ = run(SPEC, *NARROW, "--set", "layout.pp=1")
    assert code == 0
    assert "No effect on #1: " in " ".join(out.split())
    data = search_json(run, SPEC, *NARROW)
    degrees = [best["values"]["layout.tp"] for best in data["best"]]
    assert len(degrees) == len(set(degrees))
    first = data["best"][0]
    assert data["makes_no_difference"]
    for path, values in data["makes_no_difference"].items():
        for value in values:
            (scenario,) = parcost.load_text(SPEC)
            again = scenario.replace({**first["values"], path: value}).evaluate().result
            assert again.outcome is not None
            assert float(again.outcome.step_seconds) == first["step_seconds"]


def test_neighbours_of_the_winner_are_what_they_cost_alone(run: Run) -> None:
    data = search_json(run, SPEC, *NARROW)
    values = data["best"][0]["values"]
    for other in data["neighbours"]:
        if other["runs"]:
            assert other["step_seconds"] >= data["best"][0]["step_seconds"]
            (scenario,) = parcost.load_text(SPEC)
            at = {**values, other["attribute"]: other["value"]}
            outcome = scenario.replace(at).evaluate().result.outcome
            assert outcome is not None
            assert float(outcome.step_seconds) == other["step_seconds"]
    assert {other["attribute"] for other in data["neighbours"]} == set(values)


# --- every point --------------------------------------------------------------------------


def test_every_legal_layout_is_written_with_the_figures_of_its_evaluation(
    run: Run, tmp_path: Path
) -> None:
    """Exact ones under the names of ``parcost eval``, and bounds of others in other columns."""
    path = tmp_path / "points.csv"
    flags = ("--over", "tp=4,8", "--over", "pp=1,2", "--over", "schedule=one_f_one_b,zb_h1")
    flags = ("--axes", "tp,zero,pp,schedule", *flags, "--over", "zero=0,2")
    code, out, _ = run(SPEC, *flags, "--out", str(path), "--format", "json")
    assert code == 0
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == json.loads(out)["legal"]
    assert len({tuple(row.values()) for row in rows}) == len(rows)
    (scenario,) = parcost.load_text(SPEC)
    for row in rows:
        at = {k: row[k] for k in ("layout.tp", "layout.pp", "layout.zero", "schedule.kind")}
        result = scenario.replace(at).evaluate().result
        assert result.outcome is not None
        seconds, bytes_ = float(result.outcome.step_seconds), float(result.outcome.memory_bytes)
        assert float(row["layout.dp"]) * float(at["layout.tp"]) * float(at["layout.pp"]) == 64
        assert float(row["step_time_lower_bound_seconds"]) <= seconds * (1 + 1e-12)
        assert float(row["memory_lower_bound_bytes"]) <= bytes_ * (1 + 1e-12)
        figures = {
            "step_time_seconds": seconds,
            "mfu_fraction": result.figure("mfu"),
            "communication_time_seconds": result.figure("communication_time"),
            "idle_time_seconds": result.figure("idle_time"),
            "memory_bytes": bytes_,
            "headroom_bytes": result.figure("headroom"),
        }
        exact = row["exact"] == "yes"
        assert exact or not any(row[name] for name in figures)
        for name, value in figures.items() if exact else ():
            assert float(row[name]) == pytest.approx(value, rel=1e-12, abs=1e-12)
        assert row["feasible"] == ("yes" if result.feasible else "no") or not exact
    assert {row["exact"] for row in rows} == {"yes", "no"}


def test_formats_hold_the_same_points(run: Run, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    for name in ("csv", "jsonl", "parquet"):
        flags = ("--over", "micro_batch=1,2", "--over", "overlap.bucket=25 MB,2.5 B")
        assert run(SPEC, *NARROW, *flags, "--out", str(tmp_path / f"p.{name}"))[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    with duckdb.connect() as base:
        query = base.execute(f"FROM read_parquet('{tmp_path / 'p.parquet'}')")
        names = [column[0] for column in query.description]
        table = [dict(zip(names, row, strict=True)) for row in query.fetchall()]
    with (tmp_path / "p.csv").open() as file:
        written = list(csv.DictReader(file))
    assert len(lines) == len(table) == len(written)
    for line, row, text in zip(lines, table, written, strict=True):
        for name in ("step_time_seconds", "mfu_fraction", "step_time_lower_bound_seconds"):
            assert line[name] == row[name] == float(text[name])
        assert line["feasible"] is row["feasible"] is (text["feasible"] == "yes")
        assert line["training.recompute"] == row["training.recompute"] == text["training.recompute"]
        for name in ("layout.tp", "layout.zero", "training.micro_batch"):
            assert type(line[name]) is type(row[name]) is int
            assert text[name] == f"{line[name]}" == f"{row[name]}"
        assert line["overlap.bucket"] == row["overlap.bucket"] == float(text["overlap.bucket"])


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_a_file_beyond_the_size_limit_is_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import resource

    if name == "parquet":
        pytest.importorskip("duckdb")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    written = tmp_path / f"points.{name}"
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, most))
        code, out, err = run(SPEC, "--axes", "tp,pp,zero,recompute", "--out", str(written))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert (code, out) == (2, "")
    assert f"error: `{written}` cannot be written: " in err
    assert "File too large" in err
    assert [path.name for path in tmp_path.iterdir()] == ["spec.par"]


def test_a_failed_write_of_duckdb_is_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb")

    def full(*_: Any, **__: Any) -> Any:
        raise duckdb.IOException("IO Error: No space left on device")

    monkeypatch.setattr(duckdb, "connect", full)
    out = tmp_path / "p.parquet"
    code, _, err = run(SPEC, *NARROW, "--out", str(out))
    assert code == 2
    assert err == f"error: `{out}` cannot be written: IO Error: No space left on device\n"
    assert main(["eval", str(tmp_path / "spec.par"), "--format", "parquet", "--out", str(out)]) == 2


def test_a_name_without_a_format_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, err = run(SPEC, *NARROW, "--out", str(tmp_path / "points.txt"))
    assert code == 2
    assert ".csv, .jsonl, .parquet" in err


def test_an_unwritable_file_is_an_error_before_the_search(run: Run) -> None:
    code, _, err = run(SPEC, *NARROW, "--out", "/nowhere/points.csv")
    assert code == 2
    assert "cannot be written" in err


# --- bad input ----------------------------------------------------------------------------


def test_a_space_that_is_too_large_is_refused_at_once_with_its_size(run: Run) -> None:
    numbers = ",".join(map(str, range(1, 301)))
    many = [f"--over={name}={numbers}" for name in ("layout.tp", "layout.cp", "micro_batch")]
    start = time.monotonic()
    code, _, err = run(SPEC, *many, "--over", f"overlap.multiprocessors={numbers}")
    assert code == 2
    assert "the search space has" in err
    assert "--sample" in err
    assert time.monotonic() - start < 20


def test_a_large_space_can_be_sampled_reproducibly(run: Run) -> None:
    numbers = ",".join(map(str, range(1, 17)))
    flags = [f"--over=micro_batch={numbers}", "--over=tp=1,2,4", "--over=pp=1,2"]
    flags += ["--axes", "tp,pp,micro_batch,zero", "--sample", "10"]
    flags += ["--set", "training.recompute=full"]
    one, two = search_json(run, SPEC, *flags), search_json(run, SPEC, *flags)
    assert one["best"] == two["best"]
    assert one["legal"] == 10 <= one["sampled"]
    assert not one["proven"]


@pytest.mark.parametrize("axes", ["", " ", "tp,", ",tp"])
def test_axes_without_a_name_are_no_search_of_all(run: Run, axes: str) -> None:
    code, out, err = run(SPEC, "--axes", axes)
    assert (code, out) == (2, "")
    assert "has no names; write `--axes tp,pp`" in err


def test_an_empty_space_names_the_rule_and_the_value_that_would_do(run: Run) -> None:
    code, _, err = run(SPEC, "--axes", "tp,zero", "--over", "tp=3,5")
    assert code == 1
    assert "none of 8 layouts is legal" in err
    assert "`layout.tp` = 1 or 2 or 4 or 8 is legal" in err


@pytest.mark.parametrize("option", [[], ["--over", f"tp={','.join(map(str, range(1, 1002)))}"]])
def test_an_axis_with_too_many_values_is_rejected_before_they_are_bound(
    run: Run, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    from parcost.search.axis_kinds import AxisKinds

    monkeypatch.setattr(AxisKinds, "sort", None)
    text = "layout { tp = 2 }" if option else "layout { tp = range(1, 1001) }"
    code, _, err = run(f"{SPEC}{text}\n", "--axes", "tp", *option)
    assert code == 2
    assert "error[too-many-points]: `layout.tp` has 1,001 values" in err
    assert "is 1,000" in err


EVEN = "schedule { assignment = even }\n"


def test_an_error_of_every_layout_is_underlined_in_the_spec(run: Run) -> None:
    code, _, err = run(f"{SPEC}layout {{ pp = 3 }}\n{EVEN}", "--axes", "tp,zero")
    assert code == 1
    assert "error[layers-divide]: 32 layers are not divisible by pp 3" in err
    assert "spec.par:7:10" in err
    assert "error[empty-space]" in err
    assert "`layout.pp` = 1 or 2 or 4 or 8 is legal" in err


def test_an_empty_space_with_sweeps_has_the_usual_error(run: Run) -> None:
    text = SPEC.replace("training {", "training { recompute = [none, full],")
    code, _, err = run(f"{text}layout {{ pp = 3, zero = [0, 1] }}\n{EVEN}", "--axes", "tp")
    assert code == 1
    assert "error[layers-divide]: 32 layers are not divisible by pp 3" in err
    assert "spec.par:7:10" in err
    assert "error[empty-space]" in err


def test_an_error_of_some_layouts_only_is_shown_for_one_of_them(run: Run) -> None:
    code, _, err = run(SPEC + "layout { cp = 128 }\n", "--axes", "tp")
    assert code == 1
    assert err.count("error[") == 1  # each degree of tp needs another number of devices
    assert "at tp 1: tp 1 x cp 128 x pp 1 = 128 devices are needed" in err


def test_limits_that_no_layout_meets_are_named(run: Run) -> None:
    text = SPEC + "search { most_memory = 1 GiB, least_mfu = 99 % }\n"
    code, _, err = run(text, *NARROW)
    assert code == 1
    assert "memory <= 1 GiB" in err
    code, _, err = run(SPEC + "search { least_mfu = 99 % }\n", *NARROW)
    assert code == 1
    assert "MFU >= 99 %" in err
    assert "= help: relax that limit\n" in err


def test_with_several_limits_the_help_names_possible_others(run: Run) -> None:
    code, _, err = run(SPEC + "search { longest_step = 1 ms, least_mfu = 99 % }\n", *NARROW)
    assert code == 1
    assert "layouts that fit in memory has step <= 0.001 s" in err
    assert (
        "relax that limit; each layout is counted once, under the first limit that it exceeds"
        in err
    )
    step = search_json(run, SPEC, *NARROW)["best"][0]["step_seconds"]
    text = SPEC + f"search {{ longest_step = {1.1 * step} s, least_mfu = 99 % }}\n"
    code, _, err = run(text, *NARROW)
    assert code == 1
    assert (
        "relax one of them; each layout is counted once, under the first limit that it exceeds"
        in err
    )


def test_nothing_fits_says_how_much_the_smallest_needs(run: Run) -> None:
    text = SPEC.replace("llama3_8b", "llama31_405b").replace("devices = 64", "devices = 8")
    code, _, err = run(text, "--axes", "tp,zero", "--over", "tp=8")
    assert code == 1
    assert "the smallest needs" in err


def test_an_objective_without_its_figures_is_refused(run: Run) -> None:
    code, _, err = run(SPEC, *NARROW, "--objective", "cost_per_million_tokens")
    assert code == 2
    assert "objectives of this study are step_time" in err
    assert "it needs `price { device_hour = 2.50 USD/h }`" in err
    priced = SPEC + "price { device_hour = 2 USD/h }\n"
    best = search_json(run, priced, *NARROW, "--objective", "cost_per_million_tokens")["best"][0]
    hours = best["step_seconds"] * 64 / 3600
    assert best["objective"] == pytest.approx(2 * hours / (128 * 8192) * 1e6)


@pytest.mark.parametrize(
    ("gap", "proven", "sentence"),
    [
        (0.0, True, "Proven: the lowest step time of all layouts is"),
        (0.0, False, "Proven for the fastest layout, not for the others; continue with --budget"),
        (
            0.02,
            False,
            "Not proven; continue with --budget 300 (out of time; another layout may be up to 2.00 % better)",
        ),
        (
            None,
            False,
            "Not proven; continue with --budget 300 (out of time: 7 of 9 groups of layouts done)",
        ),
    ],
)
def test_a_search_says_what_is_proven(gap: float | None, proven: bool, sentence: str) -> None:
    """What a real search proves in no time depends on its numbers: so the result is set here."""
    (scenario,) = parcost.load_text(SPEC)
    found = search(space(scenario, {"layout.tp": [8]}, ["tp"]), SearchRequest())
    changed = evolve(found, gap=gap, proven=proven, looked=7, structures=9)
    text = " ".join(line.text for line in layout_counts(changed))
    assert sentence in text


def test_a_search_out_of_time_in_every_part_is_printed(run: Run) -> None:
    text = SPEC.replace("llama3_8b", "llama3_70b").replace("= 64", "= 1024").replace("128", "2048")
    words = ("--budget", "0", "--top", "3", "--over", "schedule=interleaved,zb_v")
    for front in ((), ("--front",)):  # work alone bounds what there was no time for
        code, out, _ = run(text, *words, *front)
        assert code == 0
        assert re.search(r"out of time; .* up to [0-9.]+ % better", " ".join(out.split()))


@pytest.mark.parametrize("option", [("--jobs", "2"), ("--executor", "dask://here:1")])
def test_processes_are_refused_with_the_reason(run: Run, option: tuple[str, str]) -> None:
    code, out, err = run(SPEC, *NARROW, *option)
    assert (code, out) == (2, "")
    assert "error: a search runs in one process" in err


def test_a_budget_that_is_no_number_is_a_usage_error(run: Run) -> None:
    code, out, err = run(SPEC, "--budget", "nan")
    assert (code, out) == (2, "")
    assert "`--budget nan` is not a time" in err


def test_a_sample_that_finds_nothing_says_what_to_ask_for(run: Run) -> None:
    flags = ("--axes", "tp,zero", "--over", "tp=3", "--sample", "5", "--budget", "0.3")
    code, _, err = run(SPEC, *flags)
    assert code == 1
    assert "random layouts before time ran out are legal" in err
    assert "increase `--budget`" in err
    text = SPEC + "search { longest_step = 1 ms }\n"
    code, _, err = run(text, *NARROW, "--over", "zero=1", "--sample", "1")
    assert code == 1
    assert "before time ran out" not in err
    assert "increase `--sample`" in err


def test_a_sample_that_is_interrupted_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from parcost.search import sample

    calls, usual = [], sample.evaluate_layout

    def interruption(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return usual(*arguments)

    monkeypatch.setattr(sample, "evaluate_layout", interruption)
    code, out, _ = run(SPEC, *NARROW, "--over", "zero=1,2", "--sample", "1000")
    assert code == 130
    assert "Interrupted before all requested layouts were drawn" in out
    assert "out of time" not in out


def test_an_interrupt_leaves_the_best_so_far() -> None:
    (scenario,) = parcost.load_text(SPEC)
    whole = space(scenario, {"layout.tp": [1, 2, 4, 8]}, ["tp", "pp", "zero"])
    calls = 0

    def progress(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt

    found = search(whole, SearchRequest(keep=3), on_progress=progress)
    assert found.interrupted
    assert found.gap is None
    assert found.best


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    spec = tmp_path / "spec.par"
    spec.write_text(SPEC.replace("llama3_8b", "deepseek_v3").replace("64", "2048"))
    # Pressed at the first structure, however fast the machine is.
    program = """import signal, sys, time
from parcost_apps.cli import main
from parcost.search.space import Space
def press(*_, **__):
    signal.raise_signal(signal.SIGINT)
    time.sleep(10)  # the signal arrives between two statements
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
Space._whole = press
sys.exit(main(sys.argv[1:]))"""
    command = [sys.executable, "-c", program, "search", str(spec)]
    with subprocess.Popen(command, stdout=-1, stderr=-1, cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ('search { axes = "tp, qp" }', "no axis is called `qp`"),
        (
            "search { objective = cost_per_million_tokens }",
            "the objective `cost_per_million_tokens` is not available in this study: it needs `price {",
        ),
    ],
)
def test_unknown_names_of_the_block_are_underlined_by_both_commands(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, block: str, message: str
) -> None:
    text = SPEC + block + "\n"
    code, _, err = run(text)
    assert code == 2
    assert message in err
    assert "spec.par:7:10" in err
    assert main(["check", str(tmp_path / "spec.par")]) == 1
    out, _ = capsys.readouterr()
    assert message in out
    assert "spec.par:7:10" in out


def test_flags_and_sweeps_go_before_what_the_block_names_in_vain(run: Run) -> None:
    text = SPEC + 'search { axes = "tp, qp", objective = cost_per_million_tokens }\n'
    assert run(text, *NARROW, "--objective", "mfu")[0] == 0
    swept = SPEC.replace("sequence = 8192", "sequence = [4096, 8192]")
    swept += 'search { axes = "tp, training.sequence" }\n'
    best = search_json(run, swept, "--over", "tp=2,4,8")["best"][0]
    assert set(best["values"]) == {"layout.tp", "training.sequence"}


def test_unknown_axes_are_refused() -> None:
    (scenario,) = parcost.load_text(SPEC)
    with pytest.raises(SpecError, match="no axis is called `tpp`"):
        space(scenario, {}, ["tpp"])


@pytest.mark.parametrize(
    ("path", "meant"),
    [("training.globalbatch", "training.global_batch"), ("layuot.tp", "layout.tp")],
)
def test_a_misspelled_attribute_names_the_one_that_is_meant(path: str, meant: str) -> None:
    (scenario,) = parcost.load_text(SPEC)
    with pytest.raises(SpecError) as caught:
        space(scenario, {path: [1, 2]}, [])
    assert caught.value.diagnostics[0].help == f"did you mean `{meant}`?"


def test_the_printed_command_has_all_options_of_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    studies = "study narrow { layout { tp = 2 } }\nstudy wide { layout { tp = 4 } }\n"
    Path("two studies.par").write_text(SPEC + studies, encoding="utf-8")
    options = ["--study", "wide", "--set", "training.global_batch=256 sequences"]
    options += ["--without", "analysis.advice"]
    search = ["search", "two studies.par", "--axes", "pp,zero", "--top", "3", *options]
    assert main([*search, "--format", "json"]) == 0
    for layout in json.loads(capsys.readouterr().out)["best"]:
        report = evaluated_again(layout, capsys)
        assert (report["name"], report["without"]) == ("wide", ["analysis.advice"])


def evaluated_again(layout: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command of a layout; it needs the same time and memory to the bit."""
    program, *arguments = shlex.split(layout["command"])
    assert program == "parcost"
    code = main([*arguments, "--format", "json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    (report,) = json.loads(out)["reports"]
    (result,) = report["results"]
    assert result["step_seconds"] == layout["step_seconds"]
    assert result["memory"]["total_bytes"] == layout["memory_bytes"]
    return report


@pytest.mark.parametrize(
    ("swept", "flags", "said"),
    [
        (
            "",
            ["--over=training.global_batch=256 sequences,512 sequences", "--over=tp=4,8"],
            ["global_batch 256 sequences"],
        ),
        (
            "",
            ["--over=overlap.bucket=1234567 B,0.025 GB,3 * 1 MiB", "--over=tp=8"],
            ["bucket 1234567 B", "bucket 0.025 GB", "bucket 3 MiB"],
        ),
        (
            "overlap { bucket = [10 MB / 3, 50 MB] }",
            ["--over=training.global_batch=128,256", "--over=tp=8"],
            ["bucket 3.3333333333333335 MB", "bucket 50 MB", "global_batch 128 sequences"],
        ),
        (
            "kernels { alignment = [4 B, 16 B], memory_efficiency = [0.81, 0.77] }",
            ["--set=training.global_batch=1 Mi tokens", "--over=tp=8"],
            ["alignment 4 B", "memory_efficiency 81 %"],
        ),
        (
            "",
            [
                "--over=training.sequence=4096,8192",
                "--over=training.global_batch=1048576 tokens,256 sequences",
                "--over=tp=8",
            ],
            ["global_batch 128 sequences"],  # the tokens of another sequence are others
        ),
    ],
)
def test_quantities_are_printed_as_written_and_parse_to_the_bit(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    swept: str,
    flags: list[str],
    said: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    flags = ["--axes=tp,zero", *flags]
    _, out, _ = run(f"{SPEC}{swept}\n", *flags)
    assert not [text for text in said if text not in out], out
    for layout in search_json(run, f"{SPEC}{swept}\n", *flags)["best"]:
        evaluated_again(layout, capsys)


# --- plugins that fail --------------------------------------------------------------------

BROKEN = """\
from parcost import Study, hookimpl
from parcost_plugins.vocabulary import Layout


@hookimpl
def terms(study: Study) -> list[object]:
    if study[Layout].zero == 2:
        raise RuntimeError("not today")
    return []
"""
SAYS_NOTHING = """\
from parcost import hookimpl


@hookimpl
def sections() -> list[object]:
    raise RuntimeError("not today")
"""


@pytest.mark.parametrize(
    ("plugin", "hook", "flags"),
    [
        (BROKEN, "terms", ()),
        (BROKEN, "terms", ("--format", "json")),
        (BROKEN, "terms", ("--sample", "10", "--over", "zero=2")),
        (SAYS_NOTHING, "sections", ("--full",)),
    ],
)
def test_a_failing_plugin_is_printed_once_per_stream_and_exits_with_3(
    run: Run, tmp_path: Path, plugin: str, hook: str, flags: tuple[str, ...]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(plugin)
    code, out, err = run(SPEC, *NARROW, "--plugin", str(file), *flags)
    said = f"plugin `mine` of {file} failed in `{hook}`: raised RuntimeError: not today"
    assert code == 3
    assert re.fullmatch(rf"error: {re.escape(said)} \(mine.py:\d+\)\n\n", err)
    assert "".join(out.split()).count("".join(f"incomplete: {said}".split())) == 1


def test_a_plugin_that_fails_where_nothing_is_found_exits_with_3(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(BROKEN)
    flags = ("--over", "zero=2", "--plugin", str(file), "--set", "search.longest_step=1 ms")
    for more in ((), ("--sample", "3")):
        code, _, err = run(SPEC, *NARROW, *flags, *more)
        assert code == 3
        assert err.count("failed in `terms`") == 1


def test_a_layout_that_is_another_one_by_itself_exits_with_3(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    many = "study[Layout].tp.__class__.__name__ == 'ndarray'"
    body = BROKEN.replace("study[Layout].zero == 2", many).replace(
        'raise RuntimeError("not today")',
        'return [Once(name="x", seconds=1.0, when="end", formula=Formula(text="x", inputs={}))]',
    )
    file.write_text(body.replace("import Study", "import Formula, Once, Study"))
    code, _, err = run(SPEC, *NARROW, "--plugin", str(file))
    assert "error[search-disagrees]" in err
    assert code == 3


@pytest.mark.parametrize(
    ("block", "path", "values"),
    [
        ("training", "recompute", "none, selective, full"),
        ("training", "loss_chunks", "1, 4"),
        ("recompute", "norms", "off, on"),
        ("recompute", "every", "1, 2"),
        ("layout", "zero", "0, 1, 3"),
        ("layout", "sequence_parallel", "off, on"),
        ("layout", "order", '"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"'),
        ("overlap", "tensor", "off, on"),
        ("overlap", "gradients", "off, on"),
        ("context", "algorithm", "ring, all_gather"),
        ("schedule", "kind", "one_f_one_b, gpipe"),
        ("schedule", "transfers", "overlapped, blocking"),
        ("kernels", "model", "roofline, tiled"),
        ("schedule", "chunks", "1, 2"),
    ],
)
def test_whatever_the_spec_sweeps_is_an_axis(run: Run, block: str, path: str, values: str) -> None:
    swept = f"{path} = [{values}]"
    text = SPEC.replace("training {", f"training {{ {swept},") if block == "training" else SPEC
    more = "pp = 2" if path in ("kind", "transfers", "chunks") else ""
    if block == "layout":
        text += f"layout {{ {swept} }}\n"
    elif block != "training":
        kind = "kind = interleaved, " if path == "chunks" else ""
        text += f"{block} {{ {kind}{swept} }}\n" + (f"layout {{ {more} }}\n" if more else "")
    text += 'search { axes = "layout.tp" }\n'
    data = search_json(run, text, "--over", "tp=2,4")
    (scenario,) = parcost.load_text(text)
    rows = scenario.replace({"layout.tp": [2, 4]}).evaluate().rows()
    steps = [row["step_time"] for row in rows if row["feasible"]]
    assert data["points"] == 2 * len(values.split(","))
    assert len(steps) <= data["legal"] <= len(rows)
    assert data["best"][0]["step_seconds"] == pytest.approx(min(steps), rel=1e-12)
    assert f"{block}.{path}" in data["best"][0]["values"]


def test_the_highest_mfu_is_that_of_the_device_that_uses_most_of_its_peak(run: Run) -> None:
    text = SPEC.replace("devices = 64", "devices = 64, device = [h100_sxm, b200]")
    text = "use catalog.devices.b200\n" + text
    data = search_json(run, text, "--axes", "tp", "--over", "tp=2,4,8", "--objective", "mfu")
    (scenario,) = parcost.load_text(text)
    rows = scenario.replace({"layout.tp": [2, 4, 8]}).evaluate().rows()
    best = max((row for row in rows if row["feasible"]), key=lambda row: row["mfu"])
    assert data["best"][0]["objective"] == pytest.approx(best["mfu"], rel=1e-12)
    assert data["best"][0]["values"]["cluster.device"] == "h100_sxm"
    scores = [one["objective"] for one in data["best"]]
    assert scores == sorted(scores, reverse=True)


# --- schedules ----------------------------------------------------------------------------

SHARDED = SPEC + "layout { tp = 4, zero = 1 }\n"
PIPED = ("--axes", "pp,schedule,chunks", "--over", "pp=1,2,4", "--over", "chunks=1,2")


def schedules(run: Run, text: str, *arguments: str) -> tuple[set[str], list[str]]:
    """Return the schedules of the number of listed layouts, and those that are left out."""
    data = search_json(run, text, *arguments, "--top", "50")
    listed = {layout["values"]["schedule.kind"] for layout in data["best"]}
    return listed, data["not_searched"].get("schedule.kind", [])


def test_a_search_takes_schedules_that_frameworks_have_unless_the_spec_names_others(
    run: Run,
) -> None:
    """Megatron-LM has 1F1B and interleaving, DeepSpeed 1F1B; nobody ships bidirectional pipes."""
    listed, others = schedules(run, SHARDED, *PIPED)
    assert listed == {"one_f_one_b", "interleaved"}
    assert {"dualpipe", "chimera", "zb_h2", "dualpipe_v"} <= set(others)
    assert not listed & set(others)

    own = SHARDED + "schedule { kind = dualpipe }\n"
    assert "dualpipe" not in schedules(run, own, *PIPED)[1]
    data = search_json(run, own, "--axes", "pp,schedule", "--over", "pp=2")
    assert data["points"] == 3  # DualPipe of the spec, and the two

    swept = SHARDED + "schedule { kind = [chimera, gpipe] }\n"
    listed, others = schedules(run, swept, "--axes", "pp,schedule", "--over", "pp=2")
    assert (listed <= {"chimera", "gpipe"}, others) == (True, [])


def test_the_page_says_which_schedules_were_left_out_and_how_to_include_them(run: Run) -> None:
    _, out, _ = run(SHARDED, *PIPED, "--full")
    (line,) = re.findall(r"Not searched: schedule.*?--over schedule=\S+", " ".join(out.split()))
    assert "dualpipe, dualpipe_v (PyTorch, MindSpeed, FlagScale), gpipe" in line
    _, _, over = line.rpartition("--over ")
    data = search_json(run, SHARDED, *PIPED, "--over", over.strip())
    assert data["not_searched"] == {}
    assert data["points"] == 3 * 2 * len(over.split(","))


def test_a_schedule_of_a_plugin_says_itself_that_a_search_takes_it(
    run: Run, tmp_path: Path
) -> None:
    plugin = tmp_path / "own.py"
    text = """
from parcost import Op, Schedule, hookimpl

class Own(Schedule):
    name = "own"
    frameworks = {"Inhouse": "pipe.py"}
    search_default = DEFAULT

    def limits(self, shape):
        return None if shape.chunks == 1 else "one chunk"

    def order(self, stages, micro_batches, chunks):
        each = range(micro_batches)
        return [
            [*(Op("F", j, x) for j in each), *(Op("BW", j, x) for j in each)]
            for x in range(stages)
        ]

@hookimpl
def schedules():
    return [Own()]
"""
    for default in (True, False):
        plugin.write_text(text.replace("DEFAULT", str(default)))
        code, out, err = run(SHARDED, *PIPED, "--full", "--plugin", str(plugin))
        assert code == 0, err
        assert ("own (Inhouse)" in " ".join(out.split())) is not default


def test_the_advice_of_any_plugin_that_leads_stands_on_the_page(run: Run, tmp_path: Path) -> None:
    plugin = tmp_path / "adviser.py"
    plugin.write_text(
        "from parcost import Section, hookimpl\n\n\n@hookimpl\ndef sections(study):\n"
        "    return [Section(title='Ask an expert', columns=('who',), rows=[('Ada',)], lead=1)]\n"
    )
    code, out, _ = run(SPEC, *NARROW, "--full", "--plugin", str(plugin))
    assert code == 0
    assert "Ask an expert" in out


def test_reductions_that_wait_for_the_device_are_those_of_their_layouts() -> None:
    """Without overlap, chunks are reduced after the last pass; with it, each after its own."""
    text = SPEC + "layout { tp = 4, pp = 4, zero = 1 }\n"
    (scenario,) = parcost.load_text(text + "schedule { kind = interleaved, chunks = 4 }\n")
    (best,) = search(space(scenario, {}, ["gradients", "parameters"]), SearchRequest()).best
    assert best.values == {"overlap.gradients": "on", "overlap.parameters": "on"}
    outcome = scenario.replace(best.values).evaluate().result.outcome
    assert outcome is not None
    assert outcome.step_seconds == pytest.approx(best.seconds, rel=1e-12)
