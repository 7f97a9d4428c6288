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
from hypothesis import given
from hypothesis import strategies as st

import parcost
from parcost import Group
from parcost.plugins import Plugin, Plugins, load
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
def tree(modules: dict[str, ModuleType]) -> Any:
    (offered,) = modules["collective_double_binary_tree"].collectives()
    return offered


def one_level(P: Any, alpha: Any, bandwidth: Any) -> Group:
    link = AlphaBeta(name="network", latency=alpha, bandwidth=bandwidth)
    return Group(name="g", ranks=P, shape=(P,), links=(link,))


# --- the algorithm ----------------------------------------------------------------------


def test_two_trees_beat_a_ring_of_a_thousand_ranks_up_to_two_gib(tree: Any) -> None:
    group = one_level(1024.0, 5e-6, 50e9)
    n = 2.0 ** np.arange(10, 40)
    ring_wins = Ring().seconds("all_reduce", n, group) < tree.seconds("all_reduce", n, group)
    assert n[ring_wins][0] == 2.0**32
    assert (np.diff(ring_wins.astype(int)) >= 0).all()


def test_the_ring_overtakes_two_trees_at_about_three_gigabytes(tree: Any) -> None:
    # With x = n/B: 2046 alpha + 2046/1024 x = 2 (x + 20 alpha + sqrt(80 alpha x)) at x = 61.4 ms
    group = one_level(1024.0, 5e-6, 50e9)
    for n, trees_win in ((3.0e9, True), (3.15e9, False)):
        ring = Ring().seconds("all_reduce", n, group)
        assert (tree.seconds("all_reduce", n, group) < ring) is trees_win


def test_a_long_broadcast_costs_what_the_closed_form_says(tree: Any) -> None:
    # d = 10: n/B = 20 ms, 2 d alpha = 0.1 ms, sqrt(8 d alpha n/B) = sqrt(80 * 5e-6 * 0.02)
    seconds = tree.seconds("broadcast", 1e9, one_level(1024.0, 5e-6, 50e9))
    assert seconds == pytest.approx(0.02 + 1e-4 + 8e-6**0.5, rel=1e-12)


def test_a_short_broadcast_is_not_cut(tree: Any) -> None:
    # both halves go down ten levels, to two children each
    seconds = tree.seconds("broadcast", 8.0, one_level(1024.0, 5e-6, 50e9))
    assert seconds == pytest.approx(2 * 10 * (5e-6 + 4 / 50e9), rel=1e-12)


@given(
    P=st.integers(1, 300).map(float),
    n=st.tuples(st.floats(0, 1e12), st.floats(0, 1e12)),
    alpha=st.floats(0, 1e-2),
    bandwidth=st.floats(1e6, 1e13),
)
def test_the_trees_keep_the_laws(
    tree: Any, P: float, n: tuple[float, float], alpha: float, bandwidth: float
) -> None:
    group, (less, more) = one_level(P, alpha, bandwidth), sorted(n)
    broadcast = tree.seconds("broadcast", more, group)
    depth = np.ceil(np.log2(P))
    bound = max(depth * alpha, min(P - 1, 1) * more / bandwidth)
    assert broadcast >= bound * (1 - 1e-12)
    assert tree.seconds("broadcast", less, group) <= broadcast * (1 + 1e-12)
    assert tree.seconds("all_reduce", more, group) == 2 * broadcast
    together = tree.seconds("broadcast", np.array([less, more]), group)
    assert together[1] == pytest.approx(broadcast, rel=1e-12)
    assert tree.seconds("broadcast", more, one_level(1.0, alpha, bandwidth)) == 0


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
    gradients = [line for line in result.outcome.ledger if "all-reduce" in line.name]
    assert any("double_binary_tree" in line.formula.text for line in gradients)


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
