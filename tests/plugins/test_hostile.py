"""What a hostile tester found, kept found."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Check, Edge, Figure, Formula, PluginError, Schedule, SpecError, Work, hookimpl
from parcost.plugins.discovery import load
from parcost_plugins.vocabulary import LinkSheet

pytestmark = pytest.mark.slow

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { pp = 2, zero = 0 }
training { sequence = 8192, global_batch = 64 sequences }
"""


def ids(text: str, *plugins: tuple[str, Any]) -> list[str]:
    session = parcost.Session(load(*plugins))
    try:
        report = session.load_text(text)[0].evaluate()
    except SpecError as error:
        return [d.id for d in error.diagnostics]
    return [d.id for d in report.diagnostics]


def test_a_sweep_that_leaves_memory_alone_fits_no_better_than_its_points() -> None:
    assert ids(SPEC) == ["does-not-fit"]
    report = parcost.load_text(SPEC + "overlap { chunk_overhead = [1 us, 2 us] }\n")[0].evaluate()
    assert [row["feasible"] for row in report.rows()] == [False, False]
    assert report.exit_code == 1


def test_a_verdict_that_fails_says_nothing_good() -> None:
    def broken() -> list[Check]:
        raise ValueError("no verdict")

    plugin = ("judge", SimpleNamespace(outcome_checks=hookimpl(broken)))
    session = parcost.Session(load(plugin))
    report = session.load_text(SPEC.replace("zero = 0", "zero = 1, tp = 8"))[0].evaluate()
    assert report.exit_code == 3
    assert not report.rows()[0]["feasible"]


@pytest.mark.parametrize(
    "name",
    [
        "kernels { gemm_efficiency = 0 }",
        "kernels { shape_efficiency = 0 % }",
        "device other extends h100_sxm { bf16 = 0 TFLOPS dense }",
        "device other extends h100_sxm { memory_efficiency = 0 }",
    ],
)
def test_what_divides_may_not_be_nothing(name: str) -> None:
    text = SPEC.replace("cluster {", "cluster { device = h100_sxm,") + name + "\n"
    assert "out-of-range" in ids(text)


def test_time_without_end_is_refused_and_not_dropped() -> None:
    huge = "term x { seconds = 1e20 s }\nterm y { seconds = 1e20 s }\n"
    assert "cannot-run" in ids(SPEC + huge)

    def edge() -> list[Edge]:
        return [Edge(name="long", seconds=float("inf"), formula=Formula(text="?"))]

    assert "cannot-run" in ids(SPEC, ("far", SimpleNamespace(terms=hookimpl(edge))))


@pytest.mark.parametrize("name", ["slowdown", "share"])
def test_no_number_of_a_term_is_negative(name: str) -> None:
    def gain() -> list[Work]:
        more: dict[str, Any] = {name: -1.0}
        formula = Formula(text="?")
        return [Work(name="gain", seconds=1.0, pass_="F", window="", formula=formula, **more)]

    session = parcost.Session(load(("gain", SimpleNamespace(terms=hookimpl(gain)))))
    (fault,) = session.load_text(SPEC)[0].evaluate().result.faults
    assert fault.message.startswith(f"gave the term `gain` {name} = -1.0")


def test_an_unprintable_error_is_printed_by_its_type() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def broken() -> list[Work]:
        raise SilentError

    session = parcost.Session(load(("silent", SimpleNamespace(terms=hookimpl(broken)))))
    (fault,) = session.load_text(SPEC)[0].evaluate().result.faults
    assert fault.message == "raised SilentError"


def test_an_error_of_several_lines_is_printed_in_one() -> None:
    def broken() -> list[Work]:
        raise ValueError("no\nTraceback (most recent call last):\n\n  way")

    session = parcost.Session(load(("long", SimpleNamespace(terms=hookimpl(broken)))))
    (fault,) = session.load_text(SPEC)[0].evaluate().result.faults
    assert fault.message == "raised ValueError: no Traceback (most recent call last): way"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("termz", "did you mean `terms`"),
        *((name, "Versions of the contract") for name in ("verdicts", "details", "views")),
    ],
)
def test_a_hook_that_parcost_does_not_ask_for_is_named(name: str, hint: str) -> None:

    def odd() -> list[Work]:
        return []

    plugin = SimpleNamespace(**{name: hookimpl(odd)})
    (scenario,) = parcost.Session(load(("odd", plugin))).load_text(SPEC)
    (fault,) = scenario.evaluate().result.faults
    said = f"plugin `odd` failed in `{name}`: marks `{name}` as a hook, but there is no such hook; "
    assert str(fault).startswith(said)
    assert hint in str(fault)


def test_a_non_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.par")
    (tmp_path / "a.par").symlink_to(tmp_path / "b.par")
    (tmp_path / "b.par").symlink_to(tmp_path / "a.par")
    spec = tmp_path / "spec.par"
    for target in ("pipe.par", "a.par", "nul\0l.par", "n" * 300 + ".par"):
        spec.write_text(f'use "{target}"\n')
        with pytest.raises(SpecError) as caught:
            parcost.load(spec)[0].evaluate()
        assert caught.value.diagnostics[0].id in ("unreadable-file", "missing-file")


def test_blocks_extend_one_another_only_so_deep() -> None:
    chain = "device d0 extends h100_sxm {}\n"
    chain += "".join(f"device d{i} extends d{i - 1} {{}}\n" for i in range(1, 2000))
    assert "nesting-too-deep" in ids(SPEC + chain)


def test_a_sweep_holds_no_lists() -> None:
    assert ids(SPEC + "overlap { chunk_overhead = [[1 us, 2 us], [3 us]] }\n") == ["wrong-kind"]


def test_a_schedule_whose_closed_form_fails_is_named() -> None:
    class Hasty(Schedule):
        name = "hasty"

        def order(self, stages: int, micro_batches: int, chunks: int) -> Any:
            raise NotImplementedError

        def closed_form(self, *_: Any) -> Any:
            raise ZeroDivisionError("no time at all")

    hasty = Hasty()

    def schedules() -> list[Any]:
        return [hasty]

    plugin = ("hasty", SimpleNamespace(schedules=hookimpl(schedules)))
    text = SPEC.replace("zero = 0", "zero = 1, tp = 8") + "schedule { kind = hasty }\n"
    with pytest.raises(PluginError, match=r"plugin `hasty` failed in `schedules`: "):
        ids(text, plugin)


def undefined(study: parcost.Study) -> list[Figure]:
    """Give a figure that is not a number where a swept bandwidth is small."""
    (link,) = study.all(LinkSheet)
    value = np.where(np.asarray(link.bandwidth) < 10, np.nan, 1.0)
    formula = Formula(text="0 / 0")
    return [Figure(name="link.odd", title="odd", value=value[()], unit="", formula=formula)]


UNDEFINED = ("odd", SimpleNamespace(calculations=hookimpl(undefined)))


def test_an_uncomputable_value_is_refused_at_its_read() -> None:
    text = "link wire { bandwidth = 1 B/s per_direction }\n"
    (result,) = parcost.Session(load(UNDEFINED)).load_text(text)[0].evaluate().results
    (said,) = result.diagnostics
    assert said.id == "not-a-number"
    assert said.message.startswith("`link.odd` cannot be computed")


def test_points_that_cannot_be_computed_are_left_out_of_a_sweep() -> None:
    text = "link wire { bandwidth = [1 B/s, 20 B/s] per_direction }\n"
    rows = parcost.Session(load(UNDEFINED)).load_text(text)[0].evaluate().rows()
    assert [row["feasible"] for row in rows] == [False, True]
    assert rows[1]["link.odd"] == 1.0


@pytest.mark.parametrize("rate", ["memory_bandwidth", "reduction_bandwidth"])
def test_a_rate_of_next_to_nothing_takes_for_ever_wherever_it_stands(rate: str) -> None:
    slow = SPEC.replace("zero = 0", "tp = 8")
    slow = slow.replace("cluster {", "cluster { device = other,")
    other = f"device other extends h100_sxm {{ {rate} = 1e-20 B/s }}\n"
    other += "collectives { tensor = ring_simple }\n"  # the ranks add, and not a switch
    assert ids(slow + other) == ["cannot-run"]


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ("adapters { rank = 8, weights = 1e30 B }", "weights = 1e30 B", "no finite time for"),
        (
            "device other extends h100_sxm { memory_bandwidth = 1e-9 B/s }",
            "memory_bandwidth = 1e-9 B/s",
            "no finite time for",
        ),
    ],
)
def test_a_value_out_of_proportion_is_named_at_its_place(
    changes: str, place: str, message: str
) -> None:
    text = SPEC.replace("cluster {", "cluster { device = other,") if "other" in changes else SPEC
    (said,) = parcost.load_text(f"{text}\n{changes}\n")[0].evaluate().diagnostics
    assert (said.id, said.labels[0].span.text) == ("cannot-run", place)
    assert said.message.startswith(message)
    assert f"{place.partition(' ')[0]}` is out of proportion" in said.message


def test_points_that_take_for_ever_leave_those_that_end() -> None:
    text = SPEC.replace("zero = 0", "tp = 8")
    text = text.replace("cluster {", "cluster { device = other,")
    other = "device other extends h100_sxm { memory_bandwidth = [1e-20 B/s, 3 TB/s] }\n"
    report = parcost.load_text(text + other)[0].evaluate()
    never, ends = report.rows()
    assert not never["feasible"]
    assert "no finite time for" in never["reason"]
    alone = text + other.replace("[1e-20 B/s, 3 TB/s]", "3 TB/s")
    assert ends["step_time"] == parcost.load_text(alone)[0].evaluate().result.figure("step_time")


LINK = "bandwidth = 1 GB/s per_direction"
SUM = "operation = all_reduce, size = 1 MB total, ranks = 4"


@pytest.mark.parametrize(
    "text, id_, under",
    [
        ("precision none extends bf16 { reduction = 0 B }", "out-of-range", "0 B"),
        ("precision none extends bf16 { activation = 0 B }", "out-of-range", "0 B"),
        (
            "device none extends h100_sxm { host_bandwidth = 0 GB/s per_direction }",
            "out-of-range",
            "0 GB/s",
        ),
        ("schedule { stages = [] }", "empty-list", "[]"),
        ("schedule { stages = [16, -16] }", "out-of-range", "-16"),
        ("training { documents = [0, 8192] }", "out-of-range", "0"),
        ("overlap { bucket = 1e-300 B }", "out-of-range", "1e-300 B"),
        ("placement p { groups = 1, local_share = 50 % }", "out-of-range", "1"),
        ("routing { distribution = measured, loads = [] }", "empty-list", "[]"),
        (
            f"network n {{ kind = torus, devices = 4, {LINK}, dimensions = [0, 4] }}",
            "out-of-range",
            "0",
        ),
        (f"transfer t {{ {SUM}, kind = torus, {LINK}, dimensions = 0 }}", "out-of-range", "0"),
    ],
)
def test_nothing_is_refused_where_it_was_written(text: str, id_: str, under: str) -> None:
    spec = SPEC.replace("training {", "training { precision = bf16,")
    spec = spec.replace("cluster {", "cluster { device = h100_sxm,")
    with pytest.raises(SpecError) as caught:
        parcost.load_text(spec + f"study one {{\n{text}\n}}\n")[0].evaluate()
    (said,) = caught.value.diagnostics
    assert (said.id, said.labels[0].span.text) == (id_, under)


def test_loads_of_nothing_are_a_rule_and_no_fault() -> None:
    text = SPEC.replace("llama3_8b", "mixtral_8x7b").replace("zero = 0", "zero = 1, ep = 8")
    text += "routing { distribution = measured, loads = [0, 0, 0, 0, 0, 0, 0, 0] }\n"
    report = parcost.load_text(text)[0].evaluate()
    assert "loads-count" in [d.id for d in report.diagnostics]
    assert report.exit_code == 1


def test_a_claim_about_a_figure_of_a_faulty_plugin_names_the_plugin() -> None:
    def broken(brief: bool) -> list[Any]:  # noqa: ARG001
        raise ZeroDivisionError("division by zero")

    session = parcost.Session(load(("mine", SimpleNamespace(figures=hookimpl(broken)))))
    text = SPEC + "expect { my_figure = 1 +- 1 % }\n"
    with pytest.raises(SpecError) as caught:
        session.load_text(text)[0].evaluate()
    (said,) = caught.value.diagnostics
    assert said.notes == ("plugin `mine` raised ZeroDivisionError: division by zero in `figures`",)


def test_a_run_that_makes_no_progress_never_ends() -> None:
    text = SPEC.replace("zero = 0", "tp = 8") + "run { tokens = 1e12 }\n"
    text += "reliability { mtbf = 1 day, restart = 1 min, lost = 100 % }\n"
    text += "checkpoint { interval = 1 h, blocking = 10 s }\n"
    result = parcost.load_text(text)[0].evaluate().result
    assert not result.faults
    assert (result.figure("goodput"), result.figure("days")) == (0, float("inf"))
