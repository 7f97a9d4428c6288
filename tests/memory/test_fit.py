"""What is said of a step that does not fit, and what would make it fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import Check, Formula, Memory, Study, Work
from parcost.engine.evaluation import diagnose
from parcost.engine.reduce import evaluate
from parcost_plugins.vocabulary import Parameters, Training

Bind = Callable[..., Study]

GIVEN = Formula(text="given")


def verdict(study: Study) -> Check:
    outcome = evaluate(study)
    asked = study.plugins.ask("outcome_checks", study=study, outcome=outcome)
    (check,) = (check for _, check in asked if check.id == "does-not-fit")
    assert study.faults == []
    return check


def bind_study(bind: Bind, parameters: float, kept: float = 0.0, **values: Any) -> Study:
    """Bind *parameters* at 16 bytes, and activations that *kept* bytes of each sequence."""

    def memory(study: Study) -> list[Memory]:
        bytes_ = kept * study[Training].micro_batch
        return [Memory(name="kept", bytes_=bytes_, formula=GIVEN, per_micro_batch=True)]

    values = {name.replace("__", "."): value for name, value in values.items()}
    return bind(
        {"mixed.gradients": 2, **values},
        parameters=[Parameters(name="all", elements=parameters, total=parameters, count=(1.0,))],
        terms=[
            Work(name="f", seconds=1.0, pass_="F", formula=GIVEN),
            Work(name="b", seconds=2.0, pass_="B", formula=GIVEN),
        ],
        memory=memory,
    )


def test_a_fitting_layout_has_no_diagnostic(bind: Bind) -> None:
    check = verdict(bind_study(bind, 1e9))
    assert check.holds
    assert check.help == ""


def test_the_error_of_an_oversized_layout_has_excess_stage_and_moment(bind: Bind) -> None:
    study = bind_study(
        bind, 4 * 2.0**30, kept=8 * 2.0**30, plain__memory=64 * 2**30, memory__usable=0.5
    )
    found = diagnose(verdict(study), study)
    assert found.message == (
        "stage 0 needs 72.0 GiB in forward, and 32.0 GiB are usable: 40.0 GiB too much"
    )
    assert found.notes == ("usable: 50 % of the 64 GiB of `plain`",)


def test_the_fastest_single_change_that_fits_is_named(bind: Bind) -> None:
    # 7.5e9 parameters at 16 B are 111.8 GiB. Over 8 replicas at 1 GB/s, two bytes each way:
    # ZeRO 1 and 2 take 3 + 2 x 13.125 + 0.05625 s; ZeRO 3 gathers once more.
    found = verdict(bind_study(bind, 7.5e9))
    assert found.help == "`layout.zero = 1` fits: 38.4 GiB, 29.31 s a step"


def test_a_change_that_fits_to_the_last_byte_fits(bind: Bind) -> None:
    # 2 + 2 + 12 / 8 bytes of each of 2^30 parameters
    found = verdict(bind_study(bind, 2.0**30, plain__memory=5.5 * 2**30))
    assert found.help.startswith("`layout.zero = 1` fits: 5.5 GiB, ")


def test_changes_are_combined_where_one_is_not_enough(bind: Bind) -> None:
    # 2 GiB of parameters at 16 B, and two sequences that keep 12 GiB each: 56 GiB. ZeRO 3
    # leaves 4 GiB of state, two layers gathered and one layer's gradients twice (2 GiB of 8
    # layers), and 24; half a micro-batch 12 of those.
    values = {"training__micro_batch": 2, "training__global_batch": 16}
    study = bind_study(bind, 2 * 2.0**30, 12 * 2.0**30, plain__memory=29 * 2**30, **values)
    assert evaluate(study).memory_bytes == 56 * 2.0**30
    help = verdict(study).help
    combined = "`layout.zero = 3` with `training.micro_batch = 1` fits: 18.0 GiB, "
    assert help.startswith(f"no single change that was tried is enough; {combined}")


def test_the_help_of_a_hopeless_layout_is_more_devices(bind: Bind) -> None:
    study = bind_study(bind, 2.0**30, kept=9 * 2.0**30, plain__memory=8 * 2**30)
    help = verdict(study).help
    assert help.startswith("of what was tried, `layout.zero = ")
    assert help.endswith(" GiB: take more devices")
    alone = bind_study(bind, 2.0**30, plain__memory=2**30, cluster__devices=1)
    assert verdict(alone).help == (
        "no single change that was tried makes it smaller: take more devices"
    )


def test_a_sweep_has_no_single_way_out(bind: Bind) -> None:
    check = verdict(bind_study(bind, 7.5e9, cluster__devices=[1, 8], layout__zero=1))
    assert list(check.holds) == [False, True]  # type: ignore[arg-type]
    assert check.help == ""


@pytest.mark.parametrize("devices", [1, 8])
def test_changes_that_are_not_legal_are_not_proposed(bind: Bind, devices: int) -> None:
    study = bind_study(bind, 7.5e9, cluster__devices=devices)
    assert "layout.pp" not in verdict(study).help  # the parameters are those of one stage


_JOB = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 8, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 128 sequences }
"""


def ways_out(overrides: dict[str, Any]) -> tuple[str, bool]:
    """Return what is said of a real job, and whether it fits with what is said."""
    (scenario,) = parcost.load_text(_JOB, overrides=overrides)
    (problem,) = [d for d in scenario.evaluate().diagnostics if d.id == "does-not-fit"]
    found = re.match(r"`([a-z_.]+) = ([a-z_0-9.]+)` fits", problem.help or "")
    assert found is not None, problem.help
    (changed,) = parcost.load_text(_JOB, overrides={**overrides, found[1]: found[2]})
    fits = all(d.id != "does-not-fit" for d in changed.evaluate().diagnostics)
    return found[1], fits


def test_another_schedule_is_tried() -> None:
    # GPipe keeps all 32 micro-batches, 1F1B no more than the 4 stages: nothing else is needed.
    assert ways_out({"schedule.kind": "gpipe"}) == ("schedule.kind", True)


def test_switches_of_recomputation_are_tried() -> None:
    # 50.4 GiB are 2.4 GiB too much: a few outputs made again cost less than whole layers.
    path, fits = ways_out({"memory.usable": 0.6})
    assert (path.partition(".")[0], fits) == ("recompute", True)
