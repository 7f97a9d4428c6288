"""Power laws, batches at the ridge, devices' worth, and the slowest of many ranks."""

from __future__ import annotations

import statistics
from random import Random

import pytest

import parcost

from ..evaluation import result
from ..rows import mark_most, try_each

JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { devices = 16 }
training { sequence = 2048, micro_batch = 1, global_batch = 64 sequences }
"""


# --- power laws ---------------------------------------------------------------------------


def test_half_the_loss_takes_nine_thousand_times_the_parameters() -> None:
    found = result("scaling_law kaplan { exponent = 0.076 }")
    assert found.figure("kaplan.growth") == pytest.approx(9139.469662, rel=1e-9)


def test_sizes_are_compared_and_so_are_their_losses() -> None:
    found = result("scaling_law era { exponent = 0.076, small = 65 M, large = 1 T }")
    assert found.figure("era.size_ratio") == pytest.approx(15384.61538, rel=1e-9)
    assert found.figure("era.loss_ratio") == pytest.approx(15384.61538**-0.076, rel=1e-9)


def test_a_scale_and_a_floor_give_the_loss_itself() -> None:
    found = result(
        "scaling_law kaplan { exponent = 0.5, scale = 400, floor = 1, small = 100, large = 1600 }"
    )
    assert found.figure("kaplan.small_loss") == pytest.approx(1 + 2)
    assert found.figure("kaplan.large_loss") == pytest.approx(1 + 0.5)
    assert found.figure("kaplan.loss_ratio") == pytest.approx(0.25)


def test_a_law_that_is_almost_flat_takes_more_than_there_is() -> None:
    found = result("scaling_law flat { exponent = 1e-6 }")
    assert found.figure("flat.growth") == float("inf")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("scaling-law-size", "scaling_law l { exponent = 0.1, scale = 10 }"),
        ("scaling-law-floor", "scaling_law l { exponent = 0.1, floor = 1.69 }"),
        ("jitter-ranks-unknown", "jitter { deviation = 1 ms }"),
    ],
)
def test_a_rule_tells_what_is_missing(rule: str, text: str) -> None:
    report = parcost.load_text(text)[0].evaluate()
    assert [d.id for d in report.diagnostics] == [rule]


# --- batches ------------------------------------------------------------------------------

MACHINE = "peak = 1979 TFLOPS sparse, bandwidth = 900 GB/s bidirectional"


def test_half_the_ridge_is_half_the_efficiency_and_no_flops() -> None:
    # One sample of 1099.4 FLOP against a byte: the printed 1979 over 900, both factors of two.
    text = f"batch_scaling gpt {{ flops = 1099.4 FLOP, traffic = 1 B, {MACHINE} }}"
    found = result(text)
    assert found.figure("gpt.ridge") == pytest.approx(1979e12 / 900e9)
    assert found.figure("gpt.efficiency") == pytest.approx(0.4999797878, rel=1e-9)


def test_the_critical_batch_is_a_number_of_samples() -> None:
    # 6 N s b FLOP against 2 N gradients of 2 bytes: the parameters cancel.
    text = f"""
    let parameters = 7 G
    batch_scaling gpt {{
      flops = 6 FLOP * parameters * 2048, traffic = 4 B * parameters, batch = 32, {MACHINE}
    }}
    """
    found = result(text)
    assert found.figure("gpt.intensity") == pytest.approx(98304.0)
    assert found.figure("gpt.efficiency") == 1.0
    assert found.figure("gpt.critical_batch") == pytest.approx(0.7157841435, rel=1e-9)


@pytest.mark.slow
def test_exposed_traffic_needs_nine_times_the_critical_batch_for_ninety_percent() -> None:
    text = "batch_scaling b {{ flops = 1 TFLOP, traffic = 1 GB, batch = {batch}, {machine} }}"
    machine = "peak = 100 TFLOPS dense, bandwidth = 10 GB/s per_direction"
    found = result(text.format(batch=1, machine=machine))
    assert found.figure("b.critical_batch") == pytest.approx(10)
    assert found.figure("b.batch_for_target") == pytest.approx(9)
    assert found.figure("b.batch_for_target_exposed") == pytest.approx(90)
    there = result(text.format(batch=90, machine=machine))
    assert there.figure("b.efficiency_exposed") == pytest.approx(0.9)
    assert there.figure("b.efficiency") == 1.0
    whole = result(text.format(batch=1, machine=f"{machine}, target = 100 %"))
    assert whole.figure("b.batch_for_target_exposed") == float("inf")


def test_no_batch_hides_traffic_that_hides_under_nothing() -> None:
    text = "batch_scaling b { flops = 1 TFLOP, traffic = 1 GB, target = 1, peak = 1 PFLOPS dense"
    found = result(text + ", bandwidth = 1 GB/s per_direction }")
    assert found.figure("b.batch_for_target_exposed") == float("inf")


# --- devices ------------------------------------------------------------------------------


def test_eighty_percent_of_256_devices_are_205() -> None:
    found = result("equivalent job { devices = 256, efficiency = 80 % }")
    assert found.figure("job.devices") == pytest.approx(204.8)
    assert found.figure("job.lost") == pytest.approx(51.2)


@try_each(
    "efficiency, word", [(85, "excellent"), (75, "very good"), (60, "fair"), (40, "a problem")]
)
def test_rules_of_thumb_name_an_efficiency(efficiency: int, word: str) -> None:
    found = result(f"equivalent job {{ devices = 8, efficiency = {efficiency} % }}")
    (note,) = [f.note for _, f in found.figures if f.name == "job.devices"]
    assert note == word


def test_a_site_may_draw_the_lines_elsewhere() -> None:
    job = "equivalent job { devices = 8, efficiency = 60 % }"
    for lines, word in (("very_good = 0.6", "very good"), ("fair = 0.65", "a problem")):
        found = result(f"{job}\ntargets {{ {lines} }}")
        (note,) = [f.note for _, f in found.figures if f.name == "job.devices"]
        assert note == word


# --- ranks that differ by chance ------------------------------------------------------------


def test_the_slowest_of_sixteen_thousand_ranks_is_four_deviations_late() -> None:
    found = result("jitter { deviation = 10 ms, ranks = 16_384 }")
    assert found.figure("jitter.deviations") == pytest.approx(4.0, abs=0.05)
    assert found.figure("jitter.seconds") == pytest.approx(0.04, abs=5e-4)


@pytest.mark.parametrize("ranks", mark_most([64, 512, 4096], 3))
def test_the_slowest_rank_is_that_of_a_simulated_step(ranks: int) -> None:
    dice = Random(3)
    trials = 40_000 // ranks + 60
    slowest = [max(dice.gauss(0, 1) for _ in range(ranks)) for _ in range(trials)]
    found = result(f"jitter {{ deviation = 1 s, ranks = {ranks} }}")
    assert found.figure("jitter.seconds") == pytest.approx(statistics.mean(slowest), rel=0.05)


def test_one_rank_has_no_wait() -> None:
    assert result("jitter { deviation = 1 s, ranks = 1 }").figure("jitter.seconds") == 0


def test_a_step_waits_for_its_slowest_rank() -> None:
    plain, uneven = result(JOB), result(JOB + "jitter { deviation = 2 ms }")
    wait = uneven.figure("jitter.seconds")
    assert wait > 0
    assert uneven.figure("step_time") == pytest.approx(plain.figure("step_time") + wait)


# --- edges ----------------------------------------------------------------------------------


def test_a_law_of_one_size_gives_its_loss_and_compares_nothing() -> None:
    found = result("scaling_law l { exponent = 0.5, scale = 400, floor = 1, small = 100 }")
    names = {figure.name for _, figure in found.figures}
    assert found.faults == ()
    assert found.figure("l.small_loss") == 3.0  # 1 + sqrt(4)
    assert not names & {"l.size_ratio", "l.loss_ratio", "l.large_loss"}


@try_each(
    "percent, word",
    [(80, "excellent"), (79, "very good"), (70, "very good"), (69, "fair"), (50, "fair")],
)
def test_an_efficiency_on_a_line_is_above_it(percent: int, word: str) -> None:
    lines = "targets { excellent = 80 %, very_good = 70 %, fair = 50 % }"
    found = result(f"equivalent job {{ devices = 8, efficiency = {percent} % }}\n{lines}")
    (note,) = [f.note for _, f in found.figures if f.name == "job.devices"]
    assert note == word


@pytest.mark.slow
def test_a_target_of_all_is_met_by_no_batch_of_a_sweep_either() -> None:
    # At the ridge of 1 FLOP/B 10 samples are critical: 9 times that for 90 %, as much for half.
    text = "batch_scaling b { flops = 1 FLOP, traffic = 10 B, target = [0.5, 0.9, 1]"
    found = result(text + ", peak = 1 TFLOPS dense, bandwidth = 1 TB/s per_direction }")
    values = found.figure("b.batch_for_target_exposed")
    assert list(values) == pytest.approx([10, 90, float("inf")])


def test_the_slower_of_two_ranks_by_the_formula_of_extremes() -> None:
    # r = 1.17741: 1.17741 - (ln ln 2 + ln 4 pi) / 2.35482 + 0.577216 / 1.17741
    found = result("jitter { deviation = 2 s, ranks = 2 }")
    assert found.figure("jitter.deviations") == pytest.approx(0.748469, abs=2e-6)
    assert found.figure("jitter.seconds") == pytest.approx(2 * 0.748469, abs=4e-6)
    (figure,) = [f for _, f in found.figures if f.name == "jitter.deviations"]
    assert figure.formula.source.startswith("Gumbel 1958")
