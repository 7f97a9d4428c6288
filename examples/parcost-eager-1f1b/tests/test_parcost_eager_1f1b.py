"""The schedule keeps the contract of parcost, and its times and memory are counted by hand."""

from __future__ import annotations

import parcost_eager_1f1b
import pytest

import parcost
from parcost import Pipeline, Times, makespan
from parcost_apps.testing import PluginContract, ScheduleContract

PLAIN = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster  { devices = 64 }
layout   { tp = 8, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
"""
SPEC = PLAIN + "schedule { kind = eager_1f1b, stages = [21, 21, 21, 17] }"


class TestSchedule(ScheduleContract):
    schedule = parcost_eager_1f1b.EAGER_1F1B

    @pytest.mark.parametrize(("p", "m", "hop"), [(4, 16, 0), (4, 16, 1), (8, 32, 2), (5, 3, 1)])
    def test_it_pays_for_one_way_and_back(self, p: int, m: int, hop: int) -> None:
        cut = Pipeline(schedule="eager_1f1b", stages=p, micro_batches=m)
        found = makespan(self.schedule, cut, Times([100] * p, [200] * p, [0] * p), hop)
        assert found == (m + p - 1) * 300 + 2 * (p - 1) * hop

    def test_it_keeps_nearly_twice_as_many_alive(self) -> None:
        for stage, ops in enumerate(self.schedule.order(8, 32, 1)):
            alive, most = 0, 0
            for op in ops:
                alive += 1 if op.kind == "F" else -1
                most = max(most, alive)
            assert most == 2 * (7 - stage) + 1


class TestPlugin(PluginContract):
    plugin = parcost_eager_1f1b
    name = "eager_1f1b"
    spec = SPEC
    plain = PLAIN
    swept = {"training.global_batch": [32, 64], "layout.zero": [0, 1]}

    def test_hops_are_cheaper_and_memory_is_not(self) -> None:
        both = SPEC.replace("eager_1f1b", "[one_f_one_b, eager_1f1b]")
        (scenario,) = parcost.load_text(both, plugins=self.plugins())
        exposed, held = [], []
        for result in scenario.evaluate().results:
            assert result.outcome is not None
            ledger = result.outcome.ledger
            exposed.append(sum(line.exposed for line in ledger if line.kind == "send_recv"))
            held.append(result.outcome.memory_bytes)
        assert 0 < exposed[1] < exposed[0]
        assert held[0] < held[1]
