"""Days, device-hours, money, energy and carbon dioxide of a run."""

from __future__ import annotations

import pytest

import parcost
from parcost_plugins.vocabulary import Datacenter

from ..evaluation import result

JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences }
"""


# Device-hours and tokens as published, and the days on so many devices.
@pytest.mark.parametrize(
    ("hours", "devices", "days"),
    [(82_432, 1000, 3.434666667), (530_432, 1000, 22.10133333), (1_022_362, 2048, 20.80000814)],
)
def test_published_device_hours_are_days_on_a_number_of_devices(
    hours: int, devices: int, days: float
) -> None:
    found = result(f"run {{ tokens = 1.4 T tokens, device_time = {hours} h, devices = {devices} }}")
    assert found.figure("days") / 86400 == pytest.approx(days, rel=1e-9)
    assert found.figure("gpu_hours") / 3600 == pytest.approx(hours)


def test_llama_65b_took_twenty_one_days_at_its_published_speed() -> None:
    found = result("run { tokens = 1.4 T tokens, speed = 380 tokens, devices = 2048 }")
    assert found.figure("days") / 86400 == pytest.approx(1.4e12 / (380 * 2048) / 86400)
    assert found.figure("days") / 86400 == pytest.approx(20.8, abs=0.05)


def test_deepseek_v2_cost_under_three_million_dollars() -> None:
    text = """
    run { tokens = 8.1 T tokens, device_time = 172.8 K * 8.1 * 1 h, devices = 2048 }
    price { device_hour = 2 USD/h }
    """
    found = result(text)
    assert found.figure("cost") == pytest.approx(2.79936e6)
    assert found.figure("cost_per_million_tokens") == pytest.approx(2.79936e6 / 8.1e6)


def test_a_run_of_steps_takes_tokens_over_tokens_per_second() -> None:
    found = result(JOB + "run { tokens = 1 T tokens }")
    seconds = 1e12 / found.figure("tokens_per_second")
    assert found.figure("days") == pytest.approx(seconds)
    assert found.figure("gpu_hours") == pytest.approx(64 * seconds)


@pytest.mark.slow
def test_failures_and_checkpoints_make_a_run_longer_and_dearer() -> None:
    text = JOB + "run { tokens = 1 T tokens }\nprice { device_hour = 2.50 USD/h }\n"
    ideal = result(text)
    real = result(
        text
        + "reliability { restart = 20 min, device_mtbf = 10_000 h }\n"
        + "checkpoint { blocking = 60 s }"
    )
    share = real.figure("goodput")
    assert 0.5 < share < 1.0
    assert real.figure("step_time") == ideal.figure("step_time")
    for name in ("days", "gpu_hours", "cost", "cost_per_million_tokens"):
        assert real.figure(name) == pytest.approx(ideal.figure(name) / share)
    assert real.figure("effective_tokens_per_second") == pytest.approx(
        share * ideal.figure("tokens_per_second")
    )


def test_a_price_alone_gives_the_cost_of_a_million_tokens() -> None:
    found = result(JOB + "price { device_hour = 2.50 USD/h }")
    per_second = 64 * 2.50 / 3600
    assert found.figure("cost_per_million_tokens") == pytest.approx(
        per_second / found.figure("tokens_per_second") * 1e6
    )
    with pytest.raises(KeyError):
        found.figure("cost")


def test_energy_counts_idling_hosts_and_cooling() -> None:
    text = """
    run { tokens = 1 T tokens, device_time = 100_000 h, devices = 500 }
    energy {
      power = 700 W, activity = 80 %, idle_power = 10 %, host_power = 1.35, pue = 1.2
      intensity = 400 g/kWh
    }
    """
    found = result(text)
    drawn = 700 * (0.1 + 0.9 * 0.8) * 1.35 * 1.2  # 929.9 W for each device
    joules = drawn * 100_000 * 3600
    assert found.figure("energy") == pytest.approx(joules)
    assert found.figure("carbon") == pytest.approx(joules / 3.6e6 * 400)
    assert found.figure("site_power") == pytest.approx(500 * drawn)
    assert found.figure("energy_per_million_tokens") == pytest.approx(joules / 1e6)


def test_customary_shares_stand_in_where_none_are_given() -> None:
    found = result(JOB + "run { tokens = 1 T tokens }\nenergy { }")
    busy = sum(line.exposed for line in found.outcome.ledger if line.resource in ("compute", "hbm"))
    assert found.outcome.kernel_seconds == [pytest.approx(busy)]
    share = busy / found.figure("step_time")
    assert 0.5 < share < 1.0
    drawn = 64 * 700 * (0.1 + 0.9 * (0.8 * share + 0.4 * (1 - share))) * 1.35 * 1.2
    assert found.figure("site_power") == pytest.approx(drawn)
    assert found.figure("energy") == pytest.approx(drawn * found.figure("days"))
    with pytest.raises(KeyError):
        found.figure("carbon")


@pytest.mark.slow
def test_devices_of_a_pipeline_draw_the_power_of_the_same_work() -> None:
    """The head makes the last of 4 stages longer, which the power of one device must not show."""

    def kernel_seconds(degrees: str) -> float:  # of all devices in a step, by the power
        found = result(JOB.replace("tp = 2", degrees) + "energy { }")
        activity = (found.figure("site_power") / (64 * 700 * 1.35 * 1.2) - 0.1) / 0.9
        return (activity - 0.4) / 0.4 * found.figure("step_time") * 64

    assert kernel_seconds("tp = 2, pp = 4") == pytest.approx(kernel_seconds("tp = 2"), rel=0.02)


@pytest.mark.slow
def test_a_slower_network_draws_less_power_and_takes_more_energy() -> None:
    text = JOB + "run { tokens = 1 T tokens }\nenergy { }\n"
    slow = text.replace("devices = 64", "devices = 64, fabric = slow").replace(
        "cluster {",
        "fabric slow extends hgx_h100 { level node { bandwidth = 20 GB/s per_direction } }\ncluster {",
    )
    fast, found = result(text), result(slow)
    assert found.figure("step_time") > fast.figure("step_time")
    assert found.figure("site_power") < fast.figure("site_power")
    assert found.figure("energy") > fast.figure("energy")


def test_a_site_may_state_its_own_overheads_once() -> None:
    text = JOB + "run { tokens = 1 T tokens }\nenergy { }\n"
    plain = result(text).figure("energy")
    better = result(text + "datacenter { pue = 1.08 }").figure("energy")
    assert better == pytest.approx(plain * 1.08 / 1.2)


def test_figures_of_a_run_need_its_block() -> None:
    names = {figure.name for _, figure in result(JOB).figures}
    assert not names & {"days", "gpu_hours", "cost", "cost_per_million_tokens", "energy", "goodput"}


@pytest.mark.slow
def test_a_sweep_of_devices_gives_what_each_point_gives_alone() -> None:
    more = "run { tokens = 1 T tokens }\nprice { device_hour = 2 USD/h }\n"
    more += "reliability { restart = 5 min }\ncheckpoint { storage = 50 GB/s }\nenergy { }\n"
    text = JOB + more
    swept = parcost.load_text(text.replace("devices = 64", "devices = [16, 64, 128]"))
    rows = swept[0].evaluate().rows()
    for devices, row in zip((16, 64, 128), rows, strict=True):
        alone = result(text.replace("devices = 64", f"devices = {devices}"))
        for name in ("days", "cost", "energy", "goodput"):
            assert row[name] == pytest.approx(alone.figure(name), rel=1e-12)


def test_what_is_assumed_of_a_site_says_where_it_comes_from() -> None:
    (study,) = parcost.load_text("use catalog.devices.h100_sxm\n")[0].studies()
    site = study[Datacenter]
    origins = {n: study.origin(site, n) for n in type(site).__block__.fields}
    assert all(o is not None and o.kind and o.source for o in origins.values())
    assert site.device_mtbf == 50_000 * 3600
    assert (site.pue, site.host_power) == (1.2, 1.35)
