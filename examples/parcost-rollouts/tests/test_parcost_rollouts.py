"""The block and its cost keep the contract of parcost, and the cost is counted by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import parcost_rollouts
import pytest
from parcost_rollouts import all_pairs

import parcost
from parcost.plugins.discovery import Plugins
from parcost.plugins.discovery import load as load_plugins
from parcost_apps.testing import PluginContract

STUDY = Path(__file__).parents[1] / "llama3_8b.par"
#: The study without its requirements: what is not installed has no version.
TEXT = re.sub("^requires .*$", "", STUDY.read_text(encoding="utf-8"), flags=re.MULTILINE)
OURS = (("rollouts", parcost_rollouts), ("collective_all_pairs", all_pairs))


def every_plugin() -> Plugins:
    """Return the installed plugins with both of the distribution, which need not be."""
    installed = {plugin.name for plugin in load_plugins().plugins}
    return load_plugins(*(one for one in OURS if one[0] not in installed))


class TestRollouts(PluginContract):
    plugin = parcost_rollouts
    name = "rollouts"
    spec = TEXT.replace("all_pairs", "ring")
    plain = TEXT.partition("rollouts {")[0].replace("all_pairs", "ring")
    swept = {"rollouts.every": [1, 8], "layout.zero": [1, 2]}

    def ledger(self, text: str) -> list[Any]:
        (scenario,) = parcost.load_text(text, plugins=self.plugins())
        outcome = scenario.evaluate().result.outcome
        assert outcome is not None
        return list(outcome.ledger)

    def sending_seconds(self, text: str) -> float:
        names = "weights to rollouts"
        return sum(line.exposed for line in self.ledger(text) if line.name.startswith(names))

    def test_a_step_pays_for_all_weights_at_the_rate_of_all_ports(self) -> None:
        # 8,030,261,248 weights of 2 bytes at 8 x 50 GB/s, every 8 steps; the norms, which every
        # tensor-parallel rank holds, are sent eight times: 65 x 4096 more, seven times
        by_hand = (8030261248 + 7 * 65 * 4096) * 2 / 400e9 / 8
        assert self.sending_seconds(self.spec) == pytest.approx(by_hand, rel=1e-9)

    def test_sending_twice_as_often_costs_twice_as_much(self) -> None:
        often = self.spec.replace("every     = 8", "every     = 4")
        assert often != self.spec
        assert self.sending_seconds(often) == pytest.approx(
            2 * self.sending_seconds(self.spec), rel=1e-9
        )


def test_the_study_uses_both_plugins() -> None:
    (scenario,) = parcost.load_text(TEXT, plugins=every_plugin())
    report = scenario.evaluate()
    assert not report.result.faults
    assert not report.result.diagnostics
    outcome = report.result.outcome
    assert outcome is not None
    gathers = [line for line in outcome.ledger if line.name == "tensor all-gather"]
    assert gathers
    assert all("all_pairs" in line.formula.shown for line in gathers)
    sent = [line for line in outcome.ledger if line.name.startswith("weights to rollouts")]
    assert {line.plugin.name for line in sent if line.plugin} == {"rollouts"}
