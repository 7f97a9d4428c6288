"""Where a rule of a run begins to hold, and what is said where little is known."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Study, plain_of
from parcost_plugins.operations import data, failures
from parcost_plugins.operations.checkpoint import checkpoint_cost
from parcost_plugins.operations.failures import daly
from parcost_plugins.operations.goodput import checkpoint_cycle, losses
from parcost_plugins.operations.resources import draw
from parcost_plugins.vocabulary import Checkpoint, Energy

from ..evaluation import faultless_result
from ..rows import try_each

CARD = """
device card {
  memory = 80 GB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}
fabric racks {
  level node { size = 8 devices, bandwidth = 1 GB/s per_direction, latency = 0 s }
  level net { bandwidth = 1 GB/s per_direction, latency = 0 s }
}
fabric wire { level net { bandwidth = 1 GB/s per_direction, latency = 0 s } }
"""


def study(text: str) -> Study:
    return parcost.load_text(text)[0].studies()[0]


def rules(text: str) -> set[str]:
    return {d.id for d in faultless_result(text).diagnostics}


def input_of(text: str, figure: str, name: str) -> Any:
    (found,) = [f for _, f in faultless_result(text).figures if f.name == figure]
    return found.formula.inputs[name][0]


# --- failures -------------------------------------------------------------------------------


def test_daly_by_hand() -> None:
    # r = C / 2 M = 1 / 16: sqrt(64) (1 + 1 / 12 + 1 / 144) - 2 = 8 x 157 / 144 - 2
    assert daly(2.0, 16.0) == pytest.approx(121 / 18, rel=1e-15)
    assert daly(200.0, 100.0) == 100.0  # and not 8 / 9 of it


def test_a_job_that_never_fails_loses_nothing_to_failures() -> None:
    found = checkpoint_cycle(study("checkpoint { blocking = 3 s, interval = 7 s }"))
    assert found is not None
    assert (found.mtbf, found.restart, found.lost, found.useful_share) == (None, 0.0, 0.0, 0.7)


def test_slow_nodes_and_many_devices_count_in_what_is_useful() -> None:
    text = "reliability { device_mtbf = 50 s, devices = 5, lost = 20 %, restart = 3 s }\n"
    found = checkpoint_cycle(study(text + "checkpoint { blocking = 2 s, interval = 8 s }"))
    assert found is not None
    assert found.mtbf == 10.0
    share = 8 / (10 * math.exp(0.3) * math.expm1(1.0))
    assert found.useful_share == pytest.approx(0.8 * share)


def test_exponents_end_where_floats_do() -> None:
    text = "reliability {{ mtbf = 1 s, restart = {} s }}\ncheckpoint {{ blocking = 1 s, interval = {} s }}"
    late = faultless_result(text.format(5000, 2)).figure("goodput")
    assert late == pytest.approx(2 / (math.exp(700) * math.expm1(3)), rel=1e-12, abs=0)
    long = faultless_result(text.format(0, 9999)).figure("goodput")
    assert long == pytest.approx(9999 / math.exp(700), rel=1e-12, abs=0)


@pytest.mark.parametrize("blocking", [200, 250])
def test_the_optimum_of_a_checkpoint_twice_as_long_as_work_lasts(blocking: int) -> None:
    text = (
        f"reliability {{ mtbf = 100 s, restart = 1 s }}\ncheckpoint {{ blocking = {blocking} s }}"
    )
    assert faultless_result(text).figure("checkpoint.daly") == 100.0


def test_papers_are_cited_by_their_years() -> None:
    assert failures.YOUNG.startswith("Young 1974")
    assert failures.DALY.startswith("Daly 2006")


def test_a_job_of_unknown_devices_has_no_time_between_failures() -> None:
    unknown = study("reliability { restart = 1 s }\ncheckpoint { blocking = 3 s, interval = 7 s }")
    names = {figure.name for figure in losses(unknown)}
    assert names == {"checkpoint.blocking", "checkpoint.interval"}


@pytest.mark.parametrize(
    ("more", "interval"),
    [
        # 500 s of writing; M = 300 s, so that Daly's interval is shorter than that
        ("storage = 10 GB/s", daly(500.0, 300.0)),
        ("storage = 10 GB/s, asynchronous = on, blocking = 500 s", 500.0),
        ("asynchronous = on, blocking = 500 s", daly(500.0, 300.0)),
    ],
)
def test_an_optimum_is_no_shorter_than_a_write_in_the_background(
    more: str, interval: float
) -> None:
    assert interval == pytest.approx(500 if interval == 500 else 265.1, abs=0.01)
    found = checkpoint_cycle(
        study(
            f"reliability {{ mtbf = 300 s, restart = 1 s }}\ncheckpoint {{ size = 5 TB, {more} }}"
        )
    )
    assert found is not None
    assert found.interval == interval


@pytest.mark.parametrize(("restart", "warned"), [(2, False), (2.5, True)])
def test_a_cycle_may_be_as_long_as_the_time_between_failures(restart: float, warned: bool) -> None:
    text = (
        f"reliability {{ mtbf = 10 s, restart = {restart} s }}\n"
        "checkpoint { blocking = 3 s, interval = 5 s }"
    )
    found = {d.id: d for d in faultless_result(text).diagnostics}
    assert ("fails-too-often" in found) is warned
    if warned:
        assert found["fails-too-often"].message == (
            "a checkpoint, the interval before it and a restart take 10.5 s, but the job fails every 10 s"
        )


# --- checkpoints ----------------------------------------------------------------------------


def checkpoint_figures(text: str) -> Any:
    of = study(text)
    return checkpoint_cost(of, of[Checkpoint])


@try_each(
    "cluster, seconds",
    [
        ("", None),  # of how many nodes, nothing says
        ("cluster { device = card, devices = 16, fabric = wire }", None),  # that has no nodes
        ("cluster { device = card, devices = 4, fabric = racks }", 7000.0),  # half a node
        ("cluster { device = card, devices = 16, fabric = racks }", 3500.0),
        ("cluster { device = card, devices = 48, fabric = racks }", 7000 / 6),
    ],
)
def test_every_node_writes_its_part(cluster: str, seconds: float | None) -> None:
    text = f"{CARD}{cluster}\ncheckpoint {{ size = 7 TB, node_bandwidth = 1 GB/s }}"
    found = checkpoint_figures(text).writing
    assert (None if found is None else plain_of(found)) == (
        None if seconds is None else pytest.approx(seconds)
    )


def test_a_copy_takes_a_shard_and_a_rate() -> None:
    copy = "asynchronous = on, size = 10 TB, {} interval = 9 s"
    for more, blocking in (
        ("shards = 5,", None),
        ("host_bandwidth = 1 GB/s,", None),
        ("shards = 5, host_bandwidth = 1 GB/s,", 2000.0),
    ):
        found = checkpoint_figures(f"checkpoint {{ {copy.format(more)} }}").blocking
        assert (None if found is None else plain_of(found)) == blocking


def test_as_many_shards_as_devices_are_no_more_than_devices() -> None:
    text = f"{CARD}cluster {{ device = card, devices = 16, fabric = racks }}\ncheckpoint {{ "
    text += "size = 1 TB, storage = 1 GB/s, interval = 1 h, shards = %d }"
    assert "checkpoint-shards" not in rules(text % 16)
    assert "checkpoint-shards" in rules(text % 17)


def test_only_a_write_in_the_background_may_last_beyond_the_next() -> None:
    text = "checkpoint { size = 10 GB, storage = 1 GB/s, blocking = 1 s, interval = %d s %s }"
    assert rules(text % (5, "")) == set()
    assert rules(text % (9, ", asynchronous = on")) == {"checkpoint-background"}
    assert rules(text % (10, ", asynchronous = on")) == set()
    assert rules("checkpoint { blocking = 1 s, interval = 5 s, asynchronous = on }") == set()


# --- data -----------------------------------------------------------------------------------

JOB = """
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { device = card, devices = 16, fabric = racks }
training { sequence = 2048, micro_batch = 1, global_batch = 64 sequences }
"""


@pytest.mark.parametrize(("step", "holds"), [(1.0, True), (0.5, False)])
def test_loaders_may_take_the_whole_step(step: float, holds: bool) -> None:
    of = study(CARD + JOB + f"data {{ rate = {2048 * 64} tokens, stall = 0.25 s }}")
    (check,) = data.loader_warning(of, SimpleNamespace(step_seconds=step))  # type: ignore[arg-type]
    assert check.holds is holds
    assert check.inputs["wait"] == 0.25 + 1.0 - step
    assert check.inputs["needed"] == 2048 * 64 / step


@pytest.mark.parametrize("more", ["stall = 1 s", "rate = 1 tokens, prefetch = off"])
def test_a_data_bound_step_has_no_starvation(more: str) -> None:
    of = study(CARD + JOB + f"data {{ {more} }}")
    assert list(data.loader_warning(of, SimpleNamespace(step_seconds=1.0))) == []  # type: ignore[arg-type]
    (wait,) = data.stall(of)
    assert wait.seconds == (1.0 if "stall" in more else 2048 * 64)


# --- what a run takes -----------------------------------------------------------------------

RUN = "run { tokens = 1 G tokens, devices = 10, %s }\n"
SAVED = "checkpoint { blocking = 20 s, interval = 80 s }\n"  # four fifths are work


def test_a_published_speed_is_that_between_checkpoints_and_device_hours_are_all() -> None:
    stepping = RUN % "speed = 1000 tokens" + SAVED
    assert faultless_result(stepping).figure("days") == pytest.approx(1e9 / 10 / 800)
    assert input_of(stepping, "effective_tokens_per_second", "speed") == pytest.approx(10_000)
    assert input_of(stepping, "effective_tokens_per_second", "goodput") == pytest.approx(0.8)
    whole = RUN % "device_time = 5000 s" + SAVED
    assert faultless_result(whole).figure("days") == pytest.approx(500)
    assert input_of(whole, "effective_tokens_per_second", "goodput") == 1.0
    assert input_of(whole, "effective_tokens_per_second", "speed") == pytest.approx(2e6)


def test_what_a_run_is_made_of_is_made_on_demand() -> None:
    text = RUN % "device_time = 5000 s" + SAVED + "price { device_hour = 2 USD/h }\n"
    text += "energy { power = 700 W, intensity = 400 g/kWh }"
    detail = {f.name: f.detail for _, f in faultless_result(text).figures}
    assert {name for name, on_demand in detail.items() if on_demand} == {
        "effective_tokens_per_second", "site_power", "energy_per_million_tokens",
    }  # fmt: skip
    assert input_of(text, "carbon", "E") == faultless_result(text).figure("energy")
    assert input_of(text, "energy", "P") == faultless_result(text).figure("site_power")


@pytest.mark.parametrize(("cap", "watts"), [("", 700), (", power_cap = 500 W", 500)])
def test_a_capped_device_draws_no_more_than_its_cap(cap: str, watts: float) -> None:
    device = CARD.replace("multiprocessors = 100", f"multiprocessors = 100, power = 700 W{cap}")
    text = f"{device}cluster {{ device = card, devices = 16, fabric = racks }}\n"
    of = study(text + "energy { activity = 50 %, idle_power = 20 %, host_power = 1.5, pue = 1.25 }")
    drawn = draw(of, of[Energy])
    assert drawn is not None
    assert plain_of(drawn) == pytest.approx(watts * 0.6 * 1.5 * 1.25)
    assert draw(study("energy { }"), study("energy { }")[Energy]) is None


SERVING = """
use catalog.models.llama32_1b
serving s {
  device = card, model = llama32_1b, compute = bf16, weights = 2 B, activation = 2 B
  context = 100, prompt = 100, longest = 100
}
"""


def test_serving_has_a_price_and_no_energy() -> None:
    assert rules(CARD + SERVING + "price { device_hour = 2 USD/h }") == set()
    assert rules(CARD + SERVING + "energy { power = 700 W }") == {"energy-unused"}
    assert rules("price { device_hour = 2 USD/h }") == {"price-unused"}


@pytest.mark.parametrize(("adapters", "warns"), [("", True), ("adapters { rank = 16 }\n", False)])
def test_adapters_train_on_few_tokens(adapters: str, warns: bool) -> None:
    """10 M tokens of 8 G parameters are 0.001 each: less than any run from scratch, not than LoRA."""
    text = (
        "use catalog.systems.dgx_h100\nuse catalog.models.llama3_8b\nuse catalog.precisions.bf16\n"
        "layout { tp = 8, zero = 1, sequence_parallel = on }\n"
        "training { sequence = 2048, micro_batch = 1, global_batch = 16 sequences }\n"
        "run { tokens = 10 M }\n"
    )
    assert ("implausible-tokens-per-parameter" in rules(text + adapters)) is warns
