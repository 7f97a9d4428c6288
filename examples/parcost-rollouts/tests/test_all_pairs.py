"""The algorithm keeps the contract of parcost, and its times are counted by hand."""

from __future__ import annotations

import pytest
from attrs import evolve
from parcost_rollouts import all_pairs

import parcost
from parcost_apps.testing import CollectiveContract, PlainLink, one_level, plugins_with, two_levels

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 8 }
training { sequence = 8192, global_batch = 64 sequences }
collectives { data = all_pairs }
"""
NODE = one_level(8.0, PlainLink(latency=1e-6, bandwidth=100e9))


class TestAllPairs(CollectiveContract):
    algorithm = all_pairs.AllPairs()

    def test_all_pairs_move_the_bytes_of_a_ring_in_two_steps(self) -> None:
        # 8 ranks: 7/8 of 1 MB each way at 100 GB/s is 2 x 8.75 us; 2 x 1 us of latency
        assert self.algorithm.seconds("all_reduce", 1e6, NODE) == pytest.approx(19.5e-6)
        assert self.algorithm.seconds("all_gather", 1e6, NODE) == pytest.approx(9.75e-6)
        assert self.algorithm.seconds("reduce_scatter", 1e6, NODE) == pytest.approx(9.75e-6)

    def test_adding_up_takes_time_of_its_own(self) -> None:
        # gamma = 1 ns per kB: 7/8 MB more, but nothing is added in an all-gather
        group = evolve(NODE, reduction=1e-12)
        assert self.algorithm.seconds("all_reduce", 1e6, group) == pytest.approx(20.375e-6)
        assert self.algorithm.seconds("all_gather", 1e6, group) == pytest.approx(9.75e-6)

    def test_ranks_on_two_nodes_are_refused(self) -> None:
        assert self.algorithm.seconds("all_reduce", 1e6, two_levels(8.0, 2.0)) == float("inf")
        plugins = plugins_with("collective_all_pairs", all_pairs)
        (scenario,) = parcost.load_text(SPEC, plugins=plugins)
        (problem,) = scenario.evaluate().diagnostics
        assert problem.id == "collective-unable"
        assert problem.message.endswith("it needs all ranks on one node")
