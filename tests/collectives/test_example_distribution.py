"""The example of a third party's distribution: a block, a cost, and an algorithm."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import parcost
from parcost import Group
from parcost.contract.plugin import Plugin
from parcost.plugins.discovery import Plugins, load
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.topology.links import AlphaBeta

ROOT = Path(__file__).parents[2] / "examples" / "parcost-rollouts"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OURS = PROJECT["entry-points"]["parcost"]


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleType]:
    """Import the modules of the distribution, which need not be installed."""
    found = {}
    for name, target in OURS.items():
        if target not in sys.modules:
            path = ROOT / target.replace(".", "/")
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            spec = importlib.util.spec_from_file_location(target, path)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[target] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[target])
        found[name] = EntryPoint(name, target, "parcost").load()
    return found


@pytest.fixture(scope="module")
def plugins(modules: dict[str, ModuleType]) -> Plugins:
    """Join the distribution to what is installed, as if it were too."""
    others = [plugin for plugin in load().plugins if plugin.name not in modules]
    added = [
        Plugin(name, PROJECT["name"], PROJECT["version"], module)
        for name, module in modules.items()
    ]
    return Plugins((*others, *added))


@pytest.fixture(scope="module")
def pairs(modules: dict[str, ModuleType]) -> Any:
    (offered,) = modules["collective_all_pairs"].collectives()
    return offered


def one_node(P: Any, alpha: Any, bandwidth: Any) -> Group:
    link = AlphaBeta(name="node", latency=alpha, bandwidth=bandwidth)
    return Group(name="g", ranks=P, shape=(P,), links=(link,))


# --- the algorithm ----------------------------------------------------------------------


def test_all_pairs_move_the_bytes_of_a_ring_in_two_steps(pairs: Any) -> None:
    # 8 ranks: 7/8 of 1 MB each way at 100 GB/s is 2 x 8.75 us; 2 x 1 us of latency, a ring 14 x
    group = one_node(8.0, 1e-6, 100e9)
    assert pairs.seconds("all_reduce", 1e6, group) == pytest.approx(19.5e-6)
    assert Ring().seconds("all_reduce", 1e6, group) == pytest.approx(31.5e-6)
    assert pairs.seconds("all_gather", 1e6, group) == pytest.approx(9.75e-6)
    assert pairs.seconds("reduce_scatter", 1e6, group) == pytest.approx(9.75e-6)


def test_who_adds_up_takes_time_for_it(pairs: Any) -> None:
    # gamma = 1 ns per kB: 7/8 MB more, but nothing is added in an all-gather
    group = evolve(one_node(8.0, 1e-6, 100e9), reduction=1e-12)
    assert pairs.seconds("all_reduce", 1e6, group) == pytest.approx(19.5e-6 + 0.875e-6)
    assert pairs.seconds("all_gather", 1e6, group) == pytest.approx(9.75e-6)


def test_ranks_on_two_nodes_are_refused(pairs: Any, plugins: Plugins) -> None:
    text = (ROOT / "llama3_8b.par").read_text(encoding="utf-8")
    text = text.replace("tensor = all_pairs", "data = all_pairs")
    (said,) = report(plugins, text).diagnostics
    assert said.id == "collective-unable"
    assert said.message.endswith("it needs all ranks on one node")
    link = one_node(2.0, 1e-6, 1e9).links[0]
    two = Group(name="g", ranks=16.0, shape=(8.0, 2.0), links=(link, link))
    assert pairs.seconds("all_reduce", 1e6, two) == float("inf")


@given(
    P=st.integers(1, 300).map(float),
    n=st.tuples(st.floats(0, 1e12), st.floats(0, 1e12)),
    alpha=st.floats(0, 1e-2),
    bandwidth=st.floats(1e6, 1e13),
)
def test_all_pairs_keep_the_laws(
    pairs: Any, P: float, n: tuple[float, float], alpha: float, bandwidth: float
) -> None:
    group, (less, more) = one_node(P, alpha, bandwidth), sorted(n)
    parts = [pairs.seconds(o, more, group) for o in ("reduce_scatter", "all_gather")]
    whole = pairs.seconds("all_reduce", more, group)
    assert whole == pytest.approx(sum(parts), rel=1e-12)
    assert pairs.seconds("all_reduce", less, group) <= whole * (1 + 1e-12)
    assert whole <= Ring().seconds("all_reduce", more, group) * (1 + 1e-12)
    together = pairs.seconds("all_reduce", np.array([less, more]), group)
    assert together[1] == pytest.approx(whole, rel=1e-12)
    assert pairs.seconds("all_reduce", more, one_node(1.0, alpha, bandwidth)) == 0


# --- the distribution ---------------------------------------------------------------------


def report(plugins: Plugins, text: str | None = None) -> Any:
    text = (ROOT / "llama3_8b.par").read_text(encoding="utf-8") if text is None else text
    (scenario,) = parcost.load_text(text, plugins=plugins)
    return scenario.evaluate()


def test_its_spec_runs_and_says_where_each_line_came_from(plugins: Plugins) -> None:
    result = report(plugins).result
    assert not result.diagnostics
    assert not result.faults
    sent = [line for line in result.outcome.ledger if line.name.startswith("weights to rollouts")]
    assert sent
    assert {str(line.plugin) for line in sent} == {"`rollouts` of parcost-rollouts 0.1.0"}
    gathers = [line for line in result.outcome.ledger if line.name == "tensor all-gather"]
    assert all("all_pairs" in line.formula.shown for line in gathers)
    assert gathers


def test_a_step_pays_for_all_weights_at_the_rate_of_all_ports(plugins: Plugins) -> None:
    # 8,030,261,248 weights of 2 bytes at 8 x 50 GB/s, every 8 steps; the norms, which every
    # tensor-parallel rank holds, are sent eight times: 65 x 4096 more, seven times
    ledger = report(plugins).result.outcome.ledger
    sent = sum(line.exposed for line in ledger if line.name.startswith("weights to rollouts"))
    assert sent == pytest.approx((8030261248 + 7 * 65 * 4096) * 2 / 400e9 / 8, rel=1e-9)


def test_sending_twice_as_often_costs_twice_as_much(plugins: Plugins) -> None:
    text = (ROOT / "llama3_8b.par").read_text(encoding="utf-8")
    without = text.partition("rollouts {")[0]
    step = [
        report(plugins, t).result.figure("step_time")
        for t in (without, text, text.replace("every     = 8", "every     = 4"))
    ]
    assert step[2] - step[1] == pytest.approx(step[1] - step[0], rel=1e-6)
    assert step[1] > step[0]


def test_it_is_sold_as_one_wheel_with_a_readme() -> None:
    assert (ROOT / PROJECT["readme"]).is_file()
    assert PROJECT["dependencies"] == ["parcost"]
