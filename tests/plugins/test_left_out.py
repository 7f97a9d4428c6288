"""A built-in plugin that is left out: an answer without it, or an error that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost import SpecError
from parcost.engine.session import Session
from parcost.plugins.discovery import load

EXAMPLES = Path(__file__).parents[2] / "specs/examples"
#: Examples, and the study of each that has the most parts.
SPECS = {"minimal": "minimal", "three_d_layout": "three_d_layout", "mixture_of_experts": "padded"}


def problems(name: str, *specs: str) -> list[str]:
    """Return what is not as it should be of studies without the plugin *name*."""
    session, found = Session(load(without=[name])), []
    for spec in specs:
        try:
            studies = session.load(EXAMPLES / f"{spec}.par")
            (scenario,) = (one for one in studies if one.name == SPECS[spec])
            found += [str(fault) for fault in scenario.evaluate().result.faults]
        except SpecError as error:
            reason = f"plugin `{name}` is left out by `--without`"
            others = [one.id for one in error.diagnostics if reason not in one.notes]
            if len(others) == len(error.diagnostics) or {*others} - {"missing-attribute"}:
                found.append(f"{spec}: {error}")
    return found


def test_a_study_that_nothing_computes_names_the_plugin_that_is_left_out() -> None:
    with pytest.raises(SpecError, match="the study has nothing to evaluate") as error:
        parcost.evaluate(EXAMPLES / "minimal.par", plugins=load(without=["pipeline"]))
    assert error.value.diagnostics[0].notes == ("plugin `pipeline` is left out by `--without`",)


def test_intervals_of_figures_that_are_left_out_are_no_fault_of_their_plugin() -> None:
    assert problems("analysis.figures", "minimal") == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_each_plugin_can_be_left_out(part: int) -> None:
    found = {plugin.name: problems(plugin.name, *SPECS) for plugin in load().plugins[part::6]}
    assert not {name: said for name, said in found.items() if said}


def test_without_zero_replicas_hold_everything() -> None:
    """A rank of plain data parallelism has all of its weights, gradients and optimizer state."""
    spec = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 8 }
layout   { zero = 0 }
training { sequence = 512, global_batch = 8 sequences }
"""
    plain = load(without=["data_parallel.zero"])
    (study,) = parcost.load_text(spec, plugins=plain)[0].studies()
    state = sum(t.bytes_ for p, t in study.contributions("memory") if p.name == "memory.state")
    assert state == pytest.approx(18 * 8_030_261_248)  # bf16 and fp32 weights, gradients, Adam
    names = [term.name for _, term in study.contributions("terms")]
    assert "gradient all-reduce" in names
    assert not [name for name in names if "all-gather" in name]
    (sharded,) = parcost.load_text(spec.replace("zero = 0", "zero = 3"), plugins=plain)[0].studies()
    assert "no-zero" in [
        check.id for _, check in sharded.contributions("checks") if not check.holds
    ]
