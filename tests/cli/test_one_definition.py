"""A figure has one name and one value in every format, and none is dropped without a word."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import parcost

Run = Callable[..., Any]
PIPELINE = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
"""
RUN = PIPELINE + "run { tokens = 15 T tokens }\n"
PAID = RUN + "price { device_hour = 2 USD/h }\nenergy { intensity = 400 g/kWh }\n"
#: Five warnings: one of the network, and four of attributes that nothing reads.
WARNED = (
    PIPELINE.replace("tp = 2, pp = 4", "tp = 16, ep = 1")
    + """\
schedule { kind = one_f_one_b }
context { algorithm = ulysses, double_buffer = on }
routing { imbalance = 1.5 }
datacenter { pue = 1.2 }
"""
)


@pytest.mark.slow
def test_the_bubble_is_one_number_in_every_format(run_command: Run) -> None:
    def out(*arguments: str) -> str:
        return str(run_command(*arguments, a=PIPELINE).out)

    (scenario,) = parcost.load_text(PIPELINE)
    result = scenario.evaluate().result
    assert result.outcome is not None
    idle = sum(line.exposed for line in result.outcome.ledger if line.kind == "bubble")
    bubble = idle / result.outcome.step_seconds
    assert result.figure("bubble") == pytest.approx(bubble, rel=1e-12)
    assert 0.01 < bubble < 0.5
    written = f"{100 * bubble:.4g} %"
    screen = out("eval", "a.par")
    (headline,) = re.findall(r"^  pipeline bubble +([\d.]+ %)  of the step$", screen, re.MULTILINE)
    assert headline == written
    (share,) = re.findall(r"^  pipeline bubble +[\d.]+ m?s +([\d.]+) %", screen, re.MULTILINE)
    assert float(share) == pytest.approx(100 * bubble, abs=0.05)
    for arguments in (["--figures", "bubble"], ["--full"], ["--format", "md"]):
        assert written in out("eval", "a.par", *arguments)
    assert written in out("figures", "a.par", "bubble")
    assert f"{100 * bubble:.6g} %" in out("explain", "a.par", "bubble")
    (row,) = csv.DictReader(io.StringIO(out("eval", "a.par", "--format", "csv")))
    assert float(row["bubble_fraction"]) == pytest.approx(bubble)
    (report,) = json.loads(out("eval", "a.par", "--format", "json"))["reports"]
    assert report["results"][0]["figures"]["bubble_fraction"]["value"] == pytest.approx(bubble)
    assert f"{100 * bubble:.4g}" in scenario.evaluate()._repr_html_()


@pytest.mark.slow
def test_many_warnings_leave_the_split_by_cause(run_command: Run) -> None:
    done = run_command("eval", "a.par", a=WARNED)
    assert done.out.count("warning: ") == 3
    assert "more warning" in done.out
    assert len(done.out.splitlines()) <= 44
    split = done.out.partition("Step time by cause")[2].partition("Peak memory")[0]
    assert len(re.findall(r"^  \S.*? +[\d.,]+ m?s +[\d.]+ %", split, re.MULTILINE)) == 3
    (more,) = re.findall(r"^  (\d) more warnings?: --warnings$", done.out, re.MULTILINE)
    everything = run_command("eval", "a.par", "--warnings", a=WARNED).out
    assert everything.count("warning: ") == 3 + int(more)
    assert "`context.algorithm` has no effect" in everything.replace("\n ", "")


@pytest.mark.slow
def test_chosen_figures_stand_alone(run_command: Run) -> None:
    out = run_command("eval", "a.par", "--figures", "mfu,bubble", a=PIPELINE).out
    assert re.search(r"MFU .*\n +pipeline bubble", out)
    for part in ("by cause", "Peak memory", "Levers", "###"):
        assert part not in out


@pytest.mark.slow
def test_days_cost_energy_and_carbon_stand_on_the_screen(run_command: Run) -> None:
    (scenario,) = parcost.load_text(PAID)
    result = scenario.evaluate().result
    out = run_command("eval", "a.par", a=PAID).out
    days = 15e12 / result.figure("tokens_per_second") / 86400
    length = re.search(r"training time +([\d.,]+) day", out)[1]  # type: ignore[index]
    assert float(length.replace(",", "")) == pytest.approx(days, rel=1e-3)
    cost = re.search(r"training cost +([\d,]+) USD", out)[1]  # type: ignore[index]
    assert float(cost.replace(",", "")) == pytest.approx(16 * 2 * 24 * days, rel=1e-3)
    assert re.search(r"training energy +[\d.,]+ [MG]Wh", out)
    assert re.search(r"CO2 emissions +[\d.,]+ kg", out)
    bare = run_command("eval", "a.par", a=PIPELINE).out
    assert "training time" not in bare


@pytest.mark.slow
@pytest.mark.parametrize(
    "names, text, said",
    [
        (
            ("mfu", "energy"),
            RUN,
            "the figure `energy` is not available in this study: it needs `energy { }`",
        ),
        (("energy", "mfu"), PIPELINE, "needs `run { tokens = 15 T tokens }` and `energy { }`"),
        (("cost", "mfu"), RUN, "it needs `price { device_hour = 2.50 USD/h }`"),
        (("carbon", "mfu"), RUN + "energy { }\n", "needs `energy { intensity = 400 g/kWh }`"),
        (("mfuu", "mfu"), PIPELINE, "no figure is called `mfuu`; did you mean `mfu`?"),
        (("nothing*", "mfu"), PIPELINE, "no figure matches `nothing*`"),
    ],
)
def test_no_name_is_dropped(run_command: Run, names: tuple[str, ...], text: str, said: str) -> None:
    done = run_command("figures", "a.par", *names, a=text)
    assert done.code == 2
    assert re.search(r"^ +mfu +[\d.]+ %", done.out, re.MULTILINE)
    assert said in " ".join(done.err.split())
    if "*" not in said:
        done = run_command("eval", "a.par", "--figures", ",".join(names), a=text)
        assert done.code == 2
        assert said in " ".join(done.err.split())
        swept = text.replace("tp = 2", "tp = [1, 2]")
        done = run_command("eval", "a.par", "--figures", ",".join(names), a=swept)
        assert done.code == 2
        assert said in " ".join(done.err.split())


@pytest.mark.slow
def test_a_claim_says_what_its_figure_needs(run_command: Run) -> None:
    done = run_command("eval", "a.par", a=RUN + "expect { energy <= 1 MWh }\n")
    assert done.code == 2
    assert "the figure `energy` is not available in this study: it needs `energy { }`" in done.err


@pytest.mark.slow
def test_a_sweep_has_no_single_result() -> None:
    text = PIPELINE + "schedule { kind = [gpipe, one_f_one_b] }\n"
    (scenario,) = parcost.load_text(text)
    report = scenario.evaluate()
    with pytest.raises(ValueError, match=r"sweeps `schedule.kind` and has 2 results: use"):
        _ = report.result
    (plain,) = parcost.load_text(PIPELINE)
    with pytest.raises(KeyError, match=r"it needs `run"):
        plain.evaluate().result.figure("days")


LABELS = r"^  (\S.*?)  +(?:[\d.,-]+ (?:m?s|%|[KMGT]?iB)|[\d.,]+(?: |$))"


@pytest.mark.slow
def test_every_word_of_the_screen_can_be_explained(run_command: Run) -> None:
    text = PAID.replace("cluster  { devices = 16 }", "cluster  { devices = 32 }")
    screen = run_command("eval", "a.par", a=text).out
    labels = re.findall(LABELS, screen, re.MULTILINE)
    headings = re.findall(r"^([A-Z][\w ]+?)(?: \(.*\))?$", screen, re.MULTILINE)
    causes = {"TP communication", "pipeline send/recv", "pipeline bubble"}
    assert {"compute", "activations", "weights", "training cost", *causes} <= set(labels)
    assert {"Step time by cause", "Peak memory", "Levers"} <= set(headings)
    named = [label for label in labels if label != "other"]  # a sum of small causes
    for label in [*named, *headings, "DP communication", "tensor", "data", "hops"]:
        done = run_command("explain", "a.par", label, a=text)
        assert (done.code, done.err) == (0, ""), label


def test_the_terms_of_a_cause_add_up_to_it(run_command: Run) -> None:
    out = run_command("explain", "a.par", "tensor", a=PIPELINE).out
    (total,) = re.findall(r"value +([\d.]+) ms", out)
    parts = re.findall(r" ([\d.]+) (ms|us) +[\d.]+ %$", out, re.MULTILINE)
    assert len(parts) >= 4
    in_ms = sum(float(n) / (1 if unit == "ms" else 1000) for n, unit in parts)
    assert in_ms == pytest.approx(float(total), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "term, said",
    [
        ("TP comunication", "did you mean `TP communication`"),
        ("activtions", "did you mean `activations`"),
        ("energy", "the figure `energy` is not available in this study: it needs `run"),
    ],
)
def test_a_near_miss_is_suggested(run_command: Run, term: str, said: str) -> None:
    done = run_command("explain", "a.par", term, a=PIPELINE)
    assert done.code == 2
    assert said in " ".join(done.err.split())
