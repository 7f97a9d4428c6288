"""The lessons: each command prints what its page shows, and hand calculations give the numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import parcost

from ..rows import try_each

START = Path(__file__).parents[2] / "docs" / "start"
SPECS = START / "specs"
INDEX = (START / "index.md").read_text(encoding="utf-8")
LESSONS = re.findall(r"^\d+\. \[[^]]+\]\((\w+)\.md\)", INDEX, re.MULTILINE)
_PARTS = ("Run it", "Exercise", "Read next")
_RUN = re.compile(
    r"^```sh\n(?P<command>.*?)\n```\n\n```text\n(?P<output>.*?)^```$", re.DOTALL | re.MULTILINE
)


class Example(NamedTuple):
    """A command of a lesson, and the output that the page shows below it."""

    lesson: str
    command: str
    output: str


def text_of(lesson: str) -> str:
    return (START / f"{lesson}.md").read_text(encoding="utf-8")


def examples() -> list[Example]:
    return [
        Example(lesson, match["command"], match["output"])
        for lesson in LESSONS
        for match in _RUN.finditer(text_of(lesson))
    ]


def test_there_are_ten_lessons_and_each_leads_to_the_next() -> None:
    assert len(LESSONS) == 10
    assert {path.stem for path in START.glob("*.md")} == {*LESSONS, "index", "glossary"}
    for lesson, after in pairwise(LESSONS):
        assert f"({after}.md" in text_of(lesson).partition("## Read next")[2]


@try_each("lesson", LESSONS)
def test_a_lesson_is_a_page_with_a_spec_an_exercise_and_its_answer(lesson: str) -> None:
    text = text_of(lesson)
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == _PARTS
    assert text.count("<summary>Answer</summary>") == 1
    assert f"(specs/{lesson}.par)" in text
    assert "(glossary.md#" in text
    assert len(text.splitlines()) <= 120
    run, exercise, _ = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for part in (run, exercise):
        assert f"{lesson}.par" in "".join(match["command"] for match in _RUN.finditer(part))


@pytest.mark.slow
@pytest.mark.parametrize("example", examples(), ids=lambda example: example.command)
def test_a_command_of_a_lesson_prints_what_its_page_shows(
    example: Example,
    print_output: Callable[[str, Path, str], str],
    request: pytest.FixtureRequest,
) -> None:
    assert shlex.split(example.command)[0] == "parcost"
    printed = print_output(example.command, SPECS, example.output)
    if request.config.getoption("update"):
        before = f"```sh\n{example.command}\n```\n\n```text\n"
        text = text_of(example.lesson).replace(before + example.output, before + printed)
        (START / f"{example.lesson}.md").write_text(text, encoding="utf-8")
    assert example.output == printed


def figure(lesson: str, name: str, **overrides: str) -> float:
    values = {name.replace("__", "."): value for name, value in overrides.items()}
    (scenario,) = parcost.load(SPECS / f"{lesson}.par", overrides=values)
    return float(scenario.evaluate().result.figure(name))


def ring(messages: int, size: float, ranks: int, bandwidth: float, latency: float) -> float:
    """Return the seconds of *messages* passes over a ring: P - 1 steps, (P - 1) / P of *size*."""
    share = (ranks - 1) / ranks
    return messages * (ranks - 1) * latency + share * size * messages / bandwidth


def test_roofline_ridges_are_the_peak_over_the_bandwidth() -> None:
    assert figure("roofline", "h100.memory") == pytest.approx(989e12 / 3.35e12, rel=1e-3)
    assert figure("roofline", "h100.node") == pytest.approx(989e12 / (450e9 * 0.82), rel=1e-3)
    assert figure("roofline", "h100.network") == pytest.approx(989e12 / (50e9 * 0.9), rel=1e-3)
    narrow = figure("roofline", "h100.memory", h100__compute="fp8")
    assert 1.5 * narrow == pytest.approx(886, abs=0.5)  # of 2 n / 3 FLOP/B


@pytest.mark.slow
def test_memory_is_that_of_korthikanti_without_masks_of_dropout() -> None:
    s, h, t, heads = 2048, 12288, 8, 96
    layer = 12 * h * h + 13 * h
    held = 6 * layer / t + 51_200 * h / t + s * h
    assert figure("memory", "state_memory") == pytest.approx(18 * held, rel=1e-3)
    statistics = 4 * s * heads / t
    each = figure("memory", "activation_memory_per_layer")
    assert each == pytest.approx(32 * s * h / t + statistics, rel=1e-6)
    alone = {"layout__sequence_parallel": "off"}
    each = figure("memory", "activation_memory_per_layer", **alone)
    assert each == pytest.approx(11 * s * h + statistics, rel=1e-6)


@pytest.mark.slow
def test_tensor_parallel_sums_are_those_of_a_ring() -> None:
    message = 8192 * 4096 * 2.0
    assert figure("tensor", "tp_volume") == pytest.approx(1024 * 2 * 7 / 8 * message, rel=1e-6)
    halves = 2 * (1024 + 2 * 8)  # an all-reduce is two passes; the ends of the model add two
    wide = ring(halves, message, 8, 369e9, 3.4e-6)
    loss = ring(2 * 3 * 8, 8192 * 4.0, 8, 369e9, 3.4e-6)
    assert figure("tensor", "tp_seconds") == pytest.approx(wide + loss, rel=1e-3)
    fewer = figure("tensor", "tp_volume", layout__tp="4")
    assert fewer == pytest.approx(512 * 2 * 3 / 4 * message, rel=1e-6)


def test_pipeline_idles_for_p_minus_1_of_m_plus_p_minus_1_passes() -> None:
    assert figure("pipeline", "mine.step_time") == pytest.approx(11 * 3e-3)
    assert figure("pipeline", "mine.bubble") == pytest.approx(3 / 11)
    fewest = figure("pipeline", "mine.fewest_micro_batches", mine__target="10 %")
    assert fewest == 27


@pytest.mark.slow
def test_zero_holds_and_sends_what_its_stage_shards() -> None:
    total, head, d = 8_030_261_248, 128_256 * 4096, 64
    for stage, each in ((1, 4 + 12 / d), (2, 2 + 14 / d), (3, 16 / d)):
        held = figure("zero", "state_memory", layout__zero=str(stage))
        assert held == pytest.approx(each * total, rel=1e-3)
    sent = 2 * (d - 1) / d
    assert figure("zero", "dp_volume", layout__zero="1") == pytest.approx(2 * sent * total)
    wanted = sent * (3 * total - head)
    assert figure("zero", "dp_volume", layout__zero="3") == pytest.approx(wanted, rel=1e-4)
    held = figure("zero", "state_memory", layout__zero="2", cluster__devices="32")
    assert held == pytest.approx((2 + 14 / 32) * total, rel=1e-3)


@pytest.mark.slow
def test_context_sends_a_block_and_works_on_it() -> None:
    block = 2 * 16_384 * 1024 * 2.0
    assert figure("context", "cp_block") == block
    assert figure("context", "cp_send") == pytest.approx(block / 369e9 + 3.4e-6)
    work = 4 * 16_384**2 * 4096 / 2 / (989e12 * 0.676)
    assert figure("context", "cp_work") == pytest.approx(work * (1 + 249 / 8192), rel=2e-3)
    apart = figure("context", "cp_send", hgx_h100__node__size="1")
    assert apart == pytest.approx(block / 45e9 + 14e-6)


@pytest.mark.slow
def test_experts_dispatch_what_leaves_the_rank() -> None:
    expert = 3 * 4096 * 14_336
    total, active = figure("experts", "parameters"), figure("experts", "active_parameters")
    assert total - active == 32 * 6 * expert
    assert total == pytest.approx(46.70e9, rel=1e-3)
    for ep in (8, 4):
        sent = figure("experts", "dispatch_bytes", layout__ep=str(ep))
        assert sent == 4096 * 2 * 4096 * 2 * (ep - 1) / ep
        assert figure("experts", "expert_tokens", layout__ep=str(ep)) == ep * 4096 * 2 / 8


@pytest.mark.slow
def test_overlap_hides_buckets_that_start_one_by_one() -> None:
    gradients = 8_030_261_248 * 4.0
    for size, buckets in (("160 MB", 201), ("320 MB", 101)):
        overrides = {"overlap__gradients": "off", "overlap__bucket": size}
        shown = figure("overlap", "communication_time", **overrides)
        start = 20 + 14 + 56 * 1.9 + 7 * 4  # us, of LL128, which has 92 % of the bandwidth
        by_hand = 63 / 64 * gradients / (0.92 * 360e9) + buckets * start * 1e-6
        assert by_hand < shown < by_hand + 2.5e-3  # parameters and the norm of the gradients
    off, on = (figure("overlap", "step_time", overlap__gradients=word) for word in ("off", "on"))
    text = text_of("overlap")
    assert f"{off * 1e3:,.0f} - {on * 1e3:,.0f} = {(off - on) * 1e3:.0f} ms" in text


def test_topology_of_two_levels_is_a_sum_over_levels() -> None:
    inside, outside = 2 * 7 / 8 * 1e9 / 450e9, 2 * 7 / 8 * 0.125e9 / 50e9
    assert figure("topology", "two_levels.seconds") == pytest.approx(inside + outside)
    leaders = inside + 8 * outside + 1e9 / 450e9
    assert figure("topology", "leaders.seconds") == pytest.approx(leaders)
    half = {"two_levels__network_bandwidth": "200 Gbps per_direction"}
    assert figure("topology", "two_levels.seconds", **half) == pytest.approx(inside + 2 * outside)


def test_the_glossary_is_in_order_and_each_term_has_a_sentence() -> None:
    text = text_of("glossary")
    terms = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert terms == sorted(terms, key=str.casefold)
    assert len(terms) >= 40
    for part in re.split(r"^### .*$", text, flags=re.MULTILINE)[1:]:
        assert part.strip().endswith(".")
